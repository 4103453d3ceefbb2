"""One replica of a job: its processes, its requests, its queue, and its part of a batch at each size."""

from __future__ import annotations

from ..config.jobs import ElasticJob, ScaleSettings, UnevenBatch
from ..facts.instance_types import catalogue
from .allocatable import NEURON, NEURON_CORE, NEURON_DEVICE, allocatable, offered_devices
from .quantities import cpu_quantity, memory_quantity

ZONE_LABELS = ("topology.kubernetes.io/zone", "topology.k8s.aws/zone-id")
"""Labels of a node: its zone, by name and by id."""
COORDINATION = "HYPERPOD_SIGNAL_COORDINATION"
"""The environment variable that makes the elastic agent signal the training script."""
_GRACE_PERIOD_S = 600
_FOR_THE_AGENT_S = 15
SCALE_CONFIG_FOLDER = "/config"
"""The folder with a replica's settings by size."""


def ranks_per_replica(job: ElasticJob) -> int:
    """Processes of one replica: a rank for each GPU or NeuronCore, unless the job says otherwise."""
    kind = catalogue()[job.instance_type]
    return job.nproc_per_node or kind.neuron_cores or kind.accelerators or 1


def replica_resources(job: ElasticJob) -> dict[str, str]:
    """The requests of one replica, which are its limits too.

    A training step is as slow as its slowest rank, so no replica may depend on what its neighbours leave.
    """
    node = allocatable(catalogue()[job.instance_type], threads_per_core=job.threads_per_core)
    millicpus = node.millicpus if job.vcpus is None else job.vcpus * 1000
    memory_mib = node.memory_mib if job.memory_gib is None else job.memory_gib * 1024
    return {"cpu": cpu_quantity(millicpus), "memory": memory_quantity(memory_mib), **_devices(job)}


def _devices(job: ElasticJob) -> dict[str, str]:
    """All devices that the node offers. Of the three names for Neuron chips, one is requested."""
    unused = {NEURON, NEURON_CORE, NEURON_DEVICE} - {_neuron_name(job)}
    offered = offered_devices(catalogue()[job.instance_type], lists_extended=job.lists_extended)
    return {name: str(count) for name, count in offered.items() if name not in unused}


def _neuron_name(job: ElasticJob) -> str:
    """Kubernetes' name for Neuron chips. Absent in the job: `neurondevice` in a queue of Kueue, otherwise `neuron`."""
    default = "neuron" if queue_of(job) is None else "neurondevice"
    return NEURON if (job.neuron_resource or default) == "neuron" else NEURON_DEVICE


def uneven_batch(train_batch_size: int, ranks: int) -> UnevenBatch | None:
    """The division of a global batch among ranks that do not divide it evenly. None: they do."""
    small, more = divmod(train_batch_size, ranks)
    if not more:
        return None
    return UnevenBatch(
        num_dp_groups_with_small_batch_size=ranks - more, small_local_batch_size=small, large_local_batch_size=small + 1
    )


def even_scale_config(
    sizes: tuple[int, ...], *, train_batch_size: int, ranks: int, learning_rate: float | None = None
) -> dict[int, ScaleSettings]:
    """The same global batch and learning rate at every size, for `ranks` ranks per replica."""
    return {
        size: ScaleSettings(
            train_batch_size=train_batch_size,
            learning_rate=learning_rate,
            uneven_batch=uneven_batch(train_batch_size, size * ranks),
        )
        for size in sizes
    }


def queue_of(job: ElasticJob) -> str | None:
    """Kueue's local queue of the job. None: it does not use Kueue."""
    if job.queue_name is None and job.namespace.startswith("hyperpod-ns-"):
        return f"{job.namespace}-localqueue"
    return job.queue_name


def grace_period(job: ElasticJob) -> int | None:
    """Seconds from a pod's SIGTERM to its SIGKILL. None: Kubernetes' default."""
    if job.termination_grace_period_seconds is not None:
        return job.termination_grace_period_seconds
    return _GRACE_PERIOD_S if job.elastic_policy.max_replicas > 1 else None


def shutdown_timeout(job: ElasticJob) -> int | None:
    """The part of it that `hyperpodrun` gives the training processes. None: its default, 15 s.

    The rest is for the agent itself, as with the defaults of both: 15 of 30 s.
    """
    seconds = grace_period(job)
    return None if seconds is None else seconds - _FOR_THE_AGENT_S


def first_size(job: ElasticJob) -> int:
    """The replicas that the job starts with."""
    return job.elastic_policy.min_replicas if job.replicas is None else job.replicas
