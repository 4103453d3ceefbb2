"""Why a deployment must not go on: a function's own decision, or a failure. Each has a code, and docs/messages.md a row for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """A function's own decision that the deployment must not go on.

    Only the function refuses. What AWS or the drain agent does not accept is rejected.
    """

    code: str
    """A stable name, such as `nodes-above-limit`: kebab-case, subject first."""
    path: str
    """The setting, or what else it is about."""
    why: str
    """What is wrong, with the value."""
    fix: str
    """What to do."""

    @property
    def text(self) -> str:
        """Everything but the code."""
        return f"{self.path}: {self.why}; {self.fix}"

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Any other reason why a deployment fails, or why a node cannot be drained."""

    code: str
    """A stable name, such as `group-deletion-rejected`: kebab-case, subject first."""
    problem: str
    """What happened."""
    remedy: str
    """What to do, as long as the message has nothing more specific."""

    @property
    def head(self) -> str:
        """The first sentence of a reason: the problem with its code."""
        return f"{self.problem} [{self.code}]."

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy} [{self.code}]"
