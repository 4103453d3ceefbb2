"""Looks that are killed anywhere, calls that fail, and looks that overlap, on the real API server.

The result is always the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import Reply, Send
from helpers.drainer.rig import Rig


class Killed(Exception):
    """The function has timed out, or its machine has ended."""


def life(rig: Rig, kill: Kill) -> None:
    """A node is drained, backed up, and finally released. A node of an earlier deployment's request is released too."""
    node, given_up = rig.node(), rig.node()
    web = rig.pod(node, "web-1")

    def look(*requests: dict[str, Any]) -> dict[str, Any]:
        try:
            return rig.ask(*requests)
        except Killed:
            # The caller repeats its request.
            return rig.ask(*requests)

    rig.wrap = kill.wrap
    look(rig.node_request(given_up, request="before"))
    look(rig.node_request(node))
    rig.end_pods()
    look(rig.node_request(node))
    if not rig.ended_already():
        rig.job_ends("Succeeded")
    look(rig.node_request(node))

    def is_ready() -> bool:
        # A Job whose uid could not be recorded is deleted, and its pod ends.
        rig.end_pods()
        told = look(rig.node_request(node))["nodes"][node]
        return (told["state"], told["saved"]) == ("ready", True)

    rig.until(is_ready, str(kill))
    assert rig.held(node) and rig.free(given_up), kill
    assert rig.ends(web), kill
    assert len(rig.jobs()) == 1, kill
    look()
    assert rig.free(node), kill
    rig.wrap = lambda send: send
    rig.clear_nodes()


def test_killed_at_every_call_it_comes_to_the_same_end(rig: Rig) -> None:
    rig.cron_job()
    whole = Kill(-1)
    life(rig, whole)
    kinds = {" ".join((method, path.split("/")[-1])) for method, path in whole.seen if method == "POST"}
    assert kinds == {"POST eviction", "POST jobs"}
    assert [method for method, _ in whole.seen].count("PATCH") == 6

    for number, (method, _) in enumerate(whole.seen):
        life(rig, Kill(number))
        if method != "GET":
            # The server has done it, but the reply was lost.
            life(rig, Kill(number, after=True))


@dataclass
class Kill:
    """Ends the look at one call, before the server has received it or after."""

    at: int
    after: bool = False
    seen: list[tuple[str, str]] = field(default_factory=list)

    def wrap(self, send: Send) -> Send:
        def killing(method: str, path: str, body: bytes | None, kind: str) -> Reply:
            mine = len(self.seen) == self.at
            self.seen.append((method, path.partition("?")[0]))
            if mine and not self.after:
                raise Killed
            reply = send(method, path, body, kind)
            if mine:
                raise Killed
            return reply

        return killing


# -- looks that meet --------------------------------------------------------------------------------------------------


def between(rig: Rig, happens: Callable[[], object]) -> None:
    """Something happens once between the drainer's read and its change."""
    left = [happens]

    def wrap(send: Send) -> Send:
        def meeting(method: str, path: str, body: bytes | None, kind: str) -> Reply:
            if method != "GET" and left:
                left.pop()()
            return send(method, path, body, kind)

        return meeting

    rig.wrap = wrap


def test_two_drainer_runs_at_once_have_the_same_result(rig: Rig) -> None:
    rig.cron_job()
    node = rig.node()
    web = rig.pod(node, "web-1")

    between(rig, lambda: rig.ask(rig.node_request(node)))
    rig.ask(rig.node_request(node))
    assert rig.held(node) and rig.ends(web)
    rig.end_pods()

    between(rig, lambda: rig.ask(rig.node_request(node)))
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "backing-up"
    assert len(rig.jobs()) == 1
    rig.job_ends("Succeeded")

    between(rig, lambda: rig.ask(rig.node_request(node)))
    assert rig.ask(rig.node_request(node))["nodes"][node]["saved"] is True
    between(rig, lambda: rig.ask())
    rig.ask()
    assert rig.free(node)


def test_a_concurrent_status_update_by_the_kubelet_does_not_fail_the_drain(rig: Rig) -> None:
    node = rig.node()
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"hyperpod-{node}"}}
    between(rig, lambda: rig.admin.patch_status(manifest, {"nodeInfo": {"bootID": "another"}}))

    assert "has been modified" not in rig.ask(rig.node_request(node))["nodes"][node]["message"]
    assert rig.held(node)


def test_a_person_who_cordons_meanwhile_keeps_the_cordon(rig: Rig) -> None:
    node = rig.node()
    web = rig.pod(node, "web-1")
    between(rig, lambda: rig.patch(f"/api/v1/nodes/hyperpod-{node}", {"spec": {"unschedulable": True}}))

    told = rig.ask(rig.node_request(node))["nodes"][node]["message"]
    assert f"cordon hyperpod-{node}: another client changed the node" in told
    # No pod is evicted from a node without the mark.
    assert not rig.ends(web)
    rig.ask(rig.node_request(node))
    rig.ask()
    assert rig.raw(node)["spec"]["unschedulable"] is True


def test_a_node_that_hyperpod_marks_during_its_release_stays_cordoned(rig: Rig) -> None:
    node = rig.node()
    rig.ask(rig.node_request(node))
    bars = {"metadata": {"labels": {"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReboot"}}}
    between(rig, lambda: rig.patch(f"/api/v1/nodes/hyperpod-{node}", bars))

    assert f"(release hyperpod-{node}: another client changed the node" in rig.ask()["problem"]
    rig.ask()
    assert rig.raw(node)["spec"]["unschedulable"] is True
    assert not rig.held(node)


def test_a_pod_of_the_same_name_elsewhere_is_not_the_one(rig: Rig) -> None:
    """A StatefulSet creates it again as soon as it is deleted."""
    node, other = rig.node(), rig.node()
    rig.pod(node, "db-0", owner="StatefulSet/db")
    anew: list[str] = []

    def made_anew() -> None:
        rig.admin.delete({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0", "namespace": "team"}})
        anew.append(rig.pod(other, "db-0", owner="StatefulSet/db"))

    rig.ask(rig.node_request(node, deadline=0.0, on_timeout="force"))
    between(rig, made_anew)
    message = rig.ask(rig.node_request(node))["nodes"][node]["message"]

    assert not rig.ends(anew[0])
    assert "evict" not in message


def test_a_pod_and_a_node_that_go_meanwhile(rig: Rig) -> None:
    node, gone = rig.node(), rig.node()
    rig.pod(node, "web-1")

    def go() -> None:
        rig.admin.delete({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "team"}})
        rig.admin.delete({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"hyperpod-{gone}"}})

    between(rig, go)
    told = rig.ask(rig.node_request(node), rig.node_request(gone))["nodes"]

    assert "evict" not in told[node]["message"]
    assert f'nodes "hyperpod-{gone}" not found' in told[gone]["message"]
    assert rig.ask(rig.node_request(gone))["nodes"][gone]["absent"] is True


# -- calls that fail --------------------------------------------------------------------------------------------------


def failing(rig: Rig, reply: Reply | Exception, times: int, where: str) -> None:
    left = [times]

    def wrap(send: Send) -> Send:
        def failed(method: str, path: str, body: bytes | None, kind: str) -> Reply:
            if where in f"{method} {path}" and left[0]:
                left[0] -= 1
                if isinstance(reply, Exception):
                    raise reply
                return reply
            return send(method, path, body, kind)

        return failed

    rig.wrap = wrap


BUSY = Reply(429, b'{"message": "Too many requests, please try again later."}')
PASSING = [
    BUSY,
    Reply(429, b"", "1"),
    Reply(503, b"upstream"),
    Reply(200, b'{"items": ['),
    ConnectionResetError("gone"),
]


@pytest.mark.parametrize("reply", PASSING, ids=lambda reply: repr(reply)[:30])
def test_reads_are_sent_again_and_what_lasts_ends_the_look(rig: Rig, reply: Reply | Exception) -> None:
    node, held = rig.node(), rig.node()
    rig.ask(rig.node_request(held))

    failing(rig, reply, 99, "GET /api/v1/pods")
    answer = rig.ask(rig.node_request(node))
    assert answer["problem"].startswith("GET /api/v1/pods: ")
    assert (answer["nodes"], answer["busy"]) == ({}, {})
    # Other pods are unknown, so nothing is done.
    assert rig.held(held) and rig.free(node)

    failing(rig, reply, 3, "GET /api/v1/pods")
    assert rig.ask(rig.node_request(node))["problem"] == ""
    assert rig.free(held) and rig.held(node)


def test_a_refusal_is_not_tried_again(rig: Rig) -> None:
    sent: list[str] = []

    def wrap(send: Send) -> Send:
        def refusing(method: str, path: str, body: bytes | None, kind: str) -> Reply:
            sent.append(path)
            return Reply(403, json.dumps({"message": "nodes is forbidden"}).encode())

        return refusing

    rig.wrap = wrap
    assert rig.ask()["problem"] == "GET /api/v1/nodes: nodes is forbidden"
    assert len(sent) == 1


@pytest.mark.parametrize(
    "reply", [*PASSING, Reply(500, b'{"message": "This pod has more than one PodDisruptionBudget"}')]
)
def test_an_eviction_is_sent_once_in_a_look(rig: Rig, reply: Reply | Exception) -> None:
    node = rig.node()
    web = rig.pod(node, "web-1")

    failing(rig, reply, 1, "/eviction")
    told = rig.ask(rig.node_request(node))["nodes"][node]
    assert told["state"] == "draining"
    assert "evict team/web-1: " in told["message"]
    assert not rig.ends(web)

    rig.ask(rig.node_request(node))
    assert rig.ends(web)


def test_pods_of_a_node_that_could_not_be_cordoned_stay(rig: Rig) -> None:
    node, other = rig.node(), rig.node()
    web, more = rig.pod(node, "web-1"), rig.pod(other, "web-2")

    failing(rig, BUSY, 1, f"PATCH /api/v1/nodes/hyperpod-{node}")
    rig.ask(rig.node_request(node), rig.node_request(other))

    assert rig.free(node) and not rig.ends(web)
    assert rig.held(other) and rig.ends(more)


def test_a_node_with_an_invalid_drain_annotation_stays_cordoned(rig: Rig) -> None:
    """Its owner is unknown."""
    for text in ("", "[]", '{"request": 7, "deadline": "x"}', "{" * 2000):
        node = rig.node()
        rig.ask(rig.node_request(node))
        rig.patch(f"/api/v1/nodes/hyperpod-{node}", {"metadata": {"annotations": {"cdk-hyperpod.dev/drain": text}}})
        assert rig.tell()["nodes"] == {}
        assert not rig.raw(node)["metadata"].get("annotations")
        rig.ask()
        assert rig.raw(node)["spec"]["unschedulable"] is True


# -- requests that nobody should send ---------------------------------------------------------------------------------


def test_a_broken_request_touches_nothing(rig: Rig) -> None:
    held, wanted = rig.node(), rig.node()
    rig.ask(rig.node_request(held))

    answer = rig.ask(rig.node_request(wanted), rig.node_request("i-0; reboot"))

    said = 'nodes[1].id: must be of the form i-[0-9a-f]{8,17}, got "i-0; reboot"'
    assert answer["refused"] == {"deployment": f"the request of the deployment {said}"}
    assert answer["requests"] == {}
    assert rig.held(held) and rig.free(wanted)
    assert answer["nodes"].keys() == {held}
