"""Time as an argument: the simulation never reads the machine's clock by itself."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Returns the time in seconds since 1970 (UTC)."""

    def now(self) -> float:
        """Seconds since 1970. Never runs backwards."""


class ManualClock:
    """A clock that moves only by `advance`, for tests in one process."""

    def __init__(self, start: float = 1_780_000_000.0) -> None:
        """`start`: seconds since 1970. The default is after MinInstanceCount was released for Slurm (2026-05-27)."""
        self._now = start

    def now(self) -> float:
        """The time that the last `advance` set."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`. ValueError if they are negative."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back {-seconds} s")
        self._now += seconds


class SystemClock:
    """The machine's own clock, for a HyperPod behind a server.

    To speed up a HyperPod behind a server, shorten its durations (`Timings.faster(60)`) and not its clock: clients
    compare launch times with times from the real clock, such as the start of a stack's update.
    """

    def now(self) -> float:
        """The machine's time."""
        return time.time()


class ScaledClock:
    """Real time, `speed` times as fast, counted from `start`: for a HyperPod whose times are not compared with real
    ones."""

    def __init__(self, *, speed: float, start: float | None = None) -> None:
        """`speed`: seconds of this clock per real second, above 0. `start`: its first time; absent: the real time."""
        if speed <= 0:
            raise ValueError(f"speed must be above 0, not {speed}")
        self._speed = speed
        self._began = time.monotonic()
        self._start = time.time() if start is None else start

    def now(self) -> float:
        """Real time, sped up."""
        return self._start + (time.monotonic() - self._began) * self._speed
