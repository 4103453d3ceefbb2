"""Disruption budgets and deadlines, on the real API server with its disruption controller."""

from __future__ import annotations

from typing import Any

import pytest

from cdk_hyperpod.config.jobs import ElasticJob, ElasticPolicy
from cdk_hyperpod.kubernetes.jobs import job_manifests
from helpers.drainer.rig import NOW, Rig
from helpers.findings import codes
from helpers.kubernetes.apiserver.objects import pods_of

JOB = ElasticJob(
    name="llama",
    namespace="team",
    image="none",
    instance_type="ml.p5.48xlarge",
    elastic_policy=ElasticPolicy(min_replicas=2, max_replicas=4, replica_increment_step=1),
    script="train.py",
    disruption_budget=True,
)
FIRST = "20271107T090000"


def blocked(rig: Rig) -> tuple[str, str]:
    """A node with a pod that its budget does not allow to evict, and the pod."""
    node = rig.node()
    web = rig.pod(node, "web-1", labels={"app": "web"})
    rig.budget("web", {"app": "web"}, least=1)
    return node, web


def test_a_budget_is_waited_for_until_the_deadline_and_then_the_node_goes_back(rig: Rig) -> None:
    node, web = blocked(rig)

    for minutes in (0, 10, 24):
        rig.now = NOW + 60 * minutes
        told = rig.ask(rig.node_request(node))["nodes"][node]
        assert told["state"] == "draining"
        budget = "The disruption budget web needs 1 healthy pods and has 1 currently"
        assert told["message"] == (
            f"pods: team/web-1 of ReplicaSet/web; {25 - minutes} minutes left; "
            f"evict team/web-1: waits for a disruption budget: {budget}"
        )
        assert rig.held(node)
        assert not rig.ends(web)

    rig.now = NOW + 1500
    told = rig.ask(rig.node_request(node))["nodes"][node]
    assert told["state"] == "timed-out"
    # The cause becomes the reason of the deployment's failure.
    went = "was released at its deadline; pods: team/web-1 of ReplicaSet/web"
    assert told["message"] == f"{went}; evict team/web-1: waits for a disruption budget: {budget}"
    assert rig.free(node)
    assert not rig.ends(web)
    # However often it is requested.
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "timed-out"
    assert rig.free(node)


def test_no_pod_is_evicted_after_the_deadline(rig: Rig) -> None:
    node = rig.node()
    web = rig.pod(node, "web-1")

    told = rig.ask(rig.node_request(node, deadline=NOW))["nodes"][node]

    assert (told["state"], told["message"]) == (
        "timed-out",
        "was released at its deadline; pods: team/web-1 of ReplicaSet/web",
    )
    assert rig.free(node)
    assert not rig.ends(web)


def test_a_budget_that_gives_way_lets_the_pod_go(rig: Rig) -> None:
    node, web = blocked(rig)
    rig.ask(rig.node_request(node))
    rig.pod(rig.node(), "web-2", labels={"app": "web"})
    rig.until(lambda: bool(rig.ask(rig.node_request(node))) and rig.ends(web), "the budget's count")


def test_under_force_what_is_left_at_the_deadline_ends_with_the_node(rig: Rig) -> None:
    node, web = blocked(rig)
    ending = rig.pod(node, "ending")
    rig.ask(rig.node_request(node, on_timeout="force"))
    assert rig.ends(ending)

    # A pod that is ending has no more time than the others, whatever its grace period.
    rig.now = NOW + 1500
    told = rig.ask(rig.node_request(node, on_timeout="force"))["nodes"][node]
    assert (told["state"], told["running"], told["message"]) == (
        "ready",
        2,
        "what is left ends with the node; pods: team/web-1 of ReplicaSet/web, team/ending of ReplicaSet/web (ending)",
    )
    assert rig.held(node)
    assert not rig.ends(web)


def test_a_node_that_became_ready_stays_so_past_the_deadline(rig: Rig) -> None:
    node = rig.node()
    rig.ask(rig.node_request(node))
    rig.now = NOW + 3000
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "ready"
    assert rig.held(node)


def test_an_elastic_job_shrinks_in_order_and_goes_on(rig: Rig) -> None:
    one, two = rig.node(), rig.node()
    rig.namespace("team")
    paths = {}
    for rank, manifest in enumerate(pods_of(JOB)):
        node = one if rank in (0, 3) else two
        template = manifest["spec"]["containers"]
        name = manifest["metadata"]["name"]
        labels = manifest["metadata"]["labels"]
        spec = {"containers": [{"name": each["name"], "image": "none"} for each in template]}
        paths[rank] = rig.pod(node, name, owner="HyperPodPyTorchJob/llama", labels=labels, **spec)
    (budget,) = (each for each in job_manifests(JOB) if each["kind"] == "PodDisruptionBudget")
    rig.install_budget(budget, healthy=4)

    # Two of four may leave: the last rank first. Of the other node the last one leaves too, or none.
    sent: list[str] = []
    rig.watch(sent)
    rig.ask(rig.node_request(one))
    evicted = [path.split("/")[-2] for path in sent if path.endswith("/eviction")]
    assert evicted == ["llama-worker-3", "llama-worker-0"]
    assert rig.end_pods() == ["llama-worker-0", "llama-worker-3"]
    assert rig.ask(rig.node_request(one))["nodes"][one]["state"] == "ready"

    # The job has its minimum size. It continues, and the other node stays.
    told = rig.ask(rig.node_request(one), rig.node_request(two))["nodes"]
    assert (told[one]["state"], told[two]["state"]) == ("ready", "draining")
    assert "The disruption budget llama needs 2 healthy pods and has 2 currently" in told[two]["message"]
    assert not rig.ends(paths[1]) and not rig.ends(paths[2])


def test_pods_of_the_lowest_priority_are_evicted_first(rig: Rig) -> None:
    node = rig.node()
    rig.admin.apply_all(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("dear", 100), ("cheap", -100))
    )
    rig.pod(node, "a-0", priorityClassName="dear")
    for number in (2, 10):
        rig.pod(node, f"b-{number}", priorityClassName="cheap")
    sent: list[str] = []
    rig.watch(sent)
    rig.ask(rig.node_request(node))
    assert [path.split("/")[-2] for path in sent if path.endswith("/eviction")] == ["b-10", "b-2", "a-0"]


@pytest.mark.parametrize("silent_s", [299, 300])
def test_a_silent_node_is_waited_for_until_the_deadline_and_then_lost(rig: Rig, silent_s: int) -> None:
    """Its pods may still run: perhaps only its connection to the API is cut."""
    node, web = blocked(rig)
    rig.node()
    rig.goes_silent(node, NOW - 2000)
    rig.ask(rig.node_request(node))
    told: dict[str, Any] = rig.ask(rig.node_request(node))["nodes"][node]
    assert told["state"] == "draining"
    assert told["message"].startswith("does not respond; pods: team/web-1 of ReplicaSet/web; 25 minutes left")

    rig.now = NOW + 1500
    rig.goes_silent(node, rig.now - silent_s)
    told = rig.ask(rig.node_request(node))["nodes"][node]

    if silent_s < 300:
        assert told["state"] == "timed-out"
        assert rig.free(node)
    else:
        said = "does not respond; what is left ends with the node; pods: team/web-1 of ReplicaSet/web"
        assert (told["state"], told["message"], told["saved"]) == ("ready", said, False)
        assert rig.held(node)
    assert not rig.ends(web)


def test_a_lost_node_that_had_to_be_saved_is_a_failed_backup(rig: Rig) -> None:
    rig.cron_job()
    node, _ = blocked(rig)
    rig.node()
    rig.goes_silent(node, NOW - 300)
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "draining"

    rig.now = NOW + 1500
    told = rig.ask(rig.node_request(node))["nodes"][node]

    assert (told["state"], codes(told["message"])) == ("backup-failed", ["node-lost"])
    for words in (f"kubectl delete node hyperpod-{node}", "pods: team/web-1"):
        assert words in told["message"]


def test_if_most_nodes_are_silent_no_node_counts_as_lost(rig: Rig) -> None:
    node, web = blocked(rig)
    others = [rig.node(), rig.node()]
    for each in (node, others[0]):
        rig.goes_silent(each, NOW - 300)
    rig.ask(rig.node_request(node))

    rig.now = NOW + 1500
    told = rig.ask(rig.node_request(node))["nodes"][node]

    assert told["state"] == "timed-out"
    assert told["message"].startswith("does not respond, as most nodes; was released at its deadline; pods: team/web-1")
    assert rig.free(node)
    assert not rig.ends(web)
