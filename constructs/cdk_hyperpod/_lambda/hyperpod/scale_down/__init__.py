"""The scale-down custom resource: deletes exactly the nodes and groups that a deployment requests.

Standard library and botocore only, by relative imports. Of the library only `cli/` imports it.
May import: common.
"""
