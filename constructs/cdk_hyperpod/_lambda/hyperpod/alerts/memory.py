"""What the function has reported within the last hour. It lasts as long as Lambda keeps this copy of the function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from .kinds import HOUR

MOST = 20_000
"""Maximum entries. The oldest are forgotten first."""
ANY = "*"
"""Any group, or any cause."""
_COUNT = "#"
_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a message said of one cause."""

    group: str
    kind: str
    cause: str
    """Empty: the reason was not known."""
    nodes: Iterable[str]
    """Instance ids. An empty one stands for events that name none."""
    count: int
    """How many nodes it concerned."""


class Memory:
    """Causes and nodes, with the time of their message."""

    def __init__(self) -> None:
        self._entries: dict[_Key, tuple[datetime, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, reported: Reported, now: datetime) -> None:
        """Remember what was published."""
        for key, count in _keys_of(reported):
            self._entries.pop(key, None)
            self._entries[key] = (now, count)
        self._forget(now)

    def knows_node(self, group: str, kind: str, cause: str, node: str, now: datetime, window: timedelta = HOUR) -> bool:
        """Whether this cause was reported of this node. Without a cause: whether any was."""
        return self._recent((group, kind, cause or ANY, node), now, window) > 0

    def count(self, group: str, kind: str, cause: str, now: datetime, window: timedelta = HOUR) -> int:
        """Of how many nodes the last message with this cause was. Without a cause: with any. 0: there was none."""
        return self._recent((group, kind, cause or ANY, _COUNT), now, window)

    def _recent(self, key: _Key, now: datetime, window: timedelta) -> int:
        at, count = self._entries.get(key, (datetime.min.replace(tzinfo=now.tzinfo), 0))
        return count if now - at < window else 0

    def _forget(self, now: datetime) -> None:
        """The oldest entries are the first ones."""
        while self._entries:
            oldest = next(iter(self._entries))
            if len(self._entries) <= MOST and now - self._entries[oldest][0] < HOUR:
                return
            del self._entries[oldest]


def _keys_of(reported: Reported) -> Iterator[tuple[_Key, int]]:
    for group in (reported.group, ANY):
        for cause in {reported.cause or ANY, ANY}:
            yield (group, reported.kind, cause, _COUNT), reported.count
            for node in reported.nodes:
                yield (group, reported.kind, cause, node), 1
