"""Errors and warnings of the library: findings with a code, a path, a problem and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One error or warning about a configuration."""

    code: str
    """A stable name of the problem, such as `tags-too-many`. docs/messages.md has a row for it, and an app acknowledges a
    warning by it."""
    path: str
    """The setting, such as `instance_groups[p5].min_instance_count`. Empty: the file as a whole."""
    problem: str
    """What is wrong, with the value."""
    remedy: str
    """What to do."""
    level: Literal["error", "warning"] = "error"
    """`warning`: the cluster can be created. Read the text first."""
    line: int | None = field(default=None, compare=False)
    """The line of the cluster file, from 1. For a missing setting, the line of the settings around it. None: there is no file."""

    @property
    def text(self) -> str:
        """Path, problem and remedy without the code, which CDK itself adds to an annotation."""
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.problem}; {self.remedy}"

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]"


class HyperPodError(Exception):
    """Base class of this library's errors. The text is written for the user."""


class ConfigError(HyperPodError):
    """An invalid configuration, with all findings."""

    def __init__(self, findings: Iterable[Finding], source: str = "") -> None:
        """Create the error.

        :param findings: the errors; duplicates are removed.
        :param source: the file, or the construct's path. Default: - not known.
        """
        self.findings: Sequence[Finding] = tuple(dict.fromkeys(findings))
        """All errors, without duplicates."""
        self.source: str = source
        """The file, or the construct's path."""
        super().__init__(str(self))

    def __str__(self) -> str:
        count = len(self.findings)
        head = f"{self.source or 'configuration'}: {count} {'error' if count == 1 else 'errors'}"
        return "\n".join([head, *(f"  {line}" for line in with_lines(self.findings))])


def with_lines(findings: Sequence[Finding]) -> list[str]:
    """The findings as text, after their lines of the file if any finding has a line."""
    places = ["" if finding.line is None else f"line {finding.line}" for finding in findings]
    width = max(map(len, places), default=0)
    return [
        f"{place:<{width}}{'  ' if width else ''}{finding}" for place, finding in zip(places, findings, strict=True)
    ]


def raise_errors(findings: Iterable[Finding], source: str | Callable[[], str] = "") -> tuple[Finding, ...]:
    """Raise ConfigError with all errors among the findings. Return the warnings if there is no error.

    `source`: the file or the construct's path, or a function that returns it, since CDK needs time to compute a path.
    """
    findings = tuple(findings)
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        raise ConfigError(errors, source if isinstance(source, str) else source())
    return findings
