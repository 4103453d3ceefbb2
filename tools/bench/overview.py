"""Measures `cdk-hyperpod --help` as a multiple of an empty Python's start. The goal is 3.

The two kinds alternate, and the ratio is the median of the pairs' ratios, so that other load affects both equally.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

GOAL, PAIRS = 3.0, 40
EMPTY = [sys.executable, "-c", "pass"]
OVERVIEW = [str(Path(sys.executable).with_name("cdk-hyperpod")), "--help"]


def seconds(command: list[str]) -> float:
    """Wall-clock time of one new process."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    seconds(EMPTY), seconds(OVERVIEW)
    pairs = [(seconds(EMPTY), seconds(OVERVIEW)) for _ in range(PAIRS)]
    ratio = statistics.median(second / first for first, second in pairs)
    empty, overview = (statistics.median(kind) * 1000 for kind in zip(*pairs, strict=True))
    print(f"--help: {ratio:.2f} times an empty Python ({overview:.0f} and {empty:.0f} ms; goal: {GOAL:.0f})")


if __name__ == "__main__":
    main()
