"""HyperPod's own record of scaling operations: who else is lowering a group. A second witness, and never the only one.

ListClusterOperations and DescribeClusterOperation keep 14 days (developer guide, cluster operations; continuous provisioning). If
they are denied, missing or wrong, everything works without them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..common import api
from . import clients, messages
from .actions import Wait

PATIENCE = timedelta(minutes=10)
"""How long after a request's beginning an operation is waited for."""

_PAGES = 3
_MOST = 20
"""Operations in progress that are looked at, newest first."""
_ID = re.compile(r"[0-9a-f-]{36}")


@dataclass(frozen=True, slots=True)
class Operation:
    """A scaling operation in progress."""

    id: str
    began: datetime
    lowers: Mapping[str, tuple[int, int]]
    """Group -> its target before and after, for each group that the operation lowers and has not finished."""


def read_operations(sagemaker: clients.Operations, cluster: str, arn: str) -> list[Operation]:
    """Scaling operations of this cluster that are in progress, newest first. Raises what a call raises."""
    found = []
    for summary in _in_progress(sagemaker, cluster):
        operation = str(summary.get("OperationId"))
        if summary.get("ClusterArn") == arn and _ID.fullmatch(operation):
            found.append(
                read_operation(sagemaker.describe_cluster_operation(ClusterName=cluster, OperationId=operation))
            )
        if len(found) == _MOST:
            break
    return [each for each in found if each is not None]


def _in_progress(sagemaker: clients.Operations, cluster: str) -> Iterator[api.Reply]:
    wanted = {"ClusterName": cluster, "Status": "InProgress", "Type": "Scaling"}
    order = {"MaxResults": 100, "SortBy": "CreationTime", "SortOrder": "Descending"}
    return api.pages(sagemaker.list_cluster_operations, "ClusterOperationSummaries", {**wanted, **order}, most=_PAGES)


def read_operation(reply: Mapping[str, Any]) -> Operation | None:
    """From DescribeClusterOperation. Absent: it is over by now, or says too little."""
    operation, began = str(reply.get("OperationId")), reply.get("CreationTime")
    if reply.get("Status") != "InProgress" or not isinstance(began, datetime) or not _ID.fullmatch(operation):
        return None
    lowers = {}
    for detail in reply.get("ScalingDetails") or ():
        before, after = _target(detail.get("Original")), _target(detail.get("Desired"))
        running = detail.get("Status", "InProgress") == "InProgress"
        if running and before is not None and after is not None and after < before:
            lowers[str(detail.get("InstanceGroupName"))] = (before, after)
    return Operation(operation, began, lowers)


def _target(counts: Mapping[str, Any] | None) -> int | None:
    return (counts or {}).get("TargetCount")


def lowered_by_another(
    operations: Sequence[Operation], groups: Collection[str], own_since: datetime | None
) -> Wait | None:
    """The wait for an operation that lowers one of these groups, which the deployment lowers too. Pure.

    `own_since`: operations that began then or later are the guard's own; absent: it has made no call yet.
    """
    for operation in operations:
        if own_since is not None and operation.began >= own_since:
            continue
        for group in sorted(operation.lowers.keys() & set(groups)):
            return messages.operation_in_progress(operation.id, operation.began, group, *operation.lowers[group])
    return None
