"""The contract of scale-down, as a judge of one lifetime. It knows what was true, and which party did what when.

A fault breaks the contract. An unavoidable case is counted under a name, and only if the record shows its cause: an
exemption requires the action, the switch or the time that it is for, in this group, within the relevant time.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from .cloudformation import CLUSTER, STACK, TAG, ClusterUpdate, Deployment, Template
from .function import FINALIZE, PREPARE, Killed, Look, Request, Write
from .hyperpod import BUSY, Ending, Group, Lowering
from .software import IMAGES, PATCHING, Dropped, ReImaging, ami, moved_on, release_of

if TYPE_CHECKING:
    from .lifetime import Lifetime
    from .readiness import Readiness


CLOCKS = 60.0
"""Seconds within which it is unknown whether a node was launched before an event: LaunchTime and the function's clock
may differ by 30 s, in either direction."""


class Cause(StrEnum):
    """The unavoidable cases, each with a name. docs/evidence.md lists them."""

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


class Judge:
    def __init__(self, life: Lifetime) -> None:
        self.life = life
        self.faults: list[str] = []
        self.unavoidable: Counter[str] = Counter()
        self.readiness: Readiness | None = None
        """Nodes are drained before they are deleted."""
        self._seen = self._seen_images = self._seen_dropped = 0
        self._explicit: dict[str, list[tuple[float, object]]] = {}
        """Counts that the function or CloudFormation sent, by group."""

    def fault(self, kind: str, text: str) -> None:
        self.faults.append(f"{kind}: {text}")
        self.life.tell(f"!!! {kind}: {text}")

    def spare(self, name: Cause) -> None:
        self.unavoidable[name.value] += 1
        self.life.tell(f"(!) unavoidable: {name}")

    # -- calls --

    def update_is_asked_for(self, write: Write, shown: Mapping[str, Mapping[str, Any]]) -> None:
        """The function calls UpdateCluster. Whatever the result, it knew what it had read."""
        for name in write.groups:
            if shown.get(name, {}).get("Status") == "Deleting":
                self.fault("a group that is being deleted is asked for again", f"{write.request}: {name}")

    def update_was_sent(self, write: Write, was: Mapping[str, Any]) -> None:
        """An UpdateCluster of the function took effect."""
        request, look = write.request, write.look
        self._over(write, "UpdateCluster")
        for name in write.groups:
            self._group_deleted(write, name)
        if write.counts and look is not None and look.wrote_since:
            self.fault("UpdateCluster without another look after a change", str(request))
        for name, count in write.counts.items():
            self._explicit.setdefault(name, []).append((write.at, write))
            if look is None or name not in look.measures:
                self.fault("UpdateCluster without a look", f"{request} sends {name}={count}")
            else:
                self._count_sent(write, look, name, count)
        if write.specs and request.old is None and request.kind == PREPARE:
            self.fault("UpdateCluster without old properties", str(request))
        for spec in write.specs:
            live = was.get(spec["InstanceGroupName"])
            back = request.rollback and _same_but_counts(spec, _specs(request.new)[spec["InstanceGroupName"]])
            if live is not None and not (back or _same_but_counts(spec, live)):
                guard, cluster = (self.life.stack.known[each] for each in (PREPARE, CLUSTER))
                if guard and cluster and _spec_of(guard, spec) != _spec_of(cluster, spec):
                    self.spare(Cause.BACK_TO_TWO)
                    continue
                self.fault(
                    "UpdateCluster with another specification than the live one",
                    f"{request}: {spec['InstanceGroupName']}",
                )

    def _count_sent(self, write: Write, look: Look, name: str, count: int) -> None:
        """Every count must obey what was true when the function looked."""
        request, then = write.request, look.measures[name]
        what = f"{request}: {name}={count}, target {then.target}"
        if count > look.before[name].target and count > then.target:
            self.fault("the function raises a target", what)
        elif count > write.before[name].target:
            group = self.life.pod.groups[name]
            if self.life.actors.counted_since(look.since, name) or group.lowered_since(look.since):
                self.spare(Cause.CHANGED_BEFORE_OUR_CALL)
            else:
                self.fault("the function raises a target", what)
        if request.kind == FINALIZE:
            return  # It sends what CloudFormation sent right before.
        took = sum(1 for earlier in request.writes for node in earlier.took if node.group == name)
        wanted = _counts(request.new).get(name, 0)
        # A rollback sends a count to every group, including an autoscaler's.
        autoscaled = name in _autoscaled(request.new) and not request.rollback
        if count < then.target - took and (count < wanted or autoscaled):
            self.fault("a stale count", f"{what}, {took} taken")
        listed = [node for node in look.nodes if node["InstanceGroupName"] == name]
        leaving = sum(node["InstanceStatus"]["Status"] == "ShuttingDown" for node in listed)
        if leaving and len(listed) > count:
            self.fault("UpdateCluster while nodes are on their way out", f"{what}, {leaving} shut down")
        first = request.first_look
        if autoscaled and count < then.target and first is not None:
            deeds = [deed for deed in self.life.actors.counted_since(first.at, name) if deed.at < look.since]
            if any(deed.raises for deed in deeds):
                self.fault("UpdateCluster where an autoscaler added nodes", what)

    def batch_delete_was_sent(self, write: Write) -> None:
        """A BatchDeleteClusterNodes of the function deleted nodes."""
        request, look = write.request, write.look
        self._over(write, "BatchDelete")
        if self.readiness:
            self.readiness.nodes_taken(write)
        if request.kind == FINALIZE:
            self.fault("finalize takes nodes", str(request))
        if look is None:
            self.fault("BatchDelete without a look", str(request))
            return
        named = set() if request.rollback else set(request.new["NodesToDelete"])
        counts = _counts(request.new)
        if request.rollback and not request.deployment.reached:
            if self._left_in_failure(request):
                self.spare(Cause.BACK_TO_TWO)
            else:
                self.fault("a rollback takes nodes though the cluster was not reached", str(request))
        for name in dict.fromkeys(node.group for node in write.took):
            took = [node for node in write.took if node.group == name]
            if name not in counts:
                self.fault("nodes of a group that is not in the template", f"{request}: {name}")
                continue
            self._taken(write, name, counts[name], took, named)
            self._overtakes(write, name)
        if not request.rollback:
            total = self._limited(request)
            if total > int(request.new["MaxNodes"]) and request.left_out:
                self.spare(Cause.LEFT_OUT)
            elif total > int(request.new["MaxNodes"]):
                self.fault("more than max_nodes", f"{request}: {total}")

    def _limited(self, request: Request) -> int:
        """How many of the deleted nodes max_nodes counts.

        The replacement of a deleted node did not exist when they were counted. Nodes that are not launched are
        equivalent: if others requested more meanwhile, it deleted those.
        """
        listed, pod = self.life.switches.unlaunched_listed, self.life.pod
        took = {
            node
            for write in request.writes
            for node in write.took
            if (node.requested if listed or node.launched is None else node.launched) <= request.heard
        }
        total = len(took)
        for name in {node.group for node in took} & pod.groups.keys():
            more = sum(
                node.id is None and node.requested > request.heard and node.by in ("person", "autoscaler")
                for node in pod.groups[name].live
            )
            total -= min(more, sum(node.group == name and node.id is None for node in took))
        return total

    def _overtakes(self, write: Write, name: str) -> None:
        """For ten minutes no node is deleted while HyperPod's record shows another party's lower count for its
        group."""
        request, pod = write.request, self.life.pod
        told = pod.switches.operations.startswith("told") and not request.unwitnessed
        if not told or request.rollback or write.at - request.heard >= 600:
            return
        for operation in pod.operations:
            before, after = operation.targets.get(name, (0, 0))
            if operation.at < request.began and after < before and pod.status_of(operation, name) == "InProgress":
                self.fault("takes nodes of a group that another operation lowers", f"{request}: {name}, {operation.by}")

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
                self.spare(Cause.AUTOSCALER_IN_ROLLBACK)
        acted = bool(life.actors.counted_since(look.since, name)) or self._others_ended(look.since, name)
        if len(by_count) > max(0, before.live - count - by_name):
            # A list has pages, and a node of the first page may be terminated before the last is read.
            seen = sum(
                node["InstanceGroupName"] == name and node["InstanceStatus"]["Status"] != "ShuttingDown"
                for node in look.nodes
            )
            earlier = sum(
                node.group == name
                for other in request.writes[:-1]
                if other.look is not None and other.look.at == look.at
                for node in other.took
            )
            # If the target shows it, an update waits. A rollback that has waited deletes what the failed update
            # launched.
            failed_ones = request.rollback and all(node.requested >= request.deployment.began for node in by_count)
            told = seen > look.shown[name]["TargetCount"] and not failed_ones
            stale = 0 if told else self._stale(look, name, request)
            if stale and len(by_count) <= max(0, before.live + stale - count - by_name):
                self.spare(Cause.STALE_LIST)
            elif acted and len(by_count) <= max(0, max(then.live, seen) - earlier - count - by_name):
                self.spare(Cause.CHANGED_BEFORE_OUR_CALL)
            elif self._against_autoscaler(request, name) and all(
                node.requested >= request.deployment.began for node in by_count
            ):
                # The list shows deleted nodes as they were, and the autoscaler keeps requesting more. No node from
                # before the failed update is deleted.
                # before the failed update goes.
                self.spare(Cause.AUTOSCALER_IN_ROLLBACK)
            elif self._shown_as_they_were(look, name, ours=True, request=request) and all(
                node.requested > request.heard for node in by_count
            ):
                # The same in an update, for nodes that HyperPod launches to replace the deleted ones.
                self.spare(Cause.STALE_LIST)
            else:
                self.fault(
                    "more nodes than the count allows",
                    f"{request}: {len(by_count)} by count and {by_name} by name of {before.live} in {name}, count {count}",
                )
        if by_name and name not in _autoscaled(request.new):
            of_group = [
                node for earlier in request.writes for node in earlier.took if node.group == name and node.name in named
            ]
            first = request.first_look or look
            most = max(then.live + len(of_group) - by_name, then.target, look.before[name].target)
            if name in first.measures:
                most = max(most, first.measures[name].live, first.measures[name].target, first.before[name].target)
            too_many = len(of_group) > most + self._stale(first, name, request) - count
            if too_many and name in request.left_out:
                self.spare(Cause.LEFT_OUT)
            elif too_many:
                self.fault("more names than the count allows", f"{request}: {len(of_group)} of {name}, count {count}")
        group = life.pod.groups.get(name)
        left = group.live if group else []
        # In a rollback, everything that the failed update launched is newer than what existed before. Otherwise the
        # function decides at its first look, a minute after the request: nodes launched between the two are neither old
        # nor newer.
        since = request.deployment.began if request.rollback else request.heard
        until = since if request.rollback else max(since + CLOCKS, (request.first_look or look).at)
        old = [node for node in left if node.launched is not None and node.launched <= until]
        newer = [node for node in left if node.launched is None or node.launched > until]
        if not request.rollback:
            # A node that was requested before the request and launched by this look existed, and the documented order
            # holds.
            newer = [
                node for node in newer if node.requested > since or node.launched is None or node.launched > look.at
            ]
        sound = [node for node in by_count if node.launched is not None and node.launched <= since]
        if not request.rollback:
            sound = [node for node in sound if not node.failed]
        if sound and len(old) < count and newer and not (acted or self._stale(look, name, request)):
            self.fault(
                "an older node goes because of a newer one", f"{request}: {name}: {', '.join(n.name for n in took)}"
            )

    def _order(self, write: Write, name: str) -> None:
        """No node stays that should have been deleted before one that was, by the current state or by that of the first
        look: nodes chosen then stay chosen."""
        look, first = write.look, write.request.first_look
        assert look is not None
        now = self._ranks(write, name, look)
        then = self._ranks(write, name, first) if first is not None else {}
        # A node that was not launched when it was requested may have another name now.
        asked = {
            node.name for node in self.life.pod.ever.values() if {node.id, node.logical} & write.request.asked[look.at]
        }
        went = {node.name for node in write.took} & now.keys()
        for gone in went:
            for stays in now.keys() - went - asked:
                standing = {gone, stays} <= then.keys() and then[gone] < then[stays]
                # Both were chosen, and then fewer had to be deleted. Whether they are being drained still does not
                # matter.
                chosen = {gone, stays} <= write.request.drained and now[gone][1:] < now[stays][1:]
                if now[stays] < now[gone] and name in write.request.left_out:
                    self.spare(Cause.LEFT_OUT)
                    return
                if now[stays] < now[gone] and not (standing or chosen):
                    self.fault("the wrong order", f"{write.request}: {gone} of {name} goes, {stays} stays")
                    return

    def _ranks(self, write: Write, name: str, look: Look) -> dict[str, tuple[Any, ...]]:
        """Each node of the group that may be deleted by count, and its place in the documented order; the lowest is
        deleted first."""
        request = write.request
        named = set() if request.rollback else set(request.new["NodesToDelete"])
        heard = self.readiness.heard(request, look) if self.readiness else {}
        # A node that was requested meanwhile replaces a deleted one, and may be deleted before all others.
        by_count = {node.name for node in write.took if node.group == name and node.requested <= request.heard} - named
        nodes = {name: node for node in self.life.pod.ever.values() for name in (node.id, node.logical) if name}
        ranks: dict[str, tuple[Any, ...]] = {}
        for shown in look.nodes:
            if shown["InstanceGroupName"] != name or shown["InstanceStatus"]["Status"] == "ShuttingDown":
                continue
            node = nodes[str(shown.get("InstanceId") or shown["NodeLogicalId"])]
            if node.name in named:
                continue
            launched = node.launched if shown.get("InstanceId") else None
            if request.rollback:
                ranks[node.name] = (launched is not None and launched < request.deployment.began,)
                continue
            if launched is None and node.requested > request.heard:
                continue  # It replaces a deleted node, and waits for its termination.
            if launched is None and node.name not in by_count and (write.unheard or request.succeeded is False):
                continue  # A node that is not launched may be cancelled with the target, after the others: the function got no further.
            if launched is not None and launched > request.heard - CLOCKS:
                continue  # Perhaps before the request began, perhaps not: clocks differ.
            order = {"Failure": 0}.get(shown["InstanceStatus"]["Status"], 1 if launched is None else 3)
            if order == 3 and shown.get("ImageVersionStatus") == "UpdateAvailable":
                order = 2
            ranks[node.name] = (*heard.get(node.name, (True, False)), order, -(launched or 0.0))
        return ranks

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
                self.spare(Cause.GUARD_NOT_CALLED)
            elif look is not None and name not in look.measures and self.life.actors.since(look.since, name):
                self.spare(Cause.CHANGED_BEFORE_CLOUDFORMATION)
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
            elif ending.how == "minimum's rollback" and ending.node.id:
                if ending.call == "function":
                    self.fault("a minimum that the function sent is taken back", f"{ending.node.name}")
                else:
                    self.spare(Cause.MINIMUM_TIMED_OUT)
            elif ending.how == "with its group" and self.readiness:
                self.readiness.group_deleted(ending)
        self._seen = len(endings)
        self._look_at_software()

    def _look_at_software(self) -> None:
        """A deployment never re-images a node, and never turns patching off."""
        software = self.life.pod.software
        for made in software.re_images[self._seen_images :]:
            if made.by == "function":
                self.fault("the function re-images a node", f"{made.node.name} of {made.node.group}: {made.after}")
            elif made.by == "cloudformation":
                self._re_imaged(made)
        self._seen_images = len(software.re_images)
        for dropped in software.dropped[self._seen_dropped :]:
            if dropped.by in ("function", "cloudformation"):
                self._patching_dropped(dropped)
        self._seen_dropped = len(software.dropped)

    def _re_imaged(self, made: ReImaging) -> None:
        update, name = made.call, made.node.group
        assert isinstance(update, ClusterUpdate)
        what = f"{made.node.name} of {name} from {made.before} to {made.after}, {'rollback' if update.rollback else 'update'}"
        if made.before == made.after and self.life.switches.same_image_again:
            self.spare(Cause.SAME_IMAGE)
        elif self._is_hidden(made, update):
            self.spare(Cause.HIDDEN_IMAGE)
        elif (cause := self._unguarded(update, name)) is not None:
            self.spare(cause)
        else:
            self.fault("a deployment re-images a node", what)

    def _is_hidden(self, made: ReImaging, update: ClusterUpdate) -> bool:
        """Under Slurm, no list shows the image of a node."""
        look = update.before.look if update.before else None
        shown = look.shown.get(made.node.group, {}) if look else {}
        return not self.life.pod.has_versions and shown.get("CurrentImageId") == ami(made.after)

    def _unguarded(self, update: ClusterUpdate, name: str) -> Cause | None:
        """Why prepare could not refuse CloudFormation's call for this group; absent: it could."""
        prepare = update.before
        if prepare is None:
            return self._not_called(update)
        if update.rollback and self.life.pod.tags.get(TAG) != STACK:
            return Cause.ANOTHERS
        sent = {spec["InstanceGroupName"]: spec for spec in update.specs}
        if update.rollback and _specs(prepare.new).get(name) != sent.get(name):
            return Cause.BACK_TO_TWO
        # What it decides by may be as old as its first look.
        look = prepare.first_look
        if look is None or self.life.actors.since(look.since, name):
            return Cause.CHANGED_BEFORE_CLOUDFORMATION
        if update.rollback and self._patched_since(look.since, name):
            return Cause.CHANGED_BEFORE_CLOUDFORMATION
        return None

    def _patched_since(self, at: float, name: str) -> bool:
        """An update of another party took effect, which had begun before: a rollback waits for it, and prepare does not."""
        made = self.life.pod.software.re_images
        return any(each.at >= at and each.node.group == name and each.by in ("person", "hyperpod") for each in made)

    def _patching_dropped(self, dropped: Dropped) -> None:
        call, name, setting = dropped.call, dropped.group, dropped.setting
        what = f"{setting} of {name}, by {dropped.by}"
        if dropped.alone:
            self.spare(Cause.DELETED_ALONE)
            return
        if isinstance(call, Write):
            if self.life.actors.since(call.look.since if call.look else 0.0, name):
                self.spare(Cause.CHANGED_BEFORE_OUR_CALL)
            else:
                self.fault("the function turns patching off", f"{call.request}: {what}")
            return
        assert isinstance(call, ClusterUpdate)
        if self._is_meant(call, name, setting):
            return
        set_since = [
            deed for deed in self.life.actors.since(call.deployment.began, name) if deed.what == f"sets {setting}"
        ]
        if call.rollback and (set_since or name not in call.deployment.new.counts):
            self.spare(Cause.PATCHING_IN_ROLLBACK)
        elif (cause := self._unguarded(call, name)) is not None:
            self.spare(cause)
        else:
            self.fault("a deployment turns patching off", f"{what}, {'rollback' if call.rollback else 'update'}")

    def _is_meant(self, update: ClusterUpdate, name: str, setting: str) -> bool:
        """The file says `none`, or a rollback takes back what the failed update had brought."""
        new = update.deployment.new
        if not update.rollback:
            return (setting, name) in new.patching_off
        brought = next((spec for spec in new.groups if spec["InstanceGroupName"] == name), {})
        return setting in brought

    def _function_at_random(self, ending: Ending) -> None:
        write, name = ending.call, ending.node.group
        assert isinstance(write, Write)
        count = write.counts[name]
        what = f"{write.request}: {ending.node.name} of {name}, by UpdateCluster {name}={count}"
        look = write.look
        if look is None or name not in look.measures:
            self.fault("the function ends a node at random, without a look", what)
        elif cause := self._hidden(look, name, count, write.request):
            self.spare(cause)
        elif self._against_autoscaler(write.request, name) and ending.node.requested >= write.request.deployment.began:
            self.spare(Cause.AUTOSCALER_IN_ROLLBACK)
        elif self._visible(look, name, count):
            self.fault("the function ends a node at random", f"{what}; it saw {look.measures[name]}")
        elif self.life.actors.counted_since(look.since, name) or self._others_ended(look.since, name):
            self.spare(Cause.CHANGED_BEFORE_OUR_CALL)
        elif self._launched_since(look, name) or self._asked_for_since(write, name, count):
            self.spare(Cause.LAUNCHED_MEANWHILE)
        else:
            self.fault(
                "the function ends a node at random, with a stale count",
                f"{what}; it saw {look.measures[name]}, then {write.before[name]}",
            )

    def _cloudformation_at_random(self, ending: Ending) -> None:
        update, name = ending.call, ending.node.group
        assert isinstance(update, ClusterUpdate)
        count = update.counts[name]
        what = (
            f"{ending.node.name} of {name}, by the cluster's {'rollback' if update.rollback else 'update'} to {count}"
        )
        prepare: Request | None = update.before
        if prepare is None:
            self.spare(self._not_called(update))
            return
        look, first = prepare.look, prepare.first_look
        went_by_the_first = prepare.polls == 1 and not prepare.writes and first and prepare.answered - first.at <= 60
        if look is not None and went_by_the_first and self.readiness:
            look = first  # What it has read since was for releasing nodes.
        if look is None or prepare.answered - look.at > 60:
            self.fault("CloudFormation ends a node at random, and prepare had not looked", what)
            return
        changed = self.life.actors.counted_since(look.since, name)
        if update.rollback and self.life.pod.tags.get(TAG) != STACK:
            self.spare(Cause.ANOTHERS)
        elif name not in look.measures:
            if changed:
                self.spare(Cause.CHANGED_BEFORE_CLOUDFORMATION)
            else:
                self.fault("CloudFormation ends a node at random, in a group that prepare did not see", what)
        elif update.rollback and _counts(prepare.new).get(name) != count:
            self.spare(Cause.BACK_TO_TWO)
        elif cause := self._hidden(look, name, count, prepare):
            self.spare(cause)
        elif (
            update.rollback
            and not self.life.pod.continuous
            and look.shown.get(name, {"TargetCount": count})["TargetCount"] > count
            and prepare.answered - prepare.began > 54 * 60
        ):
            self.spare(Cause.STANDARD_TARGET)
        elif self._visible(look, name, count):
            self.fault(
                "CloudFormation ends a node at random, and prepare could know", f"{what}; it saw {look.measures[name]}"
            )
        elif update.rollback and any(deed.by == "autoscaler" for deed in changed):
            self.spare(Cause.AUTOSCALER_IN_ROLLBACK)
        elif changed:
            self.spare(Cause.CHANGED_BEFORE_CLOUDFORMATION)
        elif ending.group.lowered_since(look.since):
            self.spare(Cause.LATE_OVERWRITES)
        elif self._others_ended(look.since, name, how="replaced"):
            self.spare(Cause.REPLACED_BEFORE_CLOUDFORMATION)
        elif self._launched_since(look, name):
            self.spare(Cause.LAUNCHED_MEANWHILE)
        elif self._stale(look, name, prepare):
            # What HyperPod requests to replace them did not exist yet.
            self.spare(Cause.STALE_LIST)
        else:
            self.fault("CloudFormation ends a node at random", f"{what}; prepare saw {look.measures[name]}")

    def _not_called(self, update: ClusterUpdate) -> Cause:
        """Why the cluster's update came without prepare's."""
        if update.rollback and self.life.switches.rollback_backwards:
            return Cause.BACKWARDS
        return Cause.GUARD_NOT_CALLED

    def _visible(self, look: Look, name: str, count: int) -> bool:
        """Whether this count may terminate nodes at random, at the beginning of the look and at its end."""
        measures = [measures[name] for measures in (look.before, look.measures) if name in measures]
        return all(self.life.pod.ends_at_random(measure, count) for measure in measures)

    def _hidden(self, look: Look, name: str, count: int, request: Request) -> Cause | None:
        """The only cause, which no party can see; absent: there is no such cause."""
        pod, then = self.life.pod, look.measures[name]
        if not pod.ends_at_random(then, count):
            return None
        if pod.continuous and not self.life.switches.unlaunched_listed:
            # As the nodes were read, at the beginning of a look or at its end.
            for measure in (then, look.before.get(name, then)):
                launched = measure._replace(live=measure.live - measure.unlaunched, unlaunched=0)
                if not pod.ends_at_random(launched, count):
                    return Cause.HIDDEN_UNLAUNCHED
        if stale := self._stale(look, name, request):
            # With standard provisioning, no list shows the requests that replace them.
            asked = 0 if pod.continuous else min(stale, then.unlaunched)
            live, leaving = then.live + stale - asked, then.leaving - stale
            unseen = then._replace(live=live, leaving=leaving, unlaunched=then.unlaunched - asked)
            if not pod.ends_at_random(unseen, count):
                return Cause.STALE_LIST
        # It is not documented whether CurrentCount includes requested or booting nodes. If it does, what exceeds the
        # list has been terminated, and no more.
        listed = sum(node["InstanceGroupName"] == name for node in look.nodes)
        waited = look.at - request.began > 290
        shown = look.shown.get(name)
        told = max(0, shown["CurrentCount"] - listed) if waited and shown else then.ended
        if told < then.ended and not pod.ends_at_random(then._replace(ended=told), count):
            return Cause.HIDDEN_COUNT
        return None

    def _against_autoscaler(self, request: Request, name: str) -> bool:
        """A rollback in which an autoscaler changes the group."""
        deeds = self.life.actors.counted_since(request.began, name)
        return request.rollback and any(deed.by == "autoscaler" for deed in deeds)

    def _stale(self, look: Look, name: str, request: Request) -> int:
        """Nodes that were shutting down while the list showed them as before, except those that this request
        deleted."""
        return self._shown_as_they_were(look, name, ours=False, request=request)

    def _shown_as_they_were(self, look: Look, name: str, *, ours: bool, request: Request) -> int:
        """The same; `ours`: only those that this request deleted."""
        if not self.life.switches.list_lag:
            return 0
        shown = {
            node["InstanceId"]
            for node in look.nodes
            if node["InstanceGroupName"] == name
            and node.get("InstanceId")
            and node["InstanceStatus"]["Status"] != "ShuttingDown"
        }
        took = [node for write in request.writes for node in write.took]
        return sum(
            ending.node.id in shown and ending.at <= look.at and (ending.node in took) is ours
            for ending in self.life.pod.endings[-40:]
        )

    def _late_lowering(self, ending: Ending) -> None:
        """HyperPod lowers a target late, below a count that was sent meanwhile."""
        name, lowering = ending.node.group, ending.call
        assert isinstance(lowering, Lowering)
        # A count that was sent after the node's termination did not cause it.
        sent = [call for at, call in self._explicit.get(name, ()) if lowering.at <= at <= ending.at]
        ours = [call for call in sent if isinstance(call, Write)]
        theirs = [call for call in sent if isinstance(call, ClusterUpdate)]
        others = [
            (at, other)
            for at, other in ending.group.lowered
            if other is not lowering and lowering.at <= at <= ending.at
        ]
        explicit = [at for at, call in self._explicit.get(name, ()) if isinstance(call, Write)]
        what = f"{ending.node.name} of {name}"
        if lowering.by != "function" or self.life.actors.counted_since(lowering.at, name):
            self.spare(Cause.LATE_OVERWRITES)
        elif any(other.by != "function" for _, other in others):
            self.spare(Cause.LOWERED_TWICE)
        elif ours or any(other.at <= at <= when for when, other in others for at in explicit):
            self.spare(Cause.DOUBLE_LOWERING)
        elif theirs and theirs[-1].before is None:
            self.spare(self._not_called(theirs[-1]))
        elif theirs and self._left_over(lowering, name, theirs[-1]):
            self.spare(Cause.LEFT_OVER)
        elif self._grew_between(ending, lowering, [at for at, _ in others]):
            self.spare(Cause.LOWERED_TWICE)
        elif theirs:
            self.fault("CloudFormation's count met a target that had not fallen yet", what)
        else:
            self.fault("a late lowering ends a node, and nobody sent a count", what)

    def _grew_between(self, ending: Ending, lowering: Lowering, others: list[float]) -> bool:
        """Another deletion's lowering took effect meanwhile, and set the target to its own result.

        HyperPod has since requested nodes, at least as many as this lowering terminates.
        """
        pod, name = self.life.pod, ending.node.group
        if self.life.switches.lowering != "late, absolute" or not others:
            return False
        ended = sum(each.call is lowering for each in pod.endings)
        asked = [node for node in pod.ever.values() if node.group == name and node.by == "hyperpod"]
        return sum(min(others) <= node.requested < ending.at for node in asked) >= ended

    def _left_over(self, lowering: Lowering, name: str, update: ClusterUpdate) -> bool:
        """An earlier deployment deleted the nodes, and ended before the target was lowered.

        This deployment's count was not below the target that its guard saw, so that it had no reason to wait.
        """
        took = [
            write.request
            for write in self.life.writes
            if write.at == lowering.at and any(node.group == name for node in write.took)
        ]
        failed = bool(took) and not any(made.succeeded or made.deployment is update.deployment for made in took)
        look = update.before.look if update.before else None
        shown = look.shown.get(name) if look else None
        return failed and shown is not None and shown["TargetCount"] <= update.counts[name]

    # -- requests and deployments --

    def request_ended(self, request: Request) -> None:
        """CloudFormation has its answer, or no longer waits for one."""
        if request.over:
            return
        if self.readiness:
            self.readiness.request_ended(request)
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
        """The answer contains what was deleted, and what still exists."""
        told = request.data or {}
        if len(json.dumps(told)) > 4096 or any("\n" in str(value) for value in told.values()):
            self.fault("an output that is too long", str(request))
        if request.kind == PREPARE and request.type != "Delete":
            self._nodes_told(request, str(told.get("NodesTaken")))
        if request.kind == FINALIZE and request.type != "Delete":
            self._standing_told(request, str(told.get("StillStanding")))

    def _standing_told(self, request: Request, told: str) -> None:
        """Every group that should be deleted and is not, including one that HyperPod is still deleting, and no
        other."""
        accepted = re.findall(r'accepted the deletion of group "([^"]+)"', told)
        doomed = {*request.new["InstanceGroupsToDelete"], *(name for write in request.writes for name in write.groups)}
        for name, group in self.life.pod.groups.items():
            if self.life.actors.since(request.described, name):
                continue
            going = group.status == "Deleting"
            if name in doomed - _counts(request.new).keys() and name not in (accepted if going else told):
                kind = "a group is being deleted in silence" if going else "a group stands in silence"
                self.fault(kind, f"{request}: {name}, told {told}")
            if name in accepted and not going:
                self.fault("tells of a deletion that is none", f"{request}: {name}, told {told}")

    def _nodes_told(self, request: Request, told: str) -> None:
        """Every node that it deleted, and no other. Groups that are deleted next are reported after them."""
        taken = told.partition('Group "')[0]
        took = {node.name for write in request.writes for node in write.took}
        if "The log has all" in told or "more, in the log" in told:
            return
        if any(name not in taken for name in took):
            self.fault("nodes go in silence", f"{request}: {', '.join(took)}, told {told}")
        claimed = set(re.findall(r"(?:i|n)-[0-9a-z]+(?= \()", taken)) - took
        asked = set().union(*request.asked.values()) if request.asked else set()
        if claimed - asked:
            self.fault("tells of nodes that it did not take", f"{request}: {told}")

    def _sentence(self, request: Request) -> None:
        reason = request.reason
        if not reason.strip() or "\n" in reason or len(reason) > 1000:
            self.fault("not one readable sentence", f"{request}: {reason[:200]!r} ({len(reason)} characters)")

    def _stuck(self, request: Request, *, killed: bool) -> None:
        """A rollback failed. If only a status is left to wait for, it continues (docs/adr/0010)."""
        life, pod, counts = self.life, self.life.pod, _counts(request.new)
        groups = [group for group in pod.groups.values() if group.status != "Deleting"]
        left = [group for group in groups if len(group.live) > counts.get(group.name, len(group.live))]
        late = request.answered - request.began > 54 * 60
        # At the last poll it was terminated, and HyperPod may launch it again.
        just_taken = any(write.took for write in request.writes if request.answered - write.at < 60)
        moving = pod.status in BUSY or any(_checked(group) for group in groups) or any(g.under_way for g in left)
        if killed:
            self.spare(Cause.KILLED)
        elif re.search(r"\[(nodes-re-imaged|live-image-unknown)", request.reason) and self._would_re_image(request):
            self.spare(Cause.IMAGE_IN_ROLLBACK)
        elif life.faults.status_denied and "DescribeStacks" in request.reason:
            self.spare(Cause.STATUS_DENIED)
        elif life.faults.events_denied and "DescribeStackEvents" in request.reason and not request.writes:
            self.spare(Cause.EVENTS_DENIED)
        elif late and left and pod.never_patched:
            self.spare(Cause.NEVER_PATCHED)
        elif late and left and moving:
            self.spare(Cause.BUSY_TOO_LONG)
        elif late and any(
            pod.current_count(group) > len(group.live) or any(node.leaving for node in group.nodes)
            for group in pod.groups.values()
        ):
            # Shutting down, or terminated and still counted: the two cases of ADR 10.
            self.spare(Cause.STILL_LEAVING)
        elif late and life.switches.lowering == "never" and (left or just_taken) and request.writes:
            self.spare(Cause.STAYS_IN_ROLLBACK)
        elif late and any(
            group.name in _autoscaled(request.new) and life.actors.counted_since(request.began, group.name)
            for group in left
        ):
            self.spare(Cause.AUTOSCALER_IN_ROLLBACK)
        elif late and not left and request.cluster_unread:
            # It is not known that no node is left (docs/adr/0010).
            self.spare(Cause.UNREAD_IN_ROLLBACK)
        else:
            self.fault("a rollback gets stuck", f"{request}: {request.reason[:300]}")

    def _would_re_image(self, request: Request) -> bool:
        """CloudFormation had begun to update the cluster, and the rollback names another image than the update, or than is live."""
        wanted, failed, groups = _specs(request.new), _specs(request.old or {"Groups": []}), self.life.pod.groups
        named = {name: release_of(spec) for name, spec in wanted.items()}
        differs = any(
            wanted[name].get(key) != failed[name].get(key) for name in failed.keys() & wanted for key in IMAGES
        )
        moved = any(named[name] not in (None, groups[name].image) for name in named.keys() & groups.keys())
        return request.deployment.reached and (differs or moved)

    def lifetime_ended(self) -> None:
        """Nothing was requested any more, for longer than a node may be held."""
        if self.readiness:
            self.readiness.lifetime_ended()

    def same_again(self, deployment: Deployment) -> None:
        """The file was deployed before with success, and nothing has interfered since: prepare changes nothing."""
        for request in deployment.requests:
            if request.kind == PREPARE and not request.rollback and request.writes:
                write = request.writes[0]
                named = ", ".join(node.name for node in write.took) or str(write.counts)
                self.fault("the same again makes a change", f"{deployment.what}: {write.kind} {named}")

    def destroyed(self, deployment: Deployment) -> None:
        """Its own requests change nothing.

        The polls of a cancelled update may continue meanwhile, and are judged separately.
        """
        if any(request.writes for request in deployment.requests):
            self.fault("a deletion changes the cluster", deployment.what)

    def deployment_ended(self, deployment: Deployment, expected: Expected | None) -> None:
        """`expected`: the required result; absent: something interfered."""
        self.look_at_endings()
        for request in deployment.requests:
            for write in request.writes:
                if write.look is not None:
                    for name in dict.fromkeys(node.group for node in write.took):
                        self._order(write, name)
        first = next((r for r in deployment.requests if r.kind == PREPARE and not r.rollback), None)
        if expected is None or expected.doubtful or first is None or first.over:
            return
        if first.left_out:
            self.spare(Cause.LEFT_OUT)
            return
        if expected.refused:
            if first.succeeded:
                self.fault("not refused", f"{deployment.what}: {'; '.join(expected.refused)}")
            elif any(not write.request.rollback for request in deployment.requests for write in request.writes):
                self.fault("a refusal after a change", f"{deployment.what}: {first.reason[:200]}")
            return
        late = first.answered - first.began > 54 * 60
        if not first.succeeded and self._stays(first):
            self.spare(Cause.STAYS)
            return
        if not first.succeeded and late and self._left_late(first):
            self.spare(Cause.SLOW)
            return
        if not first.succeeded and self.readiness and self.readiness.explains(first):
            return
        if not first.succeeded:
            self.fault("a sound deployment fails", f"{deployment.what}: {first.reason[:300]}")
            return
        # Later nodes are HyperPod's own replacements of the deleted ones.
        took = {node.name: node.group for write in first.writes for node in write.took if node.requested <= first.heard}
        for name, number in expected.takes.items():
            found = sum(1 for group in took.values() if group == name)
            if found != number and expected.exact:
                self.fault("not the expected number of nodes", f"{deployment.what}: {found} of {name}, not {number}")
        if not any(expected.takes.values()):
            if first.writes:
                self.fault("a change where nothing was to change", f"{deployment.what}: {first.writes[0].kind}")
            drained = self.readiness is not None and expected.groups
            if first.answered - first.began > 330 + self.life.switches.current_lag and not drained:
                self.fault("waits with nothing to take", f"{deployment.what}: {first.answered - first.began:.0f} s")
        for node in expected.named - set(took):
            self.fault("a named node was not taken", f"{deployment.what}: {node}")
        if deployment.outcome == "succeeded":
            for name in expected.groups:
                group = self.life.pod.groups.get(name)
                if group is not None and group.status != "Deleting":
                    self.fault("a group that should have gone still stands", f"{deployment.what}: {name}")

    # -- inside --

    def _over(self, write: Write, what: str) -> None:
        if write.over:
            self.fault("a change for a deployment that is over", f"{write.request}: {what}")
        elif write.request.over:
            self.spare(Cause.CANCELLED_BEFORE_OUR_CALL)

    def _left_in_failure(self, request: Request) -> bool:
        """Earlier deployments reached the cluster, and were left failed.

        It is not documented whether a rollback sends the cluster back beyond them.
        """
        for earlier in reversed(self.life.stack.deployments[: request.deployment.number - 1]):
            if earlier.outcome == "no changes":
                continue  # CloudFormation was not called.
            if not earlier.outcome.startswith("failed"):
                return False
            if earlier.reached:
                return True
        return False

    def _group_deleted(self, write: Write, name: str) -> None:
        life, request = self.life, write.request
        if request.kind != FINALIZE:
            self.fault("prepare deletes a group", f"{request}: {name}")
        wanted = set(request.new["InstanceGroupsToDelete"])
        if request.rollback and request.old is not None:
            wanted |= set(_counts(request.old)) - set(_counts(request.new))
        made = [deed.at for deed in life.actors.deeds if deed.what == "makes the group" and deed.group == name]
        asked = [earlier.at for earlier in request.writes if earlier is not write and name in earlier.groups]
        if name in _counts(request.new) or name not in wanted:
            self.fault("a group by accident", f"{request} deletes {name}")
        elif asked and not any(at > asked[-1] for at in made):
            self.fault("a group is deleted twice", f"{request}: {name}")
        elif made:
            self.spare(Cause.BY_HAND)

    def _launched_since(self, look: Look, name: str) -> bool:
        """A node that was not launched when the function looked, and not listed."""
        pod = self.life.pod
        listed = pod.continuous and self.life.switches.unlaunched_listed
        nodes = [node for node in pod.ever.values() if node.group == name and node.requested <= look.at]
        return not listed and any(node.launched is not None and node.launched >= look.since for node in nodes)

    def _asked_for_since(self, write: Write, name: str, count: int) -> bool:
        """Whether only nodes that HyperPod requested between the function's look and its call caused the
        termination."""
        look, then, pod = write.look, write.before[name], self.life.pod
        nodes = [node for node in pod.ever.values() if node.group == name and look and look.since <= node.requested]
        new = sum(node.by == "hyperpod" and node.requested <= write.at for node in nodes)
        rest = then._replace(live=then.live - new, unlaunched=max(0, then.unlaunched - new))
        return new > 0 and not pod.ends_at_random(rest, count)

    def _stays(self, request: Request) -> bool:
        """The target of a group whose nodes it deleted has not fallen, and will not: never, or one of two late
        lowerings undid the other."""
        pod, switches, counts = self.life.pod, self.life.switches, _counts(request.new)
        took = {node.group for write in request.writes for node in write.took}
        if switches.lowering == "never":
            return bool(took)
        last = max((write.at for write in request.writes if write.took), default=0.0)
        over = switches.lowering == "late, absolute" and self.life.clock.now > last + switches.lowering_delay
        return over and any(name in pod.groups and pod.groups[name].target > counts.get(name, 0) for name in took)

    def _left_late(self, request: Request) -> bool:
        """A node that it deleted existed for most of the hour, or still exists."""
        lag = self.life.switches.current_lag
        took = [node for write in request.writes for node in write.took if node.id]
        return any(node.left is None or node.left > request.answered - lag - 60 for node in took)

    def _others_ended(self, at: float, name: str, *, how: str | None = None) -> bool:
        """Nodes that the function did not terminate."""
        return any(
            ending.at >= at
            and ending.node.group == name
            and ending.by != "function"
            and (how is None or ending.how == how)
            for ending in self.life.pod.endings[-40:]
        )


class Expected:
    """The required result of a deployment if no party interferes: the contract's table, for the state at its
    beginning."""

    def __init__(self, life: Lifetime, old: Template, new: Template) -> None:
        pod = life.pod
        counts = new.counts
        self.refused: list[str] = []
        self.takes: dict[str, int] = {}
        self.named: set[str] = set()
        self.doubtful = False
        """The contract does not specify the result."""
        self.groups = [name for name in new.groups_to_delete if name in pod.groups]
        self.exact = life.switches.lowering != "never"
        known = {node.name: node for group in pod.groups.values() for node in group.nodes}
        by_count = total = 0
        guard = life.stack.known[PREPARE]
        if new.name != old.name and (guard is None or guard.name == new.name):
            # The guard is new with this update, or came with one that failed. It sees no cluster, and CloudFormation's
            # own call fails.
            self.doubtful = True
        elif new.name != old.name:
            self.refused.append("the cluster has another name")
        elif new.name == old.name and pod.tags.get(TAG) != STACK:
            self.refused.append("the cluster is another stack's")
        if new.vpc != pod.network:
            self.refused.append("the cluster has another network")
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
            self._look_at_software(life, old, new, spec, group)
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
            blocked = life.switches.minimum_blocks and live - len(named) - more < group.minimum
            if (named or more) and blocked and name not in old.counts:
                # A rollback left it. Its minimum cannot be sent, since CloudFormation does not know the group.
                self.doubtful = True
            # A guard that is new in the stack does not get the cluster's earlier properties.
            changes = life.stack.known[PREPARE] is None or old.properties(CLUSTER) != new.properties(CLUSTER)
            if name in new.autoscaled and count < group.target - len(named) and changes:
                self.refused.append(f"{name}: autoscaled, target {group.target}, count {count}")
            by_count += more
            self.takes[name] = more + len(named)
            self.named |= {node.name for node in named}
            total += more + len(named)
        for name in new.groups_to_delete:
            if name in counts:
                self.refused.append(f"{name} is in both lists")
        deployed = guard.nodes_to_delete if guard else ()
        strangers = [name for name in new.nodes_to_delete if name not in known and name not in deployed]
        if strangers and by_count:
            self.refused.append(f"{strangers[0]} is in no group, and {by_count} would go by count")
        if total > new.max_nodes:
            self.refused.append(f"{total} nodes, max_nodes {new.max_nodes}")

    def _look_at_software(
        self, life: Lifetime, old: Template, new: Template, spec: Mapping[str, Any], group: Group
    ) -> None:
        """An image that would re-image nodes, and patching that would be turned off, are refused."""
        name = group.name
        deployed: Mapping[str, Any] = next((each for each in old.groups if each["InstanceGroupName"] == name), {})
        changes = life.stack.known[PREPARE] is None or old.properties(CLUSTER) != new.properties(CLUSTER)
        if not changes:
            return
        for setting in PATCHING:
            if setting in group.spec and setting not in spec and (setting, name) not in new.patching_off:
                self.refused.append(f"{name}: {setting} would be turned off")
        image = release_of(spec)
        same = all(spec.get(key) == deployed.get(key) for key in IMAGES)
        nodes = {node.image for node in group.live if node.id}
        if same and (image is None or image == group.image):
            return
        if not group.live or (image is not None and nodes == {image} == {group.image}):
            return
        if image is not None and image not in nodes and image != group.image and not moved_on(image, group.image):
            self.refused.append(f"{name}: {image} would replace {group.image}")
        else:
            # A partial patch, a later patch of the same minor version, or an image that is no longer named.
            self.doubtful = True


def _specs(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {spec["InstanceGroupName"]: spec for spec in map(json.loads, properties["Groups"])}


def _counts(properties: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(spec["InstanceCount"]) for name, spec in _specs(properties).items()}


def _autoscaled(properties: Mapping[str, Any]) -> list[str]:
    return list(properties["AutoscaledGroups"])


def _spec_of(template: Template, spec: Mapping[str, Any]) -> Any:
    """The same group's specification in a template, without counts, images and patching."""
    left_out = ("InstanceCount", "MinInstanceCount", *IMAGES, *PATCHING)
    found = [each for each in template.groups if each["InstanceGroupName"] == spec["InstanceGroupName"]]
    return [{key: value for key, value in each.items() if key not in left_out} for each in found]


def _same_but_counts(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Images and patching are judged for themselves."""
    left_out = ("InstanceCount", "MinInstanceCount", *IMAGES, *PATCHING)
    return {k: v for k, v in one.items() if k not in left_out} == {k: v for k, v in other.items() if k not in left_out}


def _checked(group: Group) -> bool:
    return any(node.status == "DeepHealthCheckInProgress" for node in group.nodes)
