"""What is decided for one requested node, and how an ordered list of rules decides it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from .commands import Act
from .slurm import Job

State = Literal["unknown", "refused", "draining", "backing-up", "backup-failed", "timed-out", "ready"]
CLEANING_UP = "Slurm is still cleaning up after the last job"
MOST_JOBS_SHOWN = 5
View = TypeVar("View")


@dataclass(frozen=True)
class Decision:
    """What the status says of a node, and what is done to it."""

    state: State
    message: str
    acts: tuple[Act, ...] = ()
    holds: bool = True
    """Our reservation and our drain of the node stay."""
    saved: bool = False
    """The node is ready, and its data is saved."""
    waived: bool = False
    """The node is ready, and a person said that it may be deleted unsaved."""
    absent: bool = False
    """The cluster has the node, and Slurm certainly has not: nothing runs on it."""


def first_decision(rules: Sequence[Callable[[View], Decision | None]], view: View) -> Decision | None:
    """The decision of the first rule that applies."""
    for rule in rules:
        decision = rule(view)
        if decision is not None:
            return decision
    return None


def join_texts(*texts: str) -> str:
    """The texts that are not empty, as one."""
    return "; ".join(text for text in texts if text)


def show_jobs(jobs: Sequence[Job]) -> str:
    """Jobs and their users. Empty: there are none."""
    if not jobs:
        return ""
    return f"jobs: {shorten([f'{job.id} of {job.user}' for job in jobs], MOST_JOBS_SHOWN)}"


def shorten(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:most])
    if len(names) <= most:
        return shown
    return f"{shown} and {len(names) - most} more"
