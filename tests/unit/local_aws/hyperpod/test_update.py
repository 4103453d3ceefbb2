"""UpdateCluster: its refusals, and random terminations by a lower count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdk_hyperpod_local.hyperpod import ApiError, Behaviour, HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import CONTROLLER, EKS_ARN, VPC, eks, group, run_until_quiet, slurm

Make = Callable[..., HyperPod]


def update(hyperpod: HyperPod, *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    request = {"ClusterName": "train", **({"InstanceGroups": list(groups)} if groups else {}), **more}
    return hyperpod.call("UpdateCluster", request)


def names(hyperpod: HyperPod) -> list[str]:
    described = hyperpod.call("DescribeCluster", {"ClusterName": "train"})
    return [g["InstanceGroupName"] for g in described["InstanceGroups"]]


def test_a_lower_count_terminates_random_nodes_and_records_the_cause(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 8)))
    update(hyperpod, group("p5", 5))
    victims = hyperpod.random_terminations
    assert [(t.group, t.cluster, t.cause) for t in victims] == [("p5", "train", "random")] * 3
    assert {t.call for t in victims} == {len(hyperpod.journal)}
    ended = {node.instance_id for node in hyperpod.nodes("train", "p5") if node.status == "ShuttingDown"}
    assert ended == {t.node_id for t in victims}
    run_until_quiet(hyperpod)
    assert len(hyperpod.nodes("train", "p5")) == 5


def test_which_nodes_go_depends_on_the_seed_alone() -> None:
    def victims(seed: int) -> set[int]:
        hyperpod = HyperPod(clock=ManualClock(), seed=seed)
        hyperpod.call("CreateCluster", slurm(group("p5", 30)))
        run_until_quiet(hyperpod)
        order = [node.instance_id for node in hyperpod.nodes("train", "p5")]
        update(hyperpod, group("p5", 20))
        return {order.index(t.node_id) for t in hyperpod.random_terminations}

    assert victims(1) == victims(1)
    assert victims(1) != victims(2)
    assert victims(1) != set(range(20, 30)) != set(range(10)), "neither the newest nor the oldest"


def test_the_same_count_ends_nothing(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 4)))
    update(hyperpod, CONTROLLER, group("p5", 4))
    assert hyperpod.terminations == ()


def test_a_count_met_by_batch_delete_ends_nothing_more(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 4)))
    gone = hyperpod.nodes("train", "p5")[1].instance_id
    hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": [gone]})
    update(hyperpod, group("p5", 3))
    assert [(t.node_id, t.cause) for t in hyperpod.terminations] == [(gone, "named")]


def test_flexible_groups_lose_their_least_wanted_type_first(make: Make) -> None:
    flexible = group("any", 4, node_type=None)
    del flexible["InstanceType"]
    flexible["InstanceRequirements"] = {"InstanceTypes": ["ml.p5.48xlarge", "ml.g6.48xlarge"]}
    hyperpod = make()
    hyperpod.set_capacity("ml.p5.48xlarge", 2)
    hyperpod.call("CreateCluster", eks(flexible))
    run_until_quiet(hyperpod)
    by_type = {node.instance_id: node.instance_type for node in hyperpod.nodes("train")}
    update(hyperpod, flexible | {"InstanceCount": 2})
    assert [by_type[t.node_id] for t in hyperpod.random_terminations] == ["ml.g6.48xlarge"] * 2
    shown = hyperpod.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"][0]
    assert shown["InstanceRequirements"]["DesiredInstanceTypes"] == ["ml.p5.48xlarge", "ml.g6.48xlarge"]
    with pytest.raises(ApiError, match="Instance types with running instances cannot be removed"):
        update(hyperpod, flexible | {"InstanceRequirements": {"InstanceTypes": ["ml.g6.48xlarge"]}})


def test_unlaunched_requests_go_before_nodes_and_are_no_random_end(make: Make) -> None:
    hyperpod = make()
    hyperpod.set_capacity("ml.p5.48xlarge", 2)
    hyperpod.call("CreateCluster", slurm(group("p5", 6)))
    run_until_quiet(hyperpod)
    update(hyperpod, group("p5", 2))
    assert hyperpod.random_terminations == ()
    assert [(t.cause, t.node_id) for t in hyperpod.terminations] == [("random", None)] * 4


def test_groups_that_are_not_sent_stay(ready: Make) -> None:
    hyperpod = ready(slurm(group("a", 2), group("b", 2)))
    update(hyperpod, group("a", 3), NodeRecovery="None")
    assert names(hyperpod) == ["controller", "a", "b"]
    assert hyperpod.call("DescribeCluster", {"ClusterName": "train"})["NodeRecovery"] == "None"
    assert hyperpod.terminations == ()


def test_a_group_scales_to_zero_and_back(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    update(hyperpod, group("p5", 0))
    run_until_quiet(hyperpod)
    assert names(hyperpod) == ["controller", "p5"]
    update(hyperpod, group("p5", 2))
    run_until_quiet(hyperpod)
    assert len(hyperpod.nodes("train", "p5")) == 2


def test_a_deleted_group_takes_its_nodes_and_its_settings_with_it(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("a", 2), group("b", 2)))
    update(hyperpod, InstanceGroupsToDelete=["b"])
    shown = {
        g["InstanceGroupName"]: g["Status"]
        for g in hyperpod.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"]
    }
    assert shown == {"controller": "InService", "a": "InService", "b": "Deleting"}
    with pytest.raises(ApiError, match="b of cluster train is being deleted"):
        update(hyperpod, group("b", 2))
    run_until_quiet(hyperpod)
    assert names(hyperpod) == ["controller", "a"]
    assert {(t.group, t.cause) for t in hyperpod.terminations} == {("b", "group-deleted")}
    update(hyperpod, group("b", 1, instance_type="ml.g6.48xlarge"))
    run_until_quiet(hyperpod)
    assert len(hyperpod.nodes("train", "b")) == 1


def changed(**more: Any) -> dict[str, Any]:
    return group("p5", 2) | more


IMMUTABLE = {
    "type": (changed(InstanceType="ml.g6.48xlarge"), "Instance type cannot be changed for existing instance group p5"),
    "role": (changed(ExecutionRole="arn:aws:iam::000000000000:role/other"), "ExecutionRole cannot be changed"),
    "threads": (changed(ThreadsPerCore=2), "ThreadsPerCore cannot be changed for existing instance group p5"),
    "subnet": (changed(OverrideVpcConfig=VPC), "OverrideVpcConfig cannot be changed for existing instance group p5"),
    "node type": (changed(SlurmConfig={"NodeType": "Login"}), "SlurmConfig NodeType cannot be changed"),
    "flexible": (
        {k: v for k, v in group("p5", 2).items() if k != "InstanceType"}
        | {"InstanceRequirements": {"InstanceTypes": ["ml.p5.48xlarge"]}},
        "cannot switch between InstanceType and InstanceRequirements",
    ),
}


@pytest.mark.parametrize("case", IMMUTABLE)
def test_an_update_of_an_immutable_field_is_refused_as_a_whole(ready: Make, case: str) -> None:
    spec, message = IMMUTABLE[case]
    hyperpod = ready(slurm(group("p5", 2)))
    with pytest.raises(ApiError, match=message) as refused:
        update(hyperpod, group("other", 1), spec)
    assert refused.value.code == "ValidationException"
    assert names(hyperpod) == ["controller", "p5"], "a refused update changes nothing at all"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "minimum above count": ({"InstanceGroups": [group("p5", 2, minimum=3)]}, r"MinInstanceCount \(3\) cannot be greater"),
    "new group of zero": ({"InstanceGroups": [group("new", 0)]}, "InstanceCount must be at least 1 for new instance group new"),
    "second controller": (
        {"InstanceGroups": [group("c2", 1, node_type="Controller")]},
        "Cluster must have exactly one InstanceGroup with Controller node type",
    ),
    "two controllers in the group": (
        {"InstanceGroups": [CONTROLLER | {"InstanceCount": 2}]},
        "must have exactly 1 instance with NodeProvisioningMode Continuous",
    ),
    "controller deleted": (
        {"InstanceGroupsToDelete": ["controller"]},
        r"Cluster train has no InstanceGroup with Controller node type\.",
    ),
    "all groups deleted": ({"InstanceGroupsToDelete": ["controller", "p5"]}, "must maintain at least one instance group"),
    "deleted and kept": (
        {"InstanceGroups": [group("p5", 2)], "InstanceGroupsToDelete": ["p5"]},
        "p5 cannot be in both InstanceGroups and InstanceGroupsToDelete",
    ),
    "unknown group deleted": (
        {"InstanceGroupsToDelete": ["nope"]},
        r"Instance group\(s\) nope specified in InstanceGroupsToDelete do not exist in the cluster",
    ),
    "partition on a login node": (
        {"InstanceGroups": [group("l", 1, SlurmConfig={"NodeType": "Login", "PartitionNames": ["x"]})]},
        "Partitions can only be assigned to Compute node types",
    ),
    "compute without partition": (
        {"InstanceGroups": [group("n", 1, SlurmConfig={"NodeType": "Compute"})]},
        "PartitionNames is required for Compute node types",
    ),
    "group without SlurmConfig": (
        {"InstanceGroups": [group("n", 1, node_type=None)]},
        "SlurmConfig is required in every instance group",
    ),
    "strategy": (
        {"Orchestrator": {"Slurm": {"SlurmConfigStrategy": "Merge"}}},
        "SlurmConfigStrategy cannot be specified for clusters with NodeProvisioningMode Continuous",
    ),
    "same name twice": ({"InstanceGroups": [group("n", 1), group("n", 1)]}, "Found 2 instance groups named n"),
    "moved to EKS": (
        {"Orchestrator": {"Eks": {"ClusterArn": EKS_ARN}}},
        "The Amazon EKS cluster of a HyperPod cluster cannot be changed",
    ),
    "two kinds of scripts": (
        {"InstanceGroups": [group("n", 1, LifeCycleConfig={"SourceS3Uri": "s3://b/x", "OnCreate": "a", "OnInitComplete": "b"})]},
        "OnCreate and OnInitComplete cannot both be specified",
    ),
    "volume without size": (
        {"InstanceGroups": [group("n", 1, InstanceStorageConfigs=[{"EbsVolumeConfig": {"RootVolume": False}}])]},
        "VolumeSizeInGB is required for a secondary EBS volume",
    ),
    "not in the enum": (
        {"InstanceGroups": [group("n", 1, instance_type="ml.p3.2xlarge")]},
        "Value 'ml.p3.2xlarge' at 'instanceGroups.1.member.instanceType' failed to satisfy constraint",
    ),
    "above the maximum": (
        {"InstanceGroups": [group("n", 6759)]},
        "'instanceGroups.1.member.instanceCount' failed to satisfy constraint: Member must have value less than or equal to 6758",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_update_is_refused_as_a_whole(ready: Make, case: str) -> None:
    params, message = REFUSED[case]
    hyperpod = ready(slurm(group("p5", 2)))
    state = hyperpod.to_json().partition('"journal"')[0]
    with pytest.raises(ApiError, match=message) as refused:
        hyperpod.call("UpdateCluster", {"ClusterName": "train", **params})
    assert refused.value.code == "ValidationException"
    assert hyperpod.to_json().partition('"journal"')[0] == state, "a refused update changes nothing at all"


def test_the_last_group_cannot_be_deleted_on_eks(ready: Make) -> None:
    hyperpod = ready(eks(group("a", 1, node_type=None), group("b", 1, node_type=None)))
    update(hyperpod, InstanceGroupsToDelete=["a"])
    with pytest.raises(ApiError, match="Cluster train must maintain at least one instance group"):
        update(hyperpod, InstanceGroupsToDelete=["b"])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            eks(group("a", 1, node_type=None)) | {"VpcConfig": None},
            "VpcConfig is required for clusters orchestrated by",
        ),
        (
            eks(group("a", 1, node_type=None), AutoScaling={"Mode": "Enable"}),
            "ClusterRole is required when AutoScaling is",
        ),
        (
            slurm(group("a", 1), AutoScaling={"Mode": "Enable"}),
            "AutoScaling is only supported for clusters orchestrated by",
        ),
        (slurm(group("a", 2, minimum=1), continuous=False), "MinInstanceCount is only supported for clusters with"),
        (slurm(group("a", 1, CapacityRequirements={"Spot": {}}), continuous=False), "Spot capacity is only supported"),
        (
            {"ClusterName": "-x"},
            "Value '-x' at 'clusterName' failed to satisfy constraint: Member must satisfy regular",
        ),
        ({}, "Value null at 'clusterName' failed to satisfy constraint: Member must not be null"),
        ({"ClusterName": "x", "Nme": 1}, "Unknown parameter 'Nme' at 'request'"),
    ],
)
def test_an_invalid_cluster_is_refused_at_creation(make: Make, request_: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        make().call("CreateCluster", request_)
    assert refused.value.code == "ValidationException"


def test_fsx_needs_a_vpc(make: Make) -> None:
    lustre = {"FsxLustreConfig": {"DnsName": "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com", "MountName": "abcd"}}
    request = slurm(group("a", 1, InstanceStorageConfigs=[lustre]))
    make().call("CreateCluster", request)
    with pytest.raises(ApiError, match="FSx configurations are only supported for Custom VPC"):
        make().call("CreateCluster", request | {"VpcConfig": None})


def test_a_cluster_of_scripts_moves_to_slurm_config_by_a_software_update(ready: Make) -> None:
    plain = [group("controller", 1, node_type=None, instance_type="ml.m5.4xlarge"), group("p5", 1, node_type=None)]
    hyperpod = ready({"ClusterName": "train", "InstanceGroups": plain})
    moved = [CONTROLLER, group("p5", 1)]
    with pytest.raises(ApiError, match="Update required to use SlurmConfig in InstanceGroups"):
        update(hyperpod, *moved)
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train"})
    run_until_quiet(hyperpod)
    update(hyperpod, *moved)


def test_a_name_is_in_use_until_the_cluster_is_deleted(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 1)))
    hyperpod.call("DeleteCluster", {"ClusterName": "train"})
    with pytest.raises(ApiError, match="Cluster with name train already exists") as taken:
        hyperpod.call("CreateCluster", slurm(group("p5", 1)))
    assert taken.value.code == "ResourceInUse"
    with pytest.raises(ApiError, match="Cannot update cluster train while it is in status Deleting"):
        update(hyperpod, group("p5", 1))
    run_until_quiet(hyperpod)
    hyperpod.call("CreateCluster", slurm(group("p5", 1)))


def test_standard_provisioning_takes_one_operation_at_a_time(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2), continuous=False))
    update(hyperpod, group("p5", 1))
    assert len(hyperpod.random_terminations) == 1
    for operation in ("UpdateCluster", "DeleteCluster", "UpdateClusterSoftware"):
        with pytest.raises(ApiError, match="train while it is in status Updating") as refused:
            hyperpod.call(operation, {"ClusterName": "train"})
        assert refused.value.code == "ConflictException"
    run_until_quiet(hyperpod)
    assert hyperpod.call("DescribeCluster", {"ClusterName": "train"})["ClusterStatus"] == "InService"


def test_quotas_stop_growth_with_the_sentence_of_aws(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    hyperpod.set_quota("ml.p5.48xlarge", 3)
    update(hyperpod, group("p5", 3))
    with pytest.raises(ApiError, match=r"'ml.p5.48xlarge for cluster usage' is 3 Instances, with current") as refused:
        update(hyperpod, group("p5", 4))
    assert refused.value.code == "ResourceLimitExceeded"


def test_cluster_role_is_fixed_while_autoscaling_is_on(ready: Make) -> None:
    role, other = "arn:aws:iam::000000000000:role/scale", "arn:aws:iam::000000000000:role/other"
    scaled = eks(
        group("a", 1, node_type=None), ClusterRole=role, AutoScaling={"Mode": "Enable", "AutoScalerType": "Karpenter"}
    )
    hyperpod = ready(scaled)
    shown = hyperpod.call("DescribeCluster", {"ClusterName": "train"})
    assert shown["AutoScaling"] == {"Mode": "Enable", "AutoScalerType": "Karpenter", "Status": "InService"}
    with pytest.raises(ApiError, match="ClusterRole cannot be updated while autoscaling is enabled"):
        update(hyperpod, ClusterRole=other)
    update(hyperpod, AutoScaling={"Mode": "Disable"}, ClusterRole=other)


def test_new_scripts_reach_new_nodes_only(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 1)))
    scripts = {"SourceS3Uri": "s3://sagemaker-scripts/two", "OnCreate": "on_create.sh"}
    update(hyperpod, group("p5", 2, LifeCycleConfig=scripts))
    run_until_quiet(hyperpod)
    sources = []
    for node in hyperpod.nodes("train", "p5"):
        shown = hyperpod.call("DescribeClusterNode", {"ClusterName": "train", "NodeId": node.instance_id})
        sources.append(shown["NodeDetails"]["LifeCycleConfig"]["SourceS3Uri"])
    assert sources == ["s3://sagemaker-scripts/base", "s3://sagemaker-scripts/two"]


def test_behaviour_is_a_value() -> None:
    with pytest.raises(AttributeError):
        Behaviour().default_page_size = 3  # type: ignore[misc]
