"""The scale-down custom resource: takes exactly the nodes and deletes exactly the groups that a deployment asks for.

Standard library and botocore only, and relative imports only: inside the Lambda this package stands alone. The rest of
the library imports it as `cdk_hyperpod._lambda.hyperpod.scale_down`.

May import: common.
"""
