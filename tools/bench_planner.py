"""How long a plan takes and how much memory, for clusters from 100 nodes to HyperPod's largest, and whether that is linear.

The largest: 100 groups, and 6,758 nodes in all. Each measurement plans a deployment that takes a tenth of every group.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cdk_hyperpod._lambda.hyperpod_provider.model import Cluster, Desired, DesiredGroup, Fixed, Group, Node
from cdk_hyperpod._lambda.hyperpod_provider.planner import plan

MOST_NODES = 6_758
GROUPS = 100
SIZES = (100, 845, 1_690, 3_379, MOST_NODES)
LIMIT_SECONDS = 0.1
LIMIT_MB = 100.0
ROUNDS = 15

FIXED = Fixed(
    instance_types=("ml.p5.48xlarge",), node_type="Compute", execution_role="arn:aws:iam::111122223333:role/node"
)


class Measured(NamedTuple):
    """One size."""

    nodes: int
    seconds: float
    megabytes: float


def cluster(nodes: int, groups: int = GROUPS) -> Cluster:
    """A live cluster with its nodes spread over its groups; statuses and images are mixed."""
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


def wish(live: Cluster) -> Desired:
    """A tenth less of every group, and by name where there are enough."""
    return Desired(
        cluster=live.name,
        groups=tuple(
            DesiredGroup(name=group.name, count=group.target - group.target // 10, fixed=FIXED) for group in live.groups
        ),
        max_nodes=MOST_NODES,
    )


def measure(nodes: int) -> Measured:
    """The best of some rounds, and the peak of what was allocated on top of the cluster itself."""
    live = cluster(nodes)
    wanted = wish(live)
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        plan(live, wanted)
        times.append(time.perf_counter() - began)
    tracemalloc.start()
    live = cluster(nodes)
    plan(live, wish(live))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Measured(nodes=nodes, seconds=min(times), megabytes=peak / 1e6)


def main() -> int:
    """0 if the largest cluster stays within the limits, and time grows no faster than the cluster."""
    found = [measure(nodes) for nodes in SIZES]
    for size in found:
        print(
            f"{size.nodes:>6,} nodes in {GROUPS} groups: {size.seconds * 1000:6.1f} ms, {size.megabytes:5.1f} MB, "
            f"{size.seconds / size.nodes * 1e6:5.2f} µs a node"
        )
    largest, small = found[-1], found[0]
    growth = (largest.seconds / small.seconds) / (largest.nodes / small.nodes)
    held = largest.seconds < LIMIT_SECONDS and largest.megabytes < LIMIT_MB and growth <= 1.2
    print(
        f"goal: {MOST_NODES:,} nodes below {LIMIT_SECONDS * 1000:.0f} ms and {LIMIT_MB:.0f} MB, growth at most linear "
        f"(time against nodes: {growth:.2f} of linear): {'held' if held else 'MISSED'}"
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
