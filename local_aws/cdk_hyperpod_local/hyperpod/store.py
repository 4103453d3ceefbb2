"""The whole state as JSON text and back, so that it outlives the process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any, TypeVar

from .behaviour import Behaviour, Timings
from .faults import Faults
from .journal import Call
from .state import (
    CapacityChange,
    Cluster,
    Counts,
    Event,
    Good,
    Group,
    Json,
    Node,
    Place,
    Plan,
    Scaling,
    Termination,
    World,
)

FORMAT = 1
"""Raised when the form below changes in a way that old files cannot be read."""

Value = TypeVar("Value")


def dump(world: World, journal: Iterable[Call]) -> str:
    """One line of JSON."""
    state = asdict(world) | {"call": None}
    faults = state["faults"]
    for name, value in faults.items():
        if isinstance(value, (set, frozenset)):
            faults[name] = sorted(value)
    return json.dumps({"format": FORMAT, "world": state, "journal": [asdict(call) for call in journal]})


def load(text: str) -> tuple[World, list[Call]]:
    """What `dump` wrote. Raises ValueError for text of another form."""
    try:
        whole = json.loads(text)
        if whole["format"] != FORMAT:
            raise ValueError(f"format {whole['format']}, not {FORMAT}")
        return _world(whole["world"]), _list(Call, whole["journal"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a saved HyperPod model: {error!r}") from error


def _world(state: Json) -> World:
    faults = state["faults"]
    faults["throttle_operations"] = frozenset(faults["throttle_operations"])
    for name in ("undying_nodes", "failing_groups"):
        faults[name] = set(faults[name])
    made: Json = {
        "behaviour": Behaviour(**state["behaviour"]),
        "timings": Timings(**state["timings"]),
        "faults": Faults(**faults),
        "clusters": {arn: _cluster(cluster) for arn, cluster in state["clusters"].items()},
        "capacity": _list(CapacityChange, state["capacity"]),
        "terminations": _list(Termination, state["terminations"]),
        "plans": {arn: Plan(**plan) for arn, plan in state.get("plans", {}).items()},
        "subnets": {
            name: Place(**{**place, "offered": tuple(place["offered"])})
            for name, place in state.get("subnets", {}).items()
        },
    }
    return World(**{**_known(World, {"plans": {}, "subnets": {}, **state}), **made})


def _cluster(state: Json) -> Cluster:
    made: Json = {
        "groups": {name: _group(group) for name, group in state["groups"].items()},
        "nodes": {key: Node(**node) for key, node in state["nodes"].items()},
        "events": _list(Event, state["events"]),
        "scalings": [_scaling(each) for each in state.get("scalings", [])],
        "before": None if state["before"] is None else {name: Good(**good) for name, good in state["before"].items()},
    }
    return Cluster(**{**_known(Cluster, state), **made})


def _scaling(state: Json) -> Scaling:
    groups = {name: (Counts(**before), Counts(**after)) for name, (before, after) in state["groups"].items()}
    return Scaling(**{**state, "groups": groups})


def _group(state: Json) -> Group:
    return Group(**{**state, "good": None if state["good"] is None else Good(**state["good"])})


def _list(kind: type[Value], entries: Iterable[Json]) -> list[Value]:
    return [kind(**entry) for entry in entries]


def _known(kind: Any, state: Json) -> Json:
    return {field.name: state[field.name] for field in fields(kind)}
