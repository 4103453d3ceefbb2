"""Which nodes HyperPod has deleted since a deployment began, and which it has launched since.

HyperPod's own events have every node, whoever asked for its deletion, and a rollback does not undo them. HyperPod keeps none of a
cluster with standard provisioning. There the guard's log names the nodes that it was about to delete. In both cases a node was
deleted only if HyperPod no longer lists it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, zip_longest
from typing import Any

from .. import aws, live, tables
from ..live import NoClusterError, Node, Target
from .deployed_stack import live_stack

Reply = Mapping[str, Any]
MOST_EVENTS = 500
"""Events that HyperPod is known to keep."""
_LAUNCH = re.compile(r"provisioned|\bcreation\b", re.IGNORECASE)
"""In the descriptions of events about a node that is launched."""
_PLANNED = re.compile(r'delete (?:\d+ nodes? of )?group "([^"]+)"[^:]*: (.*)')
"""A line of the guard's log (scale_down/messages/notes.py): the group, and its nodes."""
_NODE = re.compile(r"\bi-[0-9a-f]+\b")
_MOST_PAGES = 20
"""Pages of one log that are read at most."""
_ENDING = ("ShuttingDown",)
"""Statuses of nodes that are listed and will not stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedNodes:
    """Nodes that existed when the deployment began and were deleted since."""

    by_group: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Group -> ids of its deleted nodes."""
    launched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Group -> ids of nodes that it has now and that were launched since. Only groups with deleted nodes."""
    unread: str | None = None
    """Why it is not known, or not fully. None: it is."""

    def lines(self) -> list[str]:
        """For people: a table, or one sentence."""
        note = [] if self.unread is None else [f"note: {self.unread}"]
        if not self.by_group:
            return note or ["Deleted before it failed: no node."]
        pairs = [
            (group, *pair)
            for group, deleted in self.by_group.items()
            for pair in zip_longest(deleted, self.launched.get(group, ()), fillvalue="-")
        ]
        table = tables.table(("GROUP", "DELETED", "LAUNCHED SINCE"), pairs, columns=tables.width(), cut=(0,))
        return ["Deleted before it failed:", *table, *note]

    def content(self) -> list[dict[str, Any]]:
        """For --json."""
        return [
            {"group": group, "deleted": list(deleted), "launched_since": list(self.launched.get(group, ()))}
            for group, deleted in self.by_group.items()
        ]


def read_deleted(target: Target, since: datetime) -> DeletedNodes | None:
    """The nodes that were deleted at `since` or later. None: there is no cluster."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    try:
        cluster = live.describe(target)
        listed = live.nodes(target, cluster)
        events = _events(target, since) if live.is_continuous(cluster) else _logged(target, since)
    except NoClusterError:
        return None
    except (ClientError, BotoCoreError) as error:
        return DeletedNodes(unread=f"which nodes were deleted cannot be read: {aws.sentence(error)}")
    return deleted_nodes(listed, events, since)


def _events(target: Target, since: datetime) -> list[Reply]:
    listed = aws.pages(
        target.client("sagemaker").list_cluster_events,
        "Events",
        ClusterName=target.name,
        EventTimeAfter=since,
        ResourceType="Instance",
        SortBy="EventTime",
        SortOrder="Descending",
        MaxResults=live.PAGE_SIZE,
    )
    return [*islice(listed, MOST_EVENTS)]


def _logged(target: Target, since: datetime) -> list[Reply]:
    """The nodes that the guard was about to delete, by the logs of the cluster's stack, as events."""
    stack = live_stack(target.name, target.client)
    if stack is None:
        return []
    resources = aws.pages(
        target.client("cloudformation").list_stack_resources, "StackResourceSummaries", StackName=stack
    )
    groups = [each["PhysicalResourceId"] for each in resources if each["ResourceType"] == "AWS::Logs::LogGroup"]
    return [event for group in groups for line in _lines(target, group, since) for event in _planned(line)]


def _lines(target: Target, log_group: str, since: datetime) -> Iterator[str]:
    """The lines of a log that have the word delete."""
    call, token = target.client("logs").filter_log_events, dict[str, str]()
    for _ in range(_MOST_PAGES):
        reply = call(logGroupName=log_group, startTime=int(since.timestamp() * 1000), filterPattern="delete", **token)
        yield from (str(event["message"]) for event in reply.get("events", ()))
        if not reply.get("nextToken"):
            return
        token = {"nextToken": reply["nextToken"]}


def _planned(line: str) -> list[Reply]:
    found = _PLANNED.match(line)
    if found is None:
        return []
    return [{"InstanceId": node, "InstanceGroupName": found[1]} for node in _NODE.findall(found[2])]


def deleted_nodes(listed: Sequence[Node], events: Sequence[Reply], since: datetime) -> DeletedNodes:
    """The nodes that have events, are no longer listed, and were not launched since. Pure."""
    staying = [node for node in listed if node.instance_id and node.status not in _ENDING]
    here = {node.instance_id for node in staying} | {event["InstanceId"] for event in events if _is_launch(event)}
    groups = _by_group((group, node) for node, group in _named(events).items() if node not in here)
    new = _by_group((node.group, node.name) for node in staying if node.launched and node.launched >= since)
    missing = f"HyperPod keeps {MOST_EVENTS} events, so nodes that were deleted early may be missing"
    return DeletedNodes(
        by_group=groups,
        launched={group: nodes for group, nodes in new.items() if group in groups},
        unread=missing if len(events) >= MOST_EVENTS else None,
    )


def _named(events: Sequence[Reply]) -> dict[str, str]:
    """The group of each node that has an event."""
    return {
        event["InstanceId"]: str(event.get("InstanceGroupName", "?")) for event in events if event.get("InstanceId")
    }


def _is_launch(event: Reply) -> bool:
    return bool(event.get("InstanceId") and _LAUNCH.search(str(event.get("Description", ""))))


def _by_group(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for group, node in sorted(pairs):
        found.setdefault(group, []).append(node)
    return {group: tuple(nodes) for group, nodes in found.items()}


def first(times: Iterable[datetime | None]) -> datetime | None:
    """The earliest of these times, in UTC. None: none is known."""
    return min((time.astimezone(UTC) for time in times if time is not None), default=None)
