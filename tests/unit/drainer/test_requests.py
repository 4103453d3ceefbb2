"""What is asked, what is sent and what is told, without a server: requests of anybody's making, EKS's schemas, sizes."""

from __future__ import annotations

import contextlib
import copy
import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate as kv  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import Api, KubernetesError, Reply
from cdk_hyperpod._lambda.hyperpod.drainer.backup_job import make_job
from cdk_hyperpod._lambda.hyperpod.drainer.cluster_snapshot import Hook
from cdk_hyperpod._lambda.hyperpod.drainer.drainer import Drainer
from cdk_hyperpod._lambda.hyperpod.drainer.event import parse_event
from cdk_hyperpod._lambda.hyperpod.drainer.objects import parse_node
from cdk_hyperpod._lambda.hyperpod.drainer.run_lease import NAME
from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import RequestError
from cdk_hyperpod.kubernetes.drainer import drainer_manifests
from helpers.kubernetes.versions import VERSIONS

NOW = 1_800_000_000.0
NODE = {
    "id": "i-0123456789abcdef0",
    "ip": "10.0.0.1",
    "request": "20271107T090000",
    "deadline": NOW + 1500,
    "expires": NOW + 600,
    "on_timeout": "fail",
    "backup": True,
}


def event(**changed: Any) -> dict[str, Any]:
    request = {"schema": 1, "id": "r-1", "nodes": [{**NODE, **changed}]}
    return {"schema": 1, "cluster": "train", "requests": {"deployment": request}}


def asked(found: object) -> dict[str, Any]:
    return {"schema": 1, "cluster": "train", "requests": {"deployment": found}}


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


BROKEN: list[tuple[Any, str]] = [
    (None, "is not a JSON object"),
    ([], "is not a JSON object"),
    ('{"schema": 1', "is not a JSON object"),
    ({}, "schema: the drainer reads 1, got null; bring both up to date"),
    ({"schema": True, "requests": None}, "schema: the drainer reads 1, got true; bring both up to date"),
    ({"schema": 1}, "requests: must be null or hold one of deployment, operator, got false"),
    ({"schema": 1, "requests": {}}, "requests: must be null or hold one of deployment, operator, got {}"),
    (asked(None), "is not a JSON object"),
    (asked({"schema": 2}), "schema: the drainer reads 1, got 2; bring both up to date"),
    (asked({"schema": 1, "id": "r", "nodes": "all"}), "nodes: must be a list of at most 6758"),
    (asked({"schema": 1, "id": "r", "nodes": [NODE] * 6759}), "nodes: must be a list of at most 6758"),
    (asked({"schema": 1, "id": "r", "nodes": [NODE, NODE]}), "nodes: an instance is duplicated"),
    (asked({"schema": 1, "id": "r 1", "nodes": []}), 'id: must be of the form [A-Za-z0-9-]{1,64}, got "r 1"'),
    (asked({"schema": 1, "id": "r", "nodes": [7]}), "nodes[0]: must be an object, got 7"),
    (event(id="i-0; reboot"), 'nodes[0].id: must be of the form i-[0-9a-f]{8,17}, got "i-0; reboot"'),
    (event(id="i-0123456789abcdef0\n"), "nodes[0].id: must be of the form"),
    (event(id="../../secrets"), "nodes[0].id: must be of the form"),
    (event(request="x" * 65), "nodes[0].request: must be of the form"),
    (event(ip="10.0.0.1/8"), 'nodes[0].ip: must be an address, got "10.0.0.1/8"'),
    (event(ip=7), "nodes[0].ip: must be an address, got 7"),
    (event(deadline=math.nan), "nodes[0].deadline: must be a time at most 26 h ahead, got NaN"),
    (event(deadline="soon"), 'nodes[0].deadline: must be a time at most 26 h ahead, got "soon"'),
    (event(expires=True), "nodes[0].expires: must be a time at most 26 h ahead, got true"),
    (event(expires=10**400), "nodes[0].expires: must be a time at most 26 h ahead, got 1000"),
    (event(expires=NOW + 27 * 3600), "nodes[0].expires: must be a time at most 26 h ahead, got 1800097200.0"),
    (event(on_timeout=["force"]), 'nodes[0].on_timeout: must be "fail" or "force", got ["force"]'),
    (event(backup=nested(9000)), "is nested too deep"),
    (event(backup=1), "nodes[0].backup: must be true or false, got 1"),
]


@pytest.mark.parametrize(("found", "said"), BROKEN, ids=[f"{i}-{said[:30]}" for i, (_, said) in enumerate(BROKEN)])
def test_a_broken_request_is_refused_as_a_whole(found: Any, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_event(found, NOW)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.sampled_from([*NODE]), JSON)
def test_any_value_is_understood_or_refused(name: str, value: Any) -> None:
    try:
        found = parse_event(event(**{name: value}), NOW).request
    except RequestError:
        return
    assert found is not None
    assert [node_request.instance for node_request in found.nodes] == [value if name == "id" else NODE["id"]]


@settings(max_examples=50)
@given(JSON)
def test_any_event_is_understood_or_refused(found: Any) -> None:
    with contextlib.suppress(RequestError):
        assert parse_event(found, NOW).request is None


def test_an_address_may_be_left_out() -> None:
    request = {"schema": 1, "id": "r-1", "nodes": [{key: value for key, value in NODE.items() if key != "ip"}]}
    found = parse_event(asked(request), NOW).request
    assert found is not None
    assert found.nodes[0].address == ""


# -- what is sent -----------------------------------------------------------------------------------------------------


class Cluster:
    """A server of any size that says yes. `nodes` and `pods` are whole lists; pages and selectors are as Kubernetes has them."""

    def __init__(self, nodes: list[Any], pods: list[Any], cron_job: Any = None) -> None:
        self.lists = {"/api/v1/nodes": nodes, "/api/v1/pods": pods}
        self.cron_job = cron_job
        self.sent: list[tuple[str, str, Any, str]] = []
        self.refusal: Reply | None = None

    def send(self, method: str, path: str, body: bytes | None, kind: str) -> Reply:
        address = urlsplit(path)
        self.sent.append((method, address.path, None if body is None else json.loads(body), kind))
        if method != "GET":
            return self.refusal or Reply(200, b"{}")
        if "/cronjobs/" in address.path:
            return Reply(200, json.dumps(self.cron_job).encode())
        query = {key: value[0] for key, value in parse_qs(address.query).items()}
        found = self.lists.get(address.path, [])
        first = int(query.get("continue", "0"))
        last = first + int(query["limit"])
        more = {"continue": str(last)} if last < len(found) else {}
        return Reply(200, json.dumps({"metadata": more, "items": found[first:last]}).encode())

    def look(self, found: Any, backup: str | None = None) -> Any:
        # However slow this machine is, a look's time is not over.
        return Drainer(Api(self.send), backup, log=lambda _: None, clock=lambda: 0.0).look(found, NOW)


def node(number: int, **changed: Any) -> dict[str, Any]:
    name = f"hyperpod-i-{number:017x}"
    return {"metadata": {"name": name, "resourceVersion": "7", **changed}, "spec": {}, "status": {}}


def pod(number: int, on: str, long: str = "") -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": f"web{long}"[:253], "controller": True}
    metadata = {"name": f"web-{number}{long}"[:253], "namespace": f"team{long}"[:63], "uid": f"u-{number}"}
    return {
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": {"nodeName": on},
        "status": {"phase": "Running"},
    }


CRON_JOB = {
    "metadata": {"name": "save-node", "namespace": "ops", "uid": "u-9"},
    "spec": {
        "jobTemplate": {
            "spec": {
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "nodeName": "another",
                        "affinity": {"podAntiAffinity": {}},
                        "containers": [{"name": "save", "image": "save:1"}],
                    }
                }
            }
        }
    },
}


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_valid_for_each_kubernetes_version_of_eks(version: str) -> None:
    """The real server of the other tests is older, and speaks v1beta1 of the same."""
    free, held = node(1), node(2)
    requests = [{**NODE, "id": f"i-{number:017x}"} for number in (1, 2)]
    mark = {"request": NODE["request"], "cordon": "ours", "expires": NODE["expires"]}
    held["metadata"]["annotations"] = {"cdk-hyperpod.dev/drain": json.dumps(mark)}
    held["spec"]["unschedulable"] = True
    cluster = Cluster([free, held], [pod(1, "hyperpod-i-00000000000000001")], CRON_JOB)
    cluster.look(asked({"schema": 1, "id": "r", "nodes": requests}), "ops/save-node")

    bodies = {path: body for method, path, body, _ in cluster.sent if method == "POST"}
    eviction, job = (bodies[path] for path in sorted(bodies))
    assert (eviction["apiVersion"], eviction["kind"]) == ("policy/v1", "Eviction")
    assert job["spec"]["template"]["spec"]["affinity"].keys() == {"podAntiAffinity", "nodeAffinity"}
    assert "nodeName" not in job["spec"]["template"]["spec"]
    assert CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]["nodeName"] == "another"  # type: ignore[index]
    for body in (eviction, job):
        kv.validate(body, version, strict=True)
    assert {kind for method, _, _, kind in cluster.sent if method == "PATCH"} == {"application/merge-patch+json"}


@pytest.mark.parametrize("version", VERSIONS)
def test_its_rights_are_of_the_versions_that_eks_has(version: str) -> None:
    for manifest in drainer_manifests("ops/save-node"):
        kv.validate(manifest, version, strict=True)


def test_without_a_backup_it_may_make_no_job() -> None:
    rules = [rule for manifest in drainer_manifests() for rule in manifest.get("rules", ())]
    assert [rule["resources"] for rule in rules] == [["nodes"], ["pods"], ["pods/eviction"], ["leases"]]
    assert rules[-1]["resourceNames"] == [NAME]
    # Those of the backup are for its own namespace.
    kinds = {manifest["kind"]: manifest for manifest in drainer_manifests("ops/save-node")}
    assert kinds["ClusterRole"]["rules"] == rules[:-1]
    assert (kinds["Role"]["metadata"]["namespace"], kinds["RoleBinding"]["metadata"]["namespace"]) == ("ops", "ops")


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_the_largest_clusters_are_read_in_pages_and_the_answer_fits_the_limit() -> None:
    """6,758 nodes is HyperPod's own limit for a group; all of them go, and every name is as long as it may be."""
    nodes = [node(number) for number in range(6758)]
    pods = [pod(number, f"hyperpod-i-{number % 2000:017x}", "x" * 253) for number in range(20_000)]
    cluster = Cluster(nodes, pods)
    cluster.refusal = Reply(429, json.dumps({"message": 'é"' * 5000}).encode())

    requests = [{**NODE, "id": f"i-{number:017x}"} for number in range(6758)]
    answer = cluster.look(asked({"schema": 1, "id": "r", "nodes": requests}))

    assert len(answer["nodes"]) == 6758
    assert {len(each["message"]) for each in answer["nodes"].values()} == {177}
    assert len(answer["busy"]) == 2000
    assert sum(len(each["jobs"]) for each in answer["nodes"].values()) == 2000
    assert len(json.dumps(answer)) < 6 * 10**6
    reads = [path for method, path, _, _ in cluster.sent if method == "GET"]
    # Pages grow from 50 to 500 objects, as long as they are small.
    assert (reads.count("/api/v1/nodes"), reads.count("/api/v1/pods")) == (17, 43)


def test_a_look_changes_things_for_so_long_and_the_next_one_goes_on() -> None:
    """However long it has read: a large cluster comes to its end too."""
    cluster = Cluster([node(number) for number in range(10)], [])
    now = [0.0]

    def slow(method: str, path: str, body: bytes | None, kind: str) -> Reply:
        now[0] += 30 if method == "GET" else 6
        return cluster.send(method, path, body, kind)

    requests = [{**NODE, "id": f"i-{number:017x}"} for number in range(10)]
    looks = Drainer(Api(slow), None, log=lambda _: None, clock=lambda: now[0])
    answer = looks.look(asked({"schema": 1, "id": "r", "nodes": requests}), NOW)

    assert len([path for method, path, _, _ in cluster.sent if method == "PATCH"]) == 3
    assert {each["state"] for each in answer["nodes"].values()} == {"draining"}
    # Whoever waits is told so.
    later = [each for each in answer["nodes"].values() if each["message"].endswith("the rest waits for the next look")]
    assert len(later) == 7

    # What nobody wants any more is told too, since nobody asks for it again.
    for each in cluster.lists["/api/v1/nodes"]:
        each["metadata"]["annotations"] = {"cdk-hyperpod.dev/drain": "{}"}
    problem = looks.look(asked({"schema": 1, "id": "r", "nodes": []}), NOW)["problem"]
    first = "hyperpod-i-00000000000000003 (the rest waits for the next look)"
    assert problem.startswith(f"not released: {first}, ")
    assert problem.endswith(" and 4 more")


@pytest.mark.parametrize(("theirs", "kept"), [(None, 24 * 3600), (0, 3600), (10, 3600), (90_000, 90_000)])
def test_a_job_is_there_until_its_end_was_seen(theirs: int | None, kept: int) -> None:
    cron_job = copy.deepcopy(CRON_JOB)
    if theirs is not None:
        cron_job["spec"]["jobTemplate"]["spec"]["ttlSecondsAfterFinished"] = theirs  # type: ignore[index]
    node_request = parse_event(event(), NOW).request.nodes[0]  # type: ignore[union-attr]
    hook = Hook("ops", "save-node", cron_job, {}, {})
    job = make_job(node_request, parse_node(node(1), NOW), hook, cron_job)
    assert job["spec"]["ttlSecondsAfterFinished"] == kept


def test_two_nodes_with_one_instance_id_are_unknown_and_not_changed() -> None:
    twin: Mapping[str, Any] = {
        "metadata": {"name": "x-i-00000000000000001", "resourceVersion": "1"},
        "spec": {},
        "status": {},
    }
    cluster = Cluster([node(1), twin], [])
    answer = cluster.look(asked({"schema": 1, "id": "r", "nodes": [{**NODE, "id": "i-00000000000000001"}]}))

    (told,) = answer["nodes"].values()
    said = "2 nodes have its instance id: hyperpod-i-00000000000000001, x-i-00000000000000001"
    assert (told["state"], told["message"], "absent" in told) == ("unknown", said, False)
    assert {method for method, _, _, _ in cluster.sent} == {"GET"}


def test_characters_that_cannot_be_encoded_are_replaced_in_the_log() -> None:
    logged: list[str] = []
    half = Reply(403, b'{"message": "half a character: \\ud800\\nand a line"}')
    Drainer(Api(lambda *_: half), None, log=logged.append).look(event(), NOW)
    (line,) = logged
    assert line.encode().startswith(
        b"r-1: no node; 0 busy; 0 done; GET /api/v1/nodes: half a character: ? and a line; "
    )


def test_a_read_is_not_sent_again_for_ever() -> None:
    """However slow the server is: whoever asked waits for half a minute."""
    now, sent = [0.0], list[str]()

    def slow(method: str, path: str, body: bytes | None, kind: str) -> Reply:
        sent.append(path)
        now[0] += 10
        raise TimeoutError("timed out")

    api = Api(slow, sleep=lambda _: None, clock=lambda: now[0])
    with pytest.raises(KubernetesError, match="GET /api/v1/nodes: TimeoutError: timed out"):
        api.get("/api/v1/nodes")
    assert len(sent) == 2


def test_an_invalid_answer_of_kubernetes_ends_the_run_with_a_problem() -> None:
    answer = Cluster([{"metadata": {}}], []).look(event())
    assert answer["problem"] == "Kubernetes answers with something that this drainer cannot read: KeyError('name')"
    assert answer["nodes"] == {}


def test_a_kubelets_label_never_outweighs_its_nodes_name() -> None:
    forged = node(1, labels={"sagemaker.amazonaws.com/x": "i-00000000000000002"})
    assert parse_node(forged, NOW).instance == "i-00000000000000001"
