"""Writes the whole state as JSON text and reads it, so that it outlives the process."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from .behaviour import Behaviour, Timings
from .faults import Faults
from .journal import Call
from .outside import Outside
from .state import (
    NOTICES_KEPT,
    CapacityChange,
    Cluster,
    Counts,
    Event,
    Good,
    Group,
    HyperPodState,
    Json,
    Node,
    Place,
    Plan,
    ReImage,
    Scaling,
    SoftwareUpdate,
    Termination,
)

FORMAT = 1
"""Increased when the form below changes so that old files cannot be read."""

Value = TypeVar("Value")
_TUPLES = ("chosen", "batch", "failed")
"""Fields of SoftwareUpdate."""


def dump(state: HyperPodState, journal: Iterable[Call]) -> str:
    """The state as one line of JSON."""
    saved = asdict(replace(state, notices=deque(), outside=Outside())) | {"call": None}
    del saved["notices"], saved["outside"]
    faults = saved["faults"]
    for name, value in faults.items():
        if isinstance(value, (set, frozenset)):
            faults[name] = sorted(value)
    # "world" is the state. The previous version, with which an upgrade is rehearsed, wrote it, too.
    return json.dumps({"format": FORMAT, "world": saved, "journal": [asdict(call) for call in journal]})


def load(text: str) -> tuple[HyperPodState, list[Call]]:
    """The state that `dump` wrote. Raises ValueError for any other text."""
    try:
        whole = json.loads(text)
        if whole["format"] != FORMAT:
            raise ValueError(f"format {whole['format']}, not {FORMAT}")
        return _state(whole["world"]), _list(Call, whole["journal"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a saved HyperPod: {error!r}") from error


def _state(saved: Json) -> HyperPodState:
    faults = saved["faults"]
    faults["throttle_operations"] = frozenset(faults["throttle_operations"])
    for name in ("undying_nodes", "failing_groups", "failing_images"):
        faults[name] = set(faults.get(name, ()))
    made: Json = {
        "behaviour": Behaviour(**saved["behaviour"]),
        "timings": Timings(**saved["timings"]),
        "faults": Faults(**faults),
        "clusters": {arn: _cluster(cluster) for arn, cluster in saved["clusters"].items()},
        "capacity": _list(CapacityChange, saved["capacity"]),
        "terminations": _list(Termination, saved["terminations"]),
        "plans": {arn: Plan(**plan) for arn, plan in saved["plans"].items()},
        "subnets": {
            name: Place(**{**place, "offered": tuple(place["offered"])}) for name, place in saved["subnets"].items()
        },
        "re_images": _list(ReImage, saved.get("re_images", ())),
        "notices": deque(maxlen=NOTICES_KEPT),
        "outside": Outside(),
    }
    return HyperPodState(**{**_known(HyperPodState, saved), **made})


def _cluster(saved: Json) -> Cluster:
    made: Json = {
        "groups": {name: _group(group) for name, group in saved["groups"].items()},
        "nodes": {key: Node(**node) for key, node in saved["nodes"].items()},
        "events": _list(Event, saved["events"]),
        "scalings": [_scaling(each) for each in saved["scalings"]],
        "before": None if saved["before"] is None else {name: Good(**good) for name, good in saved["before"].items()},
    }
    return Cluster(**{"announced": saved["status"], **_known(Cluster, saved), **made})


def _scaling(saved: Json) -> Scaling:
    groups = {name: (Counts(**before), Counts(**after)) for name, (before, after) in saved["groups"].items()}
    return Scaling(**{**saved, "groups": groups})


def _group(saved: Json) -> Group:
    update = saved.get("update")
    made = {
        "good": None if saved["good"] is None else Good(**saved["good"]),
        "update": None
        if update is None
        else SoftwareUpdate(**update | {name: tuple(update[name]) for name in _TUPLES}),
    }
    return Group(**{**saved, **made})


def _list(kind: type[Value], entries: Iterable[Json]) -> list[Value]:
    return [kind(**entry) for entry in entries]


def _known(kind: Any, saved: Json) -> Json:
    return {field.name: saved[field.name] for field in fields(kind) if field.name in saved}
