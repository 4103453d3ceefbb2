"""One poll of a request: what it knows, and what it does in which order.

May import: common, kernel, scale_down.aws, scale_down.decide, scale_down.drain, scale_down.messages, scale_down.model.
"""
