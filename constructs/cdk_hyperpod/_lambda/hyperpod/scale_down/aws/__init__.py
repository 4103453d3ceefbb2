"""The calls of AWS: what they are, how a plan is carried out by them, and what their replies and errors say.

May import: common, kernel, scale_down.messages, scale_down.model.
"""
