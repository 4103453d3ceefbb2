"""What a deployment would do, by what `plan` has read. Pure; the planner is the deployment's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..._lambda.hyperpod.scale_down.decide.planner import plan as plan_deployment
from ..._lambda.hyperpod.scale_down.model.actions import Plan
from ..._lambda.hyperpod.scale_down.model.cluster import FIRST
from ...config.changes import Changed, changed, record
from ...names import cluster_stack_name
from ..changes import deployed_record
from .exit_codes import CHANGES
from .plan_drain import refuse_undrainable, refuse_unevictable
from .plan_inputs import NodeWorkload, PlanInputs
from .report import exit_code, is_all_unlaunched

if TYPE_CHECKING:
    from ..._lambda.hyperpod.scale_down.model.cluster import Node

_MOST_LEFT_OUT = 20
"""Nodes whose left-out files are counted one by one."""


@dataclass(frozen=True, slots=True)
class LeavingNode:
    """A node that the deployment would delete, and why."""

    node: Node
    reason: str


def draft_plan(inputs: PlanInputs, busy: frozenset[str] = frozenset()) -> Plan:
    """The deployment's plan before anything but the planner refuses it. `busy`: names of nodes with jobs or pods."""
    context = replace(FIRST, deployed_ids=_deployed_ids(inputs), deployed=_deployed_groups(inputs), busy=busy)
    return plan_deployment(inputs.live, inputs.desired, context)


def _deployed_groups(inputs: PlanInputs) -> tuple[Mapping[str, Any], ...] | None:
    """What the deployed template sends for the groups; None: unknown."""
    return inputs.template.groups if inputs.template.is_known else None


def _deployed_ids(inputs: PlanInputs) -> frozenset[str] | None:
    """Ids that the deployed template names; None: unknown."""
    if inputs.live is None or not inputs.template.is_known:
        return None
    return inputs.template.node_ids


def needs_pods(inputs: PlanInputs, draft: Plan) -> bool:
    """Whether kubectl is asked: under EKS, if nodes would be deleted, or a drainer may hold some."""
    if inputs.live is None or not inputs.live.eks_cluster:
        return False
    may_hold_nodes = inputs.desired.drain is not None or inputs.template.has_drainer
    return may_hold_nodes or exit_code(draft) == CHANGES


def decide(inputs: PlanInputs, workload: NodeWorkload, now: datetime) -> Plan:
    """The deployment's plan, or everything for which it would be refused."""
    plan = draft_plan(inputs, _busy_nodes(inputs, workload))
    plan = refuse_undrainable(plan, inputs, workload, now)
    plan = refuse_unevictable(plan, inputs, workload)
    if inputs.immutable.refusals:
        return Plan(refusals=(*inputs.immutable.refusals, *plan.refusals))
    return plan


def _busy_nodes(inputs: PlanInputs, workload: NodeWorkload) -> frozenset[str]:
    """Only a deployment that drains nodes knows which are busy, and so prefers idle ones."""
    if workload.status is None or inputs.desired.drain is None:
        return frozenset()
    return frozenset(workload.status.busy)


def leaving_nodes(plan: Plan, inputs: PlanInputs) -> list[LeavingNode]:
    """Every node that the deployment would delete: chosen ones first, then those of deleted groups."""
    chosen = [LeavingNode(pick.node, str(pick.reason)) for pick in (*plan.nodes_to_delete, *plan.held)]
    groups_to_delete = {deletion.group for deletion in plan.groups_to_delete}
    live_nodes = () if inputs.live is None else inputs.live.nodes
    return chosen + [
        LeavingNode(node, "group deleted") for node in live_nodes if node.group in groups_to_delete and not node.leaving
    ]


def changed_settings(inputs: PlanInputs) -> Sequence[Changed] | None:
    """How the file differs from the deployed one, by setting; None: no cluster, or no record of the deployed file."""
    if inputs.live is None:
        return None
    deployed = deployed_record(inputs.template.resources or {})
    return None if deployed is None else changed(deployed, record(inputs.config))


def notes_of(plan: Plan, inputs: PlanInputs, workload: NodeWorkload) -> tuple[str, ...]:
    """What else to know of this plan: what was not read, and what is special about the nodes or the stack."""
    return (
        *workload.held,
        *(workload.unread if _may_run_work(plan, inputs) else ()),
        *_left_out(plan, inputs, workload),
        *inputs.template.unread,
        *inputs.immutable.unread,
        *_another_stack(inputs),
    )


def _may_run_work(plan: Plan, inputs: PlanInputs) -> bool:
    """Whether nodes would be deleted that may have jobs or pods."""
    is_unlaunched = inputs.live is not None and is_all_unlaunched(plan, inputs.live)
    return exit_code(plan) == CHANGES and not is_unlaunched


def _left_out(plan: Plan, inputs: PlanInputs, workload: NodeWorkload) -> tuple[str, ...]:
    """Which of the nodes would be deleted although their backups lack files."""
    left_out = {} if workload.status is None else workload.status.left_out
    names = sorted({leaving.node.name for leaving in leaving_nodes(plan, inputs)} & left_out.keys())
    if not names:
        return ()
    counts = ", ".join(f"{name} {left_out[name]}" for name in names[:_MOST_LEFT_OUT])
    unlisted = len(names) - _MOST_LEFT_OUT
    more = f", and {unlisted} more nodes" if unlisted > 0 else ""
    return (f"Files left out of backups: {counts}{more}. manifest.json beside each backup lists them by owner.",)


def _another_stack(inputs: PlanInputs) -> tuple[str, ...]:
    if inputs.is_own_stack:
        return ()
    own = cluster_stack_name(inputs.config.name)
    note = (
        f"This plan is for stack {inputs.stack}, which has the cluster. This file by itself deploys stack {own}. "
        "That stack may not change this cluster, so its deployment would be refused."
    )
    return (note,)
