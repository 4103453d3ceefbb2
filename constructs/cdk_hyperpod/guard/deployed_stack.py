"""The stack that CloudFormation deploys around a guard, and what the guards in it share."""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping
from weakref import WeakKeyDictionary

from aws_cdk import Annotations, Stack
from constructs import Construct

_guards: MutableMapping[Stack, list[Construct]] = WeakKeyDictionary()
"""The guards of each deployed stack and of the stacks nested in it, in the order of their creation."""


def outermost(stack: Stack) -> Stack:
    """The stack that is deployed. A nested stack is deployed with its parent."""
    while stack.nested_stack_parent is not None:
        stack = stack.nested_stack_parent
    return stack


def register_guard(guard: Construct) -> None:
    """Remember a guard, and add a warning if its stack has another one."""
    # CloudFormation cancels a nested stack's update with its parent's.
    guards = _guards.setdefault(outermost(Stack.of(guard)), [])
    if guards:
        Annotations.of(guard).add_warning_v2(
            "cdk-hyperpod:two-guards",
            f"{guards[0].node.path} guards another cluster of this stack: if one of the two refuses, CloudFormation "
            "cancels the update of the other after its nodes were deleted; give each cluster a stack of its own",
        )
    guards.append(guard)


def function_name_prefix(guard: Construct) -> str:
    """The beginning of the functions' names: at most 53 characters, unique for each guard of an account and region.

    It does not contain the cluster's name. CloudFormation refuses a custom resource whose function has changed, so after a rename of
    the cluster that error would hide the guard's own explanation of why a cluster keeps its name.
    """
    stack = outermost(Stack.of(guard))
    name = stack.stack_name
    path_in_stack = guard.node.path.removeprefix(f"{stack.node.path}/")
    digest = hashlib.sha256(f"{name}/{path_in_stack}".encode()).hexdigest()[:8]
    return f"hyperpod-{name.removeprefix('hyperpod-')[:35]}-{digest}"
