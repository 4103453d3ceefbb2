"""The calls of AWS: what they are, how a plan is carried out by them, and what their replies and errors say.

May import: common, scale_down.messages, scale_down.model.
"""
