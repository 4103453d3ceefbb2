#!/usr/bin/env python3
"""Keep users' jobs from starting on a new controller until its slurm.conf has our lines (closed.py). Usage: 02_closed.py."""

from __future__ import annotations

import sys

from closed import close
from lib import run_step

if __name__ == "__main__":
    sys.exit(run_step(close))
