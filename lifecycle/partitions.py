#!/usr/bin/env python3
"""Make Slurm's partitions what the cluster file says. Usage: partitions.py SETTINGS_FILE.

HyperPod owns the PartitionName lines of slurm.conf, so nothing is written there. Slurm forgets `scontrol update` when slurmctld
starts or reads its files again. It then writes some of its state, at which a systemd path unit runs this again. So the settings of the
file hold, and what the file does not set is left as it is.

SETTINGS_FILE: {"p5": {"default": true, "max_time_minutes": 2880, "allow_accounts": ["research"]}}
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any, Iterator, Mapping

from lib import StepError, ask_slurm, delay_s, install_unit, log, must_run, run_step

STATES = ("last_config_lite", "trigger_state")
"""The files in StateSaveLocation that slurmctld writes when it has started or read its files again (seen on 22.05 and 24.11). 22.05
writes the second one every five minutes, too. A change of a partition writes neither."""
STABLE_LOOKS = 2
"""Looks that find all as it should be, one after the other: while slurmctld hands over to its successor, the old one may answer."""
MOST_LOOKS = 20
OWN_ACCOUNT = "cdk-hyperpod"
"""root's account where partitions are for some accounts alone: jobs of the library, such as one that saves a node, are root's. The
account root would let everybody in, since all accounts are below it (seen on 24.11)."""
SERVICE = """\
[Unit]
Description=Set the partitions' settings again
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=/usr/bin/env python3 -B {program} {settings}
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/opt/slurm/sbin
"""
PATH = """\
[Unit]
Description=slurmctld has started, or has read slurm.conf

[Path]
{paths}

[Install]
WantedBy=multi-user.target
"""
UNIT = "cdk-hyperpod-partitions"


def wanted_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a partition as `scontrol show partition` prints them."""
    wanted: dict[str, str] = {}
    if settings.get("default"):
        wanted["Default"] = "YES"
    if "max_time_minutes" in settings:
        wanted["MaxTime"] = duration(int(settings["max_time_minutes"]))
    if "priority_tier" in settings:
        wanted["PriorityTier"] = str(int(settings["priority_tier"]))
    if settings.get("allow_accounts"):
        wanted["AllowAccounts"] = ",".join(sorted({*settings["allow_accounts"], OWN_ACCOUNT}))
    if "state" in settings:
        wanted["State"] = str(settings["state"]).upper()
    return wanted


def duration(minutes: int) -> str:
    """Minutes as Slurm prints a time: [days-]hours:minutes:seconds."""
    days, rest = divmod(minutes, 24 * 60)
    return (f"{days}-" if days else "") + f"{rest // 60:02}:{rest % 60:02}:00"


def parse(text: str) -> dict[str, dict[str, str]]:
    """The partitions in `scontrol --oneliner show partition`."""
    found = {}
    for line in text.splitlines():
        words = dict(re.findall(r"(\w+)=(\S*)", line))
        if "PartitionName" in words:
            words["AllowAccounts"] = ",".join(sorted(words.get("AllowAccounts", "").split(",")))
            found[words["PartitionName"]] = words
    return found


def commands_for(partitions: Mapping[str, Any], found: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """The updates that are missing. None: all is as the file says."""
    for name, settings in partitions.items():
        has = found.get(name)
        if has is None:
            continue
        changes = [f"{key}={value}" for key, value in wanted_of(settings).items() if has.get(key) != value]
        if changes:
            yield f"partitionname={name} {' '.join(changes)}"


def has_lost(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a setting has left the file. Only slurm.conf has what applies without it."""
    return any(set(wanted_of(settings)) - set(wanted_of(after.get(name, {}))) for name, settings in before.items())


def keep(partitions: Mapping[str, Any]) -> None:
    """Set what differs, and look again until nothing has differed for a while."""
    stable = 0
    for _ in range(MOST_LOOKS):
        found = parse(ask_slurm("scontrol", "--oneliner", "show", "partition"))
        commands = list(commands_for(partitions, found))
        for command in commands:
            log("INFO", f"scontrol update {command}")
            ask_slurm("scontrol", "update", *command.split())
        stable = 0 if commands else stable + 1
        if stable >= STABLE_LOOKS:
            break
        time.sleep(min(1.0, delay_s()))
    if stable < STABLE_LOOKS:
        raise StepError("another program keeps changing the partitions; find out which, or take slurm.partitions out")
    for name in sorted(set(partitions) - set(found)):
        log("WARNING", f"Slurm has no partition {name} yet; its settings are made when HyperPod has added it")
    log("INFO", f"{len(partitions)} partitions are as the cluster file says")


def allow_again(partitions: Mapping[str, Any]) -> None:
    """Set the accounts of partitions once more, after some were created.

    Slurm 24.11 keeps of AllowAccounts only the accounts that it knows, and with none of them lets all jobs in. It shows the names all
    the same.
    """
    has = parse(ask_slurm("scontrol", "--oneliner", "show", "partition"))
    for name, settings in partitions.items():
        accounts = wanted_of(settings).get("AllowAccounts")
        if accounts and name in has:
            log("INFO", f"scontrol update partitionname={name} AllowAccounts={accounts}")
            ask_slurm("scontrol", "update", f"partitionname={name}", f"AllowAccounts={accounts}")


def install_units(program: str, settings: str) -> None:
    """Have systemd run this program again."""
    config = ask_slurm("scontrol", "show", "config")
    place = re.search(r"^StateSaveLocation\s*=\s*(\S+)", config, re.MULTILINE)
    if place is None:
        raise StepError("`scontrol show config` does not tell StateSaveLocation")
    paths = "\n".join(f"PathChanged={place[1]}/{name}" for name in STATES)
    install_unit(f"{UNIT}.service", SERVICE.format(program=program, settings=settings))
    install_unit(f"{UNIT}.path", PATH.format(paths=paths))
    must_run("systemctl", "enable", "--quiet", "--now", f"{UNIT}.path")


def main(settings_file: str) -> None:
    """Set what the file says."""
    keep(json.loads(Path(settings_file).read_text("utf-8")))


if __name__ == "__main__":
    sys.exit(run_step(lambda: main(sys.argv[1])))
