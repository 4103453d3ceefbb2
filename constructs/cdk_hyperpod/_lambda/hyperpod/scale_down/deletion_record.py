"""What this process has asked HyperPod to delete, request by request: outputs and failures name it.

CDK's framework keeps nothing between polls but what on_event returned. Lambda mostly serves all polls of a request by one
process; where it did not, the record is not whole, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .actions import Pick, Picked

SOON = timedelta(seconds=20)
"""The first poll comes so soon after on_event; each other one within that after POLL."""

POLL = timedelta(seconds=30)
"""Between two polls, by the construct."""

MOST_RECORDS = 8


@dataclass(frozen=True, slots=True)
class Rollback:
    """What CloudFormation told of one."""

    updated: datetime | None
    reached: frozenset[str] | None


@dataclass(slots=True)
class Record:
    """One request's."""

    whole: bool = True
    """All polls so far were this process's."""
    asked: dict[str, Picked] = field(default_factory=dict)
    """Name -> node whose deletion HyperPod accepted, or may have accepted."""
    due: datetime | None = None
    """When the next poll is expected."""
    gives_back_again: bool = False
    """It had nothing to do at its first look, and has given back nodes that another request held, or may have had no right to."""
    goes_on: Rollback | None = None
    """It had nothing to do at its first look, has by now, and may have asked for nodes to be drained. Absent: no such rollback."""

    def add(self, picks: Iterable[Pick], names: frozenset[str]) -> None:
        """`names`: those of the picks that HyperPod was asked to delete."""
        for pick in picks:
            if pick.node.name in names:
                self.asked[pick.node.name] = Picked(pick.node.group, pick.node.name, pick.reason)

    def gone(self, here: frozenset[str]) -> list[Picked]:
        """Nodes that were asked for and are not `here` any more."""
        return [pick for name, pick in self.asked.items() if name not in here]


class Ledger:
    """Records of the requests that this process has polled."""

    def __init__(self) -> None:
        self._records: dict[Hashable, Record] = {}

    def at_poll(self, request: Hashable, *, looked: datetime, now: datetime) -> Record:
        """The record of a request, at one of its polls. `looked`: when on_event was through with it."""
        record = self._records.setdefault(request, Record(due=looked))
        record.whole = record.whole and now <= (record.due or looked) + SOON
        while len(self._records) > MOST_RECORDS:
            del self._records[next(iter(self._records))]
        return record
