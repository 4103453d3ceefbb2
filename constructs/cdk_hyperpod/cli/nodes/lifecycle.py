"""`cdk-hyperpod lifecycle run STEP`: the commands that run one lifecycle step again on running nodes."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex

import rich_click as click

from ...config.cluster import ENTRY_SCRIPTS, ClusterConfig, InstanceGroup, NodeType
from ...config.lifecycle import LifecycleConfig, LifecycleSteps
from ...config.slurm import SlurmConfig
from ...errors import ConfigError, Finding
from ...loader import load_config
from ...rules.own_scripts import SETTINGS as OWN_SCRIPTS
from .. import tables
from ..options import config_option
from ..tables import say_document

__all__ = ["lifecycle"]

_DESCRIPTION = """\
Print a shell script that runs one lifecycle step again on every running node that
has the step. For example, a new user reaches all nodes without replacing any. The
script uses the deployed lifecycle scripts, so deploy first. Run it with your AWS
credentials; it needs the AWS CLI and its Session Manager plugin.

Example:
    cdk-hyperpod lifecycle run users | bash

A step does nothing if nothing has changed, and never ends jobs. If running jobs
prevent a part of a step, the last lines name the nodes on which to run it again.
accounting also runs slurm_conf, without which Slurm enforces no account. If a node
fails or cannot be reached, the others continue, the end names it, and the script's
exit code is 1.

restore-state gives the controller the state that --from names, in place of its own.
Jobs that have begun since that copy are ended. Without --from it lists the copies.

STEP is one of {steps}, restore-state.
scripts_before and scripts_after are your own scripts. They run only by these names,
and what they do to running jobs is up to them.

Exit code 0: printed. 1: the file has errors, or its nodes have no such step.
"""
STEPS = (*(field.name for field in dataclasses.fields(LifecycleSteps)), *OWN_SCRIPTS)
RESTORE = "restore-state"
"""What is run of the step keep_state to choose a copy by hand."""
_COPY = re.compile(r"state-[0-9]{6}-[0-9]{8}")
_CONTROLLER_ONLY = ("keep_state", "slurm_conf", "accounting", "drain")
_NOT_ON_THE_CONTROLLER = ("access",)
_ORDER: tuple[NodeType, ...] = ("controller", "login", "compute")

_SCRIPT = """\
# Step {step} again, on every running node of {name} that has it, with the scripts that are deployed.
set -euo pipefail
export AWS_REGION={region} AWS_DEFAULT_REGION={region} AWS_PAGER=
failed=()
again=()
output=$(mktemp)
trap 'rm -f "$output"' EXIT
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
			--parameters "$(printf {parameters} "$scripts" "$2")" </dev/null 2>&1 | tee "$output" || true
		# A session does not end with the exit code of its command, so the command says it.
		grep -qF "{ended} 0" "$output" || failed+=("$1 $node")
		if grep -qF "{run_again}" "$output"; then again+=("$1 $node"); fi
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
"""The last line of a node, before the number. Without quotes and percent signs, since printf and JSON read it."""
RUN_AGAIN = "run this step again when they have ended"
"""How a step's line ends if jobs prevented a part of its work: RUN_AGAIN of lifecycle/lib.py."""
# On the node. The first %s is where the scripts are, the second which of them runs.
_ON_NODE = (
    "sudo bash -c 'd=$(mktemp -d) && aws s3 cp --recursive --only-show-errors %s/ $d && {environment}bash $d/%s {step}; s=$?; "
    "rm -rf $d; echo {ended} $s; exit $s'"
)


@click.group(no_args_is_help=False)
def lifecycle() -> None:
    """Run a lifecycle step again on running nodes.

    Example:
        cdk-hyperpod lifecycle run users

    The commands are printed. Pipe them to bash to run them.
    """


@lifecycle.command(
    help=_DESCRIPTION.format(steps=", ".join(STEPS)),
    short_help="print the commands that run one step again on running nodes",
)
@click.argument("step", type=click.Choice([*STEPS, RESTORE]), metavar="STEP")
@click.option("--from", "copy", metavar="COPY", help="With restore-state: the copy, such as state-000002-00000017.")
@config_option
def run(step: str, copy: str | None, config: str) -> None:
    """Print the commands without running them."""
    if copy is not None and (step != RESTORE or not _COPY.fullmatch(copy)):
        raise click.BadParameter(
            f"--from names a copy for {RESTORE}, such as state-000002-00000017; got {tables.shown(copy)}"
        )
    environment = f"RESTORE_STATE={copy or 'list'} " if step == RESTORE else ""
    step = "keep_state" if step == RESTORE else step
    say_document(script(load_config(config).config, step, source=config, environment=environment))


def script(config: ClusterConfig, step: str, *, source: str = "", environment: str = "") -> str:
    """The shell script. `environment`: of the step, with a space at its end. Raises ConfigError if the file's nodes have no such step."""
    refusal = _refusal(config, step)
    if refusal is not None:
        raise ConfigError([refusal], source)
    ended = _ENDED.replace("{step}", step)
    on_node = json.dumps(
        {"command": [_ON_NODE.replace("{environment}", environment).replace("{step}", step).replace("{ended}", ended)]}
    )
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
        (group for group in config.instance_groups if has_step(group, step, config)),
        key=lambda group: _ORDER.index(group.node_type or "compute"),
    )
    lines = [f"run_on {group.name} {ENTRY_SCRIPTS[group.node_type]}" for group in groups if group.node_type]
    return text + "\n".join(lines) + "\n" + _END.replace("{step}", step)


def has_step(group: InstanceGroup, step: str, config: ClusterConfig) -> bool:
    """Whether nodes of the group run the step, as lifecycle/provision.py decides it on the node."""
    if step in OWN_SCRIPTS:
        owners = (group, config.lifecycle or LifecycleConfig())
        return any(getattr(owner, step) is not None for owner in owners)
    slurm = config.slurm or SlurmConfig()
    if step == "slurm_conf" and (slurm.prolog is not None or slurm.epilog is not None):
        # Every node has the programs around jobs.
        return True
    if step == "keep_state" and not slurm.keep_state:
        return False
    if step in _CONTROLLER_ONLY:
        return group.node_type == "controller"
    return step not in _NOT_ON_THE_CONTROLLER or group.node_type != "controller"


def _refusal(config: ClusterConfig, step: str) -> Finding | None:
    if config.orchestrator == "eks":
        return Finding(
            code="lifecycle-run-under-eks",
            path="orchestrator",
            problem="is eks, and under EKS the lifecycle script runs only before a node joins the cluster",
            remedy="replace the node",
        )
    if config.lifecycle_mode == "bootstrap":
        return Finding(
            code="lifecycle-run-without-scripts",
            path="lifecycle.mode",
            problem="is bootstrap, so the nodes have no lifecycle scripts",
            remedy="change it, and deploy",
        )
    if config.scripts_folder is not None:
        return Finding(
            code="lifecycle-run-of-own-scripts",
            path="lifecycle.scripts",
            problem="is set, and your own scripts may ignore the step's name and run from the beginning",
            remedy="run the parts that you need yourself",
        )
    if step in OWN_SCRIPTS:
        return _refusal_of_own_scripts(config, step)
    if not getattr(config.lifecycle_steps, step):
        return Finding(
            code="lifecycle-run-of-disabled-step",
            path=f"lifecycle.steps.{step}",
            problem="is false",
            remedy="remove it, and deploy",
        )
    return None


def _refusal_of_own_scripts(config: ClusterConfig, step: str) -> Finding | None:
    if any(has_step(group, step, config) for group in config.instance_groups):
        return None
    return Finding(
        code="lifecycle-run-without-own-scripts",
        path=f"lifecycle.{step}",
        problem="is not set, and no group sets it",
        remedy="set it to a folder, and deploy",
    )
