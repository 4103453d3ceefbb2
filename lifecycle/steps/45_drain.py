#!/usr/bin/env python3
"""Install and start the drain agent. Usage: 45_drain.py CLUSTER_FILE.

Runs on the controller, if the cluster has an agent. The agent is one process under systemd (drain_agent.py). systemd starts it again
when it ends, and this step when its files have changed. The agent stores nothing, so a new process continues where the old one was.

The protocol and drain_agent.py are written last, after the folder beside them. If this step is killed before that, an older agent
without that folder still works. If it is killed between two files that an older agent has, too, a restarted agent may fail until the
step runs again: the restart is still owed. Files that only an older agent had are removed when the new agent runs.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from lib import (
    PROGRAMS,
    install_program,
    install_unit,
    log,
    must_run,
    on_node,
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
FOLDER = "agent"
WITHOUT_FOLDER = ("backup.py", "s3.py")
"""Files of older agents, which had no folder."""
SERVICE = f"""\
[Unit]
Description=Drain and save nodes that are about to be deleted (cdk-hyperpod)
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
    """Install the agent, and restart it if anything changed."""
    cluster = read_cluster(cluster_file)
    settings = {"cluster": cluster["cluster_name"], **cluster["drain"]}
    here = Path(__file__).resolve().parents[1]
    names = programs(here)
    texts = {name: (here / name).read_text("utf-8") for name in names}
    if run("systemctl", "is-active", UNIT).returncode != 0:
        owe(RESTART)
    for name, text in texts.items():
        install_program(name, text, owes=(RESTART,))
    write_file(SETTINGS, json.dumps(settings, sort_keys=True) + "\n", owes=(RESTART,))
    install_unit(UNIT, SERVICE, owes=(RESTART,))
    if not settle(RESTART, _restart):
        log("INFO", f"{UNIT} runs")
    _remove_old_programs(names)


def programs(scripts: Path) -> list[str]:
    """The agent's files in the folder of the scripts, in the order in which they are written."""
    folder = sorted(path.relative_to(scripts).as_posix() for path in (scripts / FOLDER).rglob("*.py"))
    return [*folder, "drain_protocol.py", "drain_agent.py"]


def _remove_old_programs(names: list[str]) -> None:
    """Remove the files of agents of other versions."""
    top = on_node(PROGRAMS)
    # In reverse, what is in a folder comes before the folder.
    found = [*sorted((top / FOLDER).rglob("*"), reverse=True), *(top / name for name in WITHOUT_FOLDER)]
    for path in found:
        if path.is_dir():
            with contextlib.suppress(OSError):  # it is not empty
                path.rmdir()
        elif path.exists() and path.relative_to(top).as_posix() not in names:
            path.unlink()
            log("INFO", f"removed {PROGRAMS}/{path.relative_to(top)}")


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
