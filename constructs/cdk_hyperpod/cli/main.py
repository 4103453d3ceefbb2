"""The entry point of the command-line tool. The overview loads no library, so it appears at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from .commands import overview
from .exits import INTERRUPTED, give_up_output


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool. Returns its exit code: 0; 1 for an error; 2 for wrong usage; 130 for Ctrl-C; or a command's own."""
    _prepare_output()
    given = sys.argv[1:] if arguments is None else [*arguments]
    if given in (["--help"], ["-h"]):
        return _print_overview()
    try:
        # It takes half a second, in which the user may press Ctrl-C.
        from .frame import run
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    return run(given)


def _prepare_output() -> None:
    """Print characters that the terminal's encoding lacks as question marks, and discard the output if it is closed."""
    # Python sets a stream to None if it was closed before it started.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _print_overview() -> int:
    try:
        print(overview(colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")), end="", flush=True)
    except OSError as error:
        return give_up_output(error)
    return 0
