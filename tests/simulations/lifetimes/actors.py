"""The other parties that act on the cluster: an autoscaler, a person, HyperPod itself.

Each action is recorded with its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from .hyperpod import Group, HyperPod, Refused, Who
from .software import FIRST

if TYPE_CHECKING:
    from .lifetime import Lifetime


@dataclass(frozen=True, slots=True)
class Deed:
    at: float
    by: Who
    what: str
    group: str
    """Empty if it affects the whole cluster."""

    @property
    def counts(self) -> bool:
        """It changed a target or nodes at once. A failing node or a health check does not."""
        return self.by in ("person", "autoscaler")

    @property
    def raises(self) -> bool:
        return self.what.startswith(("raises", "adds"))


class Actors:
    """Acts at random, as often as the profile says, at most a given number of times in a lifetime."""

    def __init__(self, life: Lifetime) -> None:
        self.life, self.profile = life, life.profile
        self.deeds: list[Deed] = []
        self._left = self.profile.most_deeds
        self._countdown = -1
        self._kinds = list(self.profile.deeds)
        self._weights = list(self.profile.deeds.values())

    def before_call(self) -> None:
        if self._left <= 0:
            return
        if self._countdown > 0:
            self._countdown -= 1
        elif self._countdown == 0:
            self._countdown = -1
            self.act()
        if self.life.rng.random() < self.profile.per_call:
            self.act()

    def after_write(self) -> None:
        if self._countdown < 0 and self.life.rng.random() < self.profile.after_write:
            self._countdown = self.life.rng.randrange(4)

    def maybe(self, rate: float) -> None:
        if self._left > 0 and self.life.rng.random() < rate:
            self.act()

    def some_time(self, rate: float, within: float) -> None:
        if self._left > 0 and self.life.rng.random() < rate:
            self.life.clock.later(self.life.rng.uniform(0, within), self.act)

    def act(self) -> None:
        if self._left <= 0 or not self.life.pod.exists:
            return
        self._left -= 1
        kind = self.life.rng.choices(self._kinds, self._weights)[0]
        try:
            self._do(kind)
        except Refused as refused:
            self.life.tell(f"    ({kind}: {refused})")

    def since(self, at: float, group: str) -> list[Deed]:
        """The actions of others on this group, or on the whole cluster, since then."""
        return [deed for deed in self.deeds if deed.at >= at and deed.group in ("", group)]

    def counted_since(self, at: float, group: str) -> list[Deed]:
        """The actions that changed its counts since then."""
        return [deed for deed in self.since(at, group) if deed.counts]

    def _done(self, by: Who, what: str, group: str) -> None:
        self.deeds.append(Deed(self.life.clock.now, by, what, group))
        self.life.tell(f"    * {by}: {what} {group}")

    def _group(self, rng: Random, pod: HyperPod) -> Group | None:
        groups = [group for group in pod.groups.values() if group.status != "Deleting" and not group.controller]
        return rng.choice(groups) if groups else None

    def _do(self, kind: str) -> None:
        rng, pod = self.life.rng, self.life.pod
        group = self._group(rng, pod)
        if group is None:
            return
        act: Callable[[Random, HyperPod, Group], None] = partial(_DEEDS[kind], self)
        act(rng, pod, group)

    # -- a person --

    def _person_raises(self, rng: Random, pod: HyperPod, group: Group) -> None:
        self._resize(pod, group, group.target + rng.randint(1, 3), "person", "raises")

    def _person_lowers(self, rng: Random, pod: HyperPod, group: Group) -> None:
        if group.target:
            self._resize(pod, group, max(0, group.target - rng.randint(1, 2)), "person", "lowers")

    def _resize(self, pod: HyperPod, group: Group, count: int, by: Who, what: str) -> None:
        minimum = min(group.minimum, count)
        pod.update([{**group.spec, "InstanceCount": count, "MinInstanceCount": minimum}], by=by)
        self._done(by, f"{what} to {count}", group.name)

    def _person_deletes_nodes(self, rng: Random, pod: HyperPod, group: Group) -> None:
        self._delete(rng, pod, group, "person")

    def _delete(self, rng: Random, pod: HyperPod, group: Group, by: Who) -> None:
        live = [node.id for node in group.live if node.id]
        if live:
            chosen = rng.sample(live, min(len(live), rng.randint(1, 2)))
            pod.batch_delete(chosen, by=by)
            self._done(by, f"deletes {', '.join(chosen)}", group.name)

    def _person_deletes_a_group(self, rng: Random, pod: HyperPod, group: Group) -> None:
        if len(pod.groups) > 1:
            pod.update([], [group.name], by="person", alone=pod.switches.delete_alone is True)
            self._done("person", "deletes the group", group.name)

    def _person_makes_a_group(self, rng: Random, pod: HyperPod, group: Group) -> None:
        gone = [name for name in self.life.names_ever if name not in pod.groups]
        name = rng.choice(gone) if gone and rng.random() < 0.7 else f"byhand{len(self.deeds)}"
        spec = {**group.spec, "InstanceGroupName": name, "InstanceCount": rng.randint(1, 2), "MinInstanceCount": 0}
        pod.update([spec], by="person")
        self._done("person", "makes the group", name)

    # -- an autoscaler --

    def _autoscaled(self, rng: Random, pod: HyperPod, group: Group) -> Group:
        names = self.life.autoscaled
        owned = [pod.groups[name] for name in names if name in pod.groups]
        return rng.choice(owned) if owned else group

    def _autoscaler_raises(self, rng: Random, pod: HyperPod, group: Group) -> None:
        group = self._autoscaled(rng, pod, group)
        if pod.continuous and rng.random() < 0.6:
            number = rng.randint(1, 3)
            pod.add(group.name, number, by="autoscaler")
            self._done("autoscaler", f"adds {number}", group.name)
        else:
            self._resize(pod, group, group.target + rng.randint(1, 3), "autoscaler", "raises")

    def _autoscaler_gives_back(self, rng: Random, pod: HyperPod, group: Group) -> None:
        self._delete(rng, pod, self._autoscaled(rng, pod, group), "autoscaler")

    # -- HyperPod --

    def _node_fails(self, rng: Random, pod: HyperPod, group: Group) -> None:
        running = [node for node in group.nodes if node.status == "Running"]
        if running:
            node = rng.choice(running)
            pod.fail(node)
            self._done("hyperpod", f"sees {node.name} fail", group.name)

    def _capacity_goes(self, rng: Random, pod: HyperPod, group: Group) -> None:
        group.lacks_capacity_until = self.life.clock.now + rng.choice([300.0, 1800.0, 7200.0])
        self._done("hyperpod", "has no capacity", group.name)

    def _deep_health_check(self, rng: Random, pod: HyperPod, group: Group) -> None:
        pod.check_health(group.nodes, rng.choice([600.0, 3000.0, 7200.0]))
        self._done("hyperpod", "checks health", group.name)

    def _software_update(self, rng: Random, pod: HyperPod, group: Group) -> None:
        pod.update_software(rng.choice([600.0, 2400.0, 5000.0]))
        self._done("hyperpod", "updates software", "")

    # -- software --

    def _a_release(self, rng: Random, pod: HyperPod, group: Group) -> None:
        major, minor, patch = map(int, pod.software.latest.split("."))
        pod.software.latest = f"{major}.{minor}.{patch + 1}" if rng.random() < 0.7 else f"{major}.{minor + 1}.0"
        self.life.tell(f"    * HyperPod releases {pod.software.latest}")

    def _person_patches(self, rng: Random, pod: HyperPod, group: Group) -> None:
        """`cdk-hyperpod patch`, or an operator without it: to the latest image, or to an older one."""
        image = pod.software.latest if rng.random() < 0.8 else FIRST
        pod.software.update([group.name], image, by="person", batch=rng.choice([None, 1, 2]))
        self._done("person", f"updates software to {image}", group.name)

    def _schedule_patches(self, rng: Random, pod: HyperPod, group: Group) -> None:
        scheduled = [each for each in pod.groups.values() if "ScheduledUpdateConfig" in each.spec]
        for each in scheduled[:1]:
            pod.software.update([each.name], pod.software.latest, by="hyperpod", batch=1)
            self._done("hyperpod", "updates software by schedule", each.name)

    def _automatic_patching(self, rng: Random, pod: HyperPod, group: Group) -> None:
        for each in [each for each in pod.groups.values() if "AutoPatchConfig" in each.spec][:1]:
            pod.software.patch(each, idle=rng.choice([0.0, 0.5, 1.0]))
            self._done("hyperpod", "patches automatically", each.name)

    def _person_turns_patching_on(self, rng: Random, pod: HyperPod, group: Group) -> None:
        setting, value = rng.choice(
            [
                ("AutoPatchConfig", {"PatchingStrategy": "WhenIdle"}),
                ("ScheduledUpdateConfig", {"ScheduleExpression": "cron(30 12 15 * ? *)"}),
            ]
        )
        spec = {**group.spec, "InstanceCount": group.target, "MinInstanceCount": group.minimum, setting: value}
        pod.update([spec], by="person")
        self._done("person", f"sets {setting}", group.name)


_DEEDS: dict[str, Callable[..., None]] = {
    "person raises": Actors._person_raises,
    "person lowers": Actors._person_lowers,
    "person deletes nodes": Actors._person_deletes_nodes,
    "person deletes a group": Actors._person_deletes_a_group,
    "person makes a group": Actors._person_makes_a_group,
    "autoscaler raises": Actors._autoscaler_raises,
    "autoscaler gives back": Actors._autoscaler_gives_back,
    "a node fails": Actors._node_fails,
    "capacity goes": Actors._capacity_goes,
    "deep health check": Actors._deep_health_check,
    "software update": Actors._software_update,
    "a release": Actors._a_release,
    "person patches": Actors._person_patches,
    "the schedule patches": Actors._schedule_patches,
    "automatic patching": Actors._automatic_patching,
    "person turns patching on": Actors._person_turns_patching_on,
}
