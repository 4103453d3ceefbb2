"""Sample requests: small clusters of every kind, for tests and rehearsals."""

from __future__ import annotations

from typing import Any

from .api import HyperPod
from .clock import ManualClock
from .state import Json

ROLE = "arn:aws:iam::000000000000:role/node"
EKS_ARN = "arn:aws:eks:us-west-2:000000000000:cluster/eks"
VPC: Json = {"SecurityGroupIds": ["sg-0123456789abcdef0"], "Subnets": ["subnet-0123456789abcdef0"]}


def group(
    name: str, count: int, *, minimum: int | None = None, instance_type: str = "ml.p5.48xlarge", node_type: str | None = "Compute",
    **more: Any,
) -> Json:  # fmt: skip
    """One ClusterInstanceGroupSpecification. `node_type` None: no SlurmConfig; `more`: further members."""
    spec: Json = {
        "InstanceGroupName": name,
        "InstanceCount": count,
        "InstanceType": instance_type,
        "ExecutionRole": ROLE,
        "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-scripts/base", "OnCreate": "on_create.sh"},
    }
    if minimum is not None:
        spec["MinInstanceCount"] = minimum
    if node_type:
        spec["SlurmConfig"] = {"NodeType": node_type} | ({"PartitionNames": [name]} if node_type == "Compute" else {})
    return spec | more


CONTROLLER = group("controller", 1, instance_type="ml.m5.4xlarge", node_type="Controller")


def slurm(*groups: Json, name: str = "train", continuous: bool = True, **more: Any) -> Json:
    """CreateCluster's parameters for Slurm: the given groups and a controller."""
    request: Json = {
        "ClusterName": name,
        "InstanceGroups": [CONTROLLER, *groups],
        "VpcConfig": VPC,
        "Orchestrator": {"Slurm": {}},
        "NodeRecovery": "Automatic",
    }
    return request | ({"NodeProvisioningMode": "Continuous"} if continuous else {}) | more


def eks(*groups: Json, name: str = "train", continuous: bool = True, **more: Any) -> Json:
    """CreateCluster's parameters for EKS; give groups without a node type."""
    request: Json = {
        "ClusterName": name,
        "InstanceGroups": list(groups),
        "VpcConfig": VPC,
        "Orchestrator": {"Eks": {"ClusterArn": EKS_ARN}},
    }
    return request | ({"NodeProvisioningMode": "Continuous"} if continuous else {}) | more


def run_until_quiet(hyperpod: HyperPod, *, at_most: float = 86_400.0) -> float:
    """Advance its ManualClock until nothing is due, at most by `at_most` seconds. Returns the seconds that passed.

    Something that never ends (a node that does not terminate, a group that always fails to start) uses up `at_most`.
    """
    clock = hyperpod.clock
    assert isinstance(clock, ManualClock)
    began = clock.now()
    hyperpod.tick()
    while hyperpod.next_event is not None and hyperpod.next_event - began <= at_most:
        clock.advance(max(hyperpod.next_event - clock.now(), 0.0))
        hyperpod.tick()
    return clock.now() - began
