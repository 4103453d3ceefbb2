#!/usr/bin/env python3
"""Set limits for training, and rotate logs. Usage: 60_system.py NODE_TYPE.

EFA and NCCL register memory, which `memlock` limits, and data loaders open many files. The limits are set in two places: for logins,
and for slurmd, whose limits its jobs inherit.
"""

from __future__ import annotations

import re
import sys

from lib import OWN_MARK, RUN_AGAIN, install_unit, is_owed, log, must_run, on_node, run, run_step, settle, write_file

OPEN_FILES = 1_048_576
LIMITS = f"""\
# {OWN_MARK}
* soft memlock unlimited
* hard memlock unlimited
* soft nofile {OPEN_FILES}
* hard nofile {OPEN_FILES}
root soft memlock unlimited
root hard memlock unlimited
root soft nofile {OPEN_FILES}
root hard nofile {OPEN_FILES}
"""
SLURMD = f"""\
[Service]
LimitMEMLOCK=infinity
LimitNOFILE={OPEN_FILES}
"""
RESTART = "slurmd-restart"
"""What a change of SLURMD asks for (lib.settle)."""
LOGS = {
    "/var/log/provision/*.log": "",
    "/var/log/slurm/*.log": (
        "    postrotate\n        pkill -x --signal SIGUSR2 'slurmctld|slurmd|slurmdbd' || true\n    endscript\n"
    ),
}
"""What is rotated, and what follows: the daemons open their logs again at SIGUSR2."""


def raise_limits(node_type: str) -> None:
    """For logins everywhere, and for jobs where slurmd runs."""
    write_file("/etc/security/limits.d/99-cdk-hyperpod.conf", LIMITS)
    if node_type != "compute":
        return
    install_unit("slurmd.service.d/cdk-hyperpod-limits.conf", SLURMD, owes=(RESTART,))
    if is_owed(RESTART) and runs_job_steps():
        log("WARNING", f"slurmd was not restarted, because jobs run here: {RUN_AGAIN}")
        return
    settle(RESTART, restart_slurmd)


def restart_slurmd() -> None:
    """Restart a slurmd that runs or is starting. One that is off will start with the limits."""
    running = run("systemctl", "show", "--property", "ActiveState", "slurmd.service").stdout
    if re.search("=(active|activating|reloading)$", running.strip()):
        must_run("systemctl", "restart", "slurmd.service")
        log("INFO", "restarted slurmd, whose jobs may lock all memory now")


def runs_job_steps() -> bool:
    """Whether a job step runs on this node. Each has a slurmstepd of its own; slurmd keeps one more as `slurmstepd infinity`."""
    shown = run("pgrep", "--list-full", "--exact", "slurmstepd").stdout
    return any("infinity" not in line for line in shown.splitlines())


def rotate_logs() -> None:
    """Rotate logs that no other file of logrotate names: logrotate refuses a log that two of its files name."""
    folder = on_node("/etc/logrotate.d")
    own = folder / "cdk-hyperpod"
    others = "".join(
        file.read_text("utf-8", "replace")
        for file in (sorted(folder.iterdir()) if folder.is_dir() else [])
        if file != own and file.is_file()
    )
    parts = [
        f"{pattern} {{\n    weekly\n    rotate 8\n    maxsize 100M\n    compress\n    missingok\n    notifempty\n{more}}}\n"
        for pattern, more in LOGS.items()
        if pattern.rsplit("/", 1)[0] not in others
    ]
    write_file("/etc/logrotate.d/cdk-hyperpod", "\n".join([f"# {OWN_MARK}", *parts]))


def set_system_up(node_type: str) -> None:
    """Limits and logs."""
    raise_limits(node_type)
    rotate_logs()
    log("INFO", "limits and log rotation are set")


if __name__ == "__main__":
    sys.exit(run_step(lambda: set_system_up(sys.argv[1])))
