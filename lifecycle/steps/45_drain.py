#!/usr/bin/env python3
"""Start the drain agent, where the cluster has one. Usage: 45_drain.py CLUSTER_FILE.

Runs on the controller. The agent is one process under systemd (drain_agent.py), which is started again when it ends, and
when its files have changed. It keeps nothing, so a new one goes on where the old one was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lib import (
    PROGRAMS,
    install_program,
    install_unit,
    log,
    must_run,
    owe,
    read_cluster,
    run,
    run_step,
    settle,
    wait_until,
    write_file,
)

UNIT = "cdk-hyperpod-drain.service"
SETTINGS = f"{PROGRAMS}/drain.json"
RESTART = "drain-restart"
PARTS = ("drain_protocol.py", "s3.py", "backup.py", "drain_agent.py")
SERVICE = f"""\
[Unit]
Description=Drain and save nodes that are about to go (cdk-hyperpod)
After=network-online.target slurmctld.service
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/env python3 -B {PROGRAMS}/drain_agent.py {SETTINGS}
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/opt/slurm/sbin
Restart=always
RestartSec=5
MemoryMax=256M
NoNewPrivileges=yes
ProtectHome=read-only
ProtectSystem=strict
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def start_agent(cluster_file: str) -> None:
    """Install the agent and have it run as it is now."""
    cluster = read_cluster(cluster_file)
    settings = {"cluster": cluster["cluster_name"], **cluster["drain"]}
    here = Path(__file__).resolve().parents[1]
    texts = {name: (here / name).read_text("utf-8") for name in PARTS}
    if run("systemctl", "is-active", UNIT).returncode != 0:
        owe(RESTART)
    changed = [install_program(name, text) for name, text in texts.items()]
    if any([*changed, write_file(SETTINGS, json.dumps(settings, sort_keys=True) + "\n", owes=(RESTART,))]):
        owe(RESTART)
    install_unit(UNIT, SERVICE, owes=(RESTART,))
    if not settle(RESTART, _restart):
        log("INFO", f"{UNIT} runs")


def _restart() -> None:
    must_run("systemctl", "enable", UNIT)
    must_run("systemctl", "restart", UNIT)
    wait_until(
        "the drain agent runs",
        lambda _: (
            None
            if run("systemctl", "is-active", UNIT).returncode == 0
            else f"{UNIT} does not run; look at `journalctl -u {UNIT}`"
        ),
    )
    log("INFO", f"started {UNIT}")


if __name__ == "__main__":
    sys.exit(run_step(lambda: start_agent(sys.argv[1])))
