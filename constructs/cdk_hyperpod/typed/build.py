"""Builds the frozen values of `config/` from plain data (parsed YAML), and reports everything that is wrong with it.

A wrong leaf becomes UNKNOWN and the rest is built anyway. Rules skip UNKNOWN and still find the other mistakes, so that a
user corrects the file once.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from dataclasses import replace
from typing import Any, Literal, TypeVar

from ..errors import Finding
from .annotations import Either, Fields, Items, JsonObject, Leaf, Names, field_types, shape
from .known import UNKNOWN
from .plain import MAPPED, json_finding, leaf_problem
from .problem import Problem
from .words import closest, item_paths, join, shown_name

T = TypeVar("T")

_EITHER = (("instance_type", "instance_types"),)
"""Pairs of settings of which one is required. A rule reports it, not the types."""

_NOT_A_LIST = Problem(
    code="value-not-a-list", problem="must be a list", remedy="write it as [a, b] or as lines that begin with a dash"
)
_NAMES_AND_SETTINGS = Problem(
    code="value-not-named-settings",
    problem="must hold names and their settings",
    remedy="write it as name: {key: value} lines",
)
_NOT_SETTINGS = Problem(code="value-not-settings", problem="must hold settings", remedy="write it as key: value lines")


def _in_place_of_settings(plain: Any, problem: Problem) -> Problem:
    """The problem of a value that is neither settings nor what may stand in their place."""
    if typing.get_origin(plain) is not Literal:
        return replace(problem, problem=f"{problem.problem}, or settings")
    return replace(_NOT_SETTINGS, problem=f"must hold settings, or be {' or '.join(typing.get_args(plain))}")


def structure(kind: type[T], data: object, findings: list[Finding], path: str = "") -> T:
    """Build a value of the kind from the data. What is wrong with the data is added to the findings.

    UNKNOWN if the data is not a mapping.
    """
    return typing.cast(T, _build(kind, data, path, findings, kind))


def _build(annotation: Any, data: object, path: str, findings: list[Finding], whole: type) -> Any:
    match shape(annotation).form:
        case Fields(kind):
            return _build_object(kind, data, path, findings, whole)
        case Items(item):
            return _build_items(item, data, path, findings, whole)
        case Names(_, value):
            return _build_mapping(value, data, path, findings, whole)
        case Either(_, kind) if isinstance(data, dict):
            return _build_object(kind, data, path, findings, whole)
        case Either(plain, _) if problem := leaf_problem(plain, data):
            return _wrong(data, _in_place_of_settings(plain, problem), path, findings)
        case Leaf(kind) if problem := leaf_problem(kind, data):
            return _wrong(data, problem, path, findings)
        case JsonObject() if finding := json_finding(data, path):
            findings.append(finding)
            return UNKNOWN
        case _:
            return data


def _build_items(kind: Any, data: object, path: str, findings: list[Finding], whole: type) -> Any:
    if not isinstance(data, list):
        return _wrong(data, _NOT_A_LIST, path, findings)
    paths = item_paths(path, data)
    return tuple(_build(kind, item, paths[index], findings, whole) for index, item in enumerate(data))


def _build_object(kind: type, data: object, path: str, findings: list[Finding], whole: type) -> Any:
    if not isinstance(data, dict):
        return _wrong(data, _NOT_SETTINGS, path, findings)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    missing = [name for name, field in fields.items() if name not in data and _is_required(field)]
    misspelled = _refuse_unknown(data, list(fields), missing, path, findings, whole)
    values: dict[str, Any] = dict.fromkeys(missing, UNKNOWN)
    for name in fields:
        if name in data:
            values[name] = _build(field_types(kind)[name], data[name], join(path, name), findings, whole)
        elif name in missing and name not in misspelled:
            findings.append(_missing_key(name, path))
    return kind(**values)


def _refuse_unknown(
    data: dict[str, Any],
    fields: list[str],
    missing: list[str],
    path: str,
    findings: list[Finding],
    whole: type,
) -> set[str]:
    """The settings that unknown keys are meant for. One mistake is reported once, by the misspelled key."""
    eithers = [either for either in _EITHER if {*either} <= {*fields} and not {*either} & data.keys()]
    wanted = [*missing, *(name for either in eithers for name in either)]
    meant = {key: _meant(key, fields, wanted, whole) for key in data if key not in fields}
    findings += [_unknown_key(join(path, key), names, fields) for key, names in meant.items()]
    return {name for names in meant.values() for name in names[:1]}


def _missing_key(name: str, path: str) -> Finding:
    return Finding(code="setting-missing", path=join(path, name), problem="is missing", remedy=f"add `{name}:`")


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _build_mapping(kind: Any, data: object, path: str, findings: list[Finding], whole: type) -> Any:
    if not isinstance(data, dict):
        holds_settings = isinstance(shape(kind).form, Fields)
        return _wrong(data, _NAMES_AND_SETTINGS if holds_settings else _not_a_mapping(kind), path, findings)
    values: dict[str, Any] = {}
    for key, value in data.items():
        if problem := leaf_problem(str, key):
            _wrong(key, replace(problem, problem=f"the name {problem.problem}"), join(path, key), findings)
        else:
            values[key] = _build(kind, value, join(path, key), findings, whole)
    return values


def _not_a_mapping(kind: Any) -> Problem:
    form = shape(kind).form
    noun = MAPPED[form.plain if isinstance(form, Either) else kind]
    return Problem(
        code="value-not-a-mapping", problem=f"must hold names and {noun}s", remedy=f"write it as name: {noun} lines"
    )


def _wrong(data: object, problem: Problem, path: str, findings: list[Finding]) -> Any:
    findings.append(problem.at(path, data))
    return UNKNOWN


def _unknown_key(path: str, meant: list[str], names: list[str]) -> Finding:
    if meant:
        likely = ", or ".join(meant)
        return Finding(
            code="setting-misspelled", path=path, problem="is not a setting", remedy=f"did you mean {likely}?"
        )
    settings = ", ".join(names)
    return Finding(
        code="setting-unknown", path=path, problem="is not a setting", remedy=f"remove it, or use one of {settings}"
    )


def _meant(key: object, names: list[str], wanted: list[str], whole: type) -> list[str]:
    """The settings that were probably meant: of this level (a missing one before the others), or of another level."""
    text = _with_underscores(shown_name(key))
    if text in names:
        return [text]
    here = closest(text, wanted, certain=True) or closest(text, names, certain=True)
    # A typing error is rarely in the first letter: count does not mean account.
    near = closest(text, [name for name in names if name[:1] == text[:1]])
    return list(filter(None, [here, _elsewhere(text, here, whole)])) or list(filter(None, [near]))


def _with_underscores(key: str) -> str:
    """A key as this file's settings are written: instance_count for CloudFormation's InstanceCount, or instance-count."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", key).lower()


def _elsewhere(text: str, here: str | None, whole: type) -> str | None:
    """The path of the one setting elsewhere with this name or its words: `min_count` is `instance_groups[…].min_instance_count`.
    None: there is none, or there are several."""
    settings = _settings(whole)
    names = [name for name, _ in settings]
    # A single word is part of many names, so only an exact match counts. If this level has a match, no other is needed.
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
        if isinstance(form, Names):
            form, place = shape(form.value).form, f"{place}.NAME"
        if isinstance(form, Fields | Either):
            found += _settings(form.kind, place)
    return tuple(found)
