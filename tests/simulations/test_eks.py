"""The simulated Kubernetes follows the documentation, and the judge notices a drainer that is broken on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.drainer import backup_job, changes, cluster_snapshot, drainer, rules, view
from cdk_hyperpod._lambda.hyperpod.drainer.changes import Change
from cdk_hyperpod._lambda.hyperpod.drainer.cluster_snapshot import ClusterSnapshot, read_snapshot
from cdk_hyperpod._lambda.hyperpod.drainer.mark import Mark
from cdk_hyperpod._lambda.hyperpod.drainer.objects import Node as KubernetesNode
from helpers.simulations.scenarios import goes, kinds, lifetime, look, request, write
from simulations.lifetimes.clock import Clock
from simulations.lifetimes.draining import Heard, Policy
from simulations.lifetimes.eks import ByDrainer, EksReadiness, End
from simulations.lifetimes.hyperpod import Group, HyperPod, Node, Pace, Refused
from simulations.lifetimes.kubernetes import COPIES, LOST_AFTER, MARK, App, Habits, Kubernetes, Member, Pod
from simulations.lifetimes.lifetime import live
from simulations.lifetimes.soak import seeds_of
from simulations.lifetimes.switches import draw


class Site:
    """Two nodes that have joined."""

    def __init__(self, **habits: Any) -> None:
        self.clock, rng = Clock(), Random(0)
        self.clock.now = 10.0
        self.pod = HyperPod(self.clock, rng, draw(rng), Pace(), continuous=True)
        nodes = [Node("p5", f"n{n}", 0.0, "person", id=f"i-{n}", launched=0.0, status="Running") for n in (1, 2)]
        self.pod.groups["p5"] = Group("p5", {}, 2, 0, nodes=nodes)
        self.faults: list[str] = []
        self.api = Kubernetes(
            self.clock, rng, self.pod, Habits(0.0, (60.0, 60.0), **habits), lambda kind, _: self.faults.append(kind)
        )
        self.api._join(at_once=True)
        self.one, self.other = self.api.members.values()

    def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        reply = self.api.request(method, path, body, kind)
        return reply.status, json.loads(reply.content)

    def patch(self, body: dict[str, Any], version: int | None = None) -> int:
        body = {"metadata": {}, **body}
        body["metadata"]["resourceVersion"] = str(self.one.version if version is None else version)
        return self.send("PATCH", f"/api/v1/nodes/{self.one.name}", body, "application/merge-patch+json")[0]

    def cordon(self) -> int:
        return self.patch({"metadata": {"annotations": {MARK: "{}"}}, "spec": {"unschedulable": True}})

    def run(self, member: Member, *, app: App | None = None, ends: float = inf) -> Pod:
        pod = self.api._make("research", "ReplicaSet" if app else "Job", member, app=app)
        pod.ends = ends
        return pod

    def evict(self, pod: Pod, query: str = "", **body: Any) -> tuple[int, Any]:
        return self.send("POST", f"/api/v1/namespaces/research/pods/{pod.name}/eviction{query}", body)

    def back_up(self, node: str, containers: Any = None) -> None:
        pod: dict[str, Any] = {"containers": containers or COPIES["template"]["spec"]["containers"]}
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        pod["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
        }
        pod["tolerations"] = [{"operator": "Exists"}]
        body = {"metadata": {"name": "job", "labels": {"saves": node}}, "spec": {"template": {"spec": pod}}}
        assert self.send("POST", "/apis/batch/v1/namespaces/hyperpod-backup/jobs", body)[0] == 201


def test_an_eviction_waits_for_a_budget_and_gives_a_pod_its_time() -> None:
    site = Site()
    app = App("web", 2, 2)
    pod, _ = site.run(site.one, app=app), site.run(site.other, app=app)
    site.cordon()
    status, said = site.evict(pod)
    assert (status, said["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")
    app.least = 1
    assert site.evict(pod, "?dryRun=All")[0] == 201
    assert not pod.leaving
    assert site.evict(pod, deleteOptions={"preconditions": {"uid": "of another"}})[0] == 409
    assert site.evict(pod)[0] == 201
    assert site.api.unready(site.one.node, must_be_saved=False) == f"{pod.name} runs"
    site.clock.pass_time(pod.grace)
    assert site.evict(pod)[0] == 404
    assert site.api.unready(site.one.node, must_be_saved=False) == ""
    assert not site.faults


def test_pods_of_a_silent_kubelet_are_deleted_and_stay() -> None:
    site = Site()
    pod = site.run(site.one)
    site.api.open = False
    site.api._tick()
    site.one.silent_since = site.clock.now
    site.clock.pass_time(LOST_AFTER + 100)
    _, node = site.send("GET", f"/api/v1/nodes/{site.one.name}")
    assert node["status"]["conditions"][-1]["status"] == "Unknown"
    assert pod.leaving
    assert list(site.api.on(site.one)) == [pod], "nobody can tell that it has ended"
    site.api.forget(site.one)
    assert pod.uid not in site.api.pods


def test_lists_have_pages_and_selectors() -> None:
    site = Site(page=3)
    pods = {site.run(site.one).name for _ in range(4)}
    site.run(site.other, ends=0.0)
    site.api._make("research", "Job", None)
    found, token = [], ""
    while True:
        query = "limit=500&fieldSelector=status.phase%21%3DSucceeded%2Cspec.nodeName%21%3D" + token
        _, page = site.send("GET", f"/api/v1/pods?{query}")
        found += page["items"]
        site.api.forget(site.other)
        if not page["metadata"]["continue"]:
            break
        token = f"&continue={page['metadata']['continue']}"
    assert pods < {pod["metadata"]["name"] for pod in found}
    assert len(found) == 8, "with those of DaemonSets and static ones, as they all were at one moment"


def test_a_change_names_the_version_that_it_has_read() -> None:
    site = Site()
    assert site.patch({"spec": {"unschedulable": True}}, version=7) == 409
    assert site.cordon() == 201
    assert site.one.cordon == "drainer"
    assert site.patch({"metadata": {"annotations": {MARK: None}}, "spec": {"unschedulable": None}}) == 201
    assert (site.one.cordon, site.one.annotations, site.faults) == ("", {}, [])


def test_a_backup_has_what_was_written_before_it_began() -> None:
    site = Site()
    site.cordon()
    assert site.api.unready(site.one.node, must_be_saved=True) == "is not saved"
    site.back_up(site.one.name)
    site.clock.pass_time(100)
    _, jobs = site.send("GET", "/apis/batch/v1/namespaces/hyperpod-backup/jobs?limit=500&labelSelector=saves")
    assert jobs["items"][0]["status"]["conditions"][0]["type"] == "Complete"
    assert site.api.unready(site.one.node, must_be_saved=True) == ""
    late = site.run(site.one, ends=site.clock.now + 5)
    site.clock.pass_time(10)
    assert site.api.unready(site.one.node, must_be_saved=True) == "is not saved"
    site.api._remove(late)
    assert site.api.unready(site.one.node, must_be_saved=True) == "is not saved"


@pytest.mark.parametrize(("node", "containers"), [("hyperpod-i-2", None), ("hyperpod-i-1", [{"name": "nothing"}])])
def test_a_backup_of_something_else_saves_nothing(node: str, containers: Any) -> None:
    site = Site()
    site.cordon()
    site.back_up(node, containers)
    site.clock.pass_time(100)
    assert not site.api.is_saved(site.one)


def test_a_node_joins_late_and_its_object_goes_with_it() -> None:
    site = Site(joins=100.0)
    node = Node("p5", "n3", 0.0, "person", id="i-3", launched=0.0, status="Running")
    site.pod.groups["p5"].nodes.append(node)
    site.api._tick()
    assert site.api.member(node) is None
    site.clock.pass_time(200)
    assert site.api.member(node)
    node.gone = True
    site.clock.pass_time(100)
    assert site.api.member(node) is None


# -- what the judge notices ------------------------------------------------------------------------------------------


def drained(
    *,
    silent: float = 0.0,
    cut_off: bool = False,
    saved: bool = False,
    since: float = 0.0,
    joined: float = 0.0,
    why: str = "pod runs",
) -> Any:
    """A lifetime with EKS in which the node i-4 was not ready when it was deleted."""
    life = lifetime()
    life.draining = draining = ByDrainer(life, Random(0))
    life.judge.readiness = EksReadiness(life, draining)
    node = life.pod.groups["p5"].nodes[3]
    draining.unready, draining.ends = {node: why}, {node: End(joined, saved, since, silent, cut_off)}
    return life


@pytest.mark.parametrize(
    ("came", "apart", "allowed"), [(690.0, 0.0, True), (710.0, 0.0, False), (710.0, -30.0, True), (740.0, -30.0, False)]
)
def test_a_node_s_five_minutes_are_by_hyperpod_s_clock(came: float, apart: float, allowed: bool) -> None:
    life = drained()
    life.switches = replace(life.switches, clocks_apart=apart)
    node = life.pod.groups["p5"].nodes[3]
    node.requested, node.launched = 650.0, came
    assert bool(goes(life, FORCE, HEARD, waited=610.0)) is not allowed


FAIL = Policy(minutes=10, force=False, undrained=False, must_be_saved=False)
FORCE = replace(FAIL, force=True)
SAVE = replace(FORCE, must_be_saved=True)
HEARD, SILENT = Heard(999.0, {"nodes": {}, "busy": []}, silent=False), Heard(999.0, None, silent=True)


@pytest.mark.parametrize(
    ("life", "said", "heard", "waited", "allowed"),
    [
        (drained(), FAIL, HEARD, 3000, False),
        (drained(), FORCE, HEARD, 500, False),
        (drained(), FORCE, HEARD, 610, True),
        (drained(), SAVE, HEARD, 610, False),
        (drained(saved=True), SAVE, HEARD, 300, False),
        # A complete backup ends no pod early.
        (drained(saved=True), SAVE, HEARD, 490, False),
        (drained(saved=True), SAVE, HEARD, 610, True),
        (drained(since=990.0, why="is not saved"), SAVE, HEARD, 490, True),
        (drained(since=980.0, why="is not saved"), SAVE, HEARD, 490, False),
        (drained(saved=True), replace(FAIL, must_be_saved=True), HEARD, 610, False),
        (drained(silent=350), FAIL, HEARD, 610, True),
        (drained(silent=350), FAIL, HEARD, 500, False),
        (drained(silent=300), FAIL, HEARD, 610, False),
        (drained(silent=350, cut_off=True), FAIL, HEARD, 610, False),
        (drained(silent=350), replace(FAIL, must_be_saved=True), HEARD, 610, False),
        (drained(), FAIL, SILENT, 0, False),
        (drained(), replace(FAIL, undrained=True), SILENT, 0, True),
        (drained(), replace(FAIL, undrained=True), HEARD, 610, False),
        (drained(joined=999.5), FAIL, HEARD, 0, True),
    ],
)
def test_a_node_that_is_not_ready_goes_where_the_policy_says_so(
    life: Any, said: Policy, heard: Heard, waited: float, allowed: bool
) -> None:
    made, seen = request(life), look(life)
    made.heard -= waited
    made.new["Drain"] = said.text()
    seen.heard = heard
    life.judge.batch_delete_was_sent(write(made, seen, life.pod.groups["p5"].nodes[3]))
    assert ("a node that was not ready goes" in kinds(life.judge.faults)) is not allowed


@pytest.mark.parametrize("there", [True, False])
def test_nodes_held_by_a_deleted_drainer_need_not_be_released(there: bool) -> None:
    life = drained()
    draining, made, node = life.draining, request(life, rollback=True), life.pod.groups["p5"].nodes[3]
    draining.kubernetes.members = {"n": Member(node, 0.0, {}, {MARK: "{}"})}
    made.new["Drain"], made.succeeded, draining.is_there = FAIL.text(), True, there
    if not there:
        with pytest.raises(Refused, match="Function not found"):
            draining.invoke(draining.channel[1], b"", made)
    life.judge.readiness.request_ended(made)
    assert ("a node that stays is not given back" in kinds(life.judge.faults)) is there


def _released(spec: dict[str, Any]) -> Callable[[KubernetesNode], Change]:
    real = changes.release

    def release(node: KubernetesNode) -> Change:
        change = real(node)
        return replace(change, body={"metadata": change.body["metadata"], **spec})

    return release


def _marked(**changed: Any) -> Callable[[KubernetesNode, Mark, str], Change]:
    real = changes.write_mark

    def write_mark(node: KubernetesNode, mark: Mark, purpose: str) -> Change:
        change = real(node, mark, purpose)
        return replace(change, body={**change.body, **changed})

    return write_mark


def _evicted(**changed: Any) -> Callable[..., Change]:
    real = changes.evict
    return lambda instance, pod: replace(real(instance, pod), **changed)


def _decided(**changed: Any) -> Callable[[view.NodeView], rules.Decision]:
    real = rules.decide_node
    return lambda node: replace(real(node), **changed)


def _saves_nothing(*made: Any) -> dict[str, Any]:
    job = backup_job.make_job(*made)
    job["spec"]["template"]["spec"]["containers"] = [{"name": "nothing"}]
    return job


def _evicts_anybody(request: Any, node: KubernetesNode, seen: ClusterSnapshot) -> view.NodeView:
    """Evicts pods that no controller creates again."""
    return view.view_node(replace(request, evict_unmanaged=True), node, seen)


def _overlooks_karpenter(*asked: Any, **more: Any) -> ClusterSnapshot:
    seen = read_snapshot(*asked, **more)
    nodes = {name: tuple(replace(node, karpenter="") for node in nodes) for name, nodes in seen.nodes.items()}
    return replace(seen, nodes=nodes)


@pytest.mark.parametrize(
    ("module", "name", "broken", "near", "fault"),
    [
        (rules, "_release_nodes", lambda kept, seen: (), 6, "a node is drained for ever"),
        (rules, "_release_nodes", lambda kept, seen: (), 6, "a node that stays is not given back"),
        (changes, "release", _released({}), 6, "a node is drained for ever"),
        pytest.param(
            changes,
            "release",
            _released({"spec": {"unschedulable": None}}),
            6,
            "another's cordon is undone",
            marks=pytest.mark.ci,
        ),
        (changes, "write_mark", _marked(spec={}), 7, "ready nodes do not go"),
        (changes, "write_mark", _marked(status={}), 6, "the drainer changes of a node what is not its own"),
        (changes, "check_eviction", changes.evict, 14, "the drainer evicts from a node that it does not hold"),
        (changes, "evict", _evicted(method="DELETE"), 6, "the drainer does what it has no right to"),
        (rules, "decide_node", _decided(state="ready", saved=True), 6, "a node that was not ready goes"),
        (changes, "make_job", _saves_nothing, 19, "a node that was not ready goes"),
        (view, "proves_backup", lambda job, mark: True, 400, "a node that was not ready goes"),
        (rules, "view_node", _evicts_anybody, 6, "the drainer evicts a pod that nothing creates again"),
        (drainer, "read_snapshot", _overlooks_karpenter, 13, "the drainer cordons a node of Karpenter's"),
        (cluster_snapshot, "has_to_leave", lambda pod: True, 6, "the drainer evicts what stays by its nature"),
    ],
)
def test_a_broken_drainer_is_caught(
    module: Any, name: str, broken: Any, near: int, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`near`: how far the first lifetime is that can show it. Earlier ones need not be tried."""
    monkeypatch.setattr(module, name, broken)
    found: set[str] = set()
    for seed in seeds_of(200, first=near, profile="evictions"):
        found |= set(kinds(live(seed).faults))
        if fault in found:
            return
    raise AssertionError(found)
