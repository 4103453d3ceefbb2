"""`cdk-hyperpod local`: a rehearsal on this machine. Its commands and options are the local AWS's own, loaded only here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

__all__ = ["add_local_parser", "run_local"]


def add_local_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Name it among a tool's commands; `run_local` takes what follows the word."""
    subparsers.add_parser("local", help="rehearse a deployment of any app on an AWS on this machine", add_help=False)


def run_local(arguments: Sequence[str]) -> int:
    """Run one command of the local AWS, such as `deploy`; its exit code."""
    from cdk_hyperpod_local.commands.__main__ import run_alone

    return run_alone(arguments)
