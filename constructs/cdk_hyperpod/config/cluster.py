"""The typed model of a cluster: what `cluster.yaml` may say, and the values that the constructs take.

One set of frozen values serves the file and the library. The text under each field is its reference: the
JSON schema and docs/reference.md are generated from it. Every field says what a change does to running nodes.
Rules that join several fields are in `rules/`; nothing here imports aws_cdk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .._lambda.hyperpod.common.drain_protocol import MAX_NODES, NODE_ID
from ..typed.bounds import PATH_SEGMENT, Pattern, Range
from .eks import EksConfig
from .lifecycle import LifecycleConfig, LifecycleMode, LifecycleSteps, default_mode
from .patterns import CronJobName
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
"""What HyperPod runs on a node under EKS, where all nodes are of one kind."""

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
LogRetentionDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
]  # fmt: skip
"""What CloudWatch takes (CloudWatch Logs API reference, PutRetentionPolicy)."""
ZONE = Pattern(
    r"[a-z]{2}(-[a-z]+)+-[0-9][a-f]|[a-z]+[0-9]-az[1-6]",
    "an availability zone's name or id, such as us-west-2c or usw2-az3",
)
Zone = Annotated[str, ZONE]
KmsKeyArn = Annotated[
    str,
    Pattern(
        r"arn:aws:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+",
        "a KMS key's ARN such as arn:aws:kms:us-west-2:111122223333:key/…",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EbsVolume:
    """An EBS volume of every node of a group. A change reaches new nodes only."""

    volume_size_gib: Annotated[int, Range(1, 16384)] | None = None
    """Size in GiB of the second volume, mounted at /opt/sagemaker. Required, except for the root volume, whose size
    HyperPod decides."""
    root_volume: bool = False
    """True: this entry is about the root volume, and names the key that encrypts it. Continuous provisioning only."""
    volume_kms_key_arn: KmsKeyArn | None = None
    """The key that encrypts the volume. Absent: the cluster's own key, and under standard provisioning, which takes no
    key of yours, AWS's. HyperPod changes no key of a group that lives: make a new group, and delete the old one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A Kubernetes taint that a group's nodes carry. Means something only under EKS."""

    key: str
    """The taint's key."""
    effect: Literal["no_schedule", "prefer_no_schedule", "no_execute"]
    """What happens to pods that do not tolerate it."""
    value: str | None = None
    """The taint's value. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGroup:
    """A group of equal nodes.

    HyperPod identifies a group by its name: another name is another group. The type, node type, zone and threads per
    core of an existing group cannot change; add a new group, move the work over, and delete the old one.
    """

    name: GroupName
    """The group's name, unique in the cluster."""
    instance_count: InstanceCount
    """How many nodes the group should have (0 to 6,758). More: HyperPod adds nodes. Fewer: nodes go; `scale_down`
    says which ones (HyperPod by itself would terminate nodes at random). 0 keeps the empty group."""
    instance_type: str | None = None
    """What every node is, such as ml.p5.48xlarge. Exactly one of this and `instance_types`."""
    instance_types: tuple[str, ...] = ()
    """Up to 20 types that the group may mix, the most wanted first; HyperPod scales the last ones down first. Needs
    continuous provisioning."""
    min_instance_count: InstanceCount = 0
    """How many nodes must be up before the group is InService (MinInstanceCount). Needs continuous provisioning. It
    guards only the group's next transition: if it is not met within three hours, the group goes back to what it was
    (a new one to 0). It never terminates a running node, and is not a floor for later scale-downs."""
    node_type: NodeType | None = None
    """Slurm only, and required there: one controller group, at most one login group, any number of compute groups."""
    partition: PartitionName | None = None
    """Slurm only: the partition of a compute group (required), which may hold several groups. HyperPod itself makes the
    partition dev, of all nodes, and Slurm takes DEFAULT for its own."""
    availability_zone: Zone | None = None
    """The zone of the group's nodes. Absent: the cluster's own, the first of `network.availability_zones`. EFA does
    not cross zones."""
    threads_per_core: Annotated[int, Range(1, 2)] | None = None
    """1 turns hyper-threading off, 2 on. Absent: what the instance type does."""
    ebs_volumes: tuple[EbsVolume, ...] = ()
    """EBS volumes: at most one root and one second volume. Absent: HyperPod's own, the root volume as
    `encrypt_root_volumes` says."""
    on_start_deep_health_checks: tuple[Literal["instance_stress", "instance_connectivity"], ...] = ()
    """Checks that new nodes must pass, in hours rather than minutes, before they take work. HyperPod refuses updates
    of the cluster while they run."""
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
    """True: spot capacity, which AWS takes back when it needs it. Needs continuous provisioning."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """EKS only: Kubernetes labels of the nodes (at most 50)."""
    taints: tuple[Taint, ...] = ()
    """EKS only: Kubernetes taints of the nodes (at most 50)."""

    @property
    def all_instance_types(self) -> tuple[str, ...]:
        """Every type that a node of this group may be, the most wanted first."""
        return self.instance_types or (() if self.instance_type is None else (self.instance_type,))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetConfig:
    """A private subnet that exists already."""

    subnet_id: Annotated[str, Pattern(r"subnet-[0-9a-f]{8,17}", "a subnet id such as subnet-0123456789abcdef0")]
    """The subnet. You cannot change the first one: for another, make a new cluster."""
    availability_zone: Zone
    """The zone that it lies in."""
    cidr: str | None = None
    """Its IPv4 range. Absent: whether it has room for every node is not checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """Where the nodes live. A new VPC, or an existing one by its id."""

    availability_zones: tuple[Zone, ...] = ()
    """Zone names or zone ids, all of one kind; the first is the cluster's own. Under EKS one is enough: the control plane gets
    a subnet in a second one, which a warning names. Absent: the account's first zone, with a warning for P5 and Trn1, which
    few zones offer. A new EKS cluster needs at least one named. You cannot change the first one: for another, make a new
    cluster. Take a zone out only after the deployment that takes out its last group."""
    internet_egress: bool = False
    """True: the nodes reach the internet, in a new VPC through a NAT gateway. False: only AWS services, through
    endpoints."""
    cidr: str = "10.0.0.0/16"
    """The IPv4 range of a new VPC, /16 to /21; an eighth of it is one zone's private subnet. You cannot change it:
    for another one, make a new cluster."""
    interface_endpoints: bool | None = None
    """Endpoints for the AWS services that nodes call. Absent: made in a new VPC without internet egress."""
    vpc_id: Annotated[str, Pattern(r"vpc-[0-9a-f]{8,17}", "a VPC id such as vpc-0123456789abcdef0")] | None = None
    """An existing VPC. Absent: a new one. Its subnets, routes and endpoints stay yours."""
    subnets: tuple[SubnetConfig, ...] = ()
    """The existing VPC's private subnets; the first one's zone is the cluster's own."""
    endpoint_security_group_id: SecurityGroupId | None = None
    """The security group of an existing VPC's interface endpoints: the nodes are let into it. Absent: without
    `internet_egress`, they reach S3's gateway endpoint and nothing else."""
    s3_prefix_list_id: (
        Annotated[str, Pattern(r"pl-[0-9a-f]{8,17}", "a prefix list's id such as pl-68a54001")] | None
    ) = None
    """S3's managed prefix list of the region, which is all that nodes reach besides endpoints while `internet_egress` is
    false. Absent: the library's own table, which lacks a few regions; an existing VPC there needs it."""

    endpoint_policies: Literal["none", "account", "organization"] = "none"
    """Who may call AWS through a new VPC's endpoints, and whose resources. account: the cluster's own account and
    `trusted_accounts`. organization: the accounts of `organization_id` and `trusted_accounts`. none: whoever has keys, of
    any account: a program on a node could copy data to anybody's bucket in the region. The owner of an
    existing VPC sets its endpoints' policies. A change touches no node, and applies to what nodes call from then on."""
    trusted_accounts: tuple[Annotated[str, Pattern(r"[0-9]{12}", "12 digits in quotes")], ...] = ()
    """Other accounts whose principals may call through the endpoints, and whose resources may be called. At most 200:
    each endpoint's policy lists them. Absent: none."""
    organization_id: (
        Annotated[str, Pattern(r"o-[a-z0-9]{10,32}", "an organization's id such as o-a1b2c3d4e5")] | None
    ) = None
    """The organization, where `endpoint_policies` says organization, as `aws organizations describe-organization` prints
    it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRepository:
    """A link between a folder of the file system and a place in S3 (FSx data repository association)."""

    file_system_path: Annotated[
        str, Pattern(rf"/({PATH_SEGMENT}(/{PATH_SEGMENT})*)?", "a path that begins with a slash, such as /data")
    ]
    """The folder of the file system, such as /checkpoints."""
    bucket_name: (
        Annotated[
            str,
            # The S3 user guide, "General purpose bucket naming rules".
            Pattern(
                r"(?!xn--|sthree-|amzn-s3-demo-)(?!.*\.\.)(?![0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$)"
                r"(?!.*(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
                "an S3 bucket name, 3 to 63 characters",
            ),
        ]
        | None
    ) = None
    """An existing bucket of the same region. Absent: one new bucket for all such links."""
    prefix: Annotated[
        str,
        Pattern(
            r"((?!\.{1,2}(/|$))[^/\s]+(/(?!\.{1,2}(/|$))[^/\s]+)*/?)?",
            "a prefix without a leading slash, such as runs/a",
        ),
    ] = ""
    """Where in the bucket. Absent: the folder's own path."""
    auto_import: tuple[Literal["new", "changed", "deleted"], ...] = ("new", "changed", "deleted")
    """Which changes in S3 appear in the file system."""
    auto_export: tuple[Literal["new", "changed", "deleted"], ...] = ()
    """Which changes in the file system are written to S3. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenZfsConfig:
    """An FSx for OpenZFS file system that exists already, which every node mounts beside Lustre, for homes.

    Slurm only. A change reaches new nodes only.
    """

    file_system_id: Annotated[str, Pattern(r"fs-[0-9a-f]{8,17}", "a file system id such as fs-0123456789abcdef0")]
    """The file system. Its root volume is what is mounted. Its NFS export needs the option no_root_squash: root makes the
    homes of `users`."""
    mount_path: Annotated[str, Pattern(rf"(/{PATH_SEGMENT})+", "an absolute path without a slash at its end")] = "/home"
    """Where nodes mount it. Homes of `users` lie here. What the image has in this place, such as the home of its own
    user, is hidden behind it."""
    security_group_id: SecurityGroupId | None = None
    """Its security group: the nodes are let into it. Absent: you let them in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """The FSx for Lustre file system that every node mounts: a new one, or an existing one by its id."""

    capacity_gib: int | None = None
    """Capacity in GiB of a new file system: 1200, or a multiple of 2400; steps are larger with EFA. It can only grow."""
    throughput_mbps_per_tib: LustreThroughput = DEFAULT_LUSTRE_THROUGHPUT
    """Throughput in MB/s for each TiB (PERSISTENT_2)."""
    efa: bool = False
    """True: nodes with EFA reach the file system over it, and the throughput is then fixed. A change is refused while the
    file system lives: take storage out first, in a deployment of its own. Running nodes keep what they have mounted."""
    metadata_iops: int | None = None
    """Provisioned metadata operations a second: 1500, 3000, 6000 or a multiple of 12000 up to 192000. Absent: automatic,
    by capacity."""
    automatic_backup_retention_days: Annotated[int, Range(0, 90)] = 0
    """How many days daily backups are kept; 0 for none. FSx has none for a file system with data repositories."""
    data_repositories: tuple[DataRepository, ...] = ()
    """Links to S3, at most 8."""
    mount_path: Annotated[str, Pattern(rf"(/{PATH_SEGMENT})+", "an absolute path without a slash at its end")] = "/fsx"
    """Where nodes mount it: a folder that nothing else uses, such as /fsx or /mnt/data. A change reaches new nodes only."""
    file_system_id: (
        Annotated[str, Pattern(r"fs-[0-9a-f]{8,17}", "a file system id such as fs-0123456789abcdef0")] | None
    ) = None
    """An existing file system. Needs `mount_name`."""
    mount_name: (
        Annotated[str, Pattern(r"[A-Za-z0-9_-]{1,8}", "the file system's mount name, 1 to 8 characters")] | None
    ) = None
    """The existing file system's mount name, as `aws fsx describe-file-systems` prints it."""
    security_group_id: SecurityGroupId | None = None
    """The existing file system's security group: the nodes are let into it. Absent: you let them in."""
    availability_zone: Zone | None = None
    """The existing file system's zone. Absent: not checked against the nodes' zones."""
    openzfs: OpenZfsConfig | None = None
    """An FSx for OpenZFS file system for homes, beside Lustre. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownDrain:
    """Deployments drain nodes before they delete them. Under Slurm the agent of `slurm.drain` does it, and saves what its `backup`
    names; under EKS a function in the VPC cordons the nodes and evicts their pods, within their PodDisruptionBudgets.

    No node goes before all that the deployment takes are ready, so where one is not, none has gone. A change touches no node.
    """

    timeout_minutes: Annotated[int, Range(1, 30)] = 25
    """How long the nodes' jobs or pods, and what is saved, may take together, in minutes. CloudFormation waits 60 in all, and nodes
    take 15 to 20 to go. For longer jobs, drain before you deploy: `cdk-hyperpod drain --hold 12h` under Slurm, `kubectl
    drain` under EKS."""
    on_timeout: Literal["fail", "force"] = "fail"
    """fail: the deployment fails, nothing is deleted, and the nodes go back to work. force: the nodes go at the end of the time,
    unless their data must be saved and is not. Under Slurm, jobs that still run after four fifths of the time are requeued, or
    cancelled if Slurm cannot requeue them. Under EKS, pods that still run end with the node at the end of the time; the backup
    begins after four fifths of it, whatever runs, and what pods write after that is lost."""
    on_silent: Literal["fail", "undrained"] | None = None
    """What happens if the agent, or under EKS the function, does not answer for three minutes. fail: the deployment fails, and
    says what to do. undrained: nodes go as they are, and their jobs or pods end. Absent: fail; required for a Slurm cluster
    of another app."""
    backup_cron_job: CronJobName | None = None
    """EKS only: NAMESPACE/NAME of a suspended CronJob of yours, such as hyperpod-backup/save-node: the library creates the
    namespace hyperpod-backup, and no team has permissions there. A Job of it runs on each node after the pods have left; when it
    has succeeded, the node is ready. If it fails, the node stays. Absent: nothing is saved. Under Slurm, `slurm.drain.backup`."""
    unmanaged_pods: Literal["fail", "evict"] = "fail"
    """EKS only: pods that no controller owns, so that nothing creates them again. fail: a deployment fails before anything is
    evicted if such a pod runs on a node that it would delete, also under on_timeout: force. evict: they are evicted like others.
    Finished pods, and those of DaemonSets and static manifests, do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownConfig:
    """What a deployment may take away. Absent: nothing is ever taken by name."""

    nodes_to_delete: tuple[NodeId, ...] = ()
    """Instance ids: exactly these nodes are deleted. Ids of nodes that are gone may stay in the list, up to a few thousand."""
    instance_groups_to_delete: tuple[GroupName, ...] = ()
    """Groups to delete with all their nodes. A name may stay here once its group is gone."""
    max_nodes: Annotated[int, Range(0, MAX_NODES)] = 16
    """One deployment never takes more nodes than this."""
    drain: ScaleDownDrain | None = None
    """Nodes are drained and saved before they go. Absent: they go as they are, and their jobs or pods end."""
    retry: Annotated[str, Pattern(r"[^\r\n]{1,256}", "1 to 256 characters in one line")] | None = None
    """Any text, such as a date: with another text, the next deployment goes on with a group that should be gone and is still there
    (the stack's output StillStanding names it). Without it, the same file again changes nothing. Running nodes: only those
    that should be gone are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredStorageConfig:
    """Managed tiered checkpointing: memory of the nodes as the fastest place for checkpoints."""

    instance_memory_allocation_percentage: Annotated[int, Range(20, 100)] | None = None
    """Share of each node's memory in percent. Absent: HyperPod's own share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A whole cluster, as `cluster.yaml` describes it."""

    name: ClusterName
    """The HyperPod cluster's name; stack names derive from it. Another name makes another cluster beside the first."""
    region: str
    """The AWS region, such as us-west-2."""
    instance_groups: tuple[InstanceGroup, ...]
    """The groups of nodes, 1 to 100. Dropping a group from the file is not enough to delete it."""
    account: Annotated[str, Pattern(r"[0-9]{12}", "12 digits in quotes")] | None = None
    """The AWS account. Absent: whichever account it is deployed to."""
    orchestrator: Orchestrator = "slurm"
    """What schedules work on the nodes. You cannot change it: for another one, make a new cluster."""
    node_provisioning_mode: Literal["continuous", "standard"] = "continuous"
    """continuous: nodes are usable as they arrive, and missing ones are tried for again and again. standard: all of
    them or none. Chosen at creation."""
    node_recovery: Literal["automatic", "none"] = "automatic"
    """automatic: HyperPod reboots or replaces nodes that it finds faulty."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Where the nodes live. Absent: a new VPC without internet egress."""
    eks: EksConfig | None = None
    """The EKS cluster. Required under EKS, and means nothing elsewhere."""
    teams: tuple[Team, ...] = ()
    """EKS only: who shares the cluster. Absent: only the administrators get in through this file."""
    storage: StorageConfig | None = None
    """The shared file system. Absent: none."""
    tiered_storage: TieredStorageConfig | None = None
    """Managed tiered checkpointing, which AWS announced for EKS clusters. Absent: off."""
    lifecycle: LifecycleConfig | None = None
    """What runs on a new node. Absent: HyperPod sets it up, and the library's scripts run afterwards."""
    groups: tuple[Group, ...] = ()
    """Slurm only: Linux groups of every node. Absent: those of the image."""
    users: tuple[User, ...] = ()
    """Slurm only: Linux users of every node. Absent: those of the image."""
    slurm: SlurmConfig | None = None
    """Slurm only: accounting, accounts and limits. Absent: Slurm keeps its history on the controller, and limits
    nobody."""
    encrypt_root_volumes: bool | None = None
    """True: the nodes' root volumes are encrypted with the cluster's own key, or the one that a group's `ebs_volumes` name.
    False: with a key that AWS owns, unless a group says otherwise. Absent: true under continuous provisioning, false
    under standard, which takes no key of yours. HyperPod changes no key of a group that lives and may refuse one for a
    group that had none, so decide it before the groups exist
    (https://docs.aws.amazon.com/sagemaker/latest/dg/smcluster-cmk.html)."""
    scale_down: ScaleDownConfig | None = None
    """What a deployment may take away. Absent: nothing is ever taken by name."""
    removal: Removal = "retain"
    """What `cdk destroy`, or a change that makes a new file system, does with data, and destroy with what data stands
    on (its subnet, VPC, key). It counts once it is deployed."""
    log_retention_days: LogRetentionDays = 365
    """How many days CloudWatch keeps what HyperPod and the lifecycle scripts write of the nodes: the log group
    /aws/sagemaker/Clusters/NAME/ID, which is encrypted with the cluster's key. Events stay when the stacks go, until they
    expire; after `removal: destroy` nobody can read them, because the key goes. A change touches no node."""
    termination_protection: bool = True
    """True: CloudFormation refuses to delete the stacks until this is false and deployed."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every resource that has tags."""

    @property
    def encrypts_root_volumes(self) -> bool:
        """Whether root volumes get the cluster's key, with what an absent `encrypt_root_volumes` means."""
        wanted = self.encrypt_root_volumes
        return self.node_provisioning_mode == "continuous" if wanted is None else wanted

    @property
    def scripts_folder(self) -> str | None:
        """The user's own folder of lifecycle scripts, as the file names it; None for the library's."""
        return None if self.lifecycle is None else self.lifecycle.scripts

    @property
    def lifecycle_mode(self) -> LifecycleMode:
        """What runs on a new node, with what an absent `mode` means."""
        if self.lifecycle is not None and self.lifecycle.mode is not None:
            return self.lifecycle.mode
        return default_mode(own_scripts=self.scripts_folder is not None, orchestrator=self.orchestrator)

    @property
    def lifecycle_steps(self) -> LifecycleSteps:
        """Which steps of the library's scripts run."""
        return LifecycleSteps() if self.lifecycle is None else self.lifecycle.steps

    @property
    def home_path(self) -> str:
        """Where users' homes lie that name no place of their own: on shared storage, where there is some."""
        if self.storage is None:
            return "/home"
        return f"{self.storage.mount_path}/home" if self.storage.openzfs is None else self.storage.openzfs.mount_path
