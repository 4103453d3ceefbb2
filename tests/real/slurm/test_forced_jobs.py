"""The drain agent ends jobs at a deadline: those on the requested node, and no others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from helpers.slurm.cluster import Cluster, Node
from helpers.slurm.drains import Drains
from helpers.slurm.hyperpod import LOGIN, SLURM_ETC

pytestmark = [pytest.mark.usefixtures("provisioned"), pytest.mark.setups("extended")]

SUBMIT = "sbatch --parsable --chdir=/tmp --output=/dev/null"


def submit(cluster: Cluster, options: str, script: str = "sleep 600") -> str:
    """Submit a batch job as alice; returns its id."""
    return cluster.login.run(f'{SUBMIT} {options} --wrap "{script}"', user="alice")


def tasks(drains: Drains, job: str) -> dict[str, tuple[str, str]]:
    """Task of an array, or component of a heterogeneous job -> its state, and its node."""
    said = drains.controller.run(f"squeue --noheader --states=all --array --jobs={job} --format='%i|%T|%N'")
    rows = (line.split("|") for line in said.splitlines())
    return {name: (state, node) for name, state, node in rows}


def force(drains: Drains, node: Node) -> str:
    """Request a drain of the node whose deadline has passed."""
    return drains.ask(node, deadline=time.time() - 1, on_timeout="force", backup=False)


@pytest.fixture(autouse=True)
def alone(cluster: Cluster, drains: Drains, node: Node) -> Iterator[None]:
    """No job remains."""
    yield
    drains.controller.run("scancel --user=alice")
    drains.ask()
    drains.await_given_back(*cluster.compute)


def all_run(drains: Drains, array: str) -> bool:
    """All four tasks."""
    return [state for state, _ in tasks(drains, array).values()] == ["RUNNING"] * 4


@pytest.mark.parametrize(("option", "ended"), [("--requeue", "PENDING"), ("--no-requeue", "CANCELLED")])
def test_one_task_of_an_array_ends(cluster: Cluster, drains: Drains, node: Node, option: str, ended: str) -> None:
    """Each node has one task. The last task's id is that of its array."""
    for wanted in (cluster.compute[0], cluster.compute[-1]):
        array = submit(cluster, f"-p dev -x {LOGIN.name} -N1 -n1 -c60 --array=0-3 {option}")
        cluster.until(partial(all_run, drains, array), "all run")
        before = tasks(drains, array)
        (task,) = [name for name, (_, where) in before.items() if where == wanted.name]
        drains.await_state(wanted, "ready", force(drains, wanted))
        after = tasks(drains, array)
        assert after.pop(task)[0] == ended
        assert after == {name: found for name, found in before.items() if name != task}
        drains.ask()
        drains.controller.run(f"scancel {array}")
        drains.await_given_back(wanted)


@pytest.mark.parametrize(("option", "ended"), [("--requeue", "PENDING"), ("--no-requeue", "CANCELLED")])
def test_a_heterogeneous_job_ends_as_a_whole_and_the_status_says_so(
    cluster: Cluster, drains: Drains, node: Node, option: str, ended: str
) -> None:
    """By its leader: Slurm cannot end a component alone. The requested node has the second one."""
    wanted = cluster.compute[-1]
    script = "#!/bin/bash\n#SBATCH -p p5 -N1\n#SBATCH hetjob\n#SBATCH -p trn1 -N1\nsleep 600\n"
    cluster.login.write("/fsx/home/alice/het.sh", script.replace("-p trn1", f"-p trn1 -w {wanted.name}"), "755")
    job = cluster.login.run(f"{SUBMIT} {option} /fsx/home/alice/het.sh", user="alice")
    cluster.until(lambda: [state for state, _ in tasks(drains, job).values()] == ["RUNNING"] * 2, "it runs")
    drains.ask(wanted, on_timeout="force", backup=False)
    wide = f"all components of heterogeneous job {job} end with it"
    cluster.until(lambda: wide in drains.of(wanted).get("message", ""), "it says so")
    assert drains.of(wanted)["jobs"] == [{"id": f"{job}+1", "user": "alice"}]
    drains.await_state(wanted, "ready", force(drains, wanted))
    assert [state for state, _ in tasks(drains, job).values()] == [ended] * 2


def test_a_job_that_ignores_every_signal_ends(cluster: Cluster, drains: Drains, node: Node) -> None:
    deaf = "trap '' $(seq 1 64); while :; do sleep 1; done"
    job = submit(cluster, f"-p {node.instance.group} -w {node.name} --no-requeue", deaf.replace("$", "\\$"))
    cluster.until(lambda: drains.job_state(job) == "RUNNING", "it runs")
    # slurmd sends SIGKILL after KillWait, and repeats it until the processes have ended.
    drains.await_state(node, "ready", force(drains, node), limit_s=180)
    assert drains.job_state(job) == "CANCELLED"


@contextmanager
def large_arrays(cluster: Cluster, drains: Drains) -> Iterator[None]:
    """Otherwise Slurm limits arrays to a thousand tasks."""
    conf, run = f"{SLURM_ETC}/slurm.conf", drains.controller.run
    run(f"cp -p {conf} {conf}.before; echo MaxArraySize=10001 >>{conf}; echo MaxJobCount=30000 >>{conf}")
    run("systemctl restart slurmctld")
    cluster.await_idle()
    try:
        yield
    finally:
        drains.ask()
        run(f"scancel --user=alice; mv {conf}.before {conf}; systemctl restart slurmctld")
        cluster.await_idle(limit_s=240)  # the ends of many tasks, while slurmctld restarts


def test_of_ten_thousand_tasks_those_on_the_node_end(cluster: Cluster, drains: Drains, node: Node) -> None:
    other = next(each for each in cluster.compute if each is not node and each.instance.group == node.instance.group)
    with large_arrays(cluster, drains):
        array = submit(cluster, f"-p {node.instance.group} -N1 -n1 -c16 --array=1-10000")

        def on(where: Node) -> set[str]:
            said = drains.controller.run(f"squeue --noheader --states=RUNNING --nodelist={where.name} --format=%i")
            return set(said.split())

        cluster.until(lambda: len(on(node)) >= 4 and len(on(other)) >= 4, "it runs on both")
        drains.await_state(node, "draining", drains.ask(node, on_timeout="force", backup=False))
        there = on(other)
        drains.await_state(node, "ready", force(drains, node), limit_s=90)
        assert there <= on(other)
        waits = drains.controller.run(f"squeue --noheader --states=PENDING --array --jobs={array} --format=%i | wc -l")
        assert int(waits) == 10_000 - len(on(other))
