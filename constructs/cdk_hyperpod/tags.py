"""The tag that ties a live cluster to its stack."""

STACK_ID_TAG = "cdk-hyperpod:stack-id"
"""Its value is the id of the CloudFormation stack that the cluster belongs to.

`ScaleDown` touches no live cluster without it, so taking it off by hand stops every deployment that takes nodes away.
"""
