"""What is deleted now, what waits, and what is refused, given the live cluster and the deployment. Pure.

`planner` decides for prepare, `group_deletion` for finalize.
May import: kernel, scale_down.messages, scale_down.model.
"""
