#!/usr/bin/env python3
"""Start a service that keeps the clock, and set a clock that is off. Usage: 15_clock.py.

munge refuses messages that are five minutes old, so Slurm does not work on a node whose clock is off. This step runs before step
slurm. It installs nothing, and never fails a node.
"""

from __future__ import annotations

import re
import sys

from lib import last_line, log, run, run_step

CLOCKS = ("chrony", "chronyd", "systemd-timesyncd", "ntp", "ntpd")
"""The services that keep a clock. The first that the image has is used."""
MOST_OFFSET_S = 1.0


def keep_clock() -> None:
    """Start a service. Each of them sets a clock that is far off when it starts."""
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
        log("WARNING", "no service keeps this node's clock; install chrony on the image")
    elif not active and loaded[0].get("UnitFileState") == "enabled":
        log("WARNING", f"{loaded[0]['Id']} is enabled and does not run; look at `systemctl status {loaded[0]['Id']}`")
    elif not active:
        log("INFO", f"no service keeps this node's clock; starting {loaded[0]['Id']}")
        done = run("systemctl", "enable", "--now", loaded[0]["Id"])
        if done.returncode != 0:
            log("WARNING", f"{loaded[0]['Id']} does not start: {last_line(done.stdout)}")


def set_clock() -> None:
    """Set a clock that chrony would correct only slowly."""
    offset = clock_offset_s(run("chronyc", "-n", "tracking", timeout_s=10).stdout)
    if offset is not None and abs(offset) > MOST_OFFSET_S:
        log("WARNING", f"the clock is {offset:.1f} s off; setting it")
        done = run("chronyc", "makestep", timeout_s=30)
        if done.returncode != 0:
            log("WARNING", f"`chronyc makestep` failed: {last_line(done.stdout)}")


def clock_offset_s(tracking: str) -> float | None:
    """By how many seconds the clock is off, in the output of `chronyc tracking`. None: the output does not have it."""
    found = re.search(r"^System time\s*:\s*([0-9.]+) seconds (slow|fast)", tracking, re.MULTILINE)
    return None if found is None else float(found[1]) * (-1 if found[2] == "slow" else 1)


def mend_clock() -> None:
    """First start a service: without one there is no time to set the clock by."""
    keep_clock()
    set_clock()


if __name__ == "__main__":
    sys.exit(run_step(mend_clock))
