"""The typed model of a cluster: the settings of `cluster.yaml`, and the values that the constructs take.

One set of frozen values serves the file and the library. The text under each field is its reference: the JSON schema
and docs/reference.md are generated from it. Each field's text and its `Change` say what a change does to running nodes.
Rules about several fields are in `rules/`. Nothing here imports aws_cdk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .._lambda.hyperpod.kernel.drain_protocol import MAX_NODES
from ..typed.bounds import Pattern, Range
from .effects import (
    IN_PLACE,
    NEW_CLUSTER,
    NEW_NODES,
    Change,
    Deletion,
    in_place,
    is_lower,
    names_the_group,
    new_nodes,
    refused,
    replaces,
    same_first,
)
from .eks import EksConfig
from .lifecycle import OWN_SCRIPTS, LifecycleConfig, LifecycleMode, LifecycleSteps, default_mode
from .monitoring import MonitoringConfig
from .patterns import ClusterName, GroupName, KmsKeyArn, SecurityGroupId, Zone
from .scale_down import ScaleDownConfig
from .slurm import USERS, Group, SlurmConfig, User
from .storage import StorageConfig, TieredStorageConfig
from .teams import Team

Orchestrator = Literal["slurm", "eks"]
NodeType = Literal["controller", "login", "compute"]
Removal = Literal["retain", "destroy"]

ENTRY_SCRIPTS: Mapping[NodeType, str] = {
    "controller": "controller.sh",
    "login": "login.sh",
    "compute": "compute.sh",
}
"""What HyperPod runs on a node of each type (LifeCycleConfig.OnInitComplete or OnCreate)."""
EKS_ENTRY_SCRIPT = "node.sh"
"""What HyperPod runs on a node under EKS, where all nodes have one type."""

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
PartitionName = ClusterName
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

_NEW_GROUP = "add a new group, move the work there, and delete this one"
_BESIDE = "creates a second cluster; the first one stays and is billed until you destroy its stacks"
_CHECKED = "used for checks only"
_IMAGE = in_place("refused while nodes run another image: run `cdk-hyperpod patch` first")
_NEXT_PATCH = in_place("applies to the next patch")
_KEPT = Change(effect="in place", says="applies to the next patch", removed=refused("to turn it off, write none"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EbsVolume:
    """An EBS volume of every node of a group. A change reaches new nodes only."""

    volume_size_gib: Annotated[int | None, Range(1, 16384), NEW_NODES] = None
    """Size in GiB of the second volume, mounted at /opt/sagemaker. Required, except for the root volume, whose size
    HyperPod decides."""
    root_volume: Annotated[bool, NEW_NODES] = False
    """True: this entry describes the root volume, and names the key that encrypts it. Continuous provisioning only."""
    volume_kms_key_arn: Annotated[
        KmsKeyArn | None, refused(f"HyperPod cannot change the key of an existing group: {_NEW_GROUP}")
    ] = None
    """The key that encrypts the volume. Absent: the cluster's own key. Standard provisioning accepts no customer
    managed key and uses AWS's. HyperPod cannot change the key of an existing group. Create a new group and delete the
    old one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A Kubernetes taint of a group's nodes. EKS only."""

    key: Annotated[str, IN_PLACE]
    """The taint's key."""
    effect: Annotated[
        Literal["no_schedule", "prefer_no_schedule", "no_execute"],
        in_place("no_execute evicts pods that do not tolerate it"),
    ]
    """What happens to pods that do not tolerate it."""
    value: Annotated[str | None, IN_PLACE] = None
    """The taint's value. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """How HyperPod replaces the image of a group's nodes: in batches, each after it has evicted the nodes' pods within
    their PodDisruptionBudgets. EKS only.

    `cdk-hyperpod patch` and `scheduled_update` use it. Set exactly one of `batch_nodes` and `batch_percent`. A change
    touches no node. It applies to the next patch.
    """

    _change = _NEXT_PATCH
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

    schedule: Annotated[CronExpression, _NEXT_PATCH]
    """When, as cron(MINUTE HOUR DAY MONTH WEEKDAY YEAR) in UTC, such as cron(30 12 15 * ? *): on the 15th of each month
    at 12:30. Its source is the pattern of AWS::SageMaker::Cluster. A change touches no node. It applies to the next
    patch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGroup:
    """A group of equal nodes.

    HyperPod identifies a group by its name: another name is another group. The type, node type, zone and threads per
    core of an existing group cannot change: add a new group, move the work there, and delete the old one.
    """

    name: Annotated[GroupName, refused("another name is another group; to delete the old one, name it in scale_down")]
    """The group's name, unique in the cluster."""
    instance_count: Annotated[
        InstanceCount,
        Change(
            effect="in place",
            says="nodes are added",
            deletion=Deletion(when=is_lower, condition="if you lower it", says="scale_down decides which ones"),
        ),
    ]
    """How many nodes the group should have (0 to 6,758). If you raise it, HyperPod adds nodes. If you lower it, nodes
    are deleted, and `scale_down` decides which ones (HyperPod by itself would terminate nodes at random). 0 keeps the
    empty group."""
    instance_type: Annotated[str | None, refused(_NEW_GROUP)] = None
    """The instance type of every node, such as ml.p5.48xlarge. Set exactly one of this and `instance_types`."""
    instance_types: Annotated[tuple[str, ...], in_place("a type of which the group has nodes cannot be removed")] = ()
    """Up to 20 types that the group may mix, the preferred one first. HyperPod deletes nodes of the last ones first.
    Requires continuous provisioning."""
    min_instance_count: Annotated[
        InstanceCount, in_place("it applies to the next transition, and terminates no running node")
    ] = 0
    """How many nodes must be running before the group is InService (MinInstanceCount). Requires continuous
    provisioning. It counts only during the group's next transition: if it is not reached within three hours, the group
    returns to its previous size (a new one to 0). It never terminates a running node, and does not limit later
    scale-downs."""
    node_type: Annotated[NodeType | None, refused(_NEW_GROUP)] = None
    """Slurm only, and required there: one controller group, at most one login group, any number of compute groups."""
    partition: Annotated[PartitionName | None, IN_PLACE] = None
    """Slurm only: the partition of a compute group (required). A partition may have several groups. HyperPod itself
    creates the partition dev, with all nodes, and Slurm reserves the name DEFAULT."""
    availability_zone: Annotated[Zone | None, refused(_NEW_GROUP)] = None
    """The zone of the group's nodes. Absent: the cluster's own, the first of `network.availability_zones`. EFA does
    not cross zones."""
    threads_per_core: Annotated[int | None, Range(1, 2), refused(_NEW_GROUP)] = None
    """1 turns hyper-threading off, 2 on. Absent: the default of the instance type."""
    ebs_volumes: Annotated[tuple[EbsVolume, ...], NEW_NODES] = ()
    """EBS volumes: at most one root and one second volume. Absent: HyperPod's own volumes. `encrypt_root_volumes`
    decides the key of the root volume."""
    on_start_deep_health_checks: Annotated[
        tuple[Literal["instance_stress", "instance_connectivity"], ...], NEW_NODES
    ] = ()
    """Checks that new nodes must pass before they run jobs. They take hours rather than minutes. HyperPod rejects
    updates of the cluster while they run."""
    training_plan_arn: Annotated[
        str | None,
        Pattern(
            r"arn:aws:sagemaker:[a-z0-9-]+:[0-9]{12}:training-plan/[a-zA-Z0-9][a-zA-Z0-9-]{0,63}",
            "a training plan's ARN such as arn:aws:sagemaker:us-west-2:111122223333:training-plan/…",
            length=2048,
        ),
        NEW_NODES,
    ] = None
    """The SageMaker training plan whose reserved capacity the group uses. Absent: on demand."""
    spot: Annotated[bool, NEW_NODES] = False
    """True: spot capacity, which AWS reclaims when it needs it. Requires continuous provisioning."""
    labels: Annotated[Mapping[str, str], IN_PLACE] = field(default_factory=dict)
    """EKS only: Kubernetes labels of the nodes (at most 50)."""
    taints: Annotated[tuple[Taint, ...], in_place("no_execute evicts pods that do not tolerate it")] = ()
    """EKS only: Kubernetes taints of the nodes (at most 50)."""
    image_id: Annotated[ImageId | None, _IMAGE] = None
    """The image of the group's nodes: your own AMI, such as ami-0123456789abcdef0, or default for HyperPod's latest.
    Absent: a new group gets HyperPod's latest image, and a deployment leaves the image of an existing group alone. A
    deployment that would replace the image of running nodes is refused: run `cdk-hyperpod patch` first."""
    image_release_version: Annotated[ImageReleaseVersion | None, _IMAGE] = None
    """EKS only: the release of HyperPod's image, such as 1.3.0. It requires an EKS cluster that was created in 2026 or
    later. Automatic patching may move the nodes on to 1.3.1, which is no difference. Absent: as for `image_id`, of
    which a group has at most one. A deployment that would replace the image of running nodes is refused: run
    `cdk-hyperpod patch` first."""
    auto_patch: Annotated[Literal["when_idle", "when_all_idle", "none"] | None, _KEPT] = None
    """EKS only, but for none: HyperPod applies patch releases (1.3.0 to 1.3.1) by itself, 21 days after they appear. It
    cordons every node of the group for up to 24 hours and ends no job. when_idle: it patches each node as soon as that
    node is idle. when_all_idle: it begins when all of them are idle. none: automatic patching is off, and a deployment
    may turn off what was turned on outside the file. Absent: off, and a deployment that would turn it off is refused.
    Requires an EKS cluster that was created in 2026 or later. A change touches no node. It applies to the next patch
    release."""
    scheduled_update: Annotated[ScheduledUpdate | Literal["none"] | None, _KEPT] = None
    """EKS only: HyperPod patches the group at a fixed time by itself. none, also under Slurm: there is no such time,
    and a deployment may remove one that was set outside the file. Absent: the same, but a deployment that would remove
    one is refused. A change touches no node. It applies to the next patch."""
    rolling: Annotated[Rolling | None, _NEXT_PATCH] = None
    """EKS only: how HyperPod replaces the image of the group's nodes. Absent: all nodes of the group at once."""
    scripts_before: Annotated[str | None, OWN_SCRIPTS] = None
    """A folder of your scripts for the nodes of this group. They run after those of `lifecycle.scripts_before`, under
    the same rules. A change reaches new and replaced nodes of this group. Absent: none."""
    scripts_after: Annotated[str | None, OWN_SCRIPTS] = None
    """The same after `lifecycle.scripts_after`. Absent: none."""

    @property
    def all_instance_types(self) -> tuple[str, ...]:
        """Every type that a node of this group may have, the preferred one first."""
        return self.instance_types or (() if self.instance_type is None else (self.instance_type,))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetConfig:
    """An existing private subnet."""

    subnet_id: Annotated[
        str,
        Pattern(r"subnet-[0-9a-f]{8,17}", "a subnet id such as subnet-0123456789abcdef0"),
        refused(f"the first subnet cannot change; for another, {NEW_CLUSTER}"),
    ]
    """The subnet. The first one cannot change after creation: for another, create a new cluster."""
    availability_zone: Annotated[Zone, in_place(_CHECKED)]
    """The subnet's zone."""
    cidr: Annotated[str | None, in_place(_CHECKED)] = None
    """The subnet's IPv4 range. Absent: no check whether it has enough addresses for every node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """The nodes' network: a new VPC, or an existing one by its id."""

    availability_zones: Annotated[
        tuple[Zone, ...], refused(f"only the first zone cannot change; for another, {NEW_CLUSTER}", same_first)
    ] = ()
    """Zone names or zone ids, all of one kind. The first is the cluster's own, and cannot change after creation: for
    another, create a new cluster. Under EKS one is enough: the control plane gets a subnet in a second zone, which a
    warning names. Absent: the account's first zone, with a warning for P5 and Trn1, which few zones offer. A new EKS
    cluster requires at least one. Remove a zone only after the deployment that deletes its last group."""
    internet_egress: Annotated[bool, IN_PLACE] = False
    """True: the nodes reach the internet, in a new VPC through a NAT gateway. False: they reach only AWS services,
    through endpoints."""
    cidr: Annotated[str, refused(NEW_CLUSTER)] = "10.0.0.0/16"
    """The IPv4 range of a new VPC, /16 to /21. Each zone's private subnet is an eighth of it. It cannot change after
    creation: for another one, create a new cluster."""
    interface_endpoints: Annotated[bool | None, IN_PLACE] = None
    """Endpoints for the AWS services that nodes call. Absent: created in a new VPC without internet egress."""
    vpc_id: Annotated[
        str | None, Pattern(r"vpc-[0-9a-f]{8,17}", "a VPC id such as vpc-0123456789abcdef0"), refused(NEW_CLUSTER)
    ] = None
    """An existing VPC. Absent: a new one. You manage an existing VPC's subnets, routes and endpoints."""
    subnets: Annotated[
        tuple[SubnetConfig, ...],
        refused(f"only the first subnet cannot change; for another, {NEW_CLUSTER}", same_first),
    ] = ()
    """The existing VPC's private subnets. The zone of the first one is the cluster's own."""
    endpoint_security_group_id: Annotated[SecurityGroupId | None, IN_PLACE] = None
    """The security group of an existing VPC's interface endpoints, which gets a rule for the nodes. Absent: without
    `internet_egress`, the nodes reach S3's gateway endpoint and nothing else."""
    s3_prefix_list_id: Annotated[
        str | None, Pattern(r"pl-[0-9a-f]{8,17}", "a prefix list's id such as pl-68a54001"), IN_PLACE
    ] = None
    """S3's managed prefix list of the region. Besides endpoints, nodes reach nothing else while `internet_egress` is
    false. Absent: the library's own table, which lacks a few regions; an existing VPC there requires this setting."""

    endpoint_policies: Annotated[Literal["none", "account", "organization"], IN_PLACE] = "none"
    """Who may call AWS through a new VPC's endpoints, and whose resources may be called. account: the cluster's own
    account and `trusted_accounts`. organization: the accounts of `organization_id` and `trusted_accounts`. none: anyone
    with keys of any account, so a program on a node could copy data to any bucket in the region. The owner of an
    existing VPC sets its endpoints' policies. A change touches no node, and applies to later calls."""
    trusted_accounts: Annotated[tuple[Annotated[str, Pattern(r"[0-9]{12}", "12 digits in quotes")], ...], IN_PLACE] = ()
    """Other accounts whose principals may call through the endpoints, and whose resources may be called. At most 200,
    because each endpoint's policy lists them. Absent: none."""
    organization_id: Annotated[
        str | None, Pattern(r"o-[a-z0-9]{10,32}", "an organization's id such as o-a1b2c3d4e5"), IN_PLACE
    ] = None
    """The organization, as `aws organizations describe-organization` prints it. Required if `endpoint_policies` is
    organization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A whole cluster, as `cluster.yaml` describes it."""

    name: Annotated[ClusterName, replaces(_BESIDE)]
    """The HyperPod cluster's name. Stack names are derived from it. Another name creates a second cluster, and the
    first one stays and is billed until you destroy its stacks."""
    region: Annotated[str, replaces(_BESIDE)]
    """The AWS region, such as us-west-2."""
    instance_groups: Annotated[
        tuple[InstanceGroup, ...],
        Change(
            effect="in place",
            says="a new group's nodes are added",
            removed=refused("to delete the group, name it in scale_down.instance_groups_to_delete"),
            deletion=Deletion(
                when=names_the_group,
                condition="if you remove a group that scale_down.instance_groups_to_delete names",
                says="the group is deleted with all its nodes",
            ),
        ),
    ]
    """The groups of nodes, 1 to 100. To delete a group, it is not enough to remove it from this list."""
    account: Annotated[str | None, Pattern(r"[0-9]{12}", "12 digits in quotes"), replaces(_BESIDE)] = None
    """The AWS account. Absent: the account of the deployment."""
    orchestrator: Annotated[Orchestrator, refused(NEW_CLUSTER)] = "slurm"
    """What schedules work on the nodes. It cannot change after creation: for another one, create a new cluster."""
    node_provisioning_mode: Annotated[
        Literal["continuous", "standard"], refused(f"it cannot change after creation: {NEW_CLUSTER}")
    ] = "continuous"
    """continuous: nodes are usable as they arrive, and HyperPod keeps trying to create missing ones. standard: all
    nodes or none. It cannot change after creation."""
    node_recovery: Annotated[Literal["automatic", "none"], IN_PLACE] = "automatic"
    """automatic: HyperPod reboots or replaces nodes that it finds faulty."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The nodes' network. Absent: a new VPC without internet egress."""
    eks: Annotated[EksConfig | None, refused(NEW_CLUSTER)] = None
    """The EKS cluster. Required under EKS, and invalid under Slurm."""
    teams: Annotated[tuple[Team, ...], in_place("removing a team deletes its namespace and all that runs in it")] = ()
    """EKS only: who shares the cluster. Absent: this file gives access to administrators only."""
    storage: Annotated[
        StorageConfig | None, new_nodes("if you remove it, removal decides what happens to its data")
    ] = None
    """The shared file system. Absent: none."""
    tiered_storage: Annotated[TieredStorageConfig | None, IN_PLACE] = None
    """Managed tiered checkpointing, which AWS announced for EKS clusters. Absent: off."""
    lifecycle: LifecycleConfig | None = None
    """What runs on a new node. Absent: HyperPod sets the node up, and the library's scripts run afterwards."""
    groups: Annotated[tuple[Group, ...], USERS] = ()
    """Slurm only: Linux groups on every node. Absent: those of the image."""
    users: Annotated[tuple[User, ...], USERS] = ()
    """Slurm only: Linux users on every node. Absent: those of the image."""
    slurm: SlurmConfig | None = None
    """Slurm only: accounting, accounts and limits. Absent: Slurm keeps its history on the controller, and has no limits."""
    encrypt_root_volumes: Annotated[
        bool | None, new_nodes("HyperPod may reject it for an existing group, so decide before you create the group")
    ] = None
    """True: the nodes' root volumes are encrypted with the cluster's own key, or with the key that a group's
    `ebs_volumes` name. False: with a key that AWS owns, unless a group names another. Absent: true under continuous
    provisioning, false under standard, which accepts no customer managed key. HyperPod cannot change the key of an
    existing group, and may reject a key for a group that had none, so decide before you create the groups
    (https://docs.aws.amazon.com/sagemaker/latest/dg/smcluster-cmk.html)."""
    scale_down: ScaleDownConfig | None = None
    """What a deployment may delete. Absent: no node or group is deleted by name."""
    monitoring: Annotated[
        MonitoringConfig | None,
        Change(
            effect="in place",
            says="messages and alarms begin",
            removed=in_place(
                "messages and alarms end; a topic that this file created is deleted with its subscriptions"
            ),
        ),
    ] = None
    """Messages about failures, alarms on capacity, and a dashboard. Absent: nothing is created for them."""
    removal: Annotated[Removal, IN_PLACE] = "retain"
    """What `cdk destroy`, or a change that creates a new file system, does with data, and, under destroy, with what the
    data depends on (its subnet, VPC, key). A change takes effect once it is deployed."""
    log_retention_days: Annotated[LogRetentionDays, IN_PLACE] = 365
    """How many days CloudWatch keeps what HyperPod and the lifecycle scripts log about the nodes: the log group
    /aws/sagemaker/Clusters/NAME/ID, which is encrypted with the cluster's key. Events stay after the stacks are
    deleted, until they expire. After `removal: destroy` they cannot be read, because the key is deleted. A change
    touches no node."""
    termination_protection: Annotated[bool, IN_PLACE] = True
    """True: CloudFormation refuses to delete the stacks until this is false and deployed."""
    tags: Annotated[Mapping[str, str], IN_PLACE] = field(default_factory=dict)
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
