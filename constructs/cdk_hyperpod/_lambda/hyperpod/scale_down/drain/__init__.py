"""Draining nodes before they are deleted: the requests, the status that answers, and whether nodes are ready.

May import: common, kernel, scale_down.aws, scale_down.messages, scale_down.model.
"""
