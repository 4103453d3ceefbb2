"""Cold start of the scale-down Lambda against a plain boto3 client: time and memory, as ratios of one run.

Each measurement is a new Python process, from before the first import until a SageMaker client is ready for its first
call. The two kinds alternate, and the ratio is the median of the pairs' ratios, so that a busy machine touches both alike. Three conditions, because nobody documents whether the Lambda
runtime's own packages come with bytecode: everything compiled, only our files uncompiled (a zip without bytecode), nothing
compiled. The goal is for the first.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LAMBDA = Path(__file__).parent.parent / "constructs" / "cdk_hyperpod" / "_lambda"
ROUNDS = 15
GOAL = 0.6

PLAIN = "import boto3; client = boto3.client('sagemaker')"
OURS = (
    f"sys.path.insert(0, {str(LAMBDA)!r}); from hyperpod_provider import handler; client = handler.client('sagemaker')"
)
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
    """Seconds by the clock, seconds of processor time, and MB at the peak, of one new process."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(code=code)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    found: list[float] = json.loads(done.stdout)
    return found


def compare(name: str, plain: dict[str, str], ours: dict[str, str], rounds: int = ROUNDS) -> tuple[float, float]:
    """Print one line; the ratio of times and of memory, ours to plain."""
    measure(PLAIN, plain), measure(OURS, ours)  # the first run of each writes what bytecode it may
    runs = [(measure(PLAIN, plain), measure(OURS, ours)) for _ in range(rounds)]
    wall, cpu, memory = (statistics.median(ours[n] / plain[n] for plain, ours in runs) for n in range(3))
    best = [(min(run[0][n] for run in runs), min(run[1][n] for run in runs)) for n in range(3)]
    print(
        f"{name:<22} ratio {wall:.2f} ({cpu:.2f} of processor time), memory {memory:.2f};   best of {rounds}: "
        + ", ".join(f"{who} {best[0][n]:.3f} s {best[2][n]:.0f} MB" for n, who in enumerate(("boto3", "ours")))
    )
    return wall, memory


def main() -> int:
    """0 if the goal holds in the first condition."""
    bare = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("AWS_", "PYTHONPYCACHE", "PYTHONDONTWRITE"))
    } | CREDENTIALS
    with tempfile.TemporaryDirectory() as folder:
        both = {**bare, "PYTHONPYCACHEPREFIX": f"{folder}/both"}
        time, memory = compare("everything compiled", both, both)
        # Bytecode of botocore only: filled by the plain run, then kept from being added to.
        library = {**bare, "PYTHONPYCACHEPREFIX": f"{folder}/library"}
        measure(PLAIN, library)
        compare("our files uncompiled", library, {**library, "PYTHONDONTWRITEBYTECODE": "1"})
        nothing = {**bare, "PYTHONPYCACHEPREFIX": f"{folder}/nothing", "PYTHONDONTWRITEBYTECODE": "1"}
        compare("nothing compiled", nothing, nothing)
    held = time < GOAL and memory <= 1
    print(f"goal (everything compiled): time below {GOAL}, memory at most 1: {'held' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
