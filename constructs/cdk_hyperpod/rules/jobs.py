"""Everything for which the operator, Kubernetes or the elastic agent would refuse a job, or never run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ..config.jobs import ElasticJob, ElasticPolicy, ScaleSettings
from ..errors import Finding
from ..facts.instance_types import InstanceType, catalogue, suggestion
from ..kubernetes.allocatable import Allocatable, allocatable
from ..kubernetes.quantities import cpu_quantity, memory_quantity, parse_quantity
from ..kubernetes.replicas import COORDINATION, SCALE_CONFIG_FOLDER, queue_of, ranks_per_replica, replica_resources
from ..typed.judge import check_kinds, field_findings
from ..typed.words import join, show
from .teams import namespace_findings


def check_job(job: ElasticJob, *, hard: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Everything for which the operator, Kubernetes or the elastic agent would refuse the job, or never run it.

    hard: the `spec.hard` of its team's ResourceQuota (`teams.quota_hard`). None: not known, not checked.
    """
    kinds = [*check_kinds(job, ElasticJob, "")]
    yield from kinds
    if kinds:
        return
    policy = job.elastic_policy
    yield from field_findings(job, "")
    yield from field_findings(job.run_policy, "run_policy")
    if not job.image.strip() or job.image != job.image.strip():
        yield Finding(path="image", problem=f"must be an image, got {show(job.image)}", remedy="name one")
    yield from _check_namespace(job)
    kind = catalogue().get(job.instance_type)
    if kind is None:
        yield Finding(
            path="instance_type",
            problem=f"HyperPod has no instance type {show(job.instance_type)}",
            remedy=suggestion(job.instance_type),
        )
    out_of_bounds = [*field_findings(policy, "elastic_policy")]
    yield from out_of_bounds
    wrong_sizes = [finding for finding in out_of_bounds if not finding.path.endswith("_in_seconds")]
    if not wrong_sizes:
        # Only now: with a number that is out of bounds, counting might never end.
        wrong_sizes = [*_check_sizes(policy)]
        yield from wrong_sizes
    granularity = [*_check_granularity(policy)]
    yield from granularity
    if policy.graceful_shutdown_timeout_in_seconds == 0:
        yield Finding(
            path="elastic_policy.graceful_shutdown_timeout_in_seconds",
            problem="0 leaves no time for a checkpoint: each change of size would lose what came after the last one",
            remedy="leave it out, or use the seconds that a checkpoint takes",
        )
    wrong_sizes += granularity
    if not wrong_sizes:
        yield from _check_replicas(job)
        yield from _check_scale_config(job, kind)
    if kind is not None:
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
            path="namespace",
            problem=f"its queue would be {show(queue)}, and a label holds 63 characters",
            remedy="name the queue (queue_name), or use a shorter team name",
        )


def _check_granularity(policy: ElasticPolicy) -> Iterator[Finding]:
    path = "elastic_policy"
    if policy.replica_increment_step is not None and policy.replica_discrete_values:
        yield Finding(
            path=path,
            problem="has both replica_increment_step and replica_discrete_values",
            remedy="keep one: a step, or the sizes themselves",
        )
    if policy.replica_increment_step is None and not policy.replica_discrete_values:
        yield Finding(
            path=path,
            problem="has neither replica_increment_step nor replica_discrete_values",
            remedy="add one: a step such as 1, or the sizes such as 2,4,8",
        )


def _check_sizes(policy: ElasticPolicy) -> Iterator[Finding]:
    path = "elastic_policy"
    low, high, step = policy.min_replicas, policy.max_replicas, policy.replica_increment_step
    if low > high:
        yield Finding(
            path=f"{path}.min_replicas",
            problem=f"{low} is more than max_replicas, which is {high}",
            remedy="lower it, or raise max_replicas",
        )
    elif step is not None and (high - low) % step:
        reached = [*range(low, high, step)]
        shown = ", ".join(map(str, reached if len(reached) < 6 else [*reached[:3], "…", reached[-1]]))
        yield Finding(
            path=f"{path}.replica_increment_step",
            problem=f"from {low} in steps of {step} the job never reaches max_replicas, which is {high} ({shown})",
            remedy=f"use a step that divides {high - low}, or max_replicas {reached[-1]}",
        )
    yield from _check_values(policy.replica_discrete_values, low, high)


def _check_values(values: tuple[int, ...], low: int, high: int) -> Iterator[Finding]:
    path = "elastic_policy.replica_discrete_values"
    for value, count in Counter(values).items():
        if count > 1:
            yield Finding(path=path, problem=f"{show(value)} is there twice", remedy="name it once")
        if low <= high and not low <= value <= high:
            yield Finding(
                path=path,
                problem=f"{show(value)} is outside of min_replicas {low} and max_replicas {high}",
                remedy="leave it out, or move the bound",
            )
    if values and low <= high:
        for name, bound in (("min_replicas", low), ("max_replicas", high)):
            if bound not in values:
                inside = [value for value in values if low <= value <= high]
                nearest = (min(inside) if name == "min_replicas" else max(inside)) if inside else bound
                yield Finding(
                    path=path,
                    problem=f"{name} {bound} is not among them, so the job could never have that size",
                    remedy=f"add {bound}, or set {name} to {nearest}" if inside else f"add {bound}",
                )
            if low == high:
                break


def _check_replicas(job: ElasticJob) -> Iterator[Finding]:
    sizes = job.elastic_policy.sizes
    if job.replicas is not None and job.replicas not in sizes:
        listed = ", ".join(map(str, sizes if len(sizes) < 8 else [*sizes[:4], "…", sizes[-1]]))
        yield Finding(
            path="replicas",
            problem=f"the job cannot start with {job.replicas}: its sizes are {listed}",
            remedy="use one of them, or leave it out",
        )
    if job.base_priority_class_name is not None and len(sizes) == 1:
        yield Finding(
            path="base_priority_class_name",
            problem=f"the job has one size, {sizes[0]}, and so no replicas beyond its minimum",
            remedy="use priority_class_name",
        )


def _check_resources(job: ElasticJob, kind: InstanceType) -> Iterator[Finding]:
    node = allocatable(kind, threads_per_core=job.threads_per_core)
    for name, unit, wanted, there in (
        ("vcpus", "vCPUs", job.vcpus, node.millicpus / 1000),
        ("memory_gib", "GiB of host memory", job.memory_gib, node.memory_mib / 1024),
    ):
        if wanted is not None and wanted > there:
            yield Finding(
                path=name,
                problem=f"pods can have {there:g} {unit} of {kind.name}, got {wanted}: the job would wait for ever",
                remedy=f"leave it out for all that pods can have ({_whole_node(node)})",
            )


def _check_processes(job: ElasticJob, kind: InstanceType) -> Iterator[Finding]:
    """More processes than accelerators: two of them would have one device, which NCCL and Neuron refuse."""
    there = kind.neuron_cores or kind.accelerators
    if there and job.nproc_per_node is not None and job.nproc_per_node > there:
        yield Finding(
            path="nproc_per_node",
            problem=f"{kind.name} has {there} {'NeuronCores' if kind.neuron_cores else 'GPUs'}, got {job.nproc_per_node}",
            remedy="leave it out for a process each",
        )


def _check_quota(job: ElasticJob, hard: Mapping[str, str]) -> Iterator[Finding]:
    most = fits = job.elastic_policy.max_replicas
    short = []
    for name, text in {**replica_resources(job), "pods": "1"}.items():
        need = parse_quantity(text)
        amounts = {key: parse_quantity(hard.get(key, "")) for key in (f"requests.{name}", f"limits.{name}", name)}
        limits = {key: amount for key, amount in amounts.items() if amount is not None}
        key = min(limits, key=lambda key: limits[key], default="")
        if key and need and need * most > limits[key]:
            fits = min(fits, int(limits[key] / need))
            short.append(f"{name} {_amount(name, text, most)} of {hard[key]}")
    if short:
        yield Finding(
            path="elastic_policy.max_replicas",
            problem=f"{most} replicas are more than the team's quota holds ({', '.join(short)})",
            remedy=f"lower it to {fits} at most, or raise the quota" if fits else "raise the quota: not even one fits",
        )


def _check_container(job: ElasticJob) -> Iterator[Finding]:
    if job.command and (job.script is not None or job.script_args):
        yield Finding(path="command", problem="does not go with a script", remedy="keep one of them")
    elif job.script_args and job.script is None:
        yield Finding(path="script_args", problem="there is no script for them", remedy="add the script")
    for name, value in job.env.items():
        if not name.isidentifier() or not name.isascii():
            yield Finding(
                path=join("env", name),
                problem=f"{show(name)} is not a name for an environment variable",
                remedy="use letters, digits and underscores, no digit first",
            )
        elif name == COORDINATION and value != "distributed":
            yield Finding(
                path=join("env", name),
                problem=f"with {show(value)} the training script never hears of a change of size",
                remedy="remove it: it is set to distributed",
            )
    for index, claim in enumerate(job.claims):
        yield from field_findings(claim, f"claims[{index}]")
    reserved = ["/dev/shm", *([SCALE_CONFIG_FOLDER] if job.scale_config else [])]
    for path, count in Counter([*reserved, *(claim.mount_path for claim in job.claims)]).items():
        if count > 1:
            yield Finding(
                path="claims", problem=f"{count} volumes are mounted at {show(path)}", remedy="mount each elsewhere"
            )


def _check_scale_config(job: ElasticJob, kind: InstanceType | None) -> Iterator[Finding]:
    if not job.scale_config:
        return
    sizes = job.elastic_policy.sizes
    if job.elastic_policy.replica_increment_step is not None:
        yield Finding(
            path="scale_config",
            problem="goes with replica_discrete_values, and the policy has replica_increment_step",
            remedy=f"use replica_discrete_values {','.join(map(str, sizes[:20]))}{',…' if len(sizes) > 20 else ''}",
        )
    for size in sorted({*sizes} ^ {*job.scale_config}):
        yield Finding(
            path=f"scale_config[{size}]",
            problem="is missing" if size in sizes else f"the job never has {size} replicas",
            remedy="add it" if size in sizes else "remove it, or add the size",
        )
    batches = Counter(settings.train_batch_size for settings in job.scale_config.values())
    if len(batches) > 1:
        yield Finding(
            path="scale_config",
            problem=f"the global batch differs between sizes ({', '.join(map(str, sorted(batches)))})",
            remedy="use one train_batch_size at every size, so that the loss does not depend on the free capacity",
        )
    for size, settings in sorted(job.scale_config.items()):
        yield from field_findings(settings, f"scale_config[{size}]")
        if kind is not None and size in sizes:
            yield from _check_batch(settings, size * ranks_per_replica(job), f"scale_config[{size}]")


def _check_batch(settings: ScaleSettings, ranks: int, path: str) -> Iterator[Finding]:
    batch, uneven = settings.train_batch_size, settings.uneven_batch
    if batch < ranks:
        yield Finding(
            path=f"{path}.train_batch_size",
            problem=f"{batch} samples are too few for {ranks} ranks",
            remedy=f"use at least {ranks}, or fewer replicas",
        )
    elif uneven is not None:
        small = uneven.num_dp_groups_with_small_batch_size
        total = small * uneven.small_local_batch_size + (ranks - small) * uneven.large_local_batch_size
        if not 0 <= small <= ranks or total != batch:
            yield Finding(
                path=f"{path}.uneven_batch",
                problem=f"deals out {total} samples to {ranks} ranks, and the global batch is {batch}",
                remedy=f"leave it out: {batch} divides evenly"
                if batch % ranks == 0
                else f"give {ranks - batch % ranks} ranks {batch // ranks} samples and the others one more",
            )
    elif batch % ranks:
        yield Finding(
            path=f"{path}.train_batch_size",
            problem=f"{batch} samples cannot be dealt out evenly to {ranks} ranks",
            remedy=f"add uneven_batch: {ranks - batch % ranks} ranks with {batch // ranks} samples, the others one more",
        )
    elif settings.micro_train_batch_size and (batch // ranks) % settings.micro_train_batch_size:
        yield Finding(
            path=f"{path}.micro_train_batch_size",
            problem=f"{settings.micro_train_batch_size} does not divide a rank's {batch // ranks} samples",
            remedy=f"use one that divides {batch // ranks}",
        )


def _whole_node(node: Allocatable) -> str:
    return f"{cpu_quantity(node.millicpus)} vCPUs, {memory_quantity(node.memory_mib)}"


def _amount(name: str, text: str, replicas: int) -> str:
    """What so many replicas need, in the unit of one."""
    digits = text.rstrip("KMGTi" if name == "memory" else "m")
    return f"{int(digits) * replicas}{text[len(digits) :]}"
