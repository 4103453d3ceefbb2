"""HyperPodPyTorchJobs that shrink and grow, as values; `rules/jobs.py` validates them, `kubernetes/jobs.py` renders them.

Sources: "Using elastic training in Amazon SageMaker HyperPod"
(https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-eks-elastic-training.html), the SDK's model of the resource
(https://github.com/aws/sagemaker-hyperpod-cli, hyperpod_pytorch_job_unified_config.py), and the recipes' chart and
scale_config (https://github.com/aws/sagemaker-hyperpod-recipes). The resource's own schema is not published.

A replica is a pod, and a pod has a node to itself: replicas, nodes and the recipes' `num_nodes` are the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .._lambda.hyperpod.common.drain_protocol import MAX_NODES
from ..typed.bounds import PATH_SEGMENT, Pattern, Range
from .patterns import Namespace

Replicas = Annotated[int, Range(1, MAX_NODES)]
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
LabelValue = Annotated[
    str,
    Pattern(
        r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?",
        "1 to 63 lower-case letters, digits, hyphens and dots, a letter or digit at either end",
        length=63,
    ),
]


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
    replica_increment_step: Annotated[int, Range(1, MAX_NODES)] | None = None
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
    mount_path: Annotated[str, Pattern(rf"(/{PATH_SEGMENT})+", "an absolute path without a slash at its end")]
    """Where the container sees it."""
    read_only: bool = False
    """True: the container cannot write there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A taint of nodes that a job may run on all the same. As in `Taint` of an instance group."""

    key: str
    """The taint's key."""
    effect: Literal["no_schedule", "prefer_no_schedule", "no_execute"]
    """What the taint does to pods that do not tolerate it."""
    value: str | None = None
    """The taint's value. Absent: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """A PyTorch training job; elastic where it may have several sizes. A replica gets a whole node of the type unless vcpus or memory_gib say less."""

    name: Name
    """The job's name, unique in its namespace."""
    namespace: Namespace
    """The team's namespace: hyperpod-ns-<team> under task governance."""
    image: str
    """The container image, with the elastic agent (PyPI: hyperpod-elastic-agent) in it."""
    instance_type: str
    """The nodes that it runs on, such as ml.p5.48xlarge: they carry it as a label, and the catalogue knows their size."""
    elastic_policy: ElasticPolicy
    """How far the job shrinks and grows. With one size it is an ordinary job, which the operator never resizes."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes that it runs on, besides their type: those of an instance group, and its zone, which EFA does not
    cross. (No affinity between the pods does that: AWS's SDK cannot read a job that has one, and `hyp list` lists none of
    the team's jobs then.) Absent: any node of the type."""
    tolerations: tuple[Toleration, ...] = ()
    """The taints of the nodes that it runs on. Absent: it waits for nodes without any."""
    threads_per_core: Annotated[int, Range(1, 2)] | None = None
    """That of the nodes' group: with 1 they have half the vCPUs. Absent: what the type does."""
    neuron_resource: Literal["neuron", "neurondevice"] | None = None
    """By which name it requests Trainium chips; both count the same ones. Kueue admits only what its queue covers, and AWS's
    SDK and recipes request neurondevice, so that is what a job that goes through Kueue requests where this is absent.
    Otherwise neuron, which every version of the device plug-in has."""
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
    queue_name: LabelValue | None = None
    """Kueue's local queue. Absent: <namespace>-localqueue in the namespaces of task governance, otherwise none, and the
    job does not go through Kueue."""
    workload_priority_class: LabelValue | None = None
    """Kueue's priority class for the job; under task governance the name of a `TaskClass` with -priority behind it, such as
    training-priority. Absent: the queue's default. A job of higher priority takes replicas from one of
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
