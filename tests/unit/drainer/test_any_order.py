"""Whatever happens in whatever order: what the drainer never does, and how it always ends.

The cluster is made up here, as simple as it can be; that Kubernetes is so, tests/real/drainer shows on a real one.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import Api, Reply
from cdk_hyperpod._lambda.hyperpod.drainer.drainer import Drainer

NOW = 1_800_000_000.0
MARK = "cdk-hyperpod.dev/drain"
NODES = ("i-00000001", "i-00000002")
CRON_JOB = {"metadata": {"uid": "u"}, "spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}}}


class Killed(Exception):
    pass


@dataclass
class Node:
    version: int = 0
    cordoned: bool = False
    mark: str | None = None
    person: bool = False
    """A person has cordoned it: the truth, which no object tells."""


@dataclass
class FakeKubernetes:
    nodes: dict[str, Node] = field(default_factory=lambda: {name: Node() for name in NODES})
    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name -> node, and running, ending, guarded (by a budget) or of a DaemonSet."""
    jobs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name -> instance, and running, Complete or Failed."""
    requests: dict[str, str] = field(default_factory=dict)
    """The uid of a Job of the drainer's -> the request that it was made for."""
    uids: dict[str, str] = field(default_factory=dict)
    """Job -> its uid."""
    saved: set[tuple[str, str]] = field(default_factory=set)
    """Node and request: the truth."""
    now: float = NOW
    wanted: frozenset[str] = frozenset()
    kill_at: int = -1
    calls: int = 0
    names: Any = field(default_factory=itertools.count)

    # -- what Kubernetes is --

    def send(self, method: str, path: str, body: bytes | None, kind: str) -> Reply:
        del kind
        self.calls += 1
        if self.calls == self.kill_at:
            raise Killed
        found = json.loads(body) if body else {}
        place = urlsplit(path).path.split("/")
        if (method == "GET" and (len(place) in (4, 7) or place[-1] == "events")) or place[-2] == "cronjobs":
            return self._read(place[-1] if place[-2] != "cronjobs" else "cronjobs")
        if place[-2] == "nodes":
            return self._node(method, place[-1].removeprefix("hyperpod-"), found)
        if path.endswith("/eviction?dryRun=All"):
            return Reply(200, b"{}")
        if place[-1] == "eviction":
            return self._evict(place[-2])
        if method == "POST":
            return Reply(200, b"{}") if path.endswith("?dryRun=All") else self._make_job(found["metadata"])
        assert method == "DELETE"
        uid = self.uids[place[-1]]
        if found["preconditions"] != {"uid": uid}:
            return Reply(409, b"{}")
        del self.jobs[place[-1]]
        return Reply(200, b"{}")

    def _make_job(self, metadata: Any) -> Reply:
        name = metadata["name"]
        if name in self.jobs:
            return Reply(409, b"{}")
        self.jobs[name] = (metadata["labels"]["cdk-hyperpod.dev/drain-instance"], "running")
        self.uids[name] = f"u-{next(self.names)}"
        self.requests[self.uids[name]] = metadata["annotations"]["cdk-hyperpod.dev/drain-request"]
        return Reply(201, json.dumps({"metadata": {**metadata, "uid": self.uids[name]}}).encode())

    def _read(self, what: str) -> Reply:
        if what == "cronjobs":
            return Reply(200, json.dumps(CRON_JOB).encode())
        items = {
            "nodes": [self._as_object(name) for name in self.nodes],
            "pods": [self._pod(name) for name in self.pods],
            "jobs": [self._job(name) for name in self.jobs],
            "events": [],
        }[what]
        return Reply(200, json.dumps({"items": items}).encode())

    def _as_object(self, name: str) -> Any:
        node = self.nodes[name]
        annotations = {} if node.mark is None else {MARK: node.mark}
        metadata = {"name": f"hyperpod-{name}", "resourceVersion": str(node.version), "annotations": annotations}
        return {"metadata": metadata, "spec": {"unschedulable": True} if node.cordoned else {}, "status": {}}

    def _pod(self, name: str) -> Any:
        node, kind = self.pods[name]
        owner = {"kind": "DaemonSet" if kind == "daemon" else "ReplicaSet", "name": "x", "controller": True}
        metadata = {"name": name, "namespace": "team", "uid": name, "ownerReferences": [owner]}
        metadata |= {"deletionTimestamp": "now"} if kind == "ending" else {}
        return {"metadata": metadata, "spec": {"nodeName": f"hyperpod-{node}"}, "status": {"phase": "Running"}}

    def _job(self, name: str) -> Any:
        instance, state = self.jobs[name]
        conditions = [] if state == "running" else [{"type": state, "status": "True"}]
        metadata = {"name": name, "uid": self.uids[name], "labels": {"cdk-hyperpod.dev/drain-instance": instance}}
        # Whoever forges a Job has no pod that succeeds, or another uid.
        return {"metadata": metadata, "status": {"conditions": conditions, "succeeded": int(state == "Complete")}}

    def _node(self, method: str, name: str, patch: Any) -> Reply:
        node = self.nodes[name]
        if method == "GET":
            return Reply(200, json.dumps(self._as_object(name)).encode())
        assert patch["metadata"]["resourceVersion"]
        if patch["metadata"]["resourceVersion"] != str(node.version):
            return Reply(409, b"{}")
        node.version += 1
        node.mark = patch["metadata"]["annotations"][MARK]
        cordon = patch.get("spec", {}).get("unschedulable", node.cordoned)
        if cordon:
            assert node.mark is None or name in self.wanted, "marked a node that nobody wants"
        node.cordoned = bool(cordon)
        assert node.cordoned or not node.person, "took away the cordon of another"
        return Reply(200, b"{}")

    def _evict(self, name: str) -> Reply:
        node, kind = self.pods[name]
        assert node in self.wanted, "evicted from a node that nobody wants"
        assert kind in ("running", "guarded"), "evicted what stays"
        assert self.nodes[node].cordoned and self.nodes[node].mark, "evicted before the node was held"
        if kind == "guarded":
            return Reply(429, b"{}")
        self.pods[name] = (node, "ending")
        return Reply(200, b"{}")

    # -- what happens --

    def ask(self, wanted: frozenset[str], request_id: str, kill: int, force: bool) -> None:
        self.wanted, self.calls, self.kill_at = wanted, 0, kill
        node = {"request": request_id, "deadline": NOW + 1500, "expires": self.now + 600, "backup": True}
        node |= {"on_timeout": "force" if force else "fail"}
        request = {"schema": 1, "id": "r", "nodes": [{"id": name, **node} for name in sorted(wanted)]}
        held = {name: (each.cordoned and each.mark, self.left_on(name, force)) for name, each in self.nodes.items()}
        try:
            answer = self.look({"schema": 1, "requests": {"deployment": request}})
        except Killed:
            return
        assert answer["nodes"].keys() == wanted
        for name, told in answer["nodes"].items():
            if told["state"] == "ready":
                mark, left = held[name]
                assert mark and json.loads(mark)["request"] == request_id and not left, "ready before it was"
                assert told["saved"] and (name, request_id) in self.saved, "ready and not saved"
            if told["state"] == "timed-out":
                assert self.now >= NOW + 1500 and not force
                assert self.nodes[name].mark is None

    def left_on(self, name: str, force: bool) -> list[str]:
        """Who has to leave. Under force, past the deadline, nobody."""
        late = force and self.now >= NOW + 1500
        kinds = () if late else ("ending", "running", "guarded")
        return [pod for pod, (node, kind) in self.pods.items() if node == name and kind in kinds]

    def look(self, event: Any) -> Any:
        return Drainer(Api(self.send), "ops/save", log=lambda _: None).look(event, self.now)

    def tell(self) -> None:
        """A question changes nothing but what is held for longer than was asked for."""
        over = {name for name, node in self.nodes.items() if node.mark and json.loads(node.mark)["expires"] <= self.now}
        before = self.all_but(over)
        self.kill_at, self.wanted = -1, frozenset()
        self.look({"schema": 1, "requests": None})
        assert before == self.all_but(over)
        for node in map(self.nodes.__getitem__, over):
            assert node.mark is None and node.cordoned == node.person, "held for longer than was asked for"

    def all_but(self, names: set[str]) -> Any:
        nodes = {name: dict(vars(node)) for name, node in self.nodes.items() if name not in names}
        return nodes, dict(self.pods), {job: each for job, each in self.jobs.items() if each[0] in self.held() - names}

    def held(self) -> set[str]:
        return {name for name, node in self.nodes.items() if node.mark}

    def person(self, name: str, cordons: bool) -> None:
        """kubectl cordon, which does nothing where there is a cordon; and uncordon.

        Who takes a cordon of the drainer's away and puts one there again has said nothing that anybody could see.
        """
        node = self.nodes[name]
        if node.cordoned != cordons:
            node.version, node.cordoned = node.version + 1, cordons
            node.person = cordons and node.mark is None

    def comes(self, name: str, kind: str) -> None:
        """A pod. (Some tolerate a cordon.)"""
        self.pods[f"pod-{next(self.names)}"] = (name, kind)

    def end_pods(self) -> None:
        self.pods = {name: each for name, each in self.pods.items() if each[1] != "ending"}

    def end_jobs(self, how: str) -> None:
        for name, (on, state) in self.jobs.items():
            if state == "running":
                self.jobs[name] = (on, how)
                if how == "Complete" and self.uids[name] in self.requests:
                    self.saved |= {(on, self.requests[self.uids[name]])}

    def forges(self) -> None:
        """Somebody deletes all Jobs, and creates others with their names that complete at once."""
        for name, (on, _) in list(self.jobs.items()):
            self.jobs[name], self.uids[name] = (on, "Complete"), f"forged-{next(self.names)}"

    def passes(self, seconds: int) -> None:
        self.now += seconds


name = st.sampled_from(NODES)
wanted = st.sampled_from([frozenset(NODES), frozenset(NODES), frozenset(NODES[:1]), frozenset[str]()])
kill = st.sampled_from((-1,) * 9 + tuple(range(3, 9)))
look = st.tuples(st.just("ask"), wanted, st.sampled_from("aaab"), kill, st.booleans())
happening = st.one_of(
    look,
    look,
    look,
    st.tuples(st.just("tell")),
    st.tuples(st.just("person"), name, st.booleans()),
    st.tuples(st.just("comes"), name, st.sampled_from(("running", "guarded", "daemon"))),
    st.tuples(st.just("end_pods")),
    st.tuples(st.just("end_jobs"), st.sampled_from(("Complete", "Failed"))),
    st.tuples(st.just("forges")),
    st.tuples(st.just("passes"), st.sampled_from((30, 400, 1500))),
)


@settings(max_examples=300, phases=[Phase.generate])
@given(st.lists(happening, min_size=8, max_size=30))
def test_no_sequence_of_events_leaves_our_cordon_or_a_running_backup(happenings: list[tuple[Any, ...]]) -> None:
    kubernetes = FakeKubernetes()
    for what, *arguments in happenings:
        getattr(kubernetes, what)(*arguments)
    kubernetes.ask(frozenset(), "end", -1, False)
    for node in kubernetes.nodes.values():
        assert node.mark is None
        assert node.cordoned == node.person
    assert "running" not in {state for _, state in kubernetes.jobs.values()}
