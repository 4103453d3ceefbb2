"""The cluster: each option of `InstanceGroup` and `HyperPodCluster` becomes the property that it is about."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import CfnParameter, Environment, Fn, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from aws_cdk.assertions import Annotations, Match

from cdk_hyperpod import (
    ConfigError,
    DrainChannel,
    EbsVolume,
    EksControlPlane,
    HyperPodCluster,
    HyperPodNetwork,
    ILustreFileSystem,
    InstanceGroup,
    LifecycleScripts,
    LustreFileSystem,
    LustreMount,
    ScaleDown,
    SubnetConfig,
    encryption_key,
)
from cdk_hyperpod.config import EksConfig, Rolling, ScaleDownConfig, ScheduledUpdate, StorageConfig, TieredStorageConfig
from cdk_hyperpod.config.lifecycle import LifecycleMode
from helpers.findings import found, refused
from helpers.synthesis import ROOT, Json, Template, flat, folder_of, needs, new_app, of_stack, templates_in

CONTROLLER = InstanceGroup(name="controller", node_type="controller", instance_type="ml.m5.large", instance_count=1)
LOGIN = InstanceGroup(name="login", node_type="login", instance_type="ml.m5.large", instance_count=1)
P5 = InstanceGroup(
    name="p5",
    node_type="compute",
    partition="p5",
    instance_type="ml.p5.48xlarge",
    instance_count=8,
    min_instance_count=4,
)
PLAN = "arn:aws:sagemaker:us-west-2:111122223333:training-plan/eight-p5-for-a-month"
KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-0000-1111-2222-333344445555"
MOUNT = LustreMount(dns_name="fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com", mount_name="abcdefgh")


def add_cluster(
    stack: Stack, *groups: InstanceGroup, network: dict[str, Any] | None = None, **arguments: Any
) -> HyperPodCluster:
    if network is None:
        network = {"availability_zones": ["us-west-2c", "us-west-2d"]}
    return HyperPodCluster(
        stack,
        "Cluster",
        network=HyperPodNetwork(stack, "Network", **network),
        **{"cluster_name": "train", "instance_groups": [CONTROLLER, *groups], **arguments},
    )


def template_with(*groups: InstanceGroup, region: str | None = "us-west-2", **arguments: Any) -> Template:
    return of_stack(lambda stack: add_cluster(stack, *groups, **arguments), region=region)


def cluster_of(template: Template) -> Json:
    return template.only("AWS::SageMaker::Cluster")


@pytest.fixture(scope="module")
def plain() -> Template:
    return template_with(LOGIN, P5)


def test_the_defaults_are_continuous_slurm_with_recovery_in_our_network(plain: Template) -> None:
    cluster = cluster_of(plain)
    (nodes,) = (name for name in plain.of("AWS::EC2::SecurityGroup") if name.startswith("NetworkNodes"))
    first_subnet = next(iter(plain.of("AWS::EC2::Subnet")))
    assert {key: value for key, value in cluster.items() if key != "InstanceGroups"} == {
        "ClusterName": "train",
        "NodeProvisioningMode": "Continuous",
        "NodeRecovery": "Automatic",
        # Under continuous provisioning, the API refuses any SlurmConfigStrategy.
        "Orchestrator": {"Slurm": {}},
        "Tags": [{"Key": "cdk-hyperpod:stack-id", "Value": {"Ref": "AWS::StackId"}}],
        "VpcConfig": {
            "SecurityGroupIds": [{"Fn::GetAtt": [nodes, "GroupId"]}],
            "Subnets": [{"Fn::GetAtt": [first_subnet, "SubnetId"]}],
        },
    }


def root_volume(template: Template) -> Json:
    """A root volume that the cluster's own key encrypts."""
    (key,) = (name for name in template.of("AWS::KMS::Key") if name.startswith("ClusterKey"))
    return {"EbsVolumeConfig": {"RootVolume": True, "VolumeKmsKeyId": {"Fn::GetAtt": [key, "Arn"]}}}


def test_root_volumes_have_the_key_of_aws_if_encrypt_root_volumes_is_false() -> None:
    named = dataclasses.replace(P5, ebs_volumes=(EbsVolume(root_volume=True, volume_kms_key_arn=KEY),))
    groups = template_with(LOGIN, named, encrypt_root_volumes=False).groups()
    assert "InstanceStorageConfigs" not in groups["login"]
    assert groups["p5"]["InstanceStorageConfigs"] == [
        {"EbsVolumeConfig": {"RootVolume": True, "VolumeKmsKeyId": KEY}},
    ]


def test_standard_provisioning_takes_no_key_for_a_volume() -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/smcluster-cmk.html: continuous provisioning only."""
    group = dataclasses.replace(P5, min_instance_count=0, ebs_volumes=(EbsVolume(volume_size_gib=500),))
    template = template_with(LOGIN, group, node_provisioning_mode="standard")
    groups = template.groups()
    assert "InstanceStorageConfigs" not in groups["login"]
    assert groups["p5"]["InstanceStorageConfigs"] == [{"EbsVolumeConfig": {"VolumeSizeInGB": 500}}]
    assert "kms:CreateGrant" not in str(template.of("AWS::IAM::ManagedPolicy"))


def test_a_plain_group_sends_what_was_said_and_nothing_else(plain: Template) -> None:
    groups = copy.deepcopy(plain.groups())
    assert list(groups) == ["controller", "login", "p5"]
    for group in groups.values():
        assert group.pop("InstanceStorageConfigs") == [root_volume(plain)]
        assert group.pop("ExecutionRole")
        assert flat(group["LifeCycleConfig"].pop("SourceS3Uri")).startswith("s3://sagemaker-train-<AWS::AccountId>-us-")
    assert groups["controller"] == {
        "InstanceCount": 1,
        "InstanceGroupName": "controller",
        "InstanceType": "ml.m5.large",
        "LifeCycleConfig": {"OnInitComplete": "controller.sh"},
        "MinInstanceCount": 0,
        "SlurmConfig": {"NodeType": "Controller"},
    }
    assert groups["login"]["SlurmConfig"] == {"NodeType": "Login"}
    assert groups["login"]["LifeCycleConfig"] == {"OnInitComplete": "login.sh"}
    assert groups["p5"] == {
        "InstanceCount": 8,
        "InstanceGroupName": "p5",
        "InstanceType": "ml.p5.48xlarge",
        "LifeCycleConfig": {"OnInitComplete": "compute.sh"},
        "MinInstanceCount": 4,
        "SlurmConfig": {"NodeType": "Compute", "PartitionNames": ["p5"]},
    }


@pytest.mark.parametrize(
    ("mode", "life_cycle_config"),
    [
        (None, {"OnInitComplete": "p5"}),
        ("extended", {"OnInitComplete": "p5"}),
        ("customer_managed", {"OnCreate": "p5"}),
        ("bootstrap", None),
    ],
)
def test_the_mode_decides_which_hook_names_the_script(
    mode: LifecycleMode | None, life_cycle_config: dict[str, str] | None
) -> None:
    group = template_with(P5, lifecycle_mode=mode).groups()["p5"]
    if life_cycle_config is None:
        assert "LifeCycleConfig" not in group
    else:
        (hook,) = life_cycle_config
        assert group["LifeCycleConfig"].pop(hook) == "compute.sh"
        assert list(group["LifeCycleConfig"]) == ["SourceS3Uri"]


def test_scripts_of_one_s_own_do_everything_unless_the_mode_says_otherwise() -> None:
    templates = [
        template_with(P5, lifecycle_scripts=ROOT / "lifecycle", **more) for more in ({}, {"lifecycle_mode": "extended"})
    ]
    hooks = [set(template.groups()["p5"]["LifeCycleConfig"]) - {"SourceS3Uri"} for template in templates]
    assert hooks == [{"OnCreate"}, {"OnInitComplete"}]


ROOT_VOLUME = "the root volume as every group has it"
OPTIONS = [
    pytest.param({"min_instance_count": 8}, {"MinInstanceCount": 8}, id="min_instance_count"),
    pytest.param({"min_instance_count": 0}, {"MinInstanceCount": 0}, id="min_instance_count of 0 is sent too"),
    pytest.param({"threads_per_core": 1}, {"ThreadsPerCore": 1}, id="threads_per_core"),
    pytest.param(
        {"on_start_deep_health_checks": ("instance_stress", "instance_connectivity")},
        {"OnStartDeepHealthChecks": ["InstanceStress", "InstanceConnectivity"]},
        id="on_start_deep_health_checks",
    ),
    pytest.param({"training_plan_arn": PLAN}, {"TrainingPlanArn": PLAN}, id="training_plan_arn"),
    pytest.param({"spot": True}, {"CapacityRequirements": {"Spot": {}}}, id="spot"),
    pytest.param(
        {"instance_type": None, "instance_types": ("ml.p5.48xlarge", "ml.p5en.48xlarge")},
        {"InstanceRequirements": {"InstanceTypes": ["ml.p5.48xlarge", "ml.p5en.48xlarge"]}, "InstanceType": None},
        id="instance_types",
    ),
    pytest.param(
        {"ebs_volumes": (EbsVolume(volume_size_gib=500, volume_kms_key_arn=KEY),)},
        {"InstanceStorageConfigs": [ROOT_VOLUME, {"EbsVolumeConfig": {"VolumeKmsKeyId": KEY, "VolumeSizeInGB": 500}}]},
        id="second volume",
    ),
    pytest.param(
        {"ebs_volumes": (EbsVolume(root_volume=True, volume_kms_key_arn=KEY),)},
        {"InstanceStorageConfigs": [{"EbsVolumeConfig": {"RootVolume": True, "VolumeKmsKeyId": KEY}}]},
        id="root volume",
    ),
]


@pytest.fixture(scope="module")
def options_in_groups() -> dict[str, Json]:
    """A cluster with a group for each of the options, by the option's id."""
    groups = [dataclasses.replace(P5, name=f"p5-{n}", **each.values[0]) for n, each in enumerate(OPTIONS)]  # type: ignore[arg-type]
    made = template_with(LOGIN, *groups).groups()
    return {str(each.id): {**made[f"p5-{n}"], "InstanceGroupName": "p5"} for n, each in enumerate(OPTIONS)}


@pytest.mark.parametrize(("name", "expected"), [pytest.param(each.id, each.values[1], id=each.id) for each in OPTIONS])
def test_an_option_of_a_group_becomes_its_property(
    name: str, expected: dict[str, Any], options_in_groups: dict[str, Json], plain: Template
) -> None:
    before = plain.groups()["p5"]
    assert expected == {
        key: value
        if key != "InstanceStorageConfigs"
        else [ROOT_VOLUME if config == root_volume(plain) else config for config in value]
        for key, value in {**dict.fromkeys(before), **options_in_groups[name]}.items()
        if value != before.get(key)
    }


def test_every_field_of_a_group_is_one_that_these_tests_look_at() -> None:
    looked_at = {option for parameter in OPTIONS for option in dict(parameter.values[0])}  # type: ignore[call-overload]
    elsewhere = {
        "name",
        "instance_count",
        "node_type",
        "partition",
        "availability_zone",
        "scripts_before",
        "scripts_after",
    }
    only_under_eks = {"labels", "taints"}
    of_patches = {"image_id", "image_release_version", "auto_patch", "scheduled_update", "rolling"}
    assert looked_at | elsewhere | only_under_eks | of_patches == {
        field.name for field in dataclasses.fields(InstanceGroup)
    }


def test_volumes_without_a_key_of_their_own_have_the_clusters() -> None:
    template = template_with(dataclasses.replace(P5, ebs_volumes=(EbsVolume(volume_size_gib=500),)))
    root, config = template.groups()["p5"]["InstanceStorageConfigs"]
    assert root == root_volume(template)
    assert config["EbsVolumeConfig"]["VolumeKmsKeyId"] == root["EbsVolumeConfig"]["VolumeKmsKeyId"]


def test_every_node_mounts_the_file_system_after_its_volumes() -> None:
    template = template_with(
        LOGIN,
        dataclasses.replace(P5, ebs_volumes=(EbsVolume(volume_size_gib=500, volume_kms_key_arn=KEY),)),
        file_system=dataclasses.replace(MOUNT, mount_path="/shared"),
    )
    mount = {
        "FsxLustreConfig": {
            "DnsName": "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com",
            "MountName": "abcdefgh",
            "MountPath": "/shared",
        }
    }
    storage = {name: group["InstanceStorageConfigs"] for name, group in template.groups().items()}
    assert storage["controller"] == storage["login"] == [root_volume(template), mount]
    assert [next(iter(config)) for config in storage["p5"]] == ["EbsVolumeConfig", "EbsVolumeConfig", "FsxLustreConfig"]
    assert storage["p5"][2] == mount


def test_a_group_in_another_zone_overrides_the_subnet_and_keeps_the_security_group() -> None:
    elsewhere = dataclasses.replace(P5, name="there", availability_zone="us-west-2d")
    here = dataclasses.replace(P5, name="here", availability_zone="us-west-2c")
    template = template_with(elsewhere, here)
    zones = {name: subnet["Properties"]["AvailabilityZone"] for name, subnet in template.of("AWS::EC2::Subnet").items()}
    override = template.groups()["there"]["OverrideVpcConfig"]
    (subnet,) = override["Subnets"]
    assert zones[subnet["Fn::GetAtt"][0]] == "us-west-2d"
    assert override["SecurityGroupIds"] == cluster_of(template)["VpcConfig"]["SecurityGroupIds"]
    assert "OverrideVpcConfig" not in template.groups()["here"]
    assert "OverrideVpcConfig" not in template.groups()["controller"]


def test_existing_subnets_are_chosen_by_zone() -> None:
    template = template_with(
        dataclasses.replace(P5, availability_zone="us-west-2d"),
        network={
            "vpc_id": "vpc-0123456789abcdef0",
            "subnets": [
                SubnetConfig(subnet_id="subnet-00000000", availability_zone="us-west-2c"),
                SubnetConfig(subnet_id="subnet-11111111", availability_zone="us-west-2d"),
            ],
        },
    )
    assert cluster_of(template)["VpcConfig"]["Subnets"] == ["subnet-00000000"]
    assert template.groups()["p5"]["OverrideVpcConfig"]["Subnets"] == ["subnet-11111111"]


@pytest.mark.parametrize(
    ("arguments", "name", "expected"),
    [
        pytest.param({"node_recovery": "none"}, "NodeRecovery", "None", id="node_recovery"),
        pytest.param(
            {"tiered_storage": TieredStorageConfig(instance_memory_allocation_percentage=40)},
            "TieredStorageConfig",
            {"InstanceMemoryAllocationPercentage": 40, "Mode": "Enable"},
            id="tiered_storage",
        ),
        pytest.param(
            {"tiered_storage": TieredStorageConfig()},
            "TieredStorageConfig",
            {"Mode": "Enable"},
            id="tiered_storage with HyperPod's own share",
        ),
        pytest.param(
            {"tags": {"team": "research"}},
            "Tags",
            [
                {"Key": "cdk-hyperpod:stack-id", "Value": {"Ref": "AWS::StackId"}},
                {"Key": "team", "Value": "research"},
            ],
            id="tags",
        ),
    ],
)
def test_an_option_of_the_cluster_becomes_its_property(arguments: dict[str, Any], name: str, expected: object) -> None:
    assert cluster_of(template_with(**arguments))[name] == expected


def test_standard_provisioning_sends_no_mode_and_no_minimum() -> None:
    template = template_with(
        dataclasses.replace(P5, min_instance_count=0),
        instance_groups=[dataclasses.replace(CONTROLLER, instance_count=2)],
        node_provisioning_mode="standard",
    )
    assert "NodeProvisioningMode" not in cluster_of(template)
    assert not [group for group in template.groups().values() if "MinInstanceCount" in group]
    assert template.groups()["controller"]["InstanceCount"] == 2


def test_one_group_more_changes_no_other_group(plain: Template) -> None:
    more = template_with(LOGIN, P5, dataclasses.replace(P5, name="more", partition="more"))
    assert {name: group for name, group in more.groups().items() if name != "more"} == plain.groups()
    told = ("AWS::SageMaker::Cluster", "Custom::HyperPodScaleDown", "Custom::HyperPodGroupRemoval")
    kept = plain.resources.keys() - {plain.only_id(kind) for kind in told}
    assert {name: more.resources[name] for name in kept} == {name: plain.resources[name] for name in kept}
    assert more.resources.keys() == plain.resources.keys()


# -- the guard --------------------------------------------------------------------------------------------------------


def test_a_cluster_is_guarded_by_default(plain: Template) -> None:
    """Else a lowered count would end nodes at random."""
    prepare = plain.only("Custom::HyperPodScaleDown")
    assert prepare["ClusterName"] == "train"
    assert (prepare["NodesToDelete"], prepare["InstanceGroupsToDelete"], prepare["MaxNodes"]) == ([], [], "16")
    assert plain.only_id("Custom::HyperPodScaleDown") in needs(plain, plain.only_id("AWS::SageMaker::Cluster"))


def test_scale_down_settings_of_the_cluster_reach_the_guard() -> None:
    taken = ScaleDownConfig(nodes_to_delete=("i-0123456789abcdef0",), instance_groups_to_delete=("old",), max_nodes=3)
    prepare = template_with(P5, scale_down=taken).only("Custom::HyperPodScaleDown")
    assert prepare["NodesToDelete"] == ["i-0123456789abcdef0"]
    assert (prepare["InstanceGroupsToDelete"], prepare["MaxNodes"]) == (["old"], "3")


def test_autoscaled_groups_are_passed_to_the_guard() -> None:
    group = InstanceGroup(name="system", instance_type="ml.m5.large", instance_count=1)
    arn = "arn:aws:eks:us-west-2:111122223333:cluster/train"
    template = of_stack(
        lambda stack: add_cluster(stack, instance_groups=[group], eks_cluster_arn=arn, autoscaled_groups=["system"])
    )
    assert template.only("Custom::HyperPodScaleDown")["AutoscaledGroups"] == ["system"]


def test_patch_settings_of_a_group_reach_the_cluster_its_role_and_the_guard() -> None:
    """Also of a group that is added later. Both groups say `none` of what the other one sets."""
    rolling = Rolling(batch_percent=50, wait_seconds=0, rollback_alarms=("nccl-errors",))
    schedule = ScheduledUpdate(schedule="cron(30 12 15 * ? *)")
    kind: dict[str, Any] = {"instance_type": "ml.m5.4xlarge", "instance_count": 2}
    system = InstanceGroup(
        name="system", image_id="default", auto_patch="none", scheduled_update=schedule, rolling=rolling, **kind
    )
    work = InstanceGroup(name="work", image_release_version="1.3.0", auto_patch="when_all_idle", scheduled_update="none", rolling=Rolling(batch_nodes=1, rollback_alarms=("a b", "nccl-errors")), **kind)  # fmt: skip
    arn = "arn:aws:eks:us-west-2:111122223333:cluster/train"

    app = new_app()
    stack = Stack(app, "Stack", env=Environment(region="us-west-2"))
    add_cluster(stack, instance_groups=[system], eks_cluster_arn=arn).add_instance_group(work)
    template = templates_in(folder_of(app))["Stack"]
    (metadata,) = (cluster["Metadata"] for cluster in template.of("AWS::SageMaker::Cluster").values())
    assert metadata["cfn-lint"] == {"config": {"ignore_checks": ["E1152"]}}
    names = ("ImageId", "ImageReleaseVersion", "AutoPatchConfig", "ScheduledUpdateConfig")
    groups = {name: {key: group[key] for key in names if key in group} for name, group in template.groups().items()}
    size = {"Type": "CAPACITY_PERCENTAGE", "Value": 50}
    deployment = {"RollingUpdatePolicy": {"MaximumBatchSize": size}, "WaitIntervalInSeconds": 0, "AutoRollbackConfiguration": [{"AlarmName": "nccl-errors"}]}  # fmt: skip
    scheduled = {"ScheduleExpression": "cron(30 12 15 * ? *)", "DeploymentConfig": deployment}
    assert groups == {
        "system": {"ImageId": "default", "ScheduledUpdateConfig": scheduled},
        "work": {"ImageReleaseVersion": "1.3.0", "AutoPatchConfig": {"PatchingStrategy": "WhenAllIdle"}},
    }
    for resource in ("Custom::HyperPodScaleDown", "Custom::HyperPodGroupRemoval"):
        off = {"AutoPatchConfig": ["system"], "ScheduledUpdateConfig": ["work"]}
        assert json.loads(template.only(resource)["PatchingOff"]) == off
    statements = [
        statement
        for policy in template.properties("AWS::IAM::ManagedPolicy")
        for statement in policy["PolicyDocument"]["Statement"]
        if "cloudwatch:DescribeAlarms" in statement["Action"]
    ]
    (allowed,) = (statement["Resource"] for statement in statements)
    assert [flat(resource).rpartition(":alarm:")[2] for resource in allowed] == ["a b", "nccl-errors"]


def test_leaving_the_guard_out_is_a_word_that_synth_repeats() -> None:
    assert not template_with(P5, unguarded=True).of("Custom::HyperPodScaleDown")
    (warning,) = warnings_of(groups=[P5], unguarded=True)
    assert warning.endswith(" [ack: cdk-hyperpod:unguarded]")


def test_a_guard_of_ones_own_ends_the_warning() -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    cluster = add_cluster(stack, unguarded=True)
    guard = ScaleDown(stack, "ScaleDown", cluster=cluster.resource)
    assert (cluster.scale_down, warnings_in(stack)) == (None, [])
    assert guard.prepare.node.path == "Stack/ScaleDown/Prepare"


def test_a_guard_of_ones_own_takes_the_cluster_itself() -> None:
    """With what the cluster knows of itself: its key, and the groups whose counts are an autoscaler's."""

    def build(stack: Stack) -> None:
        cluster = add_cluster(
            stack,
            instance_groups=[dataclasses.replace(P5, node_type=None, partition=None, min_instance_count=0)],
            eks_cluster_arn="arn:aws:eks:us-west-2:111122223333:cluster/eks",
            autoscaled_groups=["p5"],
            unguarded=True,
        )
        ScaleDown(stack, "ScaleDown", cluster=cluster)

    template = of_stack(build)
    assert template.only("Custom::HyperPodScaleDown")["AutoscaledGroups"] == ["p5"]
    logs = [log for name, log in template.of("AWS::Logs::LogGroup").items() if name.startswith("ScaleDown")]
    assert len(logs) == 3 and all("KmsKeyId" in log["Properties"] for log in logs)


def test_a_group_that_is_added_is_one_that_was_there_from_the_beginning() -> None:
    keyed = dataclasses.replace(P5, name="keyed", ebs_volumes=(EbsVolume(volume_size_gib=500, volume_kms_key_arn=KEY),))

    def added(stack: Stack) -> None:
        cluster = add_cluster(stack, P5)
        for group in (LOGIN, keyed):
            cluster.add_instance_group(group)
        assert [group.name for group in cluster.instance_groups] == ["controller", "p5", "login", "keyed"]

    assert of_stack(added).body == template_with(P5, LOGIN, keyed).body


def test_a_group_that_is_added_is_judged_with_the_others() -> None:
    cluster = add_cluster(Stack(new_app(), "Stack", env=Environment(region="us-west-2")), P5)
    for group, code in (
        (P5, "group-name-duplicated"),
        (dataclasses.replace(P5, name="new", partition=None), "partition-missing"),
        ("p5", "argument-of-wrong-class"),
    ):
        with pytest.raises(ConfigError, match=rf"\[{code}\]"):
            cluster.add_instance_group(group)  # type: ignore[arg-type]
    assert [group.name for group in cluster.instance_groups] == ["controller", "p5"]


def test_a_second_guard_is_refused() -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    cluster = add_cluster(stack)
    with refused(("guard-duplicated", "cluster")):
        ScaleDown(stack, "ScaleDown", cluster=cluster.resource)


def test_an_unguarded_cluster_has_no_setting_of_the_guard() -> None:
    with refused(("unguarded-with-guard-setting", "unguarded")):
        template_with(P5, unguarded=True, scale_down=ScaleDownConfig())


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        pytest.param({"unguarded": "no"}, "unguarded", id="unguarded"),
        pytest.param(
            {"scale_down": ScaleDownConfig(instance_groups_to_delete=("controller",))},
            "scale_down.instance_groups_to_delete",
            id="scale_down",
        ),
    ],
)
def test_settings_of_the_guard_are_validated(arguments: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        template_with(P5, **arguments)
    assert path in [finding.path for finding in caught.value.findings], caught.value


def test_an_upload_that_exists_is_used_as_it_is() -> None:
    def build(stack: Stack) -> None:
        key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        scripts = LifecycleScripts(stack, "Scripts", cluster_name="other-name", encryption_key=key)
        add_cluster(stack, lifecycle_scripts=scripts, encryption_key=key)

    template = of_stack(build)
    assert len(template.of("Custom::HyperPodLifecycleScripts")) == 1
    assert "sagemaker-other-name-" in flat(template.groups()["controller"]["LifeCycleConfig"]["SourceS3Uri"])


def new_file_system(stack: Stack, network: HyperPodNetwork) -> ILustreFileSystem:
    key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
    return LustreFileSystem(
        stack, "FileSystem", network=network, encryption_key=key, storage=StorageConfig(capacity_gib=1200)
    )


def existing_file_system(stack: Stack, network: HyperPodNetwork) -> ILustreFileSystem:
    return LustreFileSystem.from_attributes(
        stack,
        "FileSystem",
        network=network,
        file_system_id="fs-0123456789abcdef0",
        mount_name="abcdefgh",
        security_group=ec2.SecurityGroup.from_security_group_id(stack, "Servers", "sg-0123456789abcdef0"),
    )


@pytest.mark.parametrize("make", [new_file_system, existing_file_system])
def test_in_one_stack_the_cluster_and_its_guard_come_after_the_network_and_the_mounts_rules(
    make: Callable[[Stack, HyperPodNetwork], ILustreFileSystem],
) -> None:
    def build(stack: Stack) -> None:
        network = HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"], internet_egress=True)
        HyperPodCluster(
            stack,
            "Cluster",
            cluster_name="train",
            instance_groups=[CONTROLLER, P5],
            network=network,
            file_system=make(stack, network),
        )

    template = of_stack(build)
    of_network = {name for name in template.resources if name.startswith("Network")}
    of_mount = {name for name in template.resources if name.startswith("FileSystem")}
    routes = {name for name in of_network if template.resources[name]["Type"] == "AWS::EC2::Route"}
    rules = {name for name in of_mount if "NodesToServers" in name or "ServersToNodes" in name}
    assert len(routes) == 2, "to the NAT gateway and to the internet"
    assert len(rules) == 8, "two ranges of ports, two directions, in and out"
    for waiting in ("AWS::SageMaker::Cluster", "Custom::HyperPodScaleDown"):
        assert of_network | of_mount <= needs(template, template.only_id(waiting)), waiting


def test_types_that_the_template_schema_lacks_are_let_through_on_their_cluster_alone() -> None:
    def checks(template: Template) -> object:
        (cluster,) = template.of("AWS::SageMaker::Cluster").values()
        return cluster.get("Metadata")

    new = dataclasses.replace(P5, instance_type="ml.p5e.48xlarge")
    assert checks(template_with(new)) == {"cfn-lint": {"config": {"ignore_checks": ["E3644"]}}}
    assert checks(template_with(P5)) is None


# -- what is refused, and what is not known ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "message"),
    [
        pytest.param(
            dataclasses.replace(P5, min_instance_count=9),
            ("minimum-above-count", "instance_groups[p5].min_instance_count"),
            id="minimum above count",
        ),
        pytest.param(
            dataclasses.replace(P5, partition=None),
            ("partition-missing", "instance_groups[p5].partition"),
            id="no partition",
        ),
        pytest.param(
            dataclasses.replace(P5, instance_type="ml.p3.16xlarge"),
            ("instance-type-unknown", "instance_groups[p5].instance_type"),
            id="type",
        ),
        pytest.param(
            dataclasses.replace(CONTROLLER, name="second"),
            ("node-type-duplicated", "instance_groups"),
            id="two controllers",
        ),
        pytest.param(
            dataclasses.replace(P5, availability_zone="us-west-2b"),
            ("group-zone-without-subnet", "instance_groups[p5].availability_zone"),
            id="zone without a subnet",
        ),
        pytest.param(
            dataclasses.replace(P5, node_type="worker"),  # type: ignore[arg-type]
            ("value-not-a-choice", "instance_groups[p5].node_type"),
            id="node type",
        ),
        pytest.param(
            dataclasses.replace(P5, node_type=Fn.ref("NodeType")),  # type: ignore[arg-type]
            ("choice-known-at-deployment-only", "instance_groups[p5].node_type"),
            id="node type that is a token",
        ),
        pytest.param(
            dataclasses.replace(P5, labels={"team": "a"}),
            ("setting-for-eks-only", "instance_groups[p5].labels"),
            id="labels",
        ),
        pytest.param(
            dataclasses.replace(P5, training_plan_arn=PLAN.replace("us-west-2", "us-east-1")),
            ("arn-in-another-region", "instance_groups[p5].training_plan_arn"),
            id="training plan elsewhere",
        ),
    ],
)
def test_settings_that_hyperpod_would_refuse_fail_at_synth(group: InstanceGroup, message: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        template_with(group)
    assert message in found(caught.value.findings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"instance_groups": [P5]}, ("controller-missing", "instance_groups"), id="no controller"),
        pytest.param({"cluster_name": "-train"}, ("value-malformed", "name"), id="name"),
        pytest.param(
            {"cluster_name": Fn.ref("Name")},
            ("argument-known-at-deployment-only", "name"),
            id="name that is a token",
        ),
        pytest.param(
            {"instance_groups": [CONTROLLER, P5], "node_provisioning_mode": "standard"},
            ("continuous-provisioning-required", "instance_groups[p5].min_instance_count"),
            id="minimum under standard provisioning",
        ),
        pytest.param(
            {"node_provisioning_mode": "Continuous"},
            ("value-misspelled", "node_provisioning_mode"),
            id="provisioning mode",
        ),
        pytest.param(
            {"node_recovery": "Automatic"},
            ("value-misspelled", "node_recovery"),
            id="node recovery",
        ),
        pytest.param(
            {"tiered_storage": TieredStorageConfig(instance_memory_allocation_percentage=5)},
            ("value-out-of-range", "tiered_storage.instance_memory_allocation_percentage"),
            id="share of memory",
        ),
        pytest.param(
            {
                "instance_groups": [CONTROLLER, dataclasses.replace(P5, instance_count=300)],
                "network": {"cidr": "10.0.0.0/21"},
            },
            ("subnet-too-small", "network.cidr"),
            id="room",
        ),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_at_synth(arguments: dict[str, Any], message: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        template_with(**arguments)
    assert message in found(caught.value.findings)


def test_a_region_without_hyperpod_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"region: .*; use one of ap-northeast-1.* \[region-without-hyperpod\]"):
        template_with(region="eu-west-3", network={"availability_zones": ["eu-west-3a"]})


def test_all_findings_are_reported_at_once() -> None:
    wrong = dataclasses.replace(P5, partition=None, min_instance_count=9, instance_type="ml.nope")
    with pytest.raises(ConfigError) as caught:
        template_with(wrong, cluster_name="a_b")
    assert len(caught.value.findings) == 4
    assert all(finding.path and finding.problem and finding.remedy for finding in caught.value.findings)


def test_tokens_are_passed_on_and_never_judged() -> None:
    def build(stack: Stack) -> None:
        count = CfnParameter(stack, "Count", type="Number").value_as_number
        add_cluster(
            stack,
            InstanceGroup(
                name=Fn.ref("GroupName"),
                node_type="compute",
                partition=Fn.ref("Partition"),
                instance_type=Fn.ref("InstanceType"),
                instance_count=count,  # type: ignore[arg-type]  # a number token is a float
                min_instance_count=count,  # type: ignore[arg-type]
                threads_per_core=count,  # type: ignore[arg-type]
                training_plan_arn=Fn.import_value("Plan"),
                ebs_volumes=(
                    EbsVolume(
                        volume_size_gib=count,  # type: ignore[arg-type]
                        volume_kms_key_arn=Fn.import_value("Key"),
                    ),
                ),
            ),
            InstanceGroup(
                name="mixed",
                node_type="compute",
                partition="mixed",
                instance_types=(Fn.ref("FirstType"), Fn.ref("SecondType")),
                instance_count=1,
            ),
            tiered_storage=TieredStorageConfig(instance_memory_allocation_percentage=count),  # type: ignore[arg-type]
            tags={"team": Fn.ref("Team")},
            network={},
        )

    template = of_stack(build, region=None)
    groups = cluster_of(template)["InstanceGroups"]
    assert groups[1]["InstanceGroupName"] == {"Ref": "GroupName"}
    assert groups[1]["InstanceCount"] == groups[1]["MinInstanceCount"] == {"Ref": "Count"}
    assert groups[1]["ThreadsPerCore"] == {"Ref": "Count"}
    assert groups[1]["InstanceType"] == {"Ref": "InstanceType"}
    assert groups[1]["TrainingPlanArn"] == {"Fn::ImportValue": "Plan"}
    assert groups[1]["InstanceStorageConfigs"][1]["EbsVolumeConfig"]["VolumeSizeInGB"] == {"Ref": "Count"}
    assert groups[2]["InstanceRequirements"] == {"InstanceTypes": [{"Ref": "FirstType"}, {"Ref": "SecondType"}]}
    assert cluster_of(template)["TieredStorageConfig"]["InstanceMemoryAllocationPercentage"] == {"Ref": "Count"}


def test_zones_that_are_known_at_deployment_only_can_be_named_by_groups() -> None:
    def build(stack: Stack) -> None:
        first, second = stack.availability_zones
        add_cluster(
            stack,
            dataclasses.replace(P5, availability_zone=second),
            network={"availability_zones": [first, second]},
        )

    template = of_stack(build, region=None)
    own = cluster_of(template)["VpcConfig"]["Subnets"]
    assert template.groups()["p5"]["OverrideVpcConfig"]["Subnets"] != own


def test_a_stack_without_account_and_region_names_neither() -> None:
    template = template_with(LOGIN, P5, region=None, network={})
    assert "us-west-2" not in str(template.body)
    uri = flat(template.groups()["p5"]["LifeCycleConfig"]["SourceS3Uri"])
    assert uri.startswith("s3://sagemaker-train-<AWS::AccountId>-<AWS::Region>/lifecycle/")


# -- warnings ---------------------------------------------------------------------------------------------------------


def warnings_of(**arguments: Any) -> list[str]:
    app = new_app()
    stack = Stack(app, "Stack", env=Environment(region="us-west-2"))
    groups = arguments.pop("groups")
    add_cluster(stack, *groups, **arguments)
    return warnings_in(stack)


def warnings_in(stack: Stack) -> list[str]:
    """Without the warning about the controller's state, which every cluster without a file system has."""
    found = Annotations.from_stack(stack).find_warning("*", Match.any_value())
    texts = [str(message.entry.data) for message in found]
    return [text for text in texts if "[ack: cdk-hyperpod:keep-state-without-storage]" not in text]


def test_a_group_away_from_its_file_system_is_a_warning() -> None:
    (warning,) = warnings_of(
        groups=[dataclasses.replace(P5, availability_zone="us-west-2d")],
        file_system=dataclasses.replace(MOUNT, availability_zone="us-west-2c"),
    )
    assert warning.startswith("instance_groups[p5].availability_zone: ")
    assert warning.endswith(" [ack: cdk-hyperpod:file-system-in-another-zone]")


def test_accelerators_without_a_zone_are_a_warning() -> None:
    (warning,) = warnings_of(groups=[P5], network={})
    assert "which may not offer ml.p5.48xlarge" in warning
    assert warning.endswith("[ack: cdk-hyperpod:zone-unnamed]")


def test_tiered_storage_under_slurm_is_a_warning() -> None:
    (warning,) = warnings_of(groups=[P5], tiered_storage=TieredStorageConfig())
    assert warning.startswith("tiered_storage: ")
    assert warning.endswith("[ack: cdk-hyperpod:tiered-storage-under-slurm]")


def test_a_cluster_in_one_zone_with_its_file_system_warns_of_nothing() -> None:
    assert not warnings_of(groups=[P5], file_system=dataclasses.replace(MOUNT, availability_zone="us-west-2c"))


def test_an_existing_vpc_without_a_way_to_aws_services_is_a_warning_that_is_said_once() -> None:
    subnet = SubnetConfig(subnet_id="subnet-00000000", availability_zone="us-west-2c")
    closed: dict[str, Any] = {"vpc_id": "vpc-0123456789abcdef0", "subnets": [subnet]}

    (warning,) = warnings_of(groups=[P5], network=closed)
    assert warning.startswith("network.endpoint_security_group_id: is missing")
    assert warning.endswith("[ack: cdk-hyperpod:endpoint-group-missing]")
    assert not warnings_of(groups=[P5], network={**closed, "endpoint_security_group_id": "sg-01234567"})
    assert not warnings_of(groups=[P5], network={**closed, "internet_egress": True})


def test_removal_policy_retain_retains_key_scripts_and_logs() -> None:
    """The key, the scripts and the logs that the construct makes; CDK's own functions log where CDK says."""
    template = template_with(removal_policy=RemovalPolicy.RETAIN)
    kept = ("AWS::KMS::Key", "AWS::S3::Bucket", "AWS::Logs::LogGroup")
    for kind in kept:
        made = {name: each["DeletionPolicy"] for name, each in template.of(kind).items() if name.startswith("Cluster")}
        assert made and set(made.values()) == {"Retain"}, kind
    assert not template.of("Custom::S3AutoDeleteObjects")


def test_removal_policy_retain_retains_the_resources_of_other_constructs() -> None:
    def build(stack: Stack) -> None:
        retain = RemovalPolicy.RETAIN
        key = encryption_key(stack, "Key", removal_policy=retain)
        network = HyperPodNetwork(
            stack,
            "Network",
            availability_zones=["us-west-2c", "us-west-2a"],
            more_endpoints=["eks", "eks-auth", "lambda"],
            removal_policy=retain,
        )
        DrainChannel(stack, "Drain", cluster_name="train", encryption_key=key, removal_policy=retain)
        EksControlPlane(
            stack,
            "Eks",
            cluster_name="train",
            eks_config=EksConfig(dependencies_chart="installed"),
            network=network,
            encryption_key=key,
            removal_policy=retain,
        )

    template = of_stack(build)
    for kind, made in {
        "AWS::Logs::LogGroup": ["EksLog", "NetworkFlowLogGroup"],
        "AWS::S3::Bucket": ["DrainBucket"],
    }.items():
        kept = [name for name, each in template.of(kind).items() if each["DeletionPolicy"] == "Retain"]
        assert [re.sub("[0-9A-F]{8}$", "", name) for name in sorted(kept)] == made


def test_the_guard_logs_to_the_given_log_group() -> None:
    def build(stack: Stack) -> None:
        guards = logs.LogGroup.from_log_group_name(stack, "Guards", "guards")
        add_cluster(stack, P5, guard_log_group=guards)

    template = of_stack(build)
    guards = [each for name, each in template.of("AWS::Lambda::Function").items() if "ScaleDown" in name]
    assert len(guards) == 5
    assert {flat(each["Properties"]["LoggingConfig"]["LogGroup"]) for each in guards} == {"guards"}
    assert not [name for name in template.of("AWS::Logs::LogGroup") if "ScaleDown" in name]
