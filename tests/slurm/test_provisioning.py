"""The lifecycle scripts, as they are uploaded, on every node of a real cluster."""

from __future__ import annotations

from pathlib import Path

from slurm.cluster import Cluster, Provisioning


def test_the_scripts_end_well_on_every_node_while_slurm_starts(
    cluster: Cluster, provisioned: dict[str, Provisioning]
) -> None:
    assert {name: result.returncode for name, result in provisioned.items()} == dict.fromkeys(provisioned, 0), (
        provisioned
    )
    for node in cluster.nodes:
        assert f"this node is {node.instance.instance_id} in the instance group {node.instance.group}" in (
            provisioned[node.name].output
        )


def test_they_run_again_and_after_a_reboot_and_on_a_replaced_node(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path
) -> None:
    first, second = cluster.compute[:2]
    assert first.provision(scripts).returncode == 0
    first.reboot()
    second.replace()
    if cluster.mode == "extended":
        cluster.start_slurmd(second)
    for node in (first, second):
        assert node.provision(scripts).returncode == 0
    cluster.await_idle()
