"""Measure the lifecycle scripts on a real cluster: `make bench-slurm`.

Prints seconds of the default set on a new node where nothing is waited for (Slurm answers, the file system is mounted),
on one node at a time, each figure the median of the rounds; and what 1,000 nodes in resource_config.json add.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from slurm import hyperpod
from slurm.cluster import Cluster, Node, slurm_cluster
from slurm.hyperpod import Instance
from slurm.scripts import packed

ROUNDS = 5


def many_instances(count: int) -> list[dict[str, str]]:
    """Instances of another group, as resource_config.json has them, in another part of the VPC."""
    return [
        {
            "InstanceName": f"many-{number + 1}",
            "AgentIpAddress": f"172.16.{number // 250}.{number % 250 + 1}",
            "CustomerIpAddress": f"10.78.{number // 250}.{number % 250 + 1}",
            "InstanceId": Instance("many", "ml.p5.48xlarge", "compute", number + 1000).instance_id,
        }
        for number in range(count)
    ]


def resource_config_with(cluster: Cluster, others: int) -> str:
    """resource_config.json of the cluster with so many instances of one more group."""
    content = hyperpod.resource_config([node.instance for node in cluster.nodes])
    group = {"Name": "many", "InstanceType": "ml.p5.48xlarge", "Instances": many_instances(others)}
    return json.dumps({**content, "InstanceGroups": [*content["InstanceGroups"], group]})


def seconds(node: Node, scripts: Path) -> float:
    """How long the scripts take on the node now."""
    result = node.provision(scripts)
    assert result.returncode == 0, result
    return result.seconds


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        scripts = packed(Path(folder))
        with slurm_cluster("24.11", "extended", Path(folder), compute=1) as cluster:
            cluster.hyperpod_starts_slurm()
            (node,) = cluster.compute
            for first in (cluster.controller, cluster.login, node):
                print(f"{first.instance.node_type}, the first run on it: {seconds(first, scripts):.2f} s", flush=True)
            new, again, large = [], [], []
            for _ in range(ROUNDS):
                node.replace()
                cluster.start_slurmd(node)
                cluster.await_idle()
                new.append(seconds(node, scripts))
                again.append(seconds(node, scripts))
                node.write(hyperpod.RESOURCE_CONFIG, resource_config_with(cluster, 1_000 - len(cluster.nodes)))
                large.append(seconds(node, scripts))
            print(f"compute, a new node: {statistics.median(new):.2f} s")
            print(f"compute, the second run: {statistics.median(again):.2f} s")
            print(f"compute, the second run, 1,000 nodes in resource_config.json: {statistics.median(large):.2f} s")


if __name__ == "__main__":
    main()
