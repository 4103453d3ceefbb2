"""What keeps a deployment from deleting the wrong nodes: scale-down, drains, and the check of what a foundation stands on.

May import: config, errors, interface, loader, names, rules, typed, _common, _lambda.
"""
