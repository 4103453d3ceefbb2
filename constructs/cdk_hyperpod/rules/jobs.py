"""Rules of jobs: everything for which the operator, Kubernetes or the elastic agent would refuse a job or never run it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ..config.jobs import ElasticJob, ElasticPolicy, RunPolicy, ScaleSettings
from ..errors import Finding
from ..facts.device_plugins import EFA
from ..facts.instance_types import InstanceType, catalogue, suggestion
from ..kubernetes.allocatable import Allocatable, allocatable, missing_plugins
from ..kubernetes.quantities import cpu_quantity, memory_quantity, parse_quantity
from ..kubernetes.replicas import COORDINATION, SCALE_CONFIG_FOLDER, queue_of, ranks_per_replica, replica_resources
from ..typed.validation import check_kinds, field_findings
from ..typed.words import join, show
from .teams import namespace_findings


def check_job(job: ElasticJob, *, hard: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Everything for which the operator, Kubernetes or the elastic agent would refuse the job, or never run it.

    hard: the `spec.hard` of its team's ResourceQuota (`teams.quota_hard`). None: it is not known, and not checked.
    """
    kinds = [*check_kinds(job, ElasticJob, "")]
    yield from kinds
    if kinds:
        return
    policy = job.elastic_policy
    yield from field_findings(job, "")
    yield from field_findings(job.run_policy, "run_policy")
    yield from _check_log_monitoring(job.run_policy)
    yield from _check_placement(job)
    if not job.image.strip() or job.image != job.image.strip():
        yield Finding(
            code="job-image-invalid",
            path="image",
            problem=f"must be an image, got {show(job.image)}",
            remedy="name one",
        )
    yield from _check_namespace(job)
    kind = catalogue().get(job.instance_type)
    if kind is None:
        yield Finding(
            code="instance-type-unknown",
            path="instance_type",
            problem=f"HyperPod has no instance type {show(job.instance_type)}",
            remedy=suggestion(job.instance_type),
        )
    out_of_bounds = [*field_findings(policy, "elastic_policy")]
    yield from out_of_bounds
    wrong_sizes = [finding for finding in out_of_bounds if not finding.path.endswith("_in_seconds")]
    if not wrong_sizes:
        # After the bounds: with a number out of bounds, the sizes could not be enumerated.
        wrong_sizes = [*_check_sizes(policy)]
        yield from wrong_sizes
    granularity = [*_check_granularity(policy)]
    yield from granularity
    if policy.graceful_shutdown_timeout_in_seconds == 0:
        yield Finding(
            code="job-without-shutdown-time",
            path="elastic_policy.graceful_shutdown_timeout_in_seconds",
            problem=(
                "must be more than 0, since a checkpoint takes time. Otherwise each change of size loses the "
                "progress since the last checkpoint"
            ),
            remedy="remove it, or use the seconds that a checkpoint takes",
        )
    wrong_sizes += granularity
    if not wrong_sizes:
        yield from _check_replicas(job)
        yield from _check_scale_config(job, kind)
    if kind is not None:
        yield from _check_devices(job, kind)
        yield from _check_resources(job, kind)
        yield from _check_processes(job, kind)
        if hard is not None and not wrong_sizes:
            yield from _check_quota(job, hard)
    yield from _check_container(job)


def _check_namespace(job: ElasticJob) -> Iterator[Finding]:
    if not job.namespace.startswith("hyperpod-ns-"):
        yield from namespace_findings(job.namespace, "namespace")
    elif job.queue_name is None and len(queue := queue_of(job) or "") > 63:
        yield Finding(
            code="job-queue-name-too-long",
            path="namespace",
            problem=f"its queue would be {show(queue)}, but a label has at most 63 characters",
            remedy="name the queue (queue_name), or use a shorter team name",
        )


def _check_log_monitoring(policy: RunPolicy) -> Iterator[Finding]:
    """Expressions that cannot be read, and rules that can never find anything."""
    path = "run_policy.log_monitoring"
    for index, rule in enumerate(policy.log_monitoring):
        yield from field_findings(rule, f"{path}[{index}]")
        for name in ("log_pattern", "stop_pattern"):
            text = getattr(rule, name)
            if text is not None and not _is_expression(text):
                yield Finding(
                    code="job-log-pattern-invalid",
                    path=f"{path}[{index}].{name}",
                    problem=f"must be a regular expression, got {show(text)}",
                    remedy="correct it",
                )
        if (rule.metric_threshold is None) != (rule.operator is None):
            yield Finding(
                code="job-log-comparison-incomplete",
                path=f"{path}[{index}]",
                problem="has only one of metric_threshold and operator",
                remedy="add the other one, or remove both",
            )
        limits = (rule.expected_start_cut_off_in_seconds, rule.expected_recurring_frequency_in_seconds, rule.operator)
        if all(limit is None for limit in limits):
            yield Finding(
                code="job-log-rule-without-limit",
                path=f"{path}[{index}]",
                problem="has no limit, so it finds nothing",
                remedy="add expected_start_cut_off_in_seconds or expected_recurring_frequency_in_seconds",
            )


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return bool(text) and text.isprintable()


def _check_placement(job: ElasticJob) -> Iterator[Finding]:
    for name in ("required_topology", "preferred_topology"):
        if getattr(job, name) is not None and queue_of(job) is None:
            yield Finding(
                code="job-topology-without-queue",
                path=name,
                problem="needs a queue, because Kueue places the pods, and the job has none",
                remedy="name the queue (queue_name), or remove it",
            )
    if job.required_topology is not None and job.preferred_topology is not None:
        yield Finding(
            code="job-topologies-both",
            path="preferred_topology",
            problem="cannot be combined with required_topology",
            remedy="use one of them",
        )
    if job.spares and job.elastic_policy.min_replicas != job.elastic_policy.max_replicas:
        yield Finding(
            code="job-spares-of-elastic-job",
            path="spares",
            problem="an elastic job continues with fewer replicas, so it has no spares",
            remedy="remove it, or use one size",
        )


def _check_granularity(policy: ElasticPolicy) -> Iterator[Finding]:
    path = "elastic_policy"
    if policy.replica_increment_step is not None and policy.replica_discrete_values:
        yield Finding(
            code="job-step-and-sizes",
            path=path,
            problem="replica_increment_step cannot be combined with replica_discrete_values",
            remedy="use one of them: a step, or the sizes themselves",
        )
    if policy.replica_increment_step is None and not policy.replica_discrete_values:
        yield Finding(
            code="job-without-step-or-sizes",
            path=path,
            problem="has neither replica_increment_step nor replica_discrete_values",
            remedy="add one: a step such as 1, or the sizes such as 2,4,8",
        )


def _check_sizes(policy: ElasticPolicy) -> Iterator[Finding]:
    path = "elastic_policy"
    low, high, step = policy.min_replicas, policy.max_replicas, policy.replica_increment_step
    if low > high:
        yield Finding(
            code="job-minimum-above-maximum",
            path=f"{path}.min_replicas",
            problem=f"{low} is more than max_replicas, which is {high}",
            remedy="lower it, or raise max_replicas",
        )
    elif step is not None and (high - low) % step:
        reached = [*range(low, high, step)]
        listed = ", ".join(map(str, reached if len(reached) < 6 else [*reached[:3], "…", reached[-1]]))
        distance, last = high - low, reached[-1]
        yield Finding(
            code="job-maximum-not-reached",
            path=f"{path}.replica_increment_step",
            problem=f"from {low} in steps of {step} the job never reaches max_replicas, which is {high} ({listed})",
            remedy=f"use a step that divides {distance}, or max_replicas {last}",
        )
    yield from _check_values(policy.replica_discrete_values, low, high)


def _check_values(values: tuple[int, ...], low: int, high: int) -> Iterator[Finding]:
    path = "elastic_policy.replica_discrete_values"
    for value, count in Counter(values).items():
        if count > 1:
            yield Finding(
                code="value-duplicated",
                path=path,
                problem=f"{show(value)} is duplicated",
                remedy="name it once",
            )
        if low <= high and not low <= value <= high:
            yield Finding(
                code="job-size-out-of-range",
                path=path,
                problem=f"{show(value)} is outside of min_replicas {low} and max_replicas {high}",
                remedy="remove it, or change the limit",
            )
    if values and low <= high:
        for name, bound in (("min_replicas", low), ("max_replicas", high)):
            if bound not in values:
                yield Finding(
                    code="job-size-missing",
                    path=path,
                    problem=f"{name} {bound} is missing, so the job could never have that size",
                    remedy=f"add {bound}, or change {name}",
                )
            if low == high:
                break


def _check_replicas(job: ElasticJob) -> Iterator[Finding]:
    sizes = job.elastic_policy.sizes
    if job.replicas is not None and job.replicas not in sizes:
        listed = ", ".join(map(str, sizes if len(sizes) < 8 else [*sizes[:4], "…", sizes[-1]]))
        yield Finding(
            code="job-replicas-not-a-size",
            path="replicas",
            problem=f"the job cannot start with {job.replicas}: its sizes are {listed}",
            remedy="use one of them, or remove it",
        )
    if job.base_priority_class_name is not None and len(sizes) == 1:
        only_size = sizes[0]
        yield Finding(
            code="job-base-priority-without-effect",
            path="base_priority_class_name",
            problem=f"the job has one size, {only_size}, so it has no replicas above its minimum",
            remedy="use priority_class_name",
        )


def _check_devices(job: ElasticJob, kind: InstanceType) -> Iterator[Finding]:
    """A job on nodes that do not offer their accelerators would run without them, and one without EFA is slower."""
    missing = missing_plugins(kind, lists_extended=job.lists_extended)
    instance_type = kind.name
    for plugin in missing:
        if plugin != EFA:
            yield Finding(
                code="job-device-not-offered",
                path="instance_type",
                problem=(
                    f"{instance_type} nodes offer no accelerators, because HyperPod's chart runs no {plugin} on them"
                ),
                remedy=(
                    "let the library install the chart, which adds the type, and name the cluster file. Or use another "
                    "type"
                ),
            )
    if missing == (EFA,) and job.elastic_policy.max_replicas > 1:
        yield Finding(
            code="job-without-efa",
            path="instance_type",
            problem=f"{instance_type} nodes offer no EFA, because HyperPod's chart runs no {EFA} on them",
            remedy=(
                "let the library install the chart, which adds the type, and name the cluster file. Without, the job "
                "uses TCP"
            ),
            level="warning",
        )


def _check_resources(job: ElasticJob, kind: InstanceType) -> Iterator[Finding]:
    node = allocatable(kind, threads_per_core=job.threads_per_core)
    for name, unit, wanted, there in (
        ("vcpus", "vCPUs", job.vcpus, node.millicpus / 1000),
        ("memory_gib", "GiB of host memory", job.memory_gib, node.memory_mib / 1024),
    ):
        if wanted is not None and wanted > there:
            available, whole_node, instance_type = f"{there:g}", _whole_node(node), kind.name
            yield Finding(
                code="job-above-node",
                path=name,
                problem=(
                    f"pods can use {available} {unit} of {instance_type}, got {wanted}, so the job would wait forever"
                ),
                remedy=f"remove it to use all that pods can have ({whole_node})",
            )


def _check_processes(job: ElasticJob, kind: InstanceType) -> Iterator[Finding]:
    """More processes than accelerators: two of them would share a device, which NCCL and Neuron refuse."""
    there = kind.neuron_cores or kind.accelerators
    if there and job.nproc_per_node is not None and job.nproc_per_node > there:
        devices = "NeuronCores" if kind.neuron_cores else "GPUs"
        instance_type = kind.name
        yield Finding(
            code="job-processes-above-devices",
            path="nproc_per_node",
            problem=f"{instance_type} has {there} {devices}, got {job.nproc_per_node}",
            remedy="remove it for one process per device",
        )


def _check_quota(job: ElasticJob, hard: Mapping[str, str]) -> Iterator[Finding]:
    most = fits = job.elastic_policy.max_replicas + job.spares
    short = []
    for name, text in {**replica_resources(job), "pods": "1"}.items():
        need = parse_quantity(text)
        amounts = {key: parse_quantity(hard.get(key, "")) for key in (f"requests.{name}", f"limits.{name}", name)}
        limits = {key: amount for key, amount in amounts.items() if amount is not None}
        key = min(limits, key=lambda key: limits[key], default="")
        if key and need and need * most > limits[key]:
            fits = min(fits, int(limits[key] / need))
            short.append(f"{name} {_amount(name, text, most)} of {hard[key]}")
    if short and fits:
        yield Finding(
            code="job-above-quota",
            path="elastic_policy.max_replicas",
            problem=f"{most} replicas need more than the team's quota ({', '.join(short)})",
            remedy=f"lower it to at most {fits}, or raise the quota",
        )
    elif short:
        yield Finding(
            code="job-replica-above-quota",
            path="elastic_policy.max_replicas",
            problem=f"one replica needs more than the team's quota ({', '.join(short)})",
            remedy="raise the quota",
        )


def _check_container(job: ElasticJob) -> Iterator[Finding]:
    yield from _check_command(job)
    yield from _check_env(job)
    yield from _check_claims(job)


def _check_command(job: ElasticJob) -> Iterator[Finding]:
    if job.command and (job.script is not None or job.script_args):
        yield Finding(
            code="job-command-and-script",
            path="command",
            problem="cannot be combined with a script",
            remedy="use one of them",
        )
    elif job.script_args and job.script is None:
        yield Finding(
            code="job-script-missing",
            path="script_args",
            problem="needs a script",
            remedy="add the script",
        )


def _check_env(job: ElasticJob) -> Iterator[Finding]:
    for name, value in job.env.items():
        if not name.isidentifier() or not name.isascii():
            yield Finding(
                code="job-variable-name-invalid",
                path=join("env", name),
                problem=f"{show(name)} is not a valid name of an environment variable",
                remedy="use letters, digits and underscores, and begin with a letter or underscore",
            )
        elif name == COORDINATION and value != "distributed":
            yield Finding(
                code="job-coordination-overridden",
                path=join("env", name),
                problem=f"with {show(value)} the training script is not notified of a change of size",
                remedy="remove it: the library sets it to distributed",
            )


def _check_claims(job: ElasticJob) -> Iterator[Finding]:
    for index, claim in enumerate(job.claims):
        yield from field_findings(claim, f"claims[{index}]")
    reserved = ["/dev/shm", *([SCALE_CONFIG_FOLDER] if job.scale_config else [])]
    for path, count in Counter([*reserved, *(claim.mount_path for claim in job.claims)]).items():
        if count > 1:
            yield Finding(
                code="job-mounts-duplicated",
                path="claims",
                problem=f"{count} volumes are mounted at {show(path)}",
                remedy="use a path of its own for each",
            )


def _check_scale_config(job: ElasticJob, kind: InstanceType | None) -> Iterator[Finding]:
    if not job.scale_config:
        return
    sizes = job.elastic_policy.sizes
    if job.elastic_policy.replica_increment_step is not None:
        listed = ",".join([*map(str, sizes[:20]), *(["…"] if len(sizes) > 20 else [])])
        yield Finding(
            code="job-scale-config-with-step",
            path="scale_config",
            problem="requires replica_discrete_values, but the policy has replica_increment_step",
            remedy=f"use replica_discrete_values {listed}",
        )
    for size in sorted({*sizes} - {*job.scale_config}):
        yield Finding(
            code="job-scale-config-missing",
            path=f"scale_config[{size}]",
            problem="is missing",
            remedy="add it",
        )
    for size in sorted({*job.scale_config} - {*sizes}):
        yield Finding(
            code="job-scale-config-unused",
            path=f"scale_config[{size}]",
            problem=f"the job never has {size} replicas",
            remedy="remove it, or add the size",
        )
    batches = Counter(settings.train_batch_size for settings in job.scale_config.values())
    if len(batches) > 1:
        listed_batches = ", ".join(map(str, sorted(batches)))
        yield Finding(
            code="job-batches-differ",
            path="scale_config",
            problem=f"the global batch differs between sizes ({listed_batches})",
            remedy=("use one train_batch_size at every size, so that the loss does not depend on the free capacity"),
        )
    for size, settings in sorted(job.scale_config.items()):
        yield from field_findings(settings, f"scale_config[{size}]")
        if kind is not None and size in sizes:
            yield from _check_batch(settings, size * ranks_per_replica(job), f"scale_config[{size}]")


def _check_batch(settings: ScaleSettings, ranks: int, path: str) -> Iterator[Finding]:
    batch, uneven = settings.train_batch_size, settings.uneven_batch
    samples, small_ranks = batch // ranks, ranks - batch % ranks
    if batch < ranks:
        yield Finding(
            code="job-batch-too-small",
            path=f"{path}.train_batch_size",
            problem=f"{batch} samples are too few for {ranks} ranks",
            remedy=f"use at least {ranks}, or fewer replicas",
        )
    elif uneven is not None:
        small = uneven.num_dp_groups_with_small_batch_size
        total = small * uneven.small_local_batch_size + (ranks - small) * uneven.large_local_batch_size
        if 0 <= small <= ranks and total == batch:
            return
        if batch % ranks == 0:
            yield Finding(
                code="job-uneven-batch-not-needed",
                path=f"{path}.uneven_batch",
                problem=f"distributes {total} samples to {ranks} ranks, but the global batch is {batch}",
                remedy=f"remove it: {batch} divides evenly",
            )
        else:
            yield Finding(
                code="job-uneven-batch-wrong",
                path=f"{path}.uneven_batch",
                problem=f"distributes {total} samples to {ranks} ranks, but the global batch is {batch}",
                remedy=f"give {small_ranks} ranks {samples} samples and the others one more",
            )
    elif batch % ranks:
        yield Finding(
            code="job-batch-not-even",
            path=f"{path}.train_batch_size",
            problem=f"{batch} samples cannot be distributed evenly to {ranks} ranks",
            remedy=f"add uneven_batch: {small_ranks} ranks with {samples} samples, the others one more",
        )
    elif (micro_batch := settings.micro_train_batch_size) and samples % micro_batch:
        yield Finding(
            code="job-micro-batch-not-even",
            path=f"{path}.micro_train_batch_size",
            problem=f"{micro_batch} does not divide a rank's {samples} samples",
            remedy=f"use one that divides {samples}",
        )


def _whole_node(node: Allocatable) -> str:
    return f"{cpu_quantity(node.millicpus)} vCPUs, {memory_quantity(node.memory_mib)}"


def _amount(name: str, text: str, replicas: int) -> str:
    """What this number of replicas needs, in the unit of one replica's amount."""
    digits = text.rstrip("KMGTi" if name == "memory" else "m")
    return f"{int(digits) * replicas}{text[len(digits) :]}"
