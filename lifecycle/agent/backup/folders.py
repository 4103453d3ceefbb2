"""The backup of folders, from the first check to the manifest."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .changes import Check, save_again
from .copying import BATCH_FILES, Save
from .manifest import MOST_LISTED, write_whole
from .survey import Survey, check_room, check_time
from .target import check_path, target_folder
from .walk import Visitor, mounts_below, walk
from .wording import BackupError, amount, several, shown

OPEN_FILES = 65_536


def back_up(order: dict[str, Any], tell: Callable[[str], None]) -> None:
    """Save the folders of the order. Raises BackupError, and OSError if something fails before anything is read or copied."""
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
    _walk_all(paths, mounts, depth, survey)
    check_room(folder, survey)
    check_time(survey, order["seconds"])
    save = Save(folder, survey, tell)
    for path in paths:
        save.begin(path)
        walk(path, mounts, depth, save)
    save.flush()
    _walk_all(paths, mounts, depth, Check(save))
    ended: list[str] = []
    if save.left.count and order.get("last"):
        ended = save_again(save)
        _walk_all(paths, mounts, depth, Check(save))
    notes = [f"ended {each}" for each in ended]
    if save.left.count and not _may_leave_out(order):
        raise BackupError("; ".join([save.left.sentence(), *notes]))
    save.finish()
    manifest = _manifest(order, paths, absent, mounts, save, ended)
    write_whole(f"{folder}/manifest.json", json.dumps(manifest, indent=1) + "\n")
    tell(conclusion(save, absent, mounts, notes))


def _walk_all(paths: Iterable[str], mounts: frozenset[str], depth: int, visitor: Visitor) -> None:
    for path in paths:
        walk(path, mounts, depth, visitor)


def _may_leave_out(order: Mapping[str, Any]) -> bool:
    """This try may succeed without what cannot be saved."""
    return bool(order.get("last") and order.get("skip"))


def _manifest(
    order: Mapping[str, Any],
    paths: list[str],
    absent: list[str],
    mounts: Iterable[str],
    save: Save,
    ended: list[str],
) -> dict[str, Any]:
    return {
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


def allow_open_files() -> int:
    """Raise the limit of open files. Returns how deep folders may be nested, with two open files for each level."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in ((OPEN_FILES, max(hard, OPEN_FILES)), (min(hard, OPEN_FILES), hard)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            soft = limit[0]
            break
    return max(100, (soft - BATCH_FILES - 100) // 2)


def conclusion(save: Save, absent: list[str], mounts: Iterable[str], notes: list[str]) -> str:
    """What was saved, and what was not: first counts, which the agent keeps, then names."""
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
