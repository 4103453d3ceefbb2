"""Expressions of GitHub Actions, as far as the workflow of `init --ci github` uses them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Json = Any
_TOKENS = re.compile(
    r"'(?P<text>(?:[^']|'')*)'|(?P<name>[A-Za-z_][\w.-]*)|(?P<sign>&&|\|\||==|!=|!|[()])|(?P<blank>\s+)"
)
_SIGNS = {"&&": " and ", "||": " or ", "!": " not ", "==": "==", "!=": "!=", "(": "(", ")": ")"}


def evaluate(expression: str, contexts: Mapping[str, Json], constants: Mapping[str, bool]) -> Json:
    """Its value. A property that does not exist is the empty text."""
    source, values, at = "", [], 0
    while at < len(expression):
        found = _TOKENS.match(expression, at)
        assert found, f"cannot read {expression[at:]!r}"
        at = found.end()
        if found["text"] is not None:
            values.append(found["text"].replace("''", "'"))
            source += f"v[{len(values) - 1}]"
        elif found["name"]:
            values.append(
                constants[found["name"]] if found["name"] in constants else _property(found["name"], contexts)
            )
            source += f"v[{len(values) - 1}]"
        elif found["sign"]:
            source += _SIGNS[found["sign"]]
    return eval(source, {"v": values})


def _property(path: str, contexts: Mapping[str, Json]) -> Json:
    first, *rest = path.split(".")
    value = contexts[first]  # a context that a test does not give is a mistake of the test
    for name in rest:
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    return value


def text_of(value: Json) -> str:
    """A value as GitHub writes it into a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def filled(text: str, contexts: Mapping[str, Json]) -> str:
    """The text with the values of its expressions."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: text_of(evaluate(found[1].strip(), contexts, {})), text)
