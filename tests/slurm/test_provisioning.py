"""The lifecycle scripts, as they are uploaded, on every node of a real cluster, under either hook."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slurm.cluster import PROVISIONING_LOG, Cluster, Provisioning


def test_the_scripts_end_well_on_every_node_while_slurm_starts_or_where_nothing_has_started_it(
    cluster: Cluster, provisioned: dict[str, Provisioning]
) -> None:
    assert {name: result.returncode for name, result in provisioned.items()} == dict.fromkeys(provisioned, 0), (
        provisioned
    )
    for node in cluster.nodes:
        result = provisioned[node.name]
        # The agents' network overlaps the VPC here: the address of each agent is that of another node.
        instance = result.instance
        assert f"this node is {instance.instance_id} in the instance group {instance.group}" in result.output
        assert result.errors == []
        # A node that was replaced since has another log.
        assert node.instance != instance or node.read(PROVISIONING_LOG).startswith(result.output.splitlines()[0])


def test_a_second_run_once_slurm_is_up_changes_nothing(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path
) -> None:
    for node in cluster.nodes:
        with node.unchanged():
            result = node.provision(scripts)
            assert result.returncode == 0, result


def test_they_end_well_while_slurmctld_restarts(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path
) -> None:
    restarts = cluster.controller.start("for i in 1 2 3; do systemctl restart slurmctld; sleep 0.7; done")
    results = cluster.on_each(lambda node: node.provision(scripts))
    assert restarts.wait(60) == 0
    assert [result.returncode for result in results] == [0] * len(results), results
    cluster.await_idle()


def test_a_node_is_the_same_after_a_reboot_and_runs_jobs_before_any_script_does(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path
) -> None:
    node = cluster.compute[0]
    node.reboot()
    cluster.await_idle([node])
    assert cluster.controller.run(f"srun -w {node.name} hostname") == node.name
    with node.unchanged():
        assert node.provision(scripts).returncode == 0


def test_the_controller_is_the_same_after_a_reboot(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path
) -> None:
    cluster.controller.reboot()
    cluster.await_idle()
    # The database may come up after slurmctld; the first run waits for it.
    result = cluster.controller.provision(scripts)
    assert result.returncode == 0, result
    assert "starting it" not in result.output
    with cluster.controller.unchanged():
        assert cluster.controller.provision(scripts).returncode == 0


def test_scripts_that_are_killed_at_every_step_of_a_replaced_node_end_well_at_last(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path
) -> None:
    """The node has the address of the one before, another id and host key, and an empty disk."""
    node = cluster.compute[-1]
    node.replace()
    folder = node.download(scripts)
    steps = [line for line in provisioned[node.name].lines if line.startswith("INFO provision.py: step ")]
    with ThreadPoolExecutor(1) as hyperpod:
        started = hyperpod.submit(cluster.start_slurmd, node) if cluster.mode == "extended" else None
        for step in steps:
            # All processes of the run, as when HyperPod's agent ends or the machine does.
            node.run(
                f"""
                cd {folder}; setsid bash ./compute.sh >/tmp/killed 2>&1 & run=$!
                for attempt in {{1..300}}; do grep -qF '{step}' /tmp/killed && break; sleep 0.05; done
                sleep 0.1; kill -9 -- -$run; grep -qF '{step}' /tmp/killed
                """,
                env={"PROVISION_DELAY_S": "0.5"},
            )
        if started is not None:
            started.result()
    result = node.provision(scripts)
    assert result.returncode == 0, result
    assert node.instance.instance_id in result.output
    with node.unchanged():
        assert node.provision(scripts).returncode == 0
    cluster.await_idle([node])
    assert cluster.controller.run(f"srun -w {node.name} hostname") == node.name
