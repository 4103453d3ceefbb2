"""A deployment drains nodes of real Slurm before it deletes them: the function, the agent, and a simulated HyperPod.

The nodes that HyperPod lists are those of the test's cluster. Only the agent's bucket connects function and agent.
"""

from __future__ import annotations

import email.utils
import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.scale_down.poll import draining
from cdk_hyperpod_local.hyperpod import ManualClock
from helpers.findings import codes
from helpers.scale_down import stack
from helpers.scale_down.stack import DRAIN, LAMBDA, Stack, Template, Timings, group
from helpers.slurm import drains as asking
from helpers.slurm.cluster import Cluster, Node
from helpers.slurm.drains import OBJECTS, UNIT, Drains
from helpers.slurm.hyperpod import CLUSTER_NAME

pytestmark = pytest.mark.usefixtures("provisioned")

WORK = "/opt/dlami/nvme/work"
FAST = Timings(create_cluster=0.1, launch=0.1, boot=0.1, shut_down=2, count_lag=0.2, update_settle=0.1)
TRN1 = group("trn1", 2, instance_type="ml.trn1.32xlarge")


class RealTime(ManualClock):
    """The machine's clock, with short sleeps."""

    def now(self) -> float:
        return time.time()

    def advance(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.5))


class Bucket:
    """The function's S3: the agent's own bucket, on the controller."""

    def __init__(self, drains: Drains) -> None:
        self.drains = drains
        self.ahead_s = 0.0
        """How long the agent seems to be silent."""
        self.trouble: Exception | None = None
        """The error of the function's own calls."""
        self.missed = 0
        """How often the error occurred."""

    @contextmanager
    def fails(self, trouble: Exception) -> Iterator[None]:
        """While the block runs."""
        self.trouble = trouble
        yield
        self.trouble = None

    def _meet(self) -> None:
        if self.trouble is not None:
            self.missed += 1
            raise self.trouble

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        self._meet()
        said = self.drains.controller.try_run(f"cat {OBJECTS}/{Key}")
        if said.returncode != 0:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": ""}}, "GetObject")
        date = email.utils.formatdate(time.time() + self.ahead_s, usegmt=True)
        content = said.output.encode()
        headers = {"HTTPHeaders": {"date": date}}
        return {"Body": io.BytesIO(content), "ContentLength": len(content), "ResponseMetadata": headers}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str) -> dict[str, Any]:
        self._meet()
        path = f"{OBJECTS}/{Key}"
        self.drains.controller.run(f"cat >{path}.new && mv {path}.new {path}", stdin=Body.decode())
        return {}


class Deployments(Stack):
    """CloudFormation, CDK's framework and HyperPod, for the nodes of the test's cluster."""

    def __init__(self, cluster: Cluster, drains: Drains) -> None:
        self.nodes, self.drains = cluster.compute, drains
        self.slurm_had: dict[str, str] = {}
        """The state of nodes in Slurm when they were deleted."""
        self.addresses = {node.instance.instance_id: node.instance.address for node in self.nodes}
        self.gone_s = 70.0
        """How much of a request's time has passed at its first poll. The guard changes nothing in the first 65 seconds."""
        self.first_template = Template(name=CLUSTER_NAME, groups=(group("p5", 2), TRN1), drain=DRAIN)
        super().__init__(self.first_template, timings=FAST, poll=0.5)
        self.bucket = Bucket(drains)
        self.agent = self.bucket  # type: ignore[assignment]
        self.client = self  # type: ignore[assignment]
        self._hyperpod = self.hyperpod.client(principal=LAMBDA)
        known = self.hyperpod.cluster(CLUSTER_NAME).nodes
        left = list(self.nodes)
        for name, each in list(known.items()):
            if each.group != "controller":
                mine = next(node for node in left if node.instance.group == each.group)
                left.remove(mine)
                ago = time.time() - 7200
                known[name] = replace(each, instance_id=mine.instance.instance_id, launched_at=ago)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hyperpod, name)

    def describe_cluster_node(self, *, ClusterName: str, NodeId: str) -> dict[str, Any]:
        return {"NodeDetails": {"PrivatePrimaryIp": self.addresses[NodeId]}}

    def now(self) -> datetime:
        return super().now() - timedelta(seconds=0 if self.polling else self.gone_s)

    def batch_delete_cluster_nodes(self, **asked: Any) -> Any:
        known = {node.instance.instance_id: node for node in self.nodes}
        self.slurm_had.update({each: self.drains.slurm_of(known[each]) for each in asked["NodeIds"]})
        return self._hyperpod.batch_delete_cluster_nodes(**asked)

    def taken(self) -> set[str | None]:
        """Terminated instances."""
        return {item.node_id for item in self.hyperpod.terminations}

    def asked(self) -> int:
        """How often the function deleted nodes."""
        return self.hyperpod.changes(principal=LAMBDA)["BatchDeleteClusterNodes"]


@pytest.fixture(scope="module")
def drains(cluster: Cluster, provisioned: object) -> Iterator[Drains]:
    with asking.agent(cluster) as it:
        yield it


@pytest.fixture
def train(cluster: Cluster, drains: Drains, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployments]:
    monkeypatch.setattr(stack, "ManualClock", RealTime)
    # How long one poll waits for a silent agent. Three minutes for each would be too long here.
    monkeypatch.setattr(draining, "SILENT_AFTER", timedelta(seconds=5))
    drains.await_heard()
    drains.ask(writer="deployment")
    yield Deployments(cluster, drains)
    drains.ask(writer="deployment")
    drains.await_given_back(*cluster.compute)


def fill(node: Node) -> None:
    node.run(f"rm -rf {WORK}; mkdir -p {WORK}; head -c 3000000 /dev/urandom >{WORK}/model.bin")


def without(train: Deployments, node: Node, **drain: Any) -> Template:
    groups = tuple(
        {**each, "InstanceCount": each["InstanceCount"] - (each["InstanceGroupName"] == node.instance.group)}
        for each in train.first_template.groups
    )
    named = (node.instance.instance_id,)
    return replace(train.first_template, groups=groups, nodes_to_delete=named, drain={**DRAIN, **drain})


@pytest.mark.setups("extended")
def test_a_node_goes_when_its_job_has_ended_and_its_data_is_saved(
    cluster: Cluster, drains: Drains, train: Deployments
) -> None:
    node = cluster.compute[0]
    fill(node)
    job = drains.start_job(node)
    with ThreadPoolExecutor(1) as pool:
        deploying = pool.submit(train.deploy, without(train, node))
        cluster.until(lambda: drains.of(node).get("state") == "draining", "it is asked for")
        cluster.until(lambda: any("minutes left" in line for line in train.log), "the log names the job")
        assert any(f"jobs: {job} of alice" in line for line in train.log)
        assert train.asked() == 0
        drains.end_job(job)
        assert deploying.result() == "complete", train.reasons
    assert drains.job_state(job) == "COMPLETED"
    assert train.taken() == {node.instance.instance_id}
    assert train.asked() == 1
    assert ":saved" in train.slurm_had[node.instance.instance_id]
    folder = f"/fsx/backup/{node.instance.instance_id}"
    node.run(f"cd {folder}/files && sha256sum --check --quiet --strict ../SHA256SUMS")
    node.run(f"diff -r {WORK} {folder}/files{WORK}")
    assert json.loads(node.read(f"{folder}/manifest.json"))["files"] == 1


@pytest.mark.setups("24.11-extended")
def test_a_deadline_fails_the_deployment_and_gives_the_nodes_back(
    cluster: Cluster, drains: Drains, train: Deployments
) -> None:
    node = cluster.compute[0]
    job = drains.start_job(node)
    train.gone_s = 25 * 60 - 8
    assert train.deploy(without(train, node)) == "rolled back"
    (reason,) = train.reasons
    assert codes(reason)[0] == "nodes-not-ready" and "nothing was deleted" in reason
    assert f"{node.instance.instance_id} is not ready: " in reason
    assert f"jobs: {job} of alice" in reason
    drains.await_given_back(node)
    assert drains.job_state(job) == "RUNNING"
    assert train.asked() == 0
    drains.end_job(job)


@pytest.mark.setups("22.05-extended")
def test_with_force_the_job_goes_back_to_the_queue(cluster: Cluster, drains: Drains, train: Deployments) -> None:
    node = cluster.compute[0]
    job = drains.start_job(node, "--requeue")
    train.gone_s = 20 * 60 - 5
    assert train.deploy(without(train, node, OnTimeout="force")) == "complete", train.reasons
    assert drains.job_state(job) == "PENDING"
    assert "ReqNodeList=(null)" in drains.controller.run(f"scontrol --oneliner show job {job}")
    assert train.taken() == {node.instance.instance_id}
    assert "DRAIN" in train.slurm_had[node.instance.instance_id]
    cluster.login.run(f"scancel {job}", user="alice")


@pytest.mark.setups("24.11-extended")
def test_a_silent_drain_agent_fails_the_deployment_before_anything_changes(
    cluster: Cluster, drains: Drains, train: Deployments
) -> None:
    drains.controller.run(f"systemctl stop {UNIT}")
    train.bucket.ahead_s = 200
    try:
        assert train.deploy(without(train, cluster.compute[0])) == "rolled back"
        assert "drain-agent-silent" in codes(train.reasons[0]) and " 3 minutes" in train.reasons[0]
        assert train.asked() == 0
    finally:
        drains.controller.run(f"systemctl start {UNIT}")


@contextmanager
def ending(drains: Drains, job: str) -> Iterator[None]:
    """However the block ends, the job ends with it. Its half hour is too long."""
    try:
        yield
    finally:
        drains.end_job(job)


TROUBLES: dict[asking.BucketTrouble, Exception] = {
    "refuses": ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetObject"),
    "away": EndpointConnectionError(endpoint_url="https://drains.s3.us-west-2.amazonaws.com"),
}


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("refuses", marks=pytest.mark.setups("24.11-extended")),
        pytest.param("away", marks=pytest.mark.setups("22.05-extended")),
    ],
)
def test_a_bucket_that_fails_for_a_while_changes_nothing_of_the_end(
    cluster: Cluster, drains: Drains, train: Deployments, how: asking.BucketTrouble
) -> None:
    """While the job runs, and again after its end: for the agent and for the function."""
    node, bucket = cluster.compute[0], train.bucket
    fill(node)
    job = drains.start_job(node)

    def polls() -> None:
        """The function looks twice without an answer."""
        missed = bucket.missed
        cluster.until(lambda: bucket.missed >= missed + 2 or deploying.done(), "the function looks")
        assert not deploying.done(), train.reasons

    with ThreadPoolExecutor(1) as pool, ending(drains, job):
        deploying = pool.submit(train.deploy, without(train, node))
        cluster.until(lambda: drains.of(node).get("state") == "draining", "it is asked for")
        with drains.bucket_fails(how), bucket.fails(TROUBLES[how]):
            drains.await_missing_the_bucket()
            polls()
            # The agent continues with what it has read, whether the function can read its status or not.
            drains.end_job(job)
            cluster.until(lambda: ":saved" in drains.slurm_of(node), "it is saved and drained", 30)
            polls()
            assert train.asked() == 0
            assert drains.of(node)["state"] == "draining"
        assert deploying.result() == "complete", train.reasons
    assert drains.job_state(job) == "COMPLETED"
    assert train.taken() == {node.instance.instance_id}
    assert train.asked() == 1
    assert "DRAIN" in train.slurm_had[node.instance.instance_id].split(" Reason=")[0]
    assert ":saved" in train.slurm_had[node.instance.instance_id]


@pytest.mark.setups("24.11-extended")
@pytest.mark.parametrize("on_silent", ["fail", "undrained"])
def test_a_bucket_that_the_agent_never_reaches_again_is_its_silence(
    cluster: Cluster, drains: Drains, train: Deployments, on_silent: str
) -> None:
    """The function can still reach it. The file decides, and the node is released when its lease expires."""
    node, run = cluster.compute[0], drains.controller.run
    job = drains.start_job(node)
    with ThreadPoolExecutor(1) as pool, ending(drains, job):
        deploying = pool.submit(train.deploy, without(train, node, OnSilent=on_silent))
        cluster.until(lambda: drains.of(node).get("state") == "draining", "it is asked for")
        with drains.bucket_fails("refuses"):
            drains.await_missing_the_bucket()
            assert train.asked() == 0
            train.bucket.ahead_s = 900
            ended = deploying.result()
            assert drains.job_state(job) == "RUNNING"
            if on_silent == "undrained":
                assert (ended, train.taken()) == ("complete", {node.instance.instance_id})
                assert "Reason=cdk-hyperpod" not in train.slurm_had[node.instance.instance_id]
            else:
                assert (ended, train.taken()) == ("rolled back", set())
                assert "drain-agent-silent" in codes(train.reasons[0]) and " 15 minutes" in train.reasons[0]
            assert node.instance.instance_id in drains.reservations()
            # A refusing S3 still returns the time, and a lease ends by S3's clock: by three answers over a minute.
            run("systemctl stop bucket")
            asking.start_bucket(drains.controller, clock_offset_s=3 * 3600)
            drains.await_given_back(node, limit_s=180)
            assert drains.job_state(job) == "RUNNING"
    run("systemctl stop bucket")
    asking.start_bucket(drains.controller)


@pytest.mark.setups("24.11-extended")
def test_the_nodes_of_a_group_are_held_until_its_deletion_and_released_by_a_rollback(
    cluster: Cluster, drains: Drains, train: Deployments
) -> None:
    members = [node for node in cluster.compute if node.instance.group == "trn1"]
    for node in members:
        fill(node)
    template = replace(train.first_template, groups=(group("p5", 2),), groups_to_delete=("trn1",))
    assert train.deploy(template, fail="before") == "rolled back"
    assert train.taken() == set()
    drains.await_given_back(*members)
    assert train.deploy(template) == "complete", train.reasons
    assert train.taken() == {node.instance.instance_id for node in members}
    assert all("cdk-hyperpod:deployment:" in drains.slurm_of(node) for node in members)
