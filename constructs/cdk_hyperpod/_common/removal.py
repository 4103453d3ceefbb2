"""The removal policy of a resource that leaves its stack: the file's word for it, and CDK's."""

from __future__ import annotations

from collections.abc import Iterator

from aws_cdk import RemovalPolicy

from ..config.cluster import Removal
from ..errors import Finding

_WORDS: dict[RemovalPolicy, Removal] = {RemovalPolicy.RETAIN: "retain", RemovalPolicy.DESTROY: "destroy"}
_NAMES = {word: policy for policy, word in _WORDS.items()}


def check_removal(removal_policy: object) -> Iterator[Finding]:
    """The resources of this library support RETAIN and DESTROY only."""
    if isinstance(removal_policy, RemovalPolicy) and removal_policy not in _WORDS:
        yield Finding(
            code="removal-policy-unsupported",
            path="removal_policy",
            problem=f"RemovalPolicy.{removal_policy.name} is not supported",
            remedy="use RemovalPolicy.RETAIN or RemovalPolicy.DESTROY",
        )


def removal_word(removal_policy: RemovalPolicy | None, otherwise: Removal) -> Removal:
    """CDK's policy as the file's word. None: `otherwise`."""
    return otherwise if removal_policy is None else _WORDS[removal_policy]


def policy_of(removal: Removal) -> RemovalPolicy:
    """The file's word as CDK's policy."""
    return _NAMES[removal]
