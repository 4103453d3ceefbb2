#!/usr/bin/env python3
"""Put our lines into slurm.conf, and keep them there. Usage: 35_slurm_conf.py SETTINGS (JSON).

Runs on the controller. A slurmctld that enforces accounts does not start without the database, so that is waited for
first. slurm_conf.py does the work; it is installed where a systemd path unit runs it again whenever HyperPod has written slurm.conf.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from database import wait_for_database
from lib import PROGRAMS, install_program, install_unit, must_run, run, run_step, write_file
from slurm_conf import SLURM_CONF, keep

SETTINGS = f"{PROGRAMS}/slurm_conf.json"
SERVICE = f"""\
[Unit]
Description=Put the lines of cdk-hyperpod back into slurm.conf

[Service]
Type=oneshot
ExecStart=/usr/bin/env python3 -B {PROGRAMS}/slurm_conf.py {SETTINGS}
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/opt/slurm/sbin
"""
PATH = f"""\
[Unit]
Description=HyperPod has written slurm.conf

[Path]
PathChanged={SLURM_CONF}

[Install]
WantedBy=multi-user.target
"""


def put_lines(settings_text: str) -> None:
    """Write our lines now, and whenever they are gone."""
    settings = json.loads(settings_text)
    if "AccountingStorageEnforce" in settings:
        wait_for_database()
    program = Path(__file__).resolve().parents[1] / "slurm_conf.py"
    install_program("slurm_conf.py", program.read_text("utf-8"))
    write_file(SETTINGS, json.dumps(settings, sort_keys=True) + "\n")
    install_unit("cdk-hyperpod-slurm-conf.service", SERVICE)
    install_unit("cdk-hyperpod-slurm-conf.path", PATH)
    keep(settings, time.time())
    if run("systemctl", "is-active", "cdk-hyperpod-slurm-conf.path").returncode != 0:
        must_run("systemctl", "enable", "--now", "cdk-hyperpod-slurm-conf.path")


if __name__ == "__main__":
    sys.exit(run_step(lambda: put_lines(sys.argv[1])))
