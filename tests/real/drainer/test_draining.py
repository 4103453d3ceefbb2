"""Cordon, evict, ready, release: on a real API server, with exactly the permissions that the drainer has."""

from __future__ import annotations

import json

import pytest

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import TABLE, Reply, Send
from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import NOT_RELEASED
from cdk_hyperpod._lambda.hyperpod.scale_down.drain.channels import parse
from helpers.drainer.rig import NOW, Rig
from helpers.findings import codes
from helpers.kubernetes.apiserver.client import Client

MARK = "cdk-hyperpod.dev/drain"


def test_a_node_is_cordoned_its_pods_leave_and_then_it_is_ready(rig: Rig) -> None:
    node, other = rig.node(), rig.node()
    web, elsewhere = rig.pod(node, "web-1"), rig.pod(other, "web-2")

    first = rig.ask(rig.node_request(node))
    assert rig.held(node)
    assert rig.ends(web)
    assert first["nodes"][node] == {
        "state": "draining",
        "requests": {"deployment": "20271107T090000"},
        "jobs": [{"id": "team/web-1", "user": "ReplicaSet/web"}],
        "saved": False,
        "running": 1,
        "message": "pods: team/web-1 of ReplicaSet/web; 25 minutes left",
        "ip": "10.0.0.1",
    }
    assert sorted(first["busy"]) == sorted([node, other])

    # It has the grace period of its pod.
    second = rig.ask(rig.node_request(node))
    assert second["nodes"][node]["message"] == "pods: team/web-1 of ReplicaSet/web (ending); 25 minutes left"

    assert rig.end_pods() == ["web-1"]
    third = rig.ask(rig.node_request(node))
    assert (third["nodes"][node]["state"], third["nodes"][node]["jobs"], third["busy"]) == ("ready", [], {other: []})
    assert third["requests"] == {"deployment": "r-1"}
    assert (third["problem"], third["refused"]) == ("", {})

    assert rig.free(other)
    assert not rig.ends(elsewhere)
    assert len(rig.logged) == 3


def test_the_function_reads_the_answer_as_it_reads_the_agents_status(rig: Rig) -> None:
    node = rig.node()
    rig.pod(node, "web-1")

    said = parse(json.dumps(rig.ask(rig.node_request(node))).encode(), NOW + 1)

    assert said.silent is not None
    assert said.silent.total_seconds() == 1
    assert said.deployment_requests() == {node: "20271107T090000"}
    assert set(said.busy) == {node}
    assert not said.saves


def test_daemon_set_static_and_finished_pods_are_not_evicted(rig: Rig) -> None:
    node = rig.node()
    stay = [
        rig.pod(node, "logs", owner="DaemonSet/logs"),
        rig.pod(node, "static", owner=None, annotations={"kubernetes.io/config.mirror": "x"}),
        rig.pod(node, "done"),
        rig.pod(node, "broken"),
    ]
    for name, phase in (("done", "Succeeded"), ("broken", "Failed")):
        rig.runs({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team"}}, phase)

    rig.ask(rig.node_request(node))
    answer = rig.ask(rig.node_request(node))

    assert (answer["nodes"][node]["state"], answer["busy"]) == ("ready", {})
    assert not any(rig.ends(path) for path in stay)


def test_a_pod_without_a_controller_leaves_where_the_request_says_so(rig: Rig) -> None:
    node = rig.node()
    lone = rig.pod(node, "lone", owner=None)

    answer = rig.ask(rig.node_request(node, unmanaged_pods="evict"))

    assert rig.ends(lone)
    assert answer["nodes"][node]["jobs"] == [{"id": "team/lone", "user": ""}]


@pytest.mark.parametrize("on_timeout", ["fail", "force"])
def test_a_pod_without_a_controller_refuses_the_request_before_anything_is_evicted(rig: Rig, on_timeout: str) -> None:
    """`kubectl drain` refuses it too, because no controller would create it again."""
    node, other = rig.node(), rig.node()
    pods = [rig.pod(node, "lone", owner=None), rig.pod(node, "web-1"), rig.pod(other, "web-2")]

    told = rig.ask(rig.node_request(node, on_timeout=on_timeout), rig.node_request(other, on_timeout=on_timeout))[
        "nodes"
    ]

    assert (told[node]["state"], codes(told[node]["message"])) == ("refused", ["pods-unmanaged"])
    assert "team/lone" in told[node]["message"]
    assert told[other]["state"] == "draining"
    # Neither on this node nor on the other nodes of the request.
    assert not any(rig.ends(path) for path in pods)
    assert rig.free(node) and rig.free(other)


def test_finished_and_static_pods_and_those_of_daemon_sets_may_have_no_controller(rig: Rig) -> None:
    node = rig.node()
    for name in ("done", "broken"):
        rig.pod(node, name, owner=None)
        phase = {"done": "Succeeded", "broken": "Failed"}[name]
        rig.runs({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team"}}, phase)
    rig.pod(node, "static", owner=None, annotations={"kubernetes.io/config.mirror": "x"})
    rig.pod(node, "logs", owner="DaemonSet/logs")

    rig.ask(rig.node_request(node))
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "ready"


def test_a_pod_without_a_controller_that_comes_later_stays_and_so_does_the_cordon(rig: Rig) -> None:
    """It tolerates the cordon. The deployment releases the node, or HyperPod is deleting it already."""
    node = rig.node()
    rig.ask(rig.node_request(node))
    lone = rig.pod(node, "lone", owner=None)

    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "refused"
    assert not rig.ends(lone)
    assert rig.held(node)


def test_of_a_pod_that_was_deleted_only_containers_that_run_count(rig: Rig) -> None:
    """A finalizer, or a grace period of ten years, keeps the object. Its kubelet reports what runs."""
    node = rig.node()
    path = rig.pod(node, "kept", terminationGracePeriodSeconds=10 * 365 * 24 * 3600)
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kept", "namespace": "team"}}
    rig.ask(rig.node_request(node))
    assert rig.ends(path)
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "draining"

    ended = {"terminated": {"exitCode": 0}}
    image = {"name": "main", "ready": False, "restartCount": 0, "image": "none", "imageID": ""}
    rig.must(rig.admin.patch_status(manifest, {"containerStatuses": [{**image, "state": ended}]}))

    told = rig.ask(rig.node_request(node))["nodes"][node]
    assert (told["state"], told["running"]) == ("ready", 0)
    assert rig.admin.get(path).status == 200


def test_karpenters_node_stops_the_evictions_of_the_whole_request(rig: Rig) -> None:
    node, other = rig.node(labels={"karpenter.sh/nodepool": "gpus"}), rig.node()
    web = rig.pod(other, "web-1")

    rig.ask(rig.node_request(node), rig.node_request(other))

    assert not rig.ends(web)
    assert rig.free(other)


def test_pods_of_the_system_leave_and_make_no_node_busy(rig: Rig) -> None:
    node = rig.node()
    system = rig.pod(node, "coredns-1", namespace="kube-system")

    assert rig.ask(rig.node_request(node))["busy"] == {}
    assert rig.ends(system)


def test_a_node_that_no_request_names_is_released(rig: Rig) -> None:
    one, two = rig.node(), rig.node()
    rig.ask(rig.node_request(one), rig.node_request(two))
    assert rig.held(one) and rig.held(two)

    rig.ask(rig.node_request(one))
    assert rig.held(one) and rig.free(two)

    rig.ask()
    assert rig.free(one)


def test_a_lease_that_is_over_holds_nothing(rig: Rig) -> None:
    node = rig.node()
    rig.ask(rig.node_request(node))

    answer = rig.ask(rig.node_request(node, expires=NOW))

    assert rig.free(node)
    assert answer["nodes"] == {}


def test_a_lease_ends_at_any_look(rig: Rig) -> None:
    """A function that was killed requests nothing any more, and the next one begins with an empty request."""
    node, barred = rig.node(), rig.node(unschedulable=True)
    rig.ask(rig.node_request(node), rig.node_request(barred))

    rig.now = NOW + 599
    assert rig.tell()["nodes"].keys() == {node, barred}
    assert rig.held(node)

    rig.now = NOW + 600
    assert rig.tell()["nodes"] == {}
    assert rig.free(node)
    assert rig.raw(barred)["spec"]["unschedulable"] is True
    assert MARK not in rig.raw(barred)["metadata"].get("annotations", {})


def test_a_lease_ends_at_a_broken_request_too(rig: Rig) -> None:
    node = rig.node()
    rig.ask(rig.node_request(node))
    rig.now = NOW + 600
    assert rig.ask(rig.node_request("nonsense"))["refused"]
    assert rig.free(node)


def test_a_repeated_request_renews_the_hold_of_its_node(rig: Rig) -> None:
    node = rig.node()
    rig.ask(rig.node_request(node))
    written: list[str] = []
    for minutes in range(1, 12):
        rig.now = NOW + 60 * minutes
        assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "ready"
        written.append(rig.raw(node)["metadata"]["annotations"][MARK])
    # Not at every look: a thousand nodes would be a thousand calls.
    assert len(set(written)) == 2
    assert rig.tell()["nodes"].keys() == {node}
    assert rig.held(node)

    # A node that is about to be deleted is held for longer from now on.
    rig.ask(rig.node_request(node, expires=rig.now + 7200))
    rig.now += 7199
    rig.tell()
    assert rig.held(node)


def test_a_node_that_could_not_be_released_is_reported_as_a_problem(rig: Rig) -> None:
    node, other = rig.node(), rig.node()
    rig.ask(rig.node_request(node), rig.node_request(other))

    def refuse(send: Send) -> Send:
        def refused(method: str, path: str, body: bytes | None, kind: str) -> Reply:
            if method == "PATCH" and path.endswith(node):
                return Reply(403, b'{"message": "no"}')
            return send(method, path, body, kind)

        return refused

    rig.wrap = refuse
    said = f"{NOT_RELEASED}: hyperpod-{node} (release hyperpod-{node}: no)"
    assert rig.ask()["problem"] == said
    assert rig.held(node) and rig.free(other)
    rig.now = NOW + 600
    assert rig.tell()["problem"] == said


def test_a_person_who_uncordons_and_cordons_later_keeps_the_cordon(rig: Rig) -> None:
    node = rig.node()
    path = f"/api/v1/nodes/hyperpod-{node}"
    rig.ask(rig.node_request(node))
    rig.patch(path, {"spec": {"unschedulable": None}})
    changed: list[bytes | None] = []
    rig.wrap = lambda send: lambda *call: changed.append(call[2]) or send(*call)  # type: ignore[func-returns-value]

    rig.ask()
    assert rig.free(node)
    # Only the mark is removed: a person may cordon the node at the same time.
    (body,) = filter(None, changed)
    assert b"unschedulable" not in body

    rig.patch(path, {"spec": {"unschedulable": True}})
    rig.ask()
    assert rig.raw(node)["spec"]["unschedulable"] is True


@pytest.mark.parametrize("health", ["Schedulable", "UnschedulablePendingReplacement"])
def test_a_node_that_hyperpod_marked_unschedulable_stays_cordoned(rig: Rig, health: str) -> None:
    """It may have cordoned a node that was cordoned already."""
    node = rig.node()
    rig.ask(rig.node_request(node))
    label = {"labels": {"sagemaker.amazonaws.com/node-health-status": health}}
    rig.patch(f"/api/v1/nodes/hyperpod-{node}", {"metadata": label})

    rig.ask()

    raw = rig.raw(node)
    assert MARK not in raw["metadata"].get("annotations", {})
    assert raw["spec"].get("unschedulable", False) is (health != "Schedulable")


def test_a_status_query_changes_nothing(rig: Rig) -> None:
    held, ready, other = rig.node(), rig.node(), rig.node()
    rig.pod(held, "web-1")
    rig.ask(rig.node_request(held), rig.node_request(ready))
    web = rig.pod(other, "web-2")
    before = [rig.raw(each)["metadata"]["resourceVersion"] for each in (held, ready, other)]

    answer = rig.tell()

    assert before == [rig.raw(each)["metadata"]["resourceVersion"] for each in (held, ready, other)]
    assert not rig.ends(web)
    assert {name: one["state"] for name, one in answer["nodes"].items()} == {held: "draining", ready: "ready"}
    assert {one["requests"]["deployment"] for one in answer["nodes"].values()} == {"20271107T090000"}
    assert sorted(answer["busy"]) == sorted([held, other])
    assert answer["requests"] == {}


def test_a_node_that_another_client_cordoned_stays_cordoned_after_its_release(rig: Rig) -> None:
    node = rig.node(unschedulable=True)
    web = rig.pod(node, "web-1")

    rig.ask(rig.node_request(node))
    assert rig.ends(web)
    rig.end_pods()
    said = rig.ask(rig.node_request(node))["nodes"][node]
    assert said["state"] == "ready" and "was cordoned by another client" in said["message"]
    # A new request is not a new cordon.
    rig.ask(rig.node_request(node, request="later"))

    rig.ask()
    assert rig.raw(node)["spec"]["unschedulable"] is True
    assert "annotations" not in rig.raw(node)["metadata"]


def test_a_requested_node_that_was_uncordoned_is_cordoned_again(rig: Rig) -> None:
    node = rig.node()
    rig.ask(rig.node_request(node))
    rig.patch(f"/api/v1/nodes/hyperpod-{node}", {"spec": {"unschedulable": None}})
    late = rig.pod(node, "late")

    answer = rig.ask(rig.node_request(node))

    assert answer["nodes"][node]["state"] == "draining"
    assert rig.held(node)
    assert rig.ends(late)
    rig.ask()
    assert rig.free(node)


def test_karpenters_nodes_are_refused(rig: Rig) -> None:
    node = rig.node(labels={"karpenter.sh/nodepool": "gpus"})
    web = rig.pod(node, "web-1")

    told = rig.ask(rig.node_request(node))["nodes"][node]

    assert (told["state"], codes(told["message"])) == ("refused", ["node-of-karpenter"])
    assert "NodePool gpus" in told["message"]
    assert rig.free(node)
    assert not rig.ends(web)


def test_a_node_that_is_not_there_is_absent(rig: Rig) -> None:
    rig.node()
    answer = rig.ask(rig.node_request("i-0123456789abcdef0"))
    told = answer["nodes"]["i-0123456789abcdef0"]
    assert (told["state"], told["absent"], told["message"]) == ("unknown", True, "Kubernetes has no such node")


def test_a_node_of_a_cluster_without_nodes_is_unknown_and_not_absent(rig: Rig) -> None:
    told = rig.ask(rig.node_request("i-0123456789abcdef0"))["nodes"]["i-0123456789abcdef0"]
    assert (told["state"], "absent" in told) == ("unknown", False)
    assert told["message"].startswith("Kubernetes has no such node; ")


def test_a_node_that_vanishes_is_absent(rig: Rig) -> None:
    rig.node()
    node = rig.node()
    rig.pod(node, "web-1")
    rig.ask(rig.node_request(node))
    rig.admin.delete({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"hyperpod-{node}"}})

    assert rig.ask(rig.node_request(node))["nodes"][node]["absent"] is True


def test_a_node_is_unknown_while_other_nodes_have_no_instance_id(rig: Rig) -> None:
    rig.node("ip-10-0-0-7.ec2.internal")
    rig.node("fargate-ip-10-0-0-8", labels={"eks.amazonaws.com/compute-type": "fargate"})

    told = rig.ask(rig.node_request("i-0123456789abcdef0"))["nodes"]["i-0123456789abcdef0"]

    assert told["state"] == "unknown"
    assert "absent" not in told
    assert told["message"].endswith(": ip-10-0-0-7.ec2.internal")


@pytest.mark.parametrize("way", ["label", "provider"])
def test_an_instance_is_known_by_other_signs_too(rig: Rig, way: str) -> None:
    instance = "i-00000000000abcdef"
    if way == "label":
        rig.node("ip-10-0-0-7", labels={"sagemaker.amazonaws.com/instance-id": instance})
    else:
        rig.node("ip-10-0-0-7", providerID=f"aws:///use1-az1/sagemaker/cluster/hyperpod-abc-{instance}")

    assert rig.ask(rig.node_request(instance))["nodes"][instance]["state"] == "draining"


def test_the_drainer_has_no_other_right(server: Client) -> None:
    drainer = server.as_member("drainer", "cdk-hyperpod-drainer")
    allowed = {
        "nodes": {"get", "list", "patch"},
        "pods": {"list"},
        "pods/eviction": {"create"},
        "secrets": set(),
        "configmaps": set(),
        "pods/exec": set(),
        "events": set(),
        "jobs.batch": set(),
        "cronjobs.batch": set(),
    }
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
    for resource, some in allowed.items():
        assert {verb for verb in verbs if drainer.may(verb, resource, "team")} == some, resource
    assert {verb for verb in verbs if drainer.may(verb, "jobs.batch", "ops")} == {"get", "list", "create", "delete"}
    assert {verb for verb in verbs if drainer.may(verb, "events", "ops")} == {"list"}
    assert not drainer.may("create", "pods", "ops")
    assert {verb for verb in verbs if drainer.may(verb, "cronjobs.batch", "ops", "save-node")} == {"get"}
    assert not drainer.may("get", "cronjobs.batch", "ops", "another")


def test_pods_are_read_as_a_whole_only_where_a_node_is_asked(rig: Rig) -> None:
    """Of the others the server's table has the node and the metadata, which is enough to know who is busy."""
    asked, busy, idle = rig.node(), rig.node(), rig.node()
    rig.pod(asked, "web-1")
    rig.pod(busy, "web-2")
    sent: list[tuple[str, str]] = []

    def record(send: Send) -> Send:
        def recorded(method: str, path: str, body: bytes | None, kind: str) -> Reply:
            sent.append((path.partition("?")[0] + ("" if "nodeName%3D" not in path else "?node"), kind))
            return send(method, path, body, kind)

        return recorded

    rig.wrap = record
    answer = rig.ask(rig.node_request(asked))
    assert answer["busy"].keys() == {asked, busy} and idle not in answer["busy"]
    assert "web-1" in answer["nodes"][asked]["message"]
    assert [each for each in sent if each[0].startswith("/api/v1/pods")] == [
        ("/api/v1/pods", TABLE),
        ("/api/v1/pods?node", "application/json"),
    ]
