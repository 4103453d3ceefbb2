"""Jobs as `hyp create hyp-pytorch-job` submits them, by a member of a team, under its quota, its defaults and its
Role."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest

from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.teams import namespace_name
from helpers.kubernetes import sdk
from helpers.kubernetes.apiserver.client import Client, await_answer
from helpers.kubernetes.apiserver.objects import install

TYPES = {"p5": "ml.p5.48xlarge", "trn1": "ml.trn1.32xlarge", "g6": "ml.g6.12xlarge"}
FLAGS: dict[str, dict[str, Any]] = {
    "by itself": {"node_count": 2},
    "some accelerators": {"accelerators": 2},
    "a request": {"accelerators": 4, "vcpu": 40.0, "memory": 150.0},
    "a request and its limit": {
        "accelerators": 4,
        "vcpu": 8.0,
        "memory": 32.0,
        "vcpu_limit": 16.0,
        "memory_limit": 64.0,
    },
    "vCPUs alone": {"vcpu": 16.0},
}


@pytest.mark.parametrize("governed", [False, True], ids=["by itself", "task governance"])
@pytest.mark.parametrize("team", TYPES)
def test_hyps_job_runs_in_a_team_that_has_two_nodes(admin: Client, team: str, governed: bool) -> None:
    owner = Team(name=f"hyp-{team}", quota={TYPES[team]: 2})
    namespace = namespace_name(owner, task_governance=governed)
    member = install(admin, owner, task_governance=governed)
    submitted = sdk.submitted_by_hyp(
        [
            {
                "job_name": f"job-{index}",
                "namespace": namespace,
                "image": "train:1",
                "instance_type": TYPES[team],
                **({"queue_name": f"{namespace}-localqueue"} if governed else {}),
                **flags,
            }
            for index, flags in enumerate(FLAGS.values())
        ]
    )
    for flags, job in zip(FLAGS, submitted, strict=True):
        assert (flags, member.create(job).status) == (flags, 201)
        pods = pods_of(job)
        for pod in pods:
            # The quota counts the pods of the job before until its controller has seen that they are gone.
            await_answer(partial(member.create, pod), lambda answer: answer.status == 201, f"the pod with {flags}")
        for pod in pods:
            assert member.delete(pod).status == 200


def test_a_job_of_more_nodes_than_the_team_has_stops_at_its_quota(admin: Client) -> None:
    member = install(admin, Team(name="hyp-small", quota={"ml.p5.48xlarge": 1}))
    (job,) = sdk.submitted_by_hyp(
        [
            {
                "job_name": "two",
                "namespace": "hyp-small",
                "image": "train:1",
                "instance_type": "ml.p5.48xlarge",
                "node_count": 2,
            }
        ]
    )
    assert [member.create(pod).status for pod in pods_of(job)] == [201, 403]


def pods_of(job: Manifest) -> list[Manifest]:
    """Pods as the operator creates them from the template. They are not scheduled."""
    (replica,) = job["spec"]["replicaSpecs"]
    pods = []
    for index in range(replica["replicas"]):
        template = copy.deepcopy(replica["template"])
        template["metadata"] |= {
            "name": f"{job['metadata']['name']}-{index}",
            "namespace": job["metadata"]["namespace"],
        }
        template["spec"]["schedulerName"] = "nobody"
        pods.append({"apiVersion": "v1", "kind": "Pod", **template})
    return pods
