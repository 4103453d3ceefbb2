"""What a template may read of each resource: the nodes that a deployment deleted, and the groups that still exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from ...kernel.sentences import cut, sentence, several, some
from ..model.actions import Picked

NOTHING = "nothing"
ATTRIBUTE_LIMIT = 2_500
"""Characters of an attribute: CloudFormation accepts 4,096 bytes of an answer, ids and all."""

MOST_SHOWN = 50
"""Nodes that an attribute names, in each of its lists."""


def deleted_nodes(
    when: datetime,
    deleted: Sequence[Picked],
    next_groups: Mapping[str, Sequence[str]],
    unsure: Sequence[str] | None,
    left_out: Mapping[str, int],
    listed: Sequence[Picked] = (),
) -> str:
    """Which nodes this deployment deleted.

    `listed`: nodes that it requested to delete as well, and that HyperPod still lists. `next_groups`: groups that it deletes next, with
    their nodes. `unsure`: other nodes that are no longer listed, and that another process may have deleted for it. None: there was
    no other process. `left_out`: node -> number of files that are not in its backup.
    """
    return _fitting(
        lambda most: " ".join(_list_all(when, deleted, next_groups, unsure, left_out, listed, most)) or NOTHING
    )


def _list_all(
    when: datetime,
    deleted: Sequence[Picked],
    next_groups: Mapping[str, Sequence[str]],
    unsure: Sequence[str] | None,
    left_out: Mapping[str, int],
    listed: Sequence[Picked],
    most: int,
) -> Iterator[str]:
    if deleted:
        shown = deleted[:most]
        yield f"{when:%Y-%m-%d %H:%M} UTC: {several(len(deleted), 'node')}."
        for group in dict.fromkeys(pick.group for pick in shown):
            yield f"{group}: {_list_group(shown, group, left_out)}."
        if len(deleted) > most:
            yield f"And {len(deleted) - most} more, in the log."
    if listed:
        yield f"The deletion was requested, and HyperPod still lists: {some([pick.name for pick in listed], most)}."
    for group, nodes in next_groups.items():
        yield f'Group "{group}" is deleted next, with {several(len(nodes), "node")} ({some(nodes, most)}).'
    if unsure is not None:
        yield "The log has all: another process of the function may have deleted more."
    if unsure:
        yield f"No longer listed, and maybe deleted by this deployment: {some(unsure, most)}."


def _list_group(picked: Sequence[Picked], group: str, left_out: Mapping[str, int]) -> str:
    return ", ".join(
        f"{pick.name} ({pick.reason}{not_in_backup(left_out.get(pick.name, 0))})"
        for pick in picked
        if pick.group == group
    )


def not_in_backup(files: int) -> str:
    """What follows the reason of a node whose backup has left files out."""
    return f"; {several(files, 'file')} left out of its backup" if files else ""


def existing_groups(
    groups: Mapping[str, Sequence[str]], deleting: Mapping[str, Sequence[str]], waits: Sequence[str] = ()
) -> str:
    """Groups that should be deleted by now, with the names of their nodes and what prevented it, and groups that HyperPod is
    deleting."""
    if not (groups or deleting or waits):
        return NOTHING
    lists = [f'group "{name}" with {several(len(nodes), "node")} ({some(nodes, 3)})' for name, nodes in groups.items()]
    again = "change scale_down.retry and deploy to go on" if groups else ""

    def make(most: int) -> str:
        parts = (*lists, *waits, again, *_accepted(deleting, most))
        return ". ".join(sentence(each).rstrip(".") for each in parts if each) + "."

    return _fitting(make)


def _accepted(deleting: Mapping[str, Sequence[str]], most: int) -> Iterator[str]:
    for name, nodes in deleting.items():
        yield (
            f'HyperPod accepted the deletion of group "{name}" with {several(len(nodes), "node")} ({some(nodes, most)}), and has '
            "not finished it. If the group stays, change scale_down.retry and deploy"
        )


def _fitting(make: Callable[[int], str]) -> str:
    """The text with as many names in each list as fit: what comes behind a list is not cut off for its names."""
    texts = map(make, range(MOST_SHOWN, 0, -1))
    return next((text for text in texts if len(text) <= ATTRIBUTE_LIMIT), cut(make(1), ATTRIBUTE_LIMIT))
