"""The end of a deployment or a deletion that failed: the nodes that it deleted, where to read more, and, last, the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any

from cdk_hyperpod.cli.deployment.stack_failures import StackFailure, read_failure
from cdk_hyperpod.cli.deployment.why import NEXT_STEPS
from cdk_hyperpod.errors import HyperPodError
from cdk_hyperpod_local.assemblies import Stack
from cdk_hyperpod_local.commands import report
from cdk_hyperpod_local.session import LocalAws

Json = Any
_ENDING = "ShuttingDown"
_LAST_LINES = 5
"""Lines of the CDK CLI's output that are the reason if no stack has one."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of any HyperPod cluster on the engine."""

    node_id: str
    cluster: str
    group: str


def nodes(aws: LocalAws) -> dict[str, Node]:
    """Every node that is not shutting down, by its id."""
    client = aws.client("sagemaker")
    return {
        item["InstanceId"]: Node(
            node_id=item["InstanceId"], cluster=cluster["ClusterName"], group=item["InstanceGroupName"]
        )
        for cluster in client.list_clusters()["ClusterSummaries"]
        for page in client.get_paginator("list_cluster_nodes").paginate(ClusterName=cluster["ClusterArn"])
        for item in page["ClusterNodeSummaries"]
        if item.get("InstanceId") and item["InstanceStatus"]["Status"] != _ENDING
    }


def deleted(before: Mapping[str, Node], after: Mapping[str, Node], terminations: Sequence[Json]) -> list[str]:
    """Lines about the nodes that the deployment deleted, why, and what HyperPod launched since in the same group."""
    gone = [before[node] for node in sorted(before.keys() - after.keys())]
    if not gone:
        return ["Deleted before it failed: no node."] if before else []
    causes = {item["node_id"]: item["cause"] for item in terminations}
    new = [after[node] for node in sorted(after.keys() - before.keys())]
    rows = []
    for cluster, group in sorted({(node.cluster, node.group) for node in gone}):
        pairs = zip_longest(_of(gone, cluster, group), _of(new, cluster, group), fillvalue="-")
        rows += [
            (group, old, report.cause(causes.get(old, "")).partition(":")[0] or "-", launched)
            for old, launched in pairs
        ]
    return ["Deleted before it failed:", *report.lines(("GROUP", "DELETED", "WHY", "LAUNCHED SINCE"), rows, cut=(0,))]


def _of(found: Sequence[Node], cluster: str, group: str) -> list[str]:
    return [node.node_id for node in found if (node.cluster, node.group) == (cluster, group)]


def reason(aws: LocalAws, stacks: Sequence[Stack], since: datetime, output: str) -> str:
    """Why it failed, as `why` reports it. `output`: the CDK CLI's, for a failure that no stack has."""
    try:
        failures = _failures(aws, stacks, since)
    except HyperPodError as error:
        return str(error)
    found = [line for name, failure in failures.items() for line in failure.lines(name)]
    lines = found or output.strip().splitlines()[-_LAST_LINES:]
    return "\n".join(lines) or "the CDK CLI failed, and printed nothing"


def failed(aws: LocalAws, stacks: Sequence[Stack], since: datetime) -> list[str]:
    """The names of the stacks whose deployment failed, or whose change set was refused. Empty if that cannot be read."""
    try:
        return [name for name, failure in _failures(aws, stacks, since).items() if failure.reason is not None]
    except HyperPodError:
        return []


def _failures(aws: LocalAws, stacks: Sequence[Stack], since: datetime) -> dict[str, StackFailure]:
    client = aws.client("cloudformation")
    return {stack.name: read_failure(stack.name, client, since) for stack in stacks}


def where_to_read_more(log: str, engine_log: str) -> list[str]:
    """The logs, and the page with the next steps."""
    return [logs(log, engine_log), NEXT_STEPS]


def logs(log: str, engine_log: str) -> str:
    """Where the output is."""
    return f"The CDK CLI's output is in {log}, the engine's in {engine_log}."
