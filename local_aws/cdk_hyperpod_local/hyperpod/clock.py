"""Time as an argument: the simulation never reads the machine's clock by itself."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time, in seconds since 1970 (UTC)."""

    def now(self) -> float:
        """Seconds since 1970. Never runs backwards."""


class ManualClock:
    """A clock that stands still until `advance` moves it: for tests in one process."""

    def __init__(self, start: float = 1_780_000_000.0) -> None:
        """`start`: seconds since 1970; the default lies after MinInstanceCount came to Slurm (2026-05-27)."""
        self._now = start

    def now(self) -> float:
        """Where `advance` left it."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`; ValueError if that is backwards."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back {-seconds} s")
        self._now += seconds


class SystemClock:
    """The machine's own clock, for a HyperPod behind a server.

    To make a served HyperPod fast, shorten what takes time (`Timings.faster(60)`) and leave the clock alone: launch times
    are compared with times that others took from the real clock, such as when a stack's update began.
    """

    def now(self) -> float:
        """The machine's time."""
        return time.time()


class ScaledClock:
    """Real time, `speed` times as fast, counted from `start`: for a HyperPod whose times nobody compares with the real ones."""

    def __init__(self, *, speed: float, start: float | None = None) -> None:
        """`speed`: seconds of this clock per real second, above 0. `start`: its time now; absent: the real time."""
        if speed <= 0:
            raise ValueError(f"speed must be above 0, not {speed}")
        self._speed = speed
        self._began = time.monotonic()
        self._start = time.time() if start is None else start

    def now(self) -> float:
        """Real time, sped up."""
        return self._start + (time.monotonic() - self._began) * self._speed
