"""The scale-down custom resource: deletes exactly the nodes and the groups that a deployment asks for.

Standard library and botocore only, by relative imports. Of the library only `cli/` imports it.
May import: common.
"""
