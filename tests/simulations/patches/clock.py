"""Virtual time, and processes in it: threads of which only one runs, and only while it is its turn."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


@dataclass
class Time:
    """What happens, and when."""

    now: float
    _events: list[tuple[float, int, Callable[[], object]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _scheduler: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def at(self, time: float, do: Callable[[], object]) -> None:
        """Do it then."""
        heapq.heappush(self._events, (max(time, self.now), next(self._numbers), do))

    def every(self, seconds: Callable[[], float], do: Callable[[], object]) -> None:
        """Do it again and again, from now on."""

        def again() -> None:
            do()
            self.at(self.now + seconds(), again)

        self.at(self.now, again)

    def run(self, until: float) -> None:
        """Let everything happen until then. Not to be called by a process."""
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()
        self.now = until

    def start(self, main: Callable[[], object]) -> None:
        """Run a process now, until it waits."""

        def run() -> None:
            try:
                main()
            finally:
                self._scheduler.release()

        threading.Thread(target=run, daemon=True).start()
        self._scheduler.acquire()

    def wait(self, seconds: float) -> None:
        """In a process: everything else that comes before happens first."""
        until = self.now + seconds
        if not self._events or self._events[0][0] > until:
            self.now = until
            return
        turn = threading.Semaphore(0)

        def resume() -> None:
            turn.release()
            self._scheduler.acquire()

        self.at(until, resume)
        self._scheduler.release()
        turn.acquire()
