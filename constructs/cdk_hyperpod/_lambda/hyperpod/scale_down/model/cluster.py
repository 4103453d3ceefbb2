"""Frozen values: the live cluster, and what a deployment wants of it.

Nothing here reads a clock, an environment or AWS. Names are those of the SageMaker API (botocore, sagemaker 2017-07-24).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ...kernel.cluster_reading import LEAVING
from ...kernel.images import Spec

PATCHING_SETTINGS = ("AutoPatchConfig", "ScheduledUpdateConfig")
"""Members of ClusterInstanceGroupSpecification (botocore)."""


CLOCKS_APART = timedelta(seconds=30)
"""How much LaunchTime, CloudFormation's times and the function's clock may differ."""

ANY_CLUSTER = ""
"""Instead of a cluster's physical id: CloudFormation's event has none, and the stack has one cluster."""


@dataclass(frozen=True, slots=True)
class Network:
    """Subnets and security groups of a cluster, or of a group that overrides them. Their order does not matter."""

    subnets: frozenset[str]
    security_groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fixed:
    """What HyperPod cannot change in an existing group ("Update a SageMaker HyperPod cluster")."""

    instance_types: tuple[str, ...]
    """One type. For a flexible group, all types that it may mix."""
    flexible: bool = False
    """True: InstanceRequirements, and not InstanceType."""
    node_type: str | None = None
    """Controller, Login or Compute. None: no SlurmConfig (EKS, or Slurm set up by a file on the nodes)."""
    execution_role: str | None = None
    """ARN of the nodes' role."""
    network: Network | None = None
    """OverrideVpcConfig. None: the cluster's own network."""
    threads_per_core: int | None = None
    """None: the default of the instance type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node as ListClusterNodes shows it."""

    group: str
    instance_id: str | None
    """None: not launched yet. Then it has a logical id (continuous provisioning only)."""
    logical_id: str | None = None
    status: str = "Running"
    launched: datetime | None = None
    """None: not launched yet."""
    outdated: bool = False
    """It runs an image that has an update."""
    release: str | None = None
    """CurrentImageReleaseVersion. None: HyperPod does not report it."""

    @property
    def name(self) -> str:
        """The id by which it is deleted and reported."""
        return self.instance_id or self.logical_id or "?"

    @property
    def leaving(self) -> bool:
        """It is shutting down already. It does not have to be deleted, and it does not come back."""
        return self.status in LEAVING

    @property
    def is_there(self) -> bool:
        """It has an instance, and is not shutting down."""
        return self.instance_id is not None and not self.leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One live instance group."""

    name: str
    fixed: Fixed
    status: str = "InService"
    current: int
    """CurrentCount. It falls some time after a node left ListClusterNodes."""
    target: int
    """TargetCount: the number of nodes that HyperPod works towards."""
    minimum: int = 0
    """MinCount. While a new minimum is unmet, HyperPod rejects BatchDeleteClusterNodes."""
    types_in_use: frozenset[str] = frozenset()
    """Instance types of which the group has nodes now."""
    patching: Spec = field(default_factory=dict)
    """AutoPatchConfig and ScheduledUpdateConfig, as UpdateCluster takes them."""
    image: Spec = field(default_factory=dict)
    """What DescribeCluster shows of the nodes' image (images.SHOWN)."""
    shown: Spec = field(default_factory=dict)
    """All that DescribeCluster shows, with `patching`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The live cluster, as one read shows it."""

    name: str
    arn: str
    status: str = "InService"
    continuous: bool
    """NodeProvisioningMode Continuous: HyperPod keeps trying to reach each group's target."""
    groups: tuple[Group, ...]
    nodes: tuple[Node, ...] = ()
    network: Network | None = None
    """VpcConfig. None: HyperPod's own network."""
    eks_cluster: str | None = None
    """ARN of the EKS cluster. None: Slurm."""
    tags: Mapping[str, str] | None = None
    """None: not read this time."""
    created: datetime | None = None
    """CreationTime. None: not reported."""

    @property
    def staying(self) -> frozenset[str]:
        """Names of the nodes that are not shutting down."""
        return frozenset(node.name for node in self.nodes if not node.leaving)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredGroup:
    """One group as the deployment wants it."""

    name: str
    count: int
    minimum: int = 0
    fixed: Fixed
    autoscaled: bool = False
    """An autoscaler (Karpenter) owns the count, so the guard deletes only named nodes."""
    spec: Spec = field(default_factory=dict)
    """The whole specification, as the cluster's own update sends it."""


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """How nodes are drained before they are deleted (docs/adr/0014, 0015)."""

    bucket: str = ""
    """The bucket of the drain requests and of the status of the agent on a Slurm controller. Empty: under EKS."""
    function: str = ""
    """ARN of the drainer of an EKS cluster. Empty: under Slurm."""
    minutes: int = 25
    """How long jobs and backup may take together."""
    force: bool = False
    """End the jobs at the end of that time. Otherwise nothing is deleted, and the nodes are released."""
    undrained: bool = False
    """Delete the nodes undrained if no agent responds. Otherwise nothing is deleted."""
    must_be_saved: bool = False
    """A node that could not be saved is not deleted."""
    evict_unmanaged: bool = False
    """Under EKS, pods that no controller owns are evicted. Otherwise a node with such pods is not deleted."""

    @property
    def eks(self) -> bool:
        """The drainer is called, and answers at once. Otherwise the agent reads a request, and its status answers later."""
        return bool(self.function)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """What one deployment wants of the cluster."""

    cluster: str
    groups: tuple[DesiredGroup, ...]
    nodes_to_delete: tuple[str, ...] = ()
    groups_to_delete: tuple[str, ...] = ()
    max_nodes: int = 16
    network: Network | None = None
    eks_cluster: str | None = None
    create_only: str = ""
    """VpcConfig and Orchestrator as the template writes them: a change of this text replaces the cluster."""
    digest: str = ""
    """Stands for everything else that the cluster's template sends."""
    drain: DrainSettings | None = None
    """None: nodes are deleted without draining."""
    patching_off: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """AutoPatchConfig or ScheduledUpdateConfig -> the groups whose live setting this deployment may turn off."""
    owner: str | None = None
    """The stack's id, which the cluster's tag must carry. None: not checked (a dry run on someone's own machine)."""

    def same_cluster(self, other: Desired) -> bool:
        """Whether CloudFormation has nothing to send to the cluster between the two."""
        return (self.cluster, self.groups, self.create_only, self.digest) == (
            other.cluster,
            other.groups,
            other.create_only,
            other.digest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The request that a plan is made for. Between the polls of a request, only `first`, `doubting` and `young` change."""

    first: bool = True
    """Nothing was deleted for this request yet, so names and limits are checked."""
    began: datetime | None = None
    """When the request began, by the function's clock. None: a dry run."""
    newest: datetime | None = None
    """The latest LaunchTime, at the first look, of a node that may be older than the request. None: there was none, or no first
    look."""
    previous: Desired | None = None
    """The properties that CloudFormation held before. None: a first deployment. In a rollback: the failed update's."""
    deployed: tuple[Spec, ...] | None = None
    """The groups' specifications that CloudFormation sent before. None: unknown, as in a dry run without the template."""
    renamed_from: str | None = None
    """The cluster's name in the old properties, if it differs."""
    deployed_ids: frozenset[str] | None = None
    """Ids that the previous properties named already (tombstones). None: unknown, as in a dry run, so no id is refused."""
    chosen: frozenset[str] = frozenset()
    """Names of the nodes that the first look chose, at most request.MOST_PICKED of them, and of those that are being drained."""
    chosen_unlaunched: Mapping[str, str] = field(default_factory=dict)
    """Of the nodes that the first look chose, those that were not launched when the request began: name -> group."""
    busy: frozenset[str] = frozenset()
    """Names of the nodes that have jobs, as far as the agent or the drainer reports them."""
    patched: frozenset[str] = frozenset()
    """Names of the nodes that `cdk-hyperpod patch` holds."""
    unlaunched: Mapping[str, int] | None = None
    """Group -> how many of its nodes were not launched yet at the first look. A group without such nodes is missing. None: there was no
    earlier look."""
    drained_within: timedelta = timedelta(0)
    """Maximum time from the beginning of the request until nodes are deleted, because they are drained first."""
    doubting: bool = False
    """True: wait if CurrentCount exceeds the listed nodes. The difference may be terminating nodes."""
    young: bool = False
    """Nodes were to be deleted a short time ago, so a target may still fall with them by itself."""
    minimum_blocks: bool = False
    """HyperPod has just rejected the deletion of nodes, maybe because of a live minimum."""
    unconfirmed: frozenset[str] = frozenset()
    """Groups whose specification in `previous` CloudFormation's record does not confirm."""
    rolling_back: bool = False
    updated: datetime | None = None
    """In a rollback: when the failed update of the stack began. None: CloudFormation does not report it."""
    reached: frozenset[str] | None = None
    """In a rollback: ids of the clusters that the failed update reached, or ANY_CLUSTER. None: unknown."""

    def came_since(self, node: Node) -> bool:
        """Whether HyperPod launched the node after the request began, by HyperPod's own clock if the first look read one. A node that
        is older by any clock did not come since, even if a page of the first look left it out."""
        if self.began is None or node.launched is None:
            return False
        if self.newest is None:
            return node.launched > self.began + CLOCKS_APART
        return node.launched > max(self.newest, self.began - CLOCKS_APART)

    def of_failed_update(self, node: Node) -> bool:
        """In a rollback: whether HyperPod launched the node after the failed update began, also if their clocks differ."""
        return self.updated is not None and node.launched is not None and node.launched >= self.updated + CLOCKS_APART


FIRST = RequestContext()
"""The first look at a cluster, outside a deployment."""
