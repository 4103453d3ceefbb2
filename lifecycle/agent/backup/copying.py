#!/usr/bin/env python3
"""Copy folders of this node to the shared file system, and prove that the copy is the same; or run the owner's own hook. A job
of the drain agent's.

The agent sends this file to Slurm with a last line that calls `main`: nothing of it is on the node. Every regular file
is copied, read again at the target and compared by its sha256; then the manifest is written, by a rename. What an earlier
try has copied is compared and not written again. Links are copied as links, holes stay holes, hard links stay links within a
path; ACLs and extended attributes are copied, or counted. Pipes, sockets and devices are counted, and left. Mounts are named,
and left. Nothing at the target is ever deleted: what has another kind by now, as a folder that is a link, is set aside, and so
is what the node has no more, so that a restore does not bring it back.

This runs as root in folders where users write, now and in an earlier try. So every folder is opened in the one above it, and
nothing is reached through a link, neither here nor at the target. A hook is run only where root alone could have written it.

    TO/INSTANCE/files/...          the folders, by their own paths
    TO/INSTANCE/aside/...          what an earlier try or backup has copied, and is of another kind by now, or gone
    TO/INSTANCE/SHA256SUMS         as `sha256sum --check` reads it in files/
    TO/INSTANCE/SHA256SUMS.sparse  the same of files with large holes: the sum of their blocks of data (Sum) alone
    TO/INSTANCE/manifest.json      {"schema": 1, "request": ..., "node": ..., "paths": [...], "files": N, "bytes": N, ...};
                                   while a backup is made, and after one that failed, there is none
    TO/INSTANCE/manifest.before.json  that of the backup before

Only the standard library, and nothing newer than Python 3.8.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import heapq
import json
import os
import pwd
import re
import resource
import shutil
import signal
import stat
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

LOG = "/var/log/cdk-hyperpod-backup.log"
"""What a try says, on the node: the job's output."""
CHUNK = 8 * 2**20
BLOCK = 64 * 2**10
"""Of a file with holes: blocks of zeros are not written."""
MOST_ZEROS = 2**30
"""A file with more bytes in holes has no sum that sha256sum could compare in time."""
BATCH_FILES = 500
BATCH_BYTES = 2**30
"""So much is synced to the target at once, then read again there."""
TELL_EVERY_S = 10
MOST_BYTES_S = 500e6
"""No node saves more in a second: each byte is read, hashed, written, read again and hashed again, by one process."""
MOST_FILES_S = 10_000
"""The same in files, however small."""
MOST_TOLD = 600
"""Characters of a sentence that the agent gets, and passes on."""
MOST_LISTED = 10_000
"""Names in the manifest of what was left out."""
OPEN_FILES = 65_536
TICK_S = 0.05
"""More than the kernel's clock takes from one time of a file to the next."""
FIRST_USER = 1001
"""Uids below are root's, the system's and the image's own user's."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
"""How a folder is opened: a link to one is refused."""
READ = "read on the node"
WRITTEN = "written at the target"
READ_AGAIN = "read again at the target"
CHANGED = "was written while it was saved"
OTHER_NAME = "is another name of a file that was not saved"
ABOUT_ONE = frozenset([errno.EFBIG, errno.ENAMETOOLONG, errno.EILSEQ])
"""Errors of the target that are about one file: others can be saved all the same."""
ACCESS = "system.posix_acl_access"
ACLS = (ACCESS, "system.posix_acl_default")
OWN_ATTRIBUTES = re.compile(
    r"system\.(?!posix_acl_)|lustre\.|security\.(selinux|ima|evm)$|trusted\.(lov|lma|lmv|link|fid|som|hsm)"
)
"""What a file system keeps for itself."""


class BackupError(Exception):
    """Why the folders cannot be saved: one sentence."""


class UnsavableError(BackupError):
    """Why one file or folder cannot be saved."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{shown(path)} {why}")
        self.why = why


def shown(path: str, most: int = 300) -> str:
    """A name on one printable line: it may hold anything."""
    quoted = json.dumps(path)
    return quoted if len(quoted) <= most else f'{quoted[: most - 4]}..."'


def owner(uid: int) -> str:
    """A user's name, or the number where there is none that could be shown."""
    with contextlib.suppress(KeyError, OSError):
        name = pwd.getpwuid(uid).pw_name
        if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", name):
            return name
    return f"uid {uid}"


def amount(size: float) -> str:
    """Bytes, for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"


def several(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


@contextlib.contextmanager
def told(path: str, what: str) -> Iterator[None]:
    """Raise BackupError where a file system fails, with all of the path: an OSError has its last part, or nothing of it."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        if what == READ or error.errno in ABOUT_ONE:
            raise UnsavableError(path, f"could not be {what}: {why}") from None
        raise BackupError(f"{shown(path)} could not be {what}: {why}") from None


# -- the whole --------------------------------------------------------------------------------------------------------


def back_up(order: dict[str, Any], tell: Callable[[str], None]) -> None:
    """Do it. Raises BackupError, and OSError where something fails before anything is read or copied."""
    folder = target_folder(order["to"], order["instance"])
    paths = [path for path in order["paths"] if os.path.lexists(path)]
    absent = [path for path in order["paths"] if path not in paths]
    if not paths:
        raise BackupError(f"none of the folders is on the node ({', '.join(absent)}): is a disk not mounted?")
    for path in paths:
        check_path(path)
    depth = allow_open_files()
    mounts = mounts_below(paths)
    survey = Survey(folder)
    for path in paths:
        walk(path, mounts, depth, survey)
    check_room(folder, survey)
    check_time(survey, order["seconds"])
    save = Save(folder, survey, tell)
    for path in paths:
        save.begin(path)
        walk(path, mounts, depth, save)
    save.flush()
    for path in paths:
        walk(path, mounts, depth, Check(save))
    ended: list[str] = []
    if order.get("last") and save.left.count:
        ended = save_again(save)
        for path in paths:
            walk(path, mounts, depth, Check(save))
    notes = [f"ended {each}" for each in ended]
    if save.left.count and not (order.get("last") and order.get("skip")):
        raise BackupError("; ".join([save.left.sentence(), *notes]))
    save.finish()
    manifest = {
        "schema": 1,
        "request": order["request"],
        "instance": order["instance"],
        "node": os.uname().nodename,
        "paths": paths,
        "absent": absent,
        "mounts": sorted({*mounts, *save.elsewhere_at})[:MOST_LISTED],
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **save.counts,
        "left_out": save.left.count,
        "left_out_by_owner": save.left.by_owner(),
        "set_aside": save.aside,
        "ended_processes": ended,
    }
    write_whole(f"{folder}/manifest.json", json.dumps(manifest, indent=1) + "\n")
    tell(conclusion(save, absent, mounts, notes))


def conclusion(save: Save, absent: list[str], mounts: Iterable[str], notes: list[str]) -> str:
    """What was saved, and what was not: counts first, which the agent keeps, then names."""
    counts, left = save.counts, save.left
    mounted = sorted({*mounts, *save.elsewhere_at})
    parts = [
        (left.count, f"{several(left.count, 'file')} left out ({left.owners()})"),
        (len(absent), f"{several(len(absent), 'path')} absent"),
        (len(mounted), f"{several(len(mounted), 'mount')} left out"),
        (counts["left"], f"{several(counts['left'], 'special file')} left out"),
        (counts["acls_lost"], f"{several(counts['acls_lost'], 'ACL')} lost, so the group has no access"),
        (counts["attributes_lost"], f"{several(counts['attributes_lost'], 'extended attribute')} lost"),
        (counts["links_lost"], f"{several(counts['links_lost'], 'hard link')} copied as a file"),
    ]
    names = [
        *([left.sentence()] if left.count else []),
        *([f"absent {', '.join(absent)}"] if absent else []),
        *([f"mounted {', '.join(shown(each, 100) for each in mounted[:3])}"] if mounted else []),
        *notes,
    ]
    head = "; ".join(
        [f"saved {several(counts['files'], 'file')}, {amount(counts['bytes'])}", *(say for n, say in parts if n)]
    )
    return f"{head}: {'; '.join(names)}" if names else head


class Left:
    """What cannot be saved, and whose it is."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, int, str]] = {}
        """Path -> uid, bytes, why. No more than the manifest lists."""
        self.by_uid: dict[int, int] = {}

    @property
    def count(self) -> int:
        return sum(self.by_uid.values())

    def add(self, path: str, uid: int, size: int, why: str) -> None:
        if path in self.found:
            return
        self.by_uid[uid] = self.by_uid.get(uid, 0) + 1
        if len(self.found) < MOST_LISTED:
            self.found[path] = (uid, size, why)

    def take(self, path: str) -> None:
        """It is saved after all."""
        uid, _, _ = self.found.pop(path)
        self.by_uid[uid] -= 1

    def sentence(self) -> str:
        """The largest, with their owners."""
        largest = heapq.nlargest(3, self.found.items(), key=lambda each: each[1][1])
        told = [
            f"{shown(path, 120)} of {owner(uid)}{f' ({amount(size)})' if size else ''} {why}"
            for path, (uid, size, why) in largest
        ]
        more = [f"and {self.count - len(largest)} more"] if self.count > len(largest) else []
        return f"{several(self.count, 'file')} not saved: {'; '.join([*told, *more])}"

    def owners(self) -> str:
        """Who has most of it, with counts."""
        most = heapq.nlargest(3, self.by_uid.items(), key=lambda each: each[1])
        told = [f"{owner(uid)} {count}" for uid, count in most if count]
        return ", ".join([*told, *(["others"] if len(self.by_uid) > 3 else [])])

    def by_owner(self) -> dict[str, Any]:
        """For the manifest."""
        told: dict[str, Any] = {}
        for path, (uid, size, why) in self.found.items():
            of = told.setdefault(owner(uid), {"uid": uid, "files": self.by_uid[uid], "bytes": 0, "paths": []})
            of["bytes"] += size
            of["paths"].append({"path": path, "bytes": size, "why": why})
        return told


# -- reading the node -------------------------------------------------------------------------------------------------


class Folder:
    """A folder of this node, open while what is in it is read."""

    def __init__(self, path: str, opened: int, parent: Folder | None) -> None:
        self.path, self.opened, self.parent = path, opened, parent
        self.found = os.fstat(opened)
        self.copy = -1
        """Its copy, where a visitor has opened it."""
        self.below: list[str] = []
        """Names of folders in it that were not read yet."""
        self.names: frozenset[str] | None = None
        """All names in it. None: it could not be read."""


class Visitor:
    """What is done with everything that `walk` finds. Each raises UnsavableError where it cannot be done with this one."""

    def enter(self, folder: Folder) -> None:
        """Before what is in it."""

    def entry(self, folder: Folder, name: str, found: os.stat_result) -> None:
        """What is no folder."""

    def leave(self, folder: Folder) -> None:
        """After all that is in it and below."""

    def elsewhere(self, path: str) -> None:
        """A folder of another file system, of which the mounts say nothing."""

    def refuse(self, path: str, found: os.stat_result, size: int, why: str) -> None:
        """What cannot be read, or done. `found`: of it, or of the folder it is in."""


def walk(top: str, mounts: frozenset[str], depth: int, visitor: Visitor) -> None:
    """The folder and all below it on its own file system. Links are not followed.

    Each folder is opened in the one above it, which stays open: however deep they are, each is opened once.
    """
    try:
        with told(top, READ):
            first = Folder(top, open_folder(top), None)
    except UnsavableError as error:
        visitor.refuse(top, os.lstat("/"), 0, error.why)
        return
    stack: list[Folder] = []
    try:
        _open_in(stack, first, visitor)
        if stack:
            _read(first, first, mounts, visitor)
        while stack:
            folder = stack[-1]
            if not folder.below:
                _leave(stack.pop(), visitor)
                continue
            name = folder.below.pop()
            below = _open_below(folder, name, len(stack) >= depth, visitor)
            if below is not None and _open_in(stack, below, visitor):
                _read(below, first, mounts, visitor)
    finally:
        for folder in stack:
            _close(folder)


def _open_below(folder: Folder, name: str, too_deep: bool, visitor: Visitor) -> Folder | None:
    path = f"{folder.path}/{name}"
    if too_deep:
        visitor.refuse(path, folder.found, 0, "is nested too deep")
        return None
    try:
        with told(path, READ):
            return Folder(path, os.open(name, FOLDER, dir_fd=folder.opened), folder)
    except UnsavableError as error:
        visitor.refuse(path, folder.found, 0, error.why)
        return None


def _open_in(stack: list[Folder], folder: Folder, visitor: Visitor) -> bool:
    """Whether what is in it is of use."""
    stack.append(folder)
    try:
        visitor.enter(folder)
    except UnsavableError as error:
        visitor.refuse(folder.path, folder.found, 0, error.why)
        _close(stack.pop())
        return False
    return True


def _leave(folder: Folder, visitor: Visitor) -> None:
    try:
        visitor.leave(folder)
    except UnsavableError as error:
        visitor.refuse(folder.path, folder.found, 0, error.why)
    finally:
        _close(folder)


def _close(folder: Folder) -> None:
    for opened in (folder.opened, folder.copy):
        if opened >= 0:
            os.close(opened)


def _read(folder: Folder, top: Folder, mounts: frozenset[str], visitor: Visitor) -> None:
    try:
        with told(folder.path, READ), os.scandir(folder.opened) as entries:
            names = sorted((entry.name for entry in entries), key=os.fsencode)
    except UnsavableError as error:
        visitor.refuse(folder.path, folder.found, 0, error.why)
        return
    folder.names = frozenset(names)
    for name in names:
        path = f"{folder.path}/{name}"
        # A user's own mount may refuse root, or never answer: it is not even looked at.
        if path in mounts:
            continue
        found = folder.found
        try:
            with told(path, READ):
                found = os.lstat(name, dir_fd=folder.opened)
            if not stat.S_ISDIR(found.st_mode):
                visitor.entry(folder, name, found)
            elif found.st_dev == top.found.st_dev:
                folder.below.append(name)
            else:
                visitor.elsewhere(path)
        except UnsavableError as error:
            size = allocated(found) if stat.S_ISREG(found.st_mode) else 0
            visitor.refuse(path, found, size, error.why)
    folder.below.reverse()


def mounts_below(paths: Iterable[str], table: str = "/proc/self/mountinfo") -> frozenset[str]:
    """What is mounted below these folders."""
    with open(table, encoding="utf-8", errors="surrogateescape") as file:
        points = [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split()[4]) for line in file]
    return frozenset(point for point in points for path in paths if point.startswith(f"{path}/"))


def allow_open_files() -> int:
    """How deep folders may be nested: two files are open for each level."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in ((OPEN_FILES, max(hard, OPEN_FILES)), (min(hard, OPEN_FILES), hard)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            soft = limit[0]
            break
    return max(100, (soft - BATCH_FILES - 100) // 2)


def allocated(found: os.stat_result) -> int:
    """Bytes that a file holds: of one with holes fewer than its size, which may be any number."""
    return min(found.st_size, found.st_blocks * 512)


class Survey(Visitor):
    """How much there is, and how much of it an earlier try has copied."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.files = self.bytes = self.missing_files = self.missing_bytes = 0
        self.largest: list[tuple[int, str, int]] = []
        self.by_uid: dict[int, tuple[int, int]] = {}
        """Uid -> bytes, files."""
        self._linked: set[tuple[int, int]] = set()

    def enter(self, folder: Folder) -> None:
        with contextlib.suppress(OSError):
            if folder.parent is None:
                folder.copy = descend(self.target, ["files", *folder.path.split("/")], _open)
            elif folder.parent.copy >= 0:
                folder.copy = _open(folder.parent.copy, os.path.basename(folder.path))

    def entry(self, folder: Folder, name: str, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            return
        self.files += 1
        if found.st_nlink > 1:
            if (found.st_dev, found.st_ino) in self._linked:
                return
            self._linked.add((found.st_dev, found.st_ino))
        size = allocated(found)
        self.bytes += size
        of_owner = self.by_uid.get(found.st_uid, (0, 0))
        self.by_uid[found.st_uid] = (of_owner[0] + size, of_owner[1] + 1)
        if len(self.largest) < 3 or size > self.largest[0][0]:
            put = heapq.heappush if len(self.largest) < 3 else heapq.heapreplace
            put(self.largest, (size, f"{folder.path}/{name}", found.st_uid))
        there = self._there(folder, name)
        self.missing_files += there is None
        self.missing_bytes += max(0, size - (there or 0))

    @staticmethod
    def _there(folder: Folder, name: str) -> int | None:
        if folder.copy < 0:
            return None
        try:
            return allocated(os.lstat(name, dir_fd=folder.copy))
        except OSError:
            return None

    def most(self) -> str:
        """Whose most of it is."""
        files = [
            f"{shown(path, 100)} of {owner(uid)} ({amount(size)})" for size, path, uid in sorted(self.largest)[::-1]
        ]
        users = heapq.nlargest(3, self.by_uid.items(), key=lambda each: each[1])
        owners = [f"{owner(uid)} {amount(size)} in {several(count, 'file')}" for uid, (size, count) in users]
        return f"most is of {', '.join(owners)}; the largest: {', '.join(files)}" if files else "there are no files"


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
        # What is in a folder that was moved here has times of before.
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


def line_of(name: str, found: os.stat_result) -> bytes:
    """What changes with a file or folder, whoever changes it."""
    return os.fsencode(name) + b"/%d %d %d %d" % (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def place_of(path: str, found: os.stat_result) -> tuple[int, int, int]:
    """A folder where it is: one that is moved is another."""
    return found.st_dev, found.st_ino, hash(path)


def fingerprint(line: bytes) -> int:
    """Those of all that is in a folder are summed up: so one may be taken out for another."""
    return int.from_bytes(hashlib.sha256(line).digest(), "big")


# -- writing the copy -------------------------------------------------------------------------------------------------


class Pending(NamedTuple):
    """A file at the target that was written, and is still to be read again."""

    path: str
    opened: int
    size: int
    holes: bool
    """Whether it is read block by block."""
    gaps: bool
    digest: bytes


class Save(Visitor):
    """Copy everything into the instance's folder at the target."""

    def __init__(self, target: str, survey: Survey, tell: Callable[[str], None]) -> None:
        self.target, self.survey = target, survey
        self.left = Left()
        self.counts = dict.fromkeys(
            ("files", "bytes", "links", "left", "hard_links", "gone", "acls_lost", "attributes_lost", "links_lost"), 0
        )
        self.states: dict[tuple[int, int, int], int] = {}
        """Folder (place_of) -> what was in it when it was saved: the sum of the fingerprints."""
        self.began_ns = int((time.time() - 1) * 1e9)
        self.recent: dict[str, bytes] = {}
        """What has changed since then, or was not saved -> its line in the folder's sum."""
        self.elsewhere_at: set[str] = set()
        self.aside: dict[str, str] = {}
        """What the node has no more -> its name in aside/. No more than the manifest lists."""
        self._tell = tell
        self._told = time.monotonic()
        self._batch: list[Pending] = []
        self._batch_bytes = 0
        self._sums: dict[str, Any] = {}
        """Name -> file of sums that is being written."""
        self._again: dict[str, tuple[str, str] | None] = {}
        """What was to be saved once more -> the file of sums that it belongs in by then, and its line there."""
        self._states: list[int] = []
        self._linked: dict[tuple[int, int], tuple[str, bytes, bool, bytes] | None] = {}
        """A file with several names -> the copy's name among the links, its sum, what the file was then; absent: it could not be
        saved."""
        self._claimed: set[int] = set()
        """Files at the target that have several names, and are a copy of this try's."""
        self._links = self._make_links()
        with told(target, WRITTEN):
            # From here on the copy is no longer that of the backup before.
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{target}/manifest.json", f"{target}/manifest.before.json")
            sync(self._links)  # what a try that was killed has left in memory

    # -- the walk

    def begin(self, path: str) -> None:
        """Another of the folders: hard links lead from none to another."""
        self._linked = {}

    def enter(self, folder: Folder) -> None:
        with told(self._copy_of(folder.path), WRITTEN):
            if folder.parent is None:
                folder.copy = descend(self.target, ["files", *folder.path.split("/")], self._folder_in)
            else:
                folder.copy = self._folder_in(folder.parent.copy, os.path.basename(folder.path))
        self._states.append(fingerprint(line_of("", folder.found)))

    def entry(self, folder: Folder, name: str, found: os.stat_result) -> None:
        path, line = f"{folder.path}/{name}", line_of(name, found)
        self._states[-1] += fingerprint(line)
        if found.st_ctime_ns >= self.began_ns:
            self.recent[path] = line
        try:
            with told(self._copy_of(path), WRITTEN):
                self._one(folder.opened, folder.copy, name, path, found)
        except UnsavableError:
            self.recent[path] = line
            raise
        if time.monotonic() - self._told > TELL_EVERY_S:
            self._told = time.monotonic()
            of = f"of {amount(self.survey.bytes)}, {self.counts['files']} of {self.survey.files} files"
            self._tell(f"{amount(self.counts['bytes'])} {of}")

    def leave(self, folder: Folder) -> None:
        """After what is in it: that changes its time."""
        self.states[place_of(folder.path, folder.found)] = self._states.pop()
        with told(self._copy_of(folder.path), WRITTEN):
            self._drop_what_is_gone(folder)
            self._keep_attributes(folder.opened, folder.copy, folder.found)

    def elsewhere(self, path: str) -> None:
        self.elsewhere_at.add(path)

    def refuse(self, path: str, found: os.stat_result, size: int, why: str) -> None:
        self.left.add(path, found.st_uid, size, why)

    # -- files

    def save_again(self, path: str) -> None:
        """What could not be saved, once more. Raises UnsavableError."""
        self._again[path] = None
        parent, name = os.path.split(path)
        with told(path, READ):
            source_in = open_folder(parent)
        copy_in = -1
        try:
            with told(path, READ):
                found = os.lstat(name, dir_fd=source_in)
            self._linked = {key: first for key, first in self._linked.items() if first}
            with told(self._copy_of(path), WRITTEN):
                copy_in = descend(self.target, ["files", *parent.split("/")], self._folder_in)
                self._one(source_in, copy_in, name, path, found)
                here = os.fstat(source_in)
                self._keep_attributes(source_in, copy_in, here)
            line, key = line_of(name, found), place_of(parent, here)
            if path in self.recent:
                self.states[key] += fingerprint(line) - fingerprint(self.recent[path])
                self.recent[path] = line
        finally:
            os.close(source_in)
            if copy_in >= 0:
                os.close(copy_in)

    def _one(self, source_in: int, copy_in: int, name: str, path: str, found: os.stat_result) -> None:
        if stat.S_ISREG(found.st_mode):
            self._file(source_in, copy_in, name, path, found)
        elif stat.S_ISLNK(found.st_mode):
            self._symlink(source_in, copy_in, name, path)
            self.counts["links"] += 1
        elif stat.S_ISDIR(found.st_mode):
            self._folder(source_in, copy_in, name, path)
        else:
            self.counts["left"] += 1
            with contextlib.suppress(FileNotFoundError):
                os.lstat(name, dir_fd=copy_in)
                self._drop(copy_in, name, path)

    def _folder(self, source_in: int, copy_in: int, name: str, path: str) -> None:
        """The folder alone: what is in it is saved, or is not."""
        with told(path, READ):
            opened = _open(source_in, name)
        try:
            copy = self._folder_in(copy_in, name)
            self._keep_attributes(opened, copy, os.fstat(opened))
            os.close(copy)
        finally:
            os.close(opened)

    def _file(self, source_in: int, copy_in: int, name: str, path: str, found: os.stat_result) -> None:
        key = (found.st_dev, found.st_ino)
        if found.st_nlink > 1:
            if key in self._linked and self._link(copy_in, name, path, found):
                return
            self._linked[key] = None
        # A name may be a link or a pipe by now: neither is followed, nor waited for.
        with told(path, READ):
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=source_in)
        try:
            copy = self._open_copy(copy_in, name, found)
            try:
                pending = self._copy(source, copy, path, found)
            except BaseException:
                os.close(copy)
                raise
        finally:
            os.close(source)
        self._sum(path, pending.digest, pending.gaps)
        self.counts["files"] += 1
        self.counts["bytes"] += allocated(found)
        if found.st_nlink > 1:
            self._keep_link(copy_in, name, copy, found, pending)
        self._batch.append(pending)
        self._batch_bytes += pending.size if pending.gaps else allocated(found)
        if len(self._batch) >= BATCH_FILES or self._batch_bytes >= BATCH_BYTES:
            self.flush()

    def _copy(self, source: int, copy: int, path: str, found: os.stat_result) -> Pending:
        """Make the target the same, where it differs. Raises UnsavableError where it was written meanwhile."""
        before = os.fstat(source)
        if not stat.S_ISREG(before.st_mode) or (before.st_dev, before.st_ino) != (found.st_dev, found.st_ino):
            raise UnsavableError(path, "was another file when it was saved")
        if 0 <= time.time() - before.st_ctime < TICK_S:
            time.sleep(TICK_S)  # else a write that comes now would leave the times as they are
        holes = before.st_blocks * 512 < before.st_size
        gaps = before.st_size - before.st_blocks * 512 <= MOST_ZEROS
        there = os.fstat(copy).st_size
        if there:
            # Else it would be compared with what memory holds, and not with what was stored.
            os.posix_fadvise(copy, 0, 0, os.POSIX_FADV_DONTNEED)
        sums, at = Sum(gaps), 0
        for offset, data in pieces(source, before.st_size, holes, path, READ):
            sums.add(offset, data)
            if at < min(offset, there):
                zero_out(copy, at, min(offset, there))
            if offset >= there or os.pread(copy, len(data), offset) != data:
                write_all(copy, data, offset)
            at = offset + len(data)
        size = before.st_size if holes else at
        if at < min(size, there):
            zero_out(copy, at, min(size, there))
        os.ftruncate(copy, size)
        after = os.fstat(source)
        if (after.st_size, after.st_mtime_ns, after.st_ctime_ns) != (size, before.st_mtime_ns, before.st_ctime_ns):
            raise UnsavableError(path, CHANGED)
        self._keep_attributes(source, copy, after)
        return Pending(path, copy, size, holes, gaps, sums.end(size))

    def _open_copy(self, copy_in: int, name: str, found: os.stat_result) -> int:
        """The file at the target, made where it is not there, open for reading and writing."""
        with contextlib.suppress(FileNotFoundError):
            if not self._may_be_written(os.lstat(name, dir_fd=copy_in), found):
                self._set_aside(copy_in, name)
        copy = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=copy_in)
        there = os.fstat(copy)
        if there.st_nlink > 1:
            self._claimed.add(there.st_ino)
        return copy

    def _may_be_written(self, there: os.stat_result, found: os.stat_result) -> bool:
        """Whether what has the name at the target is this file's copy alone. With several names it may be another file's by now,
        of this try or of an earlier one, unless the file is as it was then: then nothing is written."""
        if not stat.S_ISREG(there.st_mode) or there.st_ino in self._claimed:
            return False
        as_before = (there.st_size, there.st_mtime_ns) == (found.st_size, found.st_mtime_ns)
        return there.st_nlink == 1 or as_before

    def flush(self) -> None:
        """Have the target store what was written, then read it again. Raises BackupError where it is not the same."""
        if self._batch:
            with told(self.target, WRITTEN):
                sync(self._batch[0].opened)
        try:
            while self._batch:
                pending = self._batch[-1]
                self._prove(pending)
                os.close(self._batch.pop().opened)
        finally:
            for pending in self._batch:
                os.close(pending.opened)
            self._batch, self._batch_bytes = [], 0

    def _prove(self, pending: Pending) -> None:
        copy = self._copy_of(pending.path)
        with told(copy, WRITTEN):
            os.posix_fadvise(pending.opened, 0, 0, os.POSIX_FADV_DONTNEED)
            sums, end = Sum(pending.gaps), 0
            for offset, data in pieces(pending.opened, pending.size, pending.holes, copy, READ_AGAIN):
                sums.add(offset, data)
                end = offset + len(data)
            size = max(end, os.fstat(pending.opened).st_size)
            if sums.end(size) != pending.digest or size != pending.size:
                os.fsync(pending.opened)  # which tells why, where the file system knows
                raise BackupError(f"{shown(pending.path)} differs at the target after it was copied")

    def _sum(self, path: str, digest: bytes, gaps: bool) -> None:
        name = "SHA256SUMS" if gaps else "SHA256SUMS.sparse"
        line = sum_line(digest.hex(), path)
        if path in self._again:
            self._again[path] = (name, line)
        else:
            self._sums_in(name).write(line)

    def _sums_in(self, name: str) -> Any:
        if name not in self._sums:
            opened = os.open(f"{self.target}/{name}.new", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            self._sums[name] = os.fdopen(opened, "w+", encoding="utf-8", errors="surrogateescape")
        return self._sums[name]

    def _settle_sums(self) -> None:
        """Of what was saved twice have the second sum alone, and none of what is left out: its copy may be of both times."""
        gone = {_summed(sum_line("", path)) for path in (*self._again, *self.left.found)}
        for name in list(self._sums) if gone else ():
            file = self._sums.pop(name)
            file.seek(0)
            os.unlink(f"{self.target}/{name}.new")
            with file:
                for line in file:
                    if _summed(line) not in gone:
                        self._sums_in(name).write(line)
                    else:
                        self.counts["files"] -= 1
        for path, again in self._again.items():
            if again and path not in self.left.found:
                self._sums_in(again[0]).write(again[1])
            elif again:
                self.counts["files"] -= 1

    def finish(self) -> None:
        """What is beside the copy."""
        self.flush()
        with told(f"{self.target}/SHA256SUMS", WRITTEN):
            self._settle_sums()
        with told(f"{self.target}/links", WRITTEN):
            os.close(self._links)
            self._make_links(remove=True)
        for name in ("SHA256SUMS", "SHA256SUMS.sparse"):
            path = f"{self.target}/{name}"
            with told(path, WRITTEN):
                file = self._sums.get(name)
                if file is not None:
                    file.flush()
                    os.fsync(file.fileno())
                    file.close()
                    os.replace(f"{path}.new", path)
                elif os.path.lexists(path) or name == "SHA256SUMS":
                    write_whole(path, "")
        with told(self.target, WRITTEN):
            opened = os.open(self.target, FOLDER)
            sync(opened)
            os.close(opened)

    # -- names

    def _link(self, copy_in: int, name: str, path: str, found: os.stat_result) -> bool:
        """Another name of a file that is saved; false where the file was written since, or no more names lead to its copy."""
        first = self._linked[found.st_dev, found.st_ino]
        if first is None:
            raise UnsavableError(path, OTHER_NAME)
        link, digest, gaps, was = first
        if was != line_of("", found):
            return False
        try:
            there = os.lstat(name, dir_fd=copy_in)
        except FileNotFoundError:
            there = None
        if there is None or not os.path.samestat(there, os.lstat(link, dir_fd=self._links)):
            if there is not None:
                self._set_aside(copy_in, name)
            try:
                os.link(link, name, src_dir_fd=self._links, dst_dir_fd=copy_in, follow_symlinks=False)
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
                self.counts["links_lost"] += 1
                return False
        self._sum(path, digest, gaps)
        self.counts["files"] += 1
        self.counts["hard_links"] += 1
        return True

    def _keep_link(self, copy_in: int, name: str, copy: int, found: os.stat_result, pending: Pending) -> None:
        """Remember where its next name leads."""
        link, key = uuid.uuid4().hex, (found.st_dev, found.st_ino)
        try:
            os.link(name, link, src_dir_fd=copy_in, dst_dir_fd=self._links, follow_symlinks=False)
        except OSError:
            # A file system without hard links: each name gets a copy.
            del self._linked[key]
            self.counts["links_lost"] += 1
            return
        self._claimed.add(os.fstat(copy).st_ino)
        self._linked[key] = (link, pending.digest, pending.gaps, line_of("", found))

    def _make_links(self, *, remove: bool = False) -> int:
        """A folder of other names of files with several, for this try alone: it is open, and removed at the end."""
        path = f"{self.target}/links"
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(path):
                os.unlink(f"{path}/{name}")
            os.rmdir(path)
        if remove:
            return -1
        os.mkdir(path, 0o700)
        return os.open(path, FOLDER)

    def _symlink(self, source_in: int, copy_in: int, name: str, path: str) -> None:
        """A link, and not what it leads to."""
        with told(path, READ):
            wanted = os.readlink(name, dir_fd=source_in)
            found = os.lstat(name, dir_fd=source_in)
        try:
            os.symlink(wanted, name, dir_fd=copy_in)
        except FileExistsError:
            there = os.lstat(name, dir_fd=copy_in)
            if not (stat.S_ISLNK(there.st_mode) and os.readlink(name, dir_fd=copy_in) == wanted):
                self._set_aside(copy_in, name)
                os.symlink(wanted, name, dir_fd=copy_in)
        os.chown(name, found.st_uid, found.st_gid, dir_fd=copy_in, follow_symlinks=False)
        os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=copy_in, follow_symlinks=False)

    def _copy_of(self, path: str) -> str:
        return f"{self.target}/files{path}"

    def _folder_in(self, parent: int, name: str) -> int:
        """A folder in another; closed to all but root until it gets its own mode at the end."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            self._set_aside(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
        return os.open(name, FOLDER, dir_fd=parent)

    def _drop_what_is_gone(self, folder: Folder) -> None:
        """Set aside what an earlier try or backup has copied into this folder, and the node has no more."""
        if folder.names is None:
            return
        with os.scandir(folder.copy) as entries:
            gone = [entry.name for entry in entries if entry.name not in folder.names]
        for name in gone:
            self._drop(folder.copy, name, f"{folder.path}/{name}")

    def _drop(self, parent: int, name: str, path: str) -> None:
        aside = self._set_aside(parent, name)
        self.counts["gone"] += 1
        if len(self.aside) < MOST_LISTED:
            self.aside[path] = aside

    def _set_aside(self, parent: int, name: str) -> str:
        """Take what has a name away from it. It is moved and not deleted: it may be the only copy, if the node lost its disk."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{self.target}/aside", 0o700)
        aside = uuid.uuid4().hex
        os.rename(name, f"{self.target}/aside/{aside}", src_dir_fd=parent)
        return aside

    def _keep_attributes(self, source: int, copy: int, found: os.stat_result) -> None:
        """Owner, mode, ACLs, extended attributes and times of what was saved, for its copy."""
        wanted = attributes(source)
        os.fchown(copy, found.st_uid, found.st_gid)
        mode = stat.S_IMODE(found.st_mode)
        # With an ACL the group's bits are the most that anybody named there may: until it is there the group has nothing.
        for name in attributes(copy).keys() - wanted.keys():
            with contextlib.suppress(OSError):
                os.removexattr(copy, name)
        os.fchmod(copy, mode & ~0o070 if ACCESS in wanted else mode)
        for name, value in wanted.items():
            try:
                os.setxattr(copy, name, value)
            except OSError:
                self.counts["acls_lost" if name in ACLS else "attributes_lost"] += 1
        os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))


class Sum:
    """The sha256 of a file that is read piece by piece. `gaps`: as sha256sum has it; else of its blocks of data, each after its
    offset in eight bytes, and of its size."""

    def __init__(self, gaps: bool) -> None:
        self._sum, self._gaps, self._at = hashlib.sha256(), gaps, 0

    def add(self, offset: int, data: bytes) -> None:
        self._skip(offset)
        self._sum.update(data)
        self._at = offset + len(data)

    def end(self, size: int) -> bytes:
        self._skip(size)
        return self._sum.digest()

    def _skip(self, offset: int) -> None:
        if not self._gaps:
            self._sum.update(offset.to_bytes(8, "big"))
            return
        while self._at < offset:
            zeros = min(CHUNK, offset - self._at)
            self._sum.update(bytes(zeros))
            self._at += zeros


def pieces(opened: int, size: int, holes: bool, path: str, what: str) -> Iterator[tuple[int, bytes]]:
    """A file's bytes with their offsets, up to this size; of one with holes only blocks that are not all zeros."""
    at = 0
    while not holes:
        with told(path, what):
            data = os.pread(opened, min(CHUNK, size - at), at)
        if not data:
            return
        yield at, data
        at += len(data)
    zeros = bytes(BLOCK)
    while at < size:
        with told(path, what):
            at = next_data(opened, at, size) // BLOCK * BLOCK
            data = os.pread(opened, min(BLOCK, size - at), at) if at < size else b""
        if data and data != zeros[: len(data)]:
            yield at, data
        at += BLOCK


def next_data(opened: int, at: int, size: int) -> int:
    """Where the next byte is that is in no hole, or the end."""
    try:
        return os.lseek(opened, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return (size + BLOCK - 1) // BLOCK * BLOCK
        raise


def zero_out(copy: int, at: int, end: int) -> None:
    """Where an earlier try has copied something, and there is a hole by now."""
    while at < end:
        at = next_data(copy, at, end)
        data = os.pread(copy, min(BLOCK, end - at), at) if at < end else b""
        if data != bytes(len(data)):
            write_all(copy, bytes(len(data)), at)
        at += BLOCK


def write_all(copy: int, data: bytes, offset: int) -> None:
    """All of it: a write may take less than it was given."""
    view = memoryview(data)
    while view:
        written = os.pwrite(copy, view, offset)
        view, offset = view[written:], offset + written


def sync(opened: int) -> None:
    """Have the file system of an open file store all that it was given."""
    if ctypes.CDLL(None, use_errno=True).syncfs(opened) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def attributes(opened: int) -> dict[str, bytes]:
    """Extended attributes, ACLs and capabilities among them, but for those that a file system keeps for itself."""
    try:
        names = os.listxattr(opened)
    except OSError:
        return {}
    found = {}
    for name in names:
        if not OWN_ATTRIBUTES.match(name):
            with contextlib.suppress(OSError):
                found[name] = os.getxattr(opened, name)
    return found


# -- who keeps writing ------------------------------------------------------------------------------------------------


def save_again(save: Save) -> list[str]:
    """End what keeps writing to files that could not be saved, and save them once more; whom it has ended."""
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
    """End processes that have these files open to write, and say whose they were. Never one of root's, the system's or the
    image's own user's, and none while another job is on the node."""
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
    """The name and the user of a process that may write one of these files, and may be ended."""
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
    """Whether a job may be on the node beside this one."""
    job, node = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURMD_NODENAME")
    if not (job and node):
        return True
    command = ["squeue", "--noheader", f"--nodelist={node}", "--format=%A"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode != 0 or bool(set(done.stdout.decode("ascii", "replace").split()) - {job})


# -- the hook ---------------------------------------------------------------------------------------------------------


def run_hook(order: dict[str, Any], tell: Callable[[str], None]) -> None:
    """Have the owner's program save the node. Raises BackupError where it fails, and OSError where it cannot be started."""
    hook = order["hook"]
    check_hook(hook)
    # What it says may be nobody else's to read.
    if stat.S_ISREG(os.fstat(1).st_mode):
        os.fchmod(1, 0o600)
    environment = {
        "DRAIN_INSTANCE_ID": order["instance"],
        "DRAIN_NODE": os.environ.get("SLURMD_NODENAME", os.uname().nodename),
        "DRAIN_REQUEST": order["request"],
        "DRAIN_SECONDS": str(order["seconds"]),
    }
    tell(f"{hook} runs")
    # A session of its own, so that all that it starts can be ended with it.
    running = subprocess.Popen(
        [hook], stdin=subprocess.DEVNULL, cwd="/", env={**os.environ, **environment}, start_new_session=True
    )
    try:
        code = running.wait()
    except BackupError:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        raise
    if code != 0:
        ended = f"ended with {code}" if code > 0 else f"was ended by signal {-code}"
        raise BackupError(f"{hook} {ended}; what it said is in {LOG} on the node")
    tell(f"{hook} has saved it")


def check_hook(hook: str) -> None:
    """Raise BackupError where anybody but root could have written it, or could put another in its place."""
    check_above(hook)
    found = os.lstat(hook)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise BackupError(f"{hook} is not a file that root alone may write: it is not run")
    if not found.st_mode & stat.S_IXUSR:
        raise BackupError(f"{hook} may not be executed: chmod 755 it")


# -- the target, and what is asked of it -------------------------------------------------------------------------------


def target_folder(to: str, instance: str) -> str:
    """The instance's own folder at the target, which root alone may enter. Raises BackupError for what is in the way."""
    parent = os.path.dirname(to)
    if not os.path.isdir(parent):
        raise BackupError(f"{parent} is not there: is the file system mounted?")
    check_above(to)
    if os.stat(parent).st_dev == os.stat("/").st_dev:
        raise BackupError(f"{parent} is on the node's own disk, which goes with the node: is the file system mounted?")
    folder = f"{to}/{instance}"
    for path in (to, folder):
        # Users may write on a shared file system: what they put here, a link above all, may lead anywhere.
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise BackupError(f"{path} is not a folder that root alone may write; take it away, or name another")
    return folder


def check_above(path: str) -> None:
    """Raise BackupError where a folder above it is a link, or is not root's alone, so that what is there may be swapped."""
    for folder in parents(path):
        found = os.lstat(folder)
        loose = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or loose:
            raise BackupError(
                f"{folder} is not a folder that root alone may change, so {path} may be swapped: name another"
            )


def parents(path: str) -> list[str]:
    """The folders above it, but for /."""
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: i + 1]) for i in range(len(parts))]


def check_path(path: str) -> None:
    """Raise BackupError for what is no folder, or is reached by a link: the link would be saved, and not what it leads to."""
    real = os.path.realpath(path)
    if real != os.path.normpath(path):
        raise BackupError(f"{path} leads by a link to {shown(real)}: name that folder")
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise BackupError(f"{path} is no folder")


def open_folder(path: str) -> int:
    """A folder of this node, which the caller closes. Raises OSError where a link stands in its path."""
    return descend("/", path.split("/"), _open)


def descend(top: str, names: list[str], step: Callable[[int, str], int]) -> int:
    """From a folder down to another, name by name, each opened in the one above it."""
    opened = os.open(top, FOLDER)
    for name in filter(None, names):
        try:
            below = step(opened, name)
        finally:
            os.close(opened)
        opened = below
    return opened


def _open(parent: int, name: str) -> int:
    return os.open(name, FOLDER, dir_fd=parent)


def check_room(folder: str, survey: Survey) -> None:
    """Raise BackupError where the target has no room for what is not there yet."""
    free = shutil.disk_usage(folder).free
    missing = survey.missing_bytes
    if missing > free:
        wanted = f"{missing / 1e9:.2f} GB are to be saved; {survey.most()}"
        raise BackupError(f"{folder} has room for {free / 1e9:.2f} GB, and {wanted}")


def check_time(survey: Survey, seconds: float) -> None:
    """Raise BackupError at once for what cannot be there in time, however fast the disks are."""
    least = survey.missing_bytes / MOST_BYTES_S + survey.missing_files / MOST_FILES_S
    if least > seconds:
        what = f"{amount(survey.missing_bytes)} in {several(survey.missing_files, 'file')} are to be saved"
        raise BackupError(
            f"{what}, which takes {least / 60:.0f} minutes at the very least, and there are {seconds / 60:.0f}: ask "
            f"beforehand for longer, by `cdk-hyperpod drain --hold 12h`; {survey.most()}"
        )


def sum_line(digest: str, path: str) -> str:
    """A line of SHA256SUMS, with sha256sum's own marks for a name with a newline or a backslash."""
    name = os.fsencode(path.lstrip("/")).decode("utf-8", "surrogateescape")
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{chr(92) if escaped != name else ''}{digest}  {escaped}\n"


def _summed(line: str) -> str:
    """The name in a line of sums."""
    return line.partition("  ")[2]


def write_whole(path: str, text: str) -> None:
    """The whole file or the old one."""
    with told(path, WRITTEN):
        with open(f"{path}.new", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)


def tell_slurm(text: str) -> None:
    """Have squeue show it, where the agent reads it."""
    job = os.environ.get("SLURM_JOB_ID")
    if job:
        # What is said of a file's name must be no second line.
        line = re.sub(r"[^ -~]+", " ", text.encode("ascii", "replace").decode())[:MOST_TOLD]
        subprocess.run(["scontrol", "update", f"jobid={job}", f"comment={line}"], timeout=60, check=False)


def hold_node(node: str, reason: str) -> None:
    """Drain this node from within its backup's job, to which it belongs as a whole: no other job can start here any more, be it
    between the end of this one and the agent's next look. Raises BackupError."""
    state = _scontrol("--oneliner", "show", "node", node).partition(" State=")[2].partition(" ")[0]
    if re.search("DRAIN|FAIL", state):
        # A person's reason, or HyperPod's, must not be lost.
        raise BackupError(f"somebody else took {node} out of work ({state}) when its backup began")
    _scontrol("update", f"nodename={node}", "state=drain", f"reason={reason}")


def _scontrol(*words: str) -> str:
    done = subprocess.run(
        ["scontrol", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
    )
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise BackupError(f"`scontrol {' '.join(words[:2])}` on the node: {' '.join(text.split())[:200]}")
    return text


def _too_long(number: int, frame: object) -> None:
    raise BackupError("took longer than slurm.drain.backup.timeout_minutes, and was ended")


def main(order: dict[str, Any], tell: Callable[[str], None] = tell_slurm) -> int:
    """The exit code: 0, or 1 after one sentence that says why."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/opt/slurm/bin:/usr/local/bin:/usr/bin:/bin"
    os.umask(0o077)
    minutes = order.get("timeout_minutes")
    try:
        if minutes:
            signal.signal(signal.SIGALRM, _too_long)
            signal.alarm(minutes * 60)
        if order.get("hold"):
            hold_node(**order["hold"])
        run_hook(order, tell) if order.get("hook") else back_up(order, tell)
        return 0
    except BackupError as error:
        tell(str(error))
    except OSError as error:
        where = f": {json.dumps(str(error.filename))[:200]}" if error.filename else ""
        tell(f"{error.strerror or error}{where}")
    return 1
