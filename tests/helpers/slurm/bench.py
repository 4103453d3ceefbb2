"""Measure the lifecycle scripts on a real cluster: `make bench-slurm`.

Prints seconds of the default set, two users and two accounts on a new node where nothing is waited for (Slurm answers,
the file system is mounted), one node at a time, each figure the median of the rounds; and the same with 1,000 nodes in
resource_config.json.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from helpers.slurm import hyperpod
from helpers.slurm.cluster import Cluster, Node, slurm_cluster
from helpers.slurm.hyperpod import Instance
from helpers.slurm.scripts import packed

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


def cost(node: Node, scripts: Path) -> tuple[float, float]:
    """Seconds that the scripts take on the node now, by the clock and of a processor."""
    folder = node.download(scripts)
    result = node.try_run(
        f"cd {folder}; TIMEFORMAT='%R %U %S'; time bash ./{node.instance.node_type}.sh </dev/null >/tmp/bench 2>&1",
        env={"SAGEMAKER_RESOURCE_CONFIG_PATH": hyperpod.RESOURCE_CONFIG},
    )
    assert result.returncode == 0, node.read("/tmp/bench")
    wall, user, system = map(float, result.output.split())
    return wall, user + system


def say(what: str, costs: list[tuple[float, float]]) -> None:
    """One line: the medians."""
    wall, cpu = (statistics.median(values) for values in zip(*costs, strict=True))
    print(f"{what}: {wall:.2f} s, of them {cpu:.2f} s of a processor", flush=True)


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        scripts = packed(Path(folder))
        with slurm_cluster("24.11", "extended", Path(folder), compute=1) as cluster:
            cluster.hyperpod_starts_slurm()
            (node,) = cluster.compute
            for first in (cluster.controller, cluster.login):
                say(f"{first.instance.node_type}, a new node", [cost(first, scripts)])
            new, again, large = [], [], []
            for _ in range(ROUNDS):
                node.replace()
                cluster.start_slurmd(node)
                cluster.await_idle()
                new.append(cost(node, scripts))
                again.append(cost(node, scripts))
                node.write(hyperpod.RESOURCE_CONFIG, resource_config_with(cluster, 1_000 - len(cluster.nodes)))
                large.append(cost(node, scripts))
            say("compute, a new node", new)
            say("compute, the second run", again)
            say("compute, the second run, 1,000 nodes in resource_config.json", large)


if __name__ == "__main__":
    main()
