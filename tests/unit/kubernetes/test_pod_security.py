"""The pods of a rendered job pass what a team's namespace enforces by default.

What `baseline` refuses (https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline) is in a security
context, in fields of the host's, in ports of the host's, or in a volume. `restricted` asks for a security context, which
a job does not have, since its image says who runs.
"""

from __future__ import annotations

import pytest
import yaml

from cdk_hyperpod.cli.main import main
from cdk_hyperpod.kubernetes.manifests import Manifest
from helpers.kubernetes.recipes import FROM_THE_RECIPE, RECIPE
from helpers.kubernetes.samples import SAMPLES

# Volumes that read or write nothing of the node's.
HARMLESS = {"configMap", "emptyDir", "persistentVolumeClaim"}


@pytest.mark.parametrize("name", ["elastic-job", "elastic-job-with-everything"])
def test_the_pods_of_a_job_pass_baseline(name: str) -> None:
    (job,) = (manifest for manifest in SAMPLES[name] if manifest["kind"] == "HyperPodPyTorchJob")
    for replica in job["spec"]["replicaSpecs"]:
        assert beyond_baseline(replica["template"]) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"hostPID": True},
        {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
        {"volumes": [{"name": "shm", "hostPath": {"path": "/dev/shm"}}]},
        {"containers": [{"name": "main", "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}]},
        {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
    ],
)
def test_a_pod_beyond_the_baseline_standard_is_found(wrong: Manifest) -> None:
    assert len(beyond_baseline({"spec": wrong})) == 1


def test_the_recipes_template_is_refused_and_a_job_of_its_numbers_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    (template,) = [replica["template"] for replica in RECIPE["spec"]["replicaSpecs"]]
    assert beyond_baseline(template) == ["securityContext", "hostPath", "hostPath"]
    assert main([*FROM_THE_RECIPE, "--namespace", "team"]) == 0
    (job,) = yaml.safe_load_all(capsys.readouterr().out)
    (ours,) = [replica["template"] for replica in job["spec"]["replicaSpecs"]]
    assert beyond_baseline(ours) == []
    resources = [one["spec"]["containers"][0]["resources"]["requests"] for one in (template, ours)]
    devices = ("nvidia.com/gpu", "vpc.amazonaws.com/efa")
    assert [[int(each[name]) for name in devices] for each in resources] == [[8, 32], [8, 32]]


def beyond_baseline(template: Manifest) -> list[str]:
    """More than `baseline` refuses: any security context at all."""
    spec = template["spec"]
    containers = [*spec.get("initContainers", []), *spec.get("containers", [])]
    found = [name for name in spec if name.startswith("host")]
    found += ["securityContext" for part in (spec, *containers) if "securityContext" in part]
    found += ["hostPort" for part in containers for port in part.get("ports", []) if "hostPort" in port]
    found += [kind for volume in spec.get("volumes", []) for kind in volume if kind not in {"name", *HARMLESS}]
    return found + [name for name in template.get("metadata", {}).get("annotations", {}) if "apparmor" in name]
