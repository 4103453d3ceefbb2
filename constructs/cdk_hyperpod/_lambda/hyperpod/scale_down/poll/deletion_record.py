"""The nodes whose deletion this process has requested, request by request. Outputs and failures name them.

CDK's framework keeps nothing between polls but what on_event returned. Lambda mostly serves all polls of a request with one
process. If another process served some, the record is not complete, and the answer reports that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..model.actions import Pick, Picked

SLACK = timedelta(seconds=20)
"""How much later than expected a poll may come. The first is expected at once after on_event, the others after POLL."""

POLL = timedelta(seconds=30)
"""Time between two polls, by the construct."""

MOST_RECORDS = 8


@dataclass(frozen=True, slots=True)
class Rollback:
    """What CloudFormation reported of a rollback: since when the stack is updated, and the clusters that the failed update got to.
    None: it did not report it."""

    updated: datetime | None
    reached: frozenset[str] | None


@dataclass(slots=True)
class DeletionRecord:
    """The record of one request."""

    complete: bool = True
    """All polls so far were this process's."""
    requested: dict[str, Picked] = field(default_factory=dict)
    """Name -> node whose deletion HyperPod accepted, or may have accepted."""
    next_poll: datetime | None = None
    """When the next poll is expected."""
    releases_again: bool = False
    """Its first look found nothing to do. Since then it has released nodes that another request held, or may not have had the
    permission to."""
    resumed: Rollback | None = None
    """A rollback whose first look found nothing to do, and that has something to do since then. None: it is not such a rollback."""

    def add(self, picks: Iterable[Pick], names: frozenset[str]) -> None:
        """`names`: those of the picks whose deletion was requested."""
        for pick in picks:
            if pick.node.name in names:
                self.requested[pick.node.name] = Picked(pick.node.group, pick.node.name, pick.reason)

    def deleted(self, here: frozenset[str]) -> list[Picked]:
        """Requested nodes that are not `here` any more."""
        return [pick for name, pick in self.requested.items() if name not in here]


class DeletionRecords:
    """Records of the requests that this process has polled."""

    def __init__(self) -> None:
        self._records: dict[Hashable, DeletionRecord] = {}

    def at_poll(self, request: Hashable, *, looked: datetime, now: datetime) -> DeletionRecord:
        """The record of a request, at one of its polls. `looked`: when on_event ended."""
        record = self._records.setdefault(request, DeletionRecord(next_poll=looked))
        expected = record.next_poll or looked
        record.complete = record.complete and now <= expected + SLACK
        while len(self._records) > MOST_RECORDS:
            del self._records[next(iter(self._records))]
        return record
