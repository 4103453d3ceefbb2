#!/usr/bin/env python3
"""Log what this node has, and warn if it has less than its instance type. Usage: 70_checks.py NODE_TYPE INSTANCE_TYPE.

It never fails a node: that is left to HyperPod's own health checks. INSTANCE_TYPE `-`: the type is unknown, and nothing is compared.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from lib import first_mounted, last_line, log, on_node, run, run_step
from slurm_conf import SLURM_CONF, values_of

DEVICES = "devices.json"
"""Beside the scripts: what each type has. The library writes it from its catalogue."""
LEAST_FREE_BYTES = 10 * 2**30
KINDS = {"gpu": "GPUs", "neuron": "Neuron devices", "efa": "EFA devices"}

DRIVERS = {
    "gpu": (("nvidia-smi", "--list-gpus"), r"^GPU \d+:"),
    "neuron": (("neuron-ls", "--json-output"), r'"neuron_device":'),
}
"""Kind -> the command by which its driver lists its devices, and what it has for each."""
TOPOLOGY_PLUGINS = ("topology/tree", "topology/block")
TOPOLOGY_FILES = ("topology.conf", "topology.yaml")
"""Beside slurm.conf; these plug-ins read one of them (slurm.conf(5), TopologyPlugin)."""


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


def check_drivers(promised: dict[str, int]) -> None:
    """One line for each driver that does not list every device: the kernel may see one that fell off its bus."""
    for kind, (command, each) in DRIVERS.items():
        want = promised.get(kind, 0)
        if not want:
            continue
        listed = run(*command, timeout_s=60)
        have = len(re.findall(each, listed.stdout, re.MULTILINE))
        name = command[0]
        if listed.returncode != 0:
            log("WARNING", f"{name} failed: {last_line(listed.stdout)}; look at `dmesg`, and replace the node")
        elif have < want:
            log("WARNING", f"{name} lists {have} of {want} {KINDS[kind]}; look at `dmesg`, and replace the node")


def check_containers() -> None:
    """Whether Slurm knows containers. Without Pyxis, a job that names an image fails, or runs on the host."""
    shown = run("srun", "--help", timeout_s=60)
    if shown.returncode == 127:
        return
    if "--container-image" in shown.stdout:
        log("INFO", "srun knows --container-image")
        return
    log("WARNING", "srun does not know --container-image; load Pyxis in plugstack.conf beside slurm.conf")


def check_topology() -> None:
    """Whether slurmctld finds the topology that slurm.conf names."""
    conf = on_node(SLURM_CONF)
    if not conf.is_file():
        return
    plugin = values_of(conf.read_text("utf-8", "replace")).get("topologyplugin", "").lower()
    if plugin in TOPOLOGY_PLUGINS and not any(conf.with_name(name).is_file() for name in TOPOLOGY_FILES):
        missing = " or ".join(TOPOLOGY_FILES)
        log("WARNING", f"{SLURM_CONF} has TopologyPlugin={plugin}, but there is no {missing} beside it; add it")


def check_disks() -> None:
    """One line for each disk that fills up when containers run."""
    for path in filter(None, ("/", first_mounted(("/opt/dlami/nvme",)), first_mounted(("/opt/sagemaker",)))):
        free = shutil.disk_usage(on_node(path)).free
        level = "WARNING" if free < LEAST_FREE_BYTES else "INFO"
        log(level, f"{free / 2**30:.1f} GiB are free on {path}")


def check_node(node_type: str, instance_type: str) -> None:
    """All checks."""
    file = Path(__file__).resolve().parents[1] / DEVICES
    devices = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    if instance_type in devices:
        check_devices(instance_type, devices[instance_type])
        check_drivers(devices[instance_type])
    else:
        log("INFO", f"nothing is known of what an instance of the type {instance_type} has")
    check_disks()
    check_containers()
    if node_type == "controller":
        check_topology()


if __name__ == "__main__":
    sys.exit(run_step(lambda: check_node(*sys.argv[1:])))
