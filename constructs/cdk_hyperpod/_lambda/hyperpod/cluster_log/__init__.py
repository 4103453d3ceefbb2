"""The function that encrypts HyperPod's own log group, and lets it expire.

May import: nothing.
"""
