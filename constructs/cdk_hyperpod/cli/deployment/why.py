"""`cdk-hyperpod why`: the reason of a failed deployment, from the events of its stacks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import rich_click as click

from ...names import stack_names
from .. import aws, live, tables
from ..aws import Clients
from ..operations import superseded
from ..options import json_option, permissions, stack_option
from ..tables import say, say_json, shown
from .deployed_stack import PlanError, live_stack, refuse_another_account

__all__ = ["reasons", "why"]

_DESCRIPTION = """\
Show why the last deployment of the file's stacks failed: the first reason of each
stack, without the text that the CDK CLI prints around it.

Example:
    cdk-hyperpod why

Exit code 0: printed, even if nothing failed. 1: the stacks could not be read, or
there is no stack.
"""

Event = Mapping[str, Any]
_SKEW = timedelta(minutes=2)
"""How much the clocks of AWS and of the user's machine may differ."""
_RECENT = timedelta(days=1)
"""Operations that began earlier have nothing to do with the failure."""
_STACK = "AWS::CloudFormation::Stack"
# If one resource fails, CloudFormation cancels others with exactly these texts.
_CANCELLED = ("Resource creation cancelled", "Resource update cancelled")
_BEGINNINGS = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "IMPORT_IN_PROGRESS")
# The text that CloudFormation and CDK's provider framework add before and after the reason of a custom resource.
_AROUND = re.compile(r"^(?:Received response status \[FAILED\] from custom resource\. Message returned: )?(?:Error: )?")
_BEHIND = re.compile(r"\s*(?:\n|\(RequestId: ).*", re.DOTALL)


@click.command(
    help=_DESCRIPTION,
    epilog=permissions(
        *(
            "cloudformation:DescribeStackEvents",
            "sagemaker:DescribeCluster",
            "sagemaker:ListTags",
            "sagemaker:ListClusterOperations",
            "sagemaker:DescribeClusterOperation",
        ),
        besides="Those of SageMaker find a stack of another name than this app's, and superseded scaling operations.",
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
    since_time = None if since is None else datetime.fromtimestamp(since, UTC) - _SKEW
    found = reasons(target.name, target.client, since_time, stack=stack)
    if as_json:
        failures = [dict(zip(("stack", "reason"), each.split(": ", 1), strict=True)) for each in found]
        say_json("why", 1, {"cluster": target.name, "region": target.region, "failures": failures})
    elif found:
        since_when = since_time or tables.now() - _RECENT
        say(*(shown(each) for each in [*found, *superseded(target.client("sagemaker"), target.name, since_when)]))
    elif since_time is None:
        say("Nothing failed in the last deployment of these stacks.")
    else:
        which = {"--config": config} if cluster is None else {"--cluster": cluster}
        given = {**which, "--region": region, "--profile": profile, "--stack": stack}
        words = [f"{option} {shlex.quote(value)}" for option, value in given.items() if value]
        say(
            f"The stacks' events show no failure since then. To see the last failure, run: cdk-hyperpod why {' '.join(words)}"
        )


def reasons(cluster: str, client: Clients, since: datetime | None = None, *, stack: str | None = None) -> list[str]:
    """`STACK: reason` of each stack of a cluster whose last operation failed. `since`: only failures then or later; None: any.
    `stack`: the one to read; None: this app's own, and if none of them exists, the one that the cluster's tag names.
    Raises PlanError if events cannot be read, or there is no stack at all."""
    own = stack_names(cluster)
    found = {name: _read_events(name, client, since) for name in ([stack] if stack else own)}
    if not any(stack_events.exists for stack_events in found.values()):
        other = _tagged(cluster, client) if stack is None else None
        if other is None:
            no_other = f", and no other stack has cluster {cluster}" if stack is None else ""
            raise PlanError(
                f"your credentials find no stack {' or '.join(found)}{no_other}. Deploy the file, or name another --profile, "
                "--region or --stack"
            )
        found[other] = _read_events(other, client, since)
    return [f"{name}: {stack_events.reason}" for name, stack_events in found.items() if stack_events.reason is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StackEvents:
    """What a stack's events say."""

    exists: bool
    reason: str | None = None
    """What failed first in its last operation; None: nothing."""


def _read_events(stack: str, client: Clients, since: datetime | None) -> _StackEvents:
    """Raises PlanError if the events cannot be read."""
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.scale_down import clients

    try:
        events = clients.read_events(client("cloudformation"), stack)
        return _StackEvents(exists=True, reason=first_reason(events, since))
    except api.CALL_ERRORS as error:
        if "does not exist" in api.reason(error):
            return _StackEvents(exists=False)
        raise PlanError(f"cannot read the events of {stack}: {aws.sentence(error)}") from None


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


def first_reason(events: Iterable[Event], since: datetime | None = None) -> str | None:
    """What failed first in a stack's last operation, by its events, newest first; None: nothing did. `since`: ignore earlier failures;
    None: all count."""
    failed: list[str] = []
    for event in events:
        of_stack = event["ResourceType"] == _STACK and event.get("PhysicalResourceId") == event["StackId"]
        status, reason = event["ResourceStatus"], event.get("ResourceStatusReason", "")
        if since is not None and event["Timestamp"] < since:
            break
        if of_stack and status in _BEGINNINGS:
            break
        if status.endswith("_FAILED") and reason and reason.strip() not in _CANCELLED and not of_stack:
            failed.append(reason)
    return _plain(failed) if failed else None


def _plain(failed: Sequence[str]) -> str:
    return _BEHIND.sub("", _AROUND.sub("", failed[-1]))
