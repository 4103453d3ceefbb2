"""Plain data (parsed YAML) to the frozen values of `config/`, noting everything that is wrong on the way.

A leaf that is wrong becomes UNKNOWN and the rest is built all the same, so that the rules, which skip what they do
not know, still find the other mistakes of the file: people mend a file once, not finding by finding.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any, TypeVar

from ..errors import Finding
from .annotations import Fields, Items, Leaf, Names, field_types, shape
from .known import UNKNOWN
from .plain import MAPPED, leaf_problem
from .words import closest, item_paths, join, show, shown_name

T = TypeVar("T")

# A key that people will try, and what to tell them beyond "unknown".
_HINTS = {
    "lifecycle_scripts": ("is not a setting", "write the folder as `lifecycle: {scripts: FOLDER}`"),
    "scale_down.drain.backup": (
        "what is saved stands in slurm.drain.backup, for deployments and `cdk-hyperpod drain` alike",
        "move it there",
    ),
}

_EITHER = (("instance_type", "instance_types"),)
"""Settings without a default of their own, of which a value needs one: rules say so, and not the types."""


def structure(kind: type[T], data: object, findings: list[Finding], path: str = "") -> T:
    """The value of the kind that the data describes; what is wrong with the data is added to the findings.

    UNKNOWN where the data is of another shape altogether.
    """
    return typing.cast(T, _build(kind, data, path, findings, kind))


def _build(annotation: Any, data: object, path: str, findings: list[Finding], whole: type) -> Any:
    match shape(annotation).form:
        case Fields(kind):
            return _build_object(kind, data, path, findings, whole)
        case Items(item):
            return _build_items(item, data, path, findings, whole)
        case Names(_, value):
            return _build_mapping(value, data, path, findings)
        case Leaf(kind) if problem := leaf_problem(kind, data):
            return _wrong(data, *problem, path, findings)
        case _:
            return data


def _build_items(kind: Any, data: object, path: str, findings: list[Finding], whole: type) -> Any:
    if not isinstance(data, list):
        return _wrong(data, "must be a list", "write it as [a, b] or as lines that begin with a dash", path, findings)
    paths = item_paths(path, data)
    return tuple(_build(kind, item, paths[index], findings, whole) for index, item in enumerate(data))


def _build_object(kind: type, data: object, path: str, findings: list[Finding], whole: type) -> Any:
    if not isinstance(data, dict):
        return _wrong(data, "must hold settings", "write it as key: value lines", path, findings)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    missing = [name for name, field in fields.items() if name not in data and _is_required(field)]
    eithers = [either for either in _EITHER if {*either} <= fields.keys() and not {*either} & data.keys()]
    wanted = [*missing, *(name for either in eithers for name in either)]
    for key in data:
        if key not in fields:
            findings.append(_unknown_key(key, join(path, key), list(fields), wanted, whole))
    values: dict[str, Any] = {}
    for name in fields:
        if name in data:
            values[name] = _build(field_types(kind)[name], data[name], join(path, name), findings, whole)
        elif name in missing:
            findings.append(Finding(path=join(path, name), problem="is missing", remedy=f"add `{name}:`"))
            values[name] = UNKNOWN
    return kind(**values)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _build_mapping(kind: Any, data: object, path: str, findings: list[Finding]) -> Any:
    if not isinstance(data, dict):
        noun = MAPPED[kind]
        return _wrong(data, f"must hold names and {noun}s", f"write it as name: {noun} lines", path, findings)
    values: dict[str, Any] = {}
    for key, value in data.items():
        if problem := leaf_problem(str, key):
            _wrong(key, f"the name {problem[0]}", problem[1], join(path, key), findings)
        elif problem := leaf_problem(kind, value):
            values[key] = _wrong(value, *problem, join(path, key), findings)
        else:
            values[key] = value
    return values


def _wrong(data: object, problem: str, remedy: str, path: str, findings: list[Finding]) -> Any:
    if data is None:
        got, remedy = "nothing", "give it a value, or remove the line"
    else:
        got = show(data)
    findings.append(Finding(path=path, problem=f"{problem}, got {got}", remedy=remedy))
    return UNKNOWN


def _unknown_key(key: object, path: str, names: list[str], wanted: list[str], whole: type) -> Finding:
    problem, remedy = _HINTS.get(
        path, ("is not a setting", _meant(key, names, wanted, whole) or f"remove it, or use one of {', '.join(names)}")
    )
    return Finding(path=path, problem=problem, remedy=remedy)


def _meant(key: object, names: list[str], wanted: list[str], whole: type) -> str | None:
    """The setting that was probably meant: of this level, one that is still wanted before the others; or of another one of the
    whole."""
    text = shown_name(key)
    here = closest(text, wanted, certain=True) or closest(text, names, certain=True)
    # A slip of the finger seldom hits the first letter: count is not account.
    near = closest(text, [name for name in names if name[:1] == text[:1]])
    meant = list(filter(None, [here, _elsewhere(text, here, whole)])) or list(filter(None, [near]))
    return f"did you mean {', or '.join(meant)}?" if meant else None


def _elsewhere(text: str, here: str | None, whole: type) -> str | None:
    """Where else a setting has this name, or its words: `min_count` is `instance_groups[…].min_instance_count`. None: in no
    place, or in several."""
    settings = _settings(whole)
    names = [name for name, _ in settings]
    # One word is part of many names, and says little; and what is near at hand needs no other.
    meant = text if text in names or here or "_" not in text else closest(text, names, certain=True)
    places = [place for name, place in settings if name == meant]
    if len(places) != 1:
        return None
    return f"{meant} at the top of the file" if places[0] == meant else places[0]


@functools.cache
def _settings(kind: type, path: str = "") -> tuple[tuple[str, str], ...]:
    """Every setting at any depth: its name, and its path."""
    found: list[tuple[str, str]] = []
    for name, annotation in field_types(kind).items():
        place = join(path, name)
        found.append((name, place))
        form = shape(annotation).form
        if isinstance(form, Items):
            form, place = shape(form.item).form, f"{place}[…]"
        if isinstance(form, Fields):
            found += _settings(form.kind, place)
    return tuple(found)
