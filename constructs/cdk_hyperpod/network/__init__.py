"""A new VPC, or subnets of an existing one, with endpoints, their policies and security groups.

May import: _cdk_private, config, errors, facts, loader, rules, typed, _common.
"""
