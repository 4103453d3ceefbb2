"""What goes wrong around the lifecycle scripts: the right exit code, one sentence at the end, healed by running again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm import hyperpod
from slurm.bench import resource_config_with
from slurm.cluster import PROVISIONING_LOG, Cluster, Node

pytestmark = pytest.mark.usefixtures("provisioned")

SOON = {"PROVISION_ATTEMPTS": "3", "PROVISION_DELAY_S": "0.2"}
"""The scripts give up what they wait for within a second."""


def fails(node: Node, scripts: Path, *words: str) -> None:
    """Assert that the scripts fail on the node, with these words in the one sentence that is the log's last line."""
    result = node.provision(scripts, **SOON)
    assert result.returncode == 1, result
    assert [line for line in result.errors if line == result.lines[-1]], result
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.lines[-1]
    assert node.run(f"tail -n 1 {PROVISIONING_LOG}") == result.output.splitlines()[-1]


def heals(node: Node, scripts: Path) -> None:
    """Assert that running the scripts again is enough."""
    result = node.provision(scripts)
    assert result.returncode == 0, result


def write_resource_config(node: Node, content: dict[str, Any] | str) -> None:
    node.write(hyperpod.RESOURCE_CONFIG, content if isinstance(content, str) else json.dumps(content))


def test_a_file_system_that_comes_late_is_waited_for(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[0]
    node.unmount_fsx()
    folder = node.download(scripts)
    run = node.start(f"cd {folder} && PROVISION_DELAY_S=0.2 bash ./compute.sh </dev/null")
    cluster.until(lambda: "waiting until /fsx is mounted" in node.run(f"tail -n 2 {PROVISIONING_LOG}"), "it waits")
    node.mount_fsx()
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output


def test_without_the_file_system_the_node_fails(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[0]
    node.unmount_fsx()
    fails(node, scripts, "mounts", "/fsx is not mounted as tmpfs, found nothing", "security group")
    node.mount_fsx()
    heals(node, scripts)


def test_nothing_of_the_default_set_needs_apt(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[0]
    lock = node.start("exec flock /var/lib/dpkg/lock-frontend sleep 60")
    try:
        heals(node, scripts)
    finally:
        lock.kill()
        lock.wait()


def test_a_file_that_is_written_half_is_waited_for(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[0]
    whole = node.read(hyperpod.RESOURCE_CONFIG)
    write_resource_config(node, whole[: len(whole) // 2])
    fails(node, scripts, hyperpod.RESOURCE_CONFIG)
    folder = node.download(scripts)
    run = node.start(f"cd {folder} && PROVISION_DELAY_S=0.2 bash ./compute.sh </dev/null")
    cluster.until(lambda: node.try_run("pgrep -f provision.py").returncode == 0, "it runs")
    write_resource_config(node, whole)
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output


def test_a_node_that_hyperpod_does_not_name_is_nobody(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[1]
    instances = [other.instance for other in cluster.nodes if abs(other.instance.number - node.instance.number) > 1]
    write_resource_config(node, hyperpod.resource_config(instances))
    address = node.instance.address
    fails(node, scripts, f"no instance in resource_config.json has an address of this node ({address})")
    cluster.lay_resource_config([node])
    heals(node, scripts)


def test_the_scripts_of_another_cluster_are_refused(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[1]
    write_resource_config(node, hyperpod.resource_config([n.instance for n in cluster.nodes], "another"))
    fails(node, scripts, "'llm-train'", "'another'", "SourceS3Uri")
    cluster.lay_resource_config([node])
    heals(node, scripts)


def test_a_node_finds_itself_among_6758(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[1]
    node.write(hyperpod.RESOURCE_CONFIG, resource_config_with(cluster, 6758 - len(cluster.nodes)))
    result = node.provision(scripts, **SOON)
    assert result.returncode == 0, result
    assert f"this node is {node.instance.instance_id} in the instance group p5" in result.output
    cluster.lay_resource_config([node])


def test_a_clock_that_is_off_by_more_than_munge_takes_is_named(cluster: Cluster, scripts: Path) -> None:
    """Six minutes; munge takes five. Every process of a machine has one clock: munge alone is given another here."""
    node = cluster.compute[1]
    drop_in = "/etc/systemd/system/munge.service.d/clock.conf"
    library = node.run("ls /usr/lib/*/faketime/libfaketime.so.1")
    node.write(drop_in, f"[Service]\nEnvironment=LD_PRELOAD={library} FAKETIME=-6m\n")
    node.run("systemctl daemon-reload && systemctl restart munge")
    fails(node, scripts, "slurm", "clock")
    node.run(f"rm {drop_in} && systemctl daemon-reload && systemctl restart munge")
    heals(node, scripts)
    cluster.await_idle([node])


def test_a_slurmctld_that_is_away_is_named_on_the_other_nodes(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[1]
    cluster.controller.run("systemctl stop slurmctld")
    fails(node, scripts, "slurm", "slurmctld", hyperpod.CONTROLLER.address)
    heals(cluster.controller, scripts)
    heals(node, scripts)
    cluster.await_idle()
