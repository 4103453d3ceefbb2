"""`cdk-hyperpod patch` on real Slurm under load: every job ends by itself, or goes back to the queue by its own rules."""

from __future__ import annotations

import functools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.cli import live
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.cli.patch import patcher, run_record
from helpers.slurm.cluster import Cluster
from helpers.slurm.drains import OBJECTS, WORK, Drains
from helpers.slurm.hyperpod import CLUSTER_NAME
from helpers.slurm.patching import NEW, Aws, Load
from helpers.slurm.scripts import CONFIG

pytestmark = pytest.mark.usefixtures("provisioned")


@pytest.fixture
def aws(cluster: Cluster, drains: Drains, scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """The cluster's file in this folder, and the command's waits shortened."""
    monkeypatch.chdir(tmp_path)
    # The parts of the tests' nodes are in the user's own folder for such things.
    record = functools.partial(run_record.local_record, environment={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    monkeypatch.setattr(import_module("cdk_hyperpod.cli.patch.patch"), "local_record", record)
    Path("cluster.yaml").write_text(yaml.safe_dump({name: each for name, each in CONFIG.items() if name != "account"}))
    for node in cluster.compute:
        node.run(f"mkdir -p {WORK}; echo saved >{WORK}/model.bin")
    drains.await_heard()
    found = Aws(cluster, drains, scripts)
    monkeypatch.setattr(live, "clients", lambda *_: found.client)
    monkeypatch.setattr(patcher.Patcher, "wait", staticmethod(lambda seconds: time.sleep(0.5)))
    return found


@pytest.mark.setups("extended")
def test_a_group_under_load_loses_no_job(
    cluster: Cluster, drains: Drains, aws: Aws, capfd: pytest.CaptureFixture[str]
) -> None:
    """Jobs run on both nodes when the patch begins, others wait, and more come all the time."""
    load = Load(cluster)
    for node in cluster.compute:
        load.submit(f"-p {node.instance.group} -w {node.name}", 6)
    load.submit("-p p5 -N 2", 1)
    load.submit("-p p5 --no-requeue", 1)
    cluster.until(lambda: [each["JobState"] for each in load.of_all().values()].count("RUNNING") >= 4, "jobs run")
    with ThreadPoolExecutor(1) as threads:
        over: list[bool] = []
        more = threads.submit(load.goes_on, lambda: bool(over))
        try:
            code = main(["patch", "p5", "--yes"])
        finally:
            over.append(True)
            more.result()
    printed = capfd.readouterr()
    assert code == 0, printed.out + printed.err
    assert printed.out.endswith("patched: p5\n")
    assert (aws.images("p5"), aws.images("trn1")) == ({NEW}, {"1.4.0"})
    assert len(aws.model.re_images) == 2
    assert aws.machines.ended_by_it == []
    drains.await_given_back(*cluster.compute)
    jobs = load.await_end()
    assert len(jobs) == len(load.jobs) > 8
    assert {(each["JobState"], each["Restarts"]) for each in jobs.values()} == {("COMPLETED", "0")}
    marks = load.marks()
    assert marks == {f"{job}..{mark}" for job in load.jobs for mark in ("begun", "ended")}


@pytest.mark.setups("22.05-extended")
def test_after_the_time_that_was_given_jobs_go_back_to_the_queue_by_their_own_rules(
    cluster: Cluster, drains: Drains, aws: Aws, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    node, other = (each for each in cluster.compute if each.instance.group == "p5")
    returns, refuses = drains.start_job(node, "--requeue"), drains.start_job(other, "--no-requeue")
    stays = drains.start_job(next(each for each in cluster.compute if each.instance.group == "trn1"))
    spans = {"24h": 24 * 3600, "1m": 5}
    monkeypatch.setattr(import_module("cdk_hyperpod.cli.patch.patch"), "parse_span", spans.__getitem__)
    drained: list[int] = []

    def wait(seconds: float) -> None:
        """A colleague drains a faulty node while HyperPod updates it."""
        if aws.model.re_images and not drained:
            drained.append(main(["drain", str(other.instance.instance_id), "--hold", "1h", "--no-backup"]))
        time.sleep(0.5)

    monkeypatch.setattr(patcher.Patcher, "wait", staticmethod(wait))
    code = main(["patch", "p5", "--force-after", "1m", "--yes"])
    printed = capfd.readouterr()
    assert drained == [0], printed.out + printed.err
    assert code == 0, printed.out + printed.err
    assert aws.images("p5") == {NEW}
    assert aws.machines.ended_by_it == [], "they had ended before HyperPod began"
    drains.await_given_back(node)
    # The end of the patch has released its own request, and not the colleague's.
    asked = json.loads(drains.controller.run(f"cat {OBJECTS}/{CLUSTER_NAME}/requests/operator.json"))["nodes"]
    assert [each["id"] for each in asked] == [other.instance.instance_id]
    assert main(["undrain", str(other.instance.instance_id)]) == 0
    drains.await_given_back(other)
    assert (drains.job_state(returns), drains.job_state(refuses)) == ("PENDING", "CANCELLED")
    assert drains.job_state(stays) == "RUNNING"
    # Slurm holds a job that starts again for two minutes.
    drains.controller.run(f"scontrol update jobid={returns} starttime=now")
    for job in (returns, stays):
        drains.end_job(job)
        cluster.until(lambda job=job: drains.job_state(job) == "COMPLETED", f"job {job} ends", 60)  # type: ignore[misc]
