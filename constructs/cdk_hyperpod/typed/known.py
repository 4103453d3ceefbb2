"""Which values are known before a deployment, and what replaces an unknown one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any


class _Unknown:
    """Replaces a value that is missing or invalid."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()


def is_list_token(values: Iterable[object]) -> bool:
    """Whether a list is a CDK token as a whole: it then has one item with CDK's mark."""
    return any(isinstance(item, str) and "#{Token[" in item for item in values)


def is_known(value: object) -> bool:
    """Whether a value is known: neither UNKNOWN nor a CDK token, whose value is known at deployment only.

    It looks for the marks in CDK's tokens, so it needs neither aws_cdk nor a call of its Node process.
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
