"""`cdk-hyperpod watch`: follow a cluster while it is made or changed, until it is ready, rolled back, or failed, and say why."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

import rich_click as click

from ...errors import HyperPodError
from ...names import cluster_stack_name, foundation_stack_name
from .. import aws, live, tables
from ..deployment.why import reasons
from ..live import LiveError, NoClusterError, Target
from ..operations import superseded
from ..options import json_option, rights
from .events import event_lines, event_reasons, event_words
from .logs import Reader, shown
from .watch_view import READY, End, View, began_at, end_of, is_under_way, state_content, state_lines

Reply = Mapping[str, Any]
SCHEMA = 1
IDLE_S, BUSY_S = 45.0, 15.0
"""Seconds between two looks, of three calls each: four calls a minute while nothing changes."""
COUNT_S = 60.0
"""Seconds between two looks where only nodes are waited for, and for each page of them between two counts: one look's three
calls and one page a minute. Not every change of a node is told as an event, and a standard cluster has none."""
BEGIN_S = 600.0
"""How long there may be no cluster and nothing under way: between two stacks `cdk deploy` publishes assets."""
FAILED_LOOKS = 5
"""So many in a row, and it gives up; each call was made several times (aws.ATTEMPTS)."""
FIRST_EVENTS, MOST_REASONS, MOST_LOGS, LOG_LINES = 10, 5, 3, 5
MOST_EVENTS = 500
"""Read in one look: as many as HyperPod is known to keep."""
_UNCOUNTED = "ready, as far as the counts of its groups tell"
_ROLLBACK_WORD = "rollback"
"""In the description of HyperPod's event, whatever its other words."""


@click.command(
    epilog=rights(
        *("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes"),
        *("sagemaker:ListClusterEvents", "sagemaker:DescribeClusterEvent"),
        *("sagemaker:ListClusterOperations", "sagemaker:DescribeClusterOperation"),
        *("cloudformation:DescribeStacks", "cloudformation:DescribeStackEvents"),
        *("logs:DescribeLogStreams", "logs:GetLogEvents"),
        besides="Without the rights to events, stacks or logs, a note says so and the rest goes on; without those to operations, nothing says which superseded which. Exit code 0: ready; 3: rolled "
        "back; 4: the stack or the cluster failed; 1: it cannot be watched; 130 after Ctrl-C, which changes nothing.",
    )
)
@click.option(
    "--stack",
    metavar="NAME",
    help="The stack that has the cluster in it; default: this app's own, hyperpod-NAME-cluster.",
)
@json_option
@live.target_options
def watch(
    stack: str | None,
    config: str,
    cluster: str | None,
    region: str | None,
    profile: str | None,
    *,
    as_json: bool,
) -> int:
    """Follow the cluster until it is ready, rolled back, or failed, with HyperPod's events and the reasons.

    Each group's current, minimum and target count is printed when it changes, and when a group that waits for its minimum
    rolls back. Of a node that fails, the last lines of its log come too. --json prints one document a line.
    """
    target = live.find(config=config, cluster=cluster, region=region, profile=profile)
    name = stack or (None if target.config is None else cluster_stack_name(target.name))
    return Watcher(target=target, stack=name, as_json=as_json).run()


@dataclass
class Watcher:
    """Looks, says what is new, and waits."""

    target: Target
    stack: str | None
    as_json: bool
    began: datetime | None = None
    _state: list[str] = field(default_factory=list)
    _events: set[str] = field(default_factory=set)
    _logged: set[str] = field(default_factory=set)
    _notes: set[str] = field(default_factory=set)
    _rolled_back: str = ""
    _seen_cluster: bool = False
    _running: bool | None = None
    _uncounted: bool = False
    """Nobody may list the nodes, so there are only the groups' counts."""
    _waited: float = 0
    """Seconds, over all waits."""
    _counted: float = 0
    """Of `_waited`, when nodes were counted last."""
    _count_s: float = COUNT_S
    """Until they are counted again."""
    _moved: float = 0
    """Of `_waited`, when there was a cluster last, or something under way."""

    def run(self) -> int:
        """Until an end; its exit code."""
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        looks = failed = 0
        while True:
            try:
                view, news = self._look()
                end = end_of(view)
                if end is not None and (end.code != READY or self._all_run(view, news=news)):
                    return self._say_end(view, end)
            except (ClientError, BotoCoreError) as error:
                failed += 1
                if not looks or failed == FAILED_LOOKS or not aws.is_passing(error):
                    raise
                self._note(f"a look failed, and another follows: {aws.sentence(error)}")
                seconds = IDLE_S
            else:
                looks, failed = looks + 1, 0
                seconds = BUSY_S if news else IDLE_S if end is None else COUNT_S
            self.wait(seconds)
            self._waited += seconds

    @staticmethod
    def wait(seconds: float) -> None:
        """Until the next look."""
        time.sleep(seconds)

    def _look(self) -> tuple[View, bool]:
        cluster = self._cluster()
        stack = self._stack(there=cluster is not None)
        if cluster is None and stack is None:
            raise LiveError(
                f"{'the cluster is gone' if self._seen_cluster else 'there is nothing to watch'}: no cluster {self.target.name} "
                f"in {self.target.region}" + (f", and no stack {self.stack}" if self.stack else "")
            )
        self._seen_cluster |= cluster is not None
        if self.began is None:
            self.began = began_at(stack, cluster)
        events = [] if cluster is None else self._new_events(cluster)
        before = stack is not None and stack["StackName"] != self.stack and stack.get("StackId") != self.stack
        view = View(stack=stack, cluster=cluster, rolled_back=self._rolled_back, before=before)
        self._give_up_without_cluster(view)
        lines = state_lines(view, self.began, colour=tables.colour_wanted() and not self.as_json)
        content = state_content(view)
        # --json has members that the table leaves out where they say nothing.
        state = [*lines, tables.json_text("watch", SCHEMA, content)] if self.as_json else lines
        changed = state != self._state
        if changed and live.is_continuous(cluster or {}):
            for sentence in superseded(self.target.client("sagemaker"), self.target.name, self.began):
                self._note(sentence)
        if changed:
            self._state = state
            self._emit("state", [f"{tables.now():%H:%M:%S} {lines[0]}", *lines[1:]], content)
        lines_of = {} if self.as_json else event_lines(events)
        for event in events:
            if self.as_json or event["EventId"] in lines_of:
                self._emit("event", [lines_of.get(event["EventId"], "")], dict(event))
            self._tell_log(cluster or {}, event)
        return view, changed or bool(events)

    def _give_up_without_cluster(self, view: View) -> None:
        """Raises LiveError where for long there has been no cluster, and nothing that makes one."""
        if view.cluster is not None or view.stack is None or is_under_way(view.stack) or end_of(view) is not None:
            self._moved = self._waited
        elif self._waited - self._moved >= BEGIN_S:
            status = f"stack {view.stack['StackName']} is in {view.stack['StackStatus']}"
            none = f"no stack {self.stack} yet" if view.before else f"no cluster {self.target.name}"
            raise LiveError(f"nothing is under way: {status}, and there is {none}; deploy, and watch again")

    def _all_run(self, view: View, *, news: bool) -> bool:
        """Whether no node has failed or is on its way: a group counts those too. Looked up where something is new, and
        otherwise as seldom as COUNT_S says, since 6,758 nodes are 68 calls."""
        from botocore.exceptions import ClientError

        if view.cluster is None:
            return False
        if not news and self._running is not None and self._waited - self._counted < self._count_s:
            return self._running
        try:
            nodes = live.nodes(self.target, view.cluster)
        except ClientError as error:
            if aws.is_passing(error):
                raise
            if aws.is_gone(error):
                # The next look says so of the cluster.
                return False
            self._note(f"nodes are not counted: {aws.sentence(error)}")
            self._uncounted = True
            return True
        self._counted, self._count_s = self._waited, COUNT_S * max(-(-len(nodes) // live.PAGE_SIZE), 1)
        statuses = Counter(node.status for node in nodes if node.status != "Running")
        self._running = not statuses
        if statuses:
            self._note(f"not ready: {', '.join(f'{count} {status}' for status, count in sorted(statuses.items()))}")
        return self._running

    def _stack(self, *, there: bool) -> Reply | None:
        """The cluster's stack, or while neither it nor the cluster is there, the one before it: that of network and storage."""
        if self.stack is None:
            return None
        found = self._described(self.stack)
        if found is None and self.target.config is not None and not (there or self._seen_cluster):
            return self._described(foundation_stack_name(self.target.name))
        return found

    def _described(self, name: str) -> Reply | None:
        from botocore.exceptions import ClientError

        try:
            (found,) = self.target.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
        except ClientError as error:
            if aws.is_passing(error):
                raise
            if "does not exist" not in str(error):
                self._note(f"the stack is not watched: {aws.sentence(error)}")
                self.stack = None
            return None
        stack: Reply = found
        return stack

    def _cluster(self) -> Reply | None:
        try:
            return live.describe(self.target)
        except NoClusterError:
            return None

    def _new_events(self, cluster: Reply) -> list[dict[str, Any]]:
        """What HyperPod says since the last look, oldest first."""
        from botocore.exceptions import ClientError

        if not live.is_continuous(cluster):
            self._note("HyperPod keeps no events of this cluster: they need node_provisioning continuous")
            return []
        if "events" in self._notes:
            return []
        first = not self._events
        try:
            fresh = self._unseen_events(at_most=live.PAGE_SIZE if first else MOST_EVENTS)
        except ClientError as error:
            if aws.is_passing(error):
                raise
            self._notes.add("events")
            self._note(f"HyperPod's events are not shown: {aws.sentence(error)}")
            return []
        self._events |= {event["EventId"] for event in fresh}
        if first:
            fresh = [e for e in fresh if self.began and e["EventTime"] >= self.began] or fresh[:FIRST_EVENTS]
        told = [dict(event) for event in reversed(fresh)]
        grave = [event for event in told if event.get("EventLevel") in ("Warn", "Error")]
        for event in grave[-MOST_REASONS:]:
            event["Reason"] = self._reason(event["EventId"])
        for event in told:
            # What HyperPod rolled back before this change says nothing of it.
            recent = not first if self.began is None else event["EventTime"] >= self.began
            if recent and _ROLLBACK_WORD in str(event.get("Description", "")).lower():
                self._rolled_back = f"{event.get('InstanceGroupName', 'cluster')}: {event_words(event)}"
        return told

    def _unseen_events(self, *, at_most: int) -> list[Reply]:
        """Newest first. A page follows where all of the one before was new: of 6,758 nodes that come up at once, each has its
        events."""
        client = self.target.client("sagemaker")
        listed = aws.pages(
            client.list_cluster_events,
            "Events",
            ClusterName=self.target.name,
            SortBy="EventTime",
            SortOrder="Descending",
            MaxResults=live.PAGE_SIZE,
        )
        fresh: list[Reply] = []
        while len(fresh) < at_most and (page := [*islice(listed, live.PAGE_SIZE)]):
            unseen = [event for event in page if event["EventId"] not in self._events]
            fresh += unseen
            if len(unseen) < live.PAGE_SIZE:
                return fresh
        if self._events and len(fresh) >= at_most:
            self._note(f"{at_most} events or more at once: those before them are not shown")
        return fresh

    def _reason(self, event_id: str) -> str:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            reply = self.target.client("sagemaker").describe_cluster_event(
                ClusterName=self.target.name, EventId=event_id
            )
        except (ClientError, BotoCoreError) as error:
            self._note(f"reasons of events are not shown: {aws.sentence(error)}")
            return ""
        details = reply["EventDetails"].get("EventDetails") or {}
        return "; ".join(dict.fromkeys(event_reasons(details.get("EventMetadata") or {})))

    def _tell_log(self, cluster: Reply, event: Reply) -> None:
        """The last lines of the log of a node that failed, once."""
        from botocore.exceptions import BotoCoreError, ClientError

        node = event.get("InstanceId")
        if event.get("EventLevel") != "Error" or not node or node in self._logged or len(self._logged) >= MOST_LOGS:
            return
        self._logged.add(node)
        try:
            lines = Reader(self.target, cluster, node, event.get("InstanceGroupName"), ["lifecycle"]).last(LOG_LINES)
        except (ClientError, BotoCoreError) as error:
            self._note(f"logs of failed nodes are not shown: {aws.sentence(error)}")
            return
        for line in lines:
            content = {"instance_id": node, "time": line[0], "source": line[1], "message": line[2]}
            self._emit("log", [f"    {node} {shown(line)}"], content)

    def _say_end(self, view: View, end: End) -> int:
        if end.code == READY and self._uncounted:
            end = replace(end, text=_UNCOUNTED)
        why = []
        if end.code != READY and view.stack is not None:
            try:
                why = reasons(self.target.name, self.target.client, stack=str(view.stack["StackName"]))
            except HyperPodError as error:
                self._note(f"why is not known: {error}")
        text = f"{self.target.name}: {end.text}"
        colour = tables.GREEN if end.code == READY else tables.RED
        lines = [tables.painted(text, colour if tables.colour_wanted() and not self.as_json else None), *why]
        self._emit("end", lines, {"exit_code": end.code, "text": end.text, "reasons": why})
        return end.code

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.add(text)
            self._emit("note", [f"note: {text}"], {"text": text})

    def _emit(self, kind: str, lines: list[str], content: Mapping[str, Any]) -> None:
        if self.as_json:
            tables.say_json("watch", SCHEMA, {"kind": kind, **content}, indent=None)
        else:
            tables.say(*lines)
        sys.stdout.flush()
