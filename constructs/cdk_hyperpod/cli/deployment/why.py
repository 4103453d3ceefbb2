"""`cdk-hyperpod why`: the reason of a failed deployment, from the events of its stacks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import rich_click as click

from ...names import stack_names
from .. import aws, live, tables
from ..aws import Clients
from ..live import NoClusterError, Target
from ..operations import superseded
from ..options import json_option, permissions, stack_option
from ..tables import say, say_json, shown
from .deleted_nodes import DeletedNodes, first, read_deleted
from .deployed_stack import PlanError, live_stack, refuse_another_account
from .stack_failures import StackFailure, read_failure

__all__ = ["NEXT_STEPS", "Failures", "read_failures", "why"]

_DESCRIPTION = """\
Show why the last deployment of the file's stacks failed: the first reason of each
stack, without the text that the CDK CLI prints around it. If the rollback failed
too, show why. Then list the nodes that were deleted before it failed, and those
that HyperPod launched since.

Example:
    cdk-hyperpod why

Exit code 0: printed, even if nothing failed. 1: the stacks could not be read, or
there is no stack.
"""

_SKEW = timedelta(minutes=2)
"""How much the clocks of AWS and of the user's machine may differ."""
_RECENT = timedelta(days=1)
"""Operations that began earlier have nothing to do with the failure."""
_FIRST_LAUNCH = timedelta(hours=6)
"""A controller that was launched later after the cluster's creation is not its first one."""
NEXT_STEPS = "What to do next: docs/at-3-am.md (cdk-hyperpod docs prints its folder)"
"""The last line about a failure."""


@click.command(
    help=_DESCRIPTION,
    epilog=permissions(
        *(
            "cloudformation:DescribeStackEvents",
            "cloudformation:ListChangeSets",
            "cloudformation:DescribeEvents",
            "sagemaker:DescribeCluster",
            "sagemaker:ListClusterNodes",
            "sagemaker:ListClusterEvents",
            "sagemaker:ListTags",
            "sagemaker:ListClusterOperations",
            "sagemaker:DescribeClusterOperation",
            "cloudformation:ListStackResources",
            "logs:FilterLogEvents",
        ),
        besides="ListChangeSets and DescribeEvents find why CloudFormation refused a template. Those of SageMaker find a stack of "
        "another name than this app's, the nodes that were deleted, and superseded scaling operations. With standard provisioning, "
        "ListStackResources and FilterLogEvents find the deleted nodes.",
    ),
)
@live.target_options
@stack_option
@click.option(
    "--since",
    type=float,
    metavar="SECONDS",
    help="Only failures at this time or later, in seconds since 1970.",
)
@json_option
def why(
    config: str,
    cluster: str | None,
    region: str | None,
    profile: str | None,
    stack: str | None,
    since: float | None,
    *,
    as_json: bool,
) -> None:
    """Read the events, and print the reasons."""
    target = live.find(config=config, cluster=cluster, region=region, profile=profile)
    refuse_another_account(target.config, target.client)
    since_when = None if since is None else datetime.fromtimestamp(since, UTC)
    found = read_failures(target.name, target.client, since_when and since_when - _SKEW, stack=stack)
    deleted = _deleted(target, found, since_when)
    if as_json:
        content = {"failures": found.content(), "notes": [*found.notes], "deleted_nodes": deleted and deleted.content()}
        say_json("why", 1, {"cluster": target.name, "region": target.region, **content})
        return
    if found.stacks:
        overtaken = superseded(target.client("sagemaker"), target.name, since_when or tables.now() - _RECENT)
        texts = [*found.reasons, *overtaken, *found.note_texts]
        say(*map(shown, texts))
        say(*([] if deleted is None else deleted.lines()), *_new_controller(target), NEXT_STEPS)
        return
    which = {"--config": config} if cluster is None else {"--cluster": cluster}
    given = {**which, "--region": region, "--profile": profile, "--stack": stack}
    say(_nothing_failed(found.looked_at, given, since_when), *found.note_texts, *_new_controller(target))


def _new_controller(target: Target) -> list[str]:
    """A note if HyperPod has replaced the Slurm controller within a day. Empty if that cannot be seen."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    try:
        cluster = live.describe(target)
        listed = live.nodes(target, cluster)
    except (NoClusterError, ClientError, BotoCoreError):
        return []
    if "CreationTime" not in cluster:
        return []
    first_launch = cluster["CreationTime"] + _FIRST_LAUNCH
    replaced = [
        node
        for node in listed
        if (node.node_type or "").lower() == "controller" and node.launched and node.launched > first_launch
    ]
    return [
        f"note: the Slurm controller was replaced: {node.name} was launched at {node.launched:%Y-%m-%d %H:%M} UTC. "
        "docs/controller-replaced.md says what is left of its jobs"
        for node in replaced
        if node.launched and tables.now() - node.launched < _RECENT
    ]


def _nothing_failed(stacks: Sequence[str], given: Mapping[str, str | None], since: datetime | None) -> str:
    """`given`: the options that choose the stacks."""
    if since is None:
        return (
            f"Nothing failed in the last deployment of {', '.join(stacks)}. To look at another stack, add --stack NAME."
        )
    words = [f"{option} {shlex.quote(value)}" for option, value in given.items() if value]
    return f"The stacks' events show no failure since then. To see the last failure, run: cdk-hyperpod why {' '.join(words)}"


def _deleted(target: Target, found: Failures, since: datetime | None) -> DeletedNodes | None:
    """The nodes that were deleted during the deployment that failed. None: it changed nothing, or there is no cluster."""
    began = first([since, *(failure.began for failure in found.stacks.values())])
    return None if began is None or not found.stacks else read_deleted(target, began)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The stacks of a cluster whose last operation failed."""

    stacks: Mapping[str, StackFailure]
    """Name -> why."""
    notes: tuple[str, ...] = ()
    """What could not be read, with the missing permission."""
    looked_at: tuple[str, ...] = ()
    """The names of all stacks that exist and were read."""

    @property
    def reasons(self) -> list[str]:
        """`STACK: reason` of each, and why its rollback failed."""
        return [line for name, failure in self.stacks.items() for line in failure.lines(name)]

    @property
    def note_texts(self) -> list[str]:
        """The notes as they are printed."""
        return [f"note: {note}" for note in self.notes]

    def content(self) -> list[dict[str, Any]]:
        """For --json."""
        return [
            {"stack": name, "reason": failure.reason, "rollback_reason": failure.rollback_reason}
            for name, failure in self.stacks.items()
        ]


def read_failures(
    cluster: str, client: Clients, since: datetime | None = None, *, stack: str | None = None
) -> Failures:
    """Why the last operations on a cluster's stacks failed. `since`: only failures then or later; None: any. `stack`: the one to
    read; None: this app's own, and if none of them exists, the one that the cluster's tag names.
    Raises PlanError if events cannot be read, or there is no stack at all."""
    found = {name: read_failure(name, client("cloudformation"), since) for name in _names(cluster, stack)}
    if not any(each.exists for each in found.values()):
        other = _tagged(cluster, client) if stack is None else None
        if other is None:
            no_other = f", and no other stack has cluster {cluster}" if stack is None else ""
            raise PlanError(
                f"your credentials find no stack {' or '.join(found)}{no_other}. Deploy the file, or name another --profile, "
                "--region or --stack"
            )
        found[other] = read_failure(other, client("cloudformation"), since)
    return Failures(
        stacks={name: each for name, each in found.items() if each.reason is not None},
        notes=tuple(note for each in found.values() for note in each.notes),
        looked_at=tuple(name for name, each in found.items() if each.exists),
    )


def _names(cluster: str, stack: str | None) -> tuple[str, ...]:
    return stack_names(cluster) if stack is None else (stack,)


def _tagged(cluster: str, client: Clients) -> str | None:
    """The stack that has the cluster of this name; None: there is no such cluster, or no stack created it. Raises PlanError if that
    cannot be read, since the failure may be in that stack."""
    from ..._lambda.hyperpod.common import api

    try:
        return live_stack(cluster, client)
    except api.CALL_ERRORS as error:
        raise PlanError(
            f"your credentials find no stack {' or '.join(stack_names(cluster))}, and the tags of cluster {cluster} cannot be "
            f"read: {aws.sentence(error)}. Or name the stack by --stack"
        ) from None
