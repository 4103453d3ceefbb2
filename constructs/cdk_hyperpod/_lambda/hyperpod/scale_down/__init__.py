"""The scale-down custom resource: deletes exactly the nodes and the groups that a deployment asks for.

Standard library and botocore only, by relative imports. The library imports it as `cdk_hyperpod._lambda.hyperpod.scale_down`.
May import: common.
"""
