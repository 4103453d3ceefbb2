"""What of `slurm` the controller and the nodes need: settings for cluster.json, and the user's files beside the scripts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..config.slurm import SlurmConfig, SlurmFiles, SlurmPartition, SlurmQos
from ..rules.slurm_files import CONFS, HOOKS, programs

_FOLDER = "slurm"
"""Their folder beside the library's scripts (lifecycle/hooks.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmQueues:
    """Partitions, QOS, own lines and programs around jobs of a cluster. `base`: paths are relative to this folder."""

    config: SlurmConfig
    base: Path

    def settings(self) -> dict[str, object]:
        """The settings for cluster.json. Empty: the cluster has none of all this."""
        config = self.config
        found: dict[str, object] = {
            "partitions": {name: _set_fields(each) for name, each in sorted(config.partitions.items())},
            "qos": [_set_fields(each) for each in config.qos],
            "conf": [name for name, _ in self._confs()],
        }
        # Slurm waits for a batch job as long as its programs may take.
        counts: dict[str, object] = {kind: len(programs(folder)) for kind, folder in self._folders()}
        if counts:
            found |= {**counts, "hook_seconds": config.hook_seconds}
        return {name: value for name, value in found.items() if value}

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The names and contents of the files that are uploaded."""
        for name, file in self._confs():
            yield f"{_FOLDER}/{CONFS[name]}", file.read_bytes()
        for kind, folder in self._folders():
            for program in programs(folder):
                yield f"{_FOLDER}/{kind}.d/{program.name}", program.read_bytes()

    def _confs(self) -> Iterator[tuple[str, Path]]:
        files = self.config.conf or SlurmFiles()
        for name in CONFS:
            file = getattr(files, name)
            if file is not None:
                yield name, self.base / file

    def _folders(self) -> Iterator[tuple[str, Path]]:
        for kind in HOOKS:
            folder = getattr(self.config, kind)
            if folder is not None:
                yield kind, self.base / folder


def _set_fields(value: SlurmPartition | SlurmQos) -> dict[str, object]:
    """The fields that are set."""
    return {name: item for name, item in dataclasses.asdict(value).items() if not _is_unset(item)}


def _is_unset(item: object) -> bool:
    # 0 is a limit.
    return item is None or item is False or item == ()
