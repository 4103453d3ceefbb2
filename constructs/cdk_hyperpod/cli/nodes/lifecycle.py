"""`cdk-hyperpod lifecycle run STEP`: the commands that run one step of the scripts again on the nodes that live."""

from __future__ import annotations

import dataclasses
import json
import shlex

import rich_click as click

from ...config.cluster import ENTRY_SCRIPTS, ClusterConfig, InstanceGroup, NodeType
from ...config.lifecycle import LifecycleSteps
from ...errors import ConfigError, Finding
from ...loader import load_config
from ..options import config_option
from ..tables import say_document

__all__ = ["lifecycle"]

_DESCRIPTION = """\
Print a shell script that runs one step of the lifecycle scripts again, as root,
on every running node that has the step: with the scripts that are deployed, so
deploy first. A new user, say, reaches all nodes without replacing any. Nothing
is changed until you run it, with your AWS credentials and the Session Manager
plug-in of the AWS CLI:

\b
  cdk-hyperpod lifecycle run users | bash

A step changes nothing where nothing is to be done, and ends no job. If jobs keep
a step from a part of its work, the last lines say on which nodes to run it again.
accounting brings slurm_conf along: Slurm enforces no account without it. A node that fails
or is not reached is named at the end, with exit code 1; the others go on.

STEP is one of {steps}.

Exit code 0: printed; 1: the file is wrong, or its nodes have no such step.
"""
STEPS = tuple(field.name for field in dataclasses.fields(LifecycleSteps))
_CONTROLLER_ONLY = ("slurm_conf", "accounting", "drain")
_NOT_ON_THE_CONTROLLER = ("access",)
_ORDER: tuple[NodeType, ...] = ("controller", "login", "compute")

_SCRIPT = """\
# Step {step} again, on every running node of {name} that has it, with the scripts that are deployed.
set -euo pipefail
export AWS_REGION={region} AWS_DEFAULT_REGION={region} AWS_PAGER=
failed=()
again=()
said=$(mktemp)
trap 'rm -f "$said"' EXIT
cluster_arn=$(aws sagemaker describe-cluster --cluster-name {name} --output text --query ClusterArn)
run_on() { # GROUP SCRIPT
	local scripts node nodes
	scripts=$(aws sagemaker describe-cluster --cluster-name {name} --output text \\
		--query "InstanceGroups[?InstanceGroupName=='$1'].LifeCycleConfig.SourceS3Uri")
	nodes=$(aws sagemaker list-cluster-nodes --cluster-name {name} --output text \\
		--query "ClusterNodeSummaries[?InstanceGroupName=='$1' && InstanceStatus.Status=='Running'].[InstanceId]")
	for node in $nodes; do
		echo "== $1 $node"
		# shellcheck disable=SC2059
		aws ssm start-session --target "sagemaker-cluster:${{cluster_arn##*/}}_$1-$node" \\
			--document-name AWS-StartNonInteractiveCommand \\
			--parameters "$(printf {parameters} "$scripts" "$2")" </dev/null 2>&1 | tee "$said" || true
		# A session does not end with the exit code of its command, so the command says it.
		grep -qF "{ended} 0" "$said" || failed+=("$1 $node")
		if grep -qF "{run_again}" "$said"; then again+=("$1 $node"); fi
	done
}
"""
_END = """if ((${#again[@]})); then
	printf 'Jobs kept a part of step {step} from being done on %s: run it again when they have ended.\\n' "${again[@]}"
fi
if ((${#failed[@]})); then
	printf 'FAILED: step {step} on %s\\n' "${failed[@]}" >&2
	exit 1
fi
"""
_ENDED = "lifecycle run {step}: exit code"
"""What the last line of a node says before the number. No quotes and no percent sign: printf and JSON read it."""
RUN_AGAIN = "run this step again when they have ended"
"""How a step ends its line when jobs kept it from a part of its work: RUN_AGAIN of lifecycle/lib.py."""
# On the node. The first %s is where the scripts are, the second which of them runs.
_ON_NODE = (
    "sudo bash -c 'd=$(mktemp -d) && aws s3 cp --recursive --only-show-errors %s/ $d && bash $d/%s {step}; s=$?; "
    "rm -rf $d; echo {ended} $s; exit $s'"
)


@click.group(no_args_is_help=False)
def lifecycle() -> None:
    """Run a step of the lifecycle scripts again on nodes that live."""


@lifecycle.command(
    help=_DESCRIPTION.format(steps=", ".join(STEPS)),
    short_help="print the commands that run one step again on the nodes that live",
)
@click.argument("step", type=click.Choice(STEPS), metavar="STEP")
@config_option
def run(step: str, config: str) -> None:
    """Print the commands; nothing is run here."""
    say_document(script(load_config(config).config, step, source=config))


def script(config: ClusterConfig, step: str, *, source: str = "") -> str:
    """The shell script. Raises ConfigError where the file's nodes have no such step."""
    refusal = _refusal(config, step)
    if refusal is not None:
        raise ConfigError([refusal], source)
    ended = _ENDED.replace("{step}", step)
    on_node = json.dumps({"command": [_ON_NODE.replace("{step}", step).replace("{ended}", ended)]})
    text = _SCRIPT.replace("{{", "{").replace("}}", "}")
    for key, value in {
        "{step}": step,
        "{ended}": ended,
        "{run_again}": RUN_AGAIN,
        "{name}": config.name,
        "{region}": config.region,
        "{parameters}": shlex.quote(on_node),
    }.items():
        text = text.replace(key, value)
    groups = sorted(
        (group for group in config.instance_groups if has_step(group, step)),
        key=lambda group: _ORDER.index(group.node_type or "compute"),
    )
    lines = [f"run_on {group.name} {ENTRY_SCRIPTS[group.node_type]}" for group in groups if group.node_type]
    return text + "\n".join(lines) + "\n" + _END.replace("{step}", step)


def has_step(group: InstanceGroup, step: str) -> bool:
    """Whether nodes of the group run the step, as lifecycle/provision.py decides it on the node."""
    if step in _CONTROLLER_ONLY:
        return group.node_type == "controller"
    return step not in _NOT_ON_THE_CONTROLLER or group.node_type != "controller"


def _refusal(config: ClusterConfig, step: str) -> Finding | None:
    if config.orchestrator == "eks":
        return Finding(
            path="orchestrator",
            problem="under EKS the script moves data before a node joins, which no step can do again",
            remedy="replace the node",
        )
    if config.lifecycle_mode == "bootstrap":
        return Finding(path="lifecycle.mode", problem="is bootstrap: the nodes have no scripts", remedy="change it")
    if config.scripts_folder is not None:
        return Finding(
            path="lifecycle.scripts",
            problem="the nodes have scripts of your own, which may take a step's name for nothing and begin anew",
            remedy="run what you need of them yourself",
        )
    if not getattr(config.lifecycle_steps, step):
        return Finding(path=f"lifecycle.steps.{step}", problem="is false", remedy="remove it, and deploy")
    return None
