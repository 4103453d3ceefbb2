"""Partitions, QOS, own lines and programs around jobs, on a cluster of its own for each version of Slurm.

alice is in the account research, bob in ops. research may use the QOS low and high.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from helpers.repository import ROOT
from helpers.slurm.cluster import Cluster, Node, Provisioning, slurm_cluster
from helpers.slurm.scripts import packed

SETUPS = ("22.05-queues", "24.11-queues")
QUEUES: dict[str, Any] = {
    "accounts": [{"name": "research", "users": ["alice"], "qos": ["low", "high"]}, {"name": "ops", "users": ["bob"]}],
    "qos": [
        {"name": "low", "preempt_mode": "requeue"},
        {"name": "high", "priority": 100, "max_jobs": 1, "max_wall_minutes": 60, "preempts": ["low"]},
    ],
    "partitions": {
        "p5": {"default": True, "max_time_minutes": 120, "priority_tier": 10, "allow_accounts": ["research"]},
        "dev": {"state": "inactive"},
    },
    "conf": {"slurm": "extra.conf", "gres": "gres.conf", "cgroup": "cgroup.conf"},
    "prolog": "prolog.d",
    "epilog": "epilog.d",
    "hook_seconds": 20,
}
FILES = {
    "extra.conf": "MessageTimeout=33\n",
    "gres.conf": "# a comment alone\n",
    "cgroup.conf": "ConstrainCores=no\n",
    "prolog.d/10-note": "#!/bin/bash\necho prolog $SLURM_JOB_GPUS >>/run/hooks\n[[ ! -e /run/broken ]] || { echo GPU 3 is lost; exit 4; }\n",
    "epilog.d/10-note": "#!/bin/bash\necho epilog >>/run/hooks\n",
}
IMAGES = "#!/bin/bash\necho image >>/run/hooks\n"
CONF = "/opt/slurm/etc/cdk-hyperpod.conf"


class Queues:
    """The cluster, and the scripts that its nodes ran."""

    def __init__(self, cluster: Cluster, scripts: Path, folder: Path) -> None:
        self.cluster = cluster
        self.scripts = scripts
        self.folder = folder
        self.first: Provisioning

    @property
    def controller(self) -> Node:
        return self.cluster.controller

    @property
    def gpu(self) -> Node:
        """The node of the partition p5."""
        return self.cluster.compute[0]

    def changed(self, change: Callable[[Path], object]) -> Path:
        """The same scripts with other files."""
        folder = self.folder / f"{len([*self.folder.iterdir()]):x}"
        shutil.copytree(self.scripts, folder)
        change(folder / "slurm")
        cluster = json.loads((folder / "cluster.json").read_text())
        del cluster["checksums"]
        (folder / "cluster.json").write_text(json.dumps(cluster))
        (folder / "scripts.sha256").unlink()
        return folder

    def run_step(self, scripts: Path, node: Node | None = None) -> Provisioning:
        """The step slurm_conf alone, as `lifecycle run` does it."""
        node = node or self.controller
        folder = node.download(scripts)
        command = f"bash {folder}/{node.instance.node_type}.sh slurm_conf </dev/null"
        done = node.try_run(command, env={"PROVISION_DELAY_S": "0.5"})
        return Provisioning(node.instance, done.returncode, done.output, 0)

    def partition(self) -> str:
        shown = self.controller.try_run("scontrol --oneliner show partition p5").output.split()
        wanted = ("AllowAccounts=", "Default=", "MaxTime=", "PriorityTier=")
        return " ".join(word for word in shown if word.startswith(wanted))

    def await_partition(self) -> None:
        self.cluster.until(lambda: self.partition() == PARTITION, self.partition(), 30)

    def submit(self, options: str, user: str = "alice") -> str:
        command = f"sbatch --parsable --output=/dev/null --gpus-per-node=1 {options} --wrap 'sleep 100'"
        return self.cluster.login.run(f"cd /tmp; {command}", user=user).splitlines()[-1]

    def state(self, job: str) -> str:
        return self.controller.run(f"squeue --noheader --jobs={job} --format='%T %r'")

    def await_state(self, job: str, state: str) -> None:
        self.cluster.until(lambda: self.state(job) == state, f"{state}, but {self.state(job)}", 30)

    def cancel(self) -> None:
        self.controller.run("scancel --user=alice; scancel --user=bob")
        self.cluster.until(lambda: not self.controller.run("squeue --noheader"), "no job is left", 30)


PARTITION = "AllowAccounts=cdk-hyperpod,research Default=YES MaxTime=02:00:00 PriorityTier=10"


def packed_once(base: Path) -> Path:
    """The scripts with the files of QUEUES. The first process of a run packs them."""
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "scripts-queues"
    folder.mkdir(exist_ok=True)
    users = [{"name": "alice", "uid": 3001, "group": "research"}, {"name": "bob", "uid": 3002, "group": "research"}]
    # The steps that have their own tests take most of the time.
    off = dict.fromkeys(("clock", "drain", "upgrades", "system", "container_data", "checks"), False)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = folder / "ready"
        if not ready.exists():
            for name, content in FILES.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(content)
            ready.write_text(packed(folder, slurm=QUEUES, users=users, lifecycle={"steps": off}).name)
    return folder / ready.read_text()


OLDER, NEWER = (pytest.param(each, marks=pytest.mark.xdist_group(each)) for each in SETUPS)


@pytest.fixture(scope="module", params=[OLDER, NEWER])
def queues(request: pytest.FixtureRequest, parts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queues]:
    folder = tmp_path_factory.mktemp("queues")
    slurm = request.param.partition("-")[0]
    with ThreadPoolExecutor(1) as meanwhile, slurm_cluster(slurm, "extended", folder, compute=2) as cluster:
        scripts = meanwhile.submit(packed_once, tmp_path_factory.getbasetemp())
        cluster.hyperpod_starts_slurm()
        # The image has a Prolog of its own.
        for node in cluster.compute:
            node.write("/opt/image/prolog", IMAGES, "755")
        cluster.lay_slurm_conf("Prolog=/opt/image/prolog\n")
        cluster.hyperpod_reconfigures()
        (folder / "changed").mkdir()
        it = Queues(cluster, scripts.result(), folder / "changed")
        ended = cluster.on_each(lambda node: node.provision(it.scripts), [cluster.login, *cluster.compute])
        assert [result.returncode for result in ended] == [0, 0, 0], ended
        cluster.await_idle()
        it.first = cluster.controller.provision(it.scripts)
        assert it.first.returncode == 0, it.first
        cluster.await_idle()
        yield it


def test_everything_is_in_place_after_the_first_run_and_the_second_changes_nothing(queues: Queues) -> None:
    controller = queues.controller
    assert queues.first.errors == []
    assert queues.partition() == PARTITION
    config = controller.run("scontrol show config")
    assert "MessageTimeout          = 33 sec" in config
    assert "/usr/local/lib/cdk-hyperpod/hooks/" in config, "the programs were tried on a node"
    assert "Include cdk-hyperpod-gres.conf" in controller.read("/opt/slurm/etc/gres.conf")
    assert "PartitionName" not in controller.read(CONF)
    with controller.unchanged():
        again = controller.provision(queues.scripts)
    assert again.returncode == 0, again
    assert not [line for line in again.lines if "sacctmgr" in line or "scontrol" in line], again


def test_a_job_runs_between_the_programs_and_the_image_s_prolog_is_first(queues: Queues) -> None:
    queues.gpu.run("rm -f /run/hooks")
    queues.cluster.login.run("srun --quiet --gpus-per-node=2 true", user="alice")
    queues.cluster.until(lambda: "epilog" in queues.gpu.read("/run/hooks"), "the Epilog runs", 20)
    assert queues.gpu.read("/run/hooks").splitlines() == ["image", "prolog 0,1", "epilog"]


def test_the_limits_of_a_partition_hold(queues: Queues) -> None:
    try:
        inside, over = queues.submit("--time=119"), queues.submit("--time=121")
        queues.await_state(inside, "RUNNING None")
        queues.await_state(over, "PENDING PartitionTimeLimit")
        other = queues.submit("--time=60", user="bob")
        # 22.05 says it in words, 24.11 by the number of the reason.
        queues.cluster.until(
            lambda: (
                "not permitted to use this partition" in queues.state(other)
                or queues.state(other) == "PENDING PartitionConfig"
            ),
            queues.state(other),
            30,
        )
        # As the drain agent submits a backup.
        assert queues.controller.run("cd /; srun --quiet --partition=dev,p5 hostname") == queues.gpu.name, (
            "root's jobs run"
        )
    finally:
        queues.cancel()


def test_the_limits_of_a_qos_hold_and_its_jobs_preempt_others(queues: Queues) -> None:
    try:
        low = queues.submit("--exclusive --time=60")
        queues.await_state(low, "RUNNING None")
        assert queues.controller.run(f"squeue --noheader --jobs={low} --format=%q") == "low"
        queues.await_state(queues.submit("--qos=high --time=61"), "PENDING QOSMaxWallDurationPerJobLimit")
        high = queues.submit("--exclusive --qos=high --time=60")
        queues.await_state(high, "RUNNING None")
        assert queues.state(low).startswith("PENDING"), "it was requeued"
        second = queues.submit("--qos=high --time=60")
        queues.await_state(second, "PENDING QOSMaxJobsPerUserLimit")
        priority = queues.controller.run(f"squeue --noheader --jobs={low},{second} --format=%Q --sort=i").split()
        assert int(priority[0]) < int(priority[1])
        refused = queues.cluster.login.try_run("cd /tmp; sbatch --qos=high --wrap true", user="bob")
        assert "Invalid qos" in refused.output, refused
    finally:
        queues.cancel()


def test_settings_survive_a_restart_and_a_reconfigure_of_slurmctld(queues: Queues) -> None:
    for command in ("scontrol reconfigure", "systemctl restart slurmctld"):
        queues.controller.run(command)
        queues.await_partition()
    queues.cluster.lay_slurm_conf("Prolog=/opt/image/prolog\n")
    queues.cluster.until(
        lambda: "Include cdk-hyperpod.conf" in queues.controller.read("/opt/slurm/etc/slurm.conf"), "it is back", 30
    )
    queues.await_partition()
    queues.cluster.await_idle()


def test_wrong_lines_stop_nothing(queues: Queues) -> None:
    """slurmctld refuses the first, slurmd the second."""
    before = queues.controller.read(CONF)
    for file, why in {"slurm": "unrecognized key: Nonsense", "gres": "unrecognized key: Nonsense"}.items():
        wrong = queues.changed(lambda slurm, file=file: (slurm / f"{file}.conf").write_text("Nonsense=1\n"))  # type: ignore[misc]
        done = queues.run_step(wrong)
        assert done.returncode == 1
        assert why in done.errors[0], done
        assert queues.controller.read(CONF) == before
        assert "Nonsense" not in queues.controller.run("cat /opt/slurm/etc/*.conf")
    assert "is UP" in queues.controller.run("scontrol ping")
    queues.cluster.await_idle()


LUA = (ROOT / "tests/helpers/slurm/job_submit.lua").read_text()


# Linux 6.18 numbers mount namespaces on each processor. It may refuse to mount the file of a new one, which job_container does, and
# slurmstepd then fails or hangs. So slurmd gets a processor on which it works.
ONE_CPU = """
set -e
mkdir -p /run/spaces
mount --bind --make-private /run/spaces /run/spaces
touch /run/spaces/one
for cpu in $(seq 0 $(($(nproc) - 1))); do
	if taskset --cpu-list $cpu unshare --mount=/run/spaces/one true; then
		taskset --all-tasks --cpu-list --pid $cpu $(pidof slurmd)
		exit 0
	fi
done
exit 1
"""


# slurmd of 22.05 has to be restarted for another JobContainerType.
@pytest.mark.parametrize("queues", [NEWER], indirect=True, scope="module")
def test_a_private_tmp_and_a_job_submit_script_are_tried_and_work(queues: Queues) -> None:
    def scripts(lua: str, container: str) -> Path:
        def change(slurm: Path) -> None:
            (slurm / "job_submit.lua").write_text(lua)
            (slurm / "job_container.conf").write_text(container)
            settings = json.loads((slurm.parent / "cluster.json").read_text())
            settings["slurm"]["conf"] += ["job_container", "job_submit"]
            (slurm.parent / "cluster.json").write_text(json.dumps(settings))

        return queues.changed(change)

    right = "AutoBasePath=true\nBasePath=/opt/jobs\n"
    for lua, container, why in (
        ("\nfunction (", right, "/opt/slurm/etc/job_submit.lua:2: "),
        ("", right, "/opt/slurm/etc/job_submit.lua: missing required function"),
        (LUA, "BasePath=/absent/jobs\n", f"{queues.gpu.name}: BasePath=/absent/jobs: there is no such folder"),
    ):
        done = queues.run_step(scripts(lua, container))
        assert done.returncode == 1
        assert why in done.errors[0], done
        queues.cluster.await_idle()
    queues.gpu.run(ONE_CPU)
    try:
        done = queues.run_step(scripts(LUA, right))
        assert done.returncode == 0, done.output
        queues.gpu.run("touch /tmp/of-the-node")
        listed = queues.cluster.login.run("cd /; srun --quiet --chdir=/ ls -A /tmp", user="alice")
        assert "of-the-node" not in listed
        refused = queues.cluster.login.try_run("cd /tmp; sbatch --comment=refuse --wrap true", user="alice")
        assert "not today" in refused.output, refused
    finally:
        assert queues.run_step(queues.scripts).returncode == 0
        queues.cluster.await_idle()


@pytest.mark.parametrize("queues", [OLDER], indirect=True, scope="module")
def test_a_prolog_that_fails_everywhere_drains_no_node(queues: Queues) -> None:
    def break_it(slurm: Path) -> None:
        (slurm / "prolog.d/20-bad").write_text("#!/bin/bash\nyes | head -c 30000000\necho no such GPU; exit 5\n")

    bad = queues.changed(break_it)
    for node in queues.cluster.compute:
        assert queues.run_step(bad, node).returncode == 0
    done = queues.run_step(bad)
    assert done.returncode == 1
    assert "prolog 20-bad failed with exit code 5: no such GPU" in done.errors[0], done
    assert "the earlier ones stay" in done.errors[0]
    queues.cluster.await_idle()
    queues.cluster.login.run("srun --quiet true", user="alice")


def test_a_node_whose_program_fails_is_drained_with_its_name_as_the_reason(queues: Queues) -> None:
    queues.gpu.run("touch /run/broken")
    try:
        job = queues.submit("--time=60")
        reason = "sinfo --noheader --list-reasons --format=%E"
        expected = "prolog 10-note failed with exit code 4: GPU 3 is lost"
        queues.cluster.until(lambda: expected in queues.controller.run(reason), queues.controller.run(reason), 30)
        assert queues.state(job).endswith("requeued held"), "it drains no other node"
    finally:
        queues.gpu.run("rm -f /run/broken")
        queues.cancel()
        queues.controller.run(f"scontrol update nodename={queues.gpu.name} state=resume")
        queues.cluster.await_idle()


# AllowAccounts needs accounts here that the new controller does not know yet.
@pytest.mark.parametrize("queues", [NEWER], indirect=True, scope="module")
def test_a_replaced_controller_has_everything_again(queues: Queues) -> None:
    controller = queues.controller
    controller.replace()
    queues.cluster.lay_slurm_conf()
    queues.cluster.start_controller()
    queues.cluster.await_idle()
    again = controller.provision(queues.scripts)
    assert again.returncode == 0, again
    assert queues.partition() == PARTITION
    shown = controller.run("sacctmgr --parsable2 --noheader show qos high format=Priority,MaxJobsPU,MaxWall,Preempt")
    assert shown == "100|1|01:00:00|low"
    assert "Prolog=" in controller.read(CONF), "the programs were tried again"
