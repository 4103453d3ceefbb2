"""Commands about the nodes of a live cluster."""
