"""Keeps a deployment from deleting the wrong nodes: scale-down, drains, and settings that cannot change after creation.

May import: _cdk_private, config, errors, facts, interface, loader, names, rules, typed, _common, _lambda.
"""
