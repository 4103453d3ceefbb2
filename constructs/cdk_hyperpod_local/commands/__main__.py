"""The command line of the local AWS."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]

from cdk_hyperpod_local import daemon
from cdk_hyperpod_local.commands import report, run
from cdk_hyperpod_local.daemon import EngineError
from cdk_hyperpod_local.places import CHECKOUT, DEFAULT_PORT, Place


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="local_aws", description="AWS on this machine, for one cluster file")
    parser.add_argument("command", choices=("deploy", "plan", "diff", "drift", "destroy", "shell", "status", "stop"))
    parser.add_argument("--config", default="cluster.yaml", help="the cluster file (default: cluster.yaml)")
    parser.add_argument("--app", type=Path, default=CHECKOUT, help="the CDK app's folder (default: this project)")
    parser.add_argument("--port", default=str(DEFAULT_PORT), help=f"the engine's port (default: {DEFAULT_PORT})")
    parser.add_argument("--speed", default="100", help="AWS's long waits pass so many times faster")
    given = parser.parse_args(arguments)
    try:
        place, speed = Place(_port(given.port)), _speed(given.speed)
    except EngineError as error:
        return _failed(error)
    try:
        return run.COMMANDS[given.command](
            run.Job(place=place, config=given.config, app=given.app.resolve(), speed=speed)
        )
    except EngineError as error:
        return _failed(error)
    except BotoCoreError as error:  # no refusal of the engine's, which answers those
        return _failed(f"{error}; the engine's log is {place.log}")
    except OSError as error:
        hint = f"; everything below {place.home} has to be yours to write"
        return _failed(f"{error}{hint if str(error.filename).startswith(str(place.home)) else ''}")
    except KeyboardInterrupt:
        end = report.make("destroy-local", place)
        rest = f"the engine goes on, `{end}` ends it" if daemon.running(place) else "no engine runs"
        print(file=sys.stderr)
        _failed(f"interrupted; {rest}")
        return 130


def _port(given: str) -> int:
    port = int(given) if given.isdecimal() and len(given) <= 5 else 0
    if not 1 <= port <= 65535:
        raise EngineError(f"LOCAL_PORT={given} is no port: choose one from 1 to 65535")
    return port


def _speed(given: str) -> float:
    try:
        speed = float(given)
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise EngineError(f"LOCAL_SPEED={given} is no speed: choose a number above 0, as 100")
    return speed


def _failed(why: object) -> int:
    print(f"local AWS: {why}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    # `kill` is heard like Ctrl-C: the CLI that runs for the command ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
