#!/usr/bin/env python3
"""Wait until Slurm answers. Usage: 20_slurm.py NODE_TYPE CONTROLLER_ADDRESS.

Under OnInitComplete HyperPod has set Slurm up, and its daemons may still be starting. Under OnCreate they may be off. So this
step waits for the node's own daemon and for the controller. It starts a daemon that is still off after a tenth of the checks, with
systemctl alone. Known causes that keep a daemon from starting are repaired or reported.

CONTROLLER_ADDRESS: the address from which a daemon without slurm.conf fetches it. `-`: HyperPod's file does not have it.
"""

from __future__ import annotations

import sys

from lib import StepError, attempts, install_unit, last_line, log, on_node, run, run_step, wait_until, what_failed

DAEMONS = {"controller": ("slurmctld",), "login": ("sackd", "slurmd"), "compute": ("slurmd",)}
"""The daemon of each node type: the first that the node has. On a login node it only fetches slurm.conf."""
HELPERS = {"slurmctld": ("munge", "slurmdbd"), "sackd": ("munge",), "slurmd": ("munge",)}
"""What each of them needs running before it."""
SLURM_CONFS = ("/opt/slurm/etc/slurm.conf", "/etc/slurm/slurm.conf")
TOPOLOGY = "/opt/slurm/etc/topology.yaml"
LOGS = ("/var/log/slurm/{}.log", "/var/log/{}.log")


def wait_for_slurm(node_type: str, controller: str) -> None:
    """End when Slurm answers on this node. Raises StepError when it does not."""
    daemon = find_daemon(node_type)
    # HyperPod starts daemons, too. Two starts of one daemon do no harm, but HyperPod should come first.
    patience = max(1, attempts() // 10)

    def look(attempt: int) -> str | None:
        missing = what_is_missing(daemon, node_type)
        if missing and attempt >= patience and daemon and not is_up(daemon):
            start(daemon, controller)
            missing = what_is_missing(daemon, node_type)
        return missing

    try:
        wait_until("Slurm answers", look)
    except StepError as error:
        raise StepError(f"{error}; {diagnosis(daemon, node_type, controller)}") from error
    log("INFO", "Slurm answers" + (f", {daemon} runs" if daemon and is_up(daemon) else ""))


def find_daemon(node_type: str) -> str | None:
    """The daemon that this node has, by the units that systemd knows. None: a login node without any."""
    for name in DAEMONS[node_type]:
        if property_of(name, "LoadState") == "loaded":
            return name
    if node_type == "login":
        return None
    raise StepError(
        f"systemd has no unit {' or '.join(DAEMONS[node_type])}; use an image of HyperPod's for Slurm, and look at "
        "`systemctl status`"
    )


def what_is_missing(daemon: str | None, node_type: str) -> str | None:
    """What keeps jobs from running here, as far as this node can see. None: nothing."""
    if daemon and node_type != "login" and not is_up(daemon):
        return f"{daemon} is {property_of(daemon, 'ActiveState') or 'unknown'}"
    ping = run("scontrol", "ping", timeout_s=30)
    if "is UP" not in ping.stdout:
        return f"slurmctld does not answer `scontrol ping` ({what_failed(ping.stdout)})"
    return None


def is_up(daemon: str) -> bool:
    """Whether systemd runs it."""
    return property_of(daemon, "ActiveState") == "active"


def property_of(unit: str, name: str) -> str:
    """A property of a unit, as `systemctl show` has it."""
    done = run("systemctl", "show", "--property", name, f"{unit}.service", timeout_s=30)
    if done.returncode == 127:
        raise StepError("there is no systemctl, with which Slurm's daemons are run; use an image of HyperPod's")
    return done.stdout.partition("=")[2].strip() if done.returncode == 0 else ""


def start(daemon: str, controller: str) -> None:
    """Start a daemon that is off. It raises nothing: the error is reported at the end of the wait."""
    if daemon == "slurmctld":
        heal_topology()
    if _is_starting(daemon):
        return
    for helper in HELPERS[daemon]:
        _start_helper(helper)
    if daemon != "slurmctld" and not _has_slurm_conf() and controller != "-":
        configure_from(daemon, controller)
    log("INFO", f"{daemon} is {property_of(daemon, 'ActiveState')}; starting it")
    # systemd does not start a unit that failed too often before its failures are reset.
    run("systemctl", "reset-failed", f"{daemon}.service")
    run("systemctl", "enable", f"{daemon}.service")
    done = run("systemctl", "start", f"{daemon}.service")
    if done.returncode != 0:
        log("WARNING", f"`systemctl start {daemon}` failed: {last_line(done.stdout)}")


def _is_starting(daemon: str) -> bool:
    # A daemon that ends again and again is `activating` too, while systemd waits to start it once more.
    if property_of(daemon, "SubState").startswith("auto-restart"):
        return False
    return property_of(daemon, "ActiveState") in ("activating", "reloading")


def _start_helper(helper: str) -> None:
    """Start a daemon that Slurm's own needs, if the node has it and it is off."""
    state = property_of(helper, "ActiveState")
    if property_of(helper, "LoadState") != "loaded" or state not in ("inactive", "failed"):
        return
    if helper == "slurmdbd" and run("systemctl", "is-enabled", "slurmdbd.service").returncode != 0:
        return
    log("INFO", f"{helper} is {state}; starting it")
    run("systemctl", "reset-failed", f"{helper}.service")
    run("systemctl", "start", f"{helper}.service")


def _has_slurm_conf() -> bool:
    return any(on_node(path).exists() for path in SLURM_CONFS)


def configure_from(daemon: str, controller: str) -> None:
    """Let a daemon without slurm.conf fetch it from the controller, with the options that HyperPod's own units use."""
    options = f"{daemon.upper()}_OPTIONS"
    content = f'[Service]\nEnvironment="{options}=--conf-server {controller}:6817"\n'
    install_unit(f"{daemon}.service.d/cdk-hyperpod.conf", content)


def heal_topology() -> None:
    """Rename an empty topology.yaml: slurmctld 25.11 exits when it reads one."""
    topology = on_node(TOPOLOGY)
    if topology.is_file() and not topology.read_text("utf-8", "replace").strip():
        topology.replace(topology.with_name("topology.yaml.empty"))
        log("WARNING", f"{TOPOLOGY} was empty, at which slurmctld ends; it is topology.yaml.empty now")


def diagnosis(daemon: str | None, node_type: str, controller: str) -> str:
    """What to do, by the daemon's last messages."""
    said = "" if daemon is None else what_it_said(daemon)
    if "CLUSTER ID MISMATCH" in said:
        return (
            "CLUSTER ID MISMATCH: the accounting database knows this cluster by another id than slurmctld's own state; "
            "for a new cluster, remove the file clustername in StateSaveLocation (`scontrol show config` names it) and "
            "start slurmctld; for an old one, give it back its database"
        )
    if node_type != "controller" and (daemon is None or is_up(daemon)):
        clock = run("timedatectl", "show", "--property", "NTPSynchronized").stdout
        skewed = "; this node's clock is not synchronized, at which munge refuses everything" if "=no" in clock else ""
        return f"look at slurmctld on the controller ({controller}), and at port 6817 between the nodes{skewed}"
    fatal = [line for line in said.splitlines() if "fatal" in line or "error" in line]
    last = f"; it said last: {last_line(fatal[-1])}" if fatal else ""
    return f"look at `journalctl -u {daemon}`{last}"


def what_it_said(daemon: str) -> str:
    """The end of a daemon's log, of the journal or of its file."""
    said = run("journalctl", "--no-pager", "--output", "cat", "--lines", "100", "--unit", f"{daemon}.service").stdout
    for pattern in LOGS:
        file = on_node(pattern.format(daemon))
        if file.is_file():
            with file.open("rb") as log_file:
                log_file.seek(max(0, file.stat().st_size - 20_000))
                said += log_file.read().decode("utf-8", "replace")
    return said


if __name__ == "__main__":
    sys.exit(run_step(lambda: wait_for_slurm(sys.argv[1], sys.argv[2])))
