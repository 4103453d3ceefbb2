"""The user's own scripts, which run beside the library's: what is uploaded of their folders, and how it is laid out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..rules.own_scripts import SETTINGS
from .script_folder import contents

_FOLDER = "own"
"""Their folder beside the library's scripts. lifecycle/steps/05_own_scripts.py runs what is in it."""


@dataclass(frozen=True, slots=True)
class OwnScripts:
    """The folders whose scripts a node runs. The scripts of a folder run after those of the folders before it."""

    before: tuple[Path, ...] = ()
    """Before the library's steps."""
    after: tuple[Path, ...] = ()
    """After the library's steps."""

    def __bool__(self) -> bool:
        return bool(self.before or self.after)

    def and_then(self, other: OwnScripts) -> OwnScripts:
        """These, and those of a group."""
        return OwnScripts((*self.before, *other.before), (*self.after, *other.after))

    def settings(self) -> list[str]:
        """The settings that have scripts."""
        return [setting for setting, folders in zip(SETTINGS, (self.before, self.after), strict=True) if folders]

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The names and contents of the files that are uploaded. The number of a folder keeps the folders in their order."""
        for setting, folders in zip(SETTINGS, (self.before, self.after), strict=True):
            for number, folder in enumerate(folders, start=1):
                for name, content in contents(folder, None):
                    yield f"{_FOLDER}/{setting}/{number}/{name}", content


def own_scripts(before: str | Path | None, after: str | Path | None, base: Path) -> OwnScripts:
    """The folders of one owner, the cluster or a group. `base`: names are relative to this folder."""
    return OwnScripts(
        () if before is None else (base / before,),
        () if after is None else (base / after,),
    )
