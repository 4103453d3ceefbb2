"""The command line of the local AWS."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from local_aws.commands import run
from local_aws.daemon import EngineError
from local_aws.places import CHECKOUT, DEFAULT_PORT, Place


def main() -> int:
    parser = argparse.ArgumentParser(prog="local_aws", description="AWS on this machine, for one cluster file")
    parser.add_argument("command", choices=("deploy", "diff", "drift", "destroy", "shell", "status", "stop"))
    parser.add_argument("--config", default="cluster.yaml", help="the cluster file (default: cluster.yaml)")
    parser.add_argument("--app", type=Path, default=CHECKOUT, help="the CDK app's folder (default: this project)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"the engine's port (default: {DEFAULT_PORT})")
    parser.add_argument("--speed", type=float, default=100.0, help="AWS's long waits pass so many times faster")
    given = parser.parse_args()
    job = run.Job(place=Place(given.port), config=given.config, app=given.app.resolve(), speed=given.speed)
    # `kill` is heard like Ctrl-C: the CLI that runs for the command ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run.COMMANDS[given.command](job)
    except EngineError as error:
        print(f"local AWS: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nlocal AWS: interrupted; the engine goes on, `make destroy-local` ends it", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
