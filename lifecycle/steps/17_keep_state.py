#!/usr/bin/env python3
"""Give a new controller the state of the last one, and have its own copied. Usage: 17_keep_state.py FOLDER restore|keep [closed].

Runs on the controller. `restore` runs before slurmctld is waited for: it uses the last copy, once for each root volume, and never if
this step is run alone. `keep` runs when Slurm is set up, and starts the timer that copies each minute.

    closed         the cluster stays closed until the step slurm_conf has run
    RESTORE_STATE  the name of a copy that somebody has chosen, or `list`
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from controller_state import RESTORED, STATE, Folder, check_answers, take_over
from lib import (
    KILLED_S,
    PROGRAMS,
    StepError,
    begin_process,
    install_program,
    install_unit,
    log,
    must_run,
    on_node,
    run,
    run_step,
    write_file,
)
from restore_state import end_killed, restore

MODULES = ("controller_state.py", "restored_jobs.py", "keep_state.py")
UNIT = "cdk-hyperpod-state"
ALONE = "PROVISION_ALONE"
RESTORE_S = 900
"""As long as a copy may take, with the accounting database. The probe before does not see every hang."""
SERVICE = """\
[Unit]
Description=Copy the controller's state to the shared file system (cdk-hyperpod)

[Service]
Type=oneshot
ExecStart=/usr/bin/env python3 -B {program} {folder}
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/opt/slurm/sbin
TimeoutStartSec=15min
Nice=5
"""
TIMER = """\
[Unit]
Description=Copy the controller's state each minute

[Timer]
OnActiveSec=30
OnBootSec=60
OnUnitInactiveSec=60
AccuracySec=1

[Install]
WantedBy=timers.target
"""


def give_back(path: str, *, closes: bool) -> None:
    """Restore, unless this is a running controller. What cannot be restored is a warning: the controller must come up."""
    chosen, is_alone = os.environ.get("RESTORE_STATE", ""), bool(os.environ.get(ALONE))
    try:
        end_killed(starts=is_alone)
        if is_alone and not chosen:
            return
        check_answers(path)
        if chosen == "list":
            _list(path)
        else:
            _bounded(partial(restore, path, chosen, closes=closes and not chosen), starts=is_alone)
    except (StepError, OSError) as error:
        if is_alone:
            raise
        log(
            "WARNING",
            f"the state of the controller before is not restored: {error}; to choose a copy by hand: cdk-hyperpod lifecycle run restore-state",
        )


def _bounded(work: Callable[[], None], *, starts: bool) -> None:
    """Restore in a process of its own. What waits for a file system that hangs may survive even SIGKILL, and is left behind."""
    pid, reading = begin_process(work)
    with os.fdopen(reading, "rb") as pipe:
        if select.select([pipe], [], [], RESTORE_S)[0]:
            why = pipe.read().decode("utf-8", "replace")
        else:
            why = f"it did not end within {RESTORE_S:g} s; look at the status of the file system"
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + KILLED_S
    found, status = 0, 0
    while not found and time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(0 if found else 0.05)
    if not found or os.WIFSIGNALED(status):
        end_killed(starts=starts)
    if why or status or not found:
        raise StepError(why or "it was killed")


def keep(path: str) -> None:
    """Start the timer. Where there is no copy yet is a warning: the controller must come up."""
    if os.environ.get("RESTORE_STATE") == "list":
        return
    if not on_node(RESTORED).exists():
        # A controller that runs keeps what it has.
        write_file(RESTORED, json.dumps({"copy": "", "time": round(time.time()), "partitions": {}}) + "\n", mode=0o600)
    _close_partitions()
    scripts = Path(__file__).resolve().parents[1]
    for module in MODULES:
        install_program(module, (scripts / module).read_text("utf-8"))
    install_unit(f"{UNIT}.service", SERVICE.format(program=f"{PROGRAMS}/keep_state.py", folder=path))
    install_unit(f"{UNIT}.timer", TIMER)
    if run("systemctl", "is-active", f"{UNIT}.timer").returncode != 0:
        must_run("systemctl", "enable", "--now", "--quiet", f"{UNIT}.timer")
    try:
        check_answers(path)
        folder = Folder(path)
        try:
            take_over(folder)
        finally:
            folder.close()
    except (StepError, OSError) as error:
        if os.environ.get(ALONE):
            raise
        log("WARNING", f"the controller's state is not copied: {error}; a timer tries it again each minute")


def _close_partitions() -> None:
    """Partitions that somebody had closed are closed again, once."""
    content = json.loads(on_node(RESTORED).read_text("utf-8"))
    for name, state in content.get("partitions", {}).items():
        done = run("scontrol", "update", f"partitionname={name}", f"state={state}")
        log(
            "INFO",
            f"partition {name} is {state} again" if done.returncode == 0 else f"Slurm has no partition {name} any more",
        )
    if content.get("partitions"):
        write_file(RESTORED, json.dumps({**content, "partitions": {}}) + "\n", mode=0o600)


def _list(path: str) -> None:
    folder = Folder(path)
    for copy in folder.copies(STATE):
        try:
            when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(folder.manifest(copy)["time"]))
        except StepError as error:
            when = str(error)
        log("INFO", f"{copy.name}: {when}")
    folder.close()


if __name__ == "__main__":
    works = {"restore": lambda path: give_back(path, closes="closed" in sys.argv[3:]), "keep": keep}
    sys.exit(run_step(lambda: works[sys.argv[2]](sys.argv[1])))
