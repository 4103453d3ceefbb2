"""The removal policy of a resource that leaves its stack: the file's word for it, and CDK's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from aws_cdk import RemovalPolicy

from ..config.cluster import Removal
from ..errors import Finding, raise_errors

P = ParamSpec("P")
T = TypeVar("T")

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


def refuse_removal(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function that once took `removal` refuse it, and name the argument to use instead."""

    @functools.wraps(function)
    def refusing(*args: P.args, **kwargs: P.kwargs) -> T:
        if "removal" in kwargs:
            finding = Finding(
                code="removal-argument-replaced",
                path="removal",
                problem="is not an argument",
                remedy="write removal_policy=RemovalPolicy.RETAIN or RemovalPolicy.DESTROY",
            )
            raise_errors([finding])
        return function(*args, **kwargs)

    return refusing
