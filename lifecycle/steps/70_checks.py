#!/usr/bin/env python3
"""Say what this node has, and warn where it is less than its type promises. Usage: 70_checks.py INSTANCE_TYPE.

It never fails a node: HyperPod's own health checks decide about that. INSTANCE_TYPE may be `-` where HyperPod does not
say; then nothing is compared.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from lib import first_mounted, log, on_node, run_step

DEVICES = "devices.json"
"""Beside the scripts: what each type has. The library writes it from its catalogue."""
LEAST_FREE_BYTES = 10 * 2**30
KINDS = {"gpu": "GPUs", "neuron": "Neuron devices", "efa": "EFA devices"}


def count_devices() -> dict[str, int]:
    """What the kernel sees."""
    names = [file.name for file in on_node("/dev").glob("n*")]
    return {
        "gpu": sum(1 for name in names if re.fullmatch(r"nvidia\d+", name)),
        "neuron": sum(1 for name in names if re.fullmatch(r"neuron\d+", name)),
        "efa": len(list(on_node("/sys/class/infiniband").glob("*"))),
    }


def check_devices(instance_type: str, promised: dict[str, int]) -> None:
    """One line for each kind that the type promises."""
    found = count_devices()
    for kind, words in KINDS.items():
        want, have = promised.get(kind, 0), found[kind]
        if have < want:
            log("WARNING", f"{have} of {want} {words} that an {instance_type} has; look at `dmesg`")
        elif want:
            log("INFO", f"{have} {words}, as an {instance_type} has")


def check_disks() -> None:
    """One line for each disk that fills up when containers run."""
    for path in filter(None, ("/", first_mounted(("/opt/dlami/nvme",)), first_mounted(("/opt/sagemaker",)))):
        free = shutil.disk_usage(on_node(path)).free
        level = "WARNING" if free < LEAST_FREE_BYTES else "INFO"
        log(level, f"{free / 2**30:.1f} GiB are free on {path}")


def check_node(instance_type: str) -> None:
    """All checks."""
    file = Path(__file__).resolve().parents[1] / DEVICES
    devices = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    if instance_type in devices:
        check_devices(instance_type, devices[instance_type])
    else:
        log("INFO", f"nothing is known of what an instance of the type {instance_type} has")
    check_disks()


if __name__ == "__main__":
    sys.exit(run_step(lambda: check_node(sys.argv[1])))
