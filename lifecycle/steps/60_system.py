#!/usr/bin/env python3
"""Limits that training needs, a clock that is right, and logs that end. Usage: 60_system.py NODE_TYPE.

EFA and NCCL register memory, which `memlock` limits, and loaders open many files. The limits stand in two places: for
people who log in, and for slurmd, whose limits its jobs have.
"""

from __future__ import annotations

import re
import sys

from lib import OWN_MARK, install_unit, last_line, log, must_run, on_node, run, run_step, settle, write_file

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
CLOCKS = ("chrony", "chronyd", "systemd-timesyncd", "ntp", "ntpd")
LOGS = {
    "/var/log/provision/*.log": "",
    "/var/log/slurm/*.log": (
        "    postrotate\n        pkill -x --signal SIGUSR2 'slurmctld|slurmd|slurmdbd' || true\n    endscript\n"
    ),
}
"""What is rotated, and what follows: the daemons open their logs again at SIGUSR2."""
MOST_OFFSET_S = 1.0


def raise_limits(node_type: str) -> None:
    """For logins everywhere, and for jobs where slurmd runs."""
    write_file("/etc/security/limits.d/99-cdk-hyperpod.conf", LIMITS)
    if node_type != "compute":
        return
    install_unit("slurmd.service.d/cdk-hyperpod-limits.conf", SLURMD, owes=("slurmd-restart",))
    settle("slurmd-restart", restart_slurmd)


def restart_slurmd() -> None:
    """Give a slurmd that runs, or is starting, the limits; one that is off starts with them."""
    running = run("systemctl", "show", "--property", "ActiveState", "slurmd.service").stdout
    if re.search("=(active|activating|reloading)$", running.strip()):
        # Jobs go on: each has a process of its own, which the new slurmd finds.
        must_run("systemctl", "restart", "slurmd.service")
        log("INFO", "restarted slurmd, whose jobs may lock all memory now")


def mend_clock() -> None:
    """munge refuses what is five minutes old, so a clock that is off keeps a node out of Slurm."""
    shown = run(
        "systemctl",
        "show",
        "--property",
        "Id,LoadState,ActiveState,UnitFileState",
        *(f"{name}.service" for name in CLOCKS),
    )
    units = [dict(re.findall(r"^(\w+)=(.*)$", block, re.MULTILINE)) for block in shown.stdout.split("\n\n")]
    loaded = [unit for unit in units if unit.get("LoadState") == "loaded"]
    active = [unit for unit in loaded if unit.get("ActiveState") in ("active", "activating")]
    if not loaded:
        log("WARNING", "nothing keeps this node's clock; install chrony on the image")
    elif not active and loaded[0].get("UnitFileState") == "enabled":
        log("WARNING", f"{loaded[0]['Id']} is enabled and does not run; look at `systemctl status {loaded[0]['Id']}`")
    elif not active:
        log("INFO", f"nothing keeps this node's clock; starting {loaded[0]['Id']}")
        done = run("systemctl", "enable", "--now", loaded[0]["Id"])
        if done.returncode != 0:
            log("WARNING", f"{loaded[0]['Id']} does not start: {last_line(done.stdout)}")
    offset = clock_offset_s(run("chronyc", "-n", "tracking", timeout_s=10).stdout)
    if offset is not None and abs(offset) > MOST_OFFSET_S:
        log("WARNING", f"the clock is {offset:.1f} s off; setting it")
        run("chronyc", "makestep", timeout_s=30)


def clock_offset_s(tracking: str) -> float | None:
    """How far the clock is off, in the output of `chronyc tracking`; None: it does not say."""
    found = re.search(r"^System time\s*:\s*([0-9.]+) seconds (slow|fast)", tracking, re.MULTILINE)
    return None if found is None else float(found[1]) * (-1 if found[2] == "slow" else 1)


def rotate_logs() -> None:
    """Rotate what nobody rotates: logrotate refuses a file that two of its files name."""
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
    """Limits, clock and logs."""
    raise_limits(node_type)
    mend_clock()
    rotate_logs()
    log("INFO", "limits, clock and log rotation are set")


if __name__ == "__main__":
    sys.exit(run_step(lambda: set_system_up(sys.argv[1])))
