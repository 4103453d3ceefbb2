"""The tags that tie a live cluster to its stacks, and a key to the one that it belongs to."""

FOUNDATION_TAG = "cdk-hyperpod:foundation"
"""Its value changes with the settings of the foundation that the cluster reads, so that the cluster is updated too."""

KEY_TAG = "cdk-hyperpod:key"
"""Its value is the name of the stack that a KMS key belongs to.

The least-privilege policies (docs/bootstrap) let a deployment change or delete no other key: keys have no names.
"""
