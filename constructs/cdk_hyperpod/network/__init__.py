"""The VPC or the subnets of an existing one, with endpoints, their policies and security groups.

May import: config, errors, facts, loader, rules, typed, _common.
"""
