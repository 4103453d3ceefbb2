"""What a Kubernetes that EKS offers admits: Pod Security, and the policy of the guide.

CI's server is 1.20, which has neither. There tests/unit/kubernetes checks the same by schemas and by Pod Security's rules. To run these
here, name a folder with a newer Kubernetes in KUBERNETES_BIN (docs/testing.md).
"""

from __future__ import annotations

import copy
import dataclasses
import re

import pytest
import yaml

from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.kubernetes.manifests import Manifest
from helpers.kubernetes.apiserver.client import Client, await_answer
from helpers.kubernetes.apiserver.objects import install, pods_of
from helpers.kubernetes.recipes import RECIPE
from helpers.kubernetes.samples import ELASTIC
from helpers.synthesis import ROOT


@pytest.fixture(scope="module")
def newer(admin: Client) -> Client:
    if admin.cluster.minor < 30:
        pytest.skip("CI's Kubernetes is too old for it: name a newer one in KUBERNETES_BIN")
    return admin


def recipes_pod(namespace: str) -> Manifest:
    template = copy.deepcopy(RECIPE["spec"]["replicaSpecs"][0]["template"])
    template["metadata"] = {"name": "recipe", "namespace": namespace}
    template["spec"]["schedulerName"] = "nobody"
    return {"apiVersion": "v1", "kind": "Pod", **template}


@pytest.mark.parametrize(
    ("standard", "recipe", "ours"), [("privileged", 201, 201), ("baseline", 403, 201), ("restricted", 403, 403)]
)
def test_the_standard_of_the_team_decides(newer: Client, standard: str, recipe: int, ours: int) -> None:
    """The recipes' template needs privileged. A rendered job passes baseline, and not restricted: its image decides who runs."""
    name = f"standard-{standard}"
    quota = {"ml.p5.48xlarge": 16}
    team = Team(name=name, quota=quota, pod_security=standard, default_memory_gib=1890)  # type: ignore[arg-type]
    member = install(newer, team, usable_by_any_pod=standard != "restricted")
    answers = [
        member.create(recipes_pod(name), dry_run=True),
        member.create(pods_of(dataclasses.replace(ELASTIC, namespace=name))[0], dry_run=True),
    ]
    assert [answer.status for answer in answers] == [recipe, ours]
    assert all(f'violates PodSecurity "{standard}' in answer.message for answer in answers if answer.status == 403)


def test_the_policy_of_the_guide_refuses_external_ips(newer: Client) -> None:
    guide = (ROOT / "docs" / "team-isolation.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(apiVersion: admissionregistration.*?)```", guide, flags=re.DOTALL)
    member = install(newer, Team(name="no-ips"))
    newer.apply_all(yaml.safe_load_all(block))
    spec = {"ports": [{"port": 80}], "externalIPs": ["10.1.2.3"]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "no-ips"}, "spec": spec}
    refused = await_answer(
        lambda: member.create(service, dry_run=True), lambda answer: answer.status != 201, "the policy", 60
    )
    assert "externalIPs catch the traffic of other teams" in refused.message
    del spec["externalIPs"]
    assert member.create(service, dry_run=True).status == 201
    for manifest in yaml.safe_load_all(block):
        newer.request("DELETE", f"/apis/admissionregistration.k8s.io/v1/{PLURALS[manifest['kind']]}/no-external-ips")


PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
