"""`cdk-hyperpod watch`: follow the cluster during a deployment, until it is ready, rolled back, or failed, and show why."""

from __future__ import annotations

import math
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
from ..deployment.deleted_nodes import DeletedNodes, first, read_deleted
from ..deployment.stack_failures import StackFailure, read_refusal
from ..deployment.why import NEXT_STEPS, Failures, read_failures
from ..live import LiveError, NoClusterError, Target
from ..operations import superseded
from ..options import json_option, permissions
from .events import event_lines, event_reasons, event_words
from .logs import Reader, shown
from .watch_view import READY, End, View, began_at, end_of, is_under_way, state_content, state_lines

Reply = Mapping[str, Any]
SCHEMA = 1
IDLE_S, BUSY_S = 45.0, 15.0
"""Seconds between two looks of three calls each: four calls a minute while nothing changes."""
COUNT_S = 60.0
"""Seconds between two looks when only nodes are missing, and per page of nodes between two counts: one look's three calls and one
page a minute. Not every change of a node is an event, and a cluster with standard provisioning has no events."""
BEGIN_S = 600.0
"""How long there may be no cluster and no running deployment: between two stacks `cdk deploy` publishes assets."""
FAILED_LOOKS = 5
"""Failed looks in a row after which it gives up. Each call was tried several times (aws.ATTEMPTS)."""
FIRST_EVENTS, MOST_REASONS, MOST_LOGS, LOG_LINES = 10, 5, 3, 5
MOST_EVENTS = 500
"""Events that one look reads at most: HyperPod is known to keep 500."""
_REFUSED = "but CloudFormation refused the last change set, so the nodes run what was deployed before"
_UNCOUNTED = "ready by the counts of its groups; the nodes were not read"
_ROLLBACK_WORD = "rollback"
"""In the description of HyperPod's event about a rollback."""


@click.command(
    epilog=permissions(
        *("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes"),
        *("sagemaker:ListClusterEvents", "sagemaker:DescribeClusterEvent"),
        *("sagemaker:ListClusterOperations", "sagemaker:DescribeClusterOperation"),
        *("cloudformation:DescribeStacks", "cloudformation:DescribeStackEvents"),
        *("cloudformation:ListChangeSets", "cloudformation:DescribeEvents"),
        *("logs:DescribeLogStreams", "logs:GetLogEvents"),
        *("sagemaker:ListTags", "cloudformation:ListStackResources", "logs:FilterLogEvents"),
        besides="Without the permissions for events, stacks or logs, a note says so and the rest is shown. Without those for "
        "operations, superseded operations are not shown. The last three find deleted nodes with standard provisioning.\n\nExit code 0: ready. 3: rolled back. 4: the stack or the cluster "
        "failed. 1: the cluster cannot be watched. 130: Ctrl-C, which changes nothing.",
    )
)
@click.option(
    "--stack",
    metavar="NAME",
    help="The stack that has the cluster; default: hyperpod-NAME-cluster, this app's own.",
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
    """Follow the cluster during a deployment, until it is ready, rolled back, or failed.

    Example:
        cdk-hyperpod watch

    Prints HyperPod's events, the counts of each group when they change, the time at which a group below its minimum rolls
    back, and the last log lines of a node that fails. --json prints one document per line.
    """
    target = live.find(config=config, cluster=cluster, region=region, profile=profile)
    name = stack or (None if target.config is None else cluster_stack_name(target.name))
    return Watcher(target=target, stack=name, as_json=as_json).run()


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at the stack and the cluster."""

    view: View
    has_news: bool


def _pause(look: _Look, end: End | None) -> float:
    """Seconds until the next look. `end`: the counts are right, but some nodes do not run yet."""
    if look.has_news:
        return BUSY_S
    return IDLE_S if end is None else COUNT_S


@dataclass
class Watcher:
    """Reads the state, prints what is new, and waits."""

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
    _reads_events: bool = True
    """False: the permission is missing."""
    _running: bool | None = None
    """Whether all nodes were Running when they were counted last. None: not counted yet."""
    _uncounted: bool = False
    """The permission to list nodes is missing, so only the groups' counts are known."""
    _looks: int = 0
    """Successful looks."""
    _failed_looks: int = 0
    """Failed looks in a row."""
    _waited: float = 0
    """Seconds of all waits together."""
    _counted: float = 0
    """Value of `_waited` when nodes were counted last."""
    _count_s: float = COUNT_S
    """Seconds until they are counted again."""
    _moved: float = 0
    """Value of `_waited` when there last was a cluster, or a running deployment."""

    def run(self) -> int:
        """Watch until an end. Returns its exit code."""
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        while True:
            try:
                look = self._look()
                end = end_of(look.view)
                if end is not None and self._is_final(end, look):
                    return self._say_end(look.view, end)
            except (ClientError, BotoCoreError) as error:
                self._refuse_failed_look(error)
                seconds = IDLE_S
            else:
                self._looks, self._failed_looks = self._looks + 1, 0
                seconds = _pause(look, end)
            self.wait(seconds)
            self._waited += seconds

    def _refuse_failed_look(self, error: Exception) -> None:
        """Raises the error if another look is of no use, and otherwise notes it."""
        self._failed_looks += 1
        is_first = self._looks == 0
        if is_first or self._failed_looks == FAILED_LOOKS or not aws.is_passing(error):
            raise error
        self._note(f"a look failed and will be repeated: {aws.sentence(error)}")

    @staticmethod
    def wait(seconds: float) -> None:
        """Until the next look."""
        time.sleep(seconds)

    def _look(self) -> _Look:
        """Read, check, and print what is new."""
        view, events = self._read()
        self._give_up_without_cluster(view)
        is_changed = self._show_state(view)
        self._show_events(view.cluster or {}, events)
        return _Look(view, has_news=is_changed or bool(events))

    def _read(self) -> tuple[View, list[dict[str, Any]]]:
        """The stack and the cluster, and the cluster's new events."""
        cluster = self._cluster()
        stack = self._stack(has_cluster=cluster is not None)
        if cluster is None and stack is None:
            raise LiveError(self._nothing_there())
        self._seen_cluster |= cluster is not None
        if self.began is None:
            self.began = began_at(stack, cluster)
        events = [] if cluster is None else self._new_events(cluster)
        is_own = stack is None or self.stack in (stack["StackName"], stack.get("StackId"))
        return View(stack=stack, cluster=cluster, rolled_back=self._rolled_back, before=not is_own), events

    def _nothing_there(self) -> str:
        what = "the cluster was deleted" if self._seen_cluster else "there is nothing to watch"
        no_stack = f", and no stack {self.stack}" if self.stack else ""
        return f"{what}: there is no cluster {self.target.name} in {self.target.region}{no_stack}"

    def _show_state(self, view: View) -> bool:
        """Print the state if it changed; whether it did."""
        lines = state_lines(view, self.began, colour=tables.colour_wanted() and not self.as_json)
        content = state_content(view)
        # --json has members that the table leaves out if they are as usual.
        state = [*lines, tables.json_text("watch", SCHEMA, content)] if self.as_json else lines
        if state == self._state:
            return False
        self._state = state
        if live.is_continuous(view.cluster or {}):
            for sentence in superseded(self.target.client("sagemaker"), self.target.name, self.began):
                self._note(sentence)
        self._emit("state", [f"{tables.now():%H:%M:%S} {lines[0]}", *lines[1:]], content)
        return True

    def _show_events(self, cluster: Reply, events: list[dict[str, Any]]) -> None:
        """Print the events, and the logs of nodes that failed."""
        line_of = {} if self.as_json else event_lines(events)
        for event in events:
            has_line = event["EventId"] in line_of
            if self.as_json or has_line:
                self._emit("event", [line_of.get(event["EventId"], "")], dict(event))
            self._show_log(cluster, event)

    def _give_up_without_cluster(self, view: View) -> None:
        """Raises LiveError if for BEGIN_S there was no cluster, and no deployment that creates one."""
        is_waiting = view.cluster is None and view.stack is not None and not is_under_way(view.stack)
        if not is_waiting or end_of(view) is not None:
            self._moved = self._waited
            return
        if self._waited - self._moved < BEGIN_S:
            return
        assert view.stack is not None
        missing = f"no stack {self.stack} yet" if view.before else f"no cluster {self.target.name}"
        raise LiveError(
            f"no deployment is running: stack {view.stack['StackName']} is in {view.stack['StackStatus']}, and there is {missing}. "
            "Deploy, and watch again"
        )

    def _is_final(self, end: End, look: _Look) -> bool:
        """Whether it is the end. A cluster is not ready before its nodes are: groups count nodes that failed, too."""
        if end.code != READY:
            return True
        return self._all_run(look.view.cluster, has_news=look.has_news)

    def _all_run(self, cluster: Reply | None, *, has_news: bool) -> bool:
        """Whether every node is Running. The nodes are listed if something is new, and otherwise only every COUNT_S, since 6,758
        nodes take 68 calls."""
        from botocore.exceptions import ClientError

        if cluster is None:
            return False
        is_count_due = self._waited - self._counted >= self._count_s
        if self._running is not None and not has_news and not is_count_due:
            return self._running
        try:
            nodes = live.nodes(self.target, cluster)
        except ClientError as error:
            if aws.is_passing(error):
                raise
            if aws.is_gone(error):
                # The next look finds that the cluster was deleted.
                return False
            self._note(f"nodes are not counted: {aws.sentence(error)}")
            self._uncounted = True
            return True
        pages = max(math.ceil(len(nodes) / live.PAGE_SIZE), 1)
        self._counted, self._count_s = self._waited, COUNT_S * pages
        statuses = Counter(node.status for node in nodes if node.status != "Running")
        self._running = not statuses
        if statuses:
            self._note(f"not ready: {', '.join(f'{count} {status}' for status, count in sorted(statuses.items()))}")
        return self._running

    def _stack(self, *, has_cluster: bool) -> Reply | None:
        """The cluster's stack. While neither it nor the cluster exists, the stack that is deployed before it: network and storage."""
        if self.stack is None:
            return None
        found = self._described(self.stack)
        if found is None and self.target.config is not None and not (has_cluster or self._seen_cluster):
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
        """HyperPod's events since the last look, oldest first."""
        from botocore.exceptions import ClientError

        if not live.is_continuous(cluster):
            self._note("HyperPod keeps no events of this cluster. They need node_provisioning: continuous")
            return []
        if not self._reads_events:
            return []
        is_first = not self._events
        try:
            fresh = self._unseen_events(at_most=live.PAGE_SIZE if is_first else MOST_EVENTS)
        except ClientError as error:
            if aws.is_passing(error):
                raise
            self._reads_events = False
            self._note(f"HyperPod's events are not shown: {aws.sentence(error)}")
            return []
        self._events |= {event["EventId"] for event in fresh}
        if is_first:
            fresh = self._of_this_change(fresh)
        events = [dict(event) for event in reversed(fresh)]
        self._add_reasons(events)
        self._keep_rollback(events, is_first=is_first)
        return events

    def _of_this_change(self, events: list[Reply]) -> list[Reply]:
        """Of the first look's events, those of the change under way; otherwise the latest ones. Newest first."""
        if self.began is not None:
            recent = [event for event in events if event["EventTime"] >= self.began]
            if recent:
                return recent
        return events[:FIRST_EVENTS]

    def _add_reasons(self, events: list[dict[str, Any]]) -> None:
        """Read the reasons of the latest warnings and errors; one call each."""
        grave = [event for event in events if event.get("EventLevel") in ("Warn", "Error")]
        for event in grave[-MOST_REASONS:]:
            event["Reason"] = self._reason(event["EventId"])

    def _keep_rollback(self, events: list[dict[str, Any]], *, is_first: bool) -> None:
        """Remember that HyperPod rolled a group back. Rollbacks before this change do not count."""
        for event in events:
            is_recent = not is_first if self.began is None else event["EventTime"] >= self.began
            is_rollback = _ROLLBACK_WORD in str(event.get("Description", "")).lower()
            if is_recent and is_rollback:
                self._rolled_back = f"{event.get('InstanceGroupName', 'cluster')}: {event_words(event)}"

    def _unseen_events(self, *, at_most: int) -> list[Reply]:
        """Events that no earlier look has read, newest first. Pages are read until one has known events: 6,758 nodes that start at
        once have events each."""
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
            self._note(f"{at_most} or more events are new. Older ones are not shown")
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

    def _show_log(self, cluster: Reply, event: Reply) -> None:
        """Print the last lines of a failed node's log, once."""
        from botocore.exceptions import BotoCoreError, ClientError

        node = event.get("InstanceId")
        if not node or event.get("EventLevel") != "Error":
            return
        if node in self._logged or len(self._logged) >= MOST_LOGS:
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
        found = self._failures(view, end)
        deleted = self._deleted(end, found)
        if end.code == READY and found.stacks:
            end = replace(end, text=f"{end.text}, {_REFUSED}")
        text = f"{self.target.name}: {end.text}"
        colour = tables.GREEN if end.code == READY and not found.stacks else tables.RED
        lines = [tables.painted(text, colour if tables.colour_wanted() and not self.as_json else None)]
        lines += found.reasons
        lines += [] if deleted is None else deleted.lines()
        lines += [] if end.code == READY else [NEXT_STEPS]
        content = {"exit_code": end.code, "text": end.text, "reasons": found.reasons}
        self._emit("end", lines, content if deleted is None else {**content, "deleted_nodes": deleted.content()})
        return end.code

    def _failures(self, view: View, end: End) -> Failures:
        """Why the stack failed, or its last change set was refused; empty if neither happened, or if that cannot be read."""
        if view.stack is None:
            return Failures(stacks={})
        if end.code == READY:
            return self._refusals(view.stack)
        try:
            return read_failures(self.target.name, self.target.client, stack=str(view.stack["StackName"]))
        except HyperPodError as error:
            self._note(f"the reason is unknown: {error}")
        return Failures(stacks={})

    def _refusals(self, stack: Reply) -> Failures:
        """Why CloudFormation refused a change set of the stack, or of the one that is deployed before it, after the last operation on
        that stack; empty if it did not."""
        foundation = None if self.target.config is None else self._described(foundation_stack_name(self.target.name))
        found: dict[str, StackFailure] = {}
        for each in filter(None, (stack, foundation)):
            refusal = self._refusal(each)
            if refusal.reason is not None:
                found[str(each["StackName"])] = refusal
            if refusal.notes:
                # The other stack cannot be read for the same reason.
                self._note(refusal.notes[0])
                break
        return Failures(stacks=found)

    def _refusal(self, stack: Reply) -> StackFailure:
        since = stack.get("LastUpdatedTime") or stack["CreationTime"]
        return read_refusal(str(stack["StackName"]), self.target.client("cloudformation"), since)

    def _deleted(self, end: End, found: Failures) -> DeletedNodes | None:
        """The nodes that were deleted during the deployment that failed. None: it did not fail, or its beginning is unknown."""
        began = first([self.began, *(failure.began for failure in found.stacks.values())])
        return None if end.code == READY or began is None else read_deleted(self.target, began)

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
