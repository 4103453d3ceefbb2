"""What users do on a cluster that the lifecycle scripts have provisioned: alice of the account research, and bob."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.slurm.cluster import Cluster, Node

pytestmark = pytest.mark.usefixtures("provisioned")

accounting = pytest.mark.setups("extended")
"""HyperPod provides a database for accounts. Under customer_managed there is none."""
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"


def partition(cluster: Cluster, name: str) -> list[Node]:
    return [node for node in cluster.compute if node.instance.group == name]


def test_users_have_the_same_numbers_everywhere_and_a_home_that_they_share(cluster: Cluster) -> None:
    for node in cluster.nodes:
        assert node.run("id alice; id bob") == (
            "uid=3001(alice) gid=2001(research) groups=2001(research)\n"
            "uid=3002(bob) gid=2002(neuron) groups=2002(neuron),2001(research)"
        )
    cluster.login.run("echo results >run.txt", user="alice")
    assert {node.run("pwd; cat run.txt", user="alice") for node in cluster.nodes} == {"/fsx/home/alice\nresults"}
    assert cluster.login.try_run("cat /fsx/home/alice/run.txt", user="bob").returncode != 0


def test_a_user_logs_in_to_the_login_node_and_never_to_the_controller(cluster: Cluster) -> None:
    # ssh may print a message about an unknown host.
    here, controller = cluster.login, cluster.controller
    assert here.run(f"{SSH} {here.name} hostname", user="alice").splitlines()[-1] == here.name
    ways = [f"{controller.name} hostname", f"-N {controller.name}", f"-J {controller.name} {here.name} hostname"]
    for way in ways:
        refused = here.try_run(f"{SSH} {way}", user="alice")
        assert refused.returncode == 255 and "Permission denied" in refused.output, refused
    # slurmctld looks them up.
    assert controller.run("getent passwd alice") == "alice:x:3001:2001::/fsx/home/alice:/bin/bash"
    effective = controller.run("sshd -T -C user=ubuntu,host=localhost,addr=127.0.0.1").splitlines()
    assert {"denyusers alice", "denyusers bob"} <= {*effective}
    assert not [
        line for line in effective if line.startswith("allow") and line.split()[0] in ("allowusers", "allowgroups")
    ]


def test_a_compute_node_refuses_a_login_without_a_job_there(cluster: Cluster) -> None:
    node = cluster.compute[1]
    refused = cluster.login.try_run(f"{SSH} -o LogLevel=INFO {node.name} hostname", user="alice")
    assert refused.returncode == 255, refused
    assert "you have no active jobs on this node" in refused.output


def test_a_job_runs_on_the_nodes_of_its_partition_and_has_its_gpus(cluster: Cluster) -> None:
    command = "srun --quiet --partition=p5 --nodes=2 --gpus-per-node=4 bash -c 'echo $(hostname) $CUDA_VISIBLE_DEVICES'"
    said = cluster.login.run(command, user="alice")
    assert sorted(said.splitlines()) == [f"{node.name} 0,1,2,3" for node in partition(cluster, "p5")]


def test_a_job_may_lock_and_open_as_much_as_the_machine_gives(cluster: Cluster) -> None:
    """Unlimited, if the machine's root may set it (CAP_SYS_RESOURCE).

    A job does not get the limits of the login session.
    """
    most = cluster.login.run("ulimit -l unlimited 2>/dev/null; ulimit -Hl")
    said = cluster.login.run("ulimit -Sl 32; srun --quiet --partition=p5 --nodes=2 bash -c 'ulimit -l'", user="alice")
    assert said == f"{most}\n{most}"


@accounting
def test_a_job_is_counted_by_accounting(cluster: Cluster) -> None:
    job = cluster.login.run("sbatch --parsable --partition=trn1 --wait --wrap hostname", user="alice").split("\n")[0]
    show = f"sacct --noheader --parsable2 --allocations --jobs={job} --format=User,Account,Partition,State"
    cluster.until(lambda: cluster.login.run(show, user="alice") == "alice|research|trn1|COMPLETED", "it is counted", 20)


@accounting
def test_an_account_s_limit_holds(cluster: Cluster) -> None:
    """research may use 8 GPUs at a time."""
    submit = "sbatch --parsable --partition=p5 --gpus-per-node=8 --wrap 'sleep 60'"
    first, second = (cluster.login.run(submit, user="alice") for _ in range(2))
    try:
        shown = f"squeue --noheader --jobs={first},{second} --format='%i %T %r' --sort=i"
        expected = f"{first} RUNNING None\n{second} PENDING AssocGrpGRES"
        cluster.until(lambda: cluster.login.run(shown, user="alice") == expected, cluster.login.run(shown), 20)
    finally:
        cluster.login.run(f"scancel {first} {second}", user="alice")


@accounting
def test_a_user_without_an_account_cannot_run_jobs(cluster: Cluster) -> None:
    refused = cluster.login.try_run("srun hostname", user="ubuntu")
    assert refused.returncode != 0
    assert "Invalid account" in refused.output


def test_the_login_node_runs_no_job(cluster: Cluster) -> None:
    refused = cluster.login.try_run(
        f"srun --immediate=2 --partition=dev -w {cluster.login.name} hostname", user="alice"
    )
    assert refused.returncode != 0, refused
    assert cluster.states()[cluster.login.name] in ("drained", "draining")


@pytest.mark.setups("22.05-extended", "24.11-customer_managed")
def test_a_job_survives_a_needrestart_of_slurmd_on_an_image_without_kill_mode(cluster: Cluster, scripts: Path) -> None:
    """Without the step, the job's steps end with slurmd. With it, slurmd restarts and the job continues."""
    node = partition(cluster, "p5")[0]
    units = "/etc/systemd/system"
    node.run(f"sed -i /KillMode/d {units}/slurmd.service && systemctl daemon-reload")
    process = f"pgrep --full --exact 'sleep 31{node.instance.number}'"
    submit = f"sbatch --parsable --no-requeue -w {node.name} --partition=p5 --output=/dev/null --wrap 'sleep 31{node.instance.number}'"

    def start_job() -> str:
        cluster.await_idle([node])
        cluster.login.run(submit, user="alice")
        return cluster.until(lambda: node.try_run(process).output, "the job runs", 30)

    try:
        start_job()
        node.run("systemctl restart slurmd")
        assert node.try_run(process).returncode != 0, "it shows the defect"
        cluster.controller.run("scancel --user alice")
        start_job()
        node.run("touch /var/lib/cdk-hyperpod/owed/slurmd-restart")
        daemon = node.run("systemctl show --property MainPID slurmd")
        again = node.provision(scripts)
        assert again.returncode == 0
        warning = "slurmd was not restarted, because jobs run here: run this step again when they have ended"
        assert [line for line in again.lines if warning in line]
        assert node.run("systemctl show --property MainPID slurmd") == daemon
        number = node.run(process)
        node.run("systemctl restart slurmd")
        assert node.run(process) == number
        cluster.controller.run("scancel --user alice")
        cluster.until(
            lambda: node.try_run("pgrep slurmstepd | grep -v infinity; " + process).returncode, "it ended", 30
        )
        cluster.await_idle([node])
        daemon = node.run("systemctl show --property MainPID slurmd")
        assert node.provision(scripts).returncode == 0
        assert node.run("systemctl show --property MainPID slurmd") != daemon, "it has its limits now"
    finally:
        cluster.controller.run("scancel --user alice")
        node.run(f"rm -f {units}/slurmd.service.d/cdk-hyperpod-kill-mode.conf")
        node.run(
            f"sed -i 's/^Delegate=yes/KillMode=process\\nDelegate=yes/' {units}/slurmd.service && systemctl daemon-reload"
        )
        cluster.await_idle([node])


def test_auto_resume_is_an_option_of_srun_alone(cluster: Cluster) -> None:
    assert cluster.login.run("srun --auto-resume=1 -p trn1 hostname", user="alice")
    assert cluster.login.try_run("srun --auto-resume=2 -p trn1 hostname", user="alice").returncode != 0
    assert cluster.login.try_run("sbatch --auto-resume=1 --wrap hostname", user="alice").returncode != 0


@pytest.mark.setups("24.11-extended", "22.05-customer_managed")
def test_a_job_with_auto_resume_goes_on_after_a_node_of_it_was_replaced(cluster: Cluster, scripts: Path) -> None:
    """HyperPod replaces the node, which the scripts provision. Slurm itself starts the job again."""
    cluster.login.write(
        "/fsx/home/alice/train.sh",
        "#!/bin/bash\n#SBATCH --partition=p5 --nodes=2 --requeue --open-mode=append --output=/fsx/home/alice/train.log\n"
        "srun --auto-resume=1 bash -c 'echo start $SLURM_RESTART_COUNT $(hostname); [[ $SLURM_RESTART_COUNT ]] || sleep 600'\n",
        "755",
    )
    cluster.login.run("rm -f train.log", user="alice")
    job = cluster.login.run("sbatch --parsable train.sh", user="alice")
    dies = partition(cluster, "p5")[1]
    log = "cat /fsx/home/alice/train.log 2>/dev/null"
    cluster.until(lambda: cluster.login.try_run(log).output.count("start") == 2, "both nodes work")
    dies.kill()
    state = f"squeue --noheader --jobs={job} --format=%T"
    cluster.until(lambda: cluster.controller.run(state) == "PENDING", "the job waits to start again")
    dies.replace()
    if cluster.mode == "extended":
        cluster.start_slurmd(dies)
    assert dies.provision(scripts).returncode == 0
    cluster.await_idle()
    # Slurm holds a job that starts again for two minutes.
    cluster.controller.run(f"scontrol update jobid={job} starttime=now")
    said = f"scontrol show job {job}"
    cluster.until(lambda: "JobState=COMPLETED" in cluster.controller.run(said), "the job ends", 60)
    lines = cluster.login.run(log).splitlines()
    assert sorted(lines[-2:]) == [f"start 1 {node.name}" for node in partition(cluster, "p5")]


@pytest.mark.setups("22.05-extended", "24.11-customer_managed")
def test_a_user_who_left_the_file_is_locked_out_and_keeps_the_home(
    cluster: Cluster, scripts: Path, changed: Callable[[Callable[[Any], None]], Path]
) -> None:
    def without_bob(content: Any) -> None:
        content["users"] = [user for user in content["users"] if user["name"] != "bob"]
        for account in content.get("accounts", ()):
            account["users"] = [name for name in account["users"] if name != "bob"]

    login = f"{SSH} {cluster.login.name} true"
    doors = [cluster.controller, cluster.login]
    cluster.login.run("echo thesis >thesis.txt", user="bob")
    cluster.login.run(login, user="bob")
    folder = changed(without_bob)
    results = cluster.on_each(lambda node: node.provision(folder), doors)
    assert [result.returncode for result in results] == [0, 0], results
    as_bob = "HOME=/fsx/home/bob setpriv --reuid 3002 --regid 2002 --clear-groups"
    assert cluster.login.try_run(f"{as_bob} {login}").returncode == 255
    assert cluster.login.read("/fsx/home/bob/thesis.txt") == "thesis"
    cluster.on_each(lambda node: node.provision(scripts), doors)
    cluster.login.run(login, user="bob")
