"""The type of one plain value: text, a number, a flag or a choice."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from typing import Any, Literal

from ..errors import Finding
from .problem import Problem
from .words import TOO_LARGE, closest, join, shown_name

TYPE_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
"""The plain types in words."""
MAPPED = {str: "text", int: "number"}
"""The types of a mapping's values, each in one word."""

_HOW_TO_WRITE = {
    str: "put it in quotes",
    int: "write digits without quotes",
    float: "write digits without quotes",
    bool: "write true or false without quotes",
}


def leaf_problem(kind: Any, value: object) -> Problem | None:
    """What is wrong with the type of one plain value. None: nothing."""
    if typing.get_origin(kind) is Literal:
        return _choice_problem(typing.get_args(kind), value)
    if not _is_of(kind, value):
        return _type_problem(kind, value)
    return _text_problem(value) or _size_problem(value)


def json_finding(value: object, path: str) -> Finding | None:
    """What is wrong with a value that must be a JSON object, with the place in it. None: nothing."""
    if not isinstance(value, Mapping):
        problem = Problem(
            code="value-not-a-json-object", problem="must hold settings", remedy="write it as key: value lines"
        )
        return problem.at(path, value)
    return _json_finding(value, path, 0)


_MAX_JSON_DEPTH = 30
_NOT_JSON = Problem(
    code="value-not-json",
    problem="must be JSON: text, a finite number, true, false, null, a list or settings",
    remedy="put it in quotes, or write it as one of these",
)


def _json_finding(value: object, path: str, depth: int) -> Finding | None:
    match value:
        case None | bool() | str():
            return None
        case int() | float() if _is_json_number(value):
            return None
        case Mapping() if depth < _MAX_JSON_DEPTH and all(isinstance(key, str) for key in value):
            inner = [(join(path, shown_name(key)), held) for key, held in value.items()]
        case list() | tuple() if depth < _MAX_JSON_DEPTH:
            inner = [(f"{path}[{index}]", held) for index, held in enumerate(value)]
        case _:
            return _NOT_JSON.at(path, value)
    return next(filter(None, (_json_finding(held, where, depth + 1) for where, held in inner)), None)


def _is_json_number(value: float) -> bool:
    return math.isfinite(value) and abs(value) < TOO_LARGE


def _choice_problem(options: tuple[Any, ...], value: object) -> Problem | None:
    if any(value == option and type(value) is type(option) for option in options):
        return None
    listed = ", ".join(map(str, options))
    near = None if isinstance(value, int) else closest(shown_name(value), options)
    if near is not None:
        return Problem(code="value-misspelled", problem=f"must be one of {listed}", remedy=f"did you mean {near}?")
    return Problem(code="value-not-a-choice", problem=f"must be one of {listed}", remedy="use one of these")


def _type_problem(kind: Any, value: object) -> Problem:
    type_name = TYPE_NAMES[kind]
    if isinstance(value, (dict, list, tuple)):
        return Problem(code="value-not-plain", problem=f"must be {type_name}", remedy="give it one plain value")
    how_to_write = _HOW_TO_WRITE[kind]
    return Problem(code="value-of-wrong-type", problem=f"must be {type_name}", remedy=f"{how_to_write}")


def _text_problem(value: object) -> Problem | None:
    if not isinstance(value, str) or value.isprintable():
        return None
    return Problem(
        code="text-not-printable",
        problem="must be printable text on one line",
        remedy="remove line breaks and control characters",
    )


def _size_problem(value: object) -> Problem | None:
    if not isinstance(value, int) or abs(value) < TOO_LARGE:
        return None
    return Problem(code="number-too-long", problem="must have at most 18 digits", remedy="use a smaller number")


def _is_of(kind: Any, value: object) -> bool:
    """Whether the value is of the type. Python's bool is an int; here it is not a number."""
    if kind is bool:
        return isinstance(value, bool)
    return isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)
