"""Teams that share an EKS cluster: a namespace each, with a quota, defaults, and rights for the team's IAM roles.

Nothing here calls Kubernetes: a team becomes plain manifests, which `kubectl apply` or CDK's kubectl handler sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from .._fields import Pattern, Range
from .._structure import is_known, item_paths, show
from ..errors import Finding
from . import quotas
from ._constraints import field_findings
from .manifests import Manifest

if TYPE_CHECKING:
    from ..config import InstanceGroup

__all__ = [
    "PriorityClass",
    "Team",
    "access_groups",
    "check_priority_classes",
    "check_teams",
    "cluster_nodes",
    "compute_quota_config",
    "group_name",
    "namespace_findings",
    "namespace_name",
    "priority_class_manifests",
    "quota_hard",
    "team_manifests",
]

TeamName = Annotated[
    str,
    Pattern(
        r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?",
        "1 to 40 lower-case letters, digits and hyphens, no hyphen at either end",
        length=40,
    ),
]
Namespace = Annotated[
    str,
    Pattern(
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        "1 to 63 lower-case letters, digits and hyphens, no hyphen at either end",
        length=63,
    ),
]
_ROLE_ARN = Pattern(
    r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+",
    "an IAM role's ARN such as arn:aws:iam::111122223333:role/research",
    length=2048,
)
RoleArn = Annotated[str, _ROLE_ARN]

# Where Kubernetes, EKS, HyperPod and its add-ons live. Any namespace that begins with kube- or hyperpod- is taken too:
# hyperpod-observability, hyperpod-inference-system, hyperpod-ns-<team>.
_RESERVED = frozenset(
    [
        "default",
        "aws-hyperpod",
        "amazon-cloudwatch",
        "amazon-guardduty",
        "cert-manager",
        "gpu-operator",
        "karpenter",
        "keda",
        "kubeflow",
        "kueue-system",
        "mpi-operator",
    ]
)


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
    error where autoscaling is on. Lowering it ends no running pod; new ones are refused until the team is below it.
    (Where task governance is on, it may preempt what the team had borrowed.)"""
    borrow_limit: Annotated[int, Range(1, 500)] | None = None
    """How much the team may hold beyond its share while others leave it idle, in percent of the share. It raises the
    ceiling, not the share. Absent: it borrows nothing."""
    absolute_borrow_limits: Mapping[str, int] = field(default_factory=dict)
    """The same in nodes of each type, such as {ml.p5.48xlarge: 4}; instead of `borrow_limit`."""
    hard: Mapping[str, str] = field(default_factory=dict)
    """Values of the ResourceQuota in Kubernetes' own words, in place of the computed ones or beside them, such as
    {requests.memory: 5120Gi, pods: "200"}. Absent: the computed ones alone. Acts on new pods only."""
    namespace: Namespace | None = None
    """The team's namespace. Absent: the team's name, or hyperpod-ns-<team> under task governance, which makes that
    namespace itself and allows no other. Another name is another namespace: nothing moves over."""
    role_arns: tuple[RoleArn, ...] = ()
    """IAM roles whose holders belong to the team. A role may be in several teams. Absent: nobody gets in through this
    file. Taking one out ends access at once, and no pod."""
    fair_share_weight: Annotated[int, Range(0, 100)] = 0
    """Task governance: how much of the idle nodes this team gets when several want them, relative to the others."""
    default_vcpus: Annotated[int, Range(1, 192)] = 1
    """vCPUs that a container gets, as request and limit, where it declares none; a quota on CPU would refuse it
    otherwise. New pods only."""
    default_memory_gib: Annotated[int, Range(1, 4096)] = 4
    """Host memory in GiB that a container gets, as request and limit, where it declares none. One that then uses more
    is killed (OOMKilled), so training jobs declare their own. New pods only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A Kubernetes PriorityClass, one for the whole cluster: which pod goes first when room is short.

    A running pod keeps the priority that it started with. Kueue's own priority, which task governance sets by the job's
    label, is another thing: it orders whole jobs.
    """

    name: Annotated[
        str,
        Pattern(
            r"(?!system-)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
            "1 to 63 lower-case letters, digits and hyphens, not beginning with system-",
            length=63,
        ),
    ]
    """The class's name; pods name it in `priorityClassName`. A pod that names one that does not exist is refused."""
    value: Annotated[int, Range(-1_000_000_000, 1_000_000_000)]
    """Higher goes first. 0 is what pods without a class have."""
    preempts: bool = True
    """True: its pods end pods of lower priority where nothing else makes room. False: they wait."""
    description: str = ""
    """What it is for, in one line."""


def namespace_name(team: Team, *, task_governance: bool) -> str:
    """The team's namespace: HyperPod's own under task governance, otherwise the team's choice or name."""
    return f"hyperpod-ns-{team.name}" if task_governance else team.namespace or team.name


def group_name(namespace: str) -> str:
    """The Kubernetes group of a team, for EKS access entries: named as AWS's `team-role-and-bindings` chart does."""
    return f"{namespace}-namespace-level-group"


def access_groups(teams: Sequence[Team], *, task_governance: bool) -> dict[str, tuple[str, ...]]:
    """IAM role to Kubernetes groups. EKS has one access entry for a role, so one that is in two teams has two groups."""
    groups: dict[str, list[str]] = {}
    for team in teams:
        for arn in dict.fromkeys(team.role_arns):
            groups.setdefault(arn, []).append(group_name(namespace_name(team, task_governance=task_governance)))
    return {arn: tuple(names) for arn, names in groups.items()}


def quota_hard(team: Team) -> dict[str, str]:
    """`spec.hard` of the team's ResourceQuota: its ceiling. Empty: the team has no quota."""
    if not team.quota:
        return dict(team.hard)
    total = quotas.ceiling(
        team.quota, borrow_limit=team.borrow_limit, absolute_borrow_limits=team.absolute_borrow_limits
    )
    return quotas.hard(total, team.hard)


def compute_quota_config(team: Team) -> dict[str, Any]:
    """`ComputeQuotaConfig` of the team's AWS::SageMaker::ComputeQuota: its share, and what it may borrow."""
    return quotas.compute_quota_config(
        team.quota, borrow_limit=team.borrow_limit, absolute_borrow_limits=team.absolute_borrow_limits
    )


def team_manifests(team: Team, *, task_governance: bool) -> tuple[Manifest, ...]:
    """All of a team's objects, in the order in which they can be applied.

    Under task governance HyperPod makes the namespace, when it sees the team's ComputeQuota: these come after that.
    """
    namespace = namespace_name(team, task_governance=task_governance)
    hard = quota_hard(team)
    manifests = [] if task_governance else [_object("v1", "Namespace", namespace)]
    if hard:
        # Quotas on vCPUs and memory refuse every pod with a container that does not say how much it takes.
        manifests += [_resource_quota(namespace, hard), _limit_range(namespace, team)]
    manifests += [
        _object("rbac.authorization.k8s.io/v1", "Role", "team-member", namespace, rules=_role_rules(task_governance)),
        _binding("RoleBinding", "Role", "team-member", namespace),
    ]
    if task_governance:
        manifests += [
            _object(
                "rbac.authorization.k8s.io/v1", "ClusterRole", f"{namespace}-team-member", rules=_queues(namespace)
            ),
            _binding("ClusterRoleBinding", "ClusterRole", f"{namespace}-team-member", namespace),
        ]
    return tuple(manifests)


def priority_class_manifests(classes: Sequence[PriorityClass]) -> tuple[Manifest, ...]:
    """The cluster's PriorityClasses. Value and preemption cannot change: another class needs another name."""
    return tuple(
        _object("scheduling.k8s.io/v1", "PriorityClass", item.name)
        | {
            "value": item.value,
            "globalDefault": False,
            "preemptionPolicy": "PreemptLowerPriority" if item.preempts else "Never",
        }
        | ({"description": item.description} if item.description else {})
        for item in classes
    )


def cluster_nodes(groups: Sequence[InstanceGroup]) -> dict[str, int]:
    """Nodes by instance type. A group that mixes types may have all of its nodes of any one of them."""
    nodes: dict[str, int] = {}
    for group in groups:
        for name in group.all_instance_types:
            nodes[name] = nodes.get(name, 0) + group.instance_count
    return nodes


def check_teams(
    teams: Sequence[Team],
    *,
    nodes: Mapping[str, int] | None,
    task_governance: bool,
    autoscaling: bool,
    path: str = "teams",
) -> Iterator[Finding]:
    """Everything that is wrong with the teams of one cluster.

    nodes: the cluster's nodes by type (`cluster_nodes`). None: not known, as where an autoscaler owns the counts; shares
    are then not compared with the cluster.
    """
    paths = item_paths(path, teams)
    known = [(paths[index], team) for index, team in enumerate(teams) if is_known(team)]
    for team_path, team in known:
        yield from field_findings(team, team_path)
        yield from _check_roles(team, team_path)
        yield from _check_namespace(team, team_path, task_governance)
        yield from _check_quota(team, team_path, nodes, task_governance, autoscaling)
    yield from _check_unique(known, task_governance)
    if nodes is not None:
        yield from quotas.check_shares(
            {team.name: team.quota for _, team in known if is_known(team.name) and is_known(team.quota)}, nodes, path
        )


def check_priority_classes(classes: Sequence[PriorityClass], path: str = "priority_classes") -> Iterator[Finding]:
    """Everything that is wrong with the cluster's PriorityClasses."""
    paths = item_paths(path, classes)
    for index, item in enumerate(classes):
        if is_known(item):
            yield from field_findings(item, paths[index])
    for name, count in Counter(item.name for item in classes if is_known(item)).items():
        if count > 1:
            yield Finding(path=path, problem=f"{count} classes have the name {show(name)}", remedy="keep one of them")


def namespace_findings(namespace: str, path: str) -> Iterator[Finding]:
    """Why a namespace cannot be a team's own. (hyperpod-ns-<team>, which HyperPod makes, never comes here.)"""
    if namespace in _RESERVED or namespace.startswith(("kube-", "hyperpod-")):
        yield Finding(
            path=path,
            problem=f"the namespace {show(namespace)} belongs to Kubernetes, EKS or HyperPod",
            remedy="use one of the team's own",
        )


def _check_roles(team: Team, path: str) -> Iterator[Finding]:
    if not isinstance(team.role_arns, tuple):
        return
    for index, arn in enumerate(team.role_arns):
        if is_known(arn) and (words := _ROLE_ARN.problem(arn)):
            yield Finding(path=f"{path}.role_arns[{index}]", problem=f"{words}, got {show(arn)}", remedy="change it")
    for arn, count in Counter(arn for arn in team.role_arns if is_known(arn)).items():
        if count > 1:
            yield Finding(path=f"{path}.role_arns", problem=f"{show(arn)} stands twice", remedy="name it once")


def _check_namespace(team: Team, path: str, task_governance: bool) -> Iterator[Finding]:
    if task_governance:
        own = f"hyperpod-ns-{team.name}"
        if team.namespace is not None and is_known(team.namespace) and team.namespace != own:
            yield Finding(
                path=f"{path}.namespace",
                problem=f"under task governance HyperPod makes the namespace {own}, got {show(team.namespace)}",
                remedy="remove it, or turn task governance off",
            )
    elif team.namespace is None:
        if is_known(team.name) and isinstance(team.name, str):
            yield from namespace_findings(team.name, f"{path}.name")
    elif is_known(team.namespace) and isinstance(team.namespace, str):
        yield from namespace_findings(team.namespace, f"{path}.namespace")


def _check_quota(
    team: Team, path: str, nodes: Mapping[str, int] | None, task_governance: bool, autoscaling: bool
) -> Iterator[Finding]:
    if isinstance(team.hard, Mapping):
        yield from quotas.check_hard(team.hard, f"{path}.hard")
    if not isinstance(team.quota, Mapping) or not isinstance(team.absolute_borrow_limits, Mapping):
        return
    yield from quotas.check_nodes(team.quota, f"{path}.quota", cluster=nodes)
    yield from quotas.check_nodes(team.absolute_borrow_limits, f"{path}.absolute_borrow_limits", cluster=nodes)
    if not team.quota and autoscaling:
        yield Finding(
            path=f"{path}.quota",
            problem="is missing, and autoscaling is on: the team's requests could provision nodes without limit",
            remedy="add one such as {ml.p5.48xlarge: 8}",
        )
    elif not team.quota and task_governance:
        yield Finding(
            path=f"{path}.quota",
            problem="is missing, and task governance gives each team a share",
            remedy="add one such as {ml.p5.48xlarge: 8}",
        )
    for name in ("quota", "absolute_borrow_limits"):
        if task_governance and len(getattr(team, name)) > 15:
            yield Finding(
                path=f"{path}.{name}",
                problem=f"there are {len(getattr(team, name))} instance types, and a compute quota holds 15",
                remedy="use fewer",
            )
    if team.borrow_limit is not None and team.absolute_borrow_limits:
        yield Finding(
            path=f"{path}.borrow_limit",
            problem="absolute_borrow_limits is there too",
            remedy="keep one of them: percent of the share, or nodes",
        )
    if not team.quota and (team.borrow_limit is not None or team.absolute_borrow_limits):
        yield Finding(
            path=path, problem="borrows, and has no quota to borrow beyond", remedy="add a quota, or borrow nothing"
        )


def _check_unique(known: Sequence[tuple[str, Team]], task_governance: bool) -> Iterator[Finding]:
    names: set[str] = set()
    namespaces: dict[str, str] = {}
    for path, team in known:
        if not is_known(team.name):
            continue
        if team.name in names:
            yield Finding(
                path=f"{path}.name",
                problem=f"an earlier team has the name {show(team.name)} too",
                remedy="give each team a name of its own",
            )
        elif (namespace := namespace_name(team, task_governance=task_governance)) in namespaces:
            yield Finding(
                path=f"{path}.namespace",
                problem=f"the team {show(namespaces[namespace])} has the namespace {show(namespace)} too",
                remedy="give each team a namespace of its own",
            )
        else:
            namespaces[namespace] = team.name
        names.add(team.name)


def _resource_quota(namespace: str, hard: Mapping[str, str]) -> Manifest:
    return _object("v1", "ResourceQuota", "team-quota", namespace, spec={"hard": dict(hard)})


def _limit_range(namespace: str, team: Team) -> Manifest:
    default = {"cpu": str(team.default_vcpus), "memory": f"{team.default_memory_gib}Gi"}
    limits = [{"type": "Container", "default": default, "defaultRequest": default}]
    return _object("v1", "LimitRange", "team-defaults", namespace, spec={"limits": limits})


_ALL = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_READ = ("get", "list", "watch")


def _role_rules(task_governance: bool) -> list[Manifest]:
    """What a member may do in the team's namespace: everything with jobs, and nothing with the team's own limits.

    AWS's chart (https://github.com/aws/sagemaker-hyperpod-cli, team-role-and-bindings) has no rule for
    hyperpodpytorchjobs, and grants nodes in a Role, which has no effect there.
    """
    rules = [
        _rule("sagemaker.amazonaws.com", ("hyperpodpytorchjobs",), _ALL),
        _rule("sagemaker.amazonaws.com", ("hyperpodpytorchjobs/status",), ("get",)),
        _rule("batch", ("jobs",), _ALL),
        _rule("kubeflow.org", ("pytorchjobs", "pytorchjobs/status", "mpijobs", "mpijobs/status"), _ALL),
        _rule("", ("pods", "configmaps", "secrets", "services", "persistentvolumeclaims"), _ALL),
        _rule("", ("pods/log", "pods/status", "events", "serviceaccounts", "resourcequotas", "limitranges"), _READ),
        _rule("", ("pods/exec", "pods/portforward"), ("create",)),
        _rule("policy", ("poddisruptionbudgets",), _ALL),
    ]
    if task_governance:
        rules += [
            _rule("kueue.x-k8s.io", ("workloads", "workloads/status"), (*_READ, "patch")),
            _rule("kueue.x-k8s.io", ("localqueues",), _READ),
        ]
    return rules


def _queues(namespace: str) -> list[Manifest]:
    """What Kueue keeps outside of namespaces; the team sees its own queue only."""
    own = _rule("kueue.x-k8s.io", ("clusterqueues",), ("get",)) | {"resourceNames": [f"{namespace}-clusterqueue"]}
    return [own, _rule("kueue.x-k8s.io", ("resourceflavors", "workloadpriorityclasses"), _READ)]


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}


def _binding(kind: str, role_kind: str, role: str, namespace: str) -> Manifest:
    rbac = "rbac.authorization.k8s.io"
    return _object(f"{rbac}/v1", kind, role, namespace if kind == "RoleBinding" else None) | {
        "subjects": [{"kind": "Group", "name": group_name(namespace), "apiGroup": rbac}],
        "roleRef": {"kind": role_kind, "name": role, "apiGroup": rbac},
    }


def _object(api_version: str, kind: str, name: str, namespace: str | None = None, **content: Any) -> Manifest:
    metadata: Manifest = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    metadata["labels"] = {"app.kubernetes.io/managed-by": "cdk-hyperpod"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
