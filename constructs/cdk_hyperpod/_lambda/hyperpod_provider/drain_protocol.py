"""The protocol of drains (docs/adr/0014): what is asked for in a request, and what its reader answers in a status.

One file for all who speak it: the scale-down function and the drainer, which have it beside them; the commands, which
import it; and the agent on a Slurm controller, which gets a copy with the lifecycle scripts (`_assets.pack_lifecycle`). So
it imports the standard library alone, and runs on Python 3.8, which is what nodes have.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_NODES = 6758
"""HyperPod's own limit for a group (botocore: ClusterInstanceCount), and the most that scale_down.max_nodes can be."""

# As texts: compiling them is a part of a function's cold start, and most polls ask for few.
NODE_ID = r"i-[a-f0-9]{8}(?:[a-f0-9]{9})?"
"""What SageMaker takes for the id of a node (botocore: ClusterNodeId)."""
INSTANCE_ID = r"i-[0-9a-f]{8,17}"
"""What the protocol takes for one, and what names of nodes, reservations and Jobs have of it: any that EC2 may ever give."""
REQUEST_ID = r"[A-Za-z0-9-]{1,64}"
"""What a writer may call a request, or what it wants of one node."""

SCHEMA = 1
"""Of requests and of statuses."""
WRITERS = ("deployment", "operator")
"""Who may ask. Each has one request, which nobody else writes."""
MAX_AHEAD_S = 26 * 3600
"""No request holds a node longer: one that outlives this is no request of ours."""
MAX_REQUEST_BYTES = 2 * 1024**2
MAX_STATUS_BYTES = 8 * 1024**2
"""What is read of a status: more than a thousand bytes for every node that a cluster may have."""
SILENT_S = 180
"""The agent writes its status every minute; after this long it is taken for dead."""


def request_key(cluster_name: str, writer: str) -> str:
    """Where a writer's request is, in the bucket."""
    return f"{cluster_name}/requests/{writer}.json"


def status_key(cluster_name: str) -> str:
    """Where the agent's status is."""
    return f"{cluster_name}/status.json"


# -- requests ---------------------------------------------------------------------------------------------------------


class RequestError(Exception):
    """Why a request is refused: one sentence."""


@dataclass(frozen=True)
class Wish:
    """What one request wants of one node."""

    writer: str
    request: str
    """What the writer calls this wish. Only a backup that was made for it counts."""
    instance: str
    address: str
    """By which the agent knows the node. Empty: the drainer is asked, which needs none."""
    deadline: float
    """Until when its jobs or pods may run, in seconds since 1970."""
    expires: float
    """Until when the node is held."""
    force: bool
    """At the deadline: jobs are ended, and pods end with the node. Else the node goes back."""
    backup: bool
    limit: float | None = None
    """Until when it is waited for in all, where that is sooner than the node is held: a deployment renews what it holds."""
    evict_unmanaged: bool | None = None
    """Whether pods that no controller owns are evicted. Else the drainer refuses the node. Absent: the agent is asked."""


@dataclass(frozen=True)
class Request:
    """What one writer wants."""

    id: str
    wishes: tuple[Wish, ...]


@dataclass(frozen=True)
class Member:
    """What a member of a wish has to be: its rule, which knows the time, and the words for it."""

    is_right: Callable[[Any, float], bool]
    must_be: str


@dataclass(frozen=True)
class Reader:
    """Who reads requests, and what it takes."""

    title: str
    members: Mapping[str, Member]
    optional: frozenset[str]


def _has_form(pattern: str) -> Member:
    def is_right(value: Any, _: float) -> bool:
        return isinstance(value, str) and re.fullmatch(pattern, value) is not None

    return Member(is_right, f"of the form {pattern}")


def _is_address(value: Any, _: float = 0.0) -> bool:
    try:
        ipaddress.IPv4Address(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


def _is_time(moment: Any, now: float) -> bool:
    try:
        # Not only a number: not NaN, which compares with nothing, and no truth value.
        known = isinstance(moment, (int, float)) and not isinstance(moment, bool) and math.isfinite(moment)
        return known and 0 <= moment <= now + MAX_AHEAD_S
    except OverflowError:
        return False


def _is_one_of(*words: str) -> Member:
    def is_right(value: Any, _: float) -> bool:
        return isinstance(value, str) and value in words

    return Member(is_right, " or ".join(map(json.dumps, words)))


_TIME = Member(_is_time, f"a time at most {MAX_AHEAD_S // 3600} h ahead")
_MEMBERS = {
    "id": _has_form(INSTANCE_ID),
    "ip": Member(_is_address, "an address"),
    "request": _has_form(REQUEST_ID),
    "deadline": _TIME,
    "limit": _TIME,
    "expires": _TIME,
    "on_timeout": _is_one_of("fail", "force"),
    "backup": Member(lambda value, _: isinstance(value, bool), "true or false"),
}
AGENT = Reader("this agent", _MEMBERS, frozenset(["limit"]))
DRAINER = Reader(
    "the drainer",
    {
        **{name: member for name, member in _MEMBERS.items() if name != "limit"},
        # It needs none, since a replacement has another id; whoever sends one sends an address.
        "ip": Member(lambda value, now: value == "" or _is_address(value, now), "an address"),
        "unmanaged_pods": _is_one_of("fail", "evict"),
    },
    frozenset(["ip", "unmanaged_pods"]),
)


def parse_request(writer: str, content: bytes, now: float) -> Request:
    """The request in an object that the agent reads. Raises RequestError for all of it where anything is wrong: nothing is done
    by halves."""
    if len(content) > MAX_REQUEST_BYTES:
        raise RequestError(f"is larger than {MAX_REQUEST_BYTES} bytes")
    try:
        return check_request(AGENT, writer, _parse_json(content), now)
    except RecursionError:
        # What could be read is shown, which takes a little more of the stack.
        raise RequestError("is nested too deep") from None


def _parse_json(content: bytes) -> object:
    try:
        return json.loads(content.decode("utf-8"))
    except ValueError:
        raise RequestError("is no JSON, or only a part of it") from None


def check_request(reader: Reader, writer: str, found: object, now: float) -> Request:
    """The request in what was read of JSON. Raises RequestError as parse_request does, and RecursionError."""
    if not isinstance(found, dict):
        raise RequestError("is no object")
    check_schema(reader, found)
    nodes = found.get("nodes")
    if not isinstance(nodes, list) or len(nodes) > MAX_NODES:
        raise RequestError(f"nodes: must be a list of at most {MAX_NODES}")
    wishes = tuple(_check_wish(reader, writer, f"nodes[{i}]", node, now) for i, node in enumerate(nodes))
    if len({wish.instance for wish in wishes}) != len(wishes):
        raise RequestError("nodes: names an instance twice")
    name = found.get("id")
    if not _MEMBERS["request"].is_right(name, now):
        raise RequestError(f"id: must be {_MEMBERS['request'].must_be}, got {show(name)}")
    return Request(str(name), wishes)


def check_schema(reader: Reader, found: Mapping[str, Any]) -> None:
    """Raises RequestError for a request, or an event, of another version."""
    schema = found.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise RequestError(f"schema: {reader.title} reads {SCHEMA}, got {show(schema)}; bring both up to date")


def wrong_member(reader: Reader, node: Mapping[str, Any], now: float) -> str | None:
    """The first member of a wish that the reader refuses."""
    given = [name for name in reader.members if name in node or name not in reader.optional]
    return next((name for name in given if not reader.members[name].is_right(node.get(name), now)), None)


def _check_wish(reader: Reader, writer: str, path: str, node: Any, now: float) -> Wish:
    if not isinstance(node, dict):
        raise RequestError(f"{path}: must be an object, got {show(node)}")
    wrong = wrong_member(reader, node, now)
    if wrong is not None:
        raise RequestError(f"{path}.{wrong}: must be {reader.members[wrong].must_be}, got {show(node.get(wrong))}")
    takes_limit = "limit" in reader.members and "limit" in node
    return Wish(
        writer=writer,
        request=node["request"],
        instance=node["id"],
        address=node.get("ip", ""),
        deadline=float(node["deadline"]),
        expires=float(node["expires"]),
        force=node["on_timeout"] == "force",
        backup=node["backup"],
        limit=float(node["limit"]) if takes_limit else None,
        evict_unmanaged=node.get("unmanaged_pods") == "evict" if "unmanaged_pods" in reader.members else None,
    )


def make_request(name: str, nodes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A request of wishes that make_wish has made."""
    return {"schema": SCHEMA, "id": name, "nodes": list(nodes)}


def make_wish(wish: Wish) -> dict[str, Any]:
    """A wish as it stands in a request."""
    unmanaged = {True: "evict", False: "fail"}
    return {
        "id": wish.instance,
        **({"ip": wish.address} if wish.address else {}),
        "request": wish.request,
        "deadline": wish.deadline,
        **({} if wish.limit is None else {"limit": wish.limit}),
        "expires": wish.expires,
        "on_timeout": "force" if wish.force else "fail",
        "backup": wish.backup,
        **({} if wish.evict_unmanaged is None else {"unmanaged_pods": unmanaged[wish.evict_unmanaged]}),
    }


def show(value: Any) -> str:
    """What was found in place of something else, as JSON, and not all of it."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 80 else f"{text[:80]}…"
