"""The policy of a team that borrows, on an API server that has such policies.

CI's server is 1.20, which has none. There tests/unit/kubernetes/test_queue_policy.py evaluates the same cases. To run these here, name
a folder with a newer Kubernetes in KUBERNETES_BIN (docs/testing.md).
"""

from __future__ import annotations

import copy
from functools import partial

import pytest

from cdk_hyperpod.kubernetes.manifests import Manifest
from helpers.kubernetes.apiserver.client import Answer, Client, await_answer
from helpers.kubernetes.apiserver.objects import install, pod, requesting
from helpers.kubernetes.queued import BORROWS, CASES, GPUS, NAMESPACE, OWNER, QUEUED


@pytest.fixture(scope="module")
def member(admin: Client) -> Client:
    if admin.cluster.minor < 30:
        pytest.skip("Kubernetes has ValidatingAdmissionPolicies since 1.30: name a newer one in KUBERNETES_BIN")
    member = install(admin, BORROWS, task_governance=True)
    alone = pod(NAMESPACE, "alone", container=requesting(**GPUS))
    await_answer(lambda: member.create(alone, dry_run=True), lambda answer: answer.status == 403, "the policy", 60)
    return member


def test_a_workload_that_requests_accelerators_needs_a_queue(admin: Client, member: Client) -> None:
    for case in CASES:
        answer = (member if case.by_a_member else admin).create(case.manifest, dry_run=True)
        assert (case.name, answer.status) == (case.name, 201 if case.admitted else 403), answer.message
        assert case.admitted or "needs a queue, because this team borrows nodes" in answer.message, case.name


def test_six_nodes_through_the_queue_and_none_outside(admin: Client, member: Client) -> None:
    """Share 4, borrow 2: the quota is the ceiling, and the policy keeps it for what Kueue admitted."""
    job = next(case.manifest for case in CASES if case.name == "HyperPodPyTorchJob with a queue")
    assert member.create(job).status == 201
    made: list[Manifest] = []
    for index in range(7):
        one = pod(NAMESPACE, f"worker-{index}", labels=QUEUED, container=requesting(**GPUS))
        one["metadata"]["ownerReferences"] = OWNER
        outside = copy.deepcopy(one) | {"metadata": {"name": f"outside-{index}", "namespace": NAMESPACE}}
        assert "needs a queue" in member.create(outside).message
        answer = admin.create(one)
        if answer.status == 201:
            made.append(one)
    assert len(made) == 6
    assert "exceeded quota: team-quota" in answer.message
    for one in made:
        admin.delete(one)


def test_a_member_does_not_take_the_label_away(admin: Client, member: Client) -> None:
    job = next(case.manifest for case in CASES if case.name == "Job with a queue")
    job = {**job, "metadata": {**job["metadata"], "name": "keeps-its-label"}, "spec": {**job["spec"], "suspend": True}}
    assert member.create(job).status == 201
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/keeps-its-label"
    change = {"metadata": {"labels": dict.fromkeys(QUEUED)}}
    refused = member.request("PATCH", path, change, "application/merge-patch+json")
    assert (refused.status, "needs a queue" in refused.message) == (403, True)
    # A controller's change of an object from before the policy.
    assert admin.request("PATCH", path, change, "application/merge-patch+json").status == 200
    assert (
        member.request("PATCH", path, {"metadata": {"annotations": {"a": "b"}}}, "application/merge-patch+json").status
        == 403
    )
    assert member.request("DELETE", path).status == 200


def test_more_replicas_need_a_queue(admin: Client, member: Client) -> None:
    """Of a Deployment from before the policy, also by an autoscaler, which is no member."""
    alone, through = (
        next(case.manifest for case in CASES if case.name == f"Deployment {name}")
        for name in ("of a controller", "with a queue")
    )
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    names = [each["metadata"]["name"] for each in (alone, through)]
    assert [admin.create(each).status for each in (alone, through)] == [201, 201]
    # A controller takes its owner away: as it was before the policy.
    no_owner = {"metadata": {"ownerReferences": None}}
    assert admin.request("PATCH", f"{path}/{names[0]}", no_owner, "application/merge-patch+json").status == 200

    def scaled(who: Client, name: str, replicas: int) -> Answer:
        return who.request(
            "PATCH", f"{path}/{name}/scale", {"spec": {"replicas": replicas}}, "application/merge-patch+json"
        )

    for who in (member, admin):
        refused = await_answer(
            partial(scaled, who, names[0], 1), lambda answer: answer.status == 403, "the policy of scales", 60
        )
        assert "more replicas with accelerators need a queue" in refused.message
    assert [scaled(member, names[1], replicas).status for replicas in (1, 0)] == [200, 200]
    for name in names:
        admin.request("DELETE", f"{path}/{name}")


def test_other_namespaces_are_as_before(admin: Client, member: Client) -> None:
    free = install(admin, type(BORROWS)(name="free-of-it", quota={"ml.p5.48xlarge": 1}), task_governance=True)
    assert free.create(pod("hyperpod-ns-free-of-it", "p", container=requesting(**GPUS)), dry_run=True).status == 201
