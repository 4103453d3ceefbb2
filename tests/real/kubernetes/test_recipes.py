"""A job as AWS's recipes render it, by a member of a team, under its quota, its defaults and its Role."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.cli.main import main
from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.loader import load_config
from helpers.kubernetes.apiserver.client import Client
from helpers.kubernetes.apiserver.objects import install
from helpers.kubernetes.recipes import FROM_THE_RECIPE, RECIPE

WHOLE_NODE = 1890
"""GiB that pods can have on a P5 node."""


def test_the_recipes_template_in_a_team_that_lets_it_in(admin: Client) -> None:
    """It requests no memory, so each pod gets the team's default: a whole node's."""
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


FILE = """
name: grouped
region: us-west-2
orchestrator: eks
network: {availability_zones: [us-west-2c, us-west-2a]}
eks:
  dependencies_chart: installed
  add_ons: {task_governance: {enabled: false}}
teams:
- {name: grouped, quota: {ml.p5.48xlarge: 4}, pod_role_arn: "arn:aws:iam::111122223333:role/pods"}
instance_groups:
- {name: system, instance_type: ml.m5.4xlarge, instance_count: 2, min_instance_count: 1}
- name: p5
  instance_type: ml.p5.48xlarge
  instance_count: 8
  labels: {example.com/pool: large}
  taints: [{key: nvidia.com/gpu, effect: no_schedule, value: present}, {key: example.com/pool, effect: no_execute}]
"""


def test_a_job_of_a_group_with_the_teams_role(
    admin: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The group's labels and taints as in the file, and the service account that the deployment created."""
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE)
    (team,) = load_config(file).config.teams
    member = install(admin, team)
    needed = ["--name", "llama", "--namespace", "grouped", "--image", "train:1", "--nodes", "4"]
    chosen = ["--config", str(file), "--group", "p5", "--service-account", "team-pods"]
    assert main(["job", "render", *needed, *chosen]) == 0
    (job,) = yaml.safe_load_all(capsys.readouterr().out)
    assert member.create(job).status == 201
    made = [member.create(pod) for pod in pods_of(job, "grouped")]
    assert [answer.status for answer in made] == [201] * 4, [answer.body for answer in made]
    spec = made[0].body["spec"]
    assert spec["serviceAccountName"] == "team-pods"
    assert spec["nodeSelector"] == {
        "node.kubernetes.io/instance-type": "ml.p5.48xlarge",
        "example.com/pool": "large",
        "topology.kubernetes.io/zone": "us-west-2c",
    }
    # The server adds tolerations for nodes that are not ready.
    tolerated = {(item["key"], item.get("value"), item["effect"]) for item in spec["tolerations"]}
    assert {("nvidia.com/gpu", "present", "NoSchedule"), ("example.com/pool", None, "NoExecute")} <= tolerated


def pods_of(job: Manifest, namespace: str) -> list[Manifest]:
    (replica,) = job["spec"]["replicaSpecs"]
    pods = []
    for index in range(replica["replicas"]):
        template = copy.deepcopy(replica["template"])
        metadata = {"name": f"pod-{index}", "namespace": namespace}
        template["spec"]["schedulerName"] = "nobody"
        pods.append({"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata})
    return pods
