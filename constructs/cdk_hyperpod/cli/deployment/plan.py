"""`cdk-hyperpod plan`: what a deployment of a cluster file would delete from the live cluster.

The planner is the deployment's own, on the same pinned API model; only the credentials are the user's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import rich_click as click

from ...config.cluster import ClusterConfig
from ...loader import load_config
from ..aws import Clients, clients
from ..commands import CDK_CLI
from ..options import config_option, json_option, permissions, profile_option, stack_option
from ..tables import colour_wanted, now, print_question, say, say_json, wrapped
from .deployed_stack import PlanError, remaining_groups
from .exit_codes import CHANGES

if TYPE_CHECKING:
    from ..._lambda.hyperpod.scale_down.model.actions import Plan
    from ..._lambda.hyperpod.scale_down.model.cluster import Node
    from ...config.changes import Changed
    from .plan_decision import LeavingNode
    from .plan_inputs import NodeWorkload, PlanInputs

__all__ = ["plan"]

_DESCRIPTION = f"""\
Show which nodes and groups a deployment of the file would delete, and why. Also
show which settings differ from the deployed file, and what each change does to
running nodes. Changes nothing.

Examples:
    cdk-hyperpod plan
    cdk-hyperpod plan --confirm && npx -y aws-cdk@{CDK_CLI} deploy --all

Also compares the settings that cannot change after creation (first zone, address
range, VPC, orchestrator, the file system's EFA) with the live cluster. The roles
and subnets of groups are known only to a deployment, which refuses to change them.
For a group with autoscaling, plan assumes that the deployment changes something
in the cluster. A deployment without changes sends no count and is not refused.

Exit code 0: nothing would be deleted. 2: nodes or groups would be deleted.
1: the deployment would be refused, or the cluster could not be read. With
--confirm, 0: deploy; 1: do not deploy.
"""


@click.command(
    help=_DESCRIPTION,
    epilog=permissions(
        *("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes", "sagemaker:ListTags", "sagemaker:ListClusters"),
        *("cloudformation:GetTemplate", "cloudformation:DescribeStacks", "cloudformation:ListStackResources"),
        *("ec2:DescribeSubnets", "fsx:DescribeFileSystems"),
        *("s3:GetObject", "s3:ListBucket", "kms:Decrypt"),
        besides="Without those of CloudFormation, EC2 and FSx, a note says what was not compared. ListClusters finds the cluster "
        "that a renamed file leaves. Those of S3 and KMS read which "
        "jobs run on the nodes, if slurm.drain is set. Under EKS, kubectl reads the pods; it must be allowed to list nodes and pods.",
    ),
)
@config_option
@profile_option
@stack_option
@click.option("--endpoint-url", metavar="URL", help="AWS endpoint for every service; default: the region's.")
@click.option("--confirm", is_flag=True, help="Ask for confirmation if nodes would be deleted.")
@click.option("--yes", is_flag=True, help="With --confirm: skip the question.")
@json_option
def plan(
    config: str,
    profile: str | None,
    stack: str | None,
    endpoint_url: str | None,
    *,
    confirm: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Read, decide, show, confirm; the exit codes are in its help."""
    if as_json and confirm:
        raise click.UsageError("--json cannot be combined with --confirm, which asks a question")
    cluster = load_config(config).config
    client = clients(cluster.region, profile, endpoint_url)
    # `--confirm` comes before a deployment of this app's own stacks.
    prediction = _predict(cluster, client, stack=stack, own_stack=confirm)
    if as_json:
        say_json("plan", 1, prediction.content())
    else:
        _show(prediction)
    if confirm and prediction.exit_code == CHANGES:
        return _confirmed(yes=yes)
    return prediction.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prediction:
    """What a deployment would do, and all that is shown of it."""

    inputs: PlanInputs
    workload: NodeWorkload
    plan: Plan
    changes: Sequence[Changed] | None
    """None: the deployed settings are unknown."""
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        from .report import exit_code

        return exit_code(self.plan)

    def content(self) -> dict[str, Any]:
        """What --json prints."""
        from .plan_decision import leaving_nodes

        return {
            "cluster": self.inputs.config.name,
            "region": self.inputs.config.region,
            "stack": self.inputs.stack,
            "exit_code": self.exit_code,
            "nodes": [self._node_content(leaving) for leaving in leaving_nodes(self.plan, self.inputs)],
            "deleted_groups": [deletion.group for deletion in self.plan.groups_to_delete],
            "refusals": [
                {"code": each.code, "path": each.path, "problem": each.why, "remedy": each.fix}
                for each in self.plan.refusals
            ],
            "waits": [wait.why for wait in self.plan.waits],
            "notes": [*self.plan.notes, *self.notes],
            "changes": None if self.changes is None else [asdict(change) for change in self.changes],
        }

    def _node_content(self, leaving: LeavingNode) -> dict[str, Any]:
        node = leaving.node
        return {
            "node": node.name,
            "group": node.group,
            "status": node.status,
            "launch_time": node.launched,
            "reason": leaving.reason,
            "jobs": self._jobs(node),
        }

    def _jobs(self, node: Node) -> list[str] | None:
        """Some of its jobs with their users, `4711 of alice`, or of its pods, `research/train-0`; None: unknown."""
        from ..._lambda.hyperpod.scale_down.drain.readiness import is_silent

        status = self.workload.status
        if status is None or is_silent(status):
            return None
        return list(status.busy.get(node.name, ()))


def _predict(config: ClusterConfig, client: Clients, *, stack: str | None, own_stack: bool) -> _Prediction:
    """Read the cluster, and decide what a deployment would do."""
    from .other_clusters import note_of_other_clusters
    from .plan_decision import changed_settings, decide, draft_plan, needs_pods, notes_of
    from .plan_drain import read_workload
    from .plan_inputs import read_inputs

    inputs = read_inputs(config, client, stack=stack, own_stack=own_stack)
    workload = read_workload(inputs, client, pods=needs_pods(inputs, draft_plan(inputs)))
    plan = decide(inputs, workload, now())
    others = note_of_other_clusters(config, client) if inputs.live is None else ()
    return _Prediction(
        inputs=inputs,
        workload=workload,
        plan=plan,
        changes=changed_settings(inputs),
        notes=(*notes_of(plan, inputs, workload), *remaining_groups(inputs.stack, plan, client), *others),
    )


def _show(prediction: _Prediction) -> None:
    from .report import report

    inputs = prediction.inputs
    say(*report(prediction.plan, inputs.live, inputs.desired, prediction.workload.status, colour=colour_wanted()))
    say(*_setting_lines(prediction))
    for note in prediction.notes:
        say("", *wrapped(note))


def _setting_lines(prediction: _Prediction) -> list[str]:
    """The changed settings in words."""
    from ..changes import change_lines

    if prediction.changes:
        heading = (
            ["", "What the changed settings do in a deployment that is not refused:"]
            if prediction.plan.refusals
            else []
        )
        return [*heading, *change_lines(prediction.changes)]
    if prediction.changes is not None:
        return ["", "No setting differs from what was deployed."]
    is_deployed = prediction.inputs.live is not None and prediction.inputs.template.resources
    if is_deployed:
        return ["", "The stack keeps no record of its file. The next deployment writes one."]
    return []


def _confirmed(*, yes: bool) -> int:
    """0: the user confirms the deployment. Raises PlanError if not, or if there is no terminal to ask on."""
    if yes:
        return 0
    if not sys.stdin.isatty():
        raise PlanError(
            "nodes or groups would be deleted, and there is no terminal to confirm on. "
            "To deploy all the same, add --yes (make deploy PLAN_FLAGS=--yes)"
        )
    say("")
    print_question("Deploy, and delete them? [y/N] ")
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return 0
    raise PlanError("nothing was deployed")
