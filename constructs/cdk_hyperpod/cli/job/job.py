"""`cdk-hyperpod job render`: a training job as YAML, elastic or of one size, or everything for which it would be refused."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import rich_click as click

from ..._lambda.hyperpod.common.drain_protocol import MAX_NODES
from ...config.cluster import ZONE, ClusterConfig, InstanceGroup
from ...config.eks import is_on
from ...config.jobs import ClaimMount, ElasticJob, ElasticPolicy, RunPolicy, Toleration
from ...config.teams import Team
from ...config.zones import is_zone_id
from ...errors import Finding, raise_errors
from ...facts.instance_types import catalogue
from ...kubernetes import quotas
from ...kubernetes.jobs import job_manifests
from ...kubernetes.manifests import to_yaml
from ...kubernetes.replicas import ZONE_LABELS, even_scale_config, ranks_per_replica
from ...kubernetes.teams import POD_SERVICE_ACCOUNT, allowed_priorities, namespace_name, quota_hard
from ...loader import load_config
from ...rules.jobs import check_job
from ...rules.network import own_zones
from ...typed.words import show
from ..tables import complain, say_document

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
    findings = [*_check_sizes(options), *_check_zone(options, config), *_check_team(options, config)]
    group = None
    if options.group is not None and config is not None:
        findings += _check_group(options, config)
        group = next((group for group in config.instance_groups if group.name == options.group), None)
    elif options.instance_type is None:
        problem, remedy = "is missing", "name the type of the nodes, or a --group of the cluster file"
        findings.append(Finding(path="instance_type", problem=problem, remedy=remedy))
    raise_errors([_in_words_of_the_command(finding) for finding in findings], "job render")
    made = _job(options, group, config)
    findings = [
        *check_job(made, hard=_hard(options, config)),
        *_check_options(options),
        *_check_elastic(made, group, config),
    ]
    for warning in raise_errors([_in_words_of_the_command(finding) for finding in findings], "job render"):
        complain(f"warning: {warning}")
    say_document(to_yaml(job_manifests(made)))


def _cluster(options: SimpleNamespace) -> ClusterConfig | None:
    if options.config is None and options.group is None:
        return None
    return load_config(options.config or "cluster.yaml").config


def _check_sizes(options: SimpleNamespace) -> Iterator[Finding]:
    elastic = ("min_replicas", "max_replicas", "replica_increment_step", "replica_discrete_values", "replicas")
    given = [name for name in elastic if getattr(options, name)]
    if options.nodes is not None and given:
        yield Finding(
            path="nodes", problem=f"does not go with {given[0]}", remedy="keep --nodes, or the sizes of an elastic job"
        )
    for name in ("min_replicas", "max_replicas"):
        if options.nodes is None and getattr(options, name) is None:
            yield Finding(path=name, problem="is missing", remedy="add it, or --nodes for a job of one size")
    if options.nodes is not None and not 1 <= options.nodes <= MAX_NODES:
        yield Finding(path="nodes", problem=f"must be 1 to {MAX_NODES}, got {options.nodes}", remedy="change it")


def _check_group(options: SimpleNamespace, config: ClusterConfig) -> Iterator[Finding]:
    if config.orchestrator != "eks":
        yield Finding(path="config", problem="is a cluster under Slurm", remedy="submit the job with sbatch")
    groups = {group.name: group for group in config.instance_groups}
    if options.group not in groups:
        yield Finding(
            path="group",
            problem=f"no instance group has the name {show(options.group)}",
            remedy=f"name one of {', '.join([*groups][:8])}",
        )
        return
    types = groups[options.group].all_instance_types
    if options.instance_type is None and len(types) > 1:
        yield Finding(
            path="instance_type",
            problem=f"is missing, and the group mixes {', '.join(types)}",
            remedy="name the one that a replica fills",
        )
    elif options.instance_type is not None and options.instance_type not in types:
        yield Finding(
            path="instance_type",
            problem=f"the group {options.group} has no {show(options.instance_type)}",
            remedy=f"leave it out, or use {' or '.join(types)}",
        )
    zone = _zone(groups[options.group], config)
    # A name and an id may mean the same zone: which ones do, differs between accounts.
    if options.zone and zone and options.zone != zone and is_zone_id(options.zone) == is_zone_id(zone):
        yield Finding(
            path="zone",
            problem=f"the group {options.group} is in {zone}, got {show(options.zone)}",
            remedy="leave it out, or name a group that is there",
        )


def _check_team(options: SimpleNamespace, config: ClusterConfig | None) -> Iterator[Finding]:
    """What Kubernetes would refuse of the team whose namespace the job is in, as far as the file tells."""
    if config is None or config.eks is None or not config.teams:
        return
    teams = _teams(config)
    team = teams.get(options.namespace)
    if team is None:
        close = difflib.get_close_matches(options.namespace[:80], teams, n=1)
        yield Finding(
            path="namespace",
            problem=f"no team of the file has the namespace {show(options.namespace)}",
            remedy=f"did you mean {close[0]}?" if close else f"name one of {', '.join([*teams][:8])}",
        )
        return
    allowed = allowed_priorities(team, config.eks.priority_classes)
    for path in ("priority_class", "base_priority_class"):
        name = getattr(options, path)
        if name is not None and name not in allowed:
            yield Finding(
                path=f"{path}_name",
                problem=f"pods of the team {team.name} may not name {show(name)}",
                remedy=f"name one of {', '.join(allowed)}" if allowed else "leave it out: the team may name none",
            )
    if options.service_account == POD_SERVICE_ACCOUNT and team.pod_role_arn is None:
        yield Finding(
            path="service_account_name",
            problem=f"is {POD_SERVICE_ACCOUNT}, which a team with a pod_role_arn has, and {team.name} has none",
            remedy="leave it out, or give the team a pod_role_arn",
        )


def _check_elastic(job: ElasticJob, group: InstanceGroup | None, config: ClusterConfig | None) -> Iterator[Finding]:
    """What AWS excludes for elastic training; the warnings of a file say so of clusters."""
    if job.elastic_policy.min_replicas == job.elastic_policy.max_replicas:
        return
    if group is not None and group.spot:
        yield Finding(
            path="group",
            problem=f"{group.name} is spot capacity, for which AWS excludes elastic training",
            remedy="use --nodes, or a group of on-demand nodes",
            level="warning",
            topic="elastic-training-on-spot",
        )
    if config is not None and config.tiered_storage is not None:
        yield Finding(
            path="config",
            problem="has managed tiered checkpointing on, beside which AWS excludes elastic training",
            remedy="use --nodes, or turn it off",
            level="warning",
            topic="elastic-training-with-tiered-storage",
        )


def _zone(group: InstanceGroup, config: ClusterConfig) -> str | None:
    """The zone of a group's nodes; None: the account's first one, whatever that is."""
    own = own_zones(config.network)
    return group.availability_zone or (own[0] if own else None)


def _node_labels(options: SimpleNamespace, group: InstanceGroup | None, config: ClusterConfig | None) -> dict[str, str]:
    """What tells the nodes from others of their type: labels of the group's own, and the zone where it is known."""
    zone = options.zone
    if zone is None and group is not None and config is not None:
        zone = _zone(group, config)
    labels = {} if group is None else dict(group.labels)
    return labels if zone is None else labels | {ZONE_LABELS[1 if is_zone_id(zone) else 0]: zone}


def _check_zone(options: SimpleNamespace, config: ClusterConfig | None) -> Iterator[Finding]:
    """Whether the zone is one, and, where none is named, whether nodes with EFA are in several."""
    if options.zone is not None and (words := ZONE.problem(options.zone)):
        yield Finding(path="zone", problem=f"{words}, got {show(options.zone)}", remedy="change it")
    kind = catalogue().get(options.instance_type or "")
    if options.zone is not None or options.group is not None or config is None or kind is None or not kind.has_efa:
        return
    zones = {_zone(group, config) for group in config.instance_groups if kind.name in group.all_instance_types}
    if len(zones) > 1:
        yield Finding(
            path="zone",
            problem=f"is missing: {kind.name} is in {' and '.join(sorted(map(str, zones)))}, and EFA does not cross zones",
            remedy="name the zone, or a --group",
        )


def _job(options: SimpleNamespace, group: InstanceGroup | None, config: ClusterConfig | None) -> ElasticJob:
    script, *arguments = options.script or [None]
    least = options.nodes or options.min_replicas
    most = options.nodes or options.max_replicas
    job = ElasticJob(
        name=options.name,
        namespace=options.namespace,
        image=options.image,
        instance_type=options.instance_type or (group.all_instance_types[0] if group is not None else ""),
        node_labels=_node_labels(options, group, config),
        tolerations=()
        if group is None
        else tuple(Toleration(key=taint.key, effect=taint.effect, value=taint.value) for taint in group.taints),
        threads_per_core=None if group is None else group.threads_per_core,
        neuron_resource=options.neuron_resource,
        elastic_policy=ElasticPolicy(
            min_replicas=least,
            max_replicas=most,
            replica_increment_step=options.replica_increment_step,
            replica_discrete_values=(options.nodes,) if options.nodes else options.replica_discrete_values,
            scaling_timeout_in_seconds=options.scaling_timeout,
            graceful_shutdown_timeout_in_seconds=options.graceful_shutdown_timeout,
            faulty_scale_down_timeout_in_seconds=options.faulty_scale_down_timeout,
        ),
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
        run_policy=RunPolicy(
            job_max_retry_count=options.max_retries, scale_up_snooze_time_in_seconds=options.scale_up_snooze_time
        ),
    )
    if not options.train_batch_size or options.train_batch_size < 1 or job.instance_type not in catalogue():
        return job
    # The sizes are only known to be sound once they were checked; what is unsound is refused, and never rendered.
    sizes = () if any(check_job(job)) else job.elastic_policy.sizes
    scale_config = even_scale_config(
        sizes,
        train_batch_size=options.train_batch_size,
        ranks=ranks_per_replica(job),
        learning_rate=options.learning_rate,
    )
    return dataclasses.replace(job, scale_config=scale_config)


def _check_options(options: SimpleNamespace) -> list[Finding]:
    findings = []
    if options.quota_nodes is not None and options.quota_nodes < 1:
        findings.append(
            Finding(path="quota_nodes", problem=f"must be 1 or more, got {options.quota_nodes}", remedy="change it")
        )
    if options.train_batch_size is not None and options.train_batch_size < 1:
        findings.append(
            Finding(
                path="train_batch_size",
                problem=f"must be 1 or more, got {options.train_batch_size}",
                remedy="change it",
            )
        )
    if options.learning_rate is not None and options.train_batch_size is None:
        findings.append(
            Finding(
                path="learning_rate",
                problem="goes into the settings by size, and there is no train_batch_size for them",
                remedy="add train_batch_size, or pass the rate to the script",
            )
        )
    return findings


def _hard(options: SimpleNamespace, config: ClusterConfig | None) -> dict[str, str] | None:
    if options.quota_nodes is None and config is not None and config.eks is not None:
        teams = _teams(config)
        return quota_hard(teams[options.namespace]) if options.namespace in teams else None
    if options.quota_nodes is None or options.quota_nodes < 1 or options.instance_type not in catalogue():
        return None
    return quotas.hard(quotas.amounts({options.instance_type: options.quota_nodes}))


def _teams(config: ClusterConfig) -> dict[str, Team]:
    """The teams of an EKS cluster's file by their namespaces."""
    governed = config.eks is not None and is_on(
        config.eks, "task_governance", has_file_system=config.storage is not None
    )
    return {namespace_name(team, task_governance=governed): team for team in config.teams}


_SAME_NAME = (
    "instance_type",
    "learning_rate",
    "max_replicas",
    "memory_gib",
    "min_replicas",
    "nproc_per_node",
    "quota_nodes",
    "replica_discrete_values",
    "replica_increment_step",
    "train_batch_size",
    "vcpus",
    "workload_priority_class",
)
_FLAGS = {name: f"--{name.replace('_', '-')}" for name in _SAME_NAME} | {
    "queue_name": "--queue",
    "priority_class_name": "--priority-class",
    "base_priority_class_name": "--base-priority-class",
    "service_account_name": "--service-account",
    "scaling_timeout_in_seconds": "--scaling-timeout",
    "graceful_shutdown_timeout_in_seconds": "--graceful-shutdown-timeout",
    "faulty_scale_down_timeout_in_seconds": "--faulty-scale-down-timeout",
    "scale_up_snooze_time_in_seconds": "--scale-up-snooze-time",
    "job_max_retry_count": "--max-retries",
}
# Names that are ordinary words too: flags where they stand alone as the place, not inside of a sentence.
_FLAG_PLACES = {
    "name": "--name",
    "namespace": "--namespace",
    "nodes": "--nodes",
    "group": "--group",
    "config": "--config",
    "zone": "--zone",
    "image": "--image",
    "replicas": "--replicas",
    "script": "SCRIPT",
    "elastic_policy": "",
    "scale_config": "--train-batch-size",
}
_NAMES = re.compile(rf"\b({'|'.join(sorted(_FLAGS, key=len, reverse=True))})\b")


def _in_words_of_the_command(finding: Finding) -> Finding:
    """The library's finding with the command's own words for its fields."""
    path = finding.path.removeprefix("elastic_policy.").removeprefix("run_policy.")
    path = re.sub(r"^claims(\[\d+\])?", "--claim", re.sub(r"^env\b", "--env", path))
    path = re.sub(r"^scale_config\[\d+\]\.", "", path)
    return dataclasses.replace(
        finding,
        path=_FLAG_PLACES[path] if path in _FLAG_PLACES else _NAMES.sub(_flag, path),
        problem=_NAMES.sub(_flag, finding.problem),
        remedy=_NAMES.sub(_flag, finding.remedy),
    )


def _flag(match: re.Match[str]) -> str:
    return _FLAGS[match[1]]
