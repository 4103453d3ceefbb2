"""Measures time and memory of a plan, for clusters from 100 nodes to HyperPod's maximum, and whether they grow linearly.

The maximum is 100 groups with 6,758 nodes in all. Each measurement plans a deployment that deletes a tenth of every
group.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from datetime import UTC, datetime, timedelta

from cdk_hyperpod._lambda.hyperpod.scale_down.decide.planner import plan
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import Cluster, Desired, DesiredGroup, Fixed, Group, Node

MOST_NODES = 6_758
GROUPS = 100
SIZES = (100, 200, 400, 845, 1_690, 3_379, MOST_NODES)
LIMIT_SECONDS = 0.1
LIMIT_MB = 100.0
ROUNDS = 25
TOLERANCE = 1.25
"""The largest growth that still counts as linear, because the machine may be busy."""

FIXED = Fixed(
    instance_types=("ml.p5.48xlarge",), node_type="Compute", execution_role="arn:aws:iam::111122223333:role/node"
)


def cluster(nodes: int, groups: int = GROUPS) -> Cluster:
    """A live cluster with its nodes spread over its groups, and mixed statuses and images."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    members = tuple(
        Node(
            group=f"group-{number % groups}",
            instance_id=f"i-{number:017x}",
            status="Failure" if number % 97 == 0 else "Running",
            launched=began + timedelta(seconds=number * 7_919 % 86_400),
            outdated=number % 5 == 0,
        )
        for number in range(nodes)
    )
    counts = [nodes // groups + (group < nodes % groups) for group in range(groups)]
    return Cluster(
        name="train",
        arn="arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghijkl",
        continuous=True,
        groups=tuple(
            Group(name=f"group-{n}", fixed=FIXED, current=count, target=count) for n, count in enumerate(counts)
        ),
        nodes=members,
    )


def desired(live: Cluster) -> Desired:
    """A deployment with a tenth fewer nodes in every group, some of them named."""
    return Desired(
        cluster=live.name,
        groups=tuple(
            DesiredGroup(name=group.name, count=group.target - group.target // 10, fixed=FIXED) for group in live.groups
        ),
        max_nodes=MOST_NODES,
    )


def seconds(cases: dict[int, tuple[Cluster, Desired]]) -> dict[int, float]:
    """Processor time of one plan by size: the best of some rounds, in which the sizes alternate."""
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for size, (live, wanted) in cases.items():
            began = time.process_time()
            plan(live, wanted)
            best[size] = min(best[size], time.process_time() - began)
    return best


def megabytes(nodes: int) -> float:
    """The peak memory of a cluster and its plan together."""
    tracemalloc.start()
    live = cluster(nodes)
    plan(live, desired(live))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6


def main() -> int:
    """0 if the largest cluster stays within the limits, and time grows no faster than the cluster."""
    cases = {size: (live := cluster(size), desired(live)) for size in SIZES}
    times = seconds(cases)
    print(f"one plan, {GROUPS} groups, best of {ROUNDS}; ratios to the row above:\n")
    print(f"  {'nodes':>6}{'ms':>8}{'MB':>8}{'nodes ratio':>13}{'time ratio':>12}")
    linear = True
    for before, size in zip((None, *SIZES), SIZES, strict=False):
        ratios = ""
        if before:
            grown, slower = size / before, times[size] / times[before]
            linear &= slower <= grown * TOLERANCE
            ratios = f"{grown:>13.2f}{slower:>12.2f}"
        print(f"  {size:>6,}{times[size] * 1000:>8.1f}{megabytes(size):>8.1f}{ratios}")
    held = linear and times[MOST_NODES] < LIMIT_SECONDS and megabytes(MOST_NODES) < LIMIT_MB
    print(
        f"\n  Goal: {MOST_NODES:,} nodes below {LIMIT_SECONDS * 1000:.0f} ms and {LIMIT_MB:.0f} MB, and time never grows "
        f"faster than the nodes: {'held' if held else 'MISSED'}"
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
