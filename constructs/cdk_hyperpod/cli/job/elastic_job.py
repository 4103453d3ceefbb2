"""The `ElasticJob` that the options of `job render` and the cluster file describe: its nodes, its team and the team's quota."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from ...config.cluster import ClusterConfig, InstanceGroup
from ...config.eks import is_on
from ...config.jobs import ClaimMount, ElasticJob, ElasticPolicy, LogMonitoring, RunPolicy, Toleration
from ...config.teams import Team
from ...config.zones import is_zone_id
from ...facts.instance_types import catalogue
from ...kubernetes import quotas
from ...kubernetes.replicas import ZONE_LABELS, even_scale_config, ranks_per_replica
from ...kubernetes.teams import namespace_name, quota_hard
from ...rules.jobs import check_job
from ...rules.network import own_zones


def elastic_job(options: SimpleNamespace, group: InstanceGroup | None, config: ClusterConfig | None) -> ElasticJob:
    """The job of the options, on nodes of the group if there is one."""
    script, *arguments = options.script or [None]
    job = ElasticJob(
        name=options.name,
        namespace=options.namespace,
        image=options.image,
        instance_type=options.instance_type or (group.all_instance_types[0] if group is not None else ""),
        node_labels=_node_labels(options, group, config),
        tolerations=_tolerations(group),
        threads_per_core=None if group is None else group.threads_per_core,
        neuron_resource=options.neuron_resource,
        lists_extended=has_extended_lists(config),
        elastic_policy=_elastic_policy(options),
        replicas=options.replicas,
        script=script,
        script_args=tuple(arguments),
        nproc_per_node=options.nproc_per_node,
        env=dict(options.env),
        vcpus=options.vcpus,
        memory_gib=options.memory_gib,
        queue_name=options.queue,
        workload_priority_class=options.workload_priority_class,
        priority_class_name=options.priority_class,
        base_priority_class_name=options.base_priority_class,
        service_account_name=options.service_account,
        claims=tuple(ClaimMount(claim_name=name, mount_path=path) for name, path in options.claim),
        disruption_budget=options.disruption_budget,
        required_topology=options.required_topology,
        preferred_topology=options.preferred_topology,
        spares=options.spares or 0,
        deep_health_check_passed=options.deep_health_check_passed,
        termination_grace_period_seconds=options.termination_grace_period,
        image_pull_policy=options.image_pull_policy,
        run_policy=RunPolicy(
            job_max_retry_count=options.max_retries,
            scale_up_snooze_time_in_seconds=options.scale_up_snooze_time,
            log_monitoring=_log_monitoring(options),
        ),
    )
    return _with_scale_config(job, options)


def has_extended_lists(config: ClusterConfig | None) -> bool:
    """Whether the library installs HyperPod's chart, and adds the file's types to the lists of its device plug-ins."""
    return config is not None and config.eks is not None and config.eks.installs_chart


def _log_monitoring(options: SimpleNamespace) -> tuple[LogMonitoring, ...]:
    """One rule: a line that shows progress must come in time."""
    if options.log_pattern is None:
        return ()
    rule = LogMonitoring(
        name="progress",
        log_pattern=options.log_pattern,
        expected_start_cut_off_in_seconds=options.log_start_cut_off,
        expected_recurring_frequency_in_seconds=options.log_recurring_frequency,
    )
    return (rule,)


def _tolerations(group: InstanceGroup | None) -> tuple[Toleration, ...]:
    if group is None:
        return ()
    return tuple(Toleration(key=taint.key, effect=taint.effect, value=taint.value) for taint in group.taints)


def _elastic_policy(options: SimpleNamespace) -> ElasticPolicy:
    """The sizes and times. An ordinary job has one size, --nodes."""
    return ElasticPolicy(
        min_replicas=options.nodes or options.min_replicas,
        max_replicas=options.nodes or options.max_replicas,
        replica_increment_step=options.replica_increment_step,
        replica_discrete_values=(options.nodes,) if options.nodes else options.replica_discrete_values,
        scaling_timeout_in_seconds=options.scaling_timeout,
        graceful_shutdown_timeout_in_seconds=options.graceful_shutdown_timeout,
        faulty_scale_down_timeout_in_seconds=options.faulty_scale_down_timeout,
    )


def _with_scale_config(job: ElasticJob, options: SimpleNamespace) -> ElasticJob:
    """The job with its batch by size, if --train-batch-size asks for it and can be computed."""
    has_batch = options.train_batch_size is not None and options.train_batch_size >= 1
    if not has_batch or job.instance_type not in catalogue():
        return job
    # Invalid sizes cannot be expanded. The job is refused later, and never rendered.
    is_valid = not any(check_job(job))
    scale_config = even_scale_config(
        job.elastic_policy.sizes if is_valid else (),
        train_batch_size=options.train_batch_size,
        ranks=ranks_per_replica(job),
        learning_rate=options.learning_rate,
    )
    return dataclasses.replace(job, scale_config=scale_config)


def _node_labels(options: SimpleNamespace, group: InstanceGroup | None, config: ClusterConfig | None) -> dict[str, str]:
    """Labels that only these nodes have: those of the group, and the zone if it is known."""
    zone = options.zone
    if zone is None and group is not None and config is not None:
        zone = zone_of(group, config)
    labels = {} if group is None else dict(group.labels)
    return labels if zone is None else labels | {ZONE_LABELS[1 if is_zone_id(zone) else 0]: zone}


def zone_of(group: InstanceGroup, config: ClusterConfig) -> str | None:
    """The zone of a group's nodes; None: the account's first one, which is unknown."""
    own = own_zones(config.network)
    return group.availability_zone or (own[0] if own else None)


def teams_by_namespace(config: ClusterConfig) -> dict[str, Team]:
    """The teams of an EKS cluster's file by their namespaces."""
    governed = config.eks is not None and is_on(
        config.eks, "task_governance", has_file_system=config.storage is not None
    )
    return {namespace_name(team, task_governance=governed): team for team in config.teams}


def hard_quota(options: SimpleNamespace, config: ClusterConfig | None) -> dict[str, str] | None:
    """The quota of the job's namespace: of `--quota-nodes`, or of the file's team. None: unknown."""
    if options.quota_nodes is None and config is not None and config.eks is not None:
        teams = teams_by_namespace(config)
        team = teams.get(options.namespace)
        return None if team is None else quota_hard(team, lists_extended=has_extended_lists(config))
    if options.quota_nodes is None or options.quota_nodes < 1 or options.instance_type not in catalogue():
        return None
    nodes = {options.instance_type: options.quota_nodes}
    return quotas.hard(quotas.amounts(nodes, lists_extended=has_extended_lists(config)))
