"""Compare the backup of a node with rsync, as root: `PYTHONPATH=tests python -m helpers.lifecycle.bench_backup FOLDER`.

Everything is below FOLDER, so source and target are on one disk. Each program syncs what it has written: rsync with a
`sync -f` at its end, and a second time with --checksum, since the backup compares its copies.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from helpers.lifecycle.programs import load

backup: Any = load("agent/backup/job.py")
target_module: Any = load("agent/backup/target.py")


def small(folder: Path, files: int) -> None:
    """This many files of 4 kB, 500 in a folder."""
    for i in range(files):
        below = folder / f"{i // 500}"
        if i % 500 == 0:
            below.mkdir(parents=True)
        (below / str(i)).write_bytes(os.urandom(4096))


def large(folder: Path, gigabytes: float) -> None:
    """This many bytes in files of 1 GB. The last one may be smaller."""
    folder.mkdir(parents=True)
    megabytes = round(gigabytes * 1000)
    for i in range(0, megabytes, 1000):
        with (folder / str(i // 1000)).open("wb") as file:
            for _ in range(min(1000, megabytes - i)):
                file.write(os.urandom(10**6))


def save(source: Path, target: Path) -> None:
    """With the backup. Raises SystemExit if it fails."""
    order = {"to": f"{target}/backup", "paths": [str(source)], "instance": "i-1", "request": "r", "seconds": 86_400}
    said: list[str] = []
    if backup.main(order, said.append) != 0:
        raise SystemExit(said[-1])


def rsync(source: Path, target: Path) -> None:
    """The same with rsync: copied and synced, then compared."""
    for more in ((), ("--checksum",)):
        subprocess.run(["rsync", "-aHAX", *more, str(source), f"{target}/"], check=True)
        subprocess.run(["sync", "-f", str(target)], check=True)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--large-gb", type=float, default=50)
    given = parser.parse_args()
    _accept_one_disk()
    for what, make, much in (("small", small, given.files), ("large", large, given.large_gb)):
        source = given.folder.resolve() / what
        if not much:
            continue
        make(source, much)
        subprocess.run(["sync", "-f", str(source)], check=True)
        for how, program in (("backup", save), ("backup, again", save), ("rsync and compared", rsync)):
            target = given.folder.resolve() / how.partition(",")[0]
            target.mkdir(exist_ok=True)
            began, used = time.monotonic(), os.times()
            program(source, target)
            now = os.times()
            cpu = sum(now[:4]) - sum(used[:4])
            print(f"{what}, {how}: {time.monotonic() - began:.1f} s, {cpu:.1f} s of processor", flush=True)
            if how != "backup":
                shutil.rmtree(target)
        shutil.rmtree(source)


def _accept_one_disk() -> None:
    """Skip its checks, which refuse a target on the machine's own disk, or in a folder that others can change."""
    real = os.stat

    def stat(path: Any, **more: Any) -> os.stat_result:
        found = real(path, **more)
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:]]) if path == "/" else found

    os.stat = stat
    target_module.parents = lambda path: []


if __name__ == "__main__":
    main()
