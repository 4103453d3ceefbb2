"""What the library says when something is wrong: findings with a place, a problem and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or worth knowing, in a configuration."""

    code: str = ""
    """A stable name of the problem, such as `tags-too-many`: docs/messages.md has a row for it, and an app acknowledges a
    warning by it. Empty: not named yet."""
    path: str
    """Where: `instance_groups[p5].min_instance_count`; empty for the file as a whole."""
    problem: str
    """What is wrong, with the value."""
    remedy: str
    """What to do."""
    level: Literal["error", "warning"] = "error"
    """`warning`: the cluster can be created. Read the text first."""
    line: int | None = field(default=None, compare=False)
    """The line of the cluster file, from 1; of what lacks the setting, where it is missing. None without a file."""

    @property
    def text(self) -> str:
        """Path, problem and remedy without the code, which CDK itself adds to an annotation."""
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.problem}; {self.remedy}"

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]" if self.code else self.text


class HyperPodError(Exception):
    """Any error that this library raises on purpose; its text is meant for the user."""


class ConfigError(HyperPodError):
    """A configuration that cannot become a cluster. Holds every finding, not only the first."""

    def __init__(self, findings: Iterable[Finding], source: str = "") -> None:
        """Say everything that was found.

        :param findings: what was found; doubles are said once.
        :param source: where: the file, or the construct's path. Default: - not known.
        """
        self.findings: Sequence[Finding] = tuple(dict.fromkeys(findings))
        """Everything that is wrong, each thing once."""
        self.source: str = source
        """What is wrong: the file, or the construct's path."""
        super().__init__(str(self))

    def __str__(self) -> str:
        count = len(self.findings)
        head = f"{self.source or 'configuration'}: {count} {'error' if count == 1 else 'errors'}"
        return "\n".join([head, *(f"  {line}" for line in with_lines(self.findings))])


def with_lines(findings: Sequence[Finding]) -> list[str]:
    """The findings' texts, each behind its line of the file, where one of them has any."""
    places = ["" if finding.line is None else f"line {finding.line}" for finding in findings]
    width = max(map(len, places), default=0)
    return [
        f"{place:<{width}}{'  ' if width else ''}{finding}" for place, finding in zip(places, findings, strict=True)
    ]


def raise_errors(findings: Iterable[Finding], source: str | Callable[[], str] = "") -> tuple[Finding, ...]:
    """Raise ConfigError with every error among the findings; return the warnings.

    `source`: what was judged, or what tells it: to ask CDK for a path takes time, and hardly anything is wrong.
    """
    findings = tuple(findings)
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        raise ConfigError(errors, source if isinstance(source, str) else source())
    return findings
