"""What functions, commands and nodes share: the reading of a cluster and its images, the drain protocol, text and sentences. Standard library only.

May import: nothing.
"""
