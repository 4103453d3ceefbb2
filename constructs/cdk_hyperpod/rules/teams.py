"""Everything that is wrong with the teams of a cluster, and with its PriorityClasses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ..config.patterns import ROLE_ARN
from ..config.teams import CLASS_NAME, PriorityClass, Team
from ..errors import Finding
from ..kubernetes.drainer import BACKUP_NAMESPACE
from ..kubernetes.quantities import parse_quantity
from ..kubernetes.teams import DEFAULT_DISK, POD_SERVICE_ACCOUNT, namespace_name, quota_hard
from ..typed.judge import check_kinds, check_repeated, field_findings
from ..typed.known import is_known
from ..typed.words import item_paths, join, show
from . import quotas


def check_teams(
    teams: Sequence[Team],
    *,
    nodes: Mapping[str, int | None] | None,
    task_governance: bool,
    autoscaling: bool,
    has_file_system: bool = False,
    path: str = "teams",
) -> Iterator[Finding]:
    """Everything that is wrong with the teams of one cluster. `has_file_system`: each team gets a claim on one.

    nodes: the cluster's nodes by type (`cluster_nodes`). None for a type: nobody knows how many, as where an autoscaler
    owns the count, and its shares are not compared. None in place of all: not even the types are known.
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
        yield from _check_namespace(team, team_path, task_governance)
        yield from _check_quota(team, team_path, nodes, task_governance, autoscaling)
        refused = {finding.path for finding in wrong}
        later = [*_check_defaults(team, team_path), *([] if task_governance else _check_not_governed(team, team_path))]
        yield from (finding for finding in later if finding.path not in refused)
        yield from _check_room(team, team_path, has_file_system=has_file_system)
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
            yield Finding(path=path, problem=f"{count} classes have the name {show(name)}", remedy="keep one of them")


def _check_roles(team: Team, path: str) -> Iterator[Finding]:
    if not isinstance(team.role_arns, tuple):
        return
    for index, arn in enumerate(team.role_arns):
        if is_known(arn) and (words := ROLE_ARN.problem(arn)):
            yield Finding(path=f"{path}.role_arns[{index}]", problem=f"{words}, got {show(arn)}", remedy="change it")
    yield from check_repeated(team.role_arns, f"{path}.role_arns")


def _check_priorities(team: Team, path: str) -> Iterator[Finding]:
    names = team.priority_classes
    for index, name in enumerate(names if isinstance(names, tuple) else ()):
        if is_known(name) and (words := CLASS_NAME.problem(name)):
            place = f"{path}.priority_classes[{index}]"
            yield Finding(path=place, problem=f"{words}, got {show(name)}", remedy="change it")
    yield from check_repeated(names or (), f"{path}.priority_classes")


def _check_namespace(team: Team, path: str, task_governance: bool) -> Iterator[Finding]:
    if task_governance and team.name == BACKUP_NAMESPACE:
        yield Finding(
            path=f"{path}.name",
            problem=f"{BACKUP_NAMESPACE} is the namespace of the backups, in which no team has permissions",
            remedy="use another name",
        )
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


def _check_not_governed(team: Team, path: str) -> Iterator[Finding]:
    for field in ("patch_workloads", "fair_share_weight"):
        value = getattr(team, field)
        if is_known(value) and value:
            yield Finding(
                path=f"{path}.{field}",
                problem="applies only under task governance, which is off",
                remedy="remove it, or turn task governance on",
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
            path=f"{path}.hard",
            problem="has limits.cpu, with which Kubernetes refuses every job of hyp: they declare no CPU limit",
            remedy="keep requests.cpu alone; what is requested is what is shared",
            level="warning",
            code="cpu-limit",
        )
    if not team.quota:
        yield from _check_unlimited(team, path, task_governance, autoscaling)
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
            problem="absolute_borrow_limits is set too",
            remedy="keep one of them: percent of the share, or nodes",
        )
    if not team.quota and (team.borrow_limit is not None or team.absolute_borrow_limits):
        yield Finding(
            path=path, problem="borrows, and has no quota to borrow beyond", remedy="add a quota, or borrow nothing"
        )


def _check_unlimited(team: Team, path: str, task_governance: bool, autoscaling: bool) -> Iterator[Finding]:
    """What a team without a quota could take."""
    if autoscaling:
        yield Finding(
            path=f"{path}.quota",
            problem="is missing, and autoscaling is on: the team's requests could provision nodes without limit",
            remedy="add one such as {ml.p5.48xlarge: 8}",
        )
    elif task_governance:
        yield Finding(
            path=f"{path}.quota",
            problem="is missing, and task governance gives each team a share",
            remedy="add one such as {ml.p5.48xlarge: 8}",
        )
    elif isinstance(team.hard, Mapping) and not _is_bounded(team) and is_known(team.name):
        yield Finding(
            path=f"{path}.quota",
            problem=f"is missing: the team {show(team.name)} may take every node of the cluster",
            remedy="add one such as {ml.p5.48xlarge: 8}, or acknowledge that it has no ceiling",
            level="warning",
            code="no-quota",
        )


def _is_bounded(team: Team) -> bool:
    """Whether anything says how much the team may take. (What borrows without a quota is an error of its own.)"""
    of_nodes = [key for key in team.hard if key.startswith(("requests.", "limits."))]
    return bool(team.quota or of_nodes or team.borrow_limit is not None or team.absolute_borrow_limits)


def _check_defaults(team: Team, path: str) -> Iterator[Finding]:
    """A default beyond the whole quota: Kubernetes would refuse every pod that does not say how much it takes."""
    nodes = (team.quota, team.absolute_borrow_limits)
    if not is_known((*nodes, team.borrow_limit, team.hard)) or any([*quotas.check_nodes(part, "")] for part in nodes):
        return
    hard = quota_hard(team)
    for field, name, text in (
        ("default_vcpus", "cpu", f"{team.default_vcpus}"),
        ("default_memory_gib", "memory", f"{team.default_memory_gib}Gi"),
        (None, "ephemeral-storage", DEFAULT_DISK),
    ):
        # A default is a request, and a limit where there is a quota of limits.
        held = {key: parse_quantity(hard[key]) for key in (f"requests.{name}", f"limits.{name}") if key in hard}
        default = parse_quantity(text)
        too_small = [key for key, most in held.items() if default is not None and most is not None and default > most]
        if too_small:
            yield Finding(
                path=join(f"{path}.hard", too_small[0]) if field is None else f"{path}.{field}",
                problem=f"a container that declares nothing gets {text}, and the team's quota holds "
                f"{hard[too_small[0]]} ({too_small[0]})",
                remedy=f"{'raise it' if field is None else 'lower it, or raise the quota'}: Kubernetes would refuse every such "
                "pod",
            )


def _check_room(team: Team, path: str, *, has_file_system: bool) -> Iterator[Finding]:
    """A quota without room for what a deployment itself puts into the namespace, which Kubernetes would refuse then."""
    needs: dict[str, tuple[int, str]] = {}
    if team.pod_role_arn is not None:
        needs |= {
            "count/serviceaccounts": (2, f"{POD_SERVICE_ACCOUNT} for pod_role_arn, beside Kubernetes' own default")
        }
    if has_file_system:
        claims = (1, "the claim on the file system")
        needs |= {"persistentvolumeclaims": claims, "count/persistentvolumeclaims": claims}
    for key, (least, what) in needs.items():
        text = team.hard.get(key) if isinstance(team.hard, Mapping) else None
        amount = parse_quantity(text) if isinstance(text, str) and is_known(text) else None
        if amount is not None and amount < least:
            yield Finding(
                path=join(f"{path}.hard", key),
                problem=f"is {text}, and the deployment makes {what}",
                remedy=f"raise it to {least} at least",
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


def namespace_findings(namespace: str, path: str) -> Iterator[Finding]:
    """Why a namespace cannot be a team's own. (hyperpod-ns-<team>, which HyperPod makes, never comes here.)"""
    if namespace in _RESERVED or namespace.startswith(("kube-", "hyperpod-")):
        yield Finding(
            path=path,
            problem=f"the namespace {show(namespace)} belongs to Kubernetes, EKS or HyperPod",
            remedy="use one of the team's own",
        )
