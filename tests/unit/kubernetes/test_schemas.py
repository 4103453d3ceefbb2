"""Kubernetes' published schemas of every built-in kind, strictly: an unknown field is an error.

(What a schema cannot say, a real API server says: see apiserver/.)
"""

from __future__ import annotations

import copy
import re

import kubernetes_validate as kv  # type: ignore[import-untyped]
import pytest
import yaml

from cdk_hyperpod.kubernetes.manifests import Manifest
from helpers.kubernetes.samples import SAMPLES
from helpers.kubernetes.versions import VERSIONS
from helpers.synthesis import ROOT

MANIFESTS = {
    f"{name}-{manifest['kind']}": manifest
    for name, manifests in SAMPLES.items()
    for manifest in manifests
    if manifest["kind"] != "HyperPodPyTorchJob"
}


def test_every_built_in_kind_is_among_them() -> None:
    assert {manifest["kind"] for manifest in MANIFESTS.values()} == {
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "LimitRange",
        "Namespace",
        "PodDisruptionBudget",
        "PriorityClass",
        "ResourceQuota",
        "Role",
        "RoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }


@pytest.mark.parametrize(
    "version", [VERSIONS[0], *(pytest.param(each, marks=pytest.mark.ci) for each in VERSIONS[1:-1]), VERSIONS[-1]]
)
@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_manifest_follows_the_schema(manifest: Manifest, version: str) -> None:
    kv.validate(manifest, version, strict=True)


@pytest.mark.parametrize("job", ["elastic-job", "elastic-job-with-everything"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_pods_of_a_job_follow_the_schema(job: str, version: str) -> None:
    (manifest,) = (manifest for manifest in SAMPLES[job] if manifest["kind"] == "HyperPodPyTorchJob")
    for spec in manifest["spec"]["replicaSpecs"]:
        kv.validate({"apiVersion": "v1", "kind": "Pod", **spec["template"]}, version, strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_the_schema_refuses_an_unknown_field(manifest: Manifest) -> None:
    """Otherwise the tests above would prove nothing."""
    wrong = copy.deepcopy(manifest)
    wrong["metadata"]["labelz"] = {}
    with pytest.raises(kv.ValidationError, match="labelz"):
        kv.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_policy_of_the_guide_follows_the_schema(version: str) -> None:
    """The one that docs/team-isolation.md gives to administrators; no API server here knows the kind."""
    guide = (ROOT / "docs" / "team-isolation.md").read_text()
    (block,) = re.findall(r"```yaml\n(apiVersion: admissionregistration.*?)```", guide, flags=re.DOTALL)
    policy, binding = yaml.safe_load_all(block)
    for manifest in (policy, binding):
        kv.validate(manifest, version, strict=True)
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
