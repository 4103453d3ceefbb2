"""The command-line tool's way in. What needs no command, needs no library either: the overview comes at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .commands import overview


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool. Returns its exit code: 0; 1 where something is wrong; 2 for wrong usage; 130 for Ctrl-C; or a command's own."""
    given = sys.argv[1:] if arguments is None else [*arguments]
    if given in (["--help"], ["-h"]):
        return _print_overview()
    from .frame import run

    return run(given)


def _print_overview() -> int:
    try:
        print(overview(colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")), end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0
