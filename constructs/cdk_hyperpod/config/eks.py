"""The part of the typed model that applies under EKS only: `eks` and its settings.

`teams.py` has the teams that share the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from ..typed.bounds import Pattern
from .effects import IN_PLACE, NEW_CLUSTER, in_place, refused, replaces
from .governance import TaskGovernance
from .patterns import BucketName, KmsKeyArn, RoleArn
from .teams import PriorityClass

INSTALLED = "installed"
"""The value of `dependencies_chart` if the HyperPod chart is already in the EKS cluster."""
DEFAULT_KUBERNETES_VERSION = "1.34"

Cidr = Annotated[str, Pattern(r"[0-9.]{7,15}/[0-9]{1,2}", "an IPv4 range such as 203.0.113.0/24")]

_PODS = in_place("the add-on's pods restart")


def _rises(old: str | None, new: str | None) -> bool:
    return (new or DEFAULT_KUBERNETES_VERSION) >= (old or DEFAULT_KUBERNETES_VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingEksCluster:
    """An existing EKS cluster, in the VPC of `network`. Its authentication mode must include the API, which
    `cdk-hyperpod preflight` checks."""

    name: Annotated[
        str,
        Pattern(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}", "an EKS cluster's name, 1 to 100 characters"),
        refused(NEW_CLUSTER),
    ]
    """The EKS cluster's name. A change would replace the HyperPod cluster and terminate every node, so a deployment refuses it."""
    security_group_id: Annotated[
        str, Pattern(r"sg-[0-9a-f]{8,17}", "a security group id such as sg-0123456789abcdef0"), IN_PLACE
    ]
    """The cluster security group, as `aws eks describe-cluster` prints it. It gets rules for the nodes and kubectl, and
    the nodes' group gets one for it."""
    endpoint: Annotated[
        str | None,
        Pattern(
            r"https://[A-Za-z0-9.-]{1,240}(:[0-9]{1,5})?",
            "an address such as https://0A1B2C.gr7.us-west-2.eks.amazonaws.com",
        ),
        IN_PLACE,
    ] = None
    """The address of its API, as `aws eks describe-cluster` prints it. Required with `scale_down.drain`, and not used
    without. EKS never changes it."""
    certificate_authority: Annotated[
        str | None, Pattern(r"[A-Za-z0-9+/]+={0,2}", "the certificate in base64, in one line", length=20_000), IN_PLACE
    ] = None
    """The certificate of its API (certificateAuthority.data), as `aws eks describe-cluster` prints it. Required with
    `scale_down.drain`, and not used without. It is no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOn:
    """One add-on of the EKS cluster. A change restarts the add-on's pods and no other."""

    _change = _PODS
    enabled: bool | None = None
    """Whether it is installed. Absent: the default of each add-on, below. False: it is not installed by this library.
    You may install it yourself."""
    version: (
        Annotated[str, Pattern(r"v[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?", "a version such as v1.3.0-eksbuild.1")] | None
    ) = None
    """The add-on's version, as `aws eks describe-addon-versions` prints it. Absent: EKS's default for the Kubernetes
    version when the add-on is created. It does not change until you name a version."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """The add-on's own settings (ConfigurationValues), such as {enableNetworkPolicy: "true"} for vpc_cni. `aws eks
    describe-addon-configuration` prints which ones there are. Not for secrets, since the template has them. What the
    library sets itself cannot be changed."""
    resolve_conflicts: Literal["none", "overwrite", "preserve"] | None = None
    """What EKS does if somebody changed the add-on's objects in the EKS cluster, or installed the same software by hand.
    none: it fails. overwrite: it replaces these changes. preserve: an update keeps them. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilityAddOn(AddOn):
    """HyperPod's observability. A change restarts its pods and no other."""

    workspace_arn: Annotated[
        str | None,
        Pattern(
            r"arn:aws:aps:[a-z0-9-]+:[0-9]{12}:workspace/ws-[A-Za-z0-9-]{1,80}",
            "a workspace's ARN such as arn:aws:aps:us-west-2:111122223333:workspace/ws-0a1b2c3d-…",
        ),
        replaces("the workspace; one that the library created is deleted with its metrics"),
    ] = None
    """An existing workspace of Amazon Managed Service for Prometheus, of the same Region and account. Absent: a new one.
    If you add or remove this, the new workspace begins empty, and a workspace that the library created is deleted with
    its metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3CsiDriverAddOn(AddOn):
    """The driver that mounts S3 buckets into pods. A change restarts its pods and no other."""

    buckets: tuple[BucketName, ...] = ()
    """The account's buckets that its role may read and write, at most 20. Every pod that mounts a volume of the driver gets to all
    of them. Absent: it has no role, and pods mount with their own (authenticationSource: pod), such as a team's
    pod_role_arn."""
    kms_key_arns: tuple[KmsKeyArn, ...] = ()
    """The keys of these buckets, if they are encrypted with KMS. At most 20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EbsCsiDriverAddOn(AddOn):
    """The driver that creates EBS volumes for claims of pods, and attaches them to nodes. A change restarts its pods and
    no other."""

    kms_key_arns: tuple[KmsKeyArn, ...] = ()
    """The keys that a StorageClass may name (kmsKeyId), at most 20. Absent: volumes have the account's default key, which
    must be the one of EBS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FsxCsiDriverAddOn(AddOn):
    """The driver that mounts FSx for Lustre file systems into pods. A change restarts its pods and no other."""

    storage_class: bool = False
    """True: add the StorageClass fsx-lustre, with which a claim gets a file system of its own, and the role that the
    driver needs. Such a file system has at least 1200 GiB and is billed until you delete it: it stays when its claim is
    deleted (reclaimPolicy: Retain), and blocks the deletion of its subnet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOnsConfig:
    """The add-ons of the EKS cluster. None of them terminates a node."""

    _change = _PODS
    vpc_cni: AddOn = field(default_factory=AddOn)
    """Network addresses of pods. On in a new EKS cluster, in which nothing runs without it."""
    kube_proxy: AddOn = field(default_factory=AddOn)
    """Services' addresses on each node. On in a new EKS cluster, in which nothing runs without it."""
    eks_pod_identity_agent: AddOn = field(default_factory=AddOn)
    """IAM roles of pods, which the training operator requires. On in a new EKS cluster."""
    coredns: AddOn = field(default_factory=AddOn)
    """Names of services. On in a new EKS cluster."""
    cert_manager: AddOn = field(default_factory=AddOn)
    """Certificates, which the training operator requires. On if the training operator is."""
    training_operator: AddOn = field(default_factory=AddOn)
    """HyperPodPyTorchJob, and with it elastic training (which requires version 1.2 or later). On."""
    task_governance: AddOn = field(default_factory=AddOn)
    """Queues, shares and priorities between teams (Kueue, run by HyperPod). On."""
    observability: ObservabilityAddOn = field(default_factory=ObservabilityAddOn)
    """Metrics of nodes and jobs, sent to a workspace of Amazon Managed Service for Prometheus, which AWS bills by what it
    stores. Off."""
    fsx_csi_driver: FsxCsiDriverAddOn = field(default_factory=FsxCsiDriverAddOn)
    """The driver that mounts the file system into pods. On if there is one."""
    metrics_server: AddOn = field(default_factory=AddOn)
    """CPU and memory of pods, for `kubectl top` and HorizontalPodAutoscalers. Off."""
    s3_csi_driver: S3CsiDriverAddOn = field(default_factory=S3CsiDriverAddOn)
    """Mountpoint for Amazon S3: buckets as volumes of pods. Off."""
    ebs_csi_driver: EbsCsiDriverAddOn = field(default_factory=EbsCsiDriverAddOn)
    """EBS volumes for pods. Off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartComponents:
    """Parts of HyperPod's chart that some teams do not use. Turning one off deletes its objects in the EKS cluster. Running
    nodes stay."""

    _change = in_place("the objects of a part that is off are deleted")
    kubeflow_operator: bool = True
    """Kubeflow's training operator: PyTorchJob and other jobs of kubeflow.org, but no MPIJob. Its CRDs stay when it is off,
    and such jobs are no longer started or restarted."""
    mpi_operator: bool = True
    """MPIJob. When it is off, its CRD and all MPIJobs are deleted."""
    job_auto_restart: bool = True
    """The permissions with which HyperPod restarts jobs of kubeflow.org after it replaced a node."""
    deep_health_check: bool = True
    """The permissions of deep health checks. Required if a group has on_start_deep_health_checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalingConfig:
    """Karpenter, run by HyperPod: it adds nodes when pods need them, and terminates empty ones."""

    instance_groups: Annotated[
        tuple[str, ...], in_place("Karpenter may terminate nodes of a group that you remove from the list")
    ]
    """The groups that it scales, 1 to 10. Karpenter owns their counts, from 0. A deployment that would send a lower
    count than Karpenter holds is refused. If you remove a group from this list, Karpenter terminates its nodes."""
    limits: Annotated[Mapping[str, str], in_place("lowering it terminates no node")] = field(default_factory=dict)
    """The most that its nodes may have together, as Kubernetes quantities, such as {cpu: "1536", nvidia.com/gpu: "64"}.
    Absent: whole nodes for all that the teams' quotas allow together. Lowering it terminates no node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EksConfig:
    """The EKS cluster that schedules work on the nodes: a new one, or an existing one."""

    dependencies_chart: Annotated[str, in_place("the chart's pods may restart")]
    """HyperPod's Helm chart, which must be in the EKS cluster before the HyperPod cluster is created: its folder or
    archive, relative to this file, or `installed` if it is already there."""
    dependencies_chart_digest: Annotated[
        str | None,
        Pattern(r"sha256:[0-9a-f]{64}", "sha256: and 64 hexadecimal digits"),
        in_place("the chart's pods may restart"),
    ] = None
    """The chart's content hash, so that no other chart is installed by accident. Required with a path. If you leave it
    out, the error shows its value."""
    chart_components: ChartComponents = field(default_factory=ChartComponents)
    """Parts of the chart, if this library installs it."""
    kubernetes_version: Annotated[
        str | None,
        Pattern(r"1\.[1-9][0-9]", 'a Kubernetes version in quotes such as "1.34"'),
        refused("EKS can only raise it, one version at a time", _rises),
    ] = None
    """The Kubernetes version of a new EKS cluster. Absent: 1.34. You can only raise it, one version at a time. HyperPod
    updates the nodes' own version. A warning names the versions that EKS and HyperPod supported when this release was
    made."""
    existing_cluster: Annotated[ExistingEksCluster | None, refused(NEW_CLUSTER)] = None
    """An existing EKS cluster. Absent: a new one with the HyperPod cluster's name."""
    public_access_cidrs: Annotated[tuple[Cidr, ...], IN_PLACE] = ()
    """Addresses of the internet that may reach the API of a new EKS cluster. EKS rejects private ones. Absent: none,
    and the API is reached from inside the VPC only."""
    admin_role_arns: Annotated[tuple[RoleArn, ...], IN_PLACE] = ()
    """IAM roles with all permissions in the EKS cluster. Absent: only this library's own kubectl function has them."""
    image_registry: Annotated[
        str | None,
        Pattern(
            r"(?!.*\.\.)[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*",
            "a registry and a path such as 111122223333.dkr.ecr.us-west-2.amazonaws.com/mirror",
        ),
        in_place("the chart's pods restart"),
    ] = None
    """The registry of copies of the chart's images, under the names that they have in their public registries. Required
    in a closed network, which reaches no public registry."""
    autoscaling: Annotated[AutoscalingConfig | None, in_place("without it, groups get the counts of the file")] = None
    """Karpenter. Absent: every group has the count of the file."""
    add_ons: AddOnsConfig = field(default_factory=AddOnsConfig)
    """The add-ons of the EKS cluster, and their versions."""
    priority_classes: Annotated[tuple[PriorityClass, ...], in_place("running pods keep theirs")] = ()
    """Kubernetes' own PriorityClasses. (Task governance has classes of its own to order jobs.)"""
    task_governance: TaskGovernance = field(default_factory=TaskGovernance)
    """How the teams' jobs are queued, if the add-on is on. A change by itself stops no running pod, but preemption may."""

    @property
    def installs_chart(self) -> bool:
        """Whether this library installs HyperPod's chart, with the file's types in the lists of its device plug-ins."""
        return self.dependencies_chart != INSTALLED

    @property
    def autoscaled_groups(self) -> tuple[str, ...]:
        """The groups whose counts an autoscaler owns."""
        return () if self.autoscaling is None else self.autoscaling.instance_groups


def is_on(eks: EksConfig, name: str, *, has_file_system: bool) -> bool:
    """Whether an add-on of `AddOnsConfig` is installed. Applies the default of an absent `enabled`."""
    add_on = getattr(eks.add_ons, name, None)
    if isinstance(add_on, AddOn) and isinstance(add_on.enabled, bool):
        return add_on.enabled
    if name in ("vpc_cni", "kube_proxy", "eks_pod_identity_agent", "coredns"):
        return eks.existing_cluster is None
    if name == "cert_manager":
        return is_on(eks, "training_operator", has_file_system=has_file_system)
    if name == "fsx_csi_driver":
        return has_file_system
    return name in ("training_operator", "task_governance")
