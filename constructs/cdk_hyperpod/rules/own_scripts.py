"""Rules of the user's own scripts, which run beside the library's: `scripts_before` and `scripts_after`.

The rules of a folder read the disk, so they run where a folder is known: for a cluster file, and for an upload.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config.cluster import ClusterConfig, InstanceGroup
from ..config.lifecycle import LifecycleConfig
from ..errors import Finding
from ..typed.known import is_known
from ..typed.words import item_paths, show

SETTINGS = ("scripts_before", "scripts_after")
"""The settings that name a folder, of `lifecycle` and of a group, in the order in which the scripts run."""
MAX_FOLDER_BYTES = 50_000_000
"""CDK's upload function unpacks the folder, and every new node downloads it."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
"""A file that nodes run. The list of checksums has one name a line."""
_ELF = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """A folder of the user's own scripts, as a cluster names it."""

    path: str
    """The path of the setting."""
    name: str
    """The folder's name in the file."""


def own_folders(config: ClusterConfig) -> Iterator[OwnFolder]:
    """The folders that a cluster names, in the order of the file."""
    groups = config.instance_groups if isinstance(config.instance_groups, tuple) else ()
    for path, group in zip(item_paths("instance_groups", groups), groups, strict=True):
        if isinstance(group, InstanceGroup):
            yield from _folders_of(group, path)
    if isinstance(config.lifecycle, LifecycleConfig):
        yield from _folders_of(config.lifecycle, "lifecycle")


def _folders_of(owner: InstanceGroup | LifecycleConfig, path: str) -> Iterator[OwnFolder]:
    for setting in SETTINGS:
        name = getattr(owner, setting)
        if isinstance(name, str) and is_known(name):
            yield OwnFolder(f"{path}.{setting}", name)


def has_own_scripts(owner: InstanceGroup | LifecycleConfig) -> bool:
    """Whether a group, or the cluster's `lifecycle`, has scripts that run beside the library's."""
    return any(getattr(owner, setting) is not None for setting in SETTINGS)


def check_own_scripts(config: ClusterConfig) -> Iterator[Finding]:
    """Own scripts run beside the library's, so they need those."""
    if config.lifecycle_mode == "bootstrap":
        yield from (in_bootstrap_mode(own.path) for own in own_folders(config))
    elif isinstance(config.scripts_folder, str):
        yield from (beside_a_folder(own.path) for own in own_folders(config))


def in_bootstrap_mode(path: str) -> Finding:
    """Own scripts where no script runs."""
    return Finding(
        code="own-scripts-in-bootstrap-mode",
        path=path,
        problem="cannot be combined with the lifecycle mode bootstrap, in which no script runs",
        remedy="remove it, or set lifecycle.mode to extended or customer_managed",
    )


def beside_a_folder(path: str) -> Finding:
    """Own scripts together with a folder in place of the library's scripts."""
    return Finding(
        code="own-scripts-beside-a-folder",
        path=path,
        problem="cannot be combined with lifecycle.scripts, which replaces the library's scripts",
        remedy="remove one of them. The scripts of that folder can start others themselves",
    )


def check_own_folder(folder: Path, name: str, path: str) -> Iterator[Finding]:
    """Whether nodes can run the scripts in a folder. `name`: the folder in the text. `path`: the setting."""
    try:
        if folder.is_dir():
            yield from _check_content(folder, name, path)
        else:
            yield Finding(
                code="own-scripts-not-found",
                path=path,
                problem=f"there is no folder {show(name)}",
                remedy="name a folder, or remove the setting",
            )
    except OSError as error:
        yield _unreadable(name, error.strerror, path)


def _unreadable(name: str, reason: str | None, path: str) -> Finding:
    return Finding(
        code="own-scripts-unreadable",
        path=path,
        problem=f"{show(name)} cannot be read ({reason})",
        remedy="make the folder and all files in it readable",
    )


def _check_content(folder: Path, name: str, path: str) -> Iterator[Finding]:
    entries = [entry for entry in sorted(folder.rglob("*")) if not is_leftover(entry.relative_to(folder).as_posix())]
    # A folder that cannot be read looks empty.
    unreadable = [entry for entry in (folder, *entries) if entry.exists() and not _is_readable(entry)]
    if unreadable:
        where = unreadable[0].relative_to(folder)
        yield _unreadable(name if where == Path() else f"{name}/{where}", "Permission denied", path)
        return
    for entry in entries:
        yield from _check_entry(entry, f"{name}/{entry.relative_to(folder)}", path)
    yield from _check_scripts(folder, entries, name, path)
    size = sum(entry.stat().st_size for entry in entries if entry.is_file())
    if size > MAX_FOLDER_BYTES:
        yield Finding(
            code="own-scripts-too-large",
            path=path,
            problem=f"{show(name)} has {size:,} bytes, and the upload has room for {MAX_FOLDER_BYTES:,}",
            remedy="keep large files in a bucket, and let a script download them",
        )


def _check_scripts(folder: Path, entries: Sequence[Path], name: str, path: str) -> Iterator[Finding]:
    scripts = [entry for entry in entries if entry.parent == folder and entry.is_file()]
    for script in scripts:
        yield from _check_script(script, f"{name}/{script.name}", path)
    if not scripts:
        yield Finding(
            code="own-scripts-empty",
            path=path,
            problem=f"{show(name)} has no file that a node could run",
            remedy="put a script into it, or remove the setting",
        )


def _is_readable(entry: Path) -> bool:
    return os.access(entry, os.R_OK | os.X_OK if entry.is_dir() else os.R_OK)


def _check_entry(entry: Path, name: str, path: str) -> Iterator[Finding]:
    """What would not be uploaded as it is, or would break the list of checksums."""
    if not NAME.fullmatch(entry.name):
        yield Finding(
            code="own-script-name-invalid",
            path=path,
            problem=f"{show(name)} is not a valid name of a file",
            remedy="use letters, digits and ._+-, and begin with a letter or digit",
        )
    is_folder = entry.is_dir() and not entry.is_symlink()
    if not is_folder and not entry.is_file():
        yield Finding(
            code="own-script-not-a-file",
            path=path,
            problem=f"{show(name)} is neither a file nor a folder, and would not be uploaded",
            remedy="put the file itself there",
        )


def _check_script(script: Path, name: str, path: str) -> Iterator[Finding]:
    """Whether a node can start a file: it is executable, and it says which program runs it."""
    if not os.access(script, os.X_OK):
        yield Finding(
            code="own-script-not-executable",
            path=path,
            problem=f"{show(name)} is not executable",
            remedy="run `chmod +x` on it, or move it into a folder, whose files are uploaded and not run",
        )
    with script.open("rb") as file:
        first = file.readline(256)
    if first.startswith(_ELF):
        return
    if not first.startswith(b"#!") or not first[2:].strip():
        yield Finding(
            code="own-script-without-interpreter",
            path=path,
            problem=f"{show(name)} does not say which program runs it",
            remedy="begin it with a line such as #!/bin/bash",
        )
    if first.endswith(b"\r\n"):
        yield Finding(
            code="own-script-with-crlf",
            path=path,
            problem=f"the lines of {show(name)} end with CR and LF, so that Linux does not find the program that runs it",
            remedy="save it with LF line ends",
        )


def is_leftover(name: str) -> bool:
    """Whether a file is byte code, hidden or a leftover of a tool, and so not uploaded. `name`: relative to its folder."""
    parts = name.split("/")
    return "__pycache__" in parts or name.endswith(".pyc") or any(part.startswith(".") for part in parts)
