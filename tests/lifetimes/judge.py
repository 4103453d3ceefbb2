"""The contract of scale-down, as a judge of one lifetime. He knows what was true, and who did what when.

A fault breaks the contract. What cannot be helped is counted under a name, and only where the record shows its cause: an
exemption asks for the deed, the switch or the moment that it stands for, in this group, in the window that matters.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .cloudformation import CLUSTER, ClusterUpdate, Deployment, Template
from .function import FINALIZE, PREPARE, Killed, Request, Write
from .hyperpod import BUSY, Ending, Group

if TYPE_CHECKING:
    from .lifetime import Lifetime

# What cannot be helped, by name.
CHANGED_BEFORE_OUR_CALL = "somebody acts between the function's look and its call"
CHANGED_BEFORE_CLOUDFORMATION = "somebody acts between prepare's last look and CloudFormation's call"
CANCELLED_BEFORE_OUR_CALL = "the deployment is cancelled between the function's look and its call"
DOUBLE_LOWERING = "BatchDelete lowers the target once more after an explicit count"
LATE_OVERWRITES = "a late lowering meets a count that somebody else sent meanwhile"
STAYS_AND_COUNTS = "the target stays, and an update counts nodes on their way out"
LONG_SHUTDOWN = "nodes shut down for longer than prepare waits for a doubtful count"
HIDDEN_UNLAUNCHED = "an update ends others before nodes that were not launched yet, which the list does not show"
CANCELLED_AT_ONCE = "an update that is cancelled before the function's first look, and events that may not be read"
RAISED_MEANWHILE = "somebody raises a group in the middle, which looks as if the target stayed when nodes were taken"
STAYS_IN_ROLLBACK = "a rollback in which HyperPod launches again what is taken, until the deadline"
HIDDEN_COUNT = "CurrentCount leaves out booting nodes and still holds ended ones"
GUARD_NOT_CALLED = "CloudFormation saw no reason to call prepare"
BACK_TO_TWO = "after an update that was left in failure, prepare and the cluster go back to different templates"
STAYS = "the target stays, and HyperPod launches again what is taken"
BACKWARDS = "the rollback goes backwards"
AUTOSCALER_IN_ROLLBACK = "an autoscaler against a rollback"
BY_HAND = "a group made by hand under a tombstoned name"
EVENTS_DENIED = "a rollback whose stack's events may not be read"
STATUS_DENIED = "a rollback whose stack's status may not be read"
KILLED = "a process that was killed in a rollback"
BUSY_TOO_LONG = "a rollback during which the cluster is busy until the deadline"
NEVER_PATCHED = "a rollback of a cluster whose software somebody has to update first"
STILL_LEAVING = "a rollback during which nodes shut down until the deadline"
DENIED = "a rollback without the right to change the cluster"
REPLACED_BEFORE_CLOUDFORMATION = "HyperPod replaces a node between prepare's last look and CloudFormation's call"
MINIMUM_TIMED_OUT = "HyperPod takes a minimum back that was not met in three hours"


class Judge:
    def __init__(self, life: Lifetime) -> None:
        self.life = life
        self.faults: list[str] = []
        self.unavoidable: Counter[str] = Counter()
        self._seen = 0
        self._explicit: dict[str, list[tuple[float, object]]] = {}
        """Counts that the function or CloudFormation sent, by group."""

    def fault(self, kind: str, text: str) -> None:
        self.faults.append(f"{kind}: {text}")
        self.life.tell(f"!!! {kind}: {text}")

    def spare(self, name: str) -> None:
        self.unavoidable[name] += 1
        self.life.tell(f"(!) cannot be helped: {name}")

    # -- calls --

    def update_was_sent(self, write: Write, was: Mapping[str, Any]) -> None:
        """An UpdateCluster of the function took effect."""
        request, look = write.request, write.look
        self._over(write, "UpdateCluster")
        for name in write.groups:
            self._group_deleted(request, name)
        for name, count in write.counts.items():
            self._explicit.setdefault(name, []).append((write.at, write))
            if look is None or name not in look.measures:
                self.fault("UpdateCluster without a look", f"{request} sends {name}={count}")
                continue
            if count > look.measures[name].target and self.life.actors.since(look.since, name):
                self.spare(CHANGED_BEFORE_OUR_CALL)
            elif count > look.measures[name].target:
                self.fault(
                    "the function raises a target", f"{request}: {name} from {look.measures[name].target} to {count}"
                )
            took = sum(1 for earlier in request.writes for node in earlier.took if node.group == name)
            wanted = _counts(request.new).get(name, 0)
            autoscaled = name in _autoscaled(request.new) and not request.rollback
            if count < look.measures[name].target - took and (count < wanted or autoscaled):
                self.fault(
                    "a stale count", f"{request}: {name}={count}, target {look.measures[name].target}, {took} taken"
                )
        if write.specs and request.old is None and request.kind == PREPARE:
            self.fault("UpdateCluster without old properties", str(request))
        for spec in write.specs:
            live = was.get(spec["InstanceGroupName"])
            back = request.rollback and _same_but_counts(spec, _specs(request.new)[spec["InstanceGroupName"]])
            if live is not None and not (back or _same_but_counts(spec, live)):
                self.fault(
                    "UpdateCluster with another specification than the live one",
                    f"{request}: {spec['InstanceGroupName']}",
                )

    def batch_delete_was_sent(self, write: Write) -> None:
        """A BatchDeleteClusterNodes of the function took nodes."""
        request, look, life = write.request, write.look, self.life
        self._over(write, "BatchDelete")
        if request.kind == FINALIZE:
            self.fault("finalize takes nodes", str(request))
        if look is None:
            self.fault("BatchDelete without a look", str(request))
            return
        named = set() if request.rollback else set(request.new["NodesToDelete"])
        counts = _counts(request.new)
        if request.rollback and not request.deployment.reached:
            if life.faults.events_denied or life.faults.status_denied:
                self.spare(EVENTS_DENIED)
            else:
                self.fault("a rollback takes nodes though the cluster was not reached", str(request))
        for name in dict.fromkeys(node.group for node in write.took):
            took = [node for node in write.took if node.group == name]
            if name not in counts:
                self.fault("nodes of a group that is not in the template", f"{request}: {name}")
                continue
            self._taken(write, name, counts[name], took, named)
        if not request.rollback and not self._looks_like_a_rollback(request):
            # What replaces a taken node was not there to be counted.
            listed = life.switches.unlaunched_listed
            total = len(
                {
                    node
                    for earlier in request.writes
                    for node in earlier.took
                    if (node.wished if listed or node.launched is None else node.launched) <= request.heard
                }
            )
            if total > int(request.new["MaxNodes"]):
                self.fault("more than max_nodes", f"{request}: {total}")

    def _taken(self, write: Write, name: str, count: int, took: list[Any], named: set[str]) -> None:
        request, look, life = write.request, write.look, self.life
        assert look is not None
        by_count = [node for node in took if node.name not in named]
        before, then = write.before[name], look.measures.get(name)
        if then is None:
            self.fault("BatchDelete without a look", f"{request}: {name}")
            return
        by_name = len(took) - len(by_count)
        if by_count and name in _autoscaled(request.new):
            if not request.rollback:
                self.fault("a node of an autoscaled group that nobody named", f"{request}: {name}")
            else:
                self.spare(AUTOSCALER_IN_ROLLBACK)
        acted = bool(life.actors.since(look.since, name)) or self._others_ended(look.since, name)
        if len(by_count) > max(0, before.live - count - by_name):
            # A list has pages: who is on the first may end before the last is read.
            seen = sum(
                node["InstanceGroupName"] == name and node["InstanceStatus"]["Status"] != "ShuttingDown"
                for node in look.nodes
            )
            if acted and len(by_count) <= max(0, max(then.live, seen) - count - by_name):
                self.spare(CHANGED_BEFORE_OUR_CALL)
            else:
                self.fault(
                    "more nodes than the count allows",
                    f"{request}: {len(by_count)} by count and {by_name} by name of {before.live} in {name}, count {count}",
                )
        if by_name and name not in _autoscaled(request.new):
            of_group = [
                node for earlier in request.writes for node in earlier.took if node.group == name and node.name in named
            ]
            deployment = request.deployment
            at_first = sum(1 for group in deployment.old_nodes.values() if group == name)
            most = max(at_first, deployment.targets.get(name, 0), then.live + len(of_group) - by_name, then.target)
            if len(of_group) > most - count:
                self.fault("more names than the count allows", f"{request}: {len(of_group)} of {name}, count {count}")
        group = life.pod.groups.get(name)
        left = group.live if group else []
        if not request.rollback:
            old = [node for node in left if node.launched is not None and node.launched <= request.heard]
            sound = [n for n in by_count if n.launched is not None and n.launched <= request.heard and not n.failed]
            if sound and len(old) < count and len(left) > len(old) and not acted:
                self.fault(
                    "an older node goes because of a newer one", f"{request}: {name}: {', '.join(n.name for n in took)}"
                )

    def _order(self, write: Write, name: str) -> None:
        """Nobody stays who should have gone before one that went."""
        request, look = write.request, write.look
        assert look is not None
        if self._looks_like_a_rollback(request):
            return
        named = set() if request.rollback else set(request.new["NodesToDelete"])
        # What was wished for meanwhile replaces one that went: it may go before all others.
        by_count = {node.name for node in write.took if node.group == name and node.wished <= request.heard} - named
        asked = request.asked[look.at]
        since = None
        began = self.life.clock.datetime(request.heard).timestamp()
        if request.rollback:
            since = self.life.clock.datetime(request.deployment.began)
        went: list[tuple[Any, str]] = []
        stayed: list[tuple[Any, str]] = []
        rank: tuple[Any, ...]
        for node in look.nodes:
            if node["InstanceGroupName"] != name or node["InstanceStatus"]["Status"] == "ShuttingDown":
                continue
            node_id = str(node.get("InstanceId") or node.get("NodeLogicalId"))
            if node_id in named:
                continue
            launched = node.get("LaunchTime") if node.get("InstanceId") else None
            if since is None and launched is None:
                there = self.life.pod.node(node_id)
                if there is None or there.wished > request.heard:
                    continue  # It replaces one that went, and waits for that one.
            if since is not None:
                rank = (launched is not None and launched < since,)
            elif launched is not None and launched.timestamp() > began:
                continue
            else:
                rank = (
                    0
                    if node["InstanceStatus"]["Status"] == "Failure"
                    else 1
                    if launched is None
                    else 2
                    if node.get("ImageVersionStatus") == "UpdateAvailable"
                    else 3,
                    -launched.timestamp() if launched is not None else 0,
                )
            if node_id in by_count:
                went.append((rank, node_id))
            elif node_id not in asked:
                stayed.append((rank, node_id))
        if went and stayed and min(stayed)[0] < max(went)[0]:
            self.fault("the wrong order", f"{request}: {max(went)[1]} of {name} goes, {min(stayed)[1]} stays")

    def cluster_update_is_sent(self, update: ClusterUpdate, gone: Iterable[str]) -> None:
        """CloudFormation's handler is about to call UpdateCluster."""
        for name, count in update.counts.items():
            self._explicit.setdefault(name, []).append((self.life.clock.now, update))
            del count
        if update.rollback:
            return
        for name in gone:
            if name in update.deployment.new.groups_to_delete or name not in self.life.pod.groups:
                continue
            look = update.before.look if update.before else None
            if update.before is None:
                self.spare(GUARD_NOT_CALLED)
            elif look is not None and name not in look.measures and self.life.actors.since(look.since, name):
                self.spare(CHANGED_BEFORE_CLOUDFORMATION)
            else:
                self.fault("a group by accident", f"CloudFormation deletes {name}, which nobody named")

    # -- what ended --

    def look_at_endings(self) -> None:
        endings = self.life.pod.endings
        for ending in endings[self._seen :]:
            if ending.how == "at random" and ending.node.id:
                if ending.by == "function":
                    self._function_at_random(ending)
                elif ending.by == "cloudformation":
                    self._cloudformation_at_random(ending)
            elif ending.how == "late lowering" and ending.node.id:
                self._late_lowering(ending)
            elif ending.how == "minimum's rollback":
                self.spare(MINIMUM_TIMED_OUT)
        self._seen = len(endings)

    def _function_at_random(self, ending: Ending) -> None:
        write, name, life = ending.call, ending.node.group, self.life
        assert isinstance(write, Write)
        what = f"{write.request}: {ending.node.name} of {name}, by UpdateCluster {name}={write.counts.get(name)}"
        look = write.look
        if look is None or name not in look.measures:
            self.fault("the function ends a node at random, without a look", what)
            return
        then, before, count = look.measures[name], write.before[name], write.counts[name]
        # The call fits what lives, and only nodes on their way out make it end others: never what the count itself is to blame for.
        fits = before.live <= count
        since_heard = life.actors.since(write.request.heard, name)
        if life.switches.lowering == "never" and fits:
            # Without this call HyperPod would launch again what was taken, and with it counts what is still on its way out.
            self.spare(STAYS_AND_COUNTS)
        elif self._hidden_unlaunched(before.live - before.unlaunched, count):
            self.spare(HIDDEN_UNLAUNCHED)
        elif fits and any(deed.what.startswith(("raises", "adds")) and deed.group == name for deed in since_heard):
            self.spare(RAISED_MEANWHILE)
        elif fits and since_heard and life.switches.lowering == "late, absolute":
            self.spare(LATE_OVERWRITES)
        elif then.live <= count and not look.wrote_since and life.actors.since(look.since, name):
            self.spare(CHANGED_BEFORE_OUR_CALL)
        elif look.wrote_since and fits:
            self.fault(
                "the function ends a node at random, because nodes on their way out may be counted", f"{what}; {before}"
            )
        elif life.pod.ends_at_random(then, count):
            self.fault("the function ends a node at random", f"{what}; it saw {then}")
        elif not look.wrote_since and life.actors.since(look.since, name):
            self.spare(CHANGED_BEFORE_OUR_CALL)
        else:
            self.fault(
                "the function ends a node at random, with a stale count", f"{what}; it saw {then}, then {before}"
            )

    def _cloudformation_at_random(self, ending: Ending) -> None:
        update, name, life = ending.call, ending.node.group, self.life
        assert isinstance(update, ClusterUpdate)
        count = update.counts[name]
        what = (
            f"{ending.node.name} of {name}, by the cluster's {'rollback' if update.rollback else 'update'} to {count}"
        )
        prepare: Request | None = update.before
        if update.rollback and life.switches.rollback_backwards:
            self.spare(BACKWARDS)
            return
        if prepare is None:
            self.spare(GUARD_NOT_CALLED)
            return
        look = prepare.look
        if look is None or name not in look.measures:
            if life.actors.since(prepare.began, name):
                self.spare(CHANGED_BEFORE_CLOUDFORMATION)
            else:
                self.fault("CloudFormation ends a node at random, and prepare never looked", what)
            return
        then = look.measures[name]
        seen_in_time = not life.actors.since(look.since, name)
        if self._hidden_unlaunched(then.live - then.unlaunched, count):
            self.spare(HIDDEN_UNLAUNCHED)
        elif update.rollback and _counts(prepare.new).get(name) != count:
            self.spare(BACK_TO_TWO)
        elif update.rollback and self._autoscaler_acted(prepare.began, name):
            self.spare(AUTOSCALER_IN_ROLLBACK)
        elif seen_in_time and life.pod.ends_at_random(then, count):
            if then.live <= count and look.at - prepare.began > 290 and (then.leaving or then.ended):
                self.spare(LONG_SHUTDOWN)
            elif (
                then.live <= count
                and not life.switches.current_counts_booting
                and life.switches.counts_ended
                and then.ended
            ):
                self.spare(HIDDEN_COUNT)
            else:
                self.fault("CloudFormation ends a node at random, and prepare could know", f"{what}; it saw {then}")
        elif not seen_in_time:
            self.spare(CHANGED_BEFORE_CLOUDFORMATION)
        elif any(e.how == "replaced" and e.node.group == name and e.at >= look.since for e in life.pod.endings):
            self.spare(REPLACED_BEFORE_CLOUDFORMATION)
        else:
            self.fault("CloudFormation ends a node at random", f"{what}; prepare saw {then}")

    def _hidden_unlaunched(self, launched: int, count: int) -> bool:
        """The surplus is of nodes that nobody can see, nor take by name where the target stays, and others end for them."""
        switches = self.life.switches
        unseen = not (switches.unlaunched_listed and self.life.pod.continuous) or switches.lowering == "never"
        return unseen and not switches.unlaunched_first and launched <= count

    def _late_lowering(self, ending: Ending) -> None:
        """HyperPod lowers a target late, below what somebody sent meanwhile."""
        name = ending.node.group
        window = self.life.switches.lowering_delay + 1
        if self.life.switches.lowering == "when gone":
            window = 4 * 3600.0
        since = ending.at - window
        sent = [call for at, call in self._explicit.get(name, ()) if at >= since]
        ours = [call for call in sent if isinstance(call, Write)]
        theirs = [call for call in sent if isinstance(call, ClusterUpdate)]
        if self.life.actors.since(since, name):
            self.spare(LATE_OVERWRITES)
        elif ours:
            self.spare(DOUBLE_LOWERING)
        elif theirs and not (theirs[-1].before is None or theirs[-1].before.over):
            if self.life.switches.rollback_backwards and theirs[-1].rollback:
                self.spare(BACKWARDS)
            else:
                self.fault(
                    "CloudFormation's count met a target that had not fallen yet", f"{ending.node.name} of {name}"
                )
        else:
            self.spare(DOUBLE_LOWERING)

    # -- requests and deployments --

    def request_ended(self, request: Request) -> None:
        """CloudFormation has its answer, or no longer waits for one."""
        if request.over:
            return
        if not request.done or request.reason == "Operation timed out":
            self.fault("no answer within CloudFormation's hour", str(request))
            return
        if request.succeeded:
            self._told(request)
            return
        killed = isinstance(request.error, Killed)
        if not killed:
            self._sentence(request)
        if request.rollback:
            self._stuck(request, killed=killed)

    def _told(self, request: Request) -> None:
        """What went, and what still stands, is in the answer."""
        told = request.data or {}
        if any(len(str(value)) > 4096 or "\n" in str(value) for value in told.values()):
            self.fault("an output that is too long", str(request))
        if request.kind == FINALIZE and request.type != "Delete" and not request.rollback:
            for name in request.new["InstanceGroupsToDelete"]:
                group = self.life.pod.groups.get(name)
                stands = group is not None and group.status != "Deleting" and name not in _counts(request.new)
                if stands and not self.life.actors.since(request.began, name) and name not in str(told):
                    self.fault("a group stands in silence", f"{request}: {name}, told {told}")

    def _sentence(self, request: Request) -> None:
        reason = request.reason
        if not reason.strip() or "\n" in reason or len(reason) > 1000:
            self.fault("not one readable sentence", f"{request}: {reason[:200]!r} ({len(reason)} characters)")

    def _stuck(self, request: Request, *, killed: bool) -> None:
        life, pod = self.life, self.life.pod
        late = life.clock.now - request.began > 45 * 60
        if killed:
            self.spare(KILLED)
        elif pod.never_patched:
            self.spare(NEVER_PATCHED)
        elif life.faults.status_denied:
            self.spare(STATUS_DENIED)
        elif late and (pod.status in BUSY or any(_checked(group) for group in pod.groups.values())):
            self.spare(BUSY_TOO_LONG)
        elif late and any(node.leaving for group in pod.groups.values() for node in group.nodes):
            self.spare(STILL_LEAVING)
        elif late and any(group.under_way for group in pod.groups.values()):
            self.spare(BUSY_TOO_LONG)
        elif late and life.switches.lowering == "never" and request.writes:
            self.spare(STAYS_IN_ROLLBACK)
        elif late and any(
            group.name in _autoscaled(request.new) and len(group.live) > _counts(request.new).get(group.name, 0)
            for group in pod.groups.values()
        ):
            self.spare(AUTOSCALER_IN_ROLLBACK)
        else:
            self.fault("a rollback gets stuck", f"{request}: {request.reason[:300]}")

    def deployment_ended(self, deployment: Deployment, expected: Expected | None) -> None:
        """`expected`: what had to come of it; absent: somebody or something interfered."""
        self.look_at_endings()
        for request in deployment.requests:
            for write in request.writes:
                if write.look is not None:
                    for name in dict.fromkeys(node.group for node in write.took):
                        self._order(write, name)
        first = next((r for r in deployment.requests if r.kind == PREPARE and not r.rollback), None)
        if expected is None or expected.doubtful or first is None or first.over:
            return
        if expected.refused:
            if first.succeeded:
                self.fault("not refused", f"{deployment.what}: {'; '.join(expected.refused)}")
            elif any(not write.request.rollback for request in deployment.requests for write in request.writes):
                self.fault("a refusal after a change", f"{deployment.what}: {first.reason[:200]}")
            return
        if not first.succeeded and self.life.switches.lowering == "never" and any(w.took for w in first.writes):
            self.spare(STAYS)
            return
        if not first.succeeded:
            self.fault("a sound deployment fails", f"{deployment.what}: {first.reason[:300]}")
            return
        took = {node.name: node.group for write in first.writes for node in write.took}
        for name, number in expected.takes.items():
            found = sum(1 for group in took.values() if group == name)
            if found != number and expected.exact:
                self.fault("not the expected number of nodes", f"{deployment.what}: {found} of {name}, not {number}")
        if not any(expected.takes.values()) and first.writes:
            self.fault("a change where nothing was to change", f"{deployment.what}: {first.writes[0].kind}")
        for node in expected.named - set(took):
            self.fault("a named node was not taken", f"{deployment.what}: {node}")
        if deployment.outcome == "succeeded":
            for name in expected.groups:
                group = self.life.pod.groups.get(name)
                if group is not None and group.status != "Deleting":
                    self.fault("a group that should have gone still stands", f"{deployment.what}: {name}")

    # -- inside --

    def _over(self, write: Write, what: str) -> None:
        request = write.request
        if write.over and self._looks_like_a_rollback(request):
            self.spare(CANCELLED_AT_ONCE)
        elif write.over:
            self.fault("a change for a deployment that is over", f"{write.request}: {what}")
        elif write.request.over:
            self.spare(CANCELLED_BEFORE_OUR_CALL)

    def _looks_like_a_rollback(self, request: Request) -> bool:
        """The function first saw its stack when the update was cancelled already, and nothing tells it that it is of that."""
        if not request.over or not self.life.faults.events_denied:
            return False
        cancelled, looked = request.deployment.cancelled_at, request.looked
        return cancelled is not None and cancelled <= (request.heard if looked is None else looked)

    def _group_deleted(self, request: Request, name: str) -> None:
        life = self.life
        if request.kind != FINALIZE:
            self.fault("prepare deletes a group", f"{request}: {name}")
        wanted = set(request.new["InstanceGroupsToDelete"])
        if request.rollback and request.old is not None:
            wanted |= set(_counts(request.old)) - set(_counts(request.new))
        if name in _counts(request.new) or name not in wanted:
            self.fault("a group by accident", f"{request} deletes {name}")
        elif any(deed.what == "makes the group" and deed.group == name for deed in life.actors.deeds):
            self.spare(BY_HAND)

    def _others_ended(self, at: float, name: str) -> bool:
        return any(
            ending.at >= at and ending.node.group == name and ending.by != "function"
            for ending in self.life.pod.endings[-40:]
        )

    def _autoscaler_acted(self, since: float, name: str) -> bool:
        return any(deed.by == "autoscaler" for deed in self.life.actors.since(since, name))


class Expected:
    """What has to come of a deployment where nobody interferes: the contract's table, on what is true when it begins."""

    def __init__(self, life: Lifetime, old: Template, new: Template) -> None:
        pod = life.pod
        counts = new.counts
        self.refused: list[str] = []
        self.takes: dict[str, int] = {}
        self.named: set[str] = set()
        self.doubtful = False
        """The contract does not say what has to come of it."""
        self.groups = [name for name in new.groups_to_delete if name in pod.groups]
        self.exact = pod.continuous and life.switches.lowering != "never"
        known = {node.name: node for group in pod.groups.values() for node in group.nodes}
        by_count = total = 0
        for name, group in pod.groups.items():
            if group.status == "Deleting":
                continue
            if name not in counts:
                total += len(group.live)
                if name not in new.groups_to_delete:
                    self.refused.append(f"{name} is in neither list")
                elif group.controller:
                    self.refused.append(f"{name} is the controller")
                elif not (set(pod.groups) | set(counts)) - set(new.groups_to_delete):
                    self.refused.append(f"{name} is the last one")
                continue
            count, live = counts[name], len(group.live)
            spec = next(spec for spec in new.groups if spec["InstanceGroupName"] == name)
            if any(spec.get(key) != group.spec.get(key) for key in ("InstanceType", "ExecutionRole", "ThreadsPerCore")):
                self.refused.append(f"{name}: something that is for life differs")
            named = [node for node in group.live if node.name in new.nodes_to_delete]
            if named and group.controller:
                self.refused.append(f"{name}: a controller is named")
            too_many = len(named) > max(group.target, live) - count
            if name in new.autoscaled and named and too_many:
                self.doubtful = True
            elif named and too_many:
                self.refused.append(f"{name}: {len(named)} named, count {count}, target {group.target}, live {live}")
            more = 0 if name in new.autoscaled else max(0, live - count - len(named))
            if more and group.controller:
                self.refused.append(f"{name}: the controller's count falls")
            if (
                name in new.autoscaled
                and count < group.target - len(named)
                and old.properties(CLUSTER) != new.properties(CLUSTER)
            ):
                self.refused.append(f"{name}: autoscaled, target {group.target}, count {count}")
            by_count += more
            self.takes[name] = more + len(named)
            self.named |= {node.name for node in named}
            total += more + len(named)
        for name in new.groups_to_delete:
            if name in counts:
                self.refused.append(f"{name} is in both lists")
        guard = life.stack.known[PREPARE]
        deployed = guard.nodes_to_delete if guard else ()
        strangers = [name for name in new.nodes_to_delete if name not in known and name not in deployed]
        if strangers and by_count:
            self.refused.append(f"{strangers[0]} is in no group, and {by_count} would go by count")
        if total > new.max_nodes:
            self.refused.append(f"{total} nodes, max_nodes {new.max_nodes}")


def _specs(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {spec["InstanceGroupName"]: spec for spec in map(json.loads, properties["Groups"])}


def _counts(properties: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(spec["InstanceCount"]) for name, spec in _specs(properties).items()}


def _autoscaled(properties: Mapping[str, Any]) -> list[str]:
    return list(properties["AutoscaledGroups"])


def _same_but_counts(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    left_out = ("InstanceCount", "MinInstanceCount")
    return {k: v for k, v in one.items() if k not in left_out} == {k: v for k, v in other.items() if k not in left_out}


def _checked(group: Group) -> bool:
    return any(node.status == "DeepHealthCheckInProgress" for node in group.nodes)
