"""Priorities and disruption budgets, as a real API server and scheduler enforce them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from cdk_hyperpod.config.jobs import ElasticJob, ElasticPolicy
from cdk_hyperpod.config.teams import PriorityClass, Team
from cdk_hyperpod.kubernetes.jobs import job_manifests
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.teams import priority_class_manifests, team_manifests
from helpers.kubernetes.apiserver.client import Answer, Client, await_answer
from helpers.kubernetes.apiserver.objects import add_node, install, pod, pods_of
from helpers.kubernetes.samples import ELASTIC

CLASSES = (
    PriorityClass(name="base", value=1000),
    PriorityClass(name="elastic", value=10),
    PriorityClass(name="urgent", value=500, description="between the two"),
    PriorityClass(name="patient", value=900, preempts=False),
)
NODES = "ml.g6.12xlarge"
EVERY = tuple(item.name for item in CLASSES)


@pytest.fixture(scope="module", autouse=True)
def classes(admin: Client) -> None:
    admin.apply_all(priority_class_manifests(CLASSES))


def test_a_pod_gets_the_value_of_its_class(admin: Client) -> None:
    member = install(admin, Team(name="prioritized", quota={"ml.m5.4xlarge": 1}, priority_classes=EVERY))
    for item in CLASSES:
        answer = member.create(pod("prioritized", f"of-{item.name}", priorityClassName=item.name))
        policy = "PreemptLowerPriority" if item.preempts else "Never"
        assert answer.status == 201
        assert (answer.body["spec"]["priority"], answer.body["spec"]["preemptionPolicy"]) == (item.value, policy)
    assert member.create(pod("prioritized", "of-none")).body["spec"]["priority"] == 0


def test_a_pod_of_another_class_is_refused(admin: Client) -> None:
    """The classes in the team's list. Without a list, those that outrank no other team's pods."""
    for name, listed, allowed in (("ranked", ("patient",), "patient"), ("unranked", None, "humble")):
        classes = (*CLASSES, PriorityClass(name="humble", value=0))
        admin.apply_all(priority_class_manifests(classes[-1:]))
        team = Team(name=name, quota={"ml.m5.4xlarge": 1}, priority_classes=listed)
        member = install(admin, team, priority_classes=classes)
        assert member.create(pod(name, "allowed", priorityClassName=allowed)).status == 201
        assert member.create(pod(name, "of-none")).status == 201
        answer = member.create(pod(name, "p", priorityClassName="urgent"))
        assert (answer.status, answer.message) == (
            403,
            'pods "p" is forbidden: exceeded quota: no-other-priorities, requested: pods=1, used: pods=0, limited: pods=0',
        )


def test_a_team_gets_another_class_in_place(admin: Client) -> None:
    team = Team(name="promoted", quota={"ml.m5.4xlarge": 1})
    member = install(admin, team)
    assert member.create(pod("promoted", "p", priorityClassName="urgent")).status == 403
    admin.apply_all(team_manifests(dataclasses.replace(team, priority_classes=("urgent",)), task_governance=False))
    await_answer(
        lambda: member.create(pod("promoted", "p", priorityClassName="urgent")),
        lambda answer: answer.status == 201,
        "a pod of the new class",
    )


def test_a_class_that_is_not_there_is_refused(admin: Client) -> None:
    member = install(admin, Team(name="unclassed", quota={"ml.m5.4xlarge": 1}))
    answer = member.create(pod("unclassed", "p", priorityClassName="nobody"))
    assert (answer.status, answer.message) == (
        403,
        'pods "p" is forbidden: no PriorityClass with name nobody was found',
    )


def test_a_class_cannot_change_its_value(admin: Client) -> None:
    (changed,) = priority_class_manifests([PriorityClass(name="base", value=1001)])
    answer = admin.apply(changed)
    # Older versions name the field "Value".
    refusal = 'PriorityClass.scheduling.k8s.io "base" is invalid: value: Forbidden: may not be changed in an update.'
    assert (answer.status, answer.message.casefold()) == (422, refusal.casefold())


def test_a_system_name_is_refused_by_the_server_too(admin: Client) -> None:
    (manifest,) = priority_class_manifests([PriorityClass(name="system-x", value=1)])
    assert admin.create(manifest, dry_run=True).status == 422


def test_preemption_takes_what_the_job_grew_by_and_never_its_base(admin: Client) -> None:
    """Three nodes, filled by one job: 1 base replica, 2 elastic ones.

    An urgent job needs a node, twice, and once more.
    """
    member = install(admin, Team(name="preempted", quota={NODES: 8}, priority_classes=EVERY))
    job = dataclasses.replace(
        ELASTIC,
        name="job",
        namespace="preempted",
        instance_type=NODES,
        elastic_policy=ElasticPolicy(min_replicas=1, max_replicas=3, replica_increment_step=1),
        priority_class_name="elastic",
        base_priority_class_name="base",
    )
    for index in range(3):
        add_node(admin, f"node-{index}", NODES)
    pods = pods_of(job)
    for one in pods:
        assert member.create(one).status == 201
        await_pod(admin, one, is_bound)
    waits = urgent(job, "waits", "patient")
    assert member.create(waits).status == 201
    for name in ("first", "second"):
        taker = urgent(job, name, "urgent")
        assert member.create(taker).status == 201
        await_pod(admin, taker, is_nominated)
    # No kubelet ends the pods that the scheduler deleted. They stay, marked for deletion.
    assert {one["metadata"]["name"]: is_ending(read(admin, one)) for one in pods} == {
        "job-base-0": False,
        "job-elastic-0": True,
        "job-elastic-1": True,
    }
    third = urgent(job, "third", "urgent")
    assert member.create(third).status == 201
    await_pod(admin, third, is_refused)
    assert not is_ending(read(admin, pods[0]))
    assert not is_nominated(read(admin, waits))


def test_an_eviction_below_the_jobs_minimum_is_refused(admin: Client) -> None:
    member = install(admin, Team(name="evicted", quota={"ml.p5.48xlarge": 4}))
    job = dataclasses.replace(
        ELASTIC,
        namespace="evicted",
        elastic_policy=ElasticPolicy(min_replicas=2, max_replicas=3, replica_increment_step=1),
        disruption_budget=True,
    )
    budget = job_manifests(job)[-1]
    assert member.apply(budget).status == 201
    pods = pods_of(job)
    for one in pods:
        assert member.create(one).status == 201
        ready = [{"type": "Ready", "status": "True"}]
        assert admin.patch_status(one, {"phase": "Running", "conditions": ready}).status == 200
    path = f"/apis/policy/v1/namespaces/evicted/poddisruptionbudgets/{job.name}"
    await_answer(
        lambda: admin.get(path),
        lambda answer: answer.body["status"].get("disruptionsAllowed") == 1,
        "the budget's status",
    )
    assert evict(admin, pods[0]).status == 201
    assert admin.delete(pods[0]).status in (200, 404)
    refused = evict(admin, pods[1])
    assert (refused.status, refused.message) == (
        429,
        "Cannot evict pod as it would violate the pod's disruption budget.",
    )
    assert refused.body["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget llama needs 2 healthy pods and has 2 currently",
        }
    ]
    assert not is_ending(read(admin, pods[1]))


def evict(admin: Client, one: Manifest) -> Answer:
    """As `kubectl drain` and Karpenter do."""
    namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    return admin.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)


def urgent(job: ElasticJob, name: str, priority_class: str) -> Manifest:
    (taker, *_) = pods_of(
        dataclasses.replace(job, name=name, base_priority_class_name=None, priority_class_name=priority_class)
    )
    return taker


def read(admin: Client, one: Manifest) -> Answer:
    return admin.get(f"/api/v1/namespaces/{one['metadata']['namespace']}/pods/{one['metadata']['name']}")


def await_pod(admin: Client, one: Manifest, condition: Callable[[Answer], bool]) -> None:
    await_answer(lambda: read(admin, one), condition, f"{condition.__name__} of {one['metadata']['name']}")


def is_bound(answer: Answer) -> bool:
    return "nodeName" in answer.body["spec"]


def is_nominated(answer: Answer) -> bool:
    return "nominatedNodeName" in answer.body["status"]


def is_ending(answer: Answer) -> bool:
    return "deletionTimestamp" in answer.body["metadata"]


def is_refused(answer: Answer) -> bool:
    return any(item.get("reason") == "Unschedulable" for item in answer.body["status"].get("conditions", []))
