"""Pages with steps, followed as a new user does: each edit and each command, in order, in a folder of one's own.

To add a page whose reader has the README's cluster, add it to PAGES. Another page is a test below, which gives its reader what
the page says that they have. tests/helpers/pages.py says how a page's blocks are read.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod_local import daemon
from cdk_hyperpod_local.places import Place
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.callers import add_role
from helpers.deployments.configs import small
from helpers.deployments.drain_agent import agent_after
from helpers.deployments.reader import Reader
from helpers.deployments.steps import Step, settle, turn
from helpers.local_aws.rehearsal import Edit, Rehearsal, broken, resized
from helpers.pages import blocks
from helpers.synthesis import ROOT

Json = Any
NAME = "llm-train"
IDS = ("i-0123456789abcdef0", "i-0fedcba9876543210")
"""Of the pages; they stand for two nodes of p5 that no rule would choose."""
ACCOUNT = "111122223333"
"""Of the pages; it stands for the engine's account."""


@dataclass(frozen=True)
class Page:
    name: str
    ended: int
    """How many nodes its reader has deleted at its end; each by its id."""


PAGES = (Page("read-a-refusal.md", 0), Page("delete-nodes.md", 2), Page("drain-slurm.md", 2))


def first_file() -> str:
    """The README's cluster file, which its reader has deployed."""
    readme = (ROOT / "README.md").read_text("utf-8")
    return next(block.text for block in blocks(readme) if block.language == "yaml")


@pytest.fixture(scope="module")
def first(engine: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader who has deployed the README's file."""
    folder = tmp_path_factory.mktemp("first")
    reader = Reader(folder, engine)
    code, printed = reader.run(f"cdk-hyperpod init --name {NAME} --region {engine.region} --yes")
    assert code == 0, printed
    (folder / "cluster.yaml").write_text(first_file(), "utf-8")
    deploy(reader)
    return folder


def deploy(reader: Reader) -> None:
    command = re.findall(r"`(npx -y aws-cdk@\S+ deploy --all)`", (ROOT / "README.md").read_text("utf-8"))[0]
    code, printed = reader.run(command)
    assert code == 0, printed[-3000:]


@pytest.fixture
def life(engine: LocalAws, first: Path, tmp_path: Path) -> Iterator[Rehearsal]:
    """The reader's cluster as the README's file says; no node of it may end at random."""
    config = yaml.safe_load(first_file())
    context = json.loads((first / "cdk.json").read_text("utf-8"))["context"]
    found = Rehearsal(engine, tmp_path / "rehearsal", config, context)
    with turn(found, config):
        yield found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_step_of_the_page_does_what_it_says(
    page: Page, life: Rehearsal, engine: LocalAws, first: Path, tmp_path: Path
) -> None:
    settle(life)
    folder = shutil.copytree(first, tmp_path / "train", ignore=shutil.ignore_patterns("cdk.out"))
    reader, step = Reader(folder, engine), Step(life)
    names = dict(zip(IDS, list(life.nodes("p5"))[1:3], strict=True))
    with agent_after(folder / "agent-started", folder / "agent-answers", engine, NAME):
        reader.follow(page.name, names)
    gone = list(names.values())[: page.ended]
    assert step.ended() == dict.fromkeys(gone, "named")


def test_capacity_does_not_come(life: Rehearsal, engine: LocalAws, first: Path, tmp_path: Path) -> None:
    settle(life)
    life.leave_room("ml.p5.48xlarge", 2)
    reader = Reader(shutil.copytree(first, tmp_path / "train", ignore=shutil.ignore_patterns("cdk.out")), engine)
    reader.follow("capacity.md", {})
    assert life.groups()["p5"] == (10, 4, 16)


@pytest.fixture
def local_port() -> Iterator[int]:
    """Of an engine that the reader starts; it is ended, also if the page did not."""
    port = daemon.free_port()
    yield port
    daemon.remove(Place(port))


def test_a_first_cluster_is_rehearsed_and_then_deployed(engine: LocalAws, local_port: int, tmp_path: Path) -> None:
    reader = Reader(tmp_path, engine, local_port=local_port)
    reader.follow("first-cluster.md", {ACCOUNT: engine.account})
    assert daemon.running(Place(local_port)) is None
    (cluster,) = (
        found
        for found in engine.client("sagemaker").list_clusters()["ClusterSummaries"]
        if found["ClusterName"] == "train"
    )
    assert cluster["ClusterStatus"] == "InService"


def test_a_team_is_added_and_its_members_get_in(engine: LocalAws, tmp_path: Path) -> None:
    reader = Reader(tmp_path, engine)
    code, printed = reader.run(f"cdk-hyperpod init --eks --name llm-eks --region {engine.region} --yes")
    assert code == 0, printed
    deploy(reader)
    add_role(engine, "vision")
    life = Rehearsal(engine, tmp_path / "rehearsal", yaml.safe_load((tmp_path / "cluster.yaml").read_text("utf-8")))
    settle(life)
    step = Step(life)
    reader.follow("add-a-team.md", {ACCOUNT: engine.account})
    assert step.ended() == {}
    assert "UpdateCluster" not in step.calls()


# -- at 3 am: each section begins with the trouble that its heading names ---------------------------------------------


@pytest.fixture(scope="module")
def night(engine: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """A cluster of its own: the troubles terminate nodes."""
    life = Rehearsal(engine, tmp_path_factory.mktemp("night"), small("night"))
    made = life.deploy()
    assert made.ok, made.reason
    settle(life)
    return life


@pytest.fixture
def awake(night: Rehearsal, engine: LocalAws, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """awake(section, node) -> what the reader does who is woken up; `node` stands for the page's instance id."""
    settle(night)
    reader = Reader(tmp_path, engine)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(small("night")), "utf-8")

    def follow(section: str, node: str = "") -> None:
        reader.follow("at-3-am.md", {NAME: "night", **({IDS[0]: node} if node else {})}, section=section)

    yield follow
    engine.change_hyperpod(defaults=True)


def after_the_cluster(template: Json) -> None:
    """An edit that adds a resource which fails after the cluster's update."""
    (cluster,) = (name for name, each in template["Resources"].items() if each["Type"] == "AWS::SageMaker::Cluster")
    broken({"Type": "AWS::CloudFormation::WaitCondition", "Properties": {}}, after=[cluster])(template)


@contextmanager
def deploying(life: Rehearsal, config: Json, edit: Edit | None = None) -> Iterator[None]:
    """The deployment runs meanwhile, and has failed afterwards."""
    with ThreadPoolExecutor() as pool:
        change = pool.submit(life.change, config, edit=edit)
        yield
        assert change.result().status != "UPDATE_COMPLETE"


def test_the_steps_for_a_failed_deployment_work(night: Rehearsal, awake: Callable[..., None]) -> None:
    with deploying(night, resized(small("night"), "p5", 3), after_the_cluster):
        pass
    awake("A deployment failed")


def test_a_node_is_in_failure(night: Rehearsal, engine: LocalAws, awake: Callable[..., None]) -> None:
    node = next(iter(night.nodes("p5")))
    engine.change_hyperpod(nodes={node: {"status": "Failure"}})
    awake("A node is in Failure", node)
    night.wait_for(lambda: node not in night.nodes())


def test_a_group_is_below_its_minimum(night: Rehearsal, engine: LocalAws, awake: Callable[..., None]) -> None:
    night.leave_room("ml.p5.48xlarge", 0)
    with deploying(night, resized(small("night"), "p5", 4, 4)):
        night.wait_for(lambda: night.groups()["p5"][1] == 4)
        awake("A group is below its minimum, or capacity does not come")


def test_a_rollback_waits_and_then_fails(night: Rehearsal, engine: LocalAws, awake: Callable[..., None]) -> None:
    before = night.nodes().keys()
    engine.change_hyperpod(faults={"denied_until": {"BatchDeleteClusterNodes": 4e9}})
    with deploying(night, resized(small("night"), "p5", 4), after_the_cluster):
        night.wait_for(lambda: night.status() == "UPDATE_ROLLBACK_IN_PROGRESS")
        night.wait_for(lambda: any(entry.outcome == "AccessDeniedException" for entry in engine.journal()))
        awake("A rollback waits (UPDATE_ROLLBACK_IN_PROGRESS)")
        engine.skip(3600)
    assert night.status() == "UPDATE_ROLLBACK_FAILED"
    assert len(night.nodes()) == len(before) + 2, "the cluster waits until the guard has deleted the nodes that came"
    engine.change_hyperpod(faults={"denied_until": {}})
    awake("A rollback failed (UPDATE_ROLLBACK_FAILED)")
    night.wait_for(lambda: night.status() == "UPDATE_ROLLBACK_COMPLETE")
    assert night.nodes().keys() == before
