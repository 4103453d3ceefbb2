"""The HyperPod cluster: its construct, the roles of its nodes, and HyperPod's own log group.

May import: config, errors, guard, interface, loader, network, rules, scripts, storage, typed, _common, _lambda.
"""
