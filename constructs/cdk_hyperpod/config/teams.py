"""The part of the typed model about who shares an EKS cluster: teams, and priorities of their pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from ..typed.bounds import Pattern, Range
from .effects import IN_PLACE, in_place, refused, replaces
from .patterns import Namespace, RoleArn

TeamName = Annotated[
    str,
    Pattern(
        r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?",
        "1 to 40 lower-case letters, digits and hyphens, no hyphen at either end",
        length=40,
    ),
]


Work = Literal["training", "ray"]
"""Kinds of work beside the jobs, pods and Deployments of every team."""

CLASS_NAME = Pattern(
    r"(?!system-)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
    "1 to 63 lower-case letters, digits and hyphens, not beginning with system-",
    length=63,
)
PriorityClassName = Annotated[str, CLASS_NAME]


Amount = Annotated[int, Range(1, 1_000_000)]
MigProfile = Literal[
    "mig-1g.5gb",
    "mig-1g.10gb",
    "mig-1g.18gb",
    "mig-1g.20gb",
    "mig-1g.23gb",
    "mig-1g.35gb",
    "mig-1g.45gb",
    "mig-1g.47gb",
    "mig-2g.10gb",
    "mig-2g.20gb",
    "mig-2g.35gb",
    "mig-2g.45gb",
    "mig-2g.47gb",
    "mig-3g.20gb",
    "mig-3g.40gb",
    "mig-3g.71gb",
    "mig-3g.90gb",
    "mig-3g.93gb",
    "mig-4g.20gb",
    "mig-4g.40gb",
    "mig-4g.71gb",
    "mig-4g.90gb",
    "mig-4g.93gb",
    "mig-7g.40gb",
    "mig-7g.80gb",
    "mig-7g.141gb",
    "mig-7g.180gb",
    "mig-7g.186gb",
]
"""The partitions of a GPU that a ComputeQuota accepts (botocore, sagemaker 2017-07-24, `MIGProfileType`)."""

_PODS_STAY = in_place("running pods stay")


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorPartition:
    """Partitions of GPUs (NVIDIA MIG), on nodes whose GPUs an administrator partitioned."""

    _change = _PODS_STAY
    type: MigProfile
    """The profile, such as mig-1g.10gb. It must be one of the instance type."""
    count: Amount
    """How many of them, over all nodes of the instance type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of the nodes of one instance type, smaller than a node or beside whole nodes.

    What is absent derives from what is there, as AWS does it: from the accelerators or partitions, otherwise from vcpus,
    otherwise from memory_gib. Half of a node's accelerators have half of its vCPUs and memory.
    """

    _change = _PODS_STAY
    accelerators: Amount | None = None
    """GPUs or Trainium chips, over all nodes of the type: 4 is half of an ml.p5.48xlarge, 12 is one node and a half.
    Absent: none."""
    accelerator_partition: AcceleratorPartition | None = None
    """Partitions of GPUs instead of whole ones. Absent: none."""
    vcpus: Amount | None = None
    """vCPUs. Absent: in proportion."""
    memory_gib: Amount | None = None
    """Host memory in GiB. Absent: in proportion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """People who share one namespace, one quota and the same permissions. EKS only.

    Removing a team from the file deletes its namespace and all that runs in it, unless HyperPod created the namespace.
    """

    name: Annotated[TeamName, replaces("the team; the old one is deleted with its namespace and all that runs in it")]
    """The team's name, unique in the cluster. Another name is another team, with another namespace."""
    quota: Annotated[Mapping[str, int | Share], _PODS_STAY] = field(default_factory=dict)
    """The team's share: how many nodes of each instance type, such as {ml.p5.48xlarge: 8}, or a part of a node, such as
    {ml.p5.48xlarge: {accelerators: 4}}. It becomes a ResourceQuota
    of what pods can have of those nodes: GPUs or Neuron devices, EFA, vCPUs, host memory. Absent: no limit, which is an
    error if autoscaling is on. Lowering it stops no running pod. New ones are refused until the team is below it. (If
    task governance is on, it may preempt what the team had borrowed.)"""
    borrow_limit: Annotated[int | None, Range(1, 500), in_place("preemption may take back what was borrowed")] = None
    """How much the team may have beyond its share while other teams leave theirs idle, in percent of the share. It
    raises the ceiling, not the share. Under task governance, a team that borrows must put what requests accelerators into
    its queue (docs/team-quotas.md). Absent: it borrows nothing."""
    absolute_borrow_limits: Annotated[
        Mapping[str, int | Share], in_place("preemption may take back what was borrowed")
    ] = field(default_factory=dict)
    """The same in nodes of each type or parts of them, as in `quota`, instead of `borrow_limit`."""
    lend: Annotated[bool, IN_PLACE] = True
    """Task governance: whether other teams may borrow what the team leaves idle of its share. A team that borrows must
    lend. False: nobody borrows it, so the team's jobs never wait until borrowed nodes come back."""
    preempt_team_tasks: Annotated[Literal["lower_priority", "never"], IN_PLACE] = "lower_priority"
    """Task governance: whether a job preempts jobs of its own team that have a lower priority in the queue. never: it
    waits for them."""
    work: Annotated[tuple[Work, ...], _PODS_STAY] = ()
    """What the team may create beside what every team may: jobs, pods, Deployments and Services. training: StatefulSets,
    CronJobs and HorizontalPodAutoscalers. ray: RayJobs, RayClusters and RayServices, for which the cluster needs
    KubeRay's operator. Each kind has a count in the quota. Absent: nothing more. Removing one ends the permission at
    once. Its objects and their pods stay."""
    see_nodes: Annotated[bool, IN_PLACE] = False
    """True: members may read all nodes of the cluster, as `hyp` does for jobs on MIG partitions, and AWS's recipes. They
    then see the names, labels, addresses and resources of every node, other teams' too. False: they see no node. A
    change takes effect at once."""
    hard: Annotated[Mapping[str, str], _PODS_STAY] = field(default_factory=dict)
    """Values of the ResourceQuota as Kubernetes quantities, in place of the computed ones or in addition to them, such
    as {requests.memory: 5120Gi, secrets: "500"}. Absent: the computed ones, and for every team 1000 pods (50 for each
    node if that is more), 100 claims with 10 TiB beside the claim on the file system, 1000 ConfigMaps, 200 Secrets,
    1000 Jobs, 200 Deployments, 100 ServiceAccounts, 1000 PodDisruptionBudgets and 200 Services. None of the Services is
    a load balancer or opens a port of the nodes (services.loadbalancers and services.nodeports: a load balancer takes a
    node port for each of its ports). Of the kinds of `work`, 1000 RayJobs and 200 of each other kind. With a quota, also
    100 GiB of each node's disk (requests.ephemeral-storage), 43 GiB of huge pages of each node with EFA, and no shared
    GPU and no partition of a GPU that `quota` does not name. Kinds that are no part of Kubernetes are counted only a
    while after they were installed (docs/team-quotas.md). With limits.cpu Kubernetes rejects every job of `hyp`. Applies
    to new objects only."""
    namespace: Annotated[
        Namespace | None, replaces("the namespace; the old one is deleted with all that runs in it")
    ] = None
    """The team's namespace, which must not exist yet. It is created with the team and deleted with it. Absent: the
    team's name, or hyperpod-ns-<team> under task governance, which creates that namespace itself and allows no other.
    Another name is another namespace: nothing moves there."""
    pod_security: Annotated[Literal["privileged", "baseline", "restricted"], _PODS_STAY] = "baseline"
    """The Pod Security Standard that the namespace enforces. baseline refuses pods with which a member could gain
    control of a node: privileged ones, added capabilities such as IPC_LOCK, hostPath volumes, the host's network,
    processes or ports. restricted also requires that a pod does not run as root and drops its capabilities. privileged
    refuses nothing: anyone who can create a pod then controls its node. AWS's samples that mount the node's /dev/shm by
    hostPath or add IPC_LOCK require privileged, or an emptyDir of medium Memory instead. Running pods stay."""
    role_arns: Annotated[tuple[RoleArn, ...], in_place("access of a removed role ends at once; no pod stops")] = ()
    """IAM roles whose holders belong to the team. A role may be in several teams. Absent: this file gives nobody
    access. Removing one ends access at once, and stops no pod."""
    pod_role_arn: Annotated[RoleArn | None, in_place("running pods get it with their next credentials")] = None
    """The IAM role of the team's pods that name the service account `team-pods`, which is created (`hyp`:
    --service-account-name, `job render`: --service-account). The role must be in the cluster's account and trust
    pods.eks.amazonaws.com (sts:AssumeRole and sts:TagSession), and the deployment must be allowed to pass it
    (iam:PassRole). Absent: pods have no role of the team's. A change reaches running pods too, when EKS renews their
    credentials."""
    priority_classes: Annotated[tuple[PriorityClassName, ...] | None, _PODS_STAY] = None
    """The PriorityClasses that the team's pods may name. Absent: those of `eks.priority_classes` with a value of 0,
    which pods without a class have, or less, so that they outrank no pod. A pod that names another one is refused, the
    system's included. Applies to new pods."""
    patch_workloads: Annotated[bool, IN_PLACE] = False
    """True: members may patch Kueue's Workloads of the team, as AWS's chart allows. A Workload contains the job's
    priority in the queue, which can then exceed every class of the administrator. False: members may only read them. A
    change takes effect at once."""
    fair_share_weight: Annotated[int, Range(0, 100), IN_PLACE] = 0
    """Task governance: the team's part of the idle nodes when several teams want them, relative to the other weights."""
    default_vcpus: Annotated[int, Range(1, 192), in_place("applies to new pods")] = 1
    """vCPUs that a container requests if it declares none. A quota on CPU would refuse it otherwise. It is no limit,
    unless `hard` has limits.cpu: the container may use more while its node has it. New pods only."""
    default_memory_gib: Annotated[int, Range(1, 4096), in_place("applies to new pods")] = 4
    """Host memory in GiB that a container gets, as request and limit, if it declares none. A container that then uses
    more is killed (OOMKilled), so training jobs declare their own. A container that requests more must declare its
    limit too, or Kubernetes refuses it. New pods only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A Kubernetes PriorityClass, for the whole cluster: which pod is scheduled first when nodes are full.

    A running pod keeps the priority that it started with. Kueue's own priority, which task governance sets by the job's
    label, is different: it orders whole jobs.
    """

    name: Annotated[PriorityClassName, replaces("the class; running pods keep their priority")]
    """The class's name; pods name it in `priorityClassName`. A pod that names one that does not exist is refused."""
    value: Annotated[
        int,
        Range(-1_000_000_000, 1_000_000_000),
        refused("Kubernetes cannot change it: create a class with another name"),
    ]
    """The pod with the highest value is scheduled first. Pods without a class have 0."""
    preempts: Annotated[bool, refused("Kubernetes cannot change it: create a class with another name")] = True
    """True: its pods evict pods of lower priority if they find no other room. False: they wait."""
    description: Annotated[str, IN_PLACE] = ""
    """Its purpose, in one line."""
