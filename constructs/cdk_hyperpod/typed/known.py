"""What can be looked at before a deployment, and what stands where nothing can."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


class _Unknown:
    """Stands where a value should be and cannot be had."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()


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
