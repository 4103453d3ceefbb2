"""train.py, made to wait where a test wants to act, so that no test depends on how fast the machine is.

HOLD names a folder and two kinds of places: `HOLD_BEFORE_STEPS=12` waits before step 12 is taken, `HOLD_SAVING_STEPS=10` in the middle of
writing the checkpoint of step 10: every rank's shards are in the folder, the metadata is not. Rank 0 leaves a file `at-<place>`
and goes on when there is a file `go-<place>`; the other ranks wait for it in their next collective. `at-sigterm` says that SIGTERM
came while it waited.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import checkpoints
import train
from torch.distributed.checkpoint import FileSystemWriter

HOLD = Path(os.environ["HOLD"])
PATIENCE_S = 60
"""How long rank 0 waits before it fails; the tests' own limits are what counts."""


def _steps(name: str) -> set[int]:
    return {int(step) for step in os.environ.get(name, "").split(",") if step}


def _hold(place: str) -> None:
    (HOLD / f"at-{place}").touch()
    deadline = time.monotonic() + PATIENCE_S
    while not (HOLD / f"go-{place}").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody let go of {place}")
        if train._sigterm:
            (HOLD / "at-sigterm").touch()
        time.sleep(0.02)


_train_step = train.train_step


def _held_train_step(job: train.Job, *arguments: Any) -> tuple[float, int]:
    if os.environ["RANK"] == "0" and job.step + 1 in _steps("HOLD_BEFORE_STEPS"):
        _hold(f"step-{job.step + 1}")
    return _train_step(job, *arguments)


class _HeldWriter(FileSystemWriter):
    def finish(self, metadata: Any, results: Any) -> None:
        """Rank 0 only, when every rank has written: here the metadata follows."""
        step = int(Path(self.path).name.removeprefix("step-").partition(".")[0])
        if step in _steps("HOLD_SAVING_STEPS"):
            _hold(f"saving-{step}")
        super().finish(metadata, results)


if __name__ == "__main__":
    train.train_step = _held_train_step  # type: ignore[assignment]
    checkpoints.FileSystemWriter = _HeldWriter  # type: ignore[misc]
    sys.exit(train.main())
