"""Draining nodes before they are deleted: the requests, the status that answers, and whether nodes are ready."""
