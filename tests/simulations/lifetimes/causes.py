"""The unavoidable cases, each with a name, and the form of the rules by which the judge finds one.

A case counts only if the record shows its cause: its condition requires the action, the switch or the time that it is
for, in this group, within the relevant time.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum


class Cause(StrEnum):
    """The unavoidable cases. docs/evidence.md lists them."""

    CHANGED_BEFORE_OUR_CALL = "another party acts between the function's read and its call"
    CHANGED_BEFORE_CLOUDFORMATION = "another party acts between prepare's last read and CloudFormation's call"
    CANCELLED_BEFORE_OUR_CALL = "the deployment is cancelled between the function's read and its call"
    DOUBLE_LOWERING = "BatchDelete lowers the target once more after an explicit count"
    LATE_OVERWRITES = "a late lowering meets a count that another party sent meanwhile"
    HIDDEN_UNLAUNCHED = (
        "an update terminates other nodes before those that are not launched yet, which the list does not show"
    )
    UNREAD_IN_ROLLBACK = "a rollback that has no node left to delete, and cannot read the cluster at its deadline"
    STAYS_IN_ROLLBACK = "a rollback in which HyperPod launches deleted nodes again, until the deadline"
    LAUNCHED_MEANWHILE = (
        "HyperPod launches a node that the list did not show, between a read and the call that follows it"
    )
    STALE_LIST = "the list shows a node as it was before it terminated, and the target has not fallen"
    HIDDEN_COUNT = "CurrentCount leaves out booting nodes and still includes terminated ones"
    GUARD_NOT_CALLED = "CloudFormation saw no reason to call prepare"
    BACK_TO_TWO = "after an update that was left failed, prepare and the cluster return to different templates"
    STAYS = "the target stays, and HyperPod launches deleted nodes again"
    BACKWARDS = "the rollback runs in reverse order"
    AUTOSCALER_IN_ROLLBACK = "an autoscaler against a rollback"
    BY_HAND = "a group created by hand under the name of a deleted group"
    EVENTS_DENIED = "a rollback whose stack's events may not be read"
    STATUS_DENIED = "a rollback whose stack's status may not be read"
    KILLED = "a process that was killed in a rollback"
    BUSY_TOO_LONG = "a rollback during which the cluster is busy until the deadline"
    LEFT_OVER = "a target falls late by the nodes that a failed deployment deleted, after a later deployment sent a count that is not lower"
    LOWERED_TWICE = "deletions by the function, or by another party, lower the target late, one after the other"
    NEVER_PATCHED = "a rollback of a cluster whose software must be updated first"
    SLOW = "nodes are terminating until the deadline, and the deployment fails"
    STANDARD_TARGET = "a rollback under standard provisioning whose target stays above the count until the deadline, and terminates nodes"
    STILL_LEAVING = "a rollback during which nodes are terminating until the deadline"
    REPLACED_BEFORE_CLOUDFORMATION = "HyperPod replaces a node between prepare's last read and CloudFormation's call"
    MINIMUM_TIMED_OUT = "HyperPod gives up a minimum that was not met in three hours"
    ANOTHERS = "a rollback of a cluster that carries another stack's tag"
    UNDRAINED = "an operator undrains a node between the agent's status and the function's call"
    LEFT_OUT = "two lists in a row leave out the same node"
    DELETED_ALONE = "the deletion of a group turns off automatic patching of the other groups"
    HIDDEN_IMAGE = "a node that an update left out runs an older image than HyperPod shows of its group"
    SAME_IMAGE = "HyperPod gives nodes the image again that they have, because the file names it"
    IMAGE_IN_ROLLBACK = "a rollback that would give nodes another image"
    PATCHING_IN_ROLLBACK = (
        "a rollback turns off patching that another party set after the deployment began, or of a group to be deleted"
    )
    NOT_ENDED = "a rollback that three continue-update-rollback calls did not end"


FINE = None
Rules = Iterator[tuple[object, str | None]]
"""Conditions, each with its verdict: a Cause, a kind of fault, or FINE. The first that is true decides; no later one is
evaluated."""


def verdict_of(rules: Rules) -> str | None:
    return next((verdict for applies, verdict in rules if applies), FINE)
