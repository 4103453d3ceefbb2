"""HyperPodPyTorchJobs that shrink and grow: typed, checked as a whole, and rendered as manifests.

Sources: "Using elastic training in Amazon SageMaker HyperPod"
(https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-eks-elastic-training.html), the SDK's model of the resource
(https://github.com/aws/sagemaker-hyperpod-cli, hyperpod_pytorch_job_unified_config.py), and the recipes' chart and
scale_config (https://github.com/aws/sagemaker-hyperpod-recipes). The resource's own schema is not published.

A replica is a pod, and a pod has a node to itself: replicas, nodes and the recipes' `num_nodes` are the same number.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from .._fields import Pattern, Range
from .._structure import join, show
from ..errors import Finding
from ..instance_types import InstanceType, catalogue
from ._constraints import field_findings
from .allocatable import NEURON_CORE, NEURON_DEVICE, Allocatable, allocatable
from .manifests import Manifest, document
from .quantities import cpu_quantity, memory_quantity, parse_quantity
from .teams import Namespace, namespace_findings

__all__ = [
    "ClaimMount",
    "ElasticJob",
    "ElasticPolicy",
    "RunPolicy",
    "ScaleSettings",
    "UnevenBatch",
    "check_job",
    "even_scale_config",
    "job_manifests",
    "ranks_per_replica",
    "replica_resources",
    "uneven_batch",
]

Replicas = Annotated[int, Range(1, 6758)]
Seconds = Annotated[int, Range(0, 604800)]
Name = Annotated[
    str,
    Pattern(
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        "1 to 63 lower-case letters, digits and hyphens, no hyphen at either end",
        length=63,
    ),
]
ObjectName = Annotated[
    str,
    Pattern(
        r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
        "a Kubernetes name: lower-case letters, digits, hyphens and dots",
        length=253,
    ),
]

_COORDINATION = "HYPERPOD_SIGNAL_COORDINATION"
_SCALE_CONFIG_FOLDER = "/config"
_SCALE_CONFIG_FILE = "scale_config.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticPolicy:
    """How far a job may shrink and grow, and in which steps.

    The job saves a checkpoint and starts again at every change of size. The defaults of the three times are those of
    AWS's guide; what the operator does where a time is missing is not published, so none is ever left out.
    """

    min_replicas: Replicas
    """The fewest replicas that the job runs with. It waits where there is no room for them."""
    max_replicas: Replicas
    """The most. The operator asks for them all the time, which is what makes an autoscaler add nodes up to the team's
    quota."""
    replica_increment_step: Annotated[int, Range(1, 6758)] | None = None
    """Sizes are min_replicas, and so many more, up to max_replicas. Exactly one of this and the next."""
    replica_discrete_values: tuple[int, ...] = ()
    """The sizes themselves, such as (2, 4, 8), min_replicas and max_replicas among them."""
    scaling_timeout_in_seconds: Seconds = 60
    """How long the operator waits before it grows the job, so that capacity that comes and goes does not restart it
    each time."""
    graceful_shutdown_timeout_in_seconds: Seconds = 600
    """How long the job has to save its checkpoint and end at a change of size; then it is stopped, and what it did since
    its last checkpoint is lost."""
    faulty_scale_down_timeout_in_seconds: Seconds = 30
    """How long the operator tries to replace failed replicas before it goes on with fewer."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Every number of replicas that the job may run with, ascending. Meaningful once `check_job` finds nothing."""
        if self.replica_increment_step:
            return tuple(range(self.min_replicas, self.max_replicas + 1, self.replica_increment_step))
        return tuple(sorted(self.replica_discrete_values))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevenBatch:
    """A global batch that cannot be dealt out evenly: some ranks get one sample more. As in the recipes."""

    num_dp_groups_with_small_batch_size: int
    """How many ranks get the smaller local batch; all others get the larger."""
    small_local_batch_size: int
    """Samples of a step on those ranks."""
    large_local_batch_size: int
    """Samples of a step on all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSettings:
    """What differs at one size: an entry of the recipes' `scale_config`. Absent values are the recipe's own."""

    train_batch_size: Annotated[int, Range(1, 10**9)]
    """The global batch: samples of one optimizer step over all ranks. The same at every size, or the loss would depend on
    how much of the cluster was free."""
    micro_train_batch_size: Annotated[int, Range(1, 10**9)] | None = None
    """Samples that a rank takes at a time; gradients are accumulated up to its part of the global batch."""
    learning_rate: float | None = None
    """The learning rate at this size."""
    uneven_batch: UnevenBatch | None = None
    """How the global batch is dealt out where the ranks do not divide it. Absent: evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """What the operator does when pods fail and when the job is over."""

    clean_pod_policy: Literal["All", "None"] = "None"
    """Whether pods are deleted when the job is over. None keeps them, and with them `kubectl logs`."""
    job_max_retry_count: Annotated[int, Range(0, 10000)] | None = None
    """How often the job is started again after a failure. Absent: the operator's own number."""
    max_full_job_restarts: Annotated[int, Range(0, 10000)] | None = None
    """How many restarts of the whole job within `eval_period_seconds` are one too many. Absent: no such limit."""
    scale_up_snooze_time_in_seconds: Seconds | None = None
    """How long after a restart the job does not grow. Absent: 0."""
    eval_period_seconds: Annotated[int, Range(1, 604800)] = 3600
    """The time over which restarts are counted. Rendered only beside one of the two above."""
    ttl_seconds_after_finished: Annotated[int, Range(-1, 31536000)] | None = None
    """When the finished job is deleted; -1: never. Absent: the operator's own time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMount:
    """A PersistentVolumeClaim of the namespace, mounted in every replica."""

    claim_name: ObjectName
    """The claim, such as the one of the shared file system. A job waits until it exists."""
    mount_path: Annotated[
        str, Pattern(r"/[a-zA-Z0-9._-]+(/[a-zA-Z0-9._-]+)*", "an absolute path without a slash at its end")
    ]
    """Where the container sees it."""
    read_only: bool = False
    """True: the container cannot write there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """An elastic PyTorch training job. A replica gets a whole node of the type unless vcpus or memory_gib say less."""

    name: Name
    """The job's name, unique in its namespace."""
    namespace: Namespace
    """The team's namespace: hyperpod-ns-<team> under task governance."""
    image: str
    """The container image, with the elastic agent (PyPI: hyperpod-elastic-agent) in it."""
    instance_type: str
    """The nodes that it runs on, such as ml.p5.48xlarge: they carry it as a label, and the catalogue knows their size."""
    elastic_policy: ElasticPolicy
    """How far the job shrinks and grows."""
    replicas: Replicas | None = None
    """How many it starts with. Absent: min_replicas, so that it starts as soon as it can."""
    script: str | None = None
    """The training script, started by `hyperpodrun`. Absent: `command`, or else the image's own entry point, which must
    call hyperpodrun."""
    script_args: tuple[str, ...] = ()
    """The script's arguments."""
    command: tuple[str, ...] = ()
    """The container's command, in place of hyperpodrun and the script."""
    nproc_per_node: Annotated[int, Range(1, 512)] | None = None
    """Processes of a replica. Absent: one for each GPU or NeuronCore, or 1."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables. HYPERPOD_SIGNAL_COORDINATION=distributed is always there: without it
    elastic_event_detected() returns False for ever, and every change of size costs what came after the last checkpoint."""
    vcpus: Annotated[int, Range(1, 1024)] | None = None
    """vCPUs of a replica, as request and limit. Absent: all that pods can have of the node."""
    memory_gib: Annotated[int, Range(1, 65536)] | None = None
    """Host memory of a replica in GiB, as request and limit. Absent: all that pods can have of the node."""
    queue_name: Name | None = None
    """Kueue's local queue. Absent: <namespace>-localqueue in the namespaces of task governance, otherwise none, and the
    job does not go through Kueue."""
    workload_priority_class: ObjectName | None = None
    """Kueue's priority class for the job. Absent: the queue's default. A job of higher priority takes replicas from one of
    lower priority down to its minimum, or all of them."""
    priority_class_name: ObjectName | None = None
    """The PriorityClass of the pods. Absent: none, which is priority 0."""
    base_priority_class_name: ObjectName | None = None
    """Another PriorityClass, a higher one, for the first min_replicas pods: a preemption then takes what the job grew by,
    and never its minimum. Absent: all pods are equal, and a preemption may pause the job."""
    service_account_name: ObjectName | None = None
    """The pods' service account. Absent: the namespace's default."""
    claims: tuple[ClaimMount, ...] = ()
    """Shared file systems. An elastic job needs one: its checkpoint is read on other nodes than those that wrote it."""
    disruption_budget: bool = False
    """True: also a PodDisruptionBudget, so that evictions (draining, consolidation by Karpenter) stop at min_replicas. A
    drain then waits for the job where it is at its minimum. Kueue's preemptions and failing nodes ask no budget."""
    run_policy: RunPolicy = field(default_factory=RunPolicy)
    """What happens when pods fail and when the job is over."""
    scale_config: Mapping[int, ScaleSettings] = field(default_factory=dict)
    """Settings by size, in the recipes' form; needs replica_discrete_values with the same sizes. They become a ConfigMap,
    /config/scale_config.yaml in each replica. Absent: the script is the same at every size."""


def ranks_per_replica(job: ElasticJob) -> int:
    """Processes of one replica: a rank for each GPU or NeuronCore, unless the job says otherwise."""
    kind = catalogue()[job.instance_type]
    return job.nproc_per_node or kind.neuron_cores or kind.accelerators or 1


def replica_resources(job: ElasticJob) -> dict[str, str]:
    """What one replica requests, which is its limit too: a training step is as slow as its slowest rank, so no replica
    may depend on what its neighbours leave."""
    node = allocatable(catalogue()[job.instance_type])
    devices = {name: str(count) for name, count in node.devices.items() if name not in (NEURON_CORE, NEURON_DEVICE)}
    millicpus = node.millicpus if job.vcpus is None else job.vcpus * 1000
    memory_mib = node.memory_mib if job.memory_gib is None else job.memory_gib * 1024
    return {"cpu": cpu_quantity(millicpus), "memory": memory_quantity(memory_mib), **devices}


def uneven_batch(train_batch_size: int, ranks: int) -> UnevenBatch | None:
    """How a global batch is dealt out to ranks that do not divide it; None: they do."""
    small, more = divmod(train_batch_size, ranks)
    if not more:
        return None
    return UnevenBatch(
        num_dp_groups_with_small_batch_size=ranks - more, small_local_batch_size=small, large_local_batch_size=small + 1
    )


def even_scale_config(
    sizes: tuple[int, ...], *, train_batch_size: int, ranks: int, learning_rate: float | None = None
) -> dict[int, ScaleSettings]:
    """The same global batch and learning rate at every size, dealt out to `ranks` ranks per replica."""
    return {
        size: ScaleSettings(
            train_batch_size=train_batch_size,
            learning_rate=learning_rate,
            uneven_batch=uneven_batch(train_batch_size, size * ranks),
        )
        for size in sizes
    }


def job_manifests(job: ElasticJob) -> tuple[Manifest, ...]:
    """The job and what it needs, in the order in which they can be applied. Of a job that `check_job` accepts."""
    manifests = []
    if job.scale_config:
        manifests.append(_scale_config_map(job))
    manifests.append(_job(job))
    if job.disruption_budget:
        manifests.append(_disruption_budget(job))
    return tuple(manifests)


def check_job(job: ElasticJob, *, hard: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Everything for which the operator, Kubernetes or the elastic agent would refuse the job, or never run it.

    hard: the `spec.hard` of its team's ResourceQuota (`teams.quota_hard`). None: not known, not checked.
    """
    policy = job.elastic_policy
    yield from field_findings(job, "")
    yield from field_findings(job.run_policy, "run_policy")
    if not job.image.strip() or job.image != job.image.strip():
        yield Finding(path="image", problem=f"must be an image, got {show(job.image)}", remedy="name one")
    if not job.namespace.startswith("hyperpod-ns-"):
        yield from namespace_findings(job.namespace, "namespace")
    kind = catalogue().get(job.instance_type)
    if kind is None:
        close = difflib.get_close_matches(job.instance_type[:80], [*catalogue()], n=1)
        yield Finding(
            path="instance_type",
            problem=f"HyperPod has no instance type {show(job.instance_type)}",
            remedy=f"did you mean {close[0]}?" if close else "use one such as ml.p5.48xlarge or ml.trn1.32xlarge",
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
    wrong_sizes += granularity
    if not wrong_sizes:
        yield from _check_replicas(job)
        yield from _check_scale_config(job, kind)
    if kind is not None:
        yield from _check_resources(job, kind)
        if hard is not None and not wrong_sizes:
            yield from _check_quota(job, hard)
    yield from _check_container(job)


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
            yield Finding(path=path, problem=f"{show(value)} stands twice", remedy="name it once")
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
    for name, unit, wanted, there in (
        ("vcpus", "vCPUs", job.vcpus, kind.vcpus),
        ("memory_gib", "GiB of host memory", job.memory_gib, kind.memory_gib),
    ):
        if wanted is not None and wanted > there:
            yield Finding(
                path=name,
                problem=f"{kind.name} has {there:g} {unit}, got {wanted}",
                remedy=f"leave it out for all that pods can have ({_whole_node(allocatable(kind))})",
            )


def _check_quota(job: ElasticJob, hard: Mapping[str, str]) -> Iterator[Finding]:
    most = fits = job.elastic_policy.max_replicas
    short = []
    for name, text in replica_resources(job).items():
        need = parse_quantity(text)
        keys = [key for key in (f"requests.{name}", f"limits.{name}") if parse_quantity(hard.get(key, "")) is not None]
        limits = {key: parse_quantity(hard[key]) or 0 for key in keys}
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
        yield Finding(path="command", problem="is there beside a script", remedy="keep one of them")
    elif job.script_args and job.script is None:
        yield Finding(path="script_args", problem="there is no script for them", remedy="add the script")
    for name, value in job.env.items():
        if not name.isidentifier() or not name.isascii():
            yield Finding(
                path=join("env", name),
                problem=f"{show(name)} is no name of an environment variable",
                remedy="use letters, digits and underscores, no digit first",
            )
        elif name == _COORDINATION and value != "distributed":
            yield Finding(
                path=join("env", name),
                problem=f"with {show(value)} the training script never hears of a change of size",
                remedy="remove it: it is set to distributed",
            )
    for index, claim in enumerate(job.claims):
        yield from field_findings(claim, f"claims[{index}]")
    reserved = ["/dev/shm", *([_SCALE_CONFIG_FOLDER] if job.scale_config else [])]
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


def _job(job: ElasticJob) -> Manifest:
    policy = job.elastic_policy
    elastic: Manifest = {"minReplicas": policy.min_replicas, "maxReplicas": policy.max_replicas}
    if policy.replica_increment_step is not None:
        elastic["replicaIncrementStep"] = policy.replica_increment_step
    else:
        elastic["replicaDiscreteValues"] = [*policy.sizes]
    elastic |= {
        "scalingTimeoutInSeconds": policy.scaling_timeout_in_seconds,
        "gracefulShutdownTimeoutInSeconds": policy.graceful_shutdown_timeout_in_seconds,
        "faultyScaleDownTimeoutInSeconds": policy.faulty_scale_down_timeout_in_seconds,
    }
    return {
        "apiVersion": "sagemaker.amazonaws.com/v1",
        "kind": "HyperPodPyTorchJob",
        "metadata": {"name": job.name, "namespace": job.namespace, "labels": _labels(job)},
        "spec": {
            "nprocPerNode": str(ranks_per_replica(job)),
            "elasticPolicy": elastic,
            "replicaSpecs": _replica_specs(job),
            "runPolicy": _run_policy(job.run_policy),
        },
    }


def _replica_specs(job: ElasticJob) -> list[Manifest]:
    """One kind of replica; or two, a base of min_replicas that does not scale, and the rest at a lower priority."""
    policy, start = job.elastic_policy, _start(job)
    if job.base_priority_class_name is None:
        spec = _template(job, job.priority_class_name)
        return [{"name": "worker", "replicas": start, "maxReplicas": policy.max_replicas, "template": spec}]
    return [
        {
            "name": "base",
            "replicas": policy.min_replicas,
            "template": _template(job, job.base_priority_class_name),
        },
        {
            "name": "elastic",
            "replicas": start - policy.min_replicas,
            "maxReplicas": policy.max_replicas - policy.min_replicas,
            "template": _template(job, job.priority_class_name),
        },
    ]


def _template(job: ElasticJob, priority_class: str | None) -> Manifest:
    resources = replica_resources(job)
    mounts: list[Manifest] = [{"name": "shm", "mountPath": "/dev/shm"}]
    # Data loaders share memory; a container's own /dev/shm has 64 MiB. What is in it counts against the memory limit.
    volumes: list[Manifest] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    if job.scale_config:
        mounts.append({"name": "scale-config", "mountPath": _SCALE_CONFIG_FOLDER, "readOnly": True})
        volumes.append({"name": "scale-config", "configMap": {"name": _scale_config_name(job)}})
    for index, claim in enumerate(job.claims):
        mounts.append({"name": f"claim-{index}", "mountPath": claim.mount_path})
        mounts[-1] |= {"readOnly": True} if claim.read_only else {}
        volumes.append({"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": claim.claim_name}})
    container: Manifest = {"name": "pytorch", "image": job.image}
    container |= _command(job)
    container |= {
        "env": [{"name": name, "value": value} for name, value in _environment(job).items()],
        "resources": {"requests": resources, "limits": resources},
        "volumeMounts": mounts,
    }
    pod: Manifest = {"nodeSelector": {"node.kubernetes.io/instance-type": job.instance_type}}
    if priority_class is not None:
        pod["priorityClassName"] = priority_class
    if job.service_account_name is not None:
        pod["serviceAccountName"] = job.service_account_name
    # The SDK's model wants a name in the template's metadata; pods get names of their own.
    metadata = {"name": job.name, "labels": _labels(job)}
    return {"metadata": metadata, "spec": pod | {"containers": [container], "volumes": volumes}}


def _command(job: ElasticJob) -> Manifest:
    if job.command:
        return {"command": [*job.command]}
    if job.script is None:
        return {}
    # The agent asserts that --nnodes is one number; the operator tells it the real one at every start.
    launch = [f"--nnodes={_start(job)}", f"--nproc-per-node={ranks_per_replica(job)}", "--rdzv-backend=hyperpod"]
    return {"command": ["hyperpodrun"], "args": [*launch, job.script, *job.script_args]}


def _environment(job: ElasticJob) -> dict[str, str]:
    environment = {_COORDINATION: "distributed"}
    if job.scale_config:
        environment["SCALE_CONFIG"] = f"{_SCALE_CONFIG_FOLDER}/{_SCALE_CONFIG_FILE}"
    return environment | dict(job.env)


def _labels(job: ElasticJob) -> dict[str, str]:
    """On the job and, as the SDK does it, on its pods. The first is what the disruption budget selects by."""
    labels = {"app.kubernetes.io/instance": job.name}
    queue = job.queue_name
    if queue is None and job.namespace.startswith("hyperpod-ns-"):
        queue = f"{job.namespace}-localqueue"
    if queue is not None:
        labels["kueue.x-k8s.io/queue-name"] = queue
    if job.workload_priority_class is not None:
        labels["kueue.x-k8s.io/priority-class"] = job.workload_priority_class
    return labels


def _run_policy(policy: RunPolicy) -> Manifest:
    rendered: Manifest = {"cleanPodPolicy": policy.clean_pod_policy}
    if policy.job_max_retry_count is not None:
        rendered["jobMaxRetryCount"] = policy.job_max_retry_count
    restart: dict[str, int | None] = {
        "maxFullJobRestarts": policy.max_full_job_restarts,
        "scaleUpSnoozeTimeInSeconds": policy.scale_up_snooze_time_in_seconds,
    }
    given = {name: value for name, value in restart.items() if value is not None}
    if given:
        rendered["restartPolicy"] = {"evalPeriodSeconds": policy.eval_period_seconds, **given}
    if policy.ttl_seconds_after_finished is not None:
        rendered["ttlSecondsAfterFinished"] = policy.ttl_seconds_after_finished
    return rendered


def _disruption_budget(job: ElasticJob) -> Manifest:
    """minAvailable as a number: for pods of a custom resource, Kubernetes takes no percentage and no maxUnavailable."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": job.name, "namespace": job.namespace, "labels": {"app.kubernetes.io/instance": job.name}},
        "spec": {
            "minAvailable": job.elastic_policy.min_replicas,
            "selector": {"matchLabels": {"app.kubernetes.io/instance": job.name}},
        },
    }


def _scale_config_map(job: ElasticJob) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _scale_config_name(job),
            "namespace": job.namespace,
            "labels": {"app.kubernetes.io/instance": job.name},
        },
        "data": {
            _SCALE_CONFIG_FILE: document(
                {"scale_config": {size: _recipe(size, job.scale_config[size]) for size in sorted(job.scale_config)}}
            )
        },
    }


def _recipe(size: int, settings: ScaleSettings) -> Manifest:
    """One size in the recipes' form: a part of a recipe, by which the base recipe is updated."""
    arguments: dict[str, Any] = {"train_batch_size": settings.train_batch_size}
    if settings.micro_train_batch_size is not None:
        arguments["micro_train_batch_size"] = settings.micro_train_batch_size
    if settings.learning_rate is not None:
        arguments["learning_rate"] = settings.learning_rate
    if (uneven := settings.uneven_batch) is not None:
        arguments["uneven_batch"] = {
            "use_uneven_batch": True,
            "num_dp_groups_with_small_batch_size": uneven.num_dp_groups_with_small_batch_size,
            "small_local_batch_size": uneven.small_local_batch_size,
            "large_local_batch_size": uneven.large_local_batch_size,
        }
    return {"trainer": {"num_nodes": size}, "training_config": {"training_args": arguments}}


def _scale_config_name(job: ElasticJob) -> str:
    return f"{job.name}-scale-config"


def _start(job: ElasticJob) -> int:
    return job.elastic_policy.min_replicas if job.replicas is None else job.replicas
