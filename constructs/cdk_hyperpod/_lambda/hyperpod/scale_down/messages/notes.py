"""Notes, and the lines of a plan in the log and in the dry run."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernel.refuse import Refuse
from ...kernel.sentences import several, some
from ..model.actions import Action, DeleteGroup, DeleteNodes, Lower, Pick, Wait

NOT_REACHED = "the failed update never reached the cluster, so there is nothing to undo"
NOT_OURS = "the cluster does not belong to this stack, so nothing is done to it"


def left_behind(group: str, nodes: int) -> str:
    return f'group "{group}" with {several(nodes, "node")} is not in the file. It stays, because this is a rollback'


def controller_excess(group: str) -> str:
    return f'the controller group "{group}" has more nodes than its count, and HyperPod never deletes a controller node'


def absent(ids: Sequence[str]) -> str:
    return f"not in this cluster: {some(ids)}"


def line(action: Action) -> str:
    """What an action does, in one line."""
    match action:
        case DeleteNodes():
            return f'delete {several(len(action.picks), "node")} of group "{action.group}": {picks(action.picks)}'
        case Lower():
            return f'set group "{action.group}" to a target of {action.count} and a minimum of {action.minimum}; no node is deleted'
        case DeleteGroup():
            return (
                f'delete group "{action.group}" with {several(action.nodes, "node")}, after the cluster\'s own update'
            )
        case Wait():
            return f"wait: {action.why}"
        case Refuse():
            return f"refuse: {action}"


def next_group(name: str, nodes: Sequence[str]) -> str:
    """A group that is deleted with the cluster's own update, or after it. `cdk-hyperpod why` reads this line and `line`'s."""
    return f'delete group "{name}" next, with {several(len(nodes), "node")}: {some(nodes, 200)}'


def picks(chosen: Sequence[Pick], shown: int = 200) -> str:
    """Nodes with their reasons."""
    return some((f"{pick.node.name} ({pick.reason})" for pick in chosen), shown)
