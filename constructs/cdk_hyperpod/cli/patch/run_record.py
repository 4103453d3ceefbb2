"""The record of an unfinished run, which is its lock too: in the drain bucket under Slurm, and always on this machine.

A run that is killed leaves its record. The same command on the same machine goes on at once, because it finds the file unlocked; on
another machine when the lease is over.
"""

from __future__ import annotations

import getpass
import json
import math
import os
import re
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from ...errors import HyperPodError
from ..tables import shown
from .model import LEASE_S, Progress, Run

RENEW_S = LEASE_S / 2
"""The lease is renewed when less than this is left."""
KEPT_S = 24 * 3600.0
"""How long a record counts after the end of its lease. The bucket keeps objects for a day, too."""
_ID = re.compile(r"[a-z0-9]{1,32}")


class AnotherRunError(HyperPodError):
    """Another `patch` of this cluster is running."""


# -- the choice (pure) --------------------------------------------------------------------------------------------------


def choose_run(shared: Run | None, own: Run | None, fresh: Run, now: float) -> Run:
    """The run to go on with. Raises AnotherRunError if another process has it.

    `shared`: what the bucket holds. `own`: what the last process on this machine wrote, which is dead. `fresh`: a new run.
    """
    _refuse_another(shared, own, now)
    unfinished = shared or own
    if unfinished is None or now > unfinished.until + KEPT_S:
        return fresh
    if unfinished.wanted != fresh.wanted:
        # Its update may still be at work.
        return replace(
            fresh, groups={name: Progress(until=unfinished.groups[name].until) for name in unfinished.held(now)}
        )
    return replace(unfinished, by=fresh.by, owner=fresh.owner, until=fresh.until)


def _refuse_another(shared: Run | None, own: Run | None, now: float) -> None:
    if shared is None or shared.until <= now or (own is not None and own.owner == shared.owner):
        return
    minutes = math.ceil((shared.until - now) / 60)
    raise AnotherRunError(
        f"nothing was done: another `cdk-hyperpod patch` of this cluster is running, by {shared.by}. If it was killed, try again "
        f"in {minutes} {'minute' if minutes == 1 else 'minutes'}, or at once on the machine on which it ran"
    )


def is_lost(shared: Run | None, run: Run) -> bool:
    """Whether another process has gone on with the run, as it may when the lease is over. It may have finished it, too."""
    return shared is None or shared.owner != run.owner


LOST = AnotherRunError(
    "another process has gone on with this patch, because this one gave no sign of life for 10 minutes"
)


def to_json(run: Run) -> dict[str, Any]:
    """A run as it is written."""
    return asdict(run)


def from_json(found: object) -> Run | None:
    """The run in what was read. Others may have written it: None if it is not a run."""
    if not isinstance(found, dict):
        return None
    groups = found.get("groups")
    name, owner, until = found.get("id"), found.get("owner"), _number(found.get("until"))
    if not _is_id(name) or not _is_id(owner) or until is None or not isinstance(groups, dict):
        return None
    return Run(
        id=str(name),
        owner=str(owner),
        by=shown(found.get("by") or "?", 100),
        wanted=str(found.get("wanted") or ""),
        until=until,
        typed=tuple(map(str, typed)) if isinstance(typed := found.get("typed"), list) else (),
        groups={str(group): each for group, value in groups.items() if (each := _progress(value))},
    )


def _is_id(found: object) -> bool:
    return isinstance(found, str) and _ID.fullmatch(found) is not None


def _progress(found: object) -> Progress | None:
    if not isinstance(found, dict):
        return None
    before = found.get("before")
    return Progress(
        sent=_number(found.get("sent")),
        before=before if isinstance(before, str) else None,
        accepted=found.get("accepted") is True,
        seen=found.get("seen") is True,
        rolled_back=found.get("rolled_back") is True,
        until=_number(found.get("until")),
        unconfirmed=found.get("unconfirmed") is True,
        done=found.get("done") is True,
    )


def _number(found: object) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        number = float(found)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def new_run(local: LocalRecord, *, wanted: str = "", typed: tuple[str, ...] = ()) -> Run:
    """A run that nobody has begun. Whoever has locked this machine's record goes on with what another process here has written."""
    own = local.read()
    owner = own.owner if own else uuid.uuid4().hex
    return Run(id=uuid.uuid4().hex[:12], owner=owner, by=_who(), wanted=wanted, typed=typed, until=0.0)


def _who() -> str:
    """The user and the machine, for others who find the lock."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "?"
    return shown(f"{user}@{socket.gethostname()}", 100)


# -- this machine -------------------------------------------------------------------------------------------------------


class LocalRecord:
    """The record on this machine, while this process has its lock."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def read(self) -> Run | None:
        """What the last process wrote. None: nothing, or it was finished."""
        self._file.seek(0)
        try:
            return from_json(json.loads(self._file.read()))
        except (ValueError, RecursionError):
            return None

    def write(self, run: Run | None) -> None:
        """Replace the record. None: the run is finished."""
        self._file.seek(0)
        self._file.truncate()
        if run is not None:
            json.dump(to_json(run), self._file)
        self._file.flush()


@contextmanager
def local_record(
    account: str, region: str, cluster: str, environment: Mapping[str, str] = os.environ
) -> Iterator[LocalRecord]:
    """The record of this cluster on this machine. Raises AnotherRunError if another process on this machine has it."""
    import fcntl

    home = environment.get("XDG_CACHE_HOME", "")
    root = Path(home) if home.startswith("/") else Path.home() / ".cache"
    path = root / "cdk-hyperpod" / f"patch-{account}-{region}-{cluster}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="utf-8")
    except OSError as error:
        raise AnotherRunError(
            f"nothing was done: {path} cannot be written ({error.strerror}). Set XDG_CACHE_HOME"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AnotherRunError(
                f"nothing was done: another `cdk-hyperpod patch` of {cluster} is running on this machine. It has locked {path}"
            ) from None
        yield LocalRecord(file)
