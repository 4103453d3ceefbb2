"""Compares the cold start of the scale-down Lambda with a plain boto3 client: time and memory, as ratios.

Each measurement is a new Python process, from before the first import until a SageMaker client is ready for its first
call. The two kinds alternate, and the ratio is the median of the pairs' ratios, so that other load affects both
equally. There are three conditions, because AWS does not document whether the Lambda runtime's own packages have
bytecode: everything compiled, only our files uncompiled (a zip without bytecode), nothing compiled. The goal is for the
first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LAMBDA = Path(__file__).resolve().parents[2] / "constructs" / "cdk_hyperpod" / "_lambda"
GOAL = 1.2

PLAIN = "import boto3; client = boto3.client('sagemaker')"
OURS = f"sys.path.insert(0, {str(LAMBDA)!r}); from hyperpod.scale_down import handler; client = handler.client('sagemaker')"
MEASURE = """
import json, resource, sys, time
wall, cpu = time.perf_counter(), time.process_time()
{code}
client.describe_cluster
used = [time.perf_counter() - wall, time.process_time() - cpu]
print(json.dumps([*used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "us-west-2"}


def measure(code: str, environment: dict[str, str]) -> list[float]:
    """Wall-clock seconds, processor seconds, and peak MB of one new process."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(code=code)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    found: list[float] = json.loads(done.stdout)
    return found


def compare(name: str, plain: dict[str, str], ours: dict[str, str], rounds: int) -> tuple[float, float]:
    """Print one row: our times and memory divided by those of plain boto3."""
    measure(PLAIN, plain), measure(OURS, ours)  # the first run of each writes the bytecode that it can
    runs = [(measure(PLAIN, plain), measure(OURS, ours)) for _ in range(rounds)]
    wall, cpu, memory = (statistics.median(ours[n] / plain[n] for plain, ours in runs) for n in range(3))
    medians = [[statistics.median(run[who][n] for run in runs) for who in range(2)] for n in (0, 2)]
    (plain_s, ours_s), (plain_mb, ours_mb) = medians
    print(
        f"  {name:<22}{plain_s:>9.3f}{ours_s:>9.3f}{wall:>8.2f}{cpu:>11.2f}{plain_mb:>10.0f}{ours_mb:>9.0f}{memory:>8.2f}"
    )
    return wall, memory


def main() -> int:
    """0 if the goal is met in the first condition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="pairs of runs for each condition (default: 15)")
    rounds = parser.parse_args().rounds
    bare = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("AWS_", "PYTHONPYCACHE", "PYTHONDONTWRITE"))
    } | CREDENTIALS
    print(f"import to a SageMaker client that is ready, medians of {rounds} pairs of processes:\n")
    print(
        f"  {'':<22}{'boto3 s':>9}{'ours s':>9}{'ratio':>8}{'CPU ratio':>11}{'boto3 MB':>10}{'ours MB':>9}{'ratio':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        both = {**bare, "PYTHONPYCACHEPREFIX": f"{folder}/both"}
        time, memory = compare("everything compiled", both, both, rounds)
        # Bytecode of botocore only: the plain run writes it, and then the folder is made read-only.
        library = {**bare, "PYTHONPYCACHEPREFIX": f"{folder}/library"}
        measure(PLAIN, library)
        compare("our files uncompiled", library, {**library, "PYTHONDONTWRITEBYTECODE": "1"}, rounds)
        nothing = {**bare, "PYTHONPYCACHEPREFIX": f"{folder}/nothing", "PYTHONDONTWRITEBYTECODE": "1"}
        compare("nothing compiled", nothing, nothing, rounds)
    held = time < GOAL and memory <= 1
    print(f"\n  Goal, with everything compiled: time below {GOAL}, memory at most 1: {'held' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
