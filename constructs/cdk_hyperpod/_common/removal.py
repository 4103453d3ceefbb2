"""The removal policy of a resource that leaves its stack: the file's word for it, and CDK's."""

from __future__ import annotations

from collections.abc import Iterator

from aws_cdk import RemovalPolicy

from ..config.cluster import Removal
from ..errors import Finding

_POLICIES: dict[Removal, RemovalPolicy] = {"retain": RemovalPolicy.RETAIN, "destroy": RemovalPolicy.DESTROY}


def check_removal(removal_policy: object) -> Iterator[Finding]:
    """The resources of this library support RETAIN and DESTROY only."""
    if isinstance(removal_policy, RemovalPolicy) and removal_policy not in _POLICIES.values():
        yield Finding(
            code="removal-policy-unsupported",
            path="removal_policy",
            problem=f"RemovalPolicy.{removal_policy.name} is not supported",
            remedy="use RemovalPolicy.RETAIN or RemovalPolicy.DESTROY",
        )


def policy_of(removal: Removal) -> RemovalPolicy:
    """The file's word as CDK's policy."""
    return _POLICIES[removal]
