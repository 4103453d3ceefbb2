"""A job as AWS's recipes render it, by a member of a team, under its quota, its defaults and its Role."""

from __future__ import annotations

import copy

import pytest
import yaml

from cdk_hyperpod.cli import main
from cdk_hyperpod.kubernetes import Manifest, Team
from kubernetes.apiserver.client import Client
from kubernetes.apiserver.objects import install
from kubernetes.recipes import FROM_THE_RECIPE, RECIPE

WHOLE_NODE = 1890
"""GiB that pods can have of a P5 node."""


def test_the_recipes_template_in_a_team_that_lets_it_in(admin: Client) -> None:
    """It says nothing of memory, so each pod gets what the team's default is: a node's."""
    team = Team(name="recipes", quota={"ml.p5.48xlarge": 16}, pod_security="privileged", default_memory_gib=WHOLE_NODE)
    member = install(admin, team)
    labels = admin.get("/api/v1/namespaces/recipes").body["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    config = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert (
        member.create({**config, "metadata": {"name": "training-config-llama-70b", "namespace": "recipes"}}).status
        == 201
    )
    assert member.create(RECIPE).status == 201
    made = [member.create(pod) for pod in pods_of(RECIPE, "recipes")]
    assert [answer.status for answer in made] == [201] * 16
    resources = made[0].body["spec"]["containers"][0]["resources"]
    assert (resources["limits"]["memory"], "cpu" in resources["limits"]) == (f"{WHOLE_NODE}Gi", False)


def test_a_job_of_the_recipes_numbers_in_any_team(admin: Client, capsys: pytest.CaptureFixture[str]) -> None:
    member = install(admin, Team(name="rendered", quota={"ml.p5.48xlarge": 16}))
    assert main([*FROM_THE_RECIPE, "--namespace", "rendered"]) == 0
    (job,) = yaml.safe_load_all(capsys.readouterr().out)
    assert member.create(job).status == 201
    assert [member.create(pod).status for pod in pods_of(job, "rendered")] == [201] * 16


def pods_of(job: Manifest, namespace: str) -> list[Manifest]:
    (replica,) = job["spec"]["replicaSpecs"]
    pods = []
    for index in range(replica["replicas"]):
        template = copy.deepcopy(replica["template"])
        metadata = {"name": f"pod-{index}", "namespace": namespace}
        template["spec"]["schedulerName"] = "nobody"
        pods.append({"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata})
    return pods
