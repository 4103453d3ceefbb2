"""The lifecycle scripts of the nodes and the bucket that holds them. What runs on a node is in lifecycle/.

May import: config, errors, facts, guard, loader, names, rules, storage, typed, _common, _lambda.
"""
