"""The protocol of drains (docs/adr/0014): the requests, and the status with which their reader answers.

All participants share this file. The scale-down function and the drainer are uploaded with it. The commands import it. The agent
on a Slurm controller gets a copy with the lifecycle scripts (`_common.assets.pack_lifecycle`). So it imports only the standard
library, and runs on Python 3.8, the version on the nodes.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_NODES = 6758
"""HyperPod's own limit for a group (botocore: ClusterInstanceCount), and the most that scale_down.max_nodes can be."""

# As texts: compiling them is a part of a function's cold start, and most polls need few.
NODE_ID = r"i-[a-f0-9]{8}(?:[a-f0-9]{9})?"
"""What SageMaker accepts as the id of a node (botocore: ClusterNodeId)."""
INSTANCE_ID = r"i-[0-9a-f]{8,17}"
"""What the protocol accepts as one, and the form in names of nodes, reservations and Jobs: any id that EC2 may ever give."""
REQUEST_ID = r"[A-Za-z0-9-]{1,64}"
"""The id of a request, or of the request for one node."""

SCHEMA = 1
"""Of requests and of statuses."""
WRITERS = ("deployment", "operator")
"""Who may write requests. Each writer has one request, which only it writes."""
PATCH = "patch-"
"""How the ids of requests begin that a run of `cdk-hyperpod patch` has written. It is an operator, too."""
MAX_AHEAD_S = 26 * 3600
"""No request holds a node longer. A longer one is not a request of ours."""
MAX_REQUEST_BYTES = 2 * 1024**2
MAX_STATUS_BYTES = 8 * 1024**2
"""Maximum size of a status: more than a thousand bytes for every node that a cluster may have."""
SILENT_S = 180
"""The agent writes its status every minute. After this long without one it counts as dead."""
NO_INSTANCE = "is no instance of this cluster"
"""How the agent's message begins if HyperPod's list on the controller does not have the node."""
NOT_RELEASED = "not released"
"""How the drainer's problem begins if only nodes that no request wants stay held."""


def request_key(cluster_name: str, writer: str) -> str:
    """The key of a writer's request in the bucket."""
    return f"{cluster_name}/requests/{writer}.json"


def status_key(cluster_name: str) -> str:
    """The key of the agent's status."""
    return f"{cluster_name}/status.json"


# -- requests ---------------------------------------------------------------------------------------------------------


class RequestError(Exception):
    """Why a request is refused: one sentence."""


@dataclass(frozen=True)
class NodeRequest:
    """The request of one writer for one node."""

    writer: str
    request_id: str
    """The writer's name for this request. Only a backup that was made for it counts."""
    instance: str
    address: str
    """The address by which the agent knows the node. Empty: the request is for the drainer, which needs none."""
    deadline: float
    """Until when its jobs or pods may run, in seconds since 1970."""
    expires: float
    """Until when the node is held."""
    force: bool
    """At the deadline, jobs are ended, and pods end with the node. Otherwise the node is released."""
    backup: bool
    limit: float | None = None
    """Until when the writer waits for the node, if that is earlier than `expires`: a deployment renews its lease."""
    evict_unmanaged: bool | None = None
    """Whether pods that no controller owns are evicted. Otherwise the drainer refuses the node. None: the request is for the agent."""
    takes_over: bool = False
    """The drainer takes the node over from the other writer, which a rollback does not wait for. The agent holds it for both."""


@dataclass(frozen=True)
class Request:
    """The request of one writer."""

    id: str
    nodes: tuple[NodeRequest, ...]


@dataclass(frozen=True)
class Member:
    """The rule for a member of a node's request, which knows the time, and its description."""

    is_valid: Callable[[Any, float], bool]
    must_be: str


@dataclass(frozen=True)
class Reader:
    """A reader of requests, and the members that it accepts."""

    title: str
    members: Mapping[str, Member]
    optional: frozenset[str]


def _has_form(pattern: str) -> Member:
    def is_valid(value: Any, _: float) -> bool:
        return isinstance(value, str) and re.fullmatch(pattern, value) is not None

    return Member(is_valid, f"of the form {pattern}")


def _is_address(value: Any, _: float = 0.0) -> bool:
    try:
        ipaddress.IPv4Address(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


def _is_number(value: Any) -> bool:
    """In Python true and false are numbers, too."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_time(value: Any, now: float) -> bool:
    if not _is_number(value):
        return False
    try:
        # Comparisons with NaN are false.
        return math.isfinite(value) and 0 <= value <= now + MAX_AHEAD_S
    except OverflowError:
        return False


def _is_one_of(*words: str) -> Member:
    def is_valid(value: Any, _: float) -> bool:
        return isinstance(value, str) and value in words

    return Member(is_valid, " or ".join(map(json.dumps, words)))


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
        # The drainer needs no address, since a replacement has another id. If one is sent, it must be an address.
        "ip": Member(lambda value, now: value == "" or _is_address(value, now), "an address"),
        "unmanaged_pods": _is_one_of("fail", "evict"),
        "takes_over": _MEMBERS["backup"],
    },
    frozenset(["ip", "unmanaged_pods", "takes_over"]),
)


def parse_request(writer: str, content: bytes, now: float) -> Request:
    """The request in an object that the agent reads. Raises RequestError for the whole request if any part is
    wrong."""
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
        raise RequestError("is not JSON, or only a part of it") from None


def check_request(reader: Reader, writer: str, found: object, now: float) -> Request:
    """The request in what was read of JSON. Raises RequestError as parse_request does, and RecursionError."""
    if not isinstance(found, dict):
        raise RequestError("is not a JSON object")
    check_schema(reader, found)
    requests = _check_node_requests(reader, writer, found.get("nodes"), now)
    name = found.get("id")
    if not _MEMBERS["request"].is_valid(name, now):
        raise RequestError(f"id: must be {_MEMBERS['request'].must_be}, got {show(name)}")
    return Request(str(name), requests)


def _check_node_requests(reader: Reader, writer: str, nodes: object, now: float) -> tuple[NodeRequest, ...]:
    if not isinstance(nodes, list) or len(nodes) > MAX_NODES:
        raise RequestError(f"nodes: must be a list of at most {MAX_NODES}")
    requests = tuple(_check_node_request(reader, writer, f"nodes[{i}]", node, now) for i, node in enumerate(nodes))
    if len({request.instance for request in requests}) != len(requests):
        raise RequestError("nodes: an instance is duplicated")
    return requests


def check_schema(reader: Reader, found: Mapping[str, Any]) -> None:
    """Raises RequestError for a request, or an event, of another version."""
    schema = found.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise RequestError(f"schema: {reader.title} reads {SCHEMA}, got {show(schema)}; bring both up to date")


def wrong_member(reader: Reader, node: Mapping[str, Any], now: float) -> str | None:
    """The first member of a node's request that the reader refuses. None: the reader accepts them all."""
    for name, member in reader.members.items():
        if name not in node and name in reader.optional:
            continue
        if not member.is_valid(node.get(name), now):
            return name
    return None


def _check_node_request(reader: Reader, writer: str, path: str, node: Any, now: float) -> NodeRequest:
    if not isinstance(node, dict):
        raise RequestError(f"{path}: must be an object, got {show(node)}")
    wrong = wrong_member(reader, node, now)
    if wrong is not None:
        raise RequestError(f"{path}.{wrong}: must be {reader.members[wrong].must_be}, got {show(node.get(wrong))}")
    has_limit = "limit" in reader.members and "limit" in node
    return NodeRequest(
        writer=writer,
        request_id=node["request"],
        instance=node["id"],
        address=node.get("ip", ""),
        deadline=float(node["deadline"]),
        expires=float(node["expires"]),
        force=node["on_timeout"] == "force",
        backup=node["backup"],
        limit=float(node["limit"]) if has_limit else None,
        evict_unmanaged=node.get("unmanaged_pods") == "evict" if "unmanaged_pods" in reader.members else None,
        takes_over="takes_over" in reader.members and node.get("takes_over") is True,
    )


def make_request(name: str, nodes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A request for nodes that make_node_request has made."""
    return {"schema": SCHEMA, "id": name, "nodes": list(nodes)}


def make_node_request(request: NodeRequest) -> dict[str, Any]:
    """A node's request, as a writer's request has it."""
    unmanaged = {True: "evict", False: "fail"}
    return {
        "id": request.instance,
        **({"ip": request.address} if request.address else {}),
        "request": request.request_id,
        "deadline": request.deadline,
        **({} if request.limit is None else {"limit": request.limit}),
        "expires": request.expires,
        "on_timeout": "force" if request.force else "fail",
        "backup": request.backup,
        **({} if request.evict_unmanaged is None else {"unmanaged_pods": unmanaged[request.evict_unmanaged]}),
        **({"takes_over": True} if request.takes_over else {}),
    }


def show(value: Any) -> str:
    """A wrong value as JSON, cut to 80 characters."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 80 else f"{text[:80]}…"


# -- statuses ---------------------------------------------------------------------------------------------------------


NO_TIME = "has a status whose time is missing or in the future"
"""Why a status without an age is unusable. It follows "the agent", as a StatusError does."""


class StatusError(Exception):
    """Why what was read is not a status, or not one of this version."""


@dataclass(frozen=True)
class StatusJob:
    """A job on a node, or a pod."""

    id: str
    user: str

    @property
    def title(self) -> str:
        return f"{self.id} of {self.user}"


@dataclass(frozen=True)
class NodeStatus:
    """What the agent or the drainer reports of one requested node."""

    state: str = ""
    message: str = ""
    requests: Mapping[str, str] = field(default_factory=dict)
    """Writer -> id of its request that the node is held for."""
    saved: bool = False
    """It is ready, and what had to be saved is saved."""
    waived: bool = False
    """It is ready, and a person said on the node that it may be deleted unsaved."""
    absent: bool = False
    """It is a node of the cluster, and neither Slurm nor Kubernetes has it: nothing runs there."""
    address: str = ""
    host: str = ""
    """Its name in Slurm."""
    jobs: tuple[StatusJob, ...] = ()
    """Some of those that run there."""
    running: int | None = None
    """How many pods run there. None: the node is Slurm's."""


@dataclass(frozen=True)
class Status:
    """The agent's status, or the drainer's answer."""

    beat: float | None = None
    """When it was written, in seconds since 1970. None: it has no such time."""
    requests: Mapping[str, str] = field(default_factory=dict)
    """Writer -> id of its request that was read last."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Writer -> why its request is rejected."""
    problem: str = ""
    """Why nothing is done."""
    backup: str | None = None
    """Where data is saved, or by what. None: nothing is saved."""
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    busy: Mapping[str, tuple[StatusJob, ...]] = field(default_factory=dict)
    """Instances that have jobs or pods -> some of the jobs."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Instance -> how many files its backup has left out, also after the node was deleted."""
    queue: int | None = None
    """How many jobs run or wait in Slurm, without the agent's own. None: unknown, as from the previous version's agent."""
    run: Mapping[str, Any] | None = None
    """The unfinished run of `cdk-hyperpod patch` that the drainer keeps, as it was written. None: there is none."""
    run_version: str = ""
    """The version of what the drainer keeps. Empty: it keeps no run, or was not asked."""

    def age(self, now: float) -> float | None:
        """Seconds since it was written. None: the time is missing, or so far ahead that the writer would never be silent."""
        if self.beat is None or self.beat > now + SILENT_S:
            return None
        return max(0.0, now - self.beat)


def parse_status(content: bytes, text: Callable[[object], str]) -> Status:
    """The status in an object. Raises StatusError. Invalid members are ignored.

    `text` makes text from outside printable: a status is data of another machine.
    """
    try:
        return check_status(json.loads(content), text)
    except (ValueError, RecursionError):
        raise StatusError("has a status that is not a JSON object") from None


def check_status(found: object, text: Callable[[object], str]) -> Status:
    """The status in what was read of JSON, as parse_status has it."""
    if not isinstance(found, dict):
        raise StatusError("has a status that is not a JSON object")
    if found.get("schema") != SCHEMA:
        raise StatusError("has a status of another version")
    return Status(
        beat=_beat(found.get("beat")),
        requests=_texts(found.get("requests"), text),
        refused=_texts(found.get("refused"), text),
        problem=text(found.get("problem") or ""),
        backup=text(found["backup"]) if found.get("backup") else None,
        nodes=_check_nodes(found.get("nodes"), text),
        busy=_check_busy(found.get("busy"), text),
        left_out=_check_left_out(found.get("left_out"), text),
        queue=_integer(found.get("queue")),
        run=run if isinstance(run := found.get("run"), dict) else None,
        run_version=_text_alone(found.get("run_version"), text),
    )


def _integer(found: object) -> int | None:
    """An integer that is neither true nor false. None: it is something else."""
    return found if type(found) is int else None


def _beat(found: Any) -> float | None:
    if not _is_number(found) or not found >= 0:
        return None
    beat: float = found
    return beat


def _check_nodes(found: object, text: Callable[[object], str]) -> dict[str, NodeStatus]:
    return {text(name): _check_node(node, text) for name, node in _mapping(found).items() if isinstance(node, dict)}


def _check_node(found: Mapping[str, Any], text: Callable[[object], str]) -> NodeStatus:
    return NodeStatus(
        # Messages about the node show the state.
        state=text(found.get("state") or "") or "no state",
        message=text(found.get("message") or ""),
        requests=_held_for(found.get("requests"), text),
        saved=found.get("saved") is True,
        waived=found.get("waived") is True,
        absent=found.get("absent") is True,
        address=_text_alone(found.get("ip"), text),
        host=_text_alone(found.get("slurm"), text),
        jobs=_check_jobs(found.get("jobs"), text),
        running=_check_running(found.get("running")),
    )


def _held_for(found: object, text: Callable[[object], str]) -> dict[str, str]:
    return {text(writer): text(name) for writer, name in _mapping(found).items() if isinstance(name, str)}


def _check_running(found: object) -> int | None:
    """How many pods run. What is not a number counts as one pod, unless it is empty."""
    if found is None:
        return None
    if type(found) is int:
        return found
    return 1 if found else 0


def _check_left_out(found: object, text: Callable[[object], str]) -> dict[str, int]:
    return {text(name): count for name, count in _mapping(found).items() if _is_count(count)}


def _is_count(found: object) -> bool:
    # A larger integer than JSON readers agree on is not a count of files.
    return type(found) is int and 0 < found < 2**53


def _check_busy(found: object, text: Callable[[object], str]) -> dict[str, tuple[StatusJob, ...]]:
    """The previous version's drainer answers with a list of ids alone."""
    if isinstance(found, list):
        return {text(name): () for name in found if isinstance(name, str)}
    return {text(name): _check_jobs(jobs, text) for name, jobs in _mapping(found).items() if isinstance(jobs, list)}


def _check_jobs(found: object, text: Callable[[object], str]) -> tuple[StatusJob, ...]:
    if not isinstance(found, list):
        return ()
    return tuple(StatusJob(text(job.get("id")), text(job.get("user"))) for job in found if isinstance(job, dict))


def _texts(found: object, text: Callable[[object], str]) -> dict[str, str]:
    return {text(name): text(value) for name, value in _mapping(found).items() if value}


def _text_alone(found: object, text: Callable[[object], str]) -> str:
    return text(found) if isinstance(found, str) else ""


def parse_object(content: bytes) -> dict[str, Any]:
    """What is in a JSON text; empty if that is not an object."""
    try:
        return _mapping(json.loads(content))
    except (ValueError, RecursionError):
        return {}


def _mapping(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def make_status(status: Status) -> dict[str, Any]:
    """A status as it is written."""
    return {
        "schema": SCHEMA,
        "beat": status.beat,
        "requests": dict(status.requests),
        "refused": dict(status.refused),
        "problem": status.problem,
        "backup": status.backup,
        "nodes": {name: _make_node(node) for name, node in status.nodes.items()},
        "busy": {name: _make_jobs(jobs) for name, jobs in status.busy.items()},
        "left_out": dict(status.left_out),
        **({} if status.queue is None else {"queue": status.queue}),
        **({} if status.run is None else {"run": status.run}),
        **({"run_version": status.run_version} if status.run_version else {}),
    }


def _make_node(node: NodeStatus) -> dict[str, Any]:
    return {
        "state": node.state,
        "message": node.message,
        "requests": dict(node.requests),
        "saved": node.saved,
        "jobs": _make_jobs(node.jobs),
        **({"waived": True} if node.waived else {}),
        **({"absent": True} if node.absent else {}),
        **({"ip": node.address} if node.address else {}),
        **({"slurm": node.host} if node.host else {}),
        **({} if node.running is None else {"running": node.running}),
    }


def _make_jobs(jobs: Iterable[StatusJob]) -> list[dict[str, str]]:
    return [{"id": job.id, "user": job.user} for job in jobs]
