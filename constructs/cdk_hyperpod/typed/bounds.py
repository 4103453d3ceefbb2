"""Constraints on a field's type, for the rules, the JSON schema and the reference page."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .problem import Problem

PATH_SEGMENT = r"(?!\.{1,2}(/|$))[a-zA-Z0-9._-]+"
"""One part of a path, neither `.` nor `..`: as part of a longer expression."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text that must match a regular expression as a whole."""

    regex: str
    says: str
    """The expression in words."""
    length: int = 256
    """The maximum number of characters. It is checked first, since the expression may be slow on long text."""

    def problem(self, value: object) -> Problem | None:
        """What is wrong with the value. None: nothing."""
        if isinstance(value, str) and len(value) <= self.length and re.fullmatch(self.regex, value):
            return None
        return Problem(code="value-malformed", problem=f"must be {self.says}", remedy="correct it")


@dataclass(frozen=True, slots=True)
class Range:
    """A whole number between two bounds, both included."""

    low: int
    high: int

    def problem(self, value: object) -> Problem | None:
        """What is wrong with the value. None: nothing."""
        if isinstance(value, int) and self.low <= value <= self.high:
            return None
        return Problem(
            code="value-out-of-range",
            problem=f"must be {self.low} to {self.high}",
            remedy="use a value in this range",
        )


Constraint = Pattern | Range
