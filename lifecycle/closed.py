"""Keep users' jobs from starting on a new controller until its slurm.conf has our lines.

A replaced controller begins with HyperPod's slurm.conf alone, and the nodes still have our lines: a job that starts then, without
PrologFlags, ends NODE_FAIL, and Slurm drains its node. So root reserves all nodes. A partition that is down would be up again
at each start of slurmctld, and would keep the jobs off with which new lines are tried. The reservation ends by itself, should
the scripts be killed. What runs goes on.
"""

from __future__ import annotations

import time

from lib import PROGRAMS, delay_s, log, on_node, run, what_failed

SETTINGS = f"{PROGRAMS}/slurm_conf.json"
"""Exists once the step slurm_conf has put our lines in place."""
RESERVATION = "cdk-hyperpod-start"
MINUTES = 60
LOOKS = 10
"""At a reservation in which a trial has just ended."""


def close() -> None:
    """Reserve all nodes, on a controller that has not got our lines yet, if slurmctld answers."""
    if on_node(SETTINGS).exists() or is_closed():
        return
    done = run(
        *("scontrol", "create", "reservation", f"reservationname={RESERVATION}", "starttime=now"),
        *(f"duration={MINUTES}", "nodes=ALL", "users=root", "flags=MAINT,IGNORE_JOBS"),
        timeout_s=10,
    )
    how = "until slurm.conf has our lines, no user's job starts" if done.returncode == 0 else what_failed(done.stdout)
    log("INFO", f"reservation {RESERVATION}: {how}")


def is_closed() -> bool:
    """Whether all nodes are reserved."""
    return run("scontrol", "show", "reservation", RESERVATION, timeout_s=10).returncode == 0


def open_again() -> None:
    """Let jobs start."""
    for _ in range(LOOKS):
        if not is_closed() or run("scontrol", "delete", f"reservationname={RESERVATION}").returncode == 0:
            return
        time.sleep(min(1.0, delay_s()))
    log(
        "WARNING", f"the reservation {RESERVATION} stays until it ends: `scontrol delete reservationname={RESERVATION}`"
    )
