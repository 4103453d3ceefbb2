"""Faults around the lifecycle scripts: the right exit code, one sentence at the end, and a second run that succeeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.slurm import hyperpod
from helpers.slurm.bench import resource_config_with
from helpers.slurm.cluster import PROVISIONING_LOG, SCRIPTS_FOLDER, Cluster, Node

pytestmark = pytest.mark.usefixtures("provisioned")

SOON = {"PROVISION_ATTEMPTS": "3", "PROVISION_DELAY_S": "0.2"}
"""The scripts stop waiting after a second."""


def fails(node: Node, scripts: Path, *words: str) -> None:
    """Assert that the scripts fail on the node, with these words in the single sentence of the log's last line."""
    result = node.provision(scripts, **SOON)
    assert result.returncode == 1, result
    assert [line for line in result.errors if line == result.lines[-1]], result
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.lines[-1]
    assert node.run(f"tail -n 1 {PROVISIONING_LOG}") == result.output.splitlines()[-1]


def heals(node: Node, scripts: Path) -> None:
    """Assert that a second run of the scripts is enough."""
    result = node.provision(scripts)
    assert result.returncode == 0, result


def write_resource_config(node: Node, content: dict[str, Any] | str) -> None:
    node.write(hyperpod.RESOURCE_CONFIG, content if isinstance(content, str) else json.dumps(content))


@pytest.mark.setups("22.05-customer_managed")
def test_a_file_system_that_comes_late_is_waited_for(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[0]
    node.unmount_fsx()
    folder = node.download(scripts)
    run = node.start(f"cd {folder} && PROVISION_DELAY_S=0.2 bash ./compute.sh </dev/null")
    cluster.until(lambda: "waiting until /fsx is mounted" in node.run(f"tail -n 2 {PROVISIONING_LOG}"), "it waits")
    node.mount_fsx()
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output


@pytest.mark.setups("24.11-customer_managed")
def test_without_the_file_system_the_node_fails(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[0]
    node.unmount_fsx()
    fails(node, scripts, "mounts", "/fsx is not mounted as tmpfs, found nothing", "security group")
    node.mount_fsx()
    heals(node, scripts)


@pytest.mark.setups("22.05-customer_managed")
def test_nothing_of_the_default_set_needs_apt(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[0]
    lock = node.start("exec flock /var/lib/dpkg/lock-frontend sleep 60")
    try:
        heals(node, scripts)
    finally:
        lock.kill()
        lock.wait()


@pytest.mark.setups("24.11-customer_managed")
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


@pytest.mark.setups("22.05-customer_managed")
def test_a_node_missing_from_resource_config_fails(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[1]
    instances = [other.instance for other in cluster.nodes if abs(other.instance.number - node.instance.number) > 1]
    write_resource_config(node, hyperpod.resource_config(instances))
    address = node.instance.address
    fails(node, scripts, f"no instance in resource_config.json has an address of this node ({address})")
    cluster.lay_resource_config([node])
    heals(node, scripts)


@pytest.mark.setups("24.11-customer_managed")
def test_the_scripts_of_another_cluster_are_refused(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[1]
    write_resource_config(node, hyperpod.resource_config([n.instance for n in cluster.nodes], "another"))
    fails(node, scripts, "'llm-train'", "'another'", "SourceS3Uri")
    cluster.lay_resource_config([node])
    heals(node, scripts)


@pytest.mark.setups("22.05-customer_managed")
def test_a_node_finds_itself_among_6758(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[1]
    node.write(hyperpod.RESOURCE_CONFIG, resource_config_with(cluster, 6758 - len(cluster.nodes)))
    result = node.provision(scripts, **SOON)
    assert result.returncode == 0, result
    assert f"this node is {node.instance.instance_id} in the instance group p5" in result.output
    cluster.lay_resource_config([node])


@pytest.mark.setups("22.05-extended", "24.11-customer_managed")
def test_a_clock_that_is_off_by_more_than_munge_takes_is_named(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[1]
    put_munge_s_clock_off(node)
    fails(node, scripts, "slurm", "clock")
    node.run(f"rm {MUNGE_S_CLOCK} && systemctl daemon-reload && systemctl restart munge")
    heals(node, scripts)
    cluster.await_idle([node])


@pytest.mark.setups("24.11-extended", "22.05-customer_managed")
def test_a_clock_that_is_off_is_set_before_slurm_is_waited_for(cluster: Cluster, scripts: Path) -> None:
    """By the image's time service. A unit replaces it that gives munge this machine's clock again."""
    node = cluster.compute[1]
    put_munge_s_clock_off(node)
    node.write(
        "/etc/systemd/system/chrony.service",
        "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        f"ExecStart=/bin/bash -c 'rm {MUNGE_S_CLOCK} && systemctl daemon-reload && systemctl restart munge'\n"
        "[Install]\nWantedBy=multi-user.target\n",
    )
    node.run("systemctl daemon-reload")
    heals(node, scripts)
    node.run("systemctl disable --now chrony && rm /etc/systemd/system/chrony.service && systemctl daemon-reload")
    cluster.await_idle([node])


@pytest.mark.setups("22.05-customer_managed")
def test_a_slurmctld_that_is_away_is_named_on_the_other_nodes(cluster: Cluster, scripts: Path) -> None:
    node = cluster.compute[1]
    cluster.controller.run("systemctl stop slurmctld")
    fails(node, scripts, "slurm", "slurmctld", hyperpod.CONTROLLER.address)
    heals(cluster.controller, scripts)
    heals(node, scripts)
    cluster.await_idle()


@pytest.mark.setups("24.11-customer_managed")
def test_a_full_file_system_is_reported_and_nodes_still_start(
    cluster: Cluster, scripts: Path, changed: Callable[[Callable[[Any], None]], Path]
) -> None:
    """Any user can fill it, and a replaced node must still become ready."""
    node = cluster.login
    folder = changed(with_user("carol", 3003))
    node.run("fallocate -l 1T /fsx/full 2>/dev/null || cat /dev/zero >/fsx/full 2>/dev/null || test -s /fsx/full")
    try:
        result = node.provision(folder, **SOON)
    finally:
        node.run("rm /fsx/full")
    assert result.returncode == 0, result
    (told,) = [line for line in result.lines if line.startswith("WARNING ") and "/fsx/home/carol" in line]
    assert "No space left on device" in told
    heals(node, folder)
    assert node.run("stat -c %U /fsx/home/carol/.ssh/id_ed25519") == "carol"
    heals(node, scripts)


@pytest.mark.setups("22.05-customer_managed")
def test_a_full_disk_fails_what_has_to_be_written(
    cluster: Cluster, scripts: Path, changed: Callable[[Callable[[Any], None]], Path]
) -> None:
    node = cluster.login
    folder = changed(with_user("dave", 3004))
    node.download(folder)
    node.run("cat /dev/zero >/full 2>/dev/null || test -s /full")
    result = node.try_run(
        f"cd {SCRIPTS_FOLDER}/{folder.name} && bash ./login.sh </dev/null",
        env={**SOON, "SAGEMAKER_RESOURCE_CONFIG_PATH": hyperpod.RESOURCE_CONFIG},
    )
    node.run("rm /full")
    assert result.returncode == 1, result
    last = result.output.splitlines()[-1]
    assert " ERROR " in last and "users" in last, result
    assert "Traceback" not in result.output
    heals(node, folder)
    assert node.run("id -u dave") == "3004"
    heals(node, scripts)


@pytest.mark.parametrize(
    "service",
    [
        pytest.param("slurmdbd", marks=pytest.mark.setups("24.11-extended")),
        pytest.param("mariadb", marks=pytest.mark.setups("22.05-extended")),
    ],
)
def test_a_database_that_is_away_is_named_on_the_controller(cluster: Cluster, scripts: Path, service: str) -> None:
    node = cluster.controller
    node.run(f"systemctl stop {service}")
    fails(node, scripts, "slurmdbd")
    node.run(f"systemctl start {service}")
    heals(node, scripts)


@pytest.mark.setups("24.11-extended")
def test_the_database_of_another_cluster_is_named(cluster: Cluster, scripts: Path) -> None:
    """slurmctld keeps the id from its database, and ends if another database has another id. 22.05 keeps none."""
    node = cluster.controller
    node.run("mariadb -e 'CREATE DATABASE another; GRANT ALL ON another.* TO slurm@localhost'")
    node.run(f"sed -i s/slurm_acct_db/another/ {hyperpod.SLURM_ETC}/slurmdbd.conf && systemctl restart slurmdbd")
    node.run("until sacctmgr -i add cluster llm-train; do sleep 0.1; done; systemctl restart slurmctld")
    cluster.until(lambda: node.try_run("systemctl is-active slurmctld").returncode != 0, "slurmctld ends")
    fails(node, scripts, "slurm", "CLUSTER ID MISMATCH", "give it back its database")
    node.run(f"sed -i s/another/slurm_acct_db/ {hyperpod.SLURM_ETC}/slurmdbd.conf && systemctl restart slurmdbd")
    heals(node, scripts)
    cluster.await_idle()


@pytest.mark.setups("22.05-customer_managed")
def test_accounts_without_a_database_are_refused_with_what_to_do(
    cluster: Cluster, scripts: Path, changed: Callable[[Callable[[Any], None]], Path]
) -> None:
    folder = changed(lambda content: content.update(accounts=[{"name": "research", "users": ["alice"]}]))
    fails(cluster.controller, folder, "accounts", "slurm.accounting_database")
    heals(cluster.controller, scripts)


@pytest.mark.setups("22.05-extended", "24.11-customer_managed")
def test_our_lines_come_back_when_hyperpod_writes_slurm_conf(cluster: Cluster, scripts: Path) -> None:
    node = cluster.controller
    conf = f"{hyperpod.SLURM_ETC}/slurm.conf"
    before = node.read(conf)
    cluster.lay_slurm_conf()
    cluster.until(lambda: node.read(conf) == before, f"our lines are in {conf} again", 30)
    cluster.await_idle()
    # No loop: the file is no longer written, and a run changes nothing.
    written = node.run(f"stat -c %y {conf}")
    cluster.hyperpod_reconfigures()
    with node.unchanged():
        assert node.provision(scripts).returncode == 0
    assert node.run(f"stat -c %y {conf}") == written
    assert "MEMLOCK" in node.run("scontrol show config | grep PropagateResourceLimitsExcept")


MUNGE_S_CLOCK = "/etc/systemd/system/munge.service.d/clock.conf"


def put_munge_s_clock_off(node: Node) -> None:
    """Six minutes; munge accepts five.

    All processes of a machine have one clock, so only munge gets another one here.
    """
    library = node.run("ls /usr/lib/*/faketime/libfaketime.so.1")
    node.write(MUNGE_S_CLOCK, f"[Service]\nEnvironment=LD_PRELOAD={library} FAKETIME=-6m\n")
    node.run("systemctl daemon-reload && systemctl restart munge")


def with_user(name: str, uid: int) -> Callable[[Any], None]:
    """cluster.json with an additional user."""

    def change(content: Any) -> None:
        content["users"].append({**content["users"][0], "name": name, "uid": uid, "home": f"/fsx/home/{name}"})

    return change
