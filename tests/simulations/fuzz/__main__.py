"""`make fuzz`: many cases, then some of the accepted ones through CDK and cfn-lint."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from simulations.fuzz.run import MAX_MEMORY_BYTES, run


def main() -> int:
    """0 if no case did something forbidden."""
    parser = argparse.ArgumentParser(prog="fuzz", description="Cluster files that nobody should write")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first case, in millions")
    parser.add_argument("--synthesize", type=int, default=12, help="how many of the accepted ones become templates")
    given = parser.parse_args()
    first = given.seed * 1_000_000
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(range(first, first + given.cases), Path(folder).resolve())
    for line in sorted(outcome.count):
        print(f"  {line:24} {outcome.count[line]:6,}")
    print(
        f"{given.cases:,} cases in {time.monotonic() - began:.0f} s: {len(outcome.accepted):,} accepted, the slowest "
        f"{outcome.slowest:.1f} s, {outcome.memory_bytes / 1e6:.0f} MB at most"
    )
    if outcome.memory_bytes > MAX_MEMORY_BYTES:
        outcome.bad.append(f"memory: {outcome.memory_bytes:,} bytes, of {MAX_MEMORY_BYTES:,}")
    # Here and not before, because CDK alone needs more memory than the loader may use.
    from simulations.fuzz.sample import chosen, lint

    sample = chosen(outcome.accepted, given.synthesize)
    outcome.bad += lint(sample)
    print(f"{len(sample)} of the accepted ones synthesized and given to cfn-lint")
    print("\n".join(outcome.bad) if outcome.bad else "nothing happened that must not")
    return 1 if outcome.bad else 0


if __name__ == "__main__":
    sys.exit(main())
