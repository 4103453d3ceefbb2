"""The drain agent on real Slurm waits, backs up, drains and releases its nodes, and survives faults."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.slurm import drains as asking
from helpers.slurm.cluster import Cluster, Node
from helpers.slurm.drains import UNIT, WORK, Drains
from helpers.slurm.hyperpod import SLURM_ETC

pytestmark = pytest.mark.usefixtures("provisioned")
both = pytest.mark.setups("extended")
"""Behaviour that may differ between Slurm's versions."""

SETTINGS = "/usr/local/lib/cdk-hyperpod/drain.json"
"""The agent's unit (lifecycle/steps/45_drain.py)."""
SAVED = "/fsx/backup"


@both
def test_the_agent_waits_for_jobs_backs_up_drains_and_releases_a_node(
    cluster: Cluster, drains: Drains, node: Node
) -> None:
    job = drains.start_job(node)
    request = drains.ask(node)
    said = drains.await_state(node, "draining", request)
    cluster.until(lambda: drains.of(node)["jobs"] == [{"id": job, "user": "alice"}], "it names the job")
    assert said["slurm"] == node.name
    resident_kib = int(drains.controller.run(f"ps -o rss= -p $(systemctl show --property=MainPID --value {UNIT})"))
    assert resident_kib < 40 * 1024
    # A new job for the node waits, and the running job is not affected.
    late = cluster.login.run(
        f"sbatch --parsable --chdir=/tmp --output=/dev/null -p p5 -w {node.name} --wrap hostname", user="alice"
    )
    assert drains.job_state(job) == "RUNNING"
    assert drains.job_state(late) == "PENDING"
    assert "DRAIN" not in drains.slurm_of(node).split(" Reason=")[0]
    drains.end_job(job)
    ready = drains.await_state(node, "ready", request)
    assert ready["saved"] is True
    assert f"request it by name: jobs: {late} of alice" in ready["message"]
    assert f"Reason=cdk-hyperpod:operator:{request}:saved" in drains.slurm_of(node)
    folder = f"{SAVED}/{node.instance.instance_id}"
    manifest = json.loads(node.read(f"{folder}/manifest.json"))
    assert (manifest["request"], manifest["files"], manifest["left"], manifest["absent"]) == (
        request,
        4,
        1,
        ["/srv/absent"],
    )
    node.run(f"cd {folder}/files && sha256sum --check --quiet --strict ../SHA256SUMS")
    show = "find . ! -type p -printf '%P %m %U %G %T@ %l\n' | sort"
    assert node.run(f"cd {WORK} && {show}") == node.run(f"cd {folder}/files{WORK} && {show}")
    node.run(f"rm {WORK}/deep/pipe && diff -r --no-dereference {WORK} {folder}/files{WORK}")
    # Users of the shared file system cannot read the backup.
    assert cluster.login.try_run(f"ls {SAVED}", user="alice").returncode != 0
    assert drains.job_state(late) == "PENDING"
    drains.ask()
    drains.await_given_back(node)
    cluster.until(lambda: drains.job_state(late) == "COMPLETED", "the job that waited runs")


MAKE_EVERYTHING = f"""
import os, struct
os.makedirs("{WORK}/a/b", exist_ok=True)
os.chdir("{WORK}")
acl = struct.pack("<I" + "HHI" * 5, 2, 1, 6, 2**32 - 1, 2, 6, 3001, 4, 4, 2**32 - 1, 16, 6, 2**32 - 1, 32, 0, 2**32 - 1)
for i in range(300):
    with open(f"a/{{i}}", "w") as file:
        file.write(str(i) * i)
    os.chmod(f"a/{{i}}", 0o600 + i % 64)
    os.chown(f"a/{{i}}", 3001 + i % 2, 2001)
with open("sparse", "wb") as file:
    file.truncate(10**9)
    file.seek(5 * 10**8)
    file.write(b"in the middle")
os.truncate(os.open("huge", os.O_CREAT | os.O_WRONLY), 15 * 10**12)
os.link("sparse", "a/b/linked")
os.link("a/7", "a/b/seven")
os.setxattr("a/1", "system.posix_acl_access", acl)
os.setxattr("a/b", "system.posix_acl_default", acl)
os.setxattr("a/2", "security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))
os.setxattr("a/3", "trusted.note", b"of root")
deep = os.open(".", os.O_RDONLY)
for _ in range(200):
    os.mkdir("deep_", dir_fd=deep)
    deep = os.open("deep_", os.O_RDONLY, dir_fd=deep)
"""


def writes_on(node: Node, command: str) -> None:
    """A process writes to a file on the node all the time."""
    # A pause without a process of its own, which a busy machine would start too late.
    node.write("/tmp/writer.sh", "exec 4<> <(:)\nwhile :; do echo more >&3; read -rt 0.002 -u 4; done\n", "755")
    node.run(
        f"rm -f /tmp/writer; setsid -f bash -c 'echo $$ >/tmp/writer; exec {command}' 3>>{WORK}/log >/dev/null 2>&1 </dev/null"
    )


@both
def test_rsync_finds_every_backed_up_file_on_the_target(cluster: Cluster, drains: Drains, node: Node) -> None:
    """rsync compares contents, owners, modes, times, ACLs, attributes and hard links.

    A mount and a growing file are excluded.
    """
    folder = f"{SAVED}/{node.instance.instance_id}"
    # From an earlier backup; the node no longer has it.
    node.run(f"install -D /dev/null {folder}/files{WORK}/gone/deep/file")
    node.write("/tmp/make.py", MAKE_EVERYTHING)
    node.run(f"python3 /tmp/make.py; mkdir {WORK}/mounted; mount -t tmpfs tmpfs {WORK}/mounted; touch {WORK}/mounted/x")
    node.run(f"install -o alice /dev/null {WORK}/log")
    writes_on(node, "setpriv --reuid alice --clear-groups bash /tmp/writer.sh")
    try:
        settings = json.loads(drains.controller.read(SETTINGS))["backup"]
        with saving(drains, **{**settings, "on_unsavable": "skip"}):
            ready = drains.await_state(node, "ready", drains.ask(node), limit_s=180)
            status = drains.status()
        assert ready["saved"] is True
        assert (
            "1 path absent; 1 mount left out; 1 special file left out: absent /srv/absent; mounted " in ready["message"]
        )
        # The second try has ended the writing process, and saved the file.
        assert "(bash) of alice" in ready["message"]
        assert status["left_out"] == {}
        same = f"rsync -aHAXn --checksum --delete --itemize-changes --exclude=/huge --exclude=/mounted --exclude=pipe {WORK}/"
        assert node.run(f"{same} {folder}/files{WORK}/") == ""
        node.run(f"cd {folder}/files && sha256sum --check --quiet --strict ../SHA256SUMS")
        sizes = node.run(f"cd {folder}/files{WORK} && stat -c '%s %b' huge sparse").splitlines()
        assert [int(line.split()[0]) for line in sizes] == [15 * 10**12, 10**9]
        assert all(int(line.split()[1]) <= 256 for line in sizes)
        assert node.read(f"{folder}/SHA256SUMS.sparse").split()[1:] == [f"{WORK[1:]}/huge"]
        # rsync does report differences.
        node.write("/tmp/change.py", f"import os; os.setxattr('{WORK}/a/3', 'trusted.note', b'another')")
        node.run("python3 /tmp/change.py")
        assert "a/3" in node.run(f"{same} {folder}/files{WORK}/")
    finally:
        node.run(f"kill $(cat /tmp/writer); umount {WORK}/mounted; rm -f {WORK}/huge; true")


@both
def test_a_file_that_keeps_changing_fails_the_backup_or_is_left_out(
    cluster: Cluster, drains: Drains, node: Node
) -> None:
    """A process of root's keeps writing it, and is never ended."""
    writes_on(node, "bash /tmp/writer.sh")
    try:
        said = drains.await_state(node, "backup-failed", drains.ask(node), limit_s=120)
        assert f'1 file not saved: "{WORK}/log" of root (' in said["message"]
        assert "was written while it was saved" in said["message"]
        assert "ended process" not in said["message"]
        settings = json.loads(drains.controller.read(SETTINGS))["backup"]
        with saving(drains, **{**settings, "on_unsavable": "skip"}):
            said = drains.await_state(node, "ready", drains.ask(node), limit_s=120)
            assert said["saved"] is True
            assert "1 file left out (root 1)" in said["message"]
            assert drains.status()["left_out"] == {node.instance.instance_id: 1}
        manifest = json.loads(node.read(f"{SAVED}/{node.instance.instance_id}/manifest.json"))
        assert [each["path"] for each in manifest["left_out_by_owner"]["root"]["paths"]] == [f"{WORK}/log"]
    finally:
        node.run("kill $(cat /tmp/writer)")


@both
def test_a_deadline_gives_the_node_back_or_ends_its_jobs(cluster: Cluster, drains: Drains, node: Node) -> None:
    job = drains.start_job(node, "--requeue")
    request = drains.ask(node, deadline=time.time() + 1)
    drains.await_state(node, "timed-out", request)
    drains.await_given_back(node)
    assert drains.job_state(job) == "RUNNING"
    other = drains.start_job(node, "--no-requeue")
    request = drains.ask(node, deadline=time.time() - 1, on_timeout="force")
    drains.await_state(node, "ready", request)
    assert drains.job_state(job) == "PENDING"
    assert drains.job_state(other) == "CANCELLED"
    # It may start elsewhere, because its node will be deleted.
    assert "ReqNodeList=(null)" in drains.controller.run(f"scontrol --oneliner show job {job}")
    cluster.login.run(f"scancel {job}", user="alice")


@pytest.mark.setups("24.11-extended")
def test_two_writers_hold_a_node_until_neither_wants_it(cluster: Cluster, drains: Drains, node: Node) -> None:
    other = cluster.compute[1]
    other.run(f"mkdir -p {WORK}")  # which only the fixture's node has
    mine, theirs = drains.ask(node, other), drains.ask(node, writer="deployment")
    for each in (node, other):
        drains.await_state(each, "ready", mine)
    cluster.until(lambda: drains.of(node)["requests"] == {"operator": mine, "deployment": theirs}, "both are heard")
    drains.ask()
    drains.await_given_back(other)
    assert drains.await_state(node, "ready", theirs)["requests"] == {"deployment": theirs}
    # A node with an expired lease is released without a request.
    drains.ask(node, writer="deployment", expires=time.time() + 1)
    drains.await_given_back(node)


@both
def test_drains_and_reservations_of_others_are_not_changed(cluster: Cluster, drains: Drains, node: Node) -> None:
    """HyperPod repairs nodes that it has drained with its reason. An administrator's reservation is theirs."""
    other = cluster.compute[1]
    run = drains.controller.run
    run(f"scontrol update nodename={other.name} state=drain reason='Action:Replace because'")
    run(f"scontrol create reservation reservationname=theirs starttime=now duration=60 users=alice nodes={node.name}")
    try:
        request = drains.ask(node, other)
        # Whoever drained it: what nobody has saved is not ready.
        said = drains.await_state(other, "backup-failed", request)
        assert "(Action:Replace because" in said["message"]
        assert "reason='delete unsaved'" in said["message"]
        drains.await_state(node, "ready", request)
        drains.ask()
        cluster.until(lambda: drains.reservations() == "theirs", "ours is gone")
        assert "Reason=Action:Replace because" in drains.slurm_of(other)
        assert "DRAIN" in drains.slurm_of(other)
    finally:
        run(f"scontrol delete reservationname=theirs; scontrol update nodename={other.name} state=resume")


@both
def test_a_node_that_slurm_drains_after_its_release_stays_drained(cluster: Cluster, drains: Drains, node: Node) -> None:
    """slurmctld does not replace an existing reason, so ours must not be there.

    A node that Slurm has drained stays drained when no request is left.
    """
    drains.await_state(node, "ready", drains.ask(node))
    drains.ask()
    drains.await_given_back(node)
    assert "cdk-hyperpod" not in drains.slurm_of(node)
    with prolog_fails(cluster, drains, node):
        command = (
            f"sbatch --parsable --chdir=/tmp --output=/dev/null -p {node.instance.group} -w {node.name} --wrap true"
        )
        job = cluster.login.run(command, user="alice")
        cluster.until(lambda: "DRAIN" in drains.slurm_of(node).split(" Reason=")[0], "Slurm drains it")
        cluster.login.run(f"scancel {job}", user="alice")
        said = drains.await_state(node, "ready", drains.ask(node, backup=False))
        assert "was drained by Slurm (Prolog error); nothing is saved" in said["message"]
        assert said["saved"] is False
        drains.ask()
        cluster.until(lambda: drains.status()["nodes"] == {}, "nobody wants it")
        assert "DRAIN" in drains.slurm_of(node).split(" Reason=")[0]
        assert "Reason=Prolog error" in drains.slurm_of(node)


@contextmanager
def prolog_fails(cluster: Cluster, drains: Drains, node: Node) -> Iterator[None]:
    """No job can start any more: Slurm drains a node when a job would have started there."""
    conf, run = f"{SLURM_ETC}/slurm.conf", drains.controller.run
    run(f"cp -p {conf} {conf}.before; echo Prolog=/usr/bin/false >>{conf}; scontrol reconfigure")
    try:
        yield
    finally:
        run(f"scontrol update nodename={node.name} state=resume; mv {conf}.before {conf}; scontrol reconfigure")


@both
def test_a_repair_that_a_person_asked_for_keeps_state_and_reason(cluster: Cluster, drains: Drains, node: Node) -> None:
    """state=fail requests a manual replacement from HyperPod, also of a node with a running job."""
    job = drains.start_job(node)
    drains.controller.run(f"scontrol update nodename={node.name} state=fail reason=Action:Replace")
    try:
        request = drains.ask(node)
        said = drains.await_state(node, "draining", request)
        assert "(Action:Replace); nothing is saved; jobs: " in said["message"]
        drains.end_job(job)
        assert drains.await_state(node, "backup-failed", request)["saved"] is False
        drains.ask()
        cluster.until(lambda: drains.status()["nodes"] == {}, "nobody wants it")
        assert "FAIL" in drains.slurm_of(node).split(" Reason=")[0]
        assert "Reason=Action:Replace" in drains.slurm_of(node)
        assert drains.job_state(job) == "COMPLETED"
    finally:
        drains.controller.run(f"scontrol update nodename={node.name} state=resume")


@pytest.mark.setups("22.05-extended")
def test_a_request_for_a_node_that_cannot_be_drained_is_refused_and_changes_nothing(
    cluster: Cluster, drains: Drains, node: Node
) -> None:
    before = cluster.states()
    requests = [drains.node_request(each, "r-1") for each in (cluster.controller, cluster.login)]
    requests.append({**drains.node_request(node, "r-1"), "id": "i-0123456789abcdef0"})
    requests.append({**drains.node_request(node, "r-1"), "ip": "10.77.0.99"})
    drains.write("operator", json.dumps({"schema": 1, "id": "r-1", "nodes": requests}))
    assert "is a controller" in drains.await_state(cluster.controller, "refused", "r-1")["message"]
    assert "is a login node" in drains.await_state(cluster.login, "refused", "r-1")["message"]
    assert "10.77.0.99" in drains.await_state(node, "unknown", "r-1")["message"]
    assert drains.status()["nodes"]["i-0123456789abcdef0"]["state"] == "unknown"
    for broken in (
        '{"schema": 1, "id": "r-2", "no',
        json.dumps({"schema": 1, "id": "r-3", "nodes": [{"id": "i-0; reboot"}]}),
    ):
        drains.write("operator", broken)
        cluster.until(
            lambda: "the request of the operator" in drains.status()["refused"].get("operator", ""), "refused"
        )
    drains.write("operator", "x" * 3_000_000)
    cluster.until(lambda: "is larger than" in drains.status()["refused"].get("operator", ""), "it is refused")
    assert drains.reservations() == ""
    assert cluster.states() == before


@both
def test_a_backup_from_before_a_release_does_not_count_for_the_next_drain(
    cluster: Cluster, drains: Drains, node: Node
) -> None:
    """A deployment that first keeps a node, and then deletes it, uses the same request id."""
    request = json.dumps({"schema": 1, "id": "r-1", "nodes": [drains.node_request(node, "again")]})
    drains.write("operator", request)
    drains.await_state(node, "ready", "again")
    drains.ask()
    drains.await_given_back(node)
    cluster.until(lambda: not drains.of(node), "it says nothing more of the node")
    node.run(f"echo more >{WORK}/later")
    drains.write("operator", request)
    cluster.until(lambda: node.instance.instance_id in drains.reservations(), "it is reserved")
    began = "scontrol --oneliner show reservation | grep -o ' StartTime=[^ ]*'"
    before = drains.controller.run(began)
    drains.controller.run("systemctl restart slurmctld")
    cluster.until(lambda: drains.controller.try_run(began).output == before, "the reservation began when it did")
    assert drains.await_state(node, "ready", "again")["saved"] is True
    assert node.read(f"{SAVED}/{node.instance.instance_id}/files{WORK}/later") == "more"


@pytest.mark.setups("24.11-extended")
def test_it_goes_on_wherever_it_is_killed(cluster: Cluster, drains: Drains, node: Node) -> None:
    """Before and after every command that changes something."""
    for program in ("scontrol", "sbatch", "scancel"):
        drains.controller.write(f"/srv/before/{program}", KILLER, "755")
    drains.controller.run("rm -rf /run/killed/*")
    job = drains.start_job(node, "--requeue")
    try:
        request = drains.ask(node, deadline=time.time() - 1, on_timeout="force")
        drains.await_state(node, "ready", request, limit_s=90)
        assert drains.job_state(job) == "PENDING"
        cluster.login.run(f"scancel {job}", user="alice")
        assert f":{request}:saved" in drains.slurm_of(node)
        drains.ask()
        drains.await_given_back(node)
        killed = drains.controller.run("ls /run/killed").split()
        steps = [
            "create-reservation",
            "delete-x",
            "requeue-x",
            "sbatch-x",
            "update-drain",
            "update-job",
            "update-resume",
        ]
        assert sorted(killed) == sorted(f"{step}-{when}" for step in steps for when in ("before", "after"))
    finally:
        drains.controller.run("rm -rf /srv/before/*")


KILLER = f"""#!/bin/bash
# Stands before Slurm's own program: ends the agent before and after each kind of change, once each.
program=${{0##*/}}
case "$program $*" in
sbatch*) step=sbatch-x ;;
'scontrol requeue'*) step=requeue-x ;;
'scontrol update jobid='*) step=update-job ;;
'scontrol create reservation'*) step=create-reservation ;;
'scontrol update nodename='*state=drain*) step=update-drain ;;
'scontrol update nodename='*state=resume*) step=update-resume ;;
'scontrol delete'*) step=delete-x ;;
*) step= ;;
esac
strike() {{
	[[ -n $step ]] && mkdir "/run/killed/$step-$1" 2>/dev/null && systemctl kill --kill-who=main --signal=KILL {UNIT}
}}
if strike before; then exit 1; fi
/usr/bin/"$program" "$@"
code=$?
strike after
exit $code
"""


@pytest.mark.setups("22.05-extended")
def test_it_survives_slurmctld_and_the_bucket(cluster: Cluster, drains: Drains, node: Node) -> None:
    run = drains.controller.run
    job = drains.start_job(node)
    request = drains.ask(node)
    drains.await_state(node, "draining", request)
    run("systemctl stop slurmctld")
    cluster.until(lambda: "scontrol" in drains.status().get("problem", ""), "it says that Slurm is silent")
    run("systemctl start slurmctld")
    drains.end_job(job)
    drains.await_state(node, "ready", request)
    # An unreadable bucket is not an empty one: drained nodes stay drained, also for a restarted agent.
    with drains.bucket_fails("away"):
        run(f"systemctl restart {UNIT}")
        drains.await_missing_the_bucket()
        assert f":{request}:saved" in drains.slurm_of(node)
    drains.await_state(node, "ready", request)


@pytest.mark.setups("22.05-extended")
def test_a_node_is_not_drained_until_its_backup_succeeds(cluster: Cluster, drains: Drains, node: Node) -> None:
    folder = f"{SAVED}/{node.instance.instance_id}"
    node.run(f"rm -rf {folder}; mkdir -p /fsx/home/alice/trap; ln -s /fsx/home/alice/trap {folder}")
    request = drains.ask(node)
    said = drains.await_state(node, "backup-failed", request)
    assert f"3 tries: {folder} is not a folder that root alone may write" in said["message"]
    assert "DRAIN" not in drains.slurm_of(node).split(" Reason=")[0]
    assert node.run("ls /fsx/home/alice/trap") == ""
    node.run(f"rm {folder}")
    drains.await_state(node, "ready", drains.ask(node))


@pytest.mark.setups("24.11-extended")
def test_a_dead_node_fails_its_backup_at_once_and_is_ready_without_one(
    cluster: Cluster, drains: Drains, node: Node
) -> None:
    dead = cluster.compute[1]
    dead.kill()
    try:
        # A person must decide whether its data may be lost.
        said = drains.await_state(dead, "backup-failed", drains.ask(dead))
        assert "could not be saved: is down (Not responding), and no job can run there" in said["message"]
        said = drains.await_state(dead, "ready", drains.ask(dead, backup=False))
        assert said["message"] == "nothing could be saved"
    finally:
        dead.boot()
        dead.mount_fsx()
        cluster.lay_resource_config([dead])
    drains.ask()
    drains.await_given_back(dead)


@both
def test_a_job_that_was_forced_off_its_node_runs_elsewhere_and_its_node_is_replaced(
    cluster: Cluster, drains: Drains, node: Node, scripts: Path
) -> None:
    """The node leaves slurm.conf, and later another node has its address, while a request still names the old one."""
    other = next(each for each in cluster.compute if each is not node and each.instance.group == node.instance.group)
    run, log = drains.controller.run, "/fsx/home/alice/resumed.log"
    cluster.login.write(
        "/fsx/home/alice/resumes.sh",
        f"#!/bin/bash\n#SBATCH --partition={node.instance.group} --requeue --open-mode=append --output={log} --chdir=/tmp\n"
        "srun --auto-resume=1 bash -c 'echo start $(hostname); [[ $SLURM_RESTART_COUNT ]] || sleep 600'\n",
        "755",
    )
    # It requests its node by name, and would fail with it: NODE_FAIL.
    job = cluster.login.run(f"rm -f {log}; sbatch --parsable -w {node.name} resumes.sh", user="alice")
    started = f"cat {log}"
    cluster.until(lambda: cluster.login.try_run(started).output == f"start {node.name}", "it works")
    request = drains.ask(node, deadline=time.time() - 1, on_timeout="force")
    assert drains.await_state(node, "ready", request)["saved"] is True
    cluster.hyperpod_takes(node)
    cluster.until(lambda: drains.of(node, request).get("state") == "unknown", "it is gone")
    # Slurm holds a job that starts again for two minutes.
    cluster.until(
        lambda: drains.controller.try_run(f"scontrol update jobid={job} starttime=now").returncode == 0,
        "slurmctld is back",
    )
    cluster.until(lambda: drains.job_state(job) == "COMPLETED", "the job ends elsewhere", 60)
    lines = [line for line in cluster.login.run(started).splitlines() if line.startswith("start ")]
    assert lines == [f"start {node.name}", f"start {other.name}"]
    node.replace()
    cluster.lay_slurm_conf()
    run("systemctl restart slurmctld")
    cluster.start_slurmd(node)
    assert node.provision(scripts).returncode == 0
    cluster.await_idle([node])
    # The old node is still requested, and its replacement is not affected.
    looks = drains.status()["beat"]
    cluster.until(lambda: drains.status()["beat"] > looks, "it has looked again", 90)
    drains.await_given_back(node)
    assert drains.of(node) == {}
    assert cluster.login.run(f"srun --quiet --immediate=30 -w {node.name} hostname", user="alice") == node.name


@contextmanager
def saving(drains: Drains, **backup: Any) -> Iterator[None]:
    """The agent with another `slurm.drain.backup` in the file."""
    before = drains.controller.read(SETTINGS)
    drains.controller.write(SETTINGS, json.dumps({**json.loads(before), "backup": {"on_failure": "fail", **backup}}))
    drains.controller.run(f"systemctl restart {UNIT}")
    try:
        yield
    finally:
        drains.controller.write(SETTINGS, before)
        drains.controller.run(f"systemctl restart {UNIT}")


@pytest.mark.setups("24.11-extended")
def test_an_owner_s_hook_saves_the_node_or_keeps_it(cluster: Cluster, drains: Drains, node: Node) -> None:
    hook, saved = "/fsx/admin/save-node", "/fsx/admin/saved"
    # As a hook that uploads: it fails the first time.
    script = (
        f'#!/bin/bash -e\necho "$DRAIN_INSTANCE_ID $DRAIN_NODE $DRAIN_REQUEST $EUID" >>{saved}.told\n'
        f"mkdir {saved} || {{ cp -r {WORK} {saved}/$DRAIN_INSTANCE_ID; exit 0; }}\nexit 3\n"
    )
    node.write(hook, script, "775")
    with saving(drains, hook=hook):
        request = drains.ask(node)
        said = drains.await_state(node, "backup-failed", request)
        assert f"3 tries: {hook} is not a file that root alone may write" in said["message"]
        assert "DRAIN" not in drains.slurm_of(node).split(" Reason=")[0]
        assert not node.exists(f"{saved}.told")
        node.run(f"chmod 755 {hook}")
        request = drains.ask(node)
        assert drains.await_state(node, "ready", request)["saved"] is True
        assert drains.status()["backup"] == hook
    # A pipe in it is copied as a pipe.
    node.run(f"rm {WORK}/deep/pipe; diff -r --no-dereference --exclude=pipe {WORK} {saved}/{node.instance.instance_id}")
    told = [f"{node.instance.instance_id} {node.name} {request} 0"] * 2
    assert node.read(f"{saved}.told").splitlines() == told
    log = "/var/log/cdk-hyperpod-backup.log"
    assert node.run(f"stat -c %a {log}") == "600"
    drains.ask()
    drains.await_given_back(node)


@pytest.mark.setups("22.05-extended")
def test_a_target_that_is_full_keeps_the_node_until_there_is_room(cluster: Cluster, drains: Drains, node: Node) -> None:
    folder = f"{SAVED}/{node.instance.instance_id}"
    node.run(f"mkdir -p {SAVED} && chmod 700 {SAVED} && mkdir -p -m 700 {folder}")
    node.run(f"mount -t tmpfs -o size=2m,mode=700 tmpfs {folder}")
    try:
        said = drains.await_state(node, "backup-failed", drains.ask(node))
        assert f"3 tries: {folder} has room for 0.00 GB, and 0.00 GB are to be saved" in said["message"]
        assert "DRAIN" not in drains.slurm_of(node).split(" Reason=")[0]
    finally:
        node.run(f"umount {folder}")
    assert drains.await_state(node, "ready", drains.ask(node))["saved"] is True


@both
def test_a_prolog_that_fails_for_the_backup_is_a_backup_that_failed(
    cluster: Cluster, drains: Drains, node: Node
) -> None:
    """Slurm drains the node for it.

    This is not a person's drain, so the node must not count as one that needs no backup.
    """
    with prolog_fails(cluster, drains, node):
        said = drains.await_state(node, "backup-failed", drains.ask(node))
        assert "could not be saved in 3 tries: " in said["message"]
        assert "was drained by Slurm (Prolog error)" in said["message"]
        assert said["saved"] is False
        drains.ask()
        cluster.until(lambda: drains.status()["nodes"] == {}, "nobody wants it")
        assert "DRAIN" in drains.slurm_of(node).split(" Reason=")[0]
        assert "Reason=Prolog error" in drains.slurm_of(node)


@both
def test_a_node_drained_by_slurm_is_backed_up_and_stays_drained_after_its_release(
    cluster: Cluster, drains: Drains, node: Node
) -> None:
    """`Kill task failed` is not a person's decision, and the most common reason of Slurm's own on GPU clusters."""
    drains.controller.run(f"scontrol update nodename={node.name} state=drain reason='Kill task failed'")
    try:
        request = drains.ask(node)
        assert drains.await_state(node, "ready", request)["saved"] is True
        assert f"Reason=cdk-hyperpod:operator:{request}:saved:Kill task failed" in drains.slurm_of(node)
        node.run(
            f"rm {WORK}/deep/pipe; diff -r --no-dereference {WORK} {SAVED}/{node.instance.instance_id}/files{WORK}"
        )
        drains.ask()
        cluster.until(lambda: "Reason=Kill task failed" in drains.slurm_of(node), "it is as it was")
        cluster.until(lambda: node.instance.instance_id not in drains.reservations(), "nothing of ours is there")
        assert "DRAIN" in drains.slurm_of(node).split(" Reason=")[0]
    finally:
        drains.controller.run(f"scontrol update nodename={node.name} state=resume")


@both
def test_a_job_in_a_reservation_of_its_own_cannot_start_behind_the_backup(
    cluster: Cluster, drains: Drains, node: Node
) -> None:
    """A MAINT reservation lets jobs start beside ours.

    The agent looks every five seconds, and a backup of 3 MB takes one second.
    """
    run = drains.controller.run
    run(
        "scontrol create reservation reservationname=theirs starttime=now duration=60 users=alice "
        f"flags=MAINT,IGNORE_JOBS nodes={node.name}"
    )
    node.run(f"chmod 777 {WORK}")
    asking.set_up(cluster, asking.OWN_BUCKET, poll_s=5)
    try:
        request = drains.ask(node)
        drains.await_state(node, "backing-up", request)
        behind = cluster.login.run(
            f"sbatch --parsable --chdir=/tmp --output=/dev/null -p {node.instance.group} -w {node.name} "
            f"--reservation=theirs --wrap 'echo more >{WORK}/later'",
            user="alice",
        )
        assert drains.await_state(node, "ready", request)["saved"] is True
        copy = f"{SAVED}/{node.instance.instance_id}/files{WORK}"
        node.run(f"rm -f {WORK}/deep/pipe; diff -r --no-dereference {WORK} {copy}")
        cluster.login.run(f"scancel {behind}", user="alice")
    finally:
        asking.set_up(cluster, asking.OWN_BUCKET)
        run("scontrol delete reservationname=theirs")
