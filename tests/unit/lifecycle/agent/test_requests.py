"""What the agent makes of a request."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.kernel import drain_protocol
from helpers.lifecycle.agent import NOW, ONE, node_request, node_request_json, request


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not JSON"),
        (request(node_request_json())[:-9], "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is nested too deep"),
        (b"[]", "is not a JSON object"),
        (request(node_request_json(), schema=2), "schema: this agent reads 1, got 2"),
        (request(node_request_json(), schema=True), "schema: this agent reads 1, got true"),
        (request(node_request_json(), id="a b"), "id: must be of the form"),
        (request(*[node_request_json()] * 2), "nodes: an instance is duplicated"),
        (request(*[{}] * 6759), "nodes: must be a list of at most 6758"),
        (request(nodes={}), "nodes: must be a list"),
        (request("i-1"), "nodes[0]: must be an object"),
        (request(node_request_json(id="i-0; reboot")), "nodes[0].id: must be of the form"),
        (request(node_request_json(id=f"{ONE}\n")), "nodes[0].id: must be of the form"),
        (request(node_request_json(request="$(reboot)")), "nodes[0].request: must be of the form"),
        (request(node_request_json(ip="10.0.0.1 -j")), "nodes[0].ip: must be an address"),
        (request(node_request_json(ip=167772161)), "nodes[0].ip: must be an address"),
        (request(node_request_json(deadline=math.nan)), "nodes[0].deadline: must be a time"),
        (request(node_request_json(expires=NOW * 10)), "nodes[0].expires: must be a time at most 26 h ahead"),
        (request(node_request_json(expires=10**400)), "nodes[0].expires: must be a time"),
        (request(node_request_json(expires=True)), "nodes[0].expires: must be a time"),
        (request(node_request_json(limit=None)), "nodes[0].limit: must be a time"),
        (request(node_request_json(limit=NOW * 10)), "nodes[0].limit: must be a time at most 26 h ahead"),
        (request(node_request_json(on_timeout="kill")), 'nodes[0].on_timeout: must be "fail" or "force", got "kill"'),
        (request(node_request_json(backup=1)), "nodes[0].backup: must be true or false, got 1"),
        (b" " * 3_000_000, "is larger than"),
    ],
)
def test_a_request_that_is_wrong_anywhere_is_refused_as_a_whole(content: bytes, says: str) -> None:
    with pytest.raises(drain_protocol.RequestError) as refused:
        drain_protocol.parse_request("operator", content, NOW)
    assert str(refused.value).startswith(says)
    assert len(str(refused.value)) < 300


def test_a_valid_request_is_parsed() -> None:
    def read(writer: str, content: bytes) -> Any:
        found = drain_protocol.parse_request(writer, content, NOW)
        return found.id, found.nodes

    assert read("operator", request(node_request_json(new="ignored"))) == ("q1", (node_request(),))
    assert read("deployment", request()) == ("q1", ())
    assert read("operator", request(node_request_json(limit=NOW + 90))) == ("q1", (node_request(limit=NOW + 90),))


@pytest.mark.parametrize(
    "where", ['{"schema": %s}', '{"schema": 1, "nodes": [%s]}', '{"schema": 1, "nodes": [{"ip": %s}]}']
)
def test_a_request_that_is_nested_as_deep_as_it_can_be_read_is_refused(where: str) -> None:
    """Who shows what is wrong needs more of the stack than who reads it."""
    for depth in range(1000):
        with pytest.raises(drain_protocol.RequestError):
            drain_protocol.parse_request("operator", (where % ("[" * depth + "]" * depth)).encode(), NOW)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda of: (
            st.lists(of)
            | st.dictionaries(
                st.sampled_from(
                    ["schema", "id", "nodes", "ip", "request", "deadline", "expires", "on_timeout", "backup"]
                ),
                of,
            )
        ),
    )
)
def test_no_request_breaks_the_agent(found: Any) -> None:
    for content in (found, {"schema": 1, "id": "q", "nodes": [found]}, {"schema": 1, "id": "q", "nodes": found}):
        try:
            drain_protocol.parse_request("operator", json.dumps(content).encode(), NOW)
        except drain_protocol.RequestError as error:
            assert "\n" not in str(error)
