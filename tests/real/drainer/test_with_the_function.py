"""The scale-down function, its drainer and a real API server: deployments of a cluster whose pods are real objects."""

from __future__ import annotations

import io
import json
from typing import Any, cast

from helpers.drainer.rig import Rig
from helpers.scale_down.drainer import Drainer as Pretended
from helpers.scale_down.eks import FOUR, TWO
from helpers.scale_down.scenarios import QUICK, ids
from helpers.scale_down.stack import LAMBDA, Behaviour, Stack, Template, group


class Invoked:
    """Lambda with the real drainer. Before each look, the kubelets do what the test has set."""

    def __init__(self, rig: Rig, stack: Stack) -> None:
        self.rig, self.stack = rig, stack
        self.held: set[str] = set()
        """All nodes that were ever held."""

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        del FunctionName
        self.rig.now = self.stack.clock.now()
        self.rig.end_pods()
        answer = self.rig.send(json.loads(Payload))
        self.held |= {name for name in answer["nodes"] if self.rig.held(name)}
        return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(answer).encode())}


def four(rig: Rig) -> tuple[Stack, Invoked]:
    """A cluster of four nodes, each of them also a node of Kubernetes."""
    stack = Stack(FOUR, timings=QUICK, behaviour=Behaviour(), poll=120)
    lambdas = Invoked(rig, stack)
    stack.drainer = cast(Pretended, lambdas)
    for instance in ids(stack, "p5"):
        rig.node(instance=instance)
    return stack, lambdas


def test_a_budget_fails_the_deployment_and_when_it_gives_way_the_nodes_go(rig: Rig) -> None:
    stack, lambdas = four(rig)
    for number, instance in enumerate(ids(stack, "p5")):
        rig.pod(instance, f"web-{number}", labels={"app": "web"})
    rig.budget("web", {"app": "web"}, least=4)

    assert stack.deploy(TWO) == "rolled back"

    (reason,) = stack.reasons
    assert "nothing was deleted" in reason and "[nodes-not-ready]" in reason
    assert "waits for a disruption budget: The disruption budget web needs 4 healthy pods and has 4 currently" in reason
    assert not stack.hyperpod.terminations
    assert len(lambdas.held) == 2
    assert all(rig.free(instance) for instance in ids(stack, "p5"))
    assert len(rig.admin.get("/api/v1/namespaces/team/pods").body["items"]) == 4

    rig.patch("/apis/policy/v1/namespaces/team/poddisruptionbudgets/web", {"spec": {"minAvailable": 2}})
    rig.until(lambda: rig.allowed("web") == 2, "the budget's count")
    assert stack.deploy(TWO) == "complete", stack.reasons

    gone = {str(each.node_id) for each in stack.hyperpod.terminations}
    assert gone <= lambdas.held
    assert len(gone) == 2
    assert dict(stack.hyperpod.changes(principal=LAMBDA))["BatchDeleteClusterNodes"] == 1
    left = {pod["spec"]["nodeName"] for pod in rig.admin.get("/api/v1/namespaces/team/pods").body["items"]}
    assert left == {f"hyperpod-{instance}" for instance in ids(stack, "p5")}
    assert all(rig.free(instance) for instance in ids(stack, "p5"))


def test_idle_nodes_go_first_and_under_force_a_budget_only_delays(rig: Rig) -> None:
    stack, lambdas = four(rig)
    idle, *busy = ids(stack, "p5")
    for number, instance in enumerate(busy):
        rig.pod(instance, f"web-{number}", labels={"app": "web"})
    rig.budget("web", {"app": "web"}, least=3)

    three = Template(groups=(group("p5", 3),), drain=FOUR.drain)
    assert stack.deploy(three) == "complete", stack.reasons
    assert [each.node_id for each in stack.hyperpod.terminations] == [idle]
    assert lambdas.held == {idle}

    began = stack.clock.now()
    forced = Template(groups=(group("p5", 2),), drain={**(FOUR.drain or {}), "OnTimeout": "force"})
    assert stack.deploy(forced) == "complete", stack.reasons
    _, last = stack.hyperpod.terminations
    assert last.at >= began + 25 * 60
    # Its pod ended with it, without an eviction.
    assert len(rig.admin.get("/api/v1/namespaces/team/pods").body["items"]) == 3
