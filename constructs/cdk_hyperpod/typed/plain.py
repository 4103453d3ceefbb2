"""One plain value (text, a number, a flag, a choice): whether it is of its type, and the words where it is not."""

from __future__ import annotations

import typing
from typing import Any, Literal

from .words import TOO_LARGE, closest, show, shown_name


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
        near = None if isinstance(value, int) else closest(shown_name(value), options)
        return problem, f"did you mean {near}?" if near else "use one of these"
    if isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool)):
        if isinstance(value, str) and not value.isprintable():
            return "must be printable text on one line", "remove the characters that are not"
        if isinstance(value, int) and abs(value) >= TOO_LARGE:
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
