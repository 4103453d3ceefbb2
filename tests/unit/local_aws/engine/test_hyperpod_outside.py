"""HyperPod reads alarms with the rights of the nodes' role, and evicts pods by the API of the EKS cluster."""

from __future__ import annotations

from typing import Any

import pytest

from cdk_hyperpod_local.engine.services.hyperpod_outside import AccountOutside
from cdk_hyperpod_local.hyperpod import HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import EKS_ARN, ROLE, eks, group, run_until_quiet

Json = Any
ROLLING = {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}}}


class Api:
    """An API server with pods. `blocked`: those that a budget keeps; `versions`: of evictions."""

    def __init__(self, *pods: Json, blocked: tuple[str, ...] = (), versions: tuple[str, ...] = ("policy/v1",)) -> None:
        self.pods, self.blocked, self.versions = list(pods), blocked, versions
        self.unschedulable: dict[str, bool | None] = {}

    def request(self, method: str, path: str, body: Json = None) -> tuple[int, Json]:
        name = path.removesuffix("/eviction").rpartition("/")[2]
        match method:
            case "PATCH":
                self.unschedulable[name] = body["spec"]["unschedulable"]
                return 200, {}
            case "GET":
                return 200, {"items": self.pods}
            case "POST" if body["apiVersion"] not in self.versions:
                return 404, {}
            case "POST" if name in self.blocked:
                return 429, {}
        self.pods = [pod for pod in self.pods if pod["metadata"]["name"] != name]
        return 201, {}


def pod(name: str, node: str | None, kind: str = "ReplicaSet", phase: str = "Running") -> Json:
    metadata = {"name": name, "namespace": "team", "ownerReferences": [{"kind": kind}]}
    return {"metadata": metadata, "spec": {"nodeName": f"hyperpod-{node}"}, "status": {"phase": phase}}


def made(api: Api | None = None, *, state: str | None = None, may: bool = True) -> tuple[HyperPod, list[str]]:
    """Two nodes under EKS, and a newer image; the ids of the nodes."""

    def alarms() -> Any:
        yield "000000000000", "us-east-1", {"AlarmName": "a", "AlarmArn": "elsewhere", "StateValue": "ALARM"}
        if state is not None:
            yield "000000000000", "us-west-2", {"AlarmName": "a", "AlarmArn": "the-alarm", "StateValue": state}

    def may_read(role: str, session: str, alarm: str) -> bool:
        assert (role, session, alarm) == (ROLE, "p5", "the-alarm")
        return may

    def of(arn: str) -> Any:
        assert arn == EKS_ARN
        return api

    hyperpod = HyperPod(clock=ManualClock(), outside=AccountOutside(alarms, may_read, of))
    hyperpod.call("CreateCluster", eks(group("p5", 2, node_type=None)))
    run_until_quiet(hyperpod)
    hyperpod.release_image("1.5.0")
    return hyperpod, [str(node.instance_id) for node in hyperpod.nodes("train")]


def patch(hyperpod: HyperPod, **config: Any) -> str:
    """How the update ended."""
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train", "DeploymentConfig": {**ROLLING, **config}})
    run_until_quiet(hyperpod)
    (found,) = hyperpod.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"]
    return str(found["SoftwareUpdateStatus"])


@pytest.mark.parametrize(
    ("state", "may", "ends"),
    [
        ("OK", True, "Succeeded"),
        ("INSUFFICIENT_DATA", True, "Succeeded"),
        ("ALARM", True, "RollbackComplete"),
        ("OK", False, "RollbackComplete"),
        (None, True, "RollbackComplete"),
    ],
)
def test_an_alarm_that_rings_or_may_not_be_read_rolls_back(state: str | None, may: bool, ends: str) -> None:
    hyperpod, _ = made(state=state, may=may)
    assert patch(hyperpod, AutoRollbackConfiguration=[{"AlarmName": "a"}]) == ends


@pytest.mark.parametrize("versions", [("policy/v1",), ("policy/v1beta1",), ()])
def test_pods_are_evicted_apart_from_those_of_daemon_sets(versions: tuple[str, ...]) -> None:
    api = Api(versions=versions)
    hyperpod, (one, other) = made(api)
    api.pods = [pod("web", one), pod("agent", one, "DaemonSet"), pod("done", one, phase="Succeeded"), pod("far", "x")]
    assert patch(hyperpod) == "Succeeded"
    assert [each["metadata"]["name"] for each in api.pods] == ["agent", "done", "far"]
    assert api.unschedulable == {f"hyperpod-{one}": None, f"hyperpod-{other}": None}


def test_a_budget_keeps_its_node_on_the_old_image() -> None:
    api = Api(blocked=("web",))
    hyperpod, (one, other) = made(api)
    api.pods = [pod("web", one)]
    assert patch(hyperpod) == "Succeeded"
    assert [each.node_id for each in hyperpod.re_images] == [other]
    assert api.unschedulable[f"hyperpod-{one}"] is None


def test_a_node_with_a_pod_is_not_idle() -> None:
    api = Api()
    hyperpod, (one, other) = made(api)
    api.pods = [pod("web", one)]
    cluster = hyperpod.cluster("train")
    idle = [hyperpod.outside.is_idle(cluster, node) for node in hyperpod.nodes("train")]
    assert idle == [False, True]
    del other
