"""Checks of the options of `job render`, by themselves and against the cluster file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

from ..._lambda.hyperpod.kernel.drain_protocol import MAX_NODES
from ...config.cluster import ClusterConfig, InstanceGroup
from ...config.jobs import ElasticJob
from ...config.patterns import ZONE
from ...config.zones import is_zone_id
from ...errors import Finding
from ...facts.instance_types import catalogue
from ...kubernetes.teams import POD_SERVICE_ACCOUNT, allowed_priorities
from ...typed.words import show
from .elastic_job import teams_by_namespace, zone_of


def check_sizes(options: SimpleNamespace) -> Iterator[Finding]:
    """The options must give all sizes of one kind of job: of one size, or elastic."""
    elastic = ("min_replicas", "max_replicas", "replica_increment_step", "replica_discrete_values", "replicas")
    given = [name for name in elastic if getattr(options, name)]
    if options.nodes is not None and given:
        elastic_option = given[0]
        yield Finding(
            code="job-nodes-with-sizes",
            path="nodes",
            problem=f"cannot be combined with {elastic_option}",
            remedy="use --nodes, or the sizes of an elastic job",
        )
    for name in ("min_replicas", "max_replicas"):
        if options.nodes is None and getattr(options, name) is None:
            yield Finding(
                code="job-size-unset",
                path=name,
                problem="is missing",
                remedy="add it, or use --nodes for a job of one size",
            )
    if options.nodes is not None and not 1 <= options.nodes <= MAX_NODES:
        yield Finding(
            code="job-nodes-out-of-range",
            path="nodes",
            problem=f"must be 1 to {MAX_NODES}, got {options.nodes}",
            remedy="use a value in this range",
        )


def check_group(options: SimpleNamespace, config: ClusterConfig) -> Iterator[Finding]:
    """The file must have the group, with the type and the zone of the options."""
    if config.orchestrator != "eks":
        yield Finding(
            code="job-of-slurm-cluster",
            path="config",
            problem="is the file of a Slurm cluster",
            remedy="submit the job with sbatch",
        )
    groups = {group.name: group for group in config.instance_groups}
    if options.group not in groups:
        first_groups = [*groups][:8]
        yield Finding(
            code="job-group-unknown",
            path="group",
            problem=f"is not an instance group of the file, got {show(options.group)}",
            remedy=f"use one of {', '.join(first_groups)}",
        )
        return
    types = groups[options.group].all_instance_types
    if options.instance_type is None and len(types) > 1:
        yield Finding(
            code="job-instance-type-ambiguous",
            path="instance_type",
            problem=f"is missing, and the group has the types {', '.join(types)}",
            remedy="name the type of the nodes",
        )
    elif options.instance_type is not None and options.instance_type not in types:
        yield Finding(
            code="job-instance-type-not-of-group",
            path="instance_type",
            problem=f"is not a type of the group {options.group}, got {show(options.instance_type)}",
            remedy=f"remove it, or use {' or '.join(types)}",
        )
    group_zone = zone_of(groups[options.group], config)
    # A name and an id may mean the same zone. Which ones do differs between accounts.
    same_kind = options.zone and group_zone and is_zone_id(options.zone) == is_zone_id(group_zone)
    if same_kind and options.zone != group_zone:
        yield Finding(
            code="job-zone-not-of-group",
            path="zone",
            problem=f"the group {options.group} is in {group_zone}, got {show(options.zone)}",
            remedy="remove it, or name a group in that zone",
        )


def check_zone(options: SimpleNamespace, config: ClusterConfig | None) -> Iterator[Finding]:
    """The zone must be valid. Without one, nodes with EFA must be in one zone."""
    if options.zone is not None and (problem := ZONE.problem(options.zone)):
        yield problem.at("zone", options.zone)
    kind = catalogue().get(options.instance_type or "")
    if options.zone is not None or options.group is not None or config is None or kind is None or not kind.has_efa:
        return
    zones = {zone_of(group, config) for group in config.instance_groups if kind.name in group.all_instance_types}
    if len(zones) > 1:
        names = sorted(map(str, zones))
        yield Finding(
            code="job-zone-ambiguous",
            path="zone",
            problem=f"is missing. {kind.name} nodes are in {' and '.join(names)}, and EFA does not cross zones",
            remedy="name the zone, or a --group",
        )


def check_team(options: SimpleNamespace, config: ClusterConfig | None) -> Iterator[Finding]:
    """What Kubernetes would refuse in the namespace of the job's team, according to the file."""
    if config is None or config.eks is None or not config.teams:
        return
    teams = teams_by_namespace(config)
    team = teams.get(options.namespace)
    if team is None:
        yield _unknown_namespace(options.namespace, [*teams])
        return
    allowed = allowed_priorities(team, config.eks.priority_classes)
    for path in ("priority_class", "base_priority_class"):
        name = getattr(options, path)
        if name is not None and name not in allowed:
            yield _refused_priority(f"{path}_name", name, team.name, allowed)
    if options.service_account == POD_SERVICE_ACCOUNT and team.pod_role_arn is None:
        yield Finding(
            code="job-service-account-unknown",
            path="service_account_name",
            problem=f"is {POD_SERVICE_ACCOUNT}, which the team {team.name} does not have, because it has no pod_role_arn",
            remedy="remove it, or give the team a pod_role_arn",
        )


def _unknown_namespace(namespace: str, known: list[str]) -> Finding:
    problem = f"is not the namespace of a team of the file, got {show(namespace)}"
    likely = difflib.get_close_matches(namespace[:80], known, n=1)
    if likely:
        nearest = likely[0]
        return Finding(
            code="job-namespace-misspelled", path="namespace", problem=problem, remedy=f"did you mean {nearest}?"
        )
    first_namespaces = known[:8]
    return Finding(
        code="job-namespace-unknown",
        path="namespace",
        problem=problem,
        remedy=f"use one of {', '.join(first_namespaces)}",
    )


def _refused_priority(path: str, name: str, team: str, allowed: Sequence[str]) -> Finding:
    problem = f"{show(name)} is not allowed for pods of the team {team}"
    if not allowed:
        return Finding(
            code="job-team-without-priorities",
            path=path,
            problem=problem,
            remedy="remove it, since the team has no PriorityClass",
        )
    return Finding(
        code="job-priority-not-of-team", path=path, problem=problem, remedy=f"use one of {', '.join(allowed)}"
    )


def check_batch_and_quota(options: SimpleNamespace) -> list[Finding]:
    """The batch and the quota must be above zero, and a learning rate requires a batch."""
    findings = []
    if options.quota_nodes is not None and options.quota_nodes < 1:
        findings.append(
            Finding(
                code="job-quota-nodes-too-low",
                path="quota_nodes",
                problem=f"must be 1 or more, got {options.quota_nodes}",
                remedy="use a value in this range",
            )
        )
    if options.train_batch_size is not None and options.train_batch_size < 1:
        findings.append(
            Finding(
                code="job-batch-size-too-low",
                path="train_batch_size",
                problem=f"must be 1 or more, got {options.train_batch_size}",
                remedy="use a value in this range",
            )
        )
    if options.learning_rate is not None and options.train_batch_size is None:
        findings.append(
            Finding(
                code="job-learning-rate-without-batch",
                path="learning_rate",
                problem="requires train_batch_size, since the settings of each size contain both",
                remedy="add train_batch_size, or pass the rate to the script",
            )
        )
    return findings


def check_log_options(options: SimpleNamespace) -> Iterator[Finding]:
    """The limits of the log need the pattern of its lines."""
    for name in ("log_start_cut_off", "log_recurring_frequency"):
        if getattr(options, name) is not None and options.log_pattern is None:
            option = name.replace("_", "-")
            yield Finding(
                code="job-log-limit-without-pattern",
                path=f"--{option}",
                problem="needs --log-pattern, the lines that show progress",
                remedy="add it, or remove this option",
            )


def check_health(options: SimpleNamespace, group: InstanceGroup | None) -> Iterator[Finding]:
    """Nodes of a group without deep health checks never pass them."""
    if options.deep_health_check_passed and group is not None and not group.on_start_deep_health_checks:
        yield Finding(
            code="job-health-check-not-run",
            path="deep_health_check_passed",
            problem=f"the group {group.name} has no on_start_deep_health_checks, so its nodes may never pass them",
            remedy="remove it, or add the checks to the group. Its new nodes then run them",
            level="warning",
        )


def check_elastic_training(
    job: ElasticJob, group: InstanceGroup | None, config: ClusterConfig | None
) -> Iterator[Finding]:
    """What AWS does not support for elastic training. `check` warns of the same in cluster files."""
    if job.elastic_policy.min_replicas == job.elastic_policy.max_replicas:
        return
    if group is not None and group.spot:
        yield Finding(
            code="elastic-training-on-spot",
            path="group",
            problem=f"{group.name} is spot capacity, which AWS does not support for elastic training",
            remedy="use --nodes, or a group of on-demand nodes",
            level="warning",
        )
    if config is not None and config.tiered_storage is not None:
        yield Finding(
            code="elastic-training-with-tiered-storage",
            path="config",
            problem="turns on managed tiered checkpointing, which AWS does not support with elastic training",
            remedy="use --nodes, or turn off tiered checkpointing",
            level="warning",
        )
