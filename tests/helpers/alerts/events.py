"""Records of the alerts' queue, as EventBridge and CloudWatch Logs make them."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from typing import Any

Json = Any
AGENT = "SagemakerHealthMonitoringAgent"
"""How the streams of the health agent begin."""

ARN = "arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghijkl"
CAPACITY = "We currently do not have sufficient capacity to launch new ml.p5.48xlarge instances. Please try again."
NOT_PROVISIONED = "Failed to provision EC2 Instance in Cluster llm-train and InstanceGroup {group}"
NOT_CREATED = "Instance creation in Cluster llm-train and InstanceGroup {group} failed"
SCRIPTS = "Instance lifecycle script execution for EC2 Instance {node} has Failed"
REPLACED = "Instance {node} is starting as part of instance replacement in Cluster llm-train and IG {group}"
SUBTREES = ("Cluster", "Instance", "InstanceGroup", "InstanceGroupScaling", "InstanceMonitor", "InstanceHealth")
"""Of the metadata in the envelope, null where nothing is in them."""
_numbers = itertools.count(1)


def sqs(*bodies: Json) -> list[dict[str, Any]]:
    """The records of a batch: `message-1` and so on. A text is a body as it is."""
    return [
        {
            "messageId": f"message-{number}",
            "eventSource": "aws:sqs",
            "body": body if isinstance(body, str) else json.dumps(body),
        }
        for number, body in enumerate(bodies, start=1)
    ]


def cluster_event(
    description: str,
    *,
    group: str | None = "p5",
    node: str | None = None,
    level: str | None = "Error",
    reason: str | None = None,
    subtree: str = "Instance",
    event_id: str | None = None,
    at: int = 1748794825350,
) -> Json:
    """A SageMaker HyperPod Cluster Event. `reason`: absent, every subtree of the metadata is null."""
    number = next(_numbers)
    metadata: Json = dict.fromkeys(SUBTREES)
    if reason is not None:
        metadata[subtree] = {"FailureMessage": reason, "NodeLogicalId": f"df268d19-f035-4f28-9b80-{number:012x}"}
    event = {
        "EventId": event_id or f"83ea0bb5-be77-45e8-a458-{number:012x}",
        "ClusterArn": ARN,
        "ClusterName": "llm-train",
        "InstanceGroupName": group,
        "InstanceId": node,
        "ResourceType": "Instance",
        "EventTime": at,
        "EventLevel": level,
        "Description": description.format(group=group, node=node),
        "EventDetails": {"EventMetadata": metadata},
    }
    given = {name: value for name, value in event.items() if value is not None}
    return envelope("SageMaker HyperPod Cluster Event", {"EventDetails": given})


def envelope(detail_type: str, detail: Json) -> Json:
    """An event of EventBridge. Its id is not the id for DescribeClusterEvent."""
    return {
        "version": "0",
        "id": f"0bd4a141-0a02-9d8a-f977-{next(_numbers):012x}",
        "detail-type": detail_type,
        "source": "aws.sagemaker",
        "account": "111122223333",
        "time": "2026-06-01T17:20:25Z",
        "region": "us-west-2",
        "resources": [ARN],
        "detail": detail,
    }


def failed_launch(group: str = "p5", node: str | None = None, reason: str | None = CAPACITY) -> list[Json]:
    """The two events of one failed launch."""
    return [
        cluster_event(words, group=group, node=node, reason=reason)
        for words in (NOT_PROVISIONED, NOT_CREATED)
    ]  # fmt: skip


def lost_ready(lost: int, ready: int, wanted: int) -> Json:
    """What HyperPod says of nodes while counts change, with its misleading reason."""
    words = f"{lost} node(s) lost orchestration-ready status. Current: {ready}/{wanted} orchestration-ready across 1 instance group(s)."
    return cluster_event(
        words, group=None, level="Warn", subtree="Cluster",
        reason="Request to service failed. If failure persists after retry, contact customer support.",
    )  # fmt: skip


def health_event(node: str, status: str = "Unhealthy", fault: str = "NvidiaErrorTerminate") -> Json:
    """A SageMaker HyperPod Cluster Node Health Event."""
    return envelope(
        "SageMaker HyperPod Cluster Node Health Event",
        {
            "ClusterName": "llm-train",
            "ClusterArn": ARN,
            "InstanceId": node,
            "HealthSummary": {
                "HealthStatus": status,
                "HealthStatusReason": f"HyperPod Health Monitoring Agent (HMA) has detected fault type {fault} on this node and is unhealthy.",
                "RepairAction": "Replace",
                "Recommendation": "Please Replace the Faulty Node.",
            },
        },
    )


def health_record(node: str, group: str = "p5", reason: str = "XidHardwareFailure", key: str = "details") -> Json:
    """A line of the health agent, as the function put it on the queue."""
    return {
        "healthRecord": {
            "logStream": f"{AGENT}/{group}/{node}",
            "timestamp": 1748794825350,
            "message": health_line(reason, key),
        }
    }


def health_line(reason: str = "XidHardwareFailure", key: str = "details") -> str:
    return json.dumps(
        {
            "level": "info",
            "ts": "2026-06-01T17:20:25Z",
            "msg": "NPD caught event: %v",
            key: {
                "severity": "warn",
                "reason": reason,
                "message": "NVRM: Xid (PCI:0000:b9:00): 71, pid=4711, name=python",
            },
            "HealthMonitoringAgentDetectionEvent": "HealthEvent",
        }
    )


def awslogs(*lines: str, kind: str = "DATA_MESSAGE", stream: str = f"{AGENT}/p5/i-0123456789abcdef0") -> Json:
    """What a subscription filter sends."""
    payload = {
        "messageType": kind,
        "logGroup": "/aws/sagemaker/Clusters/llm-train/abcdefghijkl",
        "logStream": stream,
        "subscriptionFilters": ["cdk-hyperpod-health"],
        "logEvents": [
            {"id": str(number), "timestamp": 1748794825350, "message": line} for number, line in enumerate(lines)
        ],
    }
    return {"awslogs": {"data": base64.b64encode(gzip.compress(json.dumps(payload).encode())).decode()}}


def node_id(number: int) -> str:
    return f"i-{number:017x}"
