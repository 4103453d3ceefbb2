"""The function that encrypts HyperPod's own log group, lets it expire, and sends the health agent's records to the alerts' function.

May import: nothing.
"""
