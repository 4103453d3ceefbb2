"""One row of preflight, and how a check ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .account_state import NotRead, Read

Verdict = Literal["passed", "impossible", "not checked", "open"]
"""Open: the deployment is possible, and somebody can do what docs/security.md names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One check. Numbers are texts: "?" if one was not read, "-" if the check has none."""

    check: str
    needed: str
    """What a deployment adds to what is in use; nothing for a cluster that has all nodes of the file already."""
    allowed: str
    in_use: str
    """By the whole account, also by the file's own cluster."""
    verdict: Verdict
    remedy: str = ""
    """What to do, or why it was not checked; empty if it passed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ends."""

    verdict: Verdict
    remedy: str = ""
    """As in Row."""


PASSED = Outcome("passed")
_WORST_FIRST: tuple[Verdict, ...] = ("impossible", "not checked", "open")


def impossible(remedy: str) -> Outcome:
    """The deployment would fail."""
    return Outcome("impossible", remedy)


def left_open(remedy: str) -> Outcome:
    """The deployment would succeed, and somebody could do what they should not."""
    return Outcome("open", remedy)


def not_checked(why: str) -> Outcome:
    """What is needed for the check could not be read."""
    return Outcome("not checked", why)


def row(check: str, outcome: Outcome, *, needed: str = "-", allowed: str = "-", in_use: str = "-") -> Row:
    """The row of a check with this outcome."""
    return Row(
        check=check, needed=needed, allowed=allowed, in_use=in_use, verdict=outcome.verdict, remedy=outcome.remedy
    )


def all_of(*outcomes: Outcome) -> Outcome:
    """The worst verdict, and the remedies of every outcome that has it."""
    verdicts = {each.verdict for each in outcomes}
    worst = next((verdict for verdict in _WORST_FIRST if verdict in verdicts), PASSED.verdict)
    remedies = [each.remedy for each in outcomes if each.verdict == worst and each.remedy]
    return Outcome(worst, ". ".join([*remedies[:1], *(each[:1].upper() + each[1:] for each in remedies[1:])]))


def shown(value: Read[float | None]) -> str:
    """A number as text."""
    if value is None or isinstance(value, NotRead):
        return "?"
    return f"{value:.0f}" if value == int(value) else f"{value:g}"
