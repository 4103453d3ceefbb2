"""What is asked: the objects of docs/adr/0014, checked as a whole. All of it is data of another function."""

from __future__ import annotations

import ipaddress
import json
import math
import re
from typing import Any, NamedTuple

from ..drain_protocol import INSTANCE_ID, MAX_AHEAD_S, MAX_NODES, REQUEST_ID, SCHEMA

WRITER = "deployment"


class RequestError(Exception):
    """Why a request is refused: one sentence."""


class Wish(NamedTuple):
    """What is wanted of one node."""

    instance: str
    request: str
    """What the deployment calls this wish. Only a backup that was made for it counts."""
    deadline: float
    """Until when its pods may run, in seconds since 1970."""
    expires: float
    """Until when the node is held."""
    force: bool
    """At the deadline: what is left ends with the node. Else the node goes back."""
    backup: bool
    evict_unmanaged: bool = False
    """Pods that no controller owns are evicted. Else the node is refused."""
    address: str = ""


class Asked(NamedTuple):
    """A request."""

    id: str
    wishes: tuple[Wish, ...]


def parse_event(event: Any, now: float) -> Asked | None:
    """The request in an event; None: there is none, and only an answer is wanted.

    Raises RequestError for all of it where anything is wrong: nothing is done by halves.
    """
    try:
        return _parse_event(event, now)
    except RecursionError:
        raise RequestError("is nested too deep") from None


def _parse_event(event: Any, now: float) -> Asked | None:
    if not isinstance(event, dict):
        raise RequestError("is no object")
    _check_schema("", event)
    requests = event.get("requests", False)
    if requests is None:
        return None
    if not isinstance(requests, dict) or set(requests) != {WRITER}:
        raise RequestError(f"requests: must be null or hold {WRITER} alone, got {_show(requests)}")
    return parse_request(requests[WRITER], now)


def parse_request(found: Any, now: float) -> Asked:
    """A request's object. Raises RequestError."""
    if not isinstance(found, dict):
        raise RequestError("is no object")
    _check_schema("", found)
    nodes = found.get("nodes")
    if not isinstance(nodes, list) or len(nodes) > MAX_NODES:
        raise RequestError(f"nodes: must be a list of at most {MAX_NODES}")
    wishes = tuple(_parse_wish(f"nodes[{i}]", node, now) for i, node in enumerate(nodes))
    if len({wish.instance for wish in wishes}) != len(wishes):
        raise RequestError("nodes: names an instance twice")
    return Asked(_text("id", found.get("id"), REQUEST_ID), wishes)


def _check_schema(path: str, found: dict[str, Any]) -> None:
    schema = found.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise RequestError(f"{path}schema: the drainer reads {SCHEMA}, got {_show(schema)}; bring both up to date")


def _parse_wish(path: str, node: Any, now: float) -> Wish:
    if not isinstance(node, dict):
        raise RequestError(f"{path}: must be an object, got {_show(node)}")
    address = node.get("ip", "")
    if address != "":
        # Nobody needs it here, since a replacement has another id; whoever sends one sends an address.
        try:
            ipaddress.IPv4Address(address if isinstance(address, str) else "")
        except ValueError:
            raise RequestError(f"{path}.ip: must be an address, got {_show(address)}") from None
    for name in ("deadline", "expires"):
        if not _is_time(node.get(name), now):
            hours = MAX_AHEAD_S // 3600
            raise RequestError(f"{path}.{name}: must be a time at most {hours} h ahead, got {_show(node.get(name))}")
    if node.get("on_timeout") not in ("fail", "force"):
        raise RequestError(f'{path}.on_timeout: must be "fail" or "force", got {_show(node.get("on_timeout"))}')
    if not isinstance(node.get("backup"), bool):
        raise RequestError(f"{path}.backup: must be true or false, got {_show(node.get('backup'))}")
    unmanaged = node.get("unmanaged_pods", "fail")
    if unmanaged not in ("fail", "evict"):
        raise RequestError(f'{path}.unmanaged_pods: must be "fail" or "evict", got {_show(unmanaged)}')
    return Wish(
        instance=_text(f"{path}.id", node.get("id"), INSTANCE_ID),
        request=_text(f"{path}.request", node.get("request"), REQUEST_ID),
        deadline=float(node["deadline"]),
        expires=float(node["expires"]),
        force=node["on_timeout"] == "force",
        backup=node["backup"],
        evict_unmanaged=unmanaged == "evict",
        address=address,
    )


def _is_time(moment: Any, now: float) -> bool:
    try:
        # Not only a number: not NaN, which compares with nothing, and no truth value.
        known = isinstance(moment, int | float) and not isinstance(moment, bool) and math.isfinite(moment)
        return known and 0 <= moment <= now + MAX_AHEAD_S
    except OverflowError:
        return False


def _text(path: str, value: Any, form: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(form, value):
        raise RequestError(f"{path}: must be of the form {form}, got {_show(value)}")
    return value


def _show(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 80 else f"{text[:80]}…"
