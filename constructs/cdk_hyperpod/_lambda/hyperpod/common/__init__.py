"""What several functions need: clients, errors of AWS, text, and the drain protocol, which nodes and commands read too.

May import: nothing.
"""
