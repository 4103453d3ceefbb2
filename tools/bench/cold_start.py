"""Compares the guard's cold start with a plain boto3 client: time and memory, as ratios.

Each measurement is a new Python process with compiled files, from before the first import until a SageMaker client is ready
for its first call. The two kinds alternate, and the ratio is the median of the pairs' ratios, so that other load affects
both equally.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LAMBDA = Path(__file__).resolve().parents[2] / "constructs" / "cdk_hyperpod" / "_lambda"
AIM, PAIRS = 1.0, 15

PLAIN = "import boto3; client = boto3.client('sagemaker')"
OURS = f"sys.path.insert(0, {str(LAMBDA)!r}); from hyperpod.scale_down import handler; client = handler.client('sagemaker')"
MEASURE = """
import json, resource, sys, time
wall, cpu = time.perf_counter(), time.process_time()
{code}
client.describe_cluster
used = [time.perf_counter() - wall, time.process_time() - cpu]
print(json.dumps([*used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def measure(code: str, environment: dict[str, str]) -> list[float]:
    """Wall-clock seconds, processor seconds, and peak memory of one new process."""
    command = [sys.executable, "-c", MEASURE.format(code=code)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure and print."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "PYTHONDONTWRITE"))}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**inherited, "AWS_DEFAULT_REGION": "us-west-2", "PYTHONPYCACHEPREFIX": folder}
        pairs = [(measure(PLAIN, environment), measure(OURS, environment)) for _ in range(PAIRS + 1)][1:]
    wall, cpu, memory = (statistics.median(ours[n] / plain[n] for plain, ours in pairs) for n in range(3))
    print(
        f"cold start, against boto3: {wall:.2f} by the clock, {cpu:.2f} of processor, {memory:.2f} of memory (aim: {AIM})"
    )


if __name__ == "__main__":
    main()
