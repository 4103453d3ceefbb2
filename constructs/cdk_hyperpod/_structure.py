"""Plain data (parsed YAML) to the frozen values of `config.py`, noting everything that is wrong on the way.

A leaf that is wrong becomes UNKNOWN and the rest is built all the same, so that the rules, which skip what they do
not know, still find the other mistakes of the file: people mend a file once, not finding by finding.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import reprlib
import types
import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from .errors import Finding

T = TypeVar("T")

# No setting comes near; beyond 4,300 digits, Python refuses to print a number at all.
_TOO_LARGE = 10**18


class _Brief(reprlib.Repr):
    """A value as a YAML file would have it, cut where it is long. reprlib finds each method by the type's name."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = 3
        self.maxstring = self.maxother = 80

    def repr_bool(self, value: bool, level: int) -> str:
        return str(value).lower()

    def repr_NoneType(self, value: None, level: int) -> str:
        return "null"

    def repr_int(self, value: int, level: int) -> str:
        return str(value) if abs(value) < _TOO_LARGE else f"a number of {value.bit_length():,} bits"

    def repr_date(self, value: datetime.date, level: int) -> str:
        return str(value)

    def repr_instance(self, value: Any, level: int) -> str:
        kind: Any = type(value)
        if dataclasses.is_dataclass(kind):
            # The first field is what people know it by.
            name = dataclasses.fields(kind)[0].name
            return f"{type(value).__name__}({name}={self.repr1(getattr(value, name), level - 1)}, …)"
        # An address says nothing to anybody.
        return f"<{kind.__name__}>" if kind.__repr__ is object.__repr__ else super().repr_instance(value, level)

    def repr_datetime(self, value: datetime.datetime, level: int) -> str:
        return str(value)


_brief = _Brief()


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
    text = _brief.repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def shown_name(name: object, length: int = 80) -> str:
    """A name as it stands in a message: as it is, unless it is long, or no text, or would break the line."""
    return name if isinstance(name, str) and len(name) <= length and name.isprintable() else show(name)


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


def union_options(annotation: Any) -> tuple[Any, ...]:
    """The types that a union joins; of anything else, itself."""
    return typing.get_args(annotation) if _is_union(annotation) else (annotation,)


def without_none(annotation: Any) -> Any:
    """The type of a value that is there: X of `X | None`."""
    (kind,) = (option for option in union_options(annotation) if option is not types.NoneType)
    return kind


def leaf_problem(kind: Any, value: object) -> tuple[str, str] | None:
    """What is wrong with the type of one plain value, and the remedy; None: nothing."""
    if typing.get_origin(kind) is Literal:
        options = typing.get_args(kind)
        if any(value == option and type(value) is type(option) for option in options):
            return None
        problem = f"must be one of {', '.join(map(str, options))}"
        if isinstance(value, (int, float)) and not isinstance(value, bool) and _is_version(options[0]):
            # YAML takes a version for a number, and 1.30 for 1.3: which one was meant, the number does not say.
            return problem, f'put it in quotes, such as "{show(value) if show(value) in options else options[0]}"'
        closest = None if isinstance(value, int) else _closest(value, options)
        return problem, closest or "use one of these"
    if isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool)):
        if isinstance(value, str) and not value.isprintable():
            return "must be printable text on one line", "remove the characters that are not"
        if isinstance(value, int) and abs(value) >= _TOO_LARGE:
            return "must have at most 18 digits", "use a smaller number"
        return None
    if isinstance(value, (dict, list, tuple)):
        return f"must be {_WORDS[kind][0]}", "give it one plain value"
    return f"must be {_WORDS[kind][0]}", _WORDS[kind][1]


def _is_version(option: object) -> bool:
    return isinstance(option, str) and option[:1].isdecimal()


_WORDS = {
    str: ("text", "put it in quotes"),
    int: ("a whole number", "write digits without quotes"),
    float: ("a number", "write digits without quotes"),
    bool: ("true or false", "write true or false without quotes"),
}
MAPPED = {str: "text", int: "number"}
"""What a mapping's values may be, in a word."""


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _build(annotation: Any, data: object, path: str, findings: list[Finding]) -> Any:
    annotation = without_none(split_annotated(annotation)[0])
    if dataclasses.is_dataclass(annotation):
        return _build_object(typing.cast(type, annotation), data, path, findings)
    origin = typing.get_origin(annotation)
    if origin is tuple:
        if not isinstance(data, list):
            return _wrong(
                data, "must be a list", "write it as [a, b] or as lines that begin with a dash", path, findings
            )
        (kind, _) = typing.get_args(annotation)
        paths = item_paths(path, data)
        return tuple(_build(kind, item, paths[index], findings) for index, item in enumerate(data))
    if origin is Mapping:
        return _build_mapping(typing.get_args(annotation)[1], data, path, findings)
    if problem := leaf_problem(annotation, data):
        return _wrong(data, *problem, path, findings)
    return data


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


def _unknown_key(key: object, path: str, names: list[str]) -> Finding:
    problem, remedy = _HINTS.get(
        path, ("is not a setting", _closest(key, names) or f"remove it, or use one of {', '.join(names)}")
    )
    return Finding(path=path, problem=problem, remedy=remedy)


def _closest(value: object, options: Iterable[object]) -> str | None:
    text, texts = shown_name(value), [str(option) for option in options]
    # Its words say more than its letters: min_count is min_instance_count, though instance_count is spelled closer.
    alike = [option for option in texts if {*text.split("_")} <= {*option.split("_")}]
    matches = (
        difflib.get_close_matches(text, texts, n=1, cutoff=0.9)
        or difflib.get_close_matches(text, alike, n=1, cutoff=0)
        or difflib.get_close_matches(text, texts, n=1)
    )
    return f"did you mean {matches[0]}?" if matches else None


def join(path: str, key: object) -> str:
    """The path of a key below a path."""
    return f"{path}.{shown_name(key)}" if path else shown_name(key)


def item_paths(path: str, items: Sequence[object]) -> list[str]:
    """The paths of a list's items: by name where an item has one that no other has, else by its position from 0."""
    names: list[Any] = [item.get("name") if isinstance(item, dict) else getattr(item, "name", None) for item in items]
    count = Counter(name for name in names if isinstance(name, str))
    return [f"{path}[{name if _is_label(name) and count[name] == 1 else index}]" for index, name in enumerate(names)]


def _is_label(name: object) -> bool:
    """Whether a name can stand for its item: one line, not long, and no number, which would look like a position."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= 80
        and name.isprintable()
        and not name.isdecimal()
        and "]" not in name
        and is_known(name)
    )
