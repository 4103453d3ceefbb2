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

from .._lambda.hyperpod.kernel.drain_protocol import MAX_NODES
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


TopologyLabel = Literal[
    "topology.k8s.aws/ultraserver-id",
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
]
"""Labels of HyperPod's nodes that say how near they are (AWS's SDK, `ALLOWED_TOPOLOGY_LABELS`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticPolicy:
    """How far a job may shrink and grow, and in which steps.

    The job saves a checkpoint and restarts at every change of size. The defaults of the three times are those of AWS's
    guide. What the operator does if a time is missing is not published, so all three are always rendered.
    """

    min_replicas: Replicas
    """The fewest replicas that the job runs with. The job waits until they fit."""
    max_replicas: Replicas
    """The most. The operator always requests them, so an autoscaler adds nodes up to the team's quota."""
    replica_increment_step: Annotated[int, Range(1, MAX_NODES)] | None = None
    """Sizes are min_replicas, then this many more each time, up to max_replicas. Set exactly one of this and
    replica_discrete_values."""
    replica_discrete_values: tuple[int, ...] = ()
    """The sizes themselves, such as (2, 4, 8). They include min_replicas and max_replicas."""
    scaling_timeout_in_seconds: Seconds = 60
    """How long the operator waits before it grows the job, so that capacity that is free only briefly does not restart it."""
    graceful_shutdown_timeout_in_seconds: Seconds = 600
    """How long the job has to save its checkpoint and end at a change of size. After that it is stopped, and its
    progress since the last checkpoint is lost."""
    faulty_scale_down_timeout_in_seconds: Seconds = 30
    """How long the operator tries to replace failed replicas before it continues with fewer."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Every number of replicas that the job may run with, ascending. Correct only if `check_job` finds nothing."""
        if self.replica_increment_step:
            return tuple(range(self.min_replicas, self.max_replicas + 1, self.replica_increment_step))
        return tuple(sorted(self.replica_discrete_values))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevenBatch:
    """A global batch that cannot be distributed evenly: some ranks get one sample more. As in the recipes."""

    num_dp_groups_with_small_batch_size: int
    """How many ranks get the smaller local batch. All others get the larger one."""
    small_local_batch_size: int
    """Samples of a step on each of those ranks."""
    large_local_batch_size: int
    """Samples of a step on each of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSettings:
    """The settings of one size: an entry of the recipes' `scale_config`. Absent values are the recipe's own."""

    train_batch_size: Annotated[int, Range(1, 10**9)]
    """The global batch: samples of one optimizer step over all ranks. It must be the same at every size, so that the
    loss does not depend on the free capacity."""
    micro_train_batch_size: Annotated[int, Range(1, 10**9)] | None = None
    """Samples that a rank processes at a time. Gradients are accumulated up to its part of the global batch."""
    learning_rate: float | None = None
    """The learning rate at this size."""
    uneven_batch: UnevenBatch | None = None
    """How the global batch is distributed if the number of ranks does not divide it. Absent: evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMonitoring:
    """A rule by which the operator finds a job that hangs or is slow, from its log. It then restarts the job."""

    name: Name
    """The rule's name, unique in the job."""
    log_pattern: str
    """A regular expression of the lines that show progress. With one group, the group is a number that is compared."""
    expected_start_cut_off_in_seconds: Annotated[int, Range(1, 604800)] | None = None
    """The job hangs if the first such line takes longer. Absent: no limit."""
    expected_recurring_frequency_in_seconds: Annotated[int, Range(1, 604800)] | None = None
    """The job hangs if the next such line takes longer. Absent: no limit."""
    metric_threshold: Annotated[int, Range(0, 10**9)] | None = None
    """The number with which the group is compared. Absent: nothing is compared."""
    operator: Literal["gt", "lt", "eq", "gteq", "lteq"] | None = None
    """The comparison that makes the job slow, such as lt: less than the threshold. Absent: nothing is compared."""
    metric_evaluation_data_points: Annotated[int, Range(1, 10000)] | None = None
    """How many times in a row the job must be slow. Absent: once."""
    stop_pattern: str | None = None
    """A regular expression of the line after which the rule ends. Absent: it never ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """What the operator does when pods fail and when the job has ended."""

    clean_pod_policy: Literal["All", "None"] = "None"
    """Whether pods are deleted when the job has ended. None keeps them, and with them `kubectl logs`."""
    job_max_retry_count: Annotated[int, Range(0, 10000)] | None = None
    """How often the job is restarted after a failure. Absent: the operator's default."""
    max_full_job_restarts: Annotated[int, Range(0, 10000)] | None = None
    """How many restarts of the whole job within `eval_period_seconds` are one too many. Absent: no limit."""
    scale_up_snooze_time_in_seconds: Seconds | None = None
    """How long after a restart the job does not grow. Absent: 0."""
    eval_period_seconds: Annotated[int, Range(1, 604800)] = 3600
    """The time over which restarts are counted. Rendered only if one of the two settings above is set."""
    ttl_seconds_after_finished: Annotated[int, Range(-1, 31536000)] | None = None
    """How long after its end the job is deleted; -1: never. Absent: the operator's default."""
    log_monitoring: tuple[LogMonitoring, ...] = ()
    """Rules by which the operator restarts a job that hangs or is slow. Absent: it does not look at the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMount:
    """A PersistentVolumeClaim of the namespace, mounted in every replica."""

    claim_name: ObjectName
    """The claim, such as that of the shared file system. A job waits until it exists."""
    mount_path: Annotated[str, Pattern(rf"(/{PATH_SEGMENT})+", "an absolute path without a slash at its end")]
    """Its path in the container."""
    read_only: bool = False
    """True: the container cannot write there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A taint of nodes that the job tolerates. As in `Taint` of an instance group."""

    key: str
    """The taint's key."""
    effect: Literal["no_schedule", "prefer_no_schedule", "no_execute"]
    """What the taint does to pods that do not tolerate it."""
    value: str | None = None
    """The taint's value. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """A PyTorch training job, which is elastic if it has several sizes. A replica gets a whole node of the type unless
    vcpus or memory_gib request less."""

    name: Name
    """The job's name, unique in its namespace."""
    namespace: Namespace
    """The team's namespace: hyperpod-ns-<team> under task governance."""
    image: str
    """The container image, which must contain the elastic agent (PyPI: hyperpod-elastic-agent)."""
    instance_type: str
    """The type of its nodes, such as ml.p5.48xlarge. Nodes have it as a label, and the catalogue has its size."""
    lists_extended: bool = False
    """Whether the device plug-ins run on every type of the cluster file, as they do if this library installs HyperPod's
    chart. False: they run on the types that AWS's chart lists, and a job requests no device that its nodes do not offer."""
    elastic_policy: ElasticPolicy
    """How far the job shrinks and grows. A job with one size is an ordinary job, which the operator never resizes."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of its nodes besides their type: those of an instance group, and its zone, since EFA does not cross zones.
    (An affinity between the pods cannot replace it: AWS's SDK cannot read a job that has one, and `hyp list` then lists
    none of the team's jobs.) Absent: any node of the type."""
    tolerations: tuple[Toleration, ...] = ()
    """The taints of its nodes. Absent: it waits for nodes without taints."""
    threads_per_core: Annotated[int, Range(1, 2)] | None = None
    """Threads per core of the nodes' group: with 1 they have half the vCPUs. Absent: the default of the type."""
    neuron_resource: Literal["neuron", "neurondevice"] | None = None
    """The resource name by which it requests Trainium chips. Both names count the same chips. Kueue admits only what
    its queue covers, and AWS's SDK and recipes request neurondevice, so absent means neurondevice for a job that goes
    through Kueue. Otherwise it means neuron, which every version of the device plug-in has."""
    replicas: Replicas | None = None
    """How many replicas it starts with. Absent: min_replicas, so that it starts as soon as possible."""
    script: str | None = None
    """The training script, started by `hyperpodrun`. Absent: `command`, or else the image's own entry point, which must
    call hyperpodrun."""
    script_args: tuple[str, ...] = ()
    """The script's arguments."""
    command: tuple[str, ...] = ()
    """The container's command, in place of hyperpodrun and the script."""
    nproc_per_node: Annotated[int, Range(1, 512)] | None = None
    """Processes of a replica. Absent: one for each GPU or NeuronCore, or 1 if the node has none."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables. HYPERPOD_SIGNAL_COORDINATION=distributed is always set: without it
    elastic_event_detected() always returns False, and every change of size loses the progress since the last
    checkpoint."""
    vcpus: Annotated[int, Range(1, 1024)] | None = None
    """vCPUs of a replica, as request and limit. Absent: all that pods can have of the node."""
    memory_gib: Annotated[int, Range(1, 65536)] | None = None
    """Host memory of a replica in GiB, as request and limit. Absent: all that pods can have of the node."""
    queue_name: LabelValue | None = None
    """Kueue's local queue. Absent: <namespace>-localqueue in the namespaces of task governance. Elsewhere there is no
    queue, and the job does not go through Kueue."""
    workload_priority_class: LabelValue | None = None
    """Kueue's priority class of the job. Under task governance it is the name of a `TaskClass` with the suffix
    -priority, such as training-priority. Absent: the queue's default. A job of higher priority preempts replicas of one
    of lower priority down to its minimum, or all of them."""
    priority_class_name: ObjectName | None = None
    """The PriorityClass of the pods. Absent: none, which is priority 0."""
    base_priority_class_name: ObjectName | None = None
    """Another, higher PriorityClass for the first min_replicas pods. A preemption then ends only the additional pods,
    and never the minimum. Absent: all pods are equal, and a preemption may pause the job."""
    required_topology: TopologyLabel | None = None
    """Kueue places all pods on nodes with the same value of this label, and the job waits until they fit. It needs a
    queue. Absent: anywhere."""
    preferred_topology: TopologyLabel | None = None
    """The same if they fit, otherwise anywhere. Absent: anywhere."""
    spares: Annotated[int, Range(0, MAX_NODES)] = 0
    """How many pods' resources the job also requests, so that a failed one is replaced at once. Only a job of one size
    has them. They count in the quota."""
    deep_health_check_passed: bool = False
    """True: only nodes that passed HyperPod's deep health checks. The job waits if there are none, as in a group
    without `on_start_deep_health_checks`."""
    termination_grace_period_seconds: Annotated[int, Range(30, 86400)] | None = None
    """How long a pod that is evicted, preempted or deleted has to save a checkpoint, from SIGTERM to SIGKILL.
    `hyperpodrun` gives the training processes 15 s less. Absent: 600 for a job of more than one node, otherwise
    Kubernetes' 30, of which the processes have 15. A process that does not handle SIGTERM ends at once."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When a node pulls the image. Absent: Kubernetes' default, Always for the tag latest, otherwise IfNotPresent."""
    service_account_name: ObjectName | None = None
    """The pods' service account. Absent: the namespace's default."""
    claims: tuple[ClaimMount, ...] = ()
    """Shared file systems. An elastic job requires one, because its checkpoint is read on other nodes than those that
    wrote it."""
    disruption_budget: bool = False
    """True: also create a PodDisruptionBudget, so that evictions (draining, consolidation by Karpenter) stop at
    min_replicas. A drain then waits for a job that is at its minimum. The budget does not limit Kueue's preemptions and
    failing nodes."""
    run_policy: RunPolicy = field(default_factory=RunPolicy)
    """What happens when pods fail and when the job has ended."""
    scale_config: Mapping[int, ScaleSettings] = field(default_factory=dict)
    """Settings by size, in the recipes' form. Requires replica_discrete_values with the same sizes. They become a
    ConfigMap, /config/scale_config.yaml in each replica. Absent: the script is the same at every size."""
