"""What HyperPod sends to EventBridge, and what its health monitoring agent writes to the cluster's log group.

Shapes: "Events that Amazon SageMaker AI sends to Amazon EventBridge" and "SageMaker HyperPod cluster events reference"
(SageMaker AI developer guide). The record of the agent is that of awslabs' DevOps agent for HyperPod. Under Slurm, a fault
is only in that record (hyperpod-mental-model.md).
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, replace
from typing import Any

from .responses import cluster_details, event_details
from .state import Cluster, Fault, HyperPodState, Json, Node, Notice

CLUSTER_EVENT = "SageMaker HyperPod Cluster Event"
STATE_CHANGE = "SageMaker HyperPod Cluster State Change"
NODE_HEALTH = "SageMaker HyperPod Cluster Node Health Event"
SUBTREES = ("Cluster", "InstanceGroup", "InstanceGroupScaling", "Instance", "InstanceMonitor", "InstanceHealth")
"""The subtrees of EventMetadata in EventBridge. All of them are null (Behaviour.event_metadata_in_eventbridge)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusEvent:
    """An event for EventBridge's default bus of this account and Region."""

    account: str
    region: str
    cluster_arn: str
    """Its only resource."""
    detail_type: str
    detail: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """A line of a log stream."""

    account: str
    region: str
    group: str
    stream: str
    at_ms: int
    message: str


def announce_status(state: HyperPodState, cluster: Cluster) -> None:
    """Note a Cluster State Change, if the status is not the last one that was sent."""
    if cluster.status == cluster.announced:
        return
    cluster.announced = cluster.status
    state.notices.append(Notice(at=state.now, cluster=cluster, status=cluster.status))


def report_fault(state: HyperPodState, cluster: Cluster, node: Node, fault: Fault) -> Node:
    """Note what the health monitoring agent found on a node, and return the node.

    With NodeRecovery Automatic, HyperPod is going to replace it.
    """
    state.notices.append(Notice(at=state.now, cluster=cluster, node=node, fault=fault))
    return replace(node, faulty=True, due=state.now + state.timings.repair) if _repairs(cluster) else node


def written_out(state: HyperPodState, notice: Notice) -> list[BusEvent | LogRecord]:
    """The notice in the form of EventBridge and of CloudWatch Logs."""
    cluster = notice.cluster
    if notice.fault is not None and notice.node is not None:
        record = _record(cluster, notice.node, notice.fault, notice.at)
        health = _bus_event(cluster, NODE_HEALTH, _health(cluster, notice.node, notice.fault))
        return [record, health] if cluster.eks else [record]
    if notice.event is None:
        status = {"ClusterStatus": notice.status}
        return [_bus_event(cluster, STATE_CHANGE, _present(cluster_details(state, cluster) | status))]
    details = event_details(cluster, notice.event)
    if state.behaviour.event_metadata_in_eventbridge == "null":
        details["EventDetails"] = {"EventMetadata": dict.fromkeys(SUBTREES)}
    if not state.behaviour.event_level_in_eventbridge:
        del details["EventLevel"]
    metadata = details.pop("EventDetails")  # it keeps its nulls, unlike the other members
    whole = _present(details) | ({"EventDetails": metadata} if metadata else {})
    return [_bus_event(cluster, CLUSTER_EVENT, {"EventDetails": whole})]


def _bus_event(cluster: Cluster, detail_type: str, detail: Json) -> BusEvent:
    return BusEvent(
        account=cluster.account,
        region=cluster.region,
        cluster_arn=cluster.arn,
        detail_type=detail_type,
        detail=detail,
    )


def _present(details: Json) -> Json:
    """Without the members that are absent, and with the times as EventBridge gets them: milliseconds since 1970."""
    return {name: _value(name, value) for name, value in details.items() if value is not None}


def _value(name: str, value: Any) -> Any:
    if name.endswith("Time"):
        return int(value * 1000)
    if isinstance(value, dict):
        return _present(value)
    return [_value("", item) for item in value] if isinstance(value, list) else value


def _health(cluster: Cluster, node: Node, fault: Fault) -> Json:
    automatic = _repairs(cluster)
    return {
        "ClusterName": cluster.name,
        "ClusterArn": cluster.arn,
        "InstanceId": node.instance_id,
        "Tags": {},
        "HealthSummary": {
            "HealthStatus": "Unhealthy",
            "HealthStatusReason": (
                f"HyperPod Health Monitoring Agent (HMA) has detected fault type {fault.reason} on this node and is "
                "unhealthy."
            ),
            "RepairAction": "Replace" if automatic else "None",
            "Recommendation": "" if automatic else "Please Replace the Faulty Node.",
        },
    }


def _repairs(cluster: Cluster) -> bool:
    return cluster.settings.get("NodeRecovery") == "Automatic"


def _record(cluster: Cluster, node: Node, fault: Fault, at: float) -> LogRecord:
    line = {
        "level": "info",
        "ts": datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="milliseconds"),
        "msg": "NPD caught event",
        "details": {"severity": fault.severity, "reason": fault.reason, "message": fault.message},
        "HealthMonitoringAgentDetectionEvent": "HealthEvent",
    }
    return LogRecord(
        account=cluster.account,
        region=cluster.region,
        group=log_group(cluster),
        stream=f"SagemakerHealthMonitoringAgent/{node.group}/{node.instance_id}",
        at_ms=int(at * 1000),
        message=json.dumps(line),
    )


def log_group(cluster: Cluster) -> str:
    """The name of HyperPod's log group of the cluster."""
    return f"/aws/sagemaker/Clusters/{cluster.name}/{cluster.arn.rpartition('/')[2]}"
