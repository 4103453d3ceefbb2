#!/usr/bin/env python3
"""Run the drain agent, which is in agent/. Usage: drain_agent.py FILE.

systemd starts this file (step drain). The agent's log lines begin with its name, and `ps` shows it.

FILE: {"cluster": ..., "bucket": ..., "region": ..., "backup": {"paths": [...], "to": ..., "on_failure": "fail"},
       {"hook": ..., "on_failure": "fail"} or null}

Only the standard library, and nothing newer than Python 3.8.
"""

from __future__ import annotations

import sys

from agent.loop import main
from lib import run_step

if __name__ == "__main__":
    sys.exit(run_step(lambda: main(sys.argv[1])))
