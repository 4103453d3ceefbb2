"""The folder of lifecycle scripts that is uploaded: which files of it, and their checksums."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .._common.assets import pack_eks_lifecycle, pack_lifecycle
from ..config.cluster import Orchestrator
from ..errors import Finding
from ..rules.files import check_script_folder
from ..rules.own_scripts import is_leftover
from ..typed.known import is_known

_EKS = "eks"
"""The scripts for EKS nodes are in this folder below those for Slurm, which are uploaded without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFolder:
    """A folder of scripts on this machine."""

    path: Path
    without: str | None
    """A folder in it that is not uploaded. None: all of it is uploaded."""
    is_of_library: bool
    """True: the library's own scripts. False: the user's folder, which is uploaded unchanged."""

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The names and contents of the files that are uploaded."""
        return contents(self.path, self.without)


def check_source(source: object, path: str, orchestrator: Orchestrator) -> Sequence[Finding]:
    """Whether the user's folder exists and has the scripts that HyperPod runs. `path`: the argument's name."""
    if not isinstance(source, str | Path) or not is_known(str(source)):
        return []
    return check_script_folder(Path(source), str(source), path, orchestrator)


def find_scripts(source: str | Path | None, orchestrator: Orchestrator, asset_folder: str) -> ScriptFolder:
    """The user's folder, which `check_source` has accepted, or without one the library's.

    `asset_folder`: the folder of this synthesis. The library's scripts are copied there, each orchestrator's alone.
    """
    without = None if orchestrator == "eks" else _EKS
    if source is not None:
        return ScriptFolder(path=Path(source), without=without, is_of_library=False)
    pack, name = (pack_eks_lifecycle, "-eks") if orchestrator == "eks" else (pack_lifecycle, "")
    own = pack(Path(asset_folder, f"cdk-hyperpod-lifecycle{name}"))
    return ScriptFolder(path=own, without=without, is_of_library=True)


def checksums(files: Iterable[tuple[str, bytes]]) -> str:
    """A line for each file, in the format of `sha256sum --check`.

    It detects an incomplete upload. It is not a protection: whoever can write a script can write this file too.
    """
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files)


def write_files(files: Iterable[tuple[str, bytes]], target: Path) -> Path:
    """Write the files into a folder, as they are uploaded. Returns that folder."""
    if target.exists():
        shutil.rmtree(target)
    for name, content in files:
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return target


def contents(folder: Path, without: str | None = None) -> Iterator[tuple[str, bytes]]:
    """The names and contents of the files that are uploaded, sorted by path. `without`: a folder in it that is not."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if without is not None and name.startswith(f"{without}/"):
            continue
        if path.is_file() and not is_leftover(name):
            yield name, path.read_bytes()
