"""What is wrong with `slurm.drain` is said about the file, and not on a node."""

from __future__ import annotations

from typing import Any

import pytest

from config.judging import REMOVED, judge

STORAGE = {"capacity_gib": 4800}


def drain(paths: Any = ("/opt/dlami/nvme/work",), to: Any = "/fsx/backup", **more: Any) -> dict[str, Any]:
    found = {"slurm": {"drain": {"backup": {"paths": list(paths), "to": to}}}, "storage": STORAGE, **more}
    return {name: value for name, value in found.items() if value is not REMOVED}


@pytest.mark.parametrize(
    "changes",
    [drain(), {"slurm": {"drain": {}}}, drain(["/data", "/scratch"]), drain(["/opt"], "/fsx/a/b/c")],
)
def test_what_can_work_is_taken(changes: dict[str, Any]) -> None:
    assert not [line for line in judge(changes) if "drain" in line]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (drain(to="/fsx"), "slurm.drain.backup.to: must be a folder such as /fsx/backup"),
        (drain(to="/"), "slurm.drain.backup.to: must be a folder such as"),
        (drain(to="backup"), "slurm.drain.backup.to: must be a folder such as"),
        (drain(to="/fsx/../etc"), "slurm.drain.backup.to: must be a folder such as"),
        (drain(to="/fsx/a\nb"), "slurm.drain.backup.to: "),
        (drain(to="/var/backup"), "slurm.drain.backup.to: /var/backup is on no storage of the file"),
        (drain(storage=REMOVED), "slurm.drain.backup.to: /fsx/backup is on no storage of the file"),
        (drain([]), "slurm.drain.backup.paths: 0 folders are named; name 1 to 20"),
        (drain(["/"]), "slurm.drain.backup.paths[0]: must be an absolute path"),
        (drain(["work"]), "slurm.drain.backup.paths[0]: must be an absolute path"),
        (drain(["/fsx/work"]), "slurm.drain.backup.paths[0]: /fsx/work is on /fsx, which all nodes share"),
        (drain(["/fsx"]), "slurm.drain.backup.paths[0]: /fsx is on /fsx"),
        (drain(["/data", "/data"]), "slurm.drain.backup.paths: "),
        (drain(lifecycle={"mode": "bootstrap"}), "slurm.drain: the library's own scripts start the agent"),
        (drain(lifecycle={"steps": {"drain": False}}), "lifecycle.steps.drain: is false, so nothing starts the agent"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], says: str) -> None:
    found = judge(changes)
    assert [line for line in found if line.startswith(says)], found
