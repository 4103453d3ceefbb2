"""`cdk-hyperpod job render`: write a training job as YAML, elastic or of one size, or list everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args

import rich_click as click

from ...config.cluster import ClusterConfig
from ...config.jobs import ElasticPolicy, TopologyLabel
from ...errors import Finding, raise_errors
from ...kubernetes.jobs import job_manifests
from ...kubernetes.manifests import to_yaml
from ...loader import load_config
from ...rules.jobs import check_job
from ..tables import complain, say_document
from .elastic_job import elastic_job, hard_quota
from .option_checks import (
    check_batch_and_quota,
    check_elastic_training,
    check_group,
    check_health,
    check_log_options,
    check_sizes,
    check_team,
    check_zone,
)
from .option_names import with_option_names

__all__ = ["job"]

_DESCRIPTION = """\
Write a HyperPodPyTorchJob as YAML to standard output: of one size (--nodes), or
elastic, which grows and shrinks between two sizes. Nothing is sent to a cluster.
If the training operator, Kubernetes or the team's quota would refuse the job, all
reasons are listed at once.

Each replica is a pod that fills a node; its requests come from the instance type.
An elastic job runs with at least --min-replicas. If there is room, it grows towards
--max-replicas, by --replica-increment-step or to one of --replica-discrete-values.
At each change of size the training script is notified (elastic_event_detected),
saves a checkpoint, and is restarted with the new number of ranks.

Exit code 0: written. 1: the job would be refused, or the cluster file has errors.
"""

_EXAMPLES = """\
\b
Examples:
  2, 4, 6 or 8 nodes:
    cdk-hyperpod job render --name llama --namespace research \\
      --image ACCOUNT.dkr.ecr.REGION.amazonaws.com/train:1 \\
      --instance-type ml.p5.48xlarge --min-replicas 2 --max-replicas 8 \\
      --replica-increment-step 2 --claim fsx=/fsx --quota-nodes 8 \\
      -- train.py --checkpoint-dir /fsx/llama | kubectl apply -f -
  4 nodes of a group of the cluster file, with its taints, labels and zone:
    cdk-hyperpod job render … --config cluster.yaml --group p5 --nodes 4 \\
      -- train.py
  2, 4 or 8 nodes, always 128 samples a step; the first 2 nodes are never
  preempted:
    cdk-hyperpod job render … --min-replicas 2 --max-replicas 8 \\
      --replica-discrete-values 2,4,8 --train-batch-size 128 \\
      --priority-class low --base-priority-class high
"""


def _whole_numbers(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, ...]:
    try:
        return () if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"must be whole numbers with commas between them, such as 2,4,8, got {text!r}"
        ) from None


def _pairs(form: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], list[tuple[str, str]]]:
    """Reads values of this form, which has an equals sign."""

    def read(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> list[tuple[str, str]]:
        for text in texts:
            if "=" not in text:
                raise click.BadParameter(f"must be {form}, got {text!r}")
        return [(text.partition("=")[0], text.partition("=")[2]) for text in texts]

    return read


_TIMES = ElasticPolicy(min_replicas=1, max_replicas=1)


@click.group(no_args_is_help=False)
def job() -> None:
    """Write training jobs, elastic or of one size.

    Example:
        cdk-hyperpod job render --help

    The YAML is printed. Nothing is sent to a cluster.
    """


@job.command(help=f"{_DESCRIPTION}\n{_EXAMPLES}", short_help="write a HyperPodPyTorchJob as YAML")
@click.option("--name", required=True, panel="The job", help="Its name, unique in the namespace.")
@click.option("--namespace", required=True, panel="The job", help="The team's; hyperpod-ns-TEAM under task governance.")
@click.option("--image", required=True, panel="The job", help="Container image that has hyperpod-elastic-agent.")
@click.option(
    "--instance-type", metavar="TYPE", panel="The job", help="Such as ml.p5.48xlarge; default: that of --group."
)
@click.option(
    "--group",
    metavar="NAME",
    panel="The job",
    help="Instance group of --config. The job uses its type, labels, zone and threads per core, and tolerates its taints.",
)
@click.option(
    "--zone",
    metavar="ZONE",
    panel="The job",
    help="Zone of the job, a name or an id, since EFA does not cross zones; default: that of --group.",
)
@click.option(
    "--config",
    type=click.Path(),
    metavar="PATH",
    panel="The job",
    help="The cluster file. The job is checked against the team of --namespace (quota, PriorityClasses, service account); default with --group: cluster.yaml.",
)
@click.argument("script", nargs=-1, metavar="[-- SCRIPT [ARG]…]")
@click.option(
    "--env",
    multiple=True,
    callback=_pairs("NAME=VALUE"),
    metavar="NAME=VALUE",
    panel="The job",
    help="Environment variable. Can be repeated.",
)
@click.option(
    "--claim",
    multiple=True,
    callback=_pairs("CLAIM=/PATH"),
    metavar="CLAIM=/PATH",
    panel="The job",
    help="Mount a PersistentVolumeClaim. Checkpoints need a shared one. Can be repeated.",
)
@click.option(
    "--image-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    panel="The job",
    help="When a node pulls the image; default: Kubernetes'.",
)
@click.option("--service-account", metavar="NAME", panel="The job", help="Default: the namespace's default.")
@click.option(
    "--nodes",
    type=int,
    metavar="N",
    panel="Sizes, in nodes",
    help="Ordinary job of N nodes, instead of the elastic sizes.",
)
@click.option(
    "--min-replicas",
    type=int,
    metavar="N",
    panel="Sizes, in nodes",
    help="Smallest size; the job waits until it has it.",
)
@click.option(
    "--max-replicas",
    type=int,
    metavar="N",
    panel="Sizes, in nodes",
    help="Largest size; the job grows to it if there is room.",
)
@click.option(
    "--replica-increment-step",
    type=int,
    metavar="N",
    panel="Sizes, in nodes",
    help="Grow and shrink by N. Use this or --replica-discrete-values.",
)
@click.option(
    "--replica-discrete-values",
    callback=_whole_numbers,
    metavar="N,N,…",
    panel="Sizes, in nodes",
    help="Allow only these sizes, such as 2,4,8.",
)
@click.option(
    "--replicas",
    type=int,
    metavar="N",
    panel="Sizes, in nodes",
    help="Size at the start; default: --min-replicas.",
)
@click.option(
    "--quota-nodes",
    type=int,
    metavar="N",
    panel="Sizes, in nodes",
    help="The team's quota in nodes of this type. A larger --max-replicas is refused, as by Kubernetes.",
)
@click.option(
    "--vcpus", type=int, metavar="N", panel="What a replica has of its node", help="Default: all that pods can get."
)
@click.option(
    "--memory-gib",
    type=int,
    metavar="N",
    panel="What a replica has of its node",
    help="Host memory; default: all that pods can get.",
)
@click.option(
    "--neuron-resource",
    type=click.Choice(["neuron", "neurondevice"]),
    panel="What a replica has of its node",
    help="Resource name of Trainium chips; default: neurondevice with a queue, otherwise neuron.",
)
@click.option(
    "--nproc-per-node",
    type=int,
    metavar="N",
    panel="What a replica has of its node",
    help="Processes per node; default: one for each GPU or NeuronCore.",
)
@click.option(
    "--deep-health-check-passed",
    is_flag=True,
    panel="What a replica has of its node",
    help="Only nodes that passed HyperPod's deep health checks.",
)
@click.option(
    "--termination-grace-period",
    type=int,
    metavar="SECONDS",
    panel="Times, in seconds",
    help="Time for a checkpoint when a pod is evicted or preempted, for the pod and hyperpodrun; default: 600 for more than one node, otherwise 30.",
)
@click.option(
    "--scaling-timeout",
    default=_TIMES.scaling_timeout_in_seconds,
    metavar="SECONDS",
    panel="Times, in seconds",
    help="Wait before the job grows; default: 60.",
)
@click.option(
    "--graceful-shutdown-timeout",
    default=_TIMES.graceful_shutdown_timeout_in_seconds,
    metavar="SECONDS",
    panel="Times, in seconds",
    help="Time for the checkpoint at a change of size; default: 600.",
)
@click.option(
    "--faulty-scale-down-timeout",
    default=_TIMES.faulty_scale_down_timeout_in_seconds,
    metavar="SECONDS",
    panel="Times, in seconds",
    help="Wait for failed replicas before the job continues with fewer; default: 30.",
)
@click.option(
    "--scale-up-snooze-time",
    type=int,
    metavar="SECONDS",
    panel="Times, in seconds",
    help="Wait after a restart before the job grows again; default: 0.",
)
@click.option(
    "--queue",
    metavar="NAME",
    panel="Queue and priority",
    help="Kueue's queue; default: hyperpod-ns-TEAM-localqueue in the namespace of such a team.",
)
@click.option(
    "--workload-priority-class",
    metavar="NAME",
    panel="Queue and priority",
    help="Kueue's priority of the job. For a class of task governance: CLASS-priority.",
)
@click.option("--priority-class", metavar="NAME", panel="Queue and priority", help="PriorityClass of the pods.")
@click.option(
    "--base-priority-class",
    metavar="NAME",
    panel="Queue and priority",
    help="A higher PriorityClass for the first --min-replicas pods, so that only additional pods are preempted.",
)
@click.option(
    "--required-topology",
    type=click.Choice(get_args(TopologyLabel)),
    metavar="LABEL",
    panel="Queue and priority",
    help="All pods on nodes with the same value of this label, such as topology.k8s.aws/network-node-layer-3. Needs a queue.",
)
@click.option(
    "--preferred-topology",
    type=click.Choice(get_args(TopologyLabel)),
    metavar="LABEL",
    panel="Queue and priority",
    help="The same if they fit, otherwise anywhere.",
)
@click.option(
    "--disruption-budget",
    is_flag=True,
    panel="Queue and priority",
    help="Also write a PodDisruptionBudget, so that drains keep --min-replicas pods.",
)
@click.option(
    "--train-batch-size",
    type=int,
    metavar="N",
    panel="Batch by size, as the recipes' scale_config (with --replica-discrete-values)",
    help="Samples per step over all ranks, the same at every size, in /config/scale_config.yaml.",
)
@click.option(
    "--learning-rate",
    type=float,
    metavar="X",
    panel="Batch by size, as the recipes' scale_config (with --replica-discrete-values)",
    help="The same at every size.",
)
@click.option(
    "--spares",
    type=int,
    metavar="N",
    panel="Failures",
    help="Resources of N more pods, so that failed ones are replaced at once. For a job of one size.",
)
@click.option(
    "--log-pattern",
    metavar="REGEX",
    panel="Failures",
    help="Lines of the log that show progress. The operator restarts a job whose log has none in time.",
)
@click.option(
    "--log-start-cut-off",
    type=int,
    metavar="SECONDS",
    panel="Failures",
    help="Time until the first line that matches --log-pattern.",
)
@click.option(
    "--log-recurring-frequency",
    type=int,
    metavar="SECONDS",
    panel="Failures",
    help="Time until the next one.",
)
@click.option(
    "--max-retries", type=int, metavar="N", panel="Failures", help="Restarts after failures; default: the operator's."
)
def render(**given: Any) -> None:
    """Write a training job as YAML, elastic or of one size."""
    options = SimpleNamespace(**given)
    config = _cluster(options)
    findings = [
        *check_sizes(options),
        *check_zone(options, config),
        *check_team(options, config),
        *check_log_options(options),
    ]
    group = None
    if options.group is not None and config is not None:
        findings += check_group(options, config)
        group = next((group for group in config.instance_groups if group.name == options.group), None)
    elif options.instance_type is None:
        findings.append(
            Finding(
                code="job-instance-type-missing",
                path="instance_type",
                problem="is missing",
                remedy="name the type of the nodes, or a --group of the cluster file",
            )
        )
    raise_errors([with_option_names(finding) for finding in findings], "job render")
    made = elastic_job(options, group, config)
    findings = [
        *check_job(made, hard=hard_quota(options, config)),
        *check_batch_and_quota(options),
        *check_elastic_training(made, group, config),
        *check_health(options, group),
    ]
    one_size = options.nodes is not None
    for warning in raise_errors([with_option_names(each, one_size=one_size) for each in findings], "job render"):
        complain(f"warning: {warning}")
    say_document(to_yaml(job_manifests(made)))


def _cluster(options: SimpleNamespace) -> ClusterConfig | None:
    if options.config is None and options.group is None:
        return None
    return load_config(options.config or "cluster.yaml").config
