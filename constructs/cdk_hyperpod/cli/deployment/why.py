"""`cdk-hyperpod why`: the sentence of a deployment that failed, out of the stacks' events, and nothing else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import rich_click as click

from ...names import stack_names
from .. import aws, live, tables
from ..aws import Clients
from ..operations import superseded
from ..options import json_option, rights, stack_option
from ..tables import say, say_json, shown
from .deployed_stack import PlanError, live_stack, refuse_another_account

__all__ = ["reasons", "why"]

_DESCRIPTION = """\
Say why the last deployment of the file's stacks failed: the first reason of each
stack, without what the CDK CLI prints around it. Exit code 0, also where nothing
failed; 1: the stacks could not be read, or there is none.
"""

Event = Mapping[str, Any]
_SKEW = timedelta(minutes=2)
"""How far the clocks of AWS and of whoever deploys may be apart."""
_RECENT = timedelta(days=1)
"""Of how long ago an operation may have to do with the failure."""
_STACK = "AWS::CloudFormation::Stack"
# Where one resource fails, CloudFormation cancels those beside it, in these very words; other reasons may hold the word too.
_CANCELLED = ("Resource creation cancelled", "Resource update cancelled")
_BEGINNINGS = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "IMPORT_IN_PROGRESS")
# CloudFormation's own words around a custom resource's, and what CDK's provider framework puts before and behind them.
_AROUND = re.compile(r"^(?:Received response status \[FAILED\] from custom resource\. Message returned: )?(?:Error: )?")
_BEHIND = re.compile(r"\s*(?:\n|\(RequestId: ).*", re.DOTALL)


@click.command(
    help=_DESCRIPTION,
    epilog=rights(
        *(
            "cloudformation:DescribeStackEvents",
            "sagemaker:DescribeCluster",
            "sagemaker:ListTags",
            "sagemaker:ListClusterOperations",
            "sagemaker:DescribeClusterOperation",
        ),
        besides="Those of SageMaker only find a stack of another name than this app's, and which scaling operation superseded which.",
    ),
)
@live.target_options
@stack_option
@click.option(
    "--since",
    type=float,
    metavar="SECONDS",
    help="Only what failed at this time or later, in seconds since 1970.",
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
    """Say why the last deployment failed."""
    target = live.find(config=config, cluster=cluster, region=region, profile=profile)
    refuse_another_account(target.config, target.client)
    moment = None if since is None else datetime.fromtimestamp(since, UTC) - _SKEW
    found = reasons(target.name, target.client, moment, stack=stack)
    if as_json:
        failures = [dict(zip(("stack", "reason"), each.split(": ", 1), strict=True)) for each in found]
        say_json("why", 1, {"cluster": target.name, "region": target.region, "failures": failures})
    elif found:
        since_when = moment or tables.now() - _RECENT
        say(*(shown(each) for each in [*found, *superseded(target.client("sagemaker"), target.name, since_when)]))
    elif moment is None:
        say("Nothing has failed in the last deployment of these stacks.")
    else:
        which = {"--config": config} if cluster is None else {"--cluster": cluster}
        given = {**which, "--region": region, "--profile": profile, "--stack": stack}
        words = [f"{option} {shlex.quote(value)}" for option, value in given.items() if value]
        say(
            f"The stacks' events show no failure since then. The last one, whenever it was: cdk-hyperpod why {' '.join(words)}"
        )


def reasons(cluster: str, client: Clients, since: datetime | None = None, *, stack: str | None = None) -> list[str]:
    """`STACK: sentence` of each stack of a cluster whose last operation failed. `since`: what failed then or later; absent: whenever.
    `stack`: the one to ask; absent: this app's own, and where none of them is there, the one that the cluster's tag names.
    Raises PlanError where events cannot be read, and where there is no stack at all."""
    own = stack_names(cluster)
    said = {name: _first_reason_of(name, client, since) for name in ([stack] if stack else own)}
    if not any(there for there, _ in said.values()):
        other = _tagged(cluster, client) if stack is None else None
        if other is None:
            none = f"there is no stack {' or '.join(said)} that your credentials reach"
            more = f", and no other one has cluster {cluster}" if stack is None else ""
            raise PlanError(f"{none}{more}; deploy the file, or name another --profile, --region or --stack")
        said[other] = _first_reason_of(other, client, since)
    return [f"{name}: {sentence}" for name, (_, sentence) in said.items() if sentence is not None]


def _first_reason_of(stack: str, client: Clients, since: datetime | None) -> tuple[bool, str | None]:
    """Whether there is such a stack, and what failed first in it."""
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.scale_down import clients

    try:
        return True, first_reason(clients.read_events(client("cloudformation"), stack), since)
    except api.CALL_ERRORS as error:
        if "does not exist" in api.reason(error):
            return False, None
        raise PlanError(f"cannot read the events of {stack}: {aws.sentence(error)}") from None


def _tagged(cluster: str, client: Clients) -> str | None:
    """The stack that has the cluster of this name; None: there is no such cluster, or none made it. Raises PlanError where that
    cannot be read: nobody has looked for a failure then."""
    from ..._lambda.hyperpod.common import api

    try:
        return live_stack(cluster, client)
    except api.CALL_ERRORS as error:
        none = f"there is no stack {' or '.join(stack_names(cluster))}, and which other one has cluster {cluster}"
        raise PlanError(f"{none} cannot be read: {aws.sentence(error)}; or name it by --stack") from None


def first_reason(events: Iterable[Event], since: datetime | None = None) -> str | None:
    """What failed first in a stack's last operation, by its events, newest first; None: nothing did. `since`: what failed before is
    not told; absent: whenever."""
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
