"""The cluster that SageMaker's replies tell of."""

from __future__ import annotations

from datetime import UTC, datetime

from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import Network
from cdk_hyperpod._lambda.hyperpod.scale_down.model.live_cluster import read_cluster

VPC = {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}


def test_a_described_cluster_is_read_with_its_groups_and_nodes() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    found = read_cluster(
        {
            "ClusterArn": "arn",
            "ClusterName": "train",
            "ClusterStatus": "InService",
            "NodeProvisioningMode": "Continuous",
            "VpcConfig": VPC,
            "Orchestrator": {"Slurm": {}},
            "InstanceGroups": [
                {
                    "InstanceGroupName": "p5",
                    "Status": "InService",
                    "CurrentCount": 1,
                    "TargetCount": 2,
                    "MinCount": 1,
                    "InstanceRequirements": {
                        "DesiredInstanceTypes": ["ml.a", "ml.b"],
                        "CurrentInstanceTypes": ["ml.a"],
                    },
                    "InstanceTypeDetails": [
                        {"InstanceType": "ml.a", "CurrentCount": 1},
                        {"InstanceType": "ml.b", "CurrentCount": 0},
                    ],
                }
            ],
        },
        [
            {
                "InstanceGroupName": "p5",
                "InstanceId": "i-0123456789abcdef0",
                "NodeLogicalId": "p5-1",
                "LaunchTime": began,
                "InstanceStatus": {"Status": "Running"},
                "ImageVersionStatus": "UpdateAvailable",
            },
            {"InstanceGroupName": "p5", "InstanceId": "i-0a1b2c3d", "ImageVersionStatus": "UpToDate"},
            {"InstanceGroupName": "p5", "InstanceId": "", "NodeLogicalId": "p5-2", "LaunchTime": began},
        ],
        {"team": "a"},
    )
    (group,) = found.groups
    assert (group.current, group.target, group.minimum) == (1, 2, 1)
    assert (group.fixed.instance_types, group.fixed.flexible) == (("ml.a", "ml.b"), True)
    assert group.types_in_use == {"ml.a"}
    assert found.network == Network(subnets=frozenset({"subnet-1"}), security_groups=frozenset({"sg-1"}))
    assert (found.continuous, found.eks_cluster, found.tags) == (True, None, {"team": "a"})
    running, newest, requested = found.nodes
    assert not newest.outdated
    assert (running.name, running.outdated, running.launched) == ("i-0123456789abcdef0", True, began)
    assert (requested.name, requested.instance_id, requested.launched, requested.status) == (
        "p5-2", None, None, "Pending",
    )  # fmt: skip


def test_counts_that_a_reply_lacks_are_not_zero() -> None:
    nodes = [
        {"InstanceGroupName": "p5", "InstanceId": f"i-0a1b2c3{n}", "InstanceStatus": {"Status": status}}
        for n, status in enumerate(("Running", "Pending", "ShuttingDown"))
    ]
    reply = {"ClusterArn": "arn", "ClusterStatus": "InService", "InstanceGroups": [{"InstanceGroupName": "p5"}]}
    (group,) = read_cluster(reply, nodes).groups
    assert (group.current, group.target) == (2, 2)
