"""Everything that is wrong with the teams of a cluster, and with its PriorityClasses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ..config.patterns import ROLE_ARN
from ..config.teams import CLASS_NAME, PriorityClass, Share, Team
from ..errors import Finding
from ..kubernetes.drainer import BACKUP_NAMESPACE
from ..kubernetes.quantities import parse_quantity
from ..kubernetes.teams import DEFAULT_DISK, POD_SERVICE_ACCOUNT, namespace_name, quota_hard
from ..typed.known import is_known
from ..typed.validation import check_kinds, check_repeated, field_findings
from ..typed.words import item_paths, join, show
from . import quotas


def check_teams(
    teams: Sequence[Team],
    *,
    nodes: Mapping[str, int | None] | None,
    task_governance: bool,
    autoscaling: bool,
    file_system_gib: int = 0,
    path: str = "teams",
) -> Iterator[Finding]:
    """Everything that is wrong with the teams of one cluster.

    file_system_gib: the capacity that each team's claim on the file system shows. 0: there are no claims.

    nodes: the cluster's nodes by type (`cluster_nodes`). None for a type: their number is not known, for example with an
    autoscaler, and the shares of that type are not compared. None in place of all: the types are not known.
    """
    kinds = [*check_kinds(teams, Sequence[Team], path)]
    yield from kinds
    if kinds:
        return
    paths = item_paths(path, teams)
    known = [(paths[index], team) for index, team in enumerate(teams) if is_known(team)]
    for team_path, team in known:
        wrong = [*field_findings(team, team_path)]
        yield from wrong
        yield from _check_roles(team, team_path)
        yield from _check_priorities(team, team_path)
        yield from _check_work(team, team_path)
        yield from _check_namespace(team, team_path, task_governance)
        yield from _check_quota(team, team_path, nodes, task_governance, autoscaling)
        refused = {finding.path for finding in wrong}
        later = [*_check_defaults(team, team_path), *([] if task_governance else _check_not_governed(team, team_path))]
        yield from (finding for finding in later if finding.path not in refused)
        yield from _check_room(team, team_path, file_system_gib=file_system_gib)
    yield from _check_unique(known, task_governance)
    if nodes is not None:
        yield from quotas.check_shares(
            {team.name: team.quota for _, team in known if is_known(team.name) and is_known(team.quota)}, nodes, path
        )


def check_priority_classes(classes: Sequence[PriorityClass], path: str = "priority_classes") -> Iterator[Finding]:
    """Everything that is wrong with the cluster's PriorityClasses."""
    kinds = [*check_kinds(classes, Sequence[PriorityClass], path)]
    yield from kinds
    if kinds:
        return
    paths = item_paths(path, classes)
    for index, item in enumerate(classes):
        if is_known(item):
            yield from field_findings(item, paths[index])
    for name, count in Counter(item.name for item in classes if is_known(item)).items():
        if count > 1:
            yield Finding(
                code="priority-class-duplicated",
                path=path,
                problem=f"{count} priority classes have the name {show(name)}",
                remedy="keep one of them",
            )


def _check_roles(team: Team, path: str) -> Iterator[Finding]:
    if not isinstance(team.role_arns, tuple):
        return
    for index, arn in enumerate(team.role_arns):
        if is_known(arn) and (problem := ROLE_ARN.problem(arn)):
            yield problem.at(f"{path}.role_arns[{index}]", arn)
    yield from check_repeated(team.role_arns, f"{path}.role_arns")


def _check_priorities(team: Team, path: str) -> Iterator[Finding]:
    names = team.priority_classes
    for index, name in enumerate(names if isinstance(names, tuple) else ()):
        if is_known(name) and (problem := CLASS_NAME.problem(name)):
            yield problem.at(f"{path}.priority_classes[{index}]", name)
    yield from check_repeated(names or (), f"{path}.priority_classes")


def _check_work(team: Team, path: str) -> Iterator[Finding]:
    yield from check_repeated(team.work, f"{path}.work")
    if isinstance(team.work, tuple) and "ray" in team.work:
        yield Finding(
            code="work-needs-kuberay",
            path=f"{path}.work",
            problem="has ray, whose kinds come with KubeRay's operator, and no stack of this library installs it",
            remedy="install the operator before the team submits, or remove ray",
            level="warning",
        )


def _check_namespace(team: Team, path: str, task_governance: bool) -> Iterator[Finding]:
    if task_governance and team.name == BACKUP_NAMESPACE:
        yield Finding(
            code="team-of-the-backups",
            path=f"{path}.name",
            problem=f"{BACKUP_NAMESPACE} is the namespace of the backups, in which no team has permissions",
            remedy="use another name",
        )
    if task_governance:
        own = f"hyperpod-ns-{team.name}"
        if team.namespace is not None and is_known(team.namespace) and team.namespace != own:
            yield Finding(
                code="namespace-of-task-governance",
                path=f"{path}.namespace",
                problem=f"must be {own}, which HyperPod creates under task governance, got {show(team.namespace)}",
                remedy="remove it, or turn task governance off",
            )
    elif team.namespace is None:
        if is_known(team.name) and isinstance(team.name, str):
            yield from namespace_findings(team.name, f"{path}.name")
    elif is_known(team.namespace) and isinstance(team.namespace, str):
        yield from namespace_findings(team.namespace, f"{path}.namespace")


_OF_TASK_GOVERNANCE = {
    "patch_workloads": False,
    "fair_share_weight": 0,
    "lend": True,
    "preempt_team_tasks": "lower_priority",
}
"""Settings that only task governance has, and their defaults."""


def _check_not_governed(team: Team, path: str) -> Iterator[Finding]:
    for field, default in _OF_TASK_GOVERNANCE.items():
        value = getattr(team, field)
        if is_known(value) and value != default:
            yield Finding(
                code="task-governance-required",
                path=f"{path}.{field}",
                problem="needs task governance, which is off",
                remedy="turn it on, or remove this setting",
            )


def _check_quota(
    team: Team, path: str, nodes: Mapping[str, int | None] | None, task_governance: bool, autoscaling: bool
) -> Iterator[Finding]:
    if isinstance(team.hard, Mapping):
        yield from quotas.check_hard(team.hard, f"{path}.hard")
    if not isinstance(team.quota, Mapping) or not isinstance(team.absolute_borrow_limits, Mapping):
        return
    yield from quotas.check_nodes(team.quota, f"{path}.quota", cluster=nodes)
    yield from quotas.check_nodes(team.absolute_borrow_limits, f"{path}.absolute_borrow_limits", cluster=nodes)
    if isinstance(team.hard, Mapping) and "limits.cpu" in team.hard:
        yield Finding(
            code="quota-of-cpu-limits",
            path=f"{path}.hard",
            problem="has limits.cpu, so Kubernetes refuses every job of hyp, which declares no CPU limit",
            remedy="remove it, and keep requests.cpu",
            level="warning",
        )
    if not team.quota:
        yield from _check_unlimited(team, path, task_governance, autoscaling)
    for name in ("quota", "absolute_borrow_limits"):
        if task_governance and len(getattr(team, name)) > 15:
            instance_types = getattr(team, name)
            yield Finding(
                code="quota-types-too-many",
                path=f"{path}.{name}",
                problem=f"there are {len(instance_types)} instance types",
                remedy="use at most 15",
            )
    yield from _check_borrowing(team, path)


def _check_borrowing(team: Team, path: str) -> Iterator[Finding]:
    if team.borrow_limit is not None and team.absolute_borrow_limits:
        yield Finding(
            code="borrow-limits-both",
            path=f"{path}.borrow_limit",
            problem="cannot be combined with absolute_borrow_limits",
            remedy="use one of them: percent of the share, or nodes",
        )
    if team.lend is False and (team.borrow_limit is not None or team.absolute_borrow_limits):
        yield Finding(
            code="borrow-without-lending",
            path=f"{path}.lend",
            problem="cannot be false for a team that borrows",
            remedy="remove it, or remove the borrow limits",
        )
    if not team.quota and (team.borrow_limit is not None or team.absolute_borrow_limits):
        yield Finding(
            code="borrow-without-quota",
            path=path,
            problem="borrows, but has no quota",
            remedy="add a quota, or remove the borrow limits",
        )


def _check_unlimited(team: Team, path: str, task_governance: bool, autoscaling: bool) -> Iterator[Finding]:
    """What a team without a quota could use."""
    if autoscaling:
        yield Finding(
            code="quota-missing-with-autoscaling",
            path=f"{path}.quota",
            problem=("is missing, but autoscaling is on, so the team's requests could provision nodes without limit"),
            remedy="add one such as {ml.p5.48xlarge: 8}",
        )
    elif task_governance:
        yield Finding(
            code="quota-missing-with-task-governance",
            path=f"{path}.quota",
            problem="is missing, but task governance requires a share for each team",
            remedy="add one such as {ml.p5.48xlarge: 8}",
        )
    elif isinstance(team.hard, Mapping) and not _is_bounded(team) and is_known(team.name):
        yield Finding(
            code="quota-missing",
            path=f"{path}.quota",
            problem=f"is missing, so the team {show(team.name)} can use every node of the cluster",
            remedy="add one such as {ml.p5.48xlarge: 8}, or acknowledge that the team has no limit",
            level="warning",
        )


def _is_bounded(team: Team) -> bool:
    """Whether any setting limits what the team may use. (A team that borrows without a quota has an error of its own.)"""
    of_nodes = [key for key in team.hard if key.startswith(("requests.", "limits.")) and key != "requests.storage"]
    return bool(team.quota or of_nodes or team.borrow_limit is not None or team.absolute_borrow_limits)


def _can_be_computed(nodes: Mapping[str, int | Share]) -> bool:
    return all(map(quotas.is_known_share, nodes.values())) and not any(quotas.check_nodes(nodes, ""))


def _check_defaults(team: Team, path: str) -> Iterator[Finding]:
    """A default above the whole quota: Kubernetes would refuse every pod that declares no resources."""
    nodes = (team.quota, team.absolute_borrow_limits)
    if not is_known((*nodes, team.borrow_limit, team.hard, team.work)) or not all(map(_can_be_computed, nodes)):
        return
    hard = quota_hard(team)
    for field, name, text in (
        ("default_vcpus", "cpu", f"{team.default_vcpus}"),
        ("default_memory_gib", "memory", f"{team.default_memory_gib}Gi"),
        (None, "ephemeral-storage", DEFAULT_DISK),
    ):
        # A default is a request, and also a limit if there is a quota for limits.
        held = {key: parse_quantity(hard[key]) for key in (f"requests.{name}", f"limits.{name}") if key in hard}
        default = parse_quantity(text)
        too_small = [key for key, most in held.items() if default is not None and most is not None and default > most]
        if not too_small:
            continue
        key = too_small[0]
        quota = hard[key]
        if field is None:
            yield Finding(
                code="quota-below-default-disk",
                path=join(f"{path}.hard", key),
                problem=(
                    f"is {quota}, but a container that declares nothing gets {text}, so Kubernetes would refuse its pod"
                ),
                remedy="raise it",
            )
        else:
            yield Finding(
                code="default-above-quota",
                path=f"{path}.{field}",
                problem=(
                    f"a container that declares nothing gets {text}, but the team's quota is {quota} ({key}), so "
                    "Kubernetes would refuse its pod"
                ),
                remedy="lower it, or raise the quota",
            )


def _check_room(team: Team, path: str, *, file_system_gib: int) -> Iterator[Finding]:
    """A quota without room for what a deployment itself creates in the namespace, which Kubernetes would refuse."""
    created: dict[str, tuple[str, str]] = {}
    if team.pod_role_arn is not None:
        accounts = ("2", f"{POD_SERVICE_ACCOUNT} for pod_role_arn, beside Kubernetes' own default")
        created |= {"count/serviceaccounts": accounts}
    if file_system_gib:
        claim = "the claim on the file system"
        created |= dict.fromkeys(("persistentvolumeclaims", "count/persistentvolumeclaims"), ("1", claim))
        created |= {"requests.storage": (f"{file_system_gib}Gi", claim)}
    for key, (least, what) in created.items():
        text = team.hard.get(key) if isinstance(team.hard, Mapping) else None
        amount = parse_quantity(text) if isinstance(text, str) and is_known(text) else None
        if amount is not None and amount < (parse_quantity(least) or 0):
            yield Finding(
                code="quota-without-room",
                path=join(f"{path}.hard", key),
                problem=f"is {text}, but the deployment itself needs {least}: it creates {what}",
                remedy=f"raise it to at least {least}",
            )


def _check_unique(known: Sequence[tuple[str, Team]], task_governance: bool) -> Iterator[Finding]:
    names: set[str] = set()
    namespaces: dict[str, str] = {}
    for path, team in known:
        if not is_known(team.name):
            continue
        if team.name in names:
            yield Finding(
                code="team-name-duplicated",
                path=f"{path}.name",
                problem=f"the team name {show(team.name)} is duplicated",
                remedy="give each team a name of its own",
            )
        elif (namespace := namespace_name(team, task_governance=task_governance)) in namespaces:
            other_team = namespaces[namespace]
            yield Finding(
                code="namespace-duplicated",
                path=f"{path}.namespace",
                problem=f"the team {show(other_team)} also has the namespace {show(namespace)}",
                remedy="give each team a namespace of its own",
            )
        else:
            namespaces[namespace] = team.name
        names.add(team.name)


# The namespaces of Kubernetes, EKS, HyperPod and its add-ons. Names that begin with kube- or hyperpod- are reserved, too:
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


def namespace_findings(namespace: str, path: str) -> Iterator[Finding]:
    """Why a namespace cannot belong to a team. (hyperpod-ns-<team>, which HyperPod creates, is not checked here.)"""
    if namespace in _RESERVED or namespace.startswith(("kube-", "hyperpod-")):
        yield Finding(
            code="namespace-reserved",
            path=path,
            problem=f"the namespace {show(namespace)} belongs to Kubernetes, EKS or HyperPod",
            remedy="use a namespace of the team's own",
        )
