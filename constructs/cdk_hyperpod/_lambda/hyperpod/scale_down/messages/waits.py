"""Waits: why a poll has to be repeated, in the log and in the reason of a deployment that runs out of time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...kernel.sentences import several, some
from ...kernel.text import one_line
from ..model.actions import Wait

# -- the cluster and its groups ---------------------------------------------------------------------------------------


def cluster_moving(status: str) -> Wait:
    return Wait(why=f"the cluster is {status}", passing=True)


def group_moving(group: str, status: str) -> Wait:
    return Wait(why=f'group "{group}" is {status}', passing=True)


def list_above_target(group: str, listed: int, target: int) -> Wait:
    return Wait(why=f'group "{group}" is on its way from {listed} nodes to {target}', passing=True)


def target_falls_yet(group: str, target: int) -> Wait:
    return Wait(why=f'group "{group}" still has a target of {several(target, "node")}', passing=True)


def controller_replaced(group: str, nodes: int) -> Wait:
    return Wait(
        why=f'HyperPod is replacing a node of the controller group "{group}", which has {several(nodes, "node")} now'
    )


def health_check(group: str, nodes: int) -> Wait:
    return Wait(why=f'HyperPod runs a deep health check on {several(nodes, "node")} of group "{group}"', passing=True)


def lowered_meanwhile(group: str, named: int, most: int, count: int) -> Wait:
    return Wait(
        why=f'group "{group}" was changed to {several(most, "node")} after this deployment began. With a count of {count}, its '
        f"{several(named, 'node')} in nodes_to_delete can no longer be deleted"
    )


def below_minimum(group: str, nodes: int, minimum: int) -> Wait:
    return Wait(why=f'group "{group}" has {nodes} of the {minimum} nodes of its minimum')


def shutting_down(group: str, nodes: Sequence[str]) -> Wait:
    return Wait(why=f'HyperPod is terminating {several(len(nodes), "node")} of group "{group}" ({some(nodes, 3)})')


def ahead_of_target(group: str, nodes: Sequence[str], target: int) -> Wait:
    return Wait(
        why=f'HyperPod lists {several(len(nodes), "node")} of group "{group}" ({some(nodes, 8)}) for a target of {target}. Some of '
        "them may be terminating, so the guard deletes no other node in their place. If all of them keep running, set the target "
        f"to {len(nodes)} with `aws sagemaker update-cluster` before you try again"
    )


def still_counted(group: str, current: int, listed: int) -> Wait:
    return Wait(why=f'HyperPod still counts {several(current, "node")} in group "{group}", and lists {listed} of them')


def maybe_counted(group: str, current: int, booted: int) -> Wait:
    return Wait(
        why=f'HyperPod counts {several(current, "node")} in group "{group}", and {booted} of them have booted. The others are '
        "starting or terminating"
    )


def not_accepting(status: str) -> Wait:
    return Wait(why=f"the nodes are deleted, and the cluster is still {status}", passing=True)


def operation_in_progress(operation: str, began: datetime, group: str, before: int, after: int) -> Wait:
    return Wait(
        why=f'HyperPod\'s operation {operation} of {began:%Y-%m-%d %H:%M}, which lowers group "{group}" from {before} to {after} '
        "nodes, is in progress"
    )


def overtaken(group: str) -> Wait:
    return Wait(why=f'another request has just changed group "{group}"')


OVERTAKEN = Wait(why="another request has just changed the cluster")
OVER = Wait(why="the operation that requested this is over, so nothing more is done for it")
NOT_RECORDED = Wait(why="the stack's events do not show that CloudFormation waits for this request", passing=True)
NOT_DECIDED = Wait(why="the first look of this request may not have ended", passing=True)
NOT_SEALED = Wait(why="nothing shows that on_event has looked at this request", passing=True)
OTHER_REQUEST = Wait(why="CloudFormation's record of this resource has other properties than the request", passing=True)
ALREADY_DELETED = Wait(why="the nodes were deleted by another request")


# -- nodes that are drained -------------------------------------------------------------------------------------------


def not_ready(node: str, why: str) -> Wait:
    return Wait(why=f"{node} is not ready: {why}")


def held_by_patch(nodes: Sequence[str]) -> Wait:
    return Wait(
        why=f"`cdk-hyperpod patch` holds {some(nodes, 3)}, and releases {'it' if len(nodes) == 1 else 'them'} at its end"
    )


UNREAD = "the drain agent has not read the request yet"
UNREPORTED = "the drainer has not reported the node yet"


def unsaved(message: str) -> str:
    return f"it was not saved{f' ({message})' if message else ''}"


def agent_is_stuck(problem: str) -> Wait:
    return Wait(why=f"the drain agent on the controller reports: {one_line(problem)[:300]}")


def agent_is_unreachable(why: str) -> Wait:
    return Wait(why=f"the drain agent {why}")


def drainer_is_stuck(why: str) -> Wait:
    return Wait(why=f"the drainer fails: {one_line(why)[:300]}")
