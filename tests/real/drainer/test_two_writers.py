"""A deployment and `cdk-hyperpod patch` ask the drainer for nodes of a real API server, and two runs of `patch` for the same ones."""

from __future__ import annotations

from typing import Any

from helpers.drainer.rig import Rig

PATCH = "patch-0123456789ab"


def kept(rig: Rig) -> dict[str, Any]:
    return rig.send({"schema": 1, "cluster": "train", "requests": None, "run": None})


def claim(rig: Rig, version: str, record: object, *nodes: dict[str, Any], request: str = PATCH) -> dict[str, Any]:
    asked = {"operator": {"schema": 1, "id": request, "nodes": list(nodes)}}
    return rig.send({"schema": 1, "cluster": "train", "requests": asked, "run": {"version": version, "record": record}})


def cordoned(rig: Rig, *instances: str) -> list[bool]:
    found = [rig.admin.get(f"/api/v1/nodes/hyperpod-{instance}").body["spec"] for instance in instances]
    return [each.get("unschedulable") is True for each in found]


def test_each_writer_releases_its_own_nodes_and_a_rollback_takes_one_over(rig: Rig) -> None:
    one, two, three = rig.node(), rig.node(), rig.node()
    mine = [rig.node_request(each, PATCH) for each in (one, two)]
    answer = claim(rig, kept(rig)["run_version"], {"owner": "a"}, *mine)
    assert [answer["nodes"][each]["requests"] for each in (one, two)] == [{"operator": PATCH}] * 2
    # A deployment that has nothing to do, and one that wants a node of the patch beside another.
    rig.ask()
    assert cordoned(rig, one, two, three) == [True, True, False]
    told = rig.ask(rig.node_request(one), rig.node_request(three))["nodes"]
    assert {each: told[each]["requests"] for each in (one, two, three)} == {
        one: {"operator": PATCH},
        two: {"operator": PATCH},
        three: {"deployment": "20271107T090000"},
    }
    # The patch wants the deployment's node, and then nothing any more.
    told = claim(rig, answer["run_version"], {"owner": "a"}, *mine, rig.node_request(three, PATCH))
    assert told["nodes"][three]["requests"] == {"deployment": "20271107T090000"}
    told = rig.ask(rig.node_request(one, takes_over=True), rig.node_request(three))["nodes"]
    assert told[one]["requests"] == told[three]["requests"] == {"deployment": "20271107T090000"}
    claim(rig, kept(rig)["run_version"], None)
    assert cordoned(rig, one, two, three) == [True, False, True]
    assert "run" not in kept(rig)
    rig.ask()
    assert cordoned(rig, one, two, three) == [False, False, False]


def test_of_two_runs_at_once_one_gets_the_nodes(rig: Rig) -> None:
    node = rig.node()
    version = kept(rig)["run_version"]
    first = claim(rig, version, {"owner": "a"}, rig.node_request(node, PATCH))
    second = claim(rig, version, {"owner": "b"}, rig.node_request(node, "patch-b"), request="patch-b")
    assert "has changed the run" in second["refused"]["operator"]
    assert second["run"] == {"owner": "a"} and second["nodes"][node]["requests"] == {"operator": PATCH}
    # When another process has gone on with it, the first one does nothing any more.
    rig.now += 700
    gone_on = claim(rig, first["run_version"], {"owner": "b"}, request="patch-b")
    late = claim(rig, first["run_version"], {"owner": "a"}, rig.node_request(node, PATCH))
    assert late["refused"] and cordoned(rig, node) == [False]
    claim(rig, gone_on["run_version"], None, request="patch-b")


def test_the_lease_of_a_patch_ends_whoever_asks(rig: Rig) -> None:
    node = rig.node()
    claim(rig, kept(rig)["run_version"], None, rig.node_request(node, PATCH))
    rig.now += 500
    rig.ask()
    assert cordoned(rig, node) == [True]
    rig.now += 200
    rig.ask()
    assert cordoned(rig, node) == [False]
