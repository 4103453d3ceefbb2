"""`cdk-hyperpod patch` and a real API server: pods are evicted before their node gets another image, as far as budgets allow."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod.cli import live, tables
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.cli.patch import patcher
from cdk_hyperpod.names import cluster_stack_name
from cdk_hyperpod_local.hyperpod import HyperPod, ManualClock, Outside
from cdk_hyperpod_local.hyperpod.samples import EKS_ARN, eks, group, run_until_quiet
from helpers.drainer.rig import Rig
from helpers.kubernetes.apiserver.client import Answer
from unit.cli.conftest import FakeAws

PODS = "/api/v1/namespaces/team/pods"
FILE: dict[str, Any] = {
    "name": "small",
    "region": "us-west-2",
    "orchestrator": "eks",
    "eks": {
        "dependencies_chart": "installed",
        "existing_cluster": {"name": EKS_ARN.split("/")[1], "security_group_id": "sg-0123456789abcdef0"},
    },
    "network": {
        "vpc_id": "vpc-0123456789abcdef0",
        "subnets": [
            {"subnet_id": f"subnet-0{number}23456789abcdef0", "availability_zone": f"us-west-2{zone}"}
            for number, zone in ((1, "a"), (2, "b"))
        ],
    },
    "instance_groups": [{"name": "work", "instance_type": "ml.p5.48xlarge", "instance_count": 3}],
}


@dataclass
class World:
    """Three nodes of HyperPod with a web pod each, and a node of another group, to which evicted pods move."""

    rig: Rig
    model: HyperPod
    spare: str
    nodes: list[str]
    fewest: int = 99
    """The lowest number of ready web pods so far."""
    ended: list[str] = field(default_factory=list)
    """Pods that were on a node when its root volume was replaced."""
    moves: bool = True
    """Evicted pods start again on the spare node."""
    _moved: int = 0

    def pods(self, node: str | None = None) -> list[str]:
        """The web pods that are ready; of a node."""
        found = self.rig.admin.get(PODS).body["items"]
        return [
            pod["metadata"]["name"]
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
            and (node is None or pod["spec"]["nodeName"] == f"hyperpod-{node}")
        ]

    def kubelets(self) -> None:
        """Evicted pods end, and start elsewhere."""
        self.fewest = min(self.fewest, len(self.pods()))
        for _ in self.rig.end_pods():
            if self.moves:
                self._moved += 1
                self.rig.pod(self.spare, f"moved-{self._moved}", labels={"app": "web"})
        ready = len(self.pods())
        path = "/apis/policy/v1beta1/namespaces/team/poddisruptionbudgets/web"
        self.rig.until(
            lambda: self.rig.admin.get(path).body["status"].get("currentHealthy") == ready, "the budget's count"
        )

    def drain(self, event: Any) -> Any:
        """The drainer, in Lambda."""
        self.rig.now = self.model.clock.now()
        answer = self.rig.send(event)
        self.kubelets()
        return answer

    def wait(self, seconds: float) -> None:
        """In place of `Patcher.wait`."""
        assert isinstance(self.model.clock, ManualClock)
        self.model.clock.advance(seconds)
        self.model.tick()
        self.kubelets()


class Kubernetes(Outside):
    """HyperPod evicts by the real API."""

    __slots__ = ("world",)
    world: World

    def evict(self, cluster: Any, node: Any) -> bool:
        world, path = self.world, f"/api/v1/nodes/hyperpod-{node.instance_id}"
        world.rig.patch(path, {"spec": {"unschedulable": True}})
        answers = [self._evict(name) for name in world.pods(node.instance_id)]
        world.kubelets()
        return all(answer.status == 201 for answer in answers)

    def _evict(self, name: str) -> Answer:
        body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name, "namespace": "team"}}
        return self.world.rig.admin.request("POST", f"{PODS}/{name}/eviction", body)

    def restore(self, cluster: Any, node: Any) -> None:
        self.world.rig.patch(f"/api/v1/nodes/hyperpod-{node.instance_id}", {"spec": {"unschedulable": None}})

    def replace_root(self, cluster: Any, node: Any) -> None:
        self.world.ended += self.world.pods(node.instance_id)


@pytest.fixture
def make(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    def build(least: int, **settings: Any) -> World:
        """`least`: minAvailable of the web pods' budget. `settings`: of the group in the file."""
        model = HyperPod(clock=ManualClock())
        model.call("CreateCluster", eks(group("work", 3, node_type=None), name="small"))
        run_until_quiet(model)
        model.release_image("1.5.0")
        world = World(rig, model, rig.node(), [str(node.instance_id) for node in model.nodes("small")])
        for number, instance in enumerate(world.nodes):
            rig.node(instance=instance)
            rig.pod(instance, f"web-{number}", labels={"app": "web"})
        rig.budget("web", {"app": "web"}, least=least)
        rig.until(lambda: rig.allowed("web") == 3 - least, "the budget's count")
        model.outside = Kubernetes()
        model.outside.world = world
        (work,) = FILE["instance_groups"]
        Path(tmp_path / "cluster.yaml").write_text(yaml.safe_dump({**FILE, "instance_groups": [{**work, **settings}]}))
        aws = FakeAws(model, drainer=world.drain)
        aws.stack = {"StackName": cluster_stack_name("small"), "StackStatus": "UPDATE_COMPLETE"}
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(live, "clients", lambda *_: aws.client)
        monkeypatch.setattr(tables, "now", lambda: datetime.fromtimestamp(model.clock.now(), UTC))
        monkeypatch.setattr(patcher.Patcher, "wait", staticmethod(world.wait))
        return world

    return build


def test_the_drainer_moves_every_pod_within_its_budget_before_any_node_is_patched(
    make: Callable[..., World], capsys: pytest.CaptureFixture[str]
) -> None:
    world = make(least=2)
    code = main(["patch", "work", "--yes"])
    printed = capsys.readouterr()
    assert code == 0, printed.out + printed.err
    assert {node.image for node in world.model.nodes("small")} == {"1.5.0"}
    assert (world.ended, world.fewest) == ([], 2)
    assert len(world.pods(world.spare)) == 3
    assert all(world.rig.free(instance) for instance in world.nodes)


def test_hyperpods_own_evictions_skip_a_node_whose_budget_would_break(
    make: Callable[..., World], capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches of one node: of three web pods two must stay, and no evicted pod starts elsewhere."""
    world = make(least=2, rolling={"batch_nodes": 1})
    world.moves = False
    code = main(["patch", "work", "--yes", "--json"])
    printed = capsys.readouterr()
    last = json.loads(printed.out.splitlines()[-1])
    images = {str(node.instance_id): node.image for node in world.model.nodes("small")}
    left = [instance for instance, image in images.items() if image != "1.5.0"]
    assert code == 4, printed.out + printed.err
    assert len(left) == 2 and sorted(last["on_old_image"]) == sorted(left), last
    assert (world.ended, world.fewest) == ([], 2)
    assert all(world.rig.free(instance) for instance in world.nodes)
