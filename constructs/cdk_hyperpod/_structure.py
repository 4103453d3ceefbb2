"""Plain data (parsed YAML) to the frozen values of `config.py`, noting everything that is wrong on the way.

A leaf that is wrong becomes UNKNOWN and the rest is built all the same, so that the rules, which skip what they do
not know, still find the other mistakes of the file: people mend a file once, not finding by finding.
"""

from __future__ import annotations

import dataclasses
import difflib
import reprlib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from .errors import Finding

T = TypeVar("T")

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 80
_brief.maxlevel = 2


class _Unknown:
    """Stands where a value should be and cannot be had."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()

# A key that people will try, and what to tell them beyond "unknown".
_HINTS = {
    "scale_down.drain": (
        "draining does not exist yet: nodes end without their jobs being drained",
        "remove it, and drain the nodes yourself before the deployment",
    ),
}


def is_known(value: object) -> bool:
    """Whether a value can be looked at: neither UNKNOWN nor a CDK token, which has its value only at deployment.

    Told by the marks that CDK gives its tokens, so that nothing here needs aws_cdk, nor a call into its Node process.
    """
    match value:
        case str():
            return "${Token[" not in value and "#{Token[" not in value
        case bool() | int() | None:
            return True
        case float():
            return value > -1e280
        case tuple() | list():
            return all(is_known(item) for item in value)
        case Mapping():
            return all(is_known(item) for pair in value.items() for item in pair)
        case _:
            return dataclasses.is_dataclass(value)


def show(value: object) -> str:
    """A value as it stands in a message: short, on one line."""
    return _brief.repr(value)


def structure(kind: type[T], data: object, findings: list[Finding], path: str = "") -> T:
    """The value of the kind that the data describes; what is wrong with the data is added to the findings.

    UNKNOWN where the data is of another shape altogether.
    """
    return typing.cast(T, _build(kind, data, path, findings))


_field_types: dict[type, Mapping[str, Any]] = {}


def field_types(kind: type) -> Mapping[str, Any]:
    """A dataclass's field names and types, Annotated kept."""
    if kind not in _field_types:
        _field_types[kind] = typing.get_type_hints(kind, include_extras=True)
    return _field_types[kind]


def split_annotated(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type, and what Annotated says of it; `Annotated[X, …] | None` counts as annotated too."""
    if typing.get_origin(annotation) is typing.Annotated:
        return annotation.__origin__, annotation.__metadata__
    if _is_union(annotation):
        options = [option for option in typing.get_args(annotation) if option is not types.NoneType]
        if len(options) == 1 and typing.get_origin(options[0]) is typing.Annotated:
            return options[0].__origin__ | None, options[0].__metadata__
    return annotation, ()


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _build(annotation: Any, data: object, path: str, findings: list[Finding]) -> Any:
    annotation, _ = split_annotated(annotation)
    if _is_union(annotation):
        if data is None:
            return None
        (annotation,) = (option for option in typing.get_args(annotation) if option is not types.NoneType)
        return _build(annotation, data, path, findings)
    if dataclasses.is_dataclass(annotation):
        return _build_object(typing.cast(type, annotation), data, path, findings)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple:
        if not isinstance(data, list):
            return _wrong(
                data, "must be a list", "write it as [a, b] or as lines that begin with a dash", path, findings
            )
        return tuple(
            _build(arguments[0], item, item_path(path, index, item), findings) for index, item in enumerate(data)
        )
    if origin is Mapping or annotation is Mapping:
        return _build_mapping(data, path, findings)
    if origin is Literal:
        if any(data == option and type(data) is type(option) for option in arguments):
            return data
        options = ", ".join(str(option) for option in arguments)
        return _wrong(
            data, f"must be one of {options}", _closest(data, arguments) or "use one of these", path, findings
        )
    return _build_scalar(annotation, data, path, findings)


def _build_object(kind: type, data: object, path: str, findings: list[Finding]) -> Any:
    if not isinstance(data, dict):
        return _wrong(data, "must hold settings", "write it as key: value lines", path, findings)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in data:
        if key not in fields:
            findings.append(_unknown_key(key, join(path, key), list(fields)))
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _build(field_types(kind)[name], data[name], join(path, name), findings)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            findings.append(Finding(path=join(path, name), problem="is missing", remedy=f"add `{name}:`"))
            values[name] = UNKNOWN
    return kind(**values)


def _build_mapping(data: object, path: str, findings: list[Finding]) -> Any:
    if not isinstance(data, dict):
        return _wrong(data, "must hold key: value lines", "write it as key: value lines", path, findings)
    for key, value in data.items():
        for part, what in ((key, "name"), (value, "value")):
            if not isinstance(part, str):
                _wrong(part, f"the {what} must be text", "put it in quotes", join(path, key), findings)
    return {key: value for key, value in data.items() if isinstance(key, str) and isinstance(value, str)}


def _build_scalar(kind: type, data: object, path: str, findings: list[Finding]) -> Any:
    if type(data) is kind:
        return data
    what, remedy = {
        str: ("must be text", "put it in quotes"),
        int: ("must be a whole number", "write digits without quotes"),
        bool: ("must be true or false", "write true or false without quotes"),
    }[kind]
    if data is None:
        remedy = "give it a value, or remove the line"
    elif isinstance(data, (dict, list)):
        remedy = "give it one plain value"
    return _wrong(data, what, remedy, path, findings)


def _wrong(data: object, problem: str, remedy: str, path: str, findings: list[Finding]) -> Any:
    got = "nothing" if data is None else show(data)
    findings.append(Finding(path=path, problem=f"{problem}, got {got}", remedy=remedy))
    return UNKNOWN


def _unknown_key(key: object, path: str, names: list[str]) -> Finding:
    problem, remedy = _HINTS.get(
        path, ("is not a setting", _closest(key, names) or f"remove it, or use one of {', '.join(names)}")
    )
    return Finding(path=path, problem=problem, remedy=remedy)


def _closest(value: object, options: typing.Iterable[object]) -> str | None:
    matches = difflib.get_close_matches(str(value)[:80], [str(option) for option in options], n=1)
    return f"did you mean {matches[0]}?" if matches else None


def join(path: str, key: object) -> str:
    """The path of a key below a path."""
    name = key if isinstance(key, str) and len(key) <= 80 else show(key)
    return f"{path}.{name}" if path else str(name)


def item_path(path: str, index: int, item: object) -> str:
    """The path of a list's item: by its name where it has one, else by its position from 0."""
    name = item.get("name") if isinstance(item, dict) else getattr(item, "name", None)
    label = name if isinstance(name, str) and is_known(name) and 0 < len(name) <= 80 else index
    return f"{path}[{label}]"
