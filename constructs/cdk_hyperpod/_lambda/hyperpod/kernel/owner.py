"""The tags that name the stack of a cluster."""

from __future__ import annotations

STACK_ID_TAG = "cdk-hyperpod:stack-id"
"""Its value is the id of the CloudFormation stack that the cluster belongs to.

`ScaleDown` changes no live cluster without it: if the tag is removed, every deployment that deletes nodes fails.
"""

OWNER_TAGS = (STACK_ID_TAG, "aws:cloudformation:stack-id")
"""Tags that may hold the id of the stack that made a cluster: the construct's own, and CloudFormation's (only
CloudFormation can write tags that begin with aws:, but whether it does so for this type is undocumented)."""
