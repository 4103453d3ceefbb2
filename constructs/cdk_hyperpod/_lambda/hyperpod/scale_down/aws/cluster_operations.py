"""HyperPod's own record of scaling operations: which other operation lowers a group. Nothing depends on it alone.

ListClusterOperations and DescribeClusterOperation keep 14 days (developer guide, cluster operations; continuous provisioning). If
they are denied, missing or wrong, everything works without them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from ...common import api
from .. import messages
from ..model.actions import Wait
from . import clients

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
    """Scaling operations of this cluster that are in progress, newest first. Raises api.CALL_ERRORS."""
    found = []
    for operation_id in islice(_ids(sagemaker, cluster, arn), _MOST):
        reply = sagemaker.describe_cluster_operation(ClusterName=cluster, OperationId=operation_id)
        operation = read_operation(reply)
        if operation is not None:
            found.append(operation)
    return found


def _ids(sagemaker: clients.Operations, cluster: str, arn: str) -> Iterator[str]:
    """Ids of this cluster's operations in progress; of another cluster of this name, and invalid ones, are left out."""
    for summary in _in_progress(sagemaker, cluster):
        operation_id = str(summary.get("OperationId"))
        if summary.get("ClusterArn") == arn and _ID.fullmatch(operation_id):
            yield operation_id


def _in_progress(sagemaker: clients.Operations, cluster: str) -> Iterator[api.Reply]:
    wanted = {"ClusterName": cluster, "Status": "InProgress", "Type": "Scaling"}
    order = {"MaxResults": 100, "SortBy": "CreationTime", "SortOrder": "Descending"}
    return api.pages(sagemaker.list_cluster_operations, "ClusterOperationSummaries", {**wanted, **order}, most=_PAGES)


def read_operation(reply: Mapping[str, Any]) -> Operation | None:
    """From DescribeClusterOperation. None: it is over by now, or its reply is incomplete."""
    operation_id, began = str(reply.get("OperationId")), reply.get("CreationTime")
    if reply.get("Status") != "InProgress" or not isinstance(began, datetime) or not _ID.fullmatch(operation_id):
        return None
    lowers = {}
    for detail in reply.get("ScalingDetails") or ():
        if change := _lowered(detail):
            lowers[str(detail.get("InstanceGroupName"))] = change
    return Operation(operation_id, began, lowers)


def _lowered(detail: Mapping[str, Any]) -> tuple[int, int] | None:
    """A group's target before and after. None: it is not lowered, or no longer."""
    before, after = _target(detail.get("Original")), _target(detail.get("Desired"))
    if before is None or after is None or detail.get("Status", "InProgress") != "InProgress":
        return None
    return (before, after) if after < before else None


def _target(counts: Mapping[str, Any] | None) -> int | None:
    return (counts or {}).get("TargetCount")


def lowered_by_another(
    operations: Sequence[Operation], groups: Collection[str], own_since: datetime | None
) -> Wait | None:
    """The wait for an operation that lowers one of these groups, which the deployment lowers too. Pure.

    `own_since`: operations that began then or later are the guard's own; None: it has made no call yet.
    """
    for operation in operations:
        is_own = own_since is not None and operation.began >= own_since
        lowered = sorted(operation.lowers.keys() & set(groups))
        if lowered and not is_own:
            group = lowered[0]
            return messages.waits.operation_in_progress(operation.id, operation.began, group, *operation.lowers[group])
    return None
