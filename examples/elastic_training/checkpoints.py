"""Sharded checkpoints in a folder that all nodes share (FSx for Lustre on HyperPod), complete or invisible.

The folder is one job's: what another one has not finished in it would be taken for the rest of a crash.

torch.distributed.checkpoint writes each rank's shards to a file of its own and reads them back for any other number of ranks. What it
doesn't promise is that a folder which exists is whole: a node may go in the middle of a save. So a checkpoint is written under
another name and renamed when every rank is done. Rename is atomic on Lustre and on local file systems; it is not on S3 mounts.
"""

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.stateful import Stateful

_COMPLETE = re.compile(r"step-(\d{9})")
_UNFINISHED = ".unfinished"


def complete(folder: Path) -> dict[int, Path]:
    """The complete checkpoints by their step, oldest first."""
    found = ((_COMPLETE.fullmatch(path.name), path) for path in folder.iterdir()) if folder.is_dir() else ()
    return dict(sorted((int(match[1]), path) for match, path in found if match))


class Checkpoints:
    """Saves, finds and loads; every method is a collective of all ranks."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def load_latest(self, state: Stateful) -> Path | None:
        """Load the newest complete checkpoint into the state, resharded to this job's ranks. None: there is none yet."""
        newest: list[Any] = [None]
        if dist.get_rank() == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Left by a job that was killed in the middle of a save.
            for unfinished in self._folder.glob(f"*{_UNFINISHED}"):
                shutil.rmtree(unfinished)
            newest[0] = next(reversed(complete(self._folder).values()), None)
        # One rank looks and tells the others: two clients of a shared file system may see a rename at different times.
        dist.broadcast_object_list(newest, src=0)
        path: Path | None = newest[0]
        if path is not None:
            dcp.load({"job": state}, storage_reader=FileSystemReader(path))
        return path

    def save(self, state: Stateful, step: int) -> float:
        """Write the state as the checkpoint of this step, and say how many seconds that took."""
        started = time.monotonic()
        path = self._folder / f"step-{step:09}"
        unfinished = path.with_name(path.name + _UNFINISHED)
        # Returns when every rank has written its shards and rank 0 the metadata; raises on every rank when one of them failed.
        dcp.save({"job": state}, storage_writer=FileSystemWriter(unfinished))
        if dist.get_rank() == 0:
            unfinished.rename(path)
            _sync(self._folder)
            for old in list(complete(self._folder).values())[: -self._keep]:
                # Under the other name first: a removal that is cut short must not look complete either.
                doomed = old.rename(old.with_name(old.name + _UNFINISHED))
                shutil.rmtree(doomed)
        dist.barrier()
        return time.monotonic() - started


def _sync(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
