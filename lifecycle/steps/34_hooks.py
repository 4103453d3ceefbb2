#!/usr/bin/env python3
"""Install the programs of slurm.prolog and slurm.epilog on a node that runs jobs. Usage: 34_hooks.py CLUSTER_FILE.

They run once the controller has tried them on one node, and named them in slurm.conf (35_slurm_conf.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

from hooks import install_here
from lib import read_cluster, run_step

if __name__ == "__main__":
    SCRIPTS = Path(__file__).resolve().parents[1]
    sys.exit(run_step(lambda: install_here(SCRIPTS, read_cluster(sys.argv[1])["slurm"])))
