"""The typed model of a cluster: the settings of `cluster.yaml`, and the values that the constructs take.

One set of frozen values serves the file and the library. The text under each field is its reference: the JSON schema
and docs/reference.md are generated from it. Each field's text and `changes.py` say what a change does to running nodes.
Rules about several fields are in `rules/`. Nothing here imports aws_cdk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .._lambda.hyperpod.common.drain_protocol import MAX_NODES, NODE_ID
from ..typed.bounds import PATH_SEGMENT, Pattern, Range
from ..typed.validation import as_tuple
from .eks import EksConfig
from .lifecycle import LifecycleConfig, LifecycleMode, LifecycleSteps, default_mode
from .monitoring import MonitoringConfig
from .patterns import BucketName, CronJobName, KmsKeyArn
from .slurm import Group, SlurmConfig, User
from .teams import Team

Orchestrator = Literal["slurm", "eks"]
NodeType = Literal["controller", "login", "compute"]
Removal = Literal["retain", "destroy"]
LustreThroughput = Literal[125, 250, 500, 1000]
DEFAULT_LUSTRE_THROUGHPUT: LustreThroughput = 250

ENTRY_SCRIPTS: Mapping[NodeType, str] = {
    "controller": "controller.sh",
    "login": "login.sh",
    "compute": "compute.sh",
}
"""What HyperPod runs on a node of each type (LifeCycleConfig.OnInitComplete or OnCreate)."""
EKS_ENTRY_SCRIPT = "node.sh"
"""What HyperPod runs on a node under EKS, where all nodes have one type."""

ClusterName = Annotated[
    str,
    Pattern(
        r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", "1 to 63 letters, digits and hyphens, no hyphen at either end", length=63
    ),
]
ClusterArn = Annotated[
    str,
    Pattern(
        r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:cluster/[a-z0-9]{12}",
        "a HyperPod cluster's ARN such as arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab",
    ),
]
EksClusterArn = Annotated[
    str,
    Pattern(
        # botocore: its EksClusterArn.
        r"arn:aws[a-z-]*:eks:[a-z0-9-]*:[0-9]{12}:cluster/[0-9A-Za-z][A-Za-z0-9_-]{0,99}",
        "an EKS cluster's ARN such as arn:aws:eks:us-west-2:111122223333:cluster/research",
    ),
]
GroupName = ClusterName
PartitionName = Annotated[
    str,
    Pattern(
        r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", "1 to 63 letters, digits and hyphens, no hyphen at either end", length=63
    ),
]
SecurityGroupId = Annotated[str, Pattern(r"sg-[0-9a-f]{8,17}", "a security group id such as sg-0123456789abcdef0")]
NodeId = Annotated[str, Pattern(NODE_ID, "an instance id such as i-0123456789abcdef0")]
InstanceCount = Annotated[int, Range(0, MAX_NODES)]
ImageId = Annotated[
    str, Pattern(r"ami-[0-9a-f]{8,17}|default", "default, or an AMI such as ami-0123456789abcdef0", length=21)
]
ImageReleaseVersion = Annotated[
    str, Pattern(r"[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}", "MAJOR.MINOR.PATCH such as 1.3.0", length=29)
]
AlarmName = Annotated[
    str,
    # The nodes' policy names the alarms, and *, ? and $ have a meaning of their own there.
    Pattern(r"(?!\s*$)[^*?$]+", "an alarm's name of 1 to 255 characters, without *, ? and $", length=255),
]
CronExpression = Annotated[
    str,
    Pattern(
        # The pattern of AWS::SageMaker::Cluster, without its empty fields.
        r"cron\([0-5]?[0-9] ([01]?[0-9]|2[0-3]) (0?[1-9]|[12][0-9]|3[01]|\?) (0?[1-9]|1[0-2]|\*|\*/([1-9]|1[0-2]))"
        r" (MON|TUE|WED|THU|FRI|SAT|SUN|[1-7]|\?|L|[1-7]#[1-5]|[1-7]L) (20[2-9][0-9]|\*)\)",
        "a cron expression with six fields such as cron(30 12 15 * ? *)",
        length=256,
    ),
]
LogRetentionDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
]  # fmt: skip
"""The values that CloudWatch accepts (CloudWatch Logs API reference, PutRetentionPolicy)."""
ZONE = Pattern(
    r"[a-z]{2}(-[a-z]+)+-[0-9][a-f]|[a-z]+[0-9]-az[1-6]",
    "an availability zone's name or id, such as us-west-2c or usw2-az3",
)
Zone = Annotated[str, ZONE]


@dataclass(frozen=True, slots=True, kw_only=True)
class EbsVolume:
    """An EBS volume of every node of a group. A change reaches new nodes only."""

    volume_size_gib: Annotated[int, Range(1, 16384)] | None = None
    """Size in GiB of the second volume, mounted at /opt/sagemaker. Required, except for the root volume, whose size
    HyperPod decides."""
    root_volume: bool = False
    """True: this entry describes the root volume, and names the key that encrypts it. Continuous provisioning only."""
    volume_kms_key_arn: KmsKeyArn | None = None
    """The key that encrypts the volume. Absent: the cluster's own key. Standard provisioning accepts no customer
    managed key and uses AWS's. HyperPod cannot change the key of an existing group. Create a new group and delete the
    old one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A Kubernetes taint of a group's nodes. EKS only."""

    key: str
    """The taint's key."""
    effect: Literal["no_schedule", "prefer_no_schedule", "no_execute"]
    """What happens to pods that do not tolerate it."""
    value: str | None = None
    """The taint's value. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """How HyperPod replaces the image of a group's nodes: in batches, each after it has evicted the nodes' pods within
    their PodDisruptionBudgets. EKS only.

    `cdk-hyperpod patch` and `scheduled_update` use it. Set exactly one of `batch_nodes` and `batch_percent`. A change
    touches no node. It applies to the next patch.
    """

    batch_nodes: Annotated[int, Range(1, MAX_NODES)] | None = None
    """How many nodes a batch has at most."""
    batch_percent: Annotated[int, Range(1, 100)] | None = None
    """How many percent of the group's nodes a batch has at most."""
    wait_seconds: Annotated[int, Range(0, 3600)] | None = None
    """How many seconds HyperPod waits after a batch before it begins the next one. Absent: it does not wait."""
    rollback_alarms: tuple[AlarmName, ...] = ()
    """1 to 10 names of CloudWatch alarms of the cluster's account and region. If one of them is in ALARM after a batch,
    HyperPod puts the old image back on the nodes that have the new one. The nodes' role may describe these alarms.
    Absent: an alarm rolls nothing back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledUpdate:
    """A time at which HyperPod patches the group to the latest image by itself. EKS only, and only with `rolling`."""

    schedule: CronExpression
    """When, as cron(MINUTE HOUR DAY MONTH WEEKDAY YEAR) in UTC, such as cron(30 12 15 * ? *): on the 15th of each month
    at 12:30. Its source is the pattern of AWS::SageMaker::Cluster. A change touches no node. It applies to the next
    patch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGroup:
    """A group of equal nodes.

    HyperPod identifies a group by its name: another name is another group. The type, node type, zone and threads per
    core of an existing group cannot change: add a new group, move the work there, and delete the old one.
    """

    name: GroupName
    """The group's name, unique in the cluster."""
    instance_count: InstanceCount
    """How many nodes the group should have (0 to 6,758). If you raise it, HyperPod adds nodes. If you lower it, nodes
    are deleted, and `scale_down` decides which ones (HyperPod by itself would terminate nodes at random). 0 keeps the
    empty group."""
    instance_type: str | None = None
    """The instance type of every node, such as ml.p5.48xlarge. Set exactly one of this and `instance_types`."""
    instance_types: tuple[str, ...] = ()
    """Up to 20 types that the group may mix, the preferred one first. HyperPod deletes nodes of the last ones first.
    Requires continuous provisioning."""
    min_instance_count: InstanceCount = 0
    """How many nodes must be running before the group is InService (MinInstanceCount). Requires continuous
    provisioning. It counts only during the group's next transition: if it is not reached within three hours, the group
    returns to its previous size (a new one to 0). It never terminates a running node, and does not limit later
    scale-downs."""
    node_type: NodeType | None = None
    """Slurm only, and required there: one controller group, at most one login group, any number of compute groups."""
    partition: PartitionName | None = None
    """Slurm only: the partition of a compute group (required). A partition may have several groups. HyperPod itself
    creates the partition dev, with all nodes, and Slurm reserves the name DEFAULT."""
    availability_zone: Zone | None = None
    """The zone of the group's nodes. Absent: the cluster's own, the first of `network.availability_zones`. EFA does
    not cross zones."""
    threads_per_core: Annotated[int, Range(1, 2)] | None = None
    """1 turns hyper-threading off, 2 on. Absent: the default of the instance type."""
    ebs_volumes: tuple[EbsVolume, ...] = ()
    """EBS volumes: at most one root and one second volume. Absent: HyperPod's own volumes. `encrypt_root_volumes`
    decides the key of the root volume."""
    on_start_deep_health_checks: tuple[Literal["instance_stress", "instance_connectivity"], ...] = ()
    """Checks that new nodes must pass before they run jobs. They take hours rather than minutes. HyperPod rejects
    updates of the cluster while they run."""
    training_plan_arn: (
        Annotated[
            str,
            Pattern(
                r"arn:aws:sagemaker:[a-z0-9-]+:[0-9]{12}:training-plan/[a-zA-Z0-9][a-zA-Z0-9-]{0,63}",
                "a training plan's ARN such as arn:aws:sagemaker:us-west-2:111122223333:training-plan/…",
                length=2048,
            ),
        ]
        | None
    ) = None
    """The SageMaker training plan whose reserved capacity the group uses. Absent: on demand."""
    spot: bool = False
    """True: spot capacity, which AWS reclaims when it needs it. Requires continuous provisioning."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """EKS only: Kubernetes labels of the nodes (at most 50)."""
    taints: tuple[Taint, ...] = ()
    """EKS only: Kubernetes taints of the nodes (at most 50)."""
    image_id: ImageId | None = None
    """The image of the group's nodes: your own AMI, such as ami-0123456789abcdef0, or default for HyperPod's latest.
    Absent: a new group gets HyperPod's latest image, and a deployment leaves the image of an existing group alone. A
    deployment that would replace the image of running nodes is refused: run `cdk-hyperpod patch` first."""
    image_release_version: ImageReleaseVersion | None = None
    """EKS only: the release of HyperPod's image, such as 1.3.0. It requires an EKS cluster that was created in 2026 or
    later. Automatic patching may move the nodes on to 1.3.1, which is no difference. Absent: as for `image_id`, of
    which a group has at most one. A deployment that would replace the image of running nodes is refused: run
    `cdk-hyperpod patch` first."""
    auto_patch: Literal["when_idle", "when_all_idle", "none"] | None = None
    """EKS only, but for none: HyperPod applies patch releases (1.3.0 to 1.3.1) by itself, 21 days after they appear. It
    cordons every node of the group for up to 24 hours and ends no job. when_idle: it patches each node as soon as that
    node is idle. when_all_idle: it begins when all of them are idle. none: automatic patching is off, and a deployment
    may turn off what was turned on outside the file. Absent: off, and a deployment that would turn it off is refused.
    Requires an EKS cluster that was created in 2026 or later. A change touches no node. It applies to the next patch
    release."""
    scheduled_update: ScheduledUpdate | Literal["none"] | None = None
    """EKS only: HyperPod patches the group at a fixed time by itself. none, also under Slurm: there is no such time,
    and a deployment may remove one that was set outside the file. Absent: the same, but a deployment that would remove
    one is refused. A change touches no node. It applies to the next patch."""
    rolling: Rolling | None = None
    """EKS only: how HyperPod replaces the image of the group's nodes. Absent: all nodes of the group at once."""
    scripts_before: str | None = None
    """A folder of your scripts for the nodes of this group. They run after those of `lifecycle.scripts_before`, under
    the same rules. A change reaches new and replaced nodes of this group. Absent: none."""
    scripts_after: str | None = None
    """The same after `lifecycle.scripts_after`. Absent: none."""

    @property
    def all_instance_types(self) -> tuple[str, ...]:
        """Every type that a node of this group may have, the preferred one first."""
        return self.instance_types or (() if self.instance_type is None else (self.instance_type,))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetConfig:
    """An existing private subnet."""

    subnet_id: Annotated[str, Pattern(r"subnet-[0-9a-f]{8,17}", "a subnet id such as subnet-0123456789abcdef0")]
    """The subnet. The first one cannot change after creation: for another, create a new cluster."""
    availability_zone: Zone
    """The subnet's zone."""
    cidr: str | None = None
    """The subnet's IPv4 range. Absent: no check whether it has enough addresses for every node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """The nodes' network: a new VPC, or an existing one by its id."""

    availability_zones: tuple[Zone, ...] = ()
    """Zone names or zone ids, all of one kind. The first is the cluster's own, and cannot change after creation: for
    another, create a new cluster. Under EKS one is enough: the control plane gets a subnet in a second zone, which a
    warning names. Absent: the account's first zone, with a warning for P5 and Trn1, which few zones offer. A new EKS
    cluster requires at least one. Remove a zone only after the deployment that deletes its last group."""
    internet_egress: bool = False
    """True: the nodes reach the internet, in a new VPC through a NAT gateway. False: they reach only AWS services,
    through endpoints."""
    cidr: str = "10.0.0.0/16"
    """The IPv4 range of a new VPC, /16 to /21. Each zone's private subnet is an eighth of it. It cannot change after
    creation: for another one, create a new cluster."""
    interface_endpoints: bool | None = None
    """Endpoints for the AWS services that nodes call. Absent: created in a new VPC without internet egress."""
    vpc_id: Annotated[str, Pattern(r"vpc-[0-9a-f]{8,17}", "a VPC id such as vpc-0123456789abcdef0")] | None = None
    """An existing VPC. Absent: a new one. You manage an existing VPC's subnets, routes and endpoints."""
    subnets: tuple[SubnetConfig, ...] = ()
    """The existing VPC's private subnets. The zone of the first one is the cluster's own."""
    endpoint_security_group_id: SecurityGroupId | None = None
    """The security group of an existing VPC's interface endpoints, which gets a rule for the nodes. Absent: without
    `internet_egress`, the nodes reach S3's gateway endpoint and nothing else."""
    s3_prefix_list_id: (
        Annotated[str, Pattern(r"pl-[0-9a-f]{8,17}", "a prefix list's id such as pl-68a54001")] | None
    ) = None
    """S3's managed prefix list of the region. Besides endpoints, nodes reach nothing else while `internet_egress` is
    false. Absent: the library's own table, which lacks a few regions; an existing VPC there requires this setting."""

    endpoint_policies: Literal["none", "account", "organization"] = "none"
    """Who may call AWS through a new VPC's endpoints, and whose resources may be called. account: the cluster's own
    account and `trusted_accounts`. organization: the accounts of `organization_id` and `trusted_accounts`. none: anyone
    with keys of any account, so a program on a node could copy data to any bucket in the region. The owner of an
    existing VPC sets its endpoints' policies. A change touches no node, and applies to later calls."""
    trusted_accounts: tuple[Annotated[str, Pattern(r"[0-9]{12}", "12 digits in quotes")], ...] = ()
    """Other accounts whose principals may call through the endpoints, and whose resources may be called. At most 200,
    because each endpoint's policy lists them. Absent: none."""
    organization_id: (
        Annotated[str, Pattern(r"o-[a-z0-9]{10,32}", "an organization's id such as o-a1b2c3d4e5")] | None
    ) = None
    """The organization, as `aws organizations describe-organization` prints it. Required if `endpoint_policies` is
    organization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRepository:
    """A link between a folder of the file system and a place in S3 (FSx data repository association)."""

    file_system_path: Annotated[
        str, Pattern(rf"/({PATH_SEGMENT}(/{PATH_SEGMENT})*)?", "a path that begins with a slash, such as /data")
    ]
    """The folder of the file system, such as /checkpoints."""
    bucket_name: BucketName | None = None
    """An existing bucket of the same region. Absent: one new bucket for all such links."""
    prefix: Annotated[
        str,
        Pattern(
            r"((?!\.{1,2}(/|$))[^/\s]+(/(?!\.{1,2}(/|$))[^/\s]+)*/?)?",
            "a prefix without a leading slash, such as runs/a",
        ),
    ] = ""
    """The prefix in the bucket. Absent: the folder's own path."""
    auto_import: tuple[Literal["new", "changed", "deleted"], ...] = ("new", "changed", "deleted")
    """Which changes in S3 appear in the file system."""
    auto_export: tuple[Literal["new", "changed", "deleted"], ...] = ()
    """Which changes in the file system are written to S3. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenZfsConfig:
    """An existing FSx for OpenZFS file system for homes, which every node mounts in addition to Lustre.

    Slurm only. A change reaches new nodes only.
    """

    file_system_id: Annotated[str, Pattern(r"fs-[0-9a-f]{8,17}", "a file system id such as fs-0123456789abcdef0")]
    """The file system. Nodes mount its root volume. Its NFS export must have the option no_root_squash, because root
    creates the homes of `users`."""
    mount_path: Annotated[str, Pattern(rf"(/{PATH_SEGMENT})+", "an absolute path without a slash at its end")] = "/home"
    """Where nodes mount it. It contains the homes of `users`. The mount hides whatever the image has at this path, such
    as /home/ubuntu."""
    security_group_id: SecurityGroupId | None = None
    """Its security group, which gets a rule for the nodes. Absent: you allow the nodes in yourself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """The FSx for Lustre file system that every node mounts: a new one, or an existing one by its id."""

    capacity_gib: int | None = None
    """Capacity in GiB of a new file system: 1200, or a multiple of 2400. With EFA the steps are larger. You can only
    raise it."""
    throughput_mbps_per_tib: LustreThroughput = DEFAULT_LUSTRE_THROUGHPUT
    """Throughput in MB/s for each TiB (PERSISTENT_2)."""
    efa: bool = False
    """True: nodes with EFA reach the file system over it, and the throughput cannot change after creation. A change is
    refused while the file system exists: first remove storage from the file in a separate deployment. Running nodes
    keep their mounts."""
    metadata_iops: int | None = None
    """Provisioned metadata operations a second: 1500, 3000, 6000 or a multiple of 12000 up to 192000. Absent: automatic,
    by capacity."""
    automatic_backup_retention_days: Annotated[int, Range(0, 90)] = 0
    """How many days daily backups are kept; 0 for none. FSx does not back up a file system with data repositories."""
    data_repositories: tuple[DataRepository, ...] = ()
    """Links to S3, at most 8."""
    mount_path: Annotated[str, Pattern(rf"(/{PATH_SEGMENT})+", "an absolute path without a slash at its end")] = "/fsx"
    """Where nodes mount it: a folder that nothing else uses, such as /fsx or /mnt/data. A change reaches new nodes only."""
    file_system_id: (
        Annotated[str, Pattern(r"fs-[0-9a-f]{8,17}", "a file system id such as fs-0123456789abcdef0")] | None
    ) = None
    """An existing file system. Requires `mount_name`."""
    mount_name: (
        Annotated[str, Pattern(r"[A-Za-z0-9_-]{1,8}", "the file system's mount name, 1 to 8 characters")] | None
    ) = None
    """The existing file system's mount name, as `aws fsx describe-file-systems` prints it."""
    security_group_id: SecurityGroupId | None = None
    """The existing file system's security group, which gets a rule for the nodes. Absent: you allow the nodes in yourself."""
    availability_zone: Zone | None = None
    """The existing file system's zone. Absent: not checked against the nodes' zones."""
    openzfs: OpenZfsConfig | None = None
    """An FSx for OpenZFS file system for homes, in addition to Lustre. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownDrain:
    """Deployments drain nodes before they delete them. Under Slurm the agent of `slurm.drain` drains them and saves
    what its `backup` names. Under EKS a function in the VPC cordons the nodes and evicts their pods, within their
    PodDisruptionBudgets.

    A deployment deletes its nodes only when all of them are ready. If one is not ready, none is deleted. A change of
    these settings touches no node.
    """

    timeout_minutes: Annotated[int, Range(1, 30)] = 25
    """Maximum time in minutes for the nodes' jobs or pods and the backup together. CloudFormation waits 60 minutes in
    all, and a node takes 15 to 20 minutes to terminate. For longer jobs, drain before you deploy: `cdk-hyperpod drain
    --hold 12h` under Slurm, `kubectl drain` under EKS."""
    on_timeout: Literal["fail", "force"] = "fail"
    """fail: the deployment fails, no node is deleted, and the nodes run jobs again. force: the nodes are deleted at the
    end of the time, unless their data must be saved and is not. Under Slurm, jobs that still run after four fifths of
    the time are requeued, or cancelled if Slurm cannot requeue them. Under EKS, pods that still run end with the node
    at the end of the time. The backup begins after four fifths of it, even if pods still run, and what pods write after
    that is lost."""
    on_silent: Literal["fail", "undrained"] | None = None
    """What happens if the agent, or under EKS the function, does not answer for three minutes. fail: the deployment
    fails, and its message says what to do. undrained: nodes are deleted without a drain, and their jobs or pods end.
    Absent: fail. Required for a Slurm cluster of another app."""
    backup_cron_job: CronJobName | None = None
    """EKS only: NAMESPACE/NAME of a suspended CronJob of yours, such as hyperpod-backup/save-node. The library creates
    the namespace hyperpod-backup, and no team has permissions there. A Job of it runs on each node after the pods have
    left. If it succeeds, the node is ready. If it fails, the node stays. Absent: nothing is saved. Under Slurm, set
    `slurm.drain.backup` instead."""
    unmanaged_pods: Literal["fail", "evict"] = "fail"
    """EKS only: pods without a controller, which nothing creates again. fail: a deployment fails before it evicts any
    pod if such a pod runs on a node that it would delete, also under on_timeout: force. evict: they are evicted like
    other pods. Finished pods, and those of DaemonSets and static manifests, do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownConfig:
    """What a deployment may delete. Absent: no node or group is deleted by name."""

    nodes_to_delete: Sequence[NodeId] = ()
    """Instance ids: exactly these nodes are deleted. Ids of deleted nodes may stay in the list, up to a few thousand."""
    instance_groups_to_delete: Sequence[GroupName] = ()
    """Groups to delete with all their nodes. The name of a deleted group may stay here."""
    max_nodes: Annotated[int, Range(0, MAX_NODES)] = 16
    """One deployment never deletes more nodes than this."""
    drain: ScaleDownDrain | None = None
    """Drain nodes and save their data before they are deleted. Absent: nodes are deleted without a drain, and their
    jobs or pods end."""
    retry: Annotated[str, Pattern(r"[^\r\n]{1,256}", "1 to 256 characters in one line")] | None = None
    """Any text, such as a date. If you change it, the next deployment continues to delete a group that should be
    deleted and still exists (the stack's output StillStanding names it). Without a change, the same file changes
    nothing. Running nodes: only those that should have been deleted are deleted."""

    def __post_init__(self) -> None:
        """Make tuples of other sequences, since the value is frozen."""
        for name in ("nodes_to_delete", "instance_groups_to_delete"):
            object.__setattr__(self, name, as_tuple(getattr(self, name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredStorageConfig:
    """Managed tiered checkpointing: memory of the nodes is the fastest tier for checkpoints."""

    instance_memory_allocation_percentage: Annotated[int, Range(20, 100)] | None = None
    """Share of each node's memory in percent. Absent: HyperPod's own share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A whole cluster, as `cluster.yaml` describes it."""

    name: ClusterName
    """The HyperPod cluster's name. Stack names are derived from it. Another name creates a second cluster, and the
    first one stays and is billed until you destroy its stacks."""
    region: str
    """The AWS region, such as us-west-2."""
    instance_groups: tuple[InstanceGroup, ...]
    """The groups of nodes, 1 to 100. To delete a group, it is not enough to remove it from this list."""
    account: Annotated[str, Pattern(r"[0-9]{12}", "12 digits in quotes")] | None = None
    """The AWS account. Absent: the account of the deployment."""
    orchestrator: Orchestrator = "slurm"
    """What schedules work on the nodes. It cannot change after creation: for another one, create a new cluster."""
    node_provisioning_mode: Literal["continuous", "standard"] = "continuous"
    """continuous: nodes are usable as they arrive, and HyperPod keeps trying to create missing ones. standard: all
    nodes or none. It cannot change after creation."""
    node_recovery: Literal["automatic", "none"] = "automatic"
    """automatic: HyperPod reboots or replaces nodes that it finds faulty."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The nodes' network. Absent: a new VPC without internet egress."""
    eks: EksConfig | None = None
    """The EKS cluster. Required under EKS, and invalid under Slurm."""
    teams: tuple[Team, ...] = ()
    """EKS only: who shares the cluster. Absent: this file gives access to administrators only."""
    storage: StorageConfig | None = None
    """The shared file system. Absent: none."""
    tiered_storage: TieredStorageConfig | None = None
    """Managed tiered checkpointing, which AWS announced for EKS clusters. Absent: off."""
    lifecycle: LifecycleConfig | None = None
    """What runs on a new node. Absent: HyperPod sets the node up, and the library's scripts run afterwards."""
    groups: tuple[Group, ...] = ()
    """Slurm only: Linux groups on every node. Absent: those of the image."""
    users: tuple[User, ...] = ()
    """Slurm only: Linux users on every node. Absent: those of the image."""
    slurm: SlurmConfig | None = None
    """Slurm only: accounting, accounts and limits. Absent: Slurm keeps its history on the controller, and has no limits."""
    encrypt_root_volumes: bool | None = None
    """True: the nodes' root volumes are encrypted with the cluster's own key, or with the key that a group's
    `ebs_volumes` name. False: with a key that AWS owns, unless a group names another. Absent: true under continuous
    provisioning, false under standard, which accepts no customer managed key. HyperPod cannot change the key of an
    existing group, and may reject a key for a group that had none, so decide before you create the groups
    (https://docs.aws.amazon.com/sagemaker/latest/dg/smcluster-cmk.html)."""
    scale_down: ScaleDownConfig | None = None
    """What a deployment may delete. Absent: no node or group is deleted by name."""
    monitoring: MonitoringConfig | None = None
    """Messages about failures, alarms on capacity, and a dashboard. Absent: nothing is created for them."""
    removal: Removal = "retain"
    """What `cdk destroy`, or a change that creates a new file system, does with data, and, under destroy, with what the
    data depends on (its subnet, VPC, key). A change takes effect once it is deployed."""
    log_retention_days: LogRetentionDays = 365
    """How many days CloudWatch keeps what HyperPod and the lifecycle scripts log about the nodes: the log group
    /aws/sagemaker/Clusters/NAME/ID, which is encrypted with the cluster's key. Events stay after the stacks are
    deleted, until they expire. After `removal: destroy` they cannot be read, because the key is deleted. A change
    touches no node."""
    termination_protection: bool = True
    """True: CloudFormation refuses to delete the stacks until this is false and deployed."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every resource that supports tags."""

    @property
    def encrypts_root_volumes(self) -> bool:
        """Whether root volumes get the cluster's key. Applies the default of an absent `encrypt_root_volumes`."""
        wanted = self.encrypt_root_volumes
        return self.node_provisioning_mode == "continuous" if wanted is None else wanted

    @property
    def scripts_folder(self) -> str | None:
        """The user's own folder of lifecycle scripts, as the file names it. None: the library's scripts."""
        return None if self.lifecycle is None else self.lifecycle.scripts

    @property
    def lifecycle_mode(self) -> LifecycleMode:
        """What runs on a new node. Applies the default of an absent `mode`."""
        if self.lifecycle is not None and self.lifecycle.mode is not None:
            return self.lifecycle.mode
        return default_mode(own_scripts=self.scripts_folder is not None, orchestrator=self.orchestrator)

    @property
    def has_login_group(self) -> bool:
        """Whether one of the groups is for logins."""
        return any(group.node_type == "login" for group in self.instance_groups)

    @property
    def lifecycle_steps(self) -> LifecycleSteps:
        """Which steps of the library's scripts run."""
        return LifecycleSteps() if self.lifecycle is None else self.lifecycle.steps

    @property
    def home_path(self) -> str:
        """The parent folder of the homes of users without `home`: on shared storage, if there is any."""
        if self.storage is None:
            return "/home"
        return f"{self.storage.mount_path}/home" if self.storage.openzfs is None else self.storage.openzfs.mount_path
