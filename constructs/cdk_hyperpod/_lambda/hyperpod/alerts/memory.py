"""What the function has reported within the last hour. It lasts as long as Lambda keeps this copy of the function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from .kinds import HEALTH_RECORD, HOUR

MOST = 20_000
"""Maximum entries of events, and as many of health records. The oldest are forgotten first."""
RECORDS_AN_HOUR = 10
"""Messages about health records, which any process on a node can write."""
COPIES = 2
"""Copies of the function at a time, each with its own memory (monitoring/cluster_monitoring.py)."""
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
    """Causes and nodes, with the time of their message. Health records have a memory of their own, so they push out no event."""

    def __init__(self) -> None:
        self._entries: dict[bool, dict[_Key, tuple[datetime, int]]] = {False: {}, True: {}}
        self._record_messages: list[datetime] = []

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def note(self, reported: Reported, now: datetime) -> None:
        """Remember what was published."""
        entries = self._entries[reported.kind == HEALTH_RECORD]
        for key, count in _keys_of(reported):
            entries.pop(key, None)
            entries[key] = (now, count)
        for each in self._entries.values():
            _forget(each, now)

    def note_record_message(self, now: datetime) -> None:
        """Count a message about health records."""
        self._record_messages = [*(at for at in self._record_messages if now - at < HOUR), now]

    def record_messages_left(self, now: datetime) -> int:
        """How many messages about health records may be sent now."""
        return max(0, RECORDS_AN_HOUR // COPIES - sum(now - at < HOUR for at in self._record_messages))

    def knows_node(self, group: str, kind: str, cause: str, node: str, now: datetime, window: timedelta = HOUR) -> bool:
        """Whether this cause was reported of this node. Without a cause: whether any was."""
        return self._recent((group, kind, cause or ANY, node), now, window) > 0

    def count(self, group: str, kind: str, cause: str, now: datetime, window: timedelta = HOUR) -> int:
        """Of how many nodes the last message with this cause was. Without a cause: with any. 0: there was none."""
        return self._recent((group, kind, cause or ANY, _COUNT), now, window)

    def _recent(self, key: _Key, now: datetime, window: timedelta) -> int:
        at, count = self._entries[key[1] == HEALTH_RECORD].get(key, (datetime.min.replace(tzinfo=now.tzinfo), 0))
        return count if now - at < window else 0


def _forget(entries: dict[_Key, tuple[datetime, int]], now: datetime) -> None:
    """The oldest entries are the first ones."""
    while entries:
        oldest = next(iter(entries))
        if len(entries) <= MOST and now - entries[oldest][0] < HOUR:
            return
        del entries[oldest]


def _keys_of(reported: Reported) -> Iterator[tuple[_Key, int]]:
    for group in (reported.group, ANY):
        for cause in {reported.cause or ANY, ANY}:
            yield (group, reported.kind, cause, _COUNT), reported.count
            for node in reported.nodes:
                yield (group, reported.kind, cause, node), 1
