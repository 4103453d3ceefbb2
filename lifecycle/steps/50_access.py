#!/usr/bin/env python3
"""Keep jobs off login nodes, and users without a job off compute nodes. Usage: 50_access.py NODE_TYPE.

HyperPod's partition `dev` contains the login node, too. slurm.conf is HyperPod's, so this step drains the login node. A timer checks
that again every five minutes, because a replaced controller has lost the drain. A compute node uses pam_slurm_adopt, which admits
root, and users while they have a job there. A login node never uses it: it would lock its users out.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from lib import (
    OWN_MARK,
    PROGRAMS,
    StepError,
    ask_slurm,
    install_program,
    install_unit,
    log,
    must_run,
    on_node,
    run,
    run_step,
    write_file,
)

REASON = "login node: runs no jobs"
PAM_SSHD = "/etc/pam.d/sshd"
PAM_LINE = "account    required     {}"
"""With the whole path: libpam searches a bare name in its own folder alone, and a missing module locks everybody out."""
PAM_FOLDERS = ("lib/security", "lib64/security", "usr/lib/security", "usr/lib64/security", "opt/slurm/lib/security")
SERVICE = f"""\
[Unit]
Description=Keep jobs off this login node

[Service]
Type=oneshot
ExecStart=/usr/bin/env python3 -B {PROGRAMS}/access.py login
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/opt/slurm/sbin
"""
TIMER = """\
[Unit]
Description=Look every five minutes whether jobs are kept off this login node

[Timer]
OnBootSec=1min
OnUnitActiveSec=5min

[Install]
WantedBy=timers.target
"""


def own_node(nodes: str, names: frozenset[str], addresses: frozenset[str]) -> dict[str, str] | None:
    """This node in the output of `scontrol --oneliner show node`; None: Slurm does not know it.

    By its host name, else by its address: HyperPod may call nodes in Slurm by the names of their instances
    (UseInstanceNames). Raises StepError if two nodes have an address of this one: no other node may be drained.
    """
    # What comes after Reason= may hold anything.
    known = [
        dict(word.split("=", 1) for word in line.split(" Reason=")[0].split() if "=" in word)
        for line in nodes.splitlines()
    ]
    by_name = [node for node in known if names & {node.get("NodeHostName", ""), node.get("NodeName", "")}]
    found = by_name or [node for node in known if node.get("NodeAddr", "") in addresses]
    if len(found) > 1:
        several = ", ".join(node.get("NodeName", "") for node in found)
        raise StepError(f"Slurm has more than one node that may be this one: {several}; look at NodeAddr in slurm.conf")
    return found[0] if found else None


def own_addresses() -> frozenset[str]:
    """This node's addresses, as Slurm may have them in NodeAddr. Not those that every machine has."""
    interfaces = json.loads(must_run("ip", "-json", "address", "show"))
    found = [address.get("local", "") for interface in interfaces for address in interface.get("addr_info", ())]
    return frozenset(found) - {"", "127.0.0.1", "::1"}


def keep_jobs_off() -> None:
    """Drain this node, unless it is drained."""
    shown = ask_slurm("scontrol", "--oneliner", "show", "node")
    host = os.uname().nodename
    node = own_node(shown, frozenset({host, host.split(".")[0]}), own_addresses())
    if node is None:
        log("INFO", "Slurm does not know this node, so no job runs here")
    elif "DRAIN" in node.get("State", ""):
        log("INFO", f"{node['NodeName']} is drained: no job runs here")
    else:
        ask_slurm("scontrol", "update", f"NodeName={node['NodeName']}", "State=DRAIN", f"Reason={REASON}")
        log("INFO", f"drained {node['NodeName']}: no job runs on a login node")


def watch() -> None:
    """Look again every five minutes."""
    install_program("access.py", Path(__file__).read_text("utf-8"))
    install_unit("cdk-hyperpod-access.service", SERVICE)
    install_unit("cdk-hyperpod-access.timer", TIMER)
    if run("systemctl", "is-active", "cdk-hyperpod-access.timer").returncode != 0:
        must_run("systemctl", "enable", "--now", "cdk-hyperpod-access.timer")


def find_module(root: Path) -> str | None:
    """The path of pam_slurm_adopt on the node; None: it has none."""
    folders = [root / folder for folder in PAM_FOLDERS] + sorted(root.glob("usr/lib/*/security"))
    files = [folder / "pam_slurm_adopt.so" for folder in folders]
    return next((f"/{file.relative_to(root)}" for file in files if file.exists()), None)


def let_in_by_job() -> None:
    """Add pam_slurm_adopt to sshd, if the image has it."""
    module = find_module(on_node("/"))
    if module is None:
        log("WARNING", "this image has no pam_slurm_adopt: users without a job may log in to this node")
        return
    file = on_node(PAM_SSHD)
    text = file.read_text("utf-8") if file.is_file() else ""
    if any("pam_slurm_adopt" in line and not line.lstrip().startswith("#") for line in text.splitlines()):
        log("INFO", "users log in to this node while they have a job here")
        return
    if not text:
        log("WARNING", f"there is no {PAM_SSHD}: users without a job may log in to this node")
        return
    write_file(PAM_SSHD, f"{text.rstrip()}\n# {OWN_MARK}\n{PAM_LINE.format(module)}\n")
    log("INFO", "users log in to this node while they have a job here")


def control_access(node_type: str) -> None:
    """Set up the access that a node of this type needs."""
    if node_type == "compute":
        let_in_by_job()
        return
    keep_jobs_off()
    if not __file__.startswith(PROGRAMS):
        watch()


if __name__ == "__main__":
    sys.exit(run_step(lambda: control_access(sys.argv[1])))
