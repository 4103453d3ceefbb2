#!/usr/bin/env python3
"""Copy folders of this node to the shared file system, and prove that the copy is the same; or run the owner's own hook. A job
of the drain agent's.

The agent sends this file to Slurm with a last line that calls `main`: nothing of it is on the node. Every regular file
is copied, read again at the target and compared by its sha256; then the manifest is written, by a rename. What an earlier
try has copied is compared and not written again. Links are copied as links; pipes, sockets and devices are counted, and
left. Nothing at the target is ever deleted: what has another kind by now, as a folder that is a link, is set aside.

This runs as root in folders where users write, now and in an earlier try. So every folder is opened name by name, and
nothing is reached through a link, neither here nor at the target. A hook is run only where root alone could have written it.

    TO/INSTANCE/files/...      the folders, by their own paths
    TO/INSTANCE/aside/...      what had such a path in an earlier try and was of another kind
    TO/INSTANCE/SHA256SUMS     as `sha256sum --check` reads it in files/
    TO/INSTANCE/manifest.json  {"schema": 1, "request": ..., "node": ..., "paths": [...], "files": N, "bytes": N, ...}

Only the standard library, and nothing newer than Python 3.8.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

LOG = "/var/log/cdk-hyperpod-backup.log"
"""What a try says, on the node: the job's output."""
CHUNK = 8 * 2**20
TELL_EVERY_S = 10
MOST_BYTES_S = 500e6
"""No node saves more in a second: each byte is read, hashed, written, read again and hashed again, by one process."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
"""How a folder is opened: a link to one is refused."""
READ = "read on the node"
WRITTEN = "written at the target"


class BackupError(Exception):
    """Why the folders cannot be saved: one sentence."""


@contextlib.contextmanager
def told(path: str, what: str) -> Iterator[None]:
    """Raise BackupError where a file system fails, with all of the path: an OSError has its last part, or nothing of it."""
    try:
        yield
    except OSError as error:
        raise BackupError(f"{json.dumps(path)[:300]} could not be {what}: {error.strerror or error}") from None


def back_up(order: dict[str, Any], tell: Callable[[str], None]) -> None:
    """Do it. Raises BackupError, and OSError where something fails before anything is read or copied."""
    folder = target_folder(order["to"], order["instance"])
    paths = [path for path in order["paths"] if os.path.lexists(path)]
    for path in paths:
        check_path(path)
    entries = [entry for path in paths for entry in walk(path)]
    files = [(path, found.st_size) for path, found in entries if stat.S_ISREG(found.st_mode)]
    total = sum(size for _, size in files)
    missing = total - already_there(folder, files)
    check_room(folder, missing)
    check_time(missing, order["seconds"])
    counts = {"files": 0, "bytes": 0, "links": 0, "left": 0}
    last = 0.0
    sums: list[str] = []
    copy = Copy(folder)
    for path, found in entries:
        with told(copy.of(path), WRITTEN):
            source_in, copy_in, name = copy.beside(path)
            if stat.S_ISDIR(found.st_mode):
                os.close(copy.folder_in(copy_in, name))
            elif stat.S_ISLNK(found.st_mode):
                copy_link(source_in, copy_in, name, copy, path)
                counts["links"] += 1
            elif stat.S_ISREG(found.st_mode):
                digest, size = copy_file(source_in, copy_in, name, copy, path)
                sums.append(sum_line(digest, path))
                counts["files"] += 1
                counts["bytes"] += size
            else:
                counts["left"] += 1
        if time.monotonic() - last > TELL_EVERY_S:
            last = time.monotonic()
            tell(f"{counts['bytes'] / 1e9:.1f} of {total / 1e9:.1f} GB, {counts['files']} of {len(files)} files")
    # From the deepest: what is written into a folder changes its time.
    for path, found in reversed(entries):
        if stat.S_ISDIR(found.st_mode):
            with told(copy.of(path), WRITTEN):
                opened = copy.open_folder(path)
                keep_attributes(opened, found)
                os.close(opened)
    write_whole(f"{folder}/SHA256SUMS", "".join(sums))
    manifest = {
        "schema": 1,
        "request": order["request"],
        "instance": order["instance"],
        "node": os.uname().nodename,
        "paths": paths,
        "absent": [path for path in order["paths"] if path not in paths],
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **counts,
    }
    write_whole(f"{folder}/manifest.json", json.dumps(manifest, indent=1) + "\n")
    tell(f"saved {counts['files']} files, {counts['bytes'] / 1e9:.1f} GB in {folder}, {counts['left']} left out")


def run_hook(order: dict[str, Any], tell: Callable[[str], None]) -> None:
    """Have the owner's program save the node. Raises BackupError where it fails, and OSError where it cannot be started."""
    hook = order["hook"]
    check_hook(hook)
    # What it says may be nobody else's to read.
    if stat.S_ISREG(os.fstat(1).st_mode):
        os.fchmod(1, 0o600)
    told = {
        "DRAIN_INSTANCE_ID": order["instance"],
        "DRAIN_NODE": os.environ.get("SLURMD_NODENAME", os.uname().nodename),
        "DRAIN_REQUEST": order["request"],
        "DRAIN_SECONDS": str(order["seconds"]),
    }
    tell(f"{hook} runs")
    # A session of its own, so that all that it starts can be ended with it.
    running = subprocess.Popen(
        [hook], stdin=subprocess.DEVNULL, cwd="/", env={**os.environ, **told}, start_new_session=True
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
        raise BackupError(f"{path} leads by a link to {json.dumps(real)[:200]}: name that folder")
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise BackupError(f"{path} is no folder")


def open_folder(path: str) -> int:
    """A folder of this node, which the caller closes. Raises OSError where a link stands in its path."""
    return descend("/", path.split("/"), lambda parent, name: os.open(name, FOLDER, dir_fd=parent))


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


class Copy:
    """The copy of the folders, in the instance's folder at the target."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._parent = ""
        self._opened: tuple[int, int] | None = None

    def of(self, path: str) -> str:
        """Where something is saved."""
        return f"{self.folder}/files{path}"

    def beside(self, path: str) -> tuple[int, int, str]:
        """The folder that something is in, its copy, and the name it has there.

        Both stay open until another folder is asked for: what is in one folder is copied one after the other.
        """
        parent, name = os.path.split(path.rstrip("/"))
        if self._opened is None or parent != self._parent:
            for opened in self._opened or ():
                os.close(opened)
            self._opened = None
            with told(parent, READ):
                source_in = open_folder(parent)
            self._opened, self._parent = (source_in, self.open_folder(parent)), parent
        return (*self._opened, name)

    def open_folder(self, path: str) -> int:
        """The copy of a folder, made where it is not there, which the caller closes."""
        return descend(self.folder, ["files", *path.split("/")], self.folder_in)

    def folder_in(self, parent: int, name: str) -> int:
        """A folder in another; closed to all but root until it gets its own mode at the end."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            self.set_aside(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
        return os.open(name, FOLDER, dir_fd=parent)

    def set_aside(self, parent: int, name: str) -> None:
        """Take what has a name away from it."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{self.folder}/aside", 0o700)
        os.rename(name, f"{self.folder}/aside/{uuid.uuid4().hex}", src_dir_fd=parent)


def walk(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """The folder and all below it on its own file system, a folder before what is in it. Links are not followed."""
    with told(path, READ):
        top = os.lstat(path)
    yield path, top
    pending = [path]
    while pending:
        folder = pending.pop()
        with told(folder, READ):
            opened = open_folder(folder)
        try:
            with told(folder, READ), os.scandir(opened) as entries:
                names = sorted((entry.name for entry in entries), key=os.fsencode)
            for name in names:
                entry = f"{folder}/{name}"
                with told(entry, READ):
                    found = os.lstat(name, dir_fd=opened)
                yield entry, found
                if stat.S_ISDIR(found.st_mode) and found.st_dev == top.st_dev:
                    pending.append(entry)
        finally:
            os.close(opened)


def already_there(folder: str, files: list[tuple[str, int]]) -> int:
    """Bytes that an earlier try has copied."""
    there = 0
    for path, size in files:
        with contextlib.suppress(OSError):
            there += min(size, os.lstat(f"{folder}/files{path}").st_size)
    return there


def check_room(folder: str, missing: int) -> None:
    """Raise BackupError where the target has no room for what is not there yet."""
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise BackupError(f"{folder} has room for {free / 1e9:.2f} GB, and {missing / 1e9:.2f} GB are to be saved")


def check_time(missing: int, seconds: float) -> None:
    """Raise BackupError at once for what cannot be there in time, however fast the disks are."""
    if missing > seconds * MOST_BYTES_S:
        least = missing / MOST_BYTES_S / 60
        raise BackupError(
            f"{missing / 1e9:.0f} GB are to be saved, which takes {least:.0f} minutes at the very least, and there are "
            f"{seconds / 60:.0f}: ask beforehand for longer, by `cdk-hyperpod drain --hold 12h`"
        )


def copy_link(source_in: int, copy_in: int, name: str, copy: Copy, path: str) -> None:
    """A link, and not what it leads to."""
    with told(path, READ):
        wanted = os.readlink(name, dir_fd=source_in)
        found = os.lstat(name, dir_fd=source_in)
    try:
        os.symlink(wanted, name, dir_fd=copy_in)
    except FileExistsError:
        there = os.lstat(name, dir_fd=copy_in)
        if not (stat.S_ISLNK(there.st_mode) and os.readlink(name, dir_fd=copy_in) == wanted):
            copy.set_aside(copy_in, name)
            os.symlink(wanted, name, dir_fd=copy_in)
    os.chown(name, found.st_uid, found.st_gid, dir_fd=copy_in, follow_symlinks=False)
    os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=copy_in, follow_symlinks=False)


def copy_file(source_in: int, copy_in: int, name: str, copy: Copy, path: str) -> tuple[str, int]:
    """Make the target the same, chunk by chunk where it differs; its sha256, read again there, and its size.

    Raises BackupError where it is not the same: the file was written meanwhile, or the file system lies.
    """
    source_sum, size = hashlib.sha256(), 0
    # A name may be a link or a pipe by now: neither is followed, nor waited for.
    with told(path, READ):
        source_file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=source_in)
    opened = target_file(copy_in, name, copy)
    with open(source_file, "rb", buffering=0) as source, open(opened, "r+b", buffering=0) as at:
        before = os.fstat(source_file)
        if not stat.S_ISREG(before.st_mode):
            raise BackupError(f"{json.dumps(path)[:200]} was another file when it was saved")
        while True:
            with told(path, READ):
                chunk = source.read(CHUNK)
            if not chunk:
                break
            source_sum.update(chunk)
            if at.read(len(chunk)) != chunk:
                at.seek(size)
                write_all(at, chunk)
            size += len(chunk)
            at.seek(size)
        at.truncate(size)
        os.fsync(at.fileno())
        # Else it would be compared with what memory holds, and not with what was stored.
        os.posix_fadvise(at.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        at.seek(0)
        copy_sum = hashlib.sha256()
        for chunk in iter(lambda: at.read(CHUNK), b""):
            copy_sum.update(chunk)
        if copy_sum.digest() != source_sum.digest():
            raise BackupError(f"{json.dumps(path)[:200]} differs at the target after it was copied")
        after = os.fstat(source_file)
        if (after.st_size, after.st_mtime_ns, after.st_ctime_ns) != (size, before.st_mtime_ns, before.st_ctime_ns):
            raise BackupError(f"{json.dumps(path)[:200]} was written while it was saved")
        keep_attributes(at.fileno(), after)
    return copy_sum.hexdigest(), size


def target_file(copy_in: int, name: str, copy: Copy) -> int:
    """The file at the target, made where it is not there, open for reading and writing."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(name, dir_fd=copy_in).st_mode):
            copy.set_aside(copy_in, name)
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=copy_in)


def write_all(copy: Any, chunk: bytes) -> None:
    """All of it: a write may take less than it was given."""
    view = memoryview(chunk)
    while view:
        view = view[copy.write(view) :]


def keep_attributes(opened: int, found: os.stat_result) -> None:
    """Owner, mode and times of what was saved, for its copy."""
    os.fchown(opened, found.st_uid, found.st_gid)
    os.fchmod(opened, stat.S_IMODE(found.st_mode))
    os.utime(opened, ns=(found.st_atime_ns, found.st_mtime_ns))


def sum_line(digest: str, path: str) -> str:
    """A line of SHA256SUMS, with sha256sum's own marks for a name with a newline or a backslash."""
    name = os.fsencode(path.lstrip("/")).decode("utf-8", "surrogateescape")
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{chr(92) if escaped != name else ''}{digest}  {escaped}\n"


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
        line = " ".join(text.encode("ascii", "replace").decode().split())[:400]
        subprocess.run(["scontrol", "update", f"jobid={job}", f"comment={line}"], timeout=60, check=False)


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
        run_hook(order, tell) if order.get("hook") else back_up(order, tell)
        return 0
    except BackupError as error:
        tell(str(error))
    except OSError as error:
        where = f": {json.dumps(str(error.filename))[:200]}" if error.filename else ""
        tell(f"{error.strerror or error}{where}")
    return 1
