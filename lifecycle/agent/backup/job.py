"""The job that Slurm runs on the node: drain it, then save its folders or run the owner's hook."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Callable
from typing import Any

from .folders import back_up
from .target import check_above
from .wording import BackupError

LOG = "/var/log/cdk-hyperpod-backup.log"
"""The output of each try, on the node."""
MOST_TOLD = 600
"""Characters of a message that the agent reads and passes on."""


def _too_long(number: int, frame: object) -> None:
    raise BackupError("took longer than slurm.drain.backup.timeout_minutes and was cancelled")


def hold_node(node: str, reason: str) -> None:
    """Drain this node from within its backup's job, which has the node to itself. From now on no other job can start here, not even
    between the end of this job and the agent's next look. Raises BackupError."""
    state = _scontrol("--oneliner", "show", "node", node).partition(" State=")[2].partition(" ")[0]
    if re.search("DRAIN|FAIL", state):
        # The reason of a person, or of HyperPod, must not be lost.
        raise BackupError(f"{node} was already out of work ({state}) when its backup began")
    _scontrol("update", f"nodename={node}", "state=drain", f"reason={reason}")


def _scontrol(*words: str) -> str:
    done = subprocess.run(
        ["scontrol", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
    )
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise BackupError(f"`scontrol {' '.join(words[:2])}` on the node: {' '.join(text.split())[:200]}")
    return text


def tell_slurm(text: str) -> None:
    """Put the text into the job's comment, which the agent reads from squeue."""
    job = os.environ.get("SLURM_JOB_ID")
    if job:
        # A file's name must not make a second line.
        line = re.sub(r"[^ -~]+", " ", text.encode("ascii", "replace").decode())[:MOST_TOLD]
        subprocess.run(["scontrol", "update", f"jobid={job}", f"comment={line}"], timeout=60, check=False)


def run_hook(order: dict[str, Any], tell: Callable[[str], None]) -> None:
    """Run the owner's program, which saves the node. Raises BackupError if it fails, and OSError if it cannot be started."""
    hook = order["hook"]
    check_hook(hook)
    # Its output may be confidential.
    if stat.S_ISREG(os.fstat(1).st_mode):
        os.fchmod(1, 0o600)
    environment = {
        "DRAIN_INSTANCE_ID": order["instance"],
        "DRAIN_NODE": os.environ.get("SLURMD_NODENAME", os.uname().nodename),
        "DRAIN_REQUEST": order["request"],
        "DRAIN_SECONDS": str(order["seconds"]),
    }
    tell(f"{hook} runs")
    # In a session of its own, so that all its processes can be killed with it.
    running = subprocess.Popen(
        [hook], stdin=subprocess.DEVNULL, cwd="/", env={**os.environ, **environment}, start_new_session=True
    )
    try:
        code = running.wait()
    except BackupError:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        raise
    if code != 0:
        ended = f"failed with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        raise BackupError(f"{hook} {ended}; what it said is in {LOG} on the node")
    tell(f"{hook} has saved the node")


def check_hook(hook: str) -> None:
    """Raise BackupError if anybody but root could have written the hook, or could replace it."""
    check_above(hook)
    found = os.lstat(hook)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise BackupError(
            f"{hook} is not a file that root alone may write, so it was not run; run chown root and chmod go-w on it"
        )
    if not found.st_mode & stat.S_IXUSR:
        raise BackupError(f"{hook} may not be executed; run chmod 755 on it")


def main(order: dict[str, Any], tell: Callable[[str], None] = tell_slurm) -> int:
    """The exit code: 0, or 1 after one message with the reason."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/opt/slurm/bin:/usr/local/bin:/usr/bin:/bin"
    os.umask(0o077)
    minutes = order.get("timeout_minutes")
    try:
        if minutes:
            signal.signal(signal.SIGALRM, _too_long)
            signal.alarm(minutes * 60)
        if order.get("hold"):
            hold_node(**order["hold"])
        run_hook(order, tell) if order.get("hook") else back_up(order, tell)
        return 0
    except BackupError as error:
        tell(str(error))
    except OSError as error:
        where = f": {json.dumps(str(error.filename))[:200]}" if error.filename else ""
        tell(f"{error.strerror or error}{where}")
    return 1
