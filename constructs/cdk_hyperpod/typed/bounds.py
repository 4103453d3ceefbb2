"""Constraints that a field's type carries, for the rules, the JSON schema and the reference page alike."""

from __future__ import annotations

import re
from dataclasses import dataclass

PATH_SEGMENT = r"(?!\.{1,2}(/|$))[a-zA-Z0-9._-]+"
"""One part of a path, neither `.` nor `..`: as part of a longer expression."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text that must match a regular expression as a whole."""

    regex: str
    says: str
    """The expression in words, for people."""
    length: int = 256
    """The most characters; checked before the expression, which may be slow on long text."""

    def problem(self, value: object) -> str | None:
        """What is wrong with the value, or None."""
        if isinstance(value, str) and len(value) <= self.length and re.fullmatch(self.regex, value):
            return None
        return f"must be {self.says}"


@dataclass(frozen=True, slots=True)
class Range:
    """A whole number between two bounds, both included."""

    low: int
    high: int

    def problem(self, value: object) -> str | None:
        """What is wrong with the value, or None."""
        if isinstance(value, int) and self.low <= value <= self.high:
            return None
        return f"must be {self.low} to {self.high}"


Constraint = Pattern | Range
