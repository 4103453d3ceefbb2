"""What is wrong with a value, independent of its path. A type or a bound makes the problem, and the validation adds the
path."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Finding
from .words import show


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a value, without its path. The finding also shows the value."""

    code: str
    problem: str
    remedy: str

    def at(self, path: str, value: object) -> Finding:
        """The finding about the value at this path."""
        if value is None:
            return Finding(
                code="value-missing",
                path=path,
                problem=f"{self.problem}, got nothing",
                remedy="give it a value, or leave it out",
            )
        return Finding(code=self.code, path=path, problem=f"{self.problem}, got {show(value)}", remedy=self.remedy)
