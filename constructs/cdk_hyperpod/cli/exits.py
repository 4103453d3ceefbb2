"""How the tool ends after Ctrl-C, or when its output is closed. Needs no library, like main.py."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it."""


def give_up_output(error: OSError) -> int:
    """Report that standard output accepts no more, and return exit code 1. A closed pipe, as of head, is not reported."""
    # Discard what is left to write, or Python would print an error when it exits.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        print(f"standard output: {error.strerror}", file=sys.stderr)
    return 1
