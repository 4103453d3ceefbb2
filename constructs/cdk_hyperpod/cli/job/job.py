"""`cdk-hyperpod job render`: a training job as YAML, elastic or of one size, or everything for which it would be refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import rich_click as click

from ...config.cluster import ClusterConfig
from ...config.jobs import ElasticPolicy
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
    check_sizes,
    check_team,
    check_zone,
)
from .option_names import with_option_names

__all__ = ["job"]

_DESCRIPTION = """\
Write a HyperPodPyTorchJob of one size (--nodes), or an elastic one, which shrinks and grows between two. The YAML goes to
standard output; nothing is sent to a cluster. A job that the training operator, Kubernetes or the team's quota would
refuse is refused here, with all reasons at once. Exit code 0: written; 1: refused.

A replica is a pod with a node to itself: what it requests comes from the instance type. An elastic job runs with
--min-replicas at least, and grows towards --max-replicas whenever there is room, by --replica-increment-step or to one
of --replica-discrete-values. At each change of size the training script is told (elastic_event_detected), saves a
checkpoint, and is started again with the new number of ranks.
"""

_EXAMPLES = """\
\b
examples:
  2, 4, 6 or 8 nodes:
    cdk-hyperpod job render --name llama --namespace research --image ACCOUNT.dkr.ecr.REGION.amazonaws.com/train:1 \\
      --instance-type ml.p5.48xlarge --min-replicas 2 --max-replicas 8 --replica-increment-step 2 \\
      --claim fsx=/fsx --quota-nodes 8 -- train.py --checkpoint-dir /fsx/llama | kubectl apply -f -
  4 nodes of a group of the cluster file, on its taints, with its labels, in its zone:
    cdk-hyperpod job render … --config cluster.yaml --group p5 --nodes 4 -- train.py
  2, 4 or 8 nodes, always 128 samples a step, and the first 2 nodes are never preempted:
    cdk-hyperpod job render … --min-replicas 2 --max-replicas 8 --replica-discrete-values 2,4,8 \\
      --train-batch-size 128 --priority-class low --base-priority-class high
"""


def _whole_numbers(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, ...]:
    try:
        return () if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"write whole numbers with commas between them, such as 2,4,8, got {text!r}") from None


def _pairs(form: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], list[tuple[str, str]]]:
    """Reads texts of this form, which has an equals sign in it."""

    def read(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> list[tuple[str, str]]:
        for text in texts:
            if "=" not in text:
                raise click.BadParameter(f"write {form}, got {text!r}")
        return [(text.partition("=")[0], text.partition("=")[2]) for text in texts]

    return read


_TIMES = ElasticPolicy(min_replicas=1, max_replicas=1)


@click.group(no_args_is_help=False)
def job() -> None:
    """Training jobs, elastic or of one size."""


@job.command(help=f"{_DESCRIPTION}\n{_EXAMPLES}")
@click.option("--name", required=True, panel="The job", help="Its name, unique in the namespace.")
@click.option("--namespace", required=True, panel="The job", help="The team's; hyperpod-ns-TEAM under task governance.")
@click.option("--image", required=True, panel="The job", help="Container image with hyperpod-elastic-agent in it.")
@click.option(
    "--instance-type", metavar="TYPE", panel="The job", help="Such as ml.p5.48xlarge; default: that of --group."
)
@click.option(
    "--group",
    metavar="NAME",
    panel="The job",
    help="An instance group of --config: its type, labels, zone and threads per core, and its taints are tolerated.",
)
@click.option(
    "--zone",
    metavar="ZONE",
    panel="The job",
    help="Keep the job in this zone, a name or an id: EFA does not cross zones; default: that of --group.",
)
@click.option(
    "--config",
    type=click.Path(),
    metavar="PATH",
    panel="The job",
    help="The cluster file; its team with this --namespace is checked (quota, PriorityClasses, service account); default with --group: cluster.yaml.",
)
@click.argument("script", nargs=-1, metavar="[-- SCRIPT [ARG]…]")
@click.option(
    "--env",
    multiple=True,
    callback=_pairs("NAME=VALUE"),
    metavar="NAME=VALUE",
    panel="The job",
    help="May be repeated.",
)
@click.option(
    "--claim",
    multiple=True,
    callback=_pairs("CLAIM=/PATH"),
    metavar="CLAIM=/PATH",
    panel="The job",
    help="Mount a PersistentVolumeClaim; checkpoints need a shared one; may be repeated.",
)
@click.option("--service-account", metavar="NAME", panel="The job", help="Default: the namespace's default.")
@click.option(
    "--nodes", type=int, metavar="N", panel="Sizes, in nodes", help="An ordinary job of N nodes, in place of all below."
)
@click.option("--min-replicas", type=int, metavar="N", panel="Sizes, in nodes", help="It waits until it has these.")
@click.option("--max-replicas", type=int, metavar="N", panel="Sizes, in nodes", help="It asks for these all the time.")
@click.option(
    "--replica-increment-step",
    type=int,
    metavar="N",
    panel="Sizes, in nodes",
    help="Grow and shrink by N; this or the next.",
)
@click.option(
    "--replica-discrete-values",
    callback=_whole_numbers,
    metavar="N,N,…",
    panel="Sizes, in nodes",
    help="Exactly these sizes, such as 2,4,8.",
)
@click.option(
    "--replicas",
    type=int,
    metavar="N",
    panel="Sizes, in nodes",
    help="The size to start with; default: --min-replicas.",
)
@click.option(
    "--quota-nodes",
    type=int,
    metavar="N",
    panel="Sizes, in nodes",
    help="The team's quota in nodes of this type; a maximum beyond it is refused, as Kubernetes would.",
)
@click.option(
    "--vcpus", type=int, metavar="N", panel="What a replica has of its node", help="Default: all that pods can have."
)
@click.option(
    "--memory-gib",
    type=int,
    metavar="N",
    panel="What a replica has of its node",
    help="Host memory; default: all that pods can have.",
)
@click.option(
    "--neuron-resource",
    type=click.Choice(["neuron", "neurondevice"]),
    panel="What a replica has of its node",
    help="The name by which Trainium chips are requested; default: neurondevice through a queue, otherwise neuron.",
)
@click.option(
    "--nproc-per-node",
    type=int,
    metavar="N",
    panel="What a replica has of its node",
    help="Default: one for each GPU or NeuronCore.",
)
@click.option(
    "--scaling-timeout",
    default=_TIMES.scaling_timeout_in_seconds,
    metavar="SECONDS",
    panel="Times, in seconds",
    help="Wait before growing; default: 60.",
)
@click.option(
    "--graceful-shutdown-timeout",
    default=_TIMES.graceful_shutdown_timeout_in_seconds,
    metavar="SECONDS",
    panel="Times, in seconds",
    help="For the checkpoint at a change of size; default: 600.",
)
@click.option(
    "--faulty-scale-down-timeout",
    default=_TIMES.faulty_scale_down_timeout_in_seconds,
    metavar="SECONDS",
    panel="Times, in seconds",
    help="Wait for failed replicas before going on with fewer; default: 30.",
)
@click.option(
    "--scale-up-snooze-time",
    type=int,
    metavar="SECONDS",
    panel="Times, in seconds",
    help="Do not grow for so long after a restart; default: 0.",
)
@click.option(
    "--queue",
    metavar="NAME",
    panel="Queue and priority",
    help="Kueue's; default: hyperpod-ns-TEAM-localqueue in such a namespace.",
)
@click.option(
    "--workload-priority-class",
    metavar="NAME",
    panel="Queue and priority",
    help="Kueue's for the job; of a class of task governance: CLASS-priority.",
)
@click.option("--priority-class", metavar="NAME", panel="Queue and priority", help="PriorityClass of the pods.")
@click.option(
    "--base-priority-class",
    metavar="NAME",
    panel="Queue and priority",
    help="A higher one for the first --min-replicas pods: preemption then takes only what the job grew by.",
)
@click.option(
    "--disruption-budget",
    is_flag=True,
    panel="Queue and priority",
    help="Also write a PodDisruptionBudget: drains stop at --min-replicas.",
)
@click.option(
    "--train-batch-size",
    type=int,
    metavar="N",
    panel="Batch by size, as the recipes' scale_config (with --replica-discrete-values)",
    help="Samples of a step over all ranks, the same at every size; in /config/scale_config.yaml.",
)
@click.option(
    "--learning-rate",
    type=float,
    metavar="X",
    panel="Batch by size, as the recipes' scale_config (with --replica-discrete-values)",
    help="The same at every size.",
)
@click.option(
    "--max-retries", type=int, metavar="N", panel="Failures", help="Restarts after failures; default: the operator's."
)
def render(**given: Any) -> None:
    """Write a training job as YAML, elastic or of one size."""
    options = SimpleNamespace(**given)
    config = _cluster(options)
    findings = [*check_sizes(options), *check_zone(options, config), *check_team(options, config)]
    group = None
    if options.group is not None and config is not None:
        findings += check_group(options, config)
        group = next((group for group in config.instance_groups if group.name == options.group), None)
    elif options.instance_type is None:
        problem, remedy = "is missing", "name the type of the nodes, or a --group of the cluster file"
        findings.append(Finding(path="instance_type", problem=problem, remedy=remedy))
    raise_errors([with_option_names(finding) for finding in findings], "job render")
    made = elastic_job(options, group, config)
    findings = [
        *check_job(made, hard=hard_quota(options, config)),
        *check_batch_and_quota(options),
        *check_elastic_training(made, group, config),
    ]
    for warning in raise_errors([with_option_names(finding) for finding in findings], "job render"):
        complain(f"warning: {warning}")
    say_document(to_yaml(job_manifests(made)))


def _cluster(options: SimpleNamespace) -> ClusterConfig | None:
    if options.config is None and options.group is None:
        return None
    return load_config(options.config or "cluster.yaml").config
