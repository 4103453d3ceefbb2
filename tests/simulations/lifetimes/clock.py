"""Virtual time: future events are in a queue, and time passes by taking events from it. No threads, no sleeping."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The start of every lifetime."""


class Clock:
    """Seconds since EPOCH, and the future events."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def datetime(self, at: float | None = None) -> datetime:
        return EPOCH + timedelta(seconds=self.now if at is None else at)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` after this many seconds. Two events at the same time happen in the order of their calls."""
        self._count += 1
        heappush(self._queue, (self.now + seconds, self._count, act))

    def pass_time(self, seconds: float) -> None:
        """Perform all events that are due meanwhile.

        They may pass time themselves (a call inside a call), so `now` never goes back.
        """
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            self._next()
        self.now = max(self.now, until)

    def wait_for(self, reached: Callable[[], bool], *, at_most: float) -> bool:
        """Let time pass until the condition is true. False: it was not within `at_most` seconds."""
        until = self.now + at_most
        while not reached():
            if not self._queue or self._queue[0][0] > until:
                self.now = max(self.now, until)
                return reached()
            self._next()
        return True

    def _next(self) -> None:
        at, _, act = heappop(self._queue)
        self.now = max(self.now, at)
        act()
