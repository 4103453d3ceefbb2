"""Which of HyperPod's scaling operations superseded which."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from . import aws, tables

Reply = Mapping[str, Any]
_MOST = 20
"""Operations that are read at most, newest first."""


def superseded(sagemaker: Any, cluster: str, since: datetime | None) -> list[str]:
    """A sentence for each scaling operation that a later one superseded, newest first; empty if they cannot be read.

    `since`: only operations that began then or later; None: all that HyperPod keeps.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    bounds = {} if since is None else {"CreationTimeAfter": since}
    try:
        listed = aws.pages(
            sagemaker.list_cluster_operations,
            "ClusterOperationSummaries",
            ClusterName=cluster,
            Type="Scaling",
            SortBy="CreationTime",
            SortOrder="Descending",
            MaxResults=_MOST,
            **bounds,
        )
        found = [*islice(listed, _MOST)]
        if not any(each.get("Status") == "Superseded" for each in found):
            return []
        described = [
            sagemaker.describe_cluster_operation(ClusterName=cluster, OperationId=each["OperationId"]) for each in found
        ]
    except (ClientError, BotoCoreError):
        return []
    return list(sentences(described))


def sentences(operations: list[Reply]) -> list[str]:
    """The same for replies of DescribeClusterOperation, newest first. Pure."""
    found = []
    for position, each in enumerate(operations):
        later = next((other for other in reversed(operations[:position]) if _groups(other) & _groups(each)), None)
        if each.get("Status") == "Superseded":
            by = "by another request" if later is None else f"by {_named(later)}"
            found.append(tables.shown(f"HyperPod's {_named(each)} was superseded {by}"))
    return found


def _groups(operation: Reply) -> set[str]:
    return {str(detail.get("InstanceGroupName")) for detail in operation.get("ScalingDetails") or ()}


def _named(operation: Reply) -> str:
    counts = [
        f"{detail.get('InstanceGroupName')} {_target(detail, 'Original')} -> {_target(detail, 'Desired')}"
        for detail in operation.get("ScalingDetails") or ()
    ]
    began = operation.get("CreationTime")
    when = f"{began.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if isinstance(began, datetime) else "an unknown time"
    return f"operation {operation.get('OperationId')} of {when} UTC ({', '.join(counts)})"


def _target(detail: Reply, member: str) -> object:
    return (detail.get(member) or {}).get("TargetCount", "?")
