"""Files that are written while they are saved: find them, end the processes that write, and save the files once more."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable

from .copying import CHANGED, OTHER_NAME, Save
from .walk import Folder, Visitor, allocated, fingerprint, line_of, place_of
from .wording import UnsavableError, owner

FIRST_USER = 1001
"""Lower uids are root's, the system's and the image's own user's."""


class Check(Visitor):
    """Find what was written in a folder since it was saved."""

    def __init__(self, save: Save) -> None:
        self._save = save
        self._changed: list[list[tuple[str, bytes, os.stat_result]]] = []
        self._states: list[int] = []

    def enter(self, folder: Folder) -> None:
        self._states.append(fingerprint(line_of("", folder.found)))
        self._changed.append([])

    def entry(self, folder: Folder, name: str, found: os.stat_result) -> None:
        path, line = f"{folder.path}/{name}", line_of(name, found)
        self._states[-1] += fingerprint(line)
        # Files in a folder that was moved here have older times.
        late = found.st_ctime_ns >= self._save.began_ns or place_of(folder.path, folder.found) not in self._save.states
        if late and line != self._save.recent.get(path):
            self._changed[-1].append((path, line, found))

    def leave(self, folder: Folder) -> None:
        seen, changed = self._states.pop(), self._changed.pop()
        key = place_of(folder.path, folder.found)
        if self._save.states.get(key) == seen:
            return
        self._save.states[key] = seen
        self._save.recent.update((path, line) for path, line, _ in changed)
        for path, _, found in changed or [(folder.path, b"", folder.found)]:
            self._save.left.add(path, found.st_uid, allocated(found), CHANGED)

    def refuse(self, path: str, found: os.stat_result, size: int, why: str) -> None:
        self._save.left.add(path, found.st_uid, size, why)


def save_again(save: Save) -> list[str]:
    """End the processes that write to files that could not be saved, and save these files once more. Returns the ended processes."""
    changed = [path for path, (_, _, why) in save.left.found.items() if why in (CHANGED, OTHER_NAME)]
    ended = end_writers(changed)
    for path in changed:
        uid, size, _ = save.left.found[path]
        save.left.take(path)
        try:
            save.save_again(path)
        except UnsavableError as error:
            save.left.add(path, uid, size, error.why)
    save.flush()
    return ended


def end_writers(paths: Iterable[str]) -> list[str]:
    """End the processes that have these files open for writing. Returns them, with their owners. A process of root, the system or the
    image's own user is never ended, and none is ended while another job is on the node."""
    wanted = set()
    for path in paths:
        with contextlib.suppress(OSError):
            file = os.lstat(path)
            wanted.add((file.st_dev, file.st_ino))
    if not wanted or other_jobs():
        return []
    found: dict[int, tuple[str, int]] = {}
    for pid in processes():
        who = writer(pid, wanted)
        if who:
            found[pid] = who
    for number in (signal.SIGTERM, signal.SIGKILL):
        alive = [pid for pid in found if writer(pid, wanted)]
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + 5
        while time.monotonic() < until and any(writer(pid, wanted) for pid in alive):
            time.sleep(0.1)
    return [f"process {pid} ({name}) of {owner(uid)}" for pid, (name, uid) in found.items()]


def processes() -> list[int]:
    """Ids of all of the node's."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def writer(pid: int, wanted: set[tuple[int, int]]) -> tuple[str, int] | None:
    """The name and uid of a process that may write one of these files and may be ended. None: it is not such a process."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
        uids = [int(uid) for uid in status["Uid"].split()]
        if min(uids) < FIRST_USER or not (_holds(pid, wanted) or _maps(pid, wanted)):
            return None
    except (OSError, ValueError, KeyError):
        return None  # it has ended
    return re.sub(r"[^A-Za-z0-9_.+-]", "?", status["Name"].strip()), uids[0]


def _holds(pid: int, wanted: set[tuple[int, int]]) -> bool:
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError, StopIteration):
            with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii", errors="replace") as file:
                flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))
            if flags & os.O_ACCMODE != os.O_RDONLY and _is_one_of(f"/proc/{pid}/fd/{number}", wanted):
                return True
    return False


def _maps(pid: int, wanted: set[tuple[int, int]]) -> bool:
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        shared = [line.split()[0] for line in file if line.split()[1:2] == ["rw-s"]]
    for where in shared:
        with contextlib.suppress(OSError):
            if _is_one_of(f"/proc/{pid}/map_files/{where}", wanted):
                return True
    return False


def _is_one_of(path: str, wanted: set[tuple[int, int]]) -> bool:
    found = os.stat(path)
    return (found.st_dev, found.st_ino) in wanted


def other_jobs() -> bool:
    """True: another job may be on the node."""
    job, node = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURMD_NODENAME")
    if not (job and node):
        return True
    command = ["squeue", "--noheader", f"--nodelist={node}", "--format=%A"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode != 0 or bool(set(done.stdout.decode("ascii", "replace").split()) - {job})
