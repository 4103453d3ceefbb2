"""The files beside the copy: what was left out, and checksums. Each is written as a whole or not at all."""

from __future__ import annotations

import heapq
import os
from typing import Any

from .wording import WRITTEN, amount, owner, several, shown, told

MOST_LISTED = 10_000
"""Names in the manifest of what was left out."""


class Left:
    """The files that cannot be saved, with their owners."""

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
        """Remove a file that was saved after all."""
        uid, _, _ = self.found.pop(path)
        self.by_uid[uid] -= 1

    def sentence(self) -> str:
        """A message with the largest files and their owners."""
        largest = heapq.nlargest(3, self.found.items(), key=lambda each: each[1][1])
        told = [
            f"{shown(path, 120)} of {owner(uid)}{f' ({amount(size)})' if size else ''} {why}"
            for path, (uid, size, why) in largest
        ]
        more = [f"and {self.count - len(largest)} more"] if self.count > len(largest) else []
        return f"{several(self.count, 'file')} not saved: {'; '.join([*told, *more])}"

    def owners(self) -> str:
        """The owners of most of the files, with counts."""
        most = heapq.nlargest(3, self.by_uid.items(), key=lambda each: each[1])
        told = [f"{owner(uid)} {count}" for uid, count in most if count]
        return ", ".join([*told, *(["others"] if len(self.by_uid) > 3 else [])])

    def by_owner(self) -> dict[str, Any]:
        """The files of each owner, for the manifest."""
        told: dict[str, Any] = {}
        for path, (uid, size, why) in self.found.items():
            of = told.setdefault(owner(uid), {"uid": uid, "files": self.by_uid[uid], "bytes": 0, "paths": []})
            of["bytes"] += size
            of["paths"].append({"path": path, "bytes": size, "why": why})
        return told


def sum_line(digest: str, path: str) -> str:
    """A line of SHA256SUMS, with sha256sum's own marks for a name with a newline or a backslash."""
    name = os.fsencode(path.lstrip("/")).decode("utf-8", "surrogateescape")
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{chr(92) if escaped != name else ''}{digest}  {escaped}\n"


def summed_name(line: str) -> str:
    """The name in a line of sums."""
    return line.partition("  ")[2]


def write_whole(path: str, text: str) -> None:
    """Write a file as a whole: if that fails, the old one stays."""
    with told(path, WRITTEN):
        with open(f"{path}.new", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)
