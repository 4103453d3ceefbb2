"""The owner's own hook in the backup's job."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from helpers.lifecycle.backup import ROOT
from helpers.lifecycle.programs import load

backup_job = load("agent/backup/job.py")


class Hook:
    """A program of the owner's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[str] = []

    def run(self, script: str, mode: int = 0o755, **change: Any) -> int:
        self.path.write_text(script)
        self.path.chmod(mode)
        self.said.clear()
        order = {"hook": str(self.path), "instance": "i-1", "request": "r1", "seconds": 600, **change}
        code: int = backup_job.main(order, self.said.append)
        return code


@pytest.fixture
def hook(tmp_path: Path) -> Hook:
    (tmp_path / "admin").mkdir(mode=0o755)
    return Hook(tmp_path / "admin/save-node")


@ROOT
def test_a_hook_s_exit_code_says_whether_the_node_is_saved(hook: Hook, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f"#!/bin/sh\necho $DRAIN_INSTANCE_ID $DRAIN_NODE $DRAIN_REQUEST $DRAIN_SECONDS $PWD >{told}\n"
    assert hook.run(script) == 0, hook.said
    assert told.read_text() == f"i-1 {os.uname().nodename} r1 600 /\n"
    assert len(hook.said) == 2
    assert hook.run("#!/bin/sh\nexit 3\n") == 1
    assert "exit code 3; what it said is in /var/log/cdk-hyperpod-backup.log" in hook.said[-1]
    assert hook.run("#!/bin/sh\nkill -TERM $$\n") == 1
    assert f"{hook.path} was ended by signal 15" in hook.said[-1]
    assert hook.run("#!/no/such/shell\n") == 1
    assert "No such file or directory" in hook.said[-1]


@ROOT
@pytest.mark.parametrize("trap", ["link", "written by others", "another's", "above", "folder is a link", "no program"])
def test_a_hook_that_others_can_change_is_not_run(hook: Hook, tmp_path: Path, trap: str) -> None:
    ran = tmp_path / "ran"
    script = f"#!/bin/sh\ntouch {ran}\n"
    if trap == "link":
        (tmp_path / "real").write_text(script)
        hook.path.symlink_to(tmp_path / "real")
    elif trap == "another's":
        hook.path.write_text("")
        os.chown(hook.path, 65534, 0)
    elif trap == "above":
        hook.path.parent.chmod(0o777)
    elif trap == "folder is a link":
        (tmp_path / "moved").symlink_to(hook.path.parent)
        hook.path = tmp_path / "moved/save-node"
    mode = {"written by others": 0o775, "no program": 0o644}.get(trap, 0o755)
    assert hook.run(script, mode) == 1
    says = {
        "above": "is not a folder that root alone may change",
        "folder is a link": "is not a folder that root alone",
    }
    what = {**says, "no program": "chmod 755"}.get(trap, "is not a file that root alone may write")
    assert what in hook.said[-1]
    assert not ran.exists()


@ROOT
def test_a_hook_that_hangs_is_ended_with_all_that_it_started(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = tmp_path / "began"
    real = signal.alarm
    asked: list[int] = []

    def alarm(seconds: int) -> None:
        """It rings after a second, whatever was asked for."""
        asked.append(seconds)
        real(1)

    monkeypatch.setattr(signal, "alarm", alarm)
    assert hook.run(f"#!/bin/bash\nsleep 600 & echo $! >{began}\nwait\n", timeout_minutes=15) == 1
    assert asked == [900]
    assert "slurm.drain.backup.timeout_minutes" in hook.said[-1]
    child = Path(f"/proc/{began.read_text().strip()}/stat")
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] not in "ZX":
        pass  # it has been killed, and goes as soon as it runs
