"""The drain protocol: what one side writes, the other understands."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import (
    DRAINER,
    INSTANCE_ID,
    MAX_AHEAD_S,
    REQUEST_ID,
    SILENT_S,
    WRITERS,
    NodeRequest,
    NodeStatus,
    Request,
    Status,
    StatusError,
    StatusJob,
    check_request,
    make_node_request,
    make_request,
    make_status,
    parse_request,
    parse_status,
)

NOW = 1_800_000_000.0
TIMES = st.floats(0, NOW + MAX_AHEAD_S)
NODE = ["state", "message", "requests", "saved", "jobs", "absent", "ip", "slurm", "running"]
STATUS = [*make_status(Status()), *NODE, "i-1", "user"]


def node_requests(eks: bool) -> st.SearchStrategy[NodeRequest]:
    return st.builds(
        NodeRequest,
        writer=st.sampled_from(WRITERS),
        request_id=st.from_regex(REQUEST_ID, fullmatch=True, alphabet=st.characters(codec="ascii")),
        instance=st.from_regex(INSTANCE_ID, fullmatch=True),
        address=st.just("") if eks else st.ip_addresses(v=4).map(str),
        deadline=TIMES,
        expires=TIMES,
        force=st.booleans(),
        backup=st.booleans(),
        limit=st.none() if eks else st.none() | TIMES,
        evict_unmanaged=st.booleans() if eks else st.none(),
    )


@given(node_requests(eks=False))
def test_the_agent_reads_the_request_that_was_written(node_request: NodeRequest) -> None:
    content = json.dumps(make_request("r-1", [make_node_request(node_request)])).encode()
    assert parse_request(node_request.writer, content, NOW) == Request("r-1", (node_request,))


@given(node_requests(eks=True))
def test_the_drainer_reads_the_request_that_was_written(node_request: NodeRequest) -> None:
    found = json.loads(json.dumps(make_request("r-1", [make_node_request(node_request)])))
    assert check_request(DRAINER, node_request.writer, found, NOW) == Request("r-1", (node_request,))


IDS = st.from_regex(INSTANCE_ID, fullmatch=True)
JOBS = st.builds(tuple, st.lists(st.builds(StatusJob, st.text(), st.text()), max_size=2))
BY_WRITER = st.dictionaries(st.sampled_from(WRITERS), st.text(min_size=1))
NODES = st.builds(
    NodeStatus,
    state=st.text(min_size=1),
    message=st.text(),
    requests=BY_WRITER,
    saved=st.booleans(),
    absent=st.booleans(),
    address=st.just("") | st.ip_addresses(v=4).map(str),
    host=st.text(),
    jobs=JOBS,
    running=st.none() | st.integers(0, 110),
)
STATUSES = st.builds(
    Status,
    beat=st.integers(0, 2 * int(NOW)),
    requests=BY_WRITER,
    refused=BY_WRITER,
    problem=st.text(),
    backup=st.none() | st.text(min_size=1),
    nodes=st.dictionaries(IDS, NODES, max_size=3),
    busy=st.dictionaries(IDS, JOBS, max_size=3),
    left_out=st.dictionaries(IDS, st.integers(1, 2**53 - 1), max_size=3),
)


@given(STATUSES)
def test_every_reader_reads_the_status_that_was_written(status: Status) -> None:
    assert parse_status(json.dumps(make_status(status)).encode(), str) == status


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.just(10**400) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*STATUS]), inner, max_size=4),
    max_leaves=9,
)


@given(JSON | st.fixed_dictionaries({"schema": st.just(1)}, optional=dict.fromkeys(STATUS[1:], JSON)))
def test_any_status_that_is_read_has_valid_fields(found: object) -> None:
    try:
        status = parse_status(json.dumps(found).encode(), str)
    except StatusError:
        return
    again = parse_status(json.dumps(make_status(status)).encode(), str)
    assert again == status
    assert all(node.state for node in status.nodes.values())
    age = status.age(NOW)
    assert age is None or age >= 0


@pytest.mark.parametrize(
    ("content", "why"),
    [
        *((content, "that is not a JSON object") for content in (b"", b"[]", b'{"schema": 1', b"\xff", b"[" * 99_999)),
        *((content, "of another version") for content in (b"{}", b'{"schema": 2}', b'{"schema": "1"}')),
    ],
)
def test_an_invalid_status_is_refused_with_its_reason(content: bytes, why: str) -> None:
    with pytest.raises(StatusError, match=f"^has a status {why}$"):
        parse_status(content, str)


def test_busy_nodes_of_the_previous_versions_drainer_are_read() -> None:
    assert parse_status(b'{"schema": 1, "busy": ["i-1"]}', str).busy == {"i-1": ()}


@pytest.mark.parametrize(
    ("beat", "age"),
    [(NOW - 60, 60), (NOW + SILENT_S, 0), (NOW + SILENT_S + 1, None), (float("inf"), None), (True, None), ("1", None)],
)
def test_a_time_too_far_ahead_or_none_at_all_is_no_age(beat: object, age: float | None) -> None:
    assert parse_status(json.dumps({"schema": 1, "beat": beat}).encode(), str).age(NOW) == age


def test_all_text_of_others_is_made_printable() -> None:
    def marked(found: object) -> str:
        return f"<{found}>"

    told: Mapping[str, object] = {
        "schema": 1,
        "problem": "a",
        "backup": "a",
        "refused": {"a": "a"},
        "requests": {"a": "a"},
        "nodes": {"a": dict.fromkeys(["state", "message", "ip", "slurm"], "a") | {"requests": {"a": "a"}}},
        "busy": {"a": [{"id": "a", "user": "a"}]},
        "left_out": {"a": 1},
    }
    status = parse_status(json.dumps(told).encode(), marked)
    node = NodeStatus("<a>", "<a>", {"<a>": "<a>"}, address="<a>", host="<a>")
    texts = {"<a>": "<a>"}
    busy = {"<a>": (StatusJob("<a>", "<a>"),)}
    left_out = {"<a>": 1}
    assert status == Status(
        requests=texts, refused=texts, problem="<a>", backup="<a>", nodes={"<a>": node}, busy=busy, left_out=left_out
    )
