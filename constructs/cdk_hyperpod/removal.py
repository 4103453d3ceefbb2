"""What becomes of a resource that leaves its stack: the file's word for it, and CDK's."""

from __future__ import annotations

from collections.abc import Iterator

from aws_cdk import RemovalPolicy

from .config.cluster import Removal
from .errors import Finding

_WORDS: dict[RemovalPolicy, Removal] = {RemovalPolicy.RETAIN: "retain", RemovalPolicy.DESTROY: "destroy"}
_NAMES = {word: policy for policy, word in _WORDS.items()}


def check_removal(removal: object, removal_policy: object) -> Iterator[Finding]:
    """Whether the two say one thing, and one that the resources of this library can do."""
    if not isinstance(removal_policy, RemovalPolicy):
        return
    if removal is not None:
        yield Finding(path="removal_policy", problem="says what removal says too", remedy="keep one of the two")
    if removal_policy not in _WORDS:
        yield Finding(
            path="removal_policy",
            problem=f"RemovalPolicy.{removal_policy.name} is nothing that CloudFormation does here",
            remedy="use RemovalPolicy.RETAIN or RemovalPolicy.DESTROY",
        )


def removal_word(removal_policy: RemovalPolicy | None, otherwise: Removal) -> Removal:
    """CDK's policy in the file's words."""
    return otherwise if removal_policy is None else _WORDS[removal_policy]


def policy_of(removal: Removal) -> RemovalPolicy:
    """The file's word as CDK's policy."""
    return _NAMES[removal]
