#!/usr/bin/env python3
"""Copy the controller's state to the shared file system. Usage: keep_state.py FOLDER.

A systemd timer runs it each minute. It copies StateSaveLocation if that has changed, and each hour the accounting database if it is on
this node. It changes nothing in Slurm. If a newer controller has taken the folder over, it ends.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, BinaryIO, Iterator

from controller_state import (
    ACCOUNTING,
    HERE,
    STATE,
    STATE_FILES,
    Copy,
    Folder,
    alone,
    identity,
    next_job_id,
    owned,
    slurm_settings,
    slurm_version,
    state_folder,
)
from lib import StepError, last_line, log, on_node, run, run_step
from restored_jobs import settle_later

COPIED = f"{HERE}/state-copied.json"
"""What was copied last: it need not be copied again."""
DUMP_S = 3600
LOOKS = 20
"""slurmctld replaces a file by removing and linking it, so for a moment it does not exist."""
USERS_FOLDER = re.compile(r"hash\.\d|crontab")
DATABASE_CONFS = ("/opt/slurm/etc/slurmdbd.conf", "/etc/slurm/slurmdbd.conf")
LOCAL = ("", "localhost", "127.0.0.1", "::1")


def keep(path: str) -> None:
    """Copy what has changed."""
    with alone() as first:
        if not first:
            return
        settle_later()
        folder = Folder(path)
        try:
            _keep(folder)
        finally:
            folder.close()


def _keep(folder: Folder) -> None:
    epoch = owned(folder)
    if epoch is None:
        log("INFO", f"another controller writes to {folder.path}; this one does not")
        return
    settings = slurm_settings()
    state = state_folder(settings)
    about = {"schema": 1, **identity(settings), "slurm": slurm_version(), "time": round(time.time())}
    done = _done()
    found = fingerprint(state)
    if found != done.get("state") or not folder.copies(STATE):
        copy_state(folder, epoch, state, about)
        done["state"] = found
        _note(done)
    if _dump_is_due(folder, done):
        database = local_database()
        if database is not None:
            copy_database(folder, epoch, database, about)
        done["dumped"] = time.time()
        _note(done)


def _done() -> dict[str, Any]:
    try:
        return dict(json.loads(on_node(COPIED).read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _note(done: dict[str, Any]) -> None:
    file = on_node(COPIED)
    file.write_text(json.dumps(done), "utf-8")


def _next(folder: Folder, kind: str, epoch: int) -> Copy:
    own = [copy.number for copy in folder.copies(kind) if copy.epoch == epoch]
    return Copy(kind, epoch, 1 + max(own, default=0))


# -- StateSaveLocation


def fingerprint(state: Path) -> str:
    """Changes whenever slurmctld has written a file that is copied."""
    return repr(sorted((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in _entries(state)))


def _entries(state: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(state) as entries:
        for entry in entries:
            if STATE_FILES.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                yield entry


def copy_state(folder: Folder, epoch: int, state: Path, about: dict[str, Any]) -> None:
    """Make a copy of slurmctld's state. First the files, then the jobs' scripts: of a job in the files, they exist already."""
    last = next_job_id(state)
    copy = _next(folder, STATE, epoch)
    folder.add(
        copy, {**about, "last_job_id": last, "partitions": _partitions()}, lambda file: write_archive(state, file)
    )
    if owned(folder) == epoch:
        folder.write("last.json", {"state": copy.name, "time": about["time"], "last_job_id": last})
    folder.prune(STATE)


def write_archive(state: Path, file: BinaryIO) -> None:
    """The archive of a state: the files as slurmctld wrote each of them, and then the jobs' scripts, by tar, which is quicker."""
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.GNU_FORMAT, bufsize=1 << 20) as archive:
        for name in sorted({entry.name for entry in _entries(state)} | {"job_state"}):
            _add_file(archive, state / name)
    file.flush()
    folders = sorted(each.name for each in state.iterdir() if USERS_FOLDER.fullmatch(each.name))
    if not folders:
        return
    command = ["tar", "--create", "--file=-", "--format=gnu", f"--directory={state}", *folders]
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, text=True
    )
    # 1: jobs ended meanwhile.
    if done.returncode not in (0, 1):
        raise StepError(f"`{' '.join(command)}` failed: {last_line(done.stderr)}; the last copy stays")


def _add_file(archive: tarfile.TarFile, path: Path) -> None:
    """Add a file as it is when it is opened: slurmctld puts a new one in its place, and does not change it."""
    for _ in range(LOOKS):
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            break
        time.sleep(0.01)
    else:
        return
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        member = tarfile.TarInfo(path.name)
        member.size, member.mode = found.st_size, 0o600
        if stat.S_ISREG(found.st_mode):
            archive.addfile(member, file)


def _partitions() -> dict[str, str]:
    """The partitions that are not up. slurmctld keeps everything else of its state itself, and this only while it runs."""
    shown = run("scontrol", "--oneliner", "show", "partition", timeout_s=20).stdout
    found = dict(re.findall(r"^PartitionName=(\S+).*? State=(\S+)", shown, re.MULTILINE))
    return {name: state for name, state in found.items() if state != "UP"}


# -- the accounting database


def local_database() -> str | None:
    """The name of the accounting database on this node. None: there is none, or it is elsewhere. The password is not read."""
    file = next((on_node(path) for path in DATABASE_CONFS if on_node(path).is_file()), None)
    if file is None:
        return None
    lines = (line.split("#")[0].strip() for line in file.read_text("utf-8", "replace").splitlines())
    found = dict(re.findall(r"^(StorageHost|StorageLoc)\s*=\s*(\S+)", "\n".join(lines), re.MULTILINE | re.IGNORECASE))
    values = {name.lower(): value for name, value in found.items()}
    host = values.get("storagehost", "")
    if host not in (*LOCAL, os.uname().nodename):
        return None
    name = values.get("storageloc", "slurm_acct_db")
    return name if re.fullmatch(r"[A-Za-z0-9_$]+", name) else None


def _dump_is_due(folder: Folder, done: dict[str, Any]) -> bool:
    return time.time() - float(done.get("dumped", 0)) >= DUMP_S


def copy_database(folder: Folder, epoch: int, database: str, about: dict[str, Any]) -> None:
    """Dump the accounting database. It holds no password: the database's users are in another one."""
    folder.add(_next(folder, ACCOUNTING, epoch), {**about, "database": database}, lambda file: _dump(database, file))
    folder.prune(ACCOUNTING)


def _dump(database: str, file: BinaryIO) -> None:
    program = next((name for name in ("mariadb-dump", "mysqldump") if shutil.which(name)), "mariadb-dump")
    command = [program, "--single-transaction", "--quick", "--skip-lock-tables", database]
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None and process.stderr is not None
        shutil.copyfileobj(process.stdout, packed, 1 << 20)
        said = process.stderr.read().decode("utf-8", "replace")
    if process.wait() != 0:
        raise StepError(f"`{' '.join(command)}` failed: {last_line(said)}; the last dump stays")


if __name__ == "__main__":
    sys.exit(run_step(lambda: keep(sys.argv[1])))
