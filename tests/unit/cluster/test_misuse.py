"""Whatever a library user gives in place of an argument: one message that says where and what, never a crash.

Every public class has a row, with arguments that are right. Each of them is then replaced, one at a time.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Aws, CfnParameter, Environment, RemovalPolicy, Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from aws_cdk.assertions import Template

import cdk_hyperpod
from cdk_hyperpod import (
    ClusterConfig,
    ClusterMonitoring,
    ConfigError,
    DataRepository,
    DrainChannel,
    EbsVolume,
    EksControlPlane,
    EksDrainer,
    Finding,
    HyperPodAddOns,
    HyperPodCluster,
    HyperPodError,
    HyperPodNetwork,
    HyperPodTeams,
    IEksDrainer,
    IHyperPodCluster,
    ILustreFileSystem,
    InstanceGroup,
    InstanceType,
    LifecycleScripts,
    LoadedConfig,
    LustreFileSystem,
    LustreMount,
    OpenZfsMount,
    PrivateSubnet,
    ScaleDown,
    SubnetConfig,
    Team,
    catalogue,
    config,
    eks,
    encryption_key,
    load_config,
)
from cdk_hyperpod.config import (
    AcceleratorPartition,
    AccountingDatabase,
    AddOn,
    AddOnsConfig,
    AutoscalingConfig,
    ChartComponents,
    DrainAgentConfig,
    DrainBackup,
    EbsCsiDriverAddOn,
    EksConfig,
    ExistingEksCluster,
    FsxCsiDriverAddOn,
    Group,
    LifecycleConfig,
    LifecycleSteps,
    MonitoringConfig,
    NetworkConfig,
    ObservabilityAddOn,
    OpenZfsConfig,
    PriorityClass,
    Rolling,
    S3CsiDriverAddOn,
    ScaleDownConfig,
    ScaleDownDrain,
    ScheduledUpdate,
    Share,
    SlurmAccount,
    SlurmConfig,
    SlurmFiles,
    SlurmPartition,
    SlurmQos,
    StorageConfig,
    Taint,
    TaskClass,
    TaskGovernance,
    TieredStorageConfig,
    User,
    jobs,
)
from cdk_hyperpod.config.jobs import (
    ClaimMount,
    ElasticJob,
    ElasticPolicy,
    LogMonitoring,
    RunPolicy,
    ScaleSettings,
    Toleration,
    UnevenBatch,
)
from cdk_hyperpod.rules import check_cluster
from cdk_hyperpod.rules.governance import check_task_governance
from cdk_hyperpod.rules.jobs import check_job
from cdk_hyperpod.rules.teams import check_teams
from cdk_hyperpod.typed.words import show
from helpers.findings import Found, found

HEAD = InstanceGroup(name="head", instance_type="ml.m5.xlarge", instance_count=1, node_type="controller")
WORK = InstanceGroup(name="work", instance_type="ml.p5.48xlarge", instance_count=2, node_type="compute", partition="p5")
SUBNET = SubnetConfig(subnet_id="subnet-0123456789abcdef0", availability_zone="us-west-2c")


CLUSTER_ARN = "arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab"
JOB_SIZE = ScaleSettings(train_batch_size=64)


class Odd:
    """What no parameter takes."""


ODD = Odd()
WRONG: tuple[Any, ...] = (
    ODD,
    5,
    "x",
    None,
    True,
    {"a": 1},
    [None],
    [ODD],
    (),
    [["x"]],
    Path("x"),
    {"1": JOB_SIZE},
    HEAD,
)


ODD_STORAGE: dict[str, Any] = {"capacity_gib": "1200", "data_repositories": DataRepository(file_system_path="/a")}
ODD_FIELDS: Mapping[str, Any] = {"instance_count": "2", "ebs_volumes": EbsVolume(volume_size_gib=5)}
TOKEN_FIELDS: Mapping[str, Any] = {"instance_count": Aws.REGION, "node_type": Aws.REGION, "spot": Aws.REGION}
TOKEN_SHARES: Mapping[str, Any] = {
    "quota": {"ml.p5.48xlarge": Token.as_number({"Ref": "Nodes"})},
    "borrow_limit": Token.as_number({"Ref": "Percent"}),
}
TOKEN_PARTITION: Mapping[str, Any] = {"type": "mig-1g.10gb", "count": Token.as_number({"Ref": "Partitions"})}
TOKEN_PART = Share(accelerator_partition=AcceleratorPartition(**TOKEN_PARTITION))


GROUP = Group(name="research", gid=5000)
USER = User(name="alice", uid=5001, group="research")
DATABASE = AccountingDatabase(
    endpoint="db.example.com", secret_arn="arn:aws:secretsmanager:us-west-2:111122223333:secret:accounting-AbCdEf"
)


class Dependencies:
    """A stack with everything that a construct may want beside it."""

    def __init__(self) -> None:
        no_limit = {"@aws-cdk/core:stackResourceLimit": 0}
        self.stack = Stack(App(context=no_limit), "Stack", env=Environment(region="us-west-2"))
        self.key = encryption_key(self.stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        self.network = HyperPodNetwork(
            self.stack,
            "Network",
            availability_zones=["us-west-2c", "us-west-2a"],
            more_endpoints=["eks", "eks-auth", "lambda"],
        )
        self.logs = s3.Bucket(self.stack, "Logs")
        self.channel = DrainChannel(self.stack, "Channel", cluster_name="small", encryption_key=self.key)
        self.scripts = LifecycleScripts(self.stack, "Scripts", cluster_name="small", encryption_key=self.key)
        self.cluster = HyperPodCluster(
            self.stack,
            "Cluster",
            cluster_name="small",
            network=self.network,
            instance_groups=[HEAD, WORK],
            lifecycle_scripts=self.scripts,
            encryption_key=self.key,
        )
        self.eks = EksControlPlane(
            self.stack,
            "Eks",
            cluster_name="small",
            eks_config=EksConfig(dependencies_chart="installed"),
            network=self.network,
            encryption_key=self.key,
        )
        self._made = 0

    def next_id(self) -> str:
        """An id that no construct has yet."""
        self._made += 1
        return f"Made{self._made}"

    def unguarded_cluster(self) -> sagemaker.CfnCluster:
        """A cluster that no ScaleDown guards yet."""
        return sagemaker.CfnCluster(
            self.stack,
            self.next_id(),
            cluster_name="small",
            instance_groups=[
                sagemaker.CfnCluster.ClusterInstanceGroupProperty(
                    instance_group_name="work", instance_count=1, execution_role="arn:aws:iam::111122223333:role/work"
                )
            ],
        )


@pytest.fixture(scope="module")
def dependencies() -> Dependencies:
    return Dependencies()


CONSTRUCTS: Mapping[Callable[..., object], Callable[[Dependencies], dict[str, Any]]] = {
    EksControlPlane: lambda dependencies: {
        "cluster_name": "small",
        "eks_config": EksConfig(dependencies_chart="installed"),
        "network": dependencies.network,
        "encryption_key": dependencies.key,
        "chart_folder": ".",
        "neuron": False,
        "instance_types": ["ml.p5.48xlarge"],
        "removal_policy": RemovalPolicy.DESTROY,
    },
    EksDrainer: lambda dependencies: {
        "cluster_name": "small",
        "control_plane": dependencies.eks,
        "encryption_key": dependencies.key,
        "backup_cron_job": "hyperpod-backup/save",
        "log_group": logs.LogGroup.from_log_group_name(dependencies.stack, dependencies.next_id(), "drainer"),
        "removal_policy": RemovalPolicy.RETAIN,
    },
    HyperPodAddOns: lambda dependencies: {
        "control_plane": dependencies.eks,
        "hyperpod_cluster_arn": "arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab",
        "encryption_key": dependencies.key,
        "has_file_system": False,
    },
    HyperPodCluster: lambda dependencies: {
        "cluster_name": "small",
        "instance_groups": [HEAD, WORK],
        "network": dependencies.network,
        "file_system": LustreMount(dns_name="a", mount_name="b"),
        "openzfs": OpenZfsMount(dns_name="a"),
        "lifecycle_scripts": dependencies.scripts,
        "lifecycle_mode": "customer_managed",
        "accounting_database": None,
        "encryption_key": dependencies.key,
        "node_provisioning_mode": "continuous",
        "node_recovery": "none",
        "tiered_storage": TieredStorageConfig(),
        "tags": {"a": "b"},
        "eks_cluster_arn": None,
        "autoscaled_groups": (),
        "drainer": None,
        "encrypt_root_volumes": False,
        "roles": {"compute": iam.Role.from_role_name(dependencies.stack, dependencies.next_id(), "nodes")},
        "scale_down": ScaleDownConfig(),
        "unguarded": False,
        "log_retention_days": 365,
        "guard_log_group": logs.LogGroup.from_log_group_name(dependencies.stack, dependencies.next_id(), "guard"),
        "removal_policy": RemovalPolicy.RETAIN,
    },
    HyperPodNetwork: lambda dependencies: {
        "availability_zones": ["us-west-2c"],
        "internet_egress": False,
        "cidr": "10.0.0.0/16",
        "interface_endpoints": None,
        "vpc": None,
        "vpc_subnets": None,
        "vpc_id": None,
        "subnets": (),
        "endpoint_security_group_id": None,
        "s3_prefix_list_id": None,
        "endpoint_policies": "none",
        "trusted_accounts": [],
        "organization_id": None,
        "more_endpoints": ["eks"],
        "control_plane_zone": None,
        "log_encryption_key": dependencies.key,
        "flow_log_group": logs.LogGroup.from_log_group_name(dependencies.stack, dependencies.next_id(), "flow"),
        "removal_policy": RemovalPolicy.RETAIN,
    },
    HyperPodTeams: lambda dependencies: {
        "control_plane": dependencies.eks,
        "cluster_name": "small",
        "hyperpod_cluster_arn": "arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab",
        "teams": [Team(name="research", quota={"ml.p5.48xlarge": 1})],
        "instance_groups": [WORK],
        "file_system": LustreMount(dns_name="a", mount_name="b"),
        "capacity_gib": 1200,
        "add_ons": [dependencies.cluster],
    },
    DrainChannel: lambda dependencies: {
        "cluster_name": "small",
        "encryption_key": dependencies.key,
        "drain": DrainAgentConfig(),
        "access_logs": dependencies.logs,
        "removal_policy": RemovalPolicy.DESTROY,
    },
    LifecycleScripts: lambda dependencies: {
        "cluster_name": "small",
        "encryption_key": dependencies.key,
        "file_system": LustreMount(dns_name="a", mount_name="b"),
        "openzfs": OpenZfsMount(dns_name="a"),
        "orchestrator": "slurm",
        "lifecycle": LifecycleConfig(),
        "slurm": SlurmConfig(),
        "groups": [GROUP],
        "users": [USER],
        "home_path": "/fsx/home",
        "login_group": True,
        "drain": dependencies.channel,
        "bucket": None,
        "access_logs": dependencies.logs,
        "removal_policy": RemovalPolicy.DESTROY,
    },
    LustreFileSystem: lambda dependencies: {
        "network": dependencies.network,
        "storage": StorageConfig(capacity_gib=1200),
        "encryption_key": dependencies.key,
        "removal_policy": None,
        "access_logs": dependencies.logs,
    },
    ScaleDown: lambda dependencies: {
        "cluster": dependencies.unguarded_cluster(),
        "nodes_to_delete": [],
        "instance_groups_to_delete": [],
        "max_nodes": 16,
        "drain": None,
        "drain_channel": None,
        "retry": None,
        "autoscaled_groups": [],
        "encryption_key": dependencies.key,
        "log_group": None,
        "removal_policy": RemovalPolicy.DESTROY,
    },
    encryption_key: lambda dependencies: {"removal_policy": None},
    OpenZfsMount.from_attributes: lambda dependencies: {
        "network": dependencies.network,
        "file_system_id": "fs-0123456789abcdef0",
        "mount_path": "/home",
        "security_group": ec2.SecurityGroup(dependencies.stack, dependencies.next_id(), vpc=dependencies.network.vpc),
    },
    ClusterMonitoring: lambda dependencies: {
        "cluster": HyperPodCluster.from_cluster_attributes(
            dependencies.stack, dependencies.next_id(), cluster_name="known", cluster_arn=CLUSTER_ARN
        ),
        "topic": None,
        "emails": ["oncall@example.com"],
        "file_system": None,
        "below_minimum_minutes": 30,
        "missing_nodes_hours": 3,
        "training_plan_days": 7,
        "free_storage_percent": 10,
        "encryption_key": None,
        "log_group": None,
        "removal_policy": None,
    },
    LustreFileSystem.from_attributes: lambda dependencies: {
        "network": dependencies.network,
        "file_system_id": "fs-0123456789abcdef0",
        "mount_name": "abc",
        "mount_path": "/fsx",
        "security_group": ec2.SecurityGroup(dependencies.stack, dependencies.next_id(), vpc=dependencies.network.vpc),
        "availability_zone": "us-west-2c",
    },
}  # fmt: skip


def _parameters(made: Callable[..., object]) -> list[str]:
    """The names of the arguments behind scope and id."""
    function = made.__init__ if inspect.isclass(made) else made
    given = inspect.signature(function).parameters
    return [name for name in given if name not in ("self", "scope", "construct_id") and not name.startswith("_")]


EKS = EksConfig(dependencies_chart="installed")
JOB = ElasticJob(
    name="job",
    namespace="research",
    image="a",
    instance_type="ml.p5.48xlarge",
    elastic_policy=ElasticPolicy(min_replicas=1, max_replicas=2, replica_discrete_values=(1, 2)),
)


def _config(**changes: Any) -> Iterator[object]:
    return check_cluster(
        ClusterConfig(**{"name": "a", "region": "us-west-2", "instance_groups": (HEAD, WORK), **changes})
    )


def _group(**changes: Any) -> Iterator[object]:
    return _config(instance_groups=(HEAD, dataclasses.replace(WORK, **changes)))


def _eks(**changes: Any) -> Iterator[object]:
    group = InstanceGroup(name="work", instance_type="ml.p5.48xlarge", instance_count=2)
    return _config(orchestrator="eks", instance_groups=(group,), **{"eks": EKS, **changes})


def _eks_group(**changes: Any) -> Iterator[object]:
    group = InstanceGroup(name="work", instance_type="ml.p5.48xlarge", instance_count=2, **changes)
    return _config(orchestrator="eks", instance_groups=(group,), eks=EKS)


def _job(**changes: Any) -> Iterator[object]:
    return check_job(dataclasses.replace(JOB, **changes), hard={"pods": "5"})


def _share(share: Any) -> Iterator[object]:
    team = Team(name="research", quota={"ml.p5.48xlarge": share})
    return check_teams((team,), nodes={"ml.p5.48xlarge": 1}, task_governance=True, autoscaling=True)


def _of_add_on(name: str) -> Callable[[Any], Iterator[object]]:
    def check(value: Any) -> Iterator[object]:
        return _eks(eks=dataclasses.replace(EKS, add_ons=AddOnsConfig(**{name: value})))

    return check


# A value of each class, and where its findings come from.
VALUES: Mapping[type, tuple[object, Callable[[Any], Iterator[object]]]] = {
    AccountingDatabase: (DATABASE, lambda value: _config(slurm=SlurmConfig(accounting_database=value))),
    AddOn: (AddOn(), lambda value: _eks(eks=dataclasses.replace(EKS, add_ons=AddOnsConfig(metrics_server=value)))),
    **{
        kind: (kind(), _of_add_on(name))
        for kind, name in (
            (ObservabilityAddOn, "observability"),
            (FsxCsiDriverAddOn, "fsx_csi_driver"),
            (S3CsiDriverAddOn, "s3_csi_driver"),
            (EbsCsiDriverAddOn, "ebs_csi_driver"),
        )
    },
    ChartComponents: (
        ChartComponents(),
        lambda value: _eks(eks=dataclasses.replace(EKS, chart_components=value)),
    ),
    AddOnsConfig: (AddOnsConfig(), lambda value: _eks(eks=dataclasses.replace(EKS, add_ons=value))),
    AutoscalingConfig: (
        AutoscalingConfig(instance_groups=("work",)),
        lambda value: _eks(eks=dataclasses.replace(EKS, autoscaling=value)),
    ),
    ClaimMount: (ClaimMount(claim_name="fsx", mount_path="/fsx"), lambda value: _job(claims=(value,))),
    ClusterConfig: (
        ClusterConfig(name="a", region="us-west-2", instance_groups=(HEAD, WORK)),
        check_cluster,
    ),
    DataRepository: (
        DataRepository(file_system_path="/a"),
        lambda value: _config(storage=StorageConfig(capacity_gib=1200, data_repositories=(value,))),
    ),
    DrainBackup: (
        DrainBackup(paths=("/data",), to="/fsx/backup"),
        lambda value: _config(
            slurm=SlurmConfig(drain=DrainAgentConfig(backup=value)), storage=StorageConfig(capacity_gib=1200)
        ),
    ),
    DrainAgentConfig: (DrainAgentConfig(), lambda value: _config(slurm=SlurmConfig(drain=value))),
    EbsVolume: (EbsVolume(volume_size_gib=5), lambda value: _group(ebs_volumes=(value,))),
    EksConfig: (EKS, lambda value: _eks(eks=value)),
    ElasticJob: (JOB, check_job),
    ElasticPolicy: (JOB.elastic_policy, lambda value: _job(elastic_policy=value)),
    ExistingEksCluster: (
        ExistingEksCluster(name="a", security_group_id="sg-0123456789abcdef0"),
        lambda value: _eks(eks=dataclasses.replace(EKS, existing_cluster=value)),
    ),
    Group: (GROUP, lambda value: _config(groups=(value,))),
    InstanceGroup: (WORK, lambda value: _config(instance_groups=(HEAD, value))),
    LifecycleConfig: (LifecycleConfig(), lambda value: _config(lifecycle=value)),
    LifecycleSteps: (LifecycleSteps(), lambda value: _config(lifecycle=LifecycleConfig(steps=value))),
    MonitoringConfig: (MonitoringConfig(), lambda value: _config(monitoring=value)),
    NetworkConfig: (NetworkConfig(), lambda value: _config(network=value)),
    OpenZfsConfig: (
        OpenZfsConfig(file_system_id="fs-0123456789abcdef0"),
        lambda value: _config(storage=StorageConfig(capacity_gib=1200, openzfs=value)),
    ),
    LogMonitoring: (
        LogMonitoring(name="progress", log_pattern="step", expected_start_cut_off_in_seconds=600),
        lambda value: _job(run_policy=RunPolicy(log_monitoring=(value,))),
    ),
    PriorityClass: (
        PriorityClass(name="high", value=5),
        lambda value: _eks(eks=dataclasses.replace(EKS, priority_classes=(value,))),
    ),
    RunPolicy: (RunPolicy(), lambda value: _job(run_policy=value)),
    ScaleDownConfig: (ScaleDownConfig(), lambda value: _config(scale_down=value)),
    ScaleDownDrain: (ScaleDownDrain(), lambda value: _config(scale_down=ScaleDownConfig(drain=value))),
    ScaleSettings: (
        JOB_SIZE,
        lambda value: _job(scale_config={1: value, 2: JOB_SIZE}),
    ),
    Share: (Share(accelerators=4), _share),
    SlurmAccount: (SlurmAccount(name="research"), lambda value: _config(slurm=SlurmConfig(accounts=(value,)))),
    SlurmConfig: (SlurmConfig(), lambda value: _config(slurm=value)),
    Rolling: (Rolling(batch_nodes=1), lambda value: _eks_group(rolling=value)),
    ScheduledUpdate: (
        ScheduledUpdate(schedule="cron(30 12 15 * ? *)"),
        lambda value: _eks_group(scheduled_update=value, rolling=Rolling(batch_nodes=1)),
    ),
    SlurmFiles: (SlurmFiles(), lambda value: _config(slurm=SlurmConfig(conf=value))),
    SlurmPartition: (SlurmPartition(), lambda value: _config(slurm=SlurmConfig(partitions={"p5": value}))),
    SlurmQos: (SlurmQos(name="low"), lambda value: _config(slurm=SlurmConfig(qos=(value,)))),
    StorageConfig: (StorageConfig(capacity_gib=1200), lambda value: _config(storage=value)),
    SubnetConfig: (
        SUBNET,
        lambda value: _config(network=NetworkConfig(vpc_id="vpc-0123456789abcdef0", subnets=(value,))),
    ),
    Taint: (Taint(key="a", effect="no_execute"), lambda value: _group(taints=(value,))),
    Toleration: (
        Toleration(key="a", effect="no_execute"),
        lambda value: _job(tolerations=(value,)),
    ),
    TaskClass: (
        TaskClass(name="training", weight=5),
        lambda value: check_task_governance(TaskGovernance(priority_classes=(value,))),
    ),
    TaskGovernance: (TaskGovernance(), check_task_governance),
    AcceleratorPartition: (
        AcceleratorPartition(type="mig-1g.10gb", count=7),
        lambda value: _share(Share(accelerator_partition=value)),
    ),
    Team: (
        Team(name="research"),
        lambda value: check_teams((value,), nodes={}, task_governance=True, autoscaling=True),
    ),
    TieredStorageConfig: (TieredStorageConfig(), lambda value: _config(tiered_storage=value)),
    User: (USER, lambda value: _config(groups=(GROUP,), users=(value,))),
    UnevenBatch: (
        UnevenBatch(num_dp_groups_with_small_batch_size=1, small_local_batch_size=1, large_local_batch_size=2),
        lambda value: _job(scale_config={1: ScaleSettings(train_batch_size=64, uneven_batch=value)}),
    ),
}
RESULTS = {ConfigError, Finding, HyperPodError, InstanceType, LoadedConfig, PrivateSubnet}
"""What the library makes, and users read."""


def test_every_public_class_has_a_row() -> None:
    public = {
        *(getattr(home, name) for home in (cdk_hyperpod, config) for name in home.__all__),
        *(getattr(eks, name) for name in eks.__all__),
        *(value for value in vars(jobs).values() if inspect.isclass(value) and value.__module__ == jobs.__name__),
    }

    assert public - {*CONSTRUCTS, *VALUES} == {
        *RESULTS,
        IEksDrainer,
        IHyperPodCluster,
        ILustreFileSystem,
        LustreMount,
        OpenZfsMount,
        catalogue,
        load_config,
    }


@pytest.mark.parametrize("made", CONSTRUCTS, ids=lambda made: made.__name__)
def test_the_row_of_a_construct_is_right_and_whole(made: Callable[..., object], dependencies: Dependencies) -> None:
    arguments = CONSTRUCTS[made](dependencies)

    made(dependencies.stack, dependencies.next_id(), **arguments)
    assert _parameters(made) == list(arguments)


@pytest.mark.parametrize(
    ("made", "name"),
    [pytest.param(made, name, id=f"{made.__name__} {name}") for made in CONSTRUCTS for name in _parameters(made)],
)  # fmt: skip
def test_a_construct_with_one_wrong_argument(
    made: Callable[..., object], name: str, dependencies: Dependencies
) -> None:
    _give(made, name, (ODD, None, [ODD]), dependencies)


@pytest.mark.ci
@pytest.mark.parametrize("made", CONSTRUCTS, ids=lambda made: made.__name__)
def test_a_construct_with_every_wrong_argument(made: Callable[..., object], dependencies: Dependencies) -> None:
    for name in _parameters(made):
        _give(made, name, WRONG, dependencies)


def _give(made: Callable[..., object], name: str, values: tuple[Any, ...], dependencies: Dependencies) -> None:
    right = CONSTRUCTS[made](dependencies)
    for wrong in values:
        construct_id = dependencies.next_id()
        try:
            made(dependencies.stack, construct_id, **{**right, name: wrong})
        except HyperPodError as error:
            if isinstance(error, ConfigError):
                # The construct itself is there, as every construct that fails is; nothing is in it.
                child = dependencies.stack.node.try_find_child(construct_id)
                assert child is None or child.node.children == []
            if wrong is ODD:
                assert isinstance(error, ConfigError)
                assert any(_last(finding.path) == _last(name) for finding in error.findings)
        else:
            assert wrong is not ODD, name


TOKENS: Mapping[str, tuple[str, Callable[[CfnParameter], object]]] = {
    "text": ("String", lambda parameter: parameter.value_as_string),
    "number": ("Number", lambda parameter: parameter.value_as_number),
    "list": ("CommaDelimitedList", lambda parameter: parameter.value_as_list),
    "bare": ("String", lambda parameter: parameter),
}
"""The type of a parameter, and what people write to use it."""

# What else must be given with an argument, for a token to be all that may be wrong.
_EXISTING_VPC = {"availability_zones": (), "vpc_id": "vpc-0123456789abcdef0", "subnets": [SUBNET]}
BESIDE: Mapping[str, Mapping[str, Any]] = {
    "vpc_id": _EXISTING_VPC,
    "subnets": _EXISTING_VPC,
    "endpoint_security_group_id": _EXISTING_VPC,
    "eks_cluster_arn": {"instance_groups": [dataclasses.replace(WORK, node_type=None, partition=None)], "roles": None},
}

# The arguments that go into the template as they are.
PASSED_ON: Mapping[Callable[..., object], set[str]] = {
    EksControlPlane: {"cluster_name text"},
    EksDrainer: set(),
    HyperPodAddOns: {"hyperpod_cluster_arn text"},
    HyperPodCluster: {"eks_cluster_arn text", "log_retention_days number"},
    HyperPodNetwork: {
        "control_plane_zone text",
        "endpoint_security_group_id text",
        "s3_prefix_list_id text",
        "vpc_id text",
    },
    HyperPodTeams: {"cluster_name text", "hyperpod_cluster_arn text", "capacity_gib number"},
    DrainChannel: set(),
    LifecycleScripts: {"home_path text"},
    LustreFileSystem: set(),
    ScaleDown: {"max_nodes number", "retry text"},
    ClusterMonitoring: set(),
    encryption_key: set(),
    OpenZfsMount.from_attributes: {"file_system_id text", "mount_path text"},
    LustreFileSystem.from_attributes: {
        "file_system_id text",
        "mount_name text",
        "mount_path text",
        "availability_zone text",
    },
}


@pytest.mark.parametrize(
    "every_kind", [False, pytest.param(True, marks=pytest.mark.ci)], ids=["one kind", "every kind"]
)
def test_a_token_in_place_of_an_argument(every_kind: bool) -> None:
    """One finding, or the template refers to the parameter: at synth nobody takes it for a value."""
    dependencies = Dependencies()
    passed: dict[Callable[..., object], dict[str, str]] = {made: {} for made in CONSTRUCTS}
    mounts: list[object] = []
    arguments = [(made, number, name) for made in CONSTRUCTS for number, name in enumerate(_parameters(made))]
    for made, number, name in arguments:
        passed_on = [kind for kind in TOKENS if f"{name} {kind}" in PASSED_ON[made]]
        for kind in TOKENS if every_kind else passed_on or [[*TOKENS][number % len(TOKENS)]]:
            parameter_type, use = TOKENS[kind]
            parameter_id, construct_id = dependencies.next_id(), dependencies.next_id()
            token = use(CfnParameter(dependencies.stack, parameter_id, type=parameter_type))
            try:
                result = made(
                    dependencies.stack,
                    construct_id,
                    **{**CONSTRUCTS[made](dependencies), **BESIDE.get(name, {}), name: token},
                )
            except ConfigError as error:
                assert [_last(finding.path) for finding in error.findings] == [_last(name)], str(error)
                child = dependencies.stack.node.try_find_child(construct_id)
                assert child is None or child.node.children == []
            else:
                passed[made][f"{name} {kind}"] = f'{{"Ref": "{parameter_id}"}}'
                mount = getattr(result, "mount", result)
                if isinstance(mount, OpenZfsMount):
                    mounts += [mount.dns_name, mount.mount_path]
                if isinstance(mount, LustreMount):
                    mounts += [mount.dns_name, mount.mount_name, mount.mount_path, mount.availability_zone]
    template = json.dumps([Template.from_stack(dependencies.stack).to_json(), dependencies.stack.resolve(mounts)])

    assert {made: {*found} for made, found in passed.items()} == PASSED_ON
    lost = [(made, what) for made in passed for what, reference in passed[made].items() if reference not in template]
    assert lost == []


def test_a_number_token_where_a_mapping_holds_text(dependencies: Dependencies) -> None:
    arguments = {**CONSTRUCTS[HyperPodCluster](dependencies), "tags": {"nodes": Token.as_number({"Ref": "Nodes"})}}

    with pytest.raises(ConfigError, match=r"1 error\n  tags: must be a mapping of text to text, got "):
        HyperPodCluster(dependencies.stack, dependencies.next_id(), **arguments)


def _last(path: str) -> str:
    """The last name of a path; what a construct's argument is called in a file."""
    return path.rpartition(".")[2].removeprefix("cluster_").replace("eks_config", "eks")


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(kind, field.name, id=f"{kind.__name__} {field.name}") for kind in VALUES for field in dataclasses.fields(kind)],
)  # fmt: skip
def test_a_value_with_one_wrong_field(kind: type, name: str) -> None:
    value, check = VALUES[kind]
    for wrong in WRONG:
        findings = [*check(dataclasses.replace(value, **{name: wrong}))]  # type: ignore[type-var]
        if wrong is ODD:
            assert any("<Odd>" in str(finding) for finding in findings)


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind is not ClusterConfig], ids=lambda kind: kind.__name__)
def test_something_else_in_place_of_a_value(kind: type) -> None:
    _, check = VALUES[kind]
    for wrong in ({"name": "a"}, "a", ODD):
        assert any(show(wrong) in str(finding) for finding in check(wrong))


@pytest.mark.parametrize(
    ("made", "changes", "messages"),
    [
        pytest.param(HyperPodCluster, {"instance_groups": WORK}, [("value-not-a-tuple", "instance_groups")], id="one group"),
        pytest.param(HyperPodCluster, {"instance_groups": [HEAD, WORK, {"name": "b"}, None]}, [("argument-of-wrong-class", "instance_groups[b]"), ("value-missing", "instance_groups[3]")], id="groups that are none"),
        pytest.param(HyperPodCluster, {"instance_groups": [HEAD, dataclasses.replace(WORK, **ODD_FIELDS)]}, [("value-of-wrong-type", "instance_groups[work].instance_count"), ("value-not-a-tuple", "instance_groups[work].ebs_volumes")], id="fields of a group"),
        pytest.param(HyperPodCluster, {"network": NetworkConfig(), "encryption_key": "alias/x", "tags": ["a"], "node_recovery": "never"}, [("argument-of-wrong-class", "network"), ("argument-without-interface", "encryption_key"), ("value-not-a-choice", "node_recovery"), ("argument-not-a-mapping", "tags")], id="all at once, beside what the rules find"),
        pytest.param(HyperPodCluster, {"file_system": LustreMount(dns_name=WRONG[1], mount_name="b"), "lifecycle_scripts": {"a": 1}}, [("value-of-wrong-type", "file_system.dns_name"), ("argument-of-no-class", "lifecycle_scripts")], id="inside of a value that is no configuration"),
        pytest.param(HyperPodNetwork, {"availability_zones": "us-west-2c", "subnets": [{"subnet_id": "a"}], "more_endpoints": "eks"}, [("argument-not-a-list", "more_endpoints"), ("value-not-a-tuple", "network.availability_zones"), ("argument-of-wrong-class", "network.subnets[0]"), ("vpc-missing", "network.vpc_id"), ("zones-in-existing-vpc", "network.availability_zones")], id="text for a list"),
        pytest.param(LustreFileSystem, {"removal_policy": "keep", "storage": StorageConfig(**ODD_STORAGE)}, [("value-of-wrong-type", "storage.capacity_gib"), ("value-not-a-tuple", "storage.data_repositories"), ("argument-of-wrong-class", "removal_policy")], id="text for a number"),
        pytest.param(HyperPodCluster, {"instance_groups": [HEAD, dataclasses.replace(WORK, **TOKEN_FIELDS)], "node_recovery": Aws.REGION, "lifecycle_scripts": Aws.REGION, "autoscaled_groups": Aws.REGION}, [("value-known-at-deployment-only", "lifecycle_scripts"), ("value-known-at-deployment-only", "autoscaled_groups"), ("token-of-wrong-type", "instance_groups[work].instance_count"), ("choice-known-at-deployment-only", "instance_groups[work].node_type"), ("value-known-at-deployment-only", "instance_groups[work].spot"), ("choice-known-at-deployment-only", "node_recovery")], id="tokens that decide"),
        pytest.param(HyperPodTeams, {"teams": Team(name="a")}, [("argument-not-a-list", "teams")], id="one team"),
        pytest.param(HyperPodTeams, {"teams": [Team(name=Aws.REGION, quota={"ml.p5.48xlarge": 1}), Team(name="b", **TOKEN_SHARES)]}, [("argument-known-at-deployment-only", f"teams[{field}") for field in ("0].name", "b].quota", "b].borrow_limit")], id="tokens in arithmetic"),
        pytest.param(HyperPodTeams, {"teams": [Team(name="a", quota={"ml.p5.48xlarge": TOKEN_PART})]}, [("argument-known-at-deployment-only", "teams[a].quota")], id="a token in a part of a node"),
        pytest.param(EksControlPlane, {"instance_types": [Aws.REGION]}, [("argument-known-at-deployment-only", "instance_types[0]")], id="a token as instance type"),
        pytest.param(EksControlPlane, {"eks_config": {"dependencies_chart": "installed"}, "neuron": "no"}, [("value-of-wrong-type", "neuron"), ("argument-of-wrong-class", "eks")], id="a mapping for settings"),
        pytest.param(ScaleDown, {"nodes_to_delete": "i-0123456789abcdef0", "max_nodes": 1.5}, [("argument-not-a-list", "scale_down.nodes_to_delete"), ("value-of-wrong-type", "scale_down.max_nodes")], id="one node"),
    ],
)  # fmt: skip
def test_an_invalid_argument_has_its_finding_and_the_path_of_the_construct(
    made: Callable[..., object], changes: dict[str, Any], messages: Found, dependencies: Dependencies
) -> None:
    construct_id = dependencies.next_id()

    with pytest.raises(ConfigError) as caught:
        made(dependencies.stack, construct_id, **{**CONSTRUCTS[made](dependencies), **changes})

    assert caught.value.source == f"Stack/{construct_id}"
    assert found(caught.value.findings) == messages


def test_an_error_names_the_attribute_of_the_argument_to_use_instead(dependencies: Dependencies) -> None:
    """A construct in place of what it made: its attribute is named, where it is one alone."""
    wrong = {"network": dependencies.eks, "encryption_key": dependencies.scripts}
    with pytest.raises(ConfigError) as caught:
        HyperPodCluster(
            dependencies.stack, dependencies.next_id(), **{**CONSTRUCTS[HyperPodCluster](dependencies), **wrong}
        )
    assert [(each.path, each.remedy) for each in caught.value.findings] == [
        ("network", "give it the .network of this one"),
        ("encryption_key", "create or import one"),  # scripts have two keys
    ]


@pytest.mark.parametrize(
    ("made", "name", "remedy"),
    [
        (LustreFileSystem, "capacity_gib", "write storage=StorageConfig(capacity_gib=…)"),
        (LifecycleScripts, "keep_state", "write slurm=SlurmConfig(keep_state=…)"),
        (LifecycleScripts, "efa", "write file_system=LustreMount(efa=…)"),
        (LifecycleScripts, "source", "write lifecycle=LifecycleConfig(scripts=…)"),
        (LifecycleScripts, "nfs_mount_paths", "write openzfs=OpenZfsMount(…)"),
        (LustreFileSystem, "key", "use one of network, storage, encryption_key, removal_policy, access_logs"),
    ],
)
def test_an_argument_that_is_elsewhere_or_nowhere(
    made: Callable[..., object], name: str, remedy: str, dependencies: Dependencies
) -> None:
    with pytest.raises(ConfigError) as caught:
        made(dependencies.stack, dependencies.next_id(), **{name: 1})
    assert [(each.path, each.remedy) for each in caught.value.findings] == [(name, remedy)]


def test_the_settings_of_the_agent_in_place_of_its_channel(dependencies: Dependencies) -> None:
    arguments = {**CONSTRUCTS[LifecycleScripts](dependencies), "drain": DrainAgentConfig()}
    with pytest.raises(ConfigError) as caught:
        LifecycleScripts(dependencies.stack, dependencies.next_id(), **arguments)
    assert [(each.path, each.remedy) for each in caught.value.findings] == [
        ("drain", "write slurm=SlurmConfig(drain=…)")
    ]


@pytest.mark.parametrize(
    ("made", "name", "said"),
    [
        (HyperPodCluster, "eks_cluster_arn", "an EKS cluster's ARN such as"),
        (HyperPodAddOns, "hyperpod_cluster_arn", "a HyperPod cluster's ARN such as"),
        (HyperPodTeams, "hyperpod_cluster_arn", "a HyperPod cluster's ARN such as"),
    ],
)
def test_an_arn_of_something_else(
    made: Callable[..., object], name: str, said: str, dependencies: Dependencies
) -> None:
    wrong = {name: "arn:aws:iam::111122223333:role/research"}
    with pytest.raises(ConfigError, match=f"{name}: must be {said}"):
        made(
            dependencies.stack,
            dependencies.next_id(),
            **{**CONSTRUCTS[made](dependencies), **BESIDE.get(name, {}), **wrong},
        )


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (made, name)
        for made in CONSTRUCTS
        for name in ("encryption_key", "log_encryption_key")
        if name in _parameters(made)
    ],
)
def test_an_alias_is_no_key(made: Callable[..., object], name: str, dependencies: Dependencies) -> None:
    """CDK's IAlias is an IKey, whose ARN no policy takes for the key's."""
    alias = kms.Alias.from_alias_name(dependencies.stack, dependencies.next_id(), "alias/shared")
    own = kms.Alias(
        dependencies.stack,
        dependencies.next_id(),
        alias_name=f"alias/{dependencies.next_id()}",
        target_key=dependencies.key,
    )
    for each in (alias, own):
        with pytest.raises(ConfigError) as caught:
            made(dependencies.stack, dependencies.next_id(), **{**CONSTRUCTS[made](dependencies), name: each})
        (finding,) = caught.value.findings
        assert (finding.code, finding.path) == ("key-is-an-alias", name)


def test_load_config_with_something_else_than_a_path() -> None:
    with pytest.raises(ConfigError, match=r"path: must be text or a Path, got <Odd>; give it one of these"):
        load_config(ODD)  # type: ignore[arg-type]
