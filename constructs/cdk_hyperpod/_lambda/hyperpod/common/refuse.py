"""A function's own decision that a deployment must not go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refuse:
    """The deployment must not go on. `path` is where in the configuration, `fix` what the user can do.

    Only the function refuses; what AWS or the drain agent does not take is rejected.
    """

    path: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}; {self.fix}"
