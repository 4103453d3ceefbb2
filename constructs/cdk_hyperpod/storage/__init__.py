"""FSx for Lustre and OpenZFS: file systems that are made, and mounts of existing ones.

May import: config, errors, loader, network, rules, typed, _common.
"""
