"""Jobs as AWS's own model of the resource sees them. (The resource's schema in the cluster is not published.)"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from cdk_hyperpod.kubernetes.manifests import Manifest
from helpers.kubernetes import sdk
from helpers.kubernetes.samples import ELASTIC, GOVERNED, SAMPLES

JOBS = [
    manifest for manifests in SAMPLES.values() for manifest in manifests if manifest["kind"] == "HyperPodPyTorchJob"
]


def parsed(spec: Manifest) -> Manifest:
    """The spec as the model understood it, without what it added."""
    model: Any = sdk.job_model()
    return dict(model.model_validate(spec, strict=True, extra="forbid", by_name=True).model_dump(exclude_unset=True))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job["metadata"]["namespace"])
def test_the_sdk_reads_every_field_that_is_rendered(job: Manifest) -> None:
    assert parsed(job["spec"]) == job["spec"]


@pytest.mark.parametrize(
    "path",
    [
        ("elasticPolicy",),
        ("runPolicy",),
        ("replicaSpecs", 0),
        ("replicaSpecs", 0, "template", "spec"),
        ("replicaSpecs", 0, "template", "spec", "containers", 0),
    ],
    ids=str,
)
def test_the_sdk_refuses_a_field_that_it_does_not_know(path: tuple[str | int, ...]) -> None:
    """Otherwise the test above would prove nothing."""
    spec = copy.deepcopy(JOBS[0]["spec"])
    place = spec
    for key in path:
        place = place[key]
    place["minReplica"] = 2
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        parsed(spec)


def test_a_replica_spec_never_goes_beyond_the_policy() -> None:
    """AWS's guide: maxReplicas of the replicas matches the policy's; of a base and an elastic part, their sum does."""
    for job in JOBS:
        policy, specs = job["spec"]["elasticPolicy"], job["spec"]["replicaSpecs"]
        assert sum(spec.get("maxReplicas", spec["replicas"]) for spec in specs) == policy["maxReplicas"]


def test_the_job_starts_with_the_replicas_that_it_names() -> None:
    for job, wanted in zip(JOBS, (ELASTIC.elastic_policy.min_replicas, GOVERNED.replicas), strict=True):
        assert sum(spec["replicas"] for spec in job["spec"]["replicaSpecs"]) == wanted
