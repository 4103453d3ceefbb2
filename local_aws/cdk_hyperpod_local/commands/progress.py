"""The stacks while the CDK CLI deploys or deletes them: one line for each, with its status and the time that it took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
from rich.console import Console
from rich.live import Live
from rich.text import Text

from cdk_hyperpod.cli import tables
from cdk_hyperpod_local import environment

Json = Any
_LOOK_SECONDS = 0.5
_WAITING, _UNCHANGED, _REFUSED = "waiting", "not changed", "refused"
_NOT_BEGUN = (_WAITING, "REVIEW_IN_PROGRESS")
"""Statuses of a stack of which no change set was executed."""


@dataclass(slots=True)
class _Row:
    """One stack."""

    status: str = _WAITING
    """CloudFormation's, once the CLI has changed the stack."""
    began: float | None = None
    ended: float | None = None

    def see(self, status: str, now: float) -> None:
        self.status = status
        self.began = now if self.began is None else self.began
        is_under_way = status.endswith("_IN_PROGRESS")
        self.ended = None if is_under_way else self.ended or now

    def time(self, now: float) -> str:
        """Minutes and seconds; `-` before it has begun."""
        if self.began is None:
            return "-"
        seconds = int((self.ended or now) - self.began)
        return f"{seconds // 60}:{seconds % 60:02}"


class Progress:
    """Looks at the stacks in a thread. On a terminal the lines are updated; otherwise a stack's line is printed when it ends.

    `client`: CloudFormation. `names`: the stacks, in the order in which they change. `ids`: by these names, the StackIds of
    stacks that are deleted. CloudFormation describes a deleted stack only by its id. Absent: the stacks are deployed.
    """

    def __init__(
        self,
        client: Any,
        names: Sequence[str],
        *,
        ids: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._ids, self._now = client, ids, now
        self._rows = {name: _Row() for name in names}
        self._before = self._read()
        self._printed: set[str] = set()
        self._refused: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        console = Console(highlight=False, width=tables.width())
        self._live = Live(console=console, auto_refresh=False) if environment.is_styled() else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._update()
        for name, row in self._rows.items():
            row.status = _at_the_end(row.status, is_refused=name in self._refused)
        self._show()
        if self._live is not None:
            self._live.stop()
        else:
            self._print(self._rows)

    def refuse(self, names: Sequence[str]) -> None:
        """The deployment of these stacks failed. Those of which no change set was executed are shown as refused at the end."""
        self._refused.update(names)

    def _follow(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Read the stacks, and show what is new."""
        self._update()
        self._show()

    def _update(self) -> None:
        for name, stack in self._read().items():
            if _identity(stack) != _identity(self._before.get(name, {})):
                self._rows[name].see(stack["StackStatus"], self._now())

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(Text("\n".join(self.lines()), no_wrap=True), refresh=True)
        else:
            self._print([name for name, row in self._rows.items() if row.ended is not None])

    def lines(self) -> list[str]:
        """All stacks, as a terminal shows them."""
        now = self._now()
        cells = [(name, row.status, row.time(now)) for name, row in self._rows.items()]
        return tables.table(("STACK", "STATUS", "TIME"), cells, columns=tables.width() or tables.WIDTH, cut=(0,))

    def _print(self, names: Sequence[str] | Mapping[str, _Row]) -> None:
        """A line for each of these stacks that has none yet."""
        for name in names:
            if name not in self._printed:
                self._printed.add(name)
                row = self._rows[name]
                tables.say(f"{name}: {row.status}" + (f" after {row.time(self._now())}" if row.began else ""))

    def _read(self) -> dict[str, Json]:
        """The app's stacks. Empty if they cannot be read: the CLI finds out why."""
        try:
            found = self._all_stacks() if self._ids is None else self._stacks_by_id(self._ids)
        except (ClientError, BotoCoreError):
            return {}
        return {item["StackName"]: item for item in found if item["StackName"] in self._rows}

    def _all_stacks(self) -> list[Json]:
        return [item for page in self._client.get_paginator("describe_stacks").paginate() for item in page["Stacks"]]

    def _stacks_by_id(self, ids: Mapping[str, str]) -> list[Json]:
        return [item for each in ids.values() for item in self._client.describe_stacks(StackName=each)["Stacks"]]


def _at_the_end(status: str, *, is_refused: bool) -> str:
    """What the last table shows for a stack with this status."""
    if is_refused and status in _NOT_BEGUN:
        return _REFUSED
    return _UNCHANGED if status == _WAITING else status


def _identity(stack: Json) -> tuple[Json, ...]:
    """Differs if an operation on the stack has begun or ended meanwhile."""
    return tuple(stack.get(key) for key in ("StackId", "LastUpdatedTime", "DeletionTime", "StackStatus"))
