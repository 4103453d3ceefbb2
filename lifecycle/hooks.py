"""The programs of slurm.prolog and slurm.epilog on a node: a folder for each content of them.

slurm.conf names a pattern in the folder. A node without the folder has nothing that matches, and its jobs start without
the programs: a path that does not exist would drain it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Iterator, Mapping

from lib import PROGRAMS, log, on_node

KINDS = ("prolog", "epilog")
HOOKS = f"{PROGRAMS}/hooks"
OWN_FILES = "slurm"
"""The folder beside the scripts with the files of the user."""


def has_hooks(wanted: Mapping[str, Any]) -> bool:
    """Whether the cluster file has a prolog or an epilog. `wanted`: `slurm` of cluster.json."""
    return any(wanted.get(kind) for kind in KINDS)


def install(scripts: Path, wanted: Mapping[str, Any]) -> str:
    """Install the programs. Returns the name of their folder. A folder that is whole is left as it is."""
    files = dict(_files(scripts, wanted))
    runner = (scripts / "run_hooks.py").read_bytes().split(b"\n", 1)[1]
    # Without the interpreter: the name must be the same on all nodes, and python3 may be elsewhere on some.
    name = _digest({**files, "run": runner})
    folder = on_node(f"{HOOKS}/{name}")
    if folder.is_dir():
        return name
    building = folder.with_name(f".{name}.new")
    shutil.rmtree(building, ignore_errors=True)
    for path, content in {**files, **_runners(runner, wanted)}.items():
        file = building / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        # S3 keeps no modes.
        file.chmod(0o755)
    building.rename(folder)
    for parent in (folder.parent, folder.parent.parent):
        os.chmod(parent, 0o755)
    log("INFO", f"installed the programs of slurm.prolog and slurm.epilog in {HOOKS}/{name}")
    return name


def install_here(scripts: Path, wanted: Mapping[str, Any]) -> None:
    """Install them on a node that does not name them in slurm.conf."""
    install(scripts, wanted)


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _files(scripts: Path, wanted: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    yield "seconds", f"{wanted['hook_seconds']}\n".encode()
    for kind in KINDS:
        if wanted.get(kind):
            for file in sorted((scripts / OWN_FILES / f"{kind}.d").iterdir()):
                yield f"{kind}.d/{file.name}", file.read_bytes()


def _runners(runner: bytes, wanted: Mapping[str, Any]) -> dict[str, bytes]:
    """What slurmd runs (run_hooks.py)."""
    program = f"#!{sys.executable} -IB\n".encode() + runner
    return {f"{kind}{after}/run": program for kind in KINDS if wanted.get(kind) for after in ("", "-after")}


def lines_for(folder: str, wanted: Mapping[str, Any], *, one_value: bool) -> dict[str, str]:
    """The settings of slurm.conf. `one_value`: our line replaces one that slurm.conf has, so our program runs that, too."""
    after = "-after" if one_value else ""
    return {kind.capitalize(): f"{HOOKS}/{folder}/{kind}{after}/*" for kind in KINDS if wanted.get(kind)}
