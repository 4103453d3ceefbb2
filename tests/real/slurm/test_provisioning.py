"""The lifecycle scripts, as they are uploaded, on every node of a real cluster, under both hooks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from helpers.slurm.cluster import PROVISIONING_LOG, Cluster, Node, Provisioning


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
        # A node with another root volume, since it was replaced or patched, has another log.
        assert node.disks > 1 or node.read(PROVISIONING_LOG).startswith(result.output.splitlines()[0])


def test_a_second_run_once_slurm_is_up_changes_nothing(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path
) -> None:
    def run_again(node: Node) -> None:
        with node.unchanged():
            result = node.provision(scripts)
            assert result.returncode == 0, result

    cluster.on_each(run_again)


@pytest.mark.setups("22.05-extended", "24.11-customer_managed")
def test_they_end_well_while_slurmctld_restarts(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path
) -> None:
    restarts = cluster.controller.start("for i in 1 2 3; do systemctl restart slurmctld; sleep 0.7; done")
    nodes = [cluster.controller, cluster.login, cluster.compute[0]]
    results = cluster.on_each(lambda node: node.provision(scripts), nodes)
    assert restarts.wait(60) == 0
    assert [result.returncode for result in results] == [0] * len(results), results
    cluster.await_idle()


@pytest.mark.setups("22.05-extended", "24.11-customer_managed")
def test_a_node_is_the_same_after_a_reboot_and_runs_jobs_before_any_script_does(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path
) -> None:
    node = cluster.compute[0]
    node.reboot()
    cluster.await_idle([node])
    assert cluster.controller.run(f"srun --quiet -w {node.name} hostname") == node.name
    with node.unchanged():
        assert node.provision(scripts).returncode == 0


@pytest.mark.setups("24.11-extended", "22.05-customer_managed")
def test_the_controller_is_the_same_after_a_reboot(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path
) -> None:
    cluster.controller.reboot()
    cluster.await_idle()
    # The database may start after slurmctld. The first run waits for it.
    result = cluster.controller.provision(scripts)
    assert result.returncode == 0, result
    assert "starting it" not in result.output
    with cluster.controller.unchanged():
        assert cluster.controller.provision(scripts).returncode == 0


@pytest.mark.parametrize(
    "node_type",
    [
        pytest.param("controller", marks=pytest.mark.setups("24.11-extended")),
        pytest.param("login", marks=pytest.mark.setups("22.05-extended")),
        pytest.param("compute", marks=pytest.mark.setups("24.11-customer_managed")),
    ],
)
def test_scripts_that_are_killed_in_every_step_of_a_replaced_node_end_well_at_last(
    cluster: Cluster, provisioned: dict[str, Provisioning], scripts: Path, node_type: str
) -> None:
    """The new node has the same address, another id and host key, and an empty disk."""
    node = next(node for node in reversed(cluster.nodes) if node.instance.node_type == node_type)
    node.replace()
    if node is cluster.controller:
        cluster.lay_slurm_conf()
    folder = node.download(scripts)
    steps = [
        line.split(" step ", 1)[1].split(":")[0]
        for line in provisioned[node.name].lines
        if line.startswith("INFO provision.py: step ")
    ]
    with ThreadPoolExecutor(1) as hyperpod:
        started = None
        if cluster.mode == "extended":
            start = cluster.start_controller if node is cluster.controller else partial(cluster.start_slurmd, node)
            started = hyperpod.submit(start)
        for step in steps:
            node.run(KILL.format(folder=folder, node_type=node_type, step=step))
            if step == "slurm":  # the later steps depend on it
                again = node.try_run(
                    f"bash {folder}/{node_type}.sh {step} </dev/null", env={"PROVISION_DELAY_S": "0.5"}
                )
                assert again.returncode == 0, again
        if started is not None:
            started.result()
    result = node.provision(scripts)
    assert result.returncode == 0, result
    assert node.instance.instance_id in result.output
    with node.unchanged():
        assert node.provision(scripts).returncode == 0
    cluster.await_idle()
    assert cluster.controller.run(f"srun --quiet -w {cluster.compute[-1].name} hostname") == cluster.compute[-1].name


KILL = """
exec 3< <(cd {folder}; exec setsid bash ./{node_type}.sh {step} 2>&1 </dev/null)
run=$!
while read -r line <&3; do
	[[ $line != *' on_create.sh: '* && $line != *' provision.py: '* ]] || continue
	kill -9 -- -$run
	break
done
"""
"""Kill all processes of a run at the first message of the step, as if HyperPod's agent or the machine had ended.

The step has done, or is about to do, what the message says, and nothing after it.
"""
