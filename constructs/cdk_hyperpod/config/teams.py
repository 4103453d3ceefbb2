"""The part of the typed model that says who shares an EKS cluster: teams, and priorities of their pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from ..typed.bounds import Pattern, Range
from .patterns import Namespace, RoleArn

TeamName = Annotated[
    str,
    Pattern(
        r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?",
        "1 to 40 lower-case letters, digits and hyphens, no hyphen at either end",
        length=40,
    ),
]


CLASS_NAME = Pattern(
    r"(?!system-)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
    "1 to 63 lower-case letters, digits and hyphens, not beginning with system-",
    length=63,
)
PriorityClassName = Annotated[str, CLASS_NAME]


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """People who share one namespace, one quota and the same rights. EKS only.

    Dropping a team from the file deletes its namespace and all that runs in it, unless HyperPod made the namespace.
    """

    name: TeamName
    """The team's name, unique in the cluster. Another name is another team: with another namespace."""
    quota: Mapping[str, int] = field(default_factory=dict)
    """The team's share: how many nodes of each instance type, such as {ml.p5.48xlarge: 8}. It becomes a ResourceQuota
    of what pods can have of those nodes: GPUs or Neuron devices, EFA, vCPUs, host memory. Absent: no limit, which is an
    error where autoscaling is on. Lowering it stops no running pod; new ones are refused until the team is below it.
    (Where task governance is on, it may preempt what the team had borrowed.)"""
    borrow_limit: Annotated[int, Range(1, 500)] | None = None
    """How much the team may hold beyond its share while others leave it idle, in percent of the share. It raises the
    ceiling, not the share. Absent: it borrows nothing."""
    absolute_borrow_limits: Mapping[str, int] = field(default_factory=dict)
    """The same in nodes of each type, such as {ml.p5.48xlarge: 4}; instead of `borrow_limit`."""
    hard: Mapping[str, str] = field(default_factory=dict)
    """Values of the ResourceQuota in Kubernetes' own words, in place of the computed ones or beside them, such as
    {requests.memory: 5120Gi, secrets: "500"}. Absent: the computed ones, and for every team 1000 pods (50 for each node
    where that is more), 100 claims, 1000 ConfigMaps, 200 Secrets, 1000 of each kind of job (Jobs, HyperPodPyTorchJobs,
    JobSets, PyTorchJobs, MPIJobs), 200 Deployments with 2200 ReplicaSets, 100 ServiceAccounts, 1000
    PodDisruptionBudgets and 200 Services; none of those is a load balancer or opens a port of the nodes
    (services.loadbalancers and services.nodeports: a load balancer takes a node port for each of its ports); with a
    quota, 100 GiB of each node's disk (requests.ephemeral-storage). Kinds that are no part of Kubernetes are counted a
    while after they came (docs/team-quotas.md). With limits.cpu Kubernetes refuses every job of `hyp`. Acts on new objects only."""
    namespace: Namespace | None = None
    """The team's namespace, which must not exist yet: it is made, and deleted with the team. Absent: the team's name, or
    hyperpod-ns-<team> under task governance, which makes that namespace itself and allows no other. Another name is
    another namespace: nothing moves over."""
    pod_security: Literal["privileged", "baseline", "restricted"] = "baseline"
    """The Pod Security Standard that the namespace enforces. baseline refuses pods with which a member could take over
    a node: privileged ones, added capabilities such as IPC_LOCK, hostPath volumes, the host's network, processes or
    ports. restricted also asks that a pod does not run as root and drops its capabilities. privileged refuses nothing:
    whoever can make a pod then has its node. AWS's samples that mount the node's /dev/shm by hostPath or add IPC_LOCK
    need privileged, or an emptyDir of medium Memory instead. Running pods stay."""
    role_arns: tuple[RoleArn, ...] = ()
    """IAM roles whose holders belong to the team. A role may be in several teams. Absent: nobody gets in through this
    file. Taking one out ends access at once, and stops no pod."""
    pod_role_arn: RoleArn | None = None
    """The IAM role of the team's pods: those that name the service account `team-pods`, which is made (`hyp`:
    --service-account-name, `job render`: --service-account). The role is of the cluster's account, trusts
    pods.eks.amazonaws.com (sts:AssumeRole and sts:TagSession), and who deploys may pass it (iam:PassRole). Absent: pods have
    no role of the team's. A change acts on new credentials of running pods too: EKS renews them."""
    priority_classes: tuple[PriorityClassName, ...] | None = None
    """The PriorityClasses that the team's pods may name. Absent: those of `eks.priority_classes` that outrank nobody: of
    value 0, which pods without a class have, or less. A pod that names another one is refused, the system's included.
    Acts on new pods."""
    patch_workloads: bool = False
    """True: members may patch Kueue's Workloads of the team, as AWS's chart lets them: a job's priority in the queue is in
    there, above every class that the administrator made. False: they may only look. A change acts at once."""
    fair_share_weight: Annotated[int, Range(0, 100)] = 0
    """Task governance: how much of the idle nodes this team gets when several want them, relative to the others."""
    default_vcpus: Annotated[int, Range(1, 192)] = 1
    """vCPUs that a container requests where it declares nothing; a quota on CPU would refuse it otherwise. It is no limit,
    unless `hard` has limits.cpu: the container may use more while its node has it. New pods only."""
    default_memory_gib: Annotated[int, Range(1, 4096)] = 4
    """Host memory in GiB that a container gets, as request and limit, where it declares none. One that then uses more
    is killed (OOMKilled), so training jobs declare their own; one that requests more declares its limit too, or
    Kubernetes refuses it. New pods only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A Kubernetes PriorityClass, one for the whole cluster: which pod goes first when room is short.

    A running pod keeps the priority that it started with. Kueue's own priority, which task governance sets by the job's
    label, is another thing: it orders whole jobs.
    """

    name: PriorityClassName
    """The class's name; pods name it in `priorityClassName`. A pod that names one that does not exist is refused."""
    value: Annotated[int, Range(-1_000_000_000, 1_000_000_000)]
    """Higher goes first. 0 is what pods without a class have."""
    preempts: bool = True
    """True: its pods evict pods of lower priority if nothing else makes room. False: they wait."""
    description: str = ""
    """What it is for, in one line."""
