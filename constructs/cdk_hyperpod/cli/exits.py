"""How the tool ends where somebody stops it, or nobody listens. It needs no library, as its way in."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it."""


def give_up_output(error: OSError) -> int:
    """Exit code 1, after standard output took no more. Somebody who piped into head is told nothing."""
    # What is left to write goes nowhere, or Python would complain when it exits.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        print(f"standard output: {error.strerror}", file=sys.stderr)
    return 1
