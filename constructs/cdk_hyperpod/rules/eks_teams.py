"""Rules of teams that need the cluster: its nodes, its add-ons and its administrators."""

from __future__ import annotations

from collections.abc import Iterator

from ..config.cluster import InstanceGroup
from ..config.eks import AutoscalingConfig, EksConfig, is_on
from ..config.teams import Team
from ..errors import Finding
from ..kubernetes.teams import cluster_nodes
from ..typed.known import UNKNOWN, is_known
from ..typed.words import item_paths, show
from .teams import check_teams


def check_eks_teams(
    teams: tuple[Team, ...], eks: EksConfig, *, groups: tuple[InstanceGroup, ...] | None, file_system_gib: int
) -> Iterator[Finding]:
    """Everything that is wrong with the teams.

    groups: the cluster's groups. None: they are not known. file_system_gib: the capacity that each team's claim shows. 0: there are no
    claims.
    """
    if not isinstance(teams, tuple):
        return
    has_file_system = file_system_gib > 0
    yield from check_teams(
        teams,
        nodes=None if groups is None else _nodes(groups, eks),
        task_governance=is_on(eks, "task_governance", has_file_system=has_file_system),
        autoscaling=eks.autoscaling is not None,
        file_system_gib=file_system_gib,
    )
    if not is_on(eks, "eks_pod_identity_agent", has_file_system=has_file_system):
        yield from _check_pod_roles(teams)
    # Role by role, so that a malformed one does not hide the others.
    admins = {arn for arn in eks.admin_role_arns if is_known(arn)} if isinstance(eks.admin_role_arns, tuple) else set()
    paths = item_paths("teams", teams)
    for index, team in enumerate(teams):
        for arn in team.role_arns if isinstance(team, Team) and isinstance(team.role_arns, tuple) else ():
            if isinstance(arn, str) and arn in admins:
                yield Finding(
                    code="team-role-is-administrator",
                    path=f"{paths[index]}.role_arns",
                    problem=f"{show(arn)} is also an administrator, but EKS has one access entry per role",
                    remedy="remove it here. Administrators have all permissions of a team",
                )


def _check_pod_roles(teams: tuple[Team, ...]) -> Iterator[Finding]:
    paths = item_paths("teams", teams)
    for index, team in enumerate(teams):
        if isinstance(team, Team) and team.pod_role_arn is not None:
            yield Finding(
                code="pod-role-without-agent",
                path=f"{paths[index]}.pod_role_arn",
                problem="needs EKS's pod identity agent, but that add-on is off",
                remedy="set eks.add_ons.eks_pod_identity_agent.enabled: true, unless the EKS cluster already has it",
                level="warning",
            )


def _nodes(groups: tuple[InstanceGroup, ...], eks: EksConfig) -> dict[str, int | None] | None:
    """Nodes by type. None for a type whose count is not known. None in place of all if a type is not known."""
    if not isinstance(groups, tuple) or not all(
        isinstance(group, InstanceGroup) and is_known(group.all_instance_types) for group in groups
    ):
        return None
    autoscaled = _autoscaled(groups, eks)
    fixed: list[InstanceGroup] = []
    others: list[InstanceGroup] = []
    for group in groups:
        counted = is_known(group.instance_count) and group.name not in autoscaled
        (fixed if counted else others).append(group)
    nodes: dict[str, int | None] = {**cluster_nodes(fixed)}
    return nodes | dict.fromkeys(name for group in others for name in group.all_instance_types)


def _autoscaled(groups: tuple[InstanceGroup, ...], eks: EksConfig) -> list[str]:
    """The groups whose counts an autoscaler owns. All groups if it names an unknown one, which may be any of them."""
    if eks.autoscaling is None:
        return []
    names = eks.autoscaling.instance_groups if isinstance(eks.autoscaling, AutoscalingConfig) else UNKNOWN
    every = [group.name for group in groups]
    return [*names] if isinstance(names, tuple) and all(name in every for name in names) else every
