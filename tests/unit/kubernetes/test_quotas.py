"""Quotas by nodes: what a ResourceQuota and a ComputeQuota hold for them."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import MAX_NODES
from cdk_hyperpod.config.teams import AcceleratorPartition, MigProfile, Share, Team
from cdk_hyperpod.facts.instance_types import catalogue
from cdk_hyperpod.facts.mig import ALL_PROFILES, MIG_PROFILES
from cdk_hyperpod.kubernetes.governance import compute_quota_properties
from cdk_hyperpod.kubernetes.quantities import parse_quantity
from cdk_hyperpod.kubernetes.quotas import AWS_EXAMPLE_HARD, amounts, ceiling, hard
from cdk_hyperpod.kubernetes.teams import quota_hard
from cdk_hyperpod.rules.quotas import check_hard, check_nodes, check_shares
from helpers.findings import found
from helpers.kubernetes import sdk

NODES = st.dictionaries(st.sampled_from([*catalogue()]), st.integers(1, 6758), max_size=5)


BOUNDS = {
    "pods": "1k",
    "persistentvolumeclaims": "100",
    "requests.storage": "10Ti",
    "configmaps": "1k",
    "secrets": "200",
    "count/jobs.batch": "1k",
    "count/deployments.apps": "200",
    "count/replicasets.apps": "2200",
    "count/hyperpodpytorchjobs.sagemaker.amazonaws.com": "1k",
    "count/jobsets.jobset.x-k8s.io": "1k",
    "count/pytorchjobs.kubeflow.org": "1k",
    "count/mpijobs.kubeflow.org": "1k",
    "count/serviceaccounts": "100",
    "count/poddisruptionbudgets.policy": "1k",
    "services": "200",
    "services.loadbalancers": "0",
    "services.nodeports": "0",
}


NO_PARTS_OF_GPUS = {f"requests.nvidia.com/{name}": "0" for name in ("gpu.shared", *ALL_PROFILES)}


def quantities(nodes: Mapping[str, int]) -> dict[str, Fraction]:
    parsed = {key: parse_quantity(text) for key, text in hard(amounts(nodes)).items()}
    return {key: amount for key, amount in parsed.items() if amount is not None}


def test_a_share_of_eight_p5_nodes_has_the_quota_of_their_resources() -> None:
    assert quota_hard(Team(name="research", quota={"ml.p5.48xlarge": 8})) == {
        "requests.nvidia.com/gpu": "64",
        "requests.vpc.amazonaws.com/efa": "256",
        "requests.aws.amazon.com/neuron": "0",
        "requests.aws.amazon.com/neuroncore": "0",
        "requests.aws.amazon.com/neurondevice": "0",
        "requests.cpu": "1432",
        "requests.memory": "15120Gi",
        "limits.memory": "15120Gi",
        "requests.ephemeral-storage": "800Gi",
        "requests.hugepages-2Mi": "344Gi",
        "requests.hugepages-1Gi": "0",
        **NO_PARTS_OF_GPUS,
        **BOUNDS,
    }


def test_the_numbers_of_the_guide_by_an_override() -> None:
    """64 GPUs, 256 EFA, 1,536 vCPUs, 5,120 GiB."""
    team = Team(name="research", quota={"ml.p5.48xlarge": 8}, hard=AWS_EXAMPLE_HARD)
    assert {key: value for key, value in quota_hard(team).items() if "neuron" not in key} == {
        "requests.nvidia.com/gpu": "64",
        "requests.vpc.amazonaws.com/efa": "256",
        "requests.cpu": "1536",
        "requests.memory": "5120Gi",
        "limits.memory": "5120Gi",
        "requests.ephemeral-storage": "800Gi",
        "requests.hugepages-2Mi": "344Gi",
        "requests.hugepages-1Gi": "0",
        **NO_PARTS_OF_GPUS,
        **BOUNDS,
    }


def of_p5(**part: Any) -> dict[str, str]:
    """The quota of a part of ml.p5.48xlarge nodes, without what is 0."""
    whole = hard(amounts({"ml.p5.48xlarge": Share(**part)}))
    return {key.removeprefix("requests."): value for key, value in whole.items() if value not in ("0", "0Gi")}


def test_parts_of_p5_nodes() -> None:
    """vCPUs and memory in proportion, as AWS's SDK requests them for jobs on a part of a node, and all adapters of each node."""
    adapters = {"vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "43Gi"}
    half = {"cpu": "96", "memory": "1024Gi", "limits.memory": "1024Gi"}
    assert of_p5(accelerators=4) == {"nvidia.com/gpu": "4", **half, **adapters}
    assert of_p5(vcpus=96) == half
    assert of_p5(memory_gib=1024) == half
    assert of_p5(accelerators=4, vcpus=20, memory_gib=100) == {
        "nvidia.com/gpu": "4",
        "cpu": "20",
        "memory": "100Gi",
        "limits.memory": "100Gi",
        **adapters,
    }
    # Of two nodes; a whole number of them is what pods can have of nodes.
    assert of_p5(accelerators=12)["cpu"] == "288"
    assert of_p5(accelerators=16)["cpu"] == "358"


def test_partitions_are_counted_and_whole_gpus_are_not() -> None:
    """28 of 56 slices are half of the node."""
    assert of_p5(accelerator_partition=AcceleratorPartition(type="mig-2g.20gb", count=14)) == {
        "cpu": "96",
        "memory": "1024Gi",
        "limits.memory": "1024Gi",
        "nvidia.com/mig-2g.20gb": "14",
    }


@given(st.sampled_from([*catalogue()]), st.integers(1, 64))
def test_all_accelerators_of_nodes_are_the_nodes(name: str, count: int) -> None:
    kind = catalogue()[name]
    if kind.accelerators:
        part = hard(amounts({name: Share(accelerators=count * kind.accelerators)}))
        assert part == hard(amounts({name: count}))


def test_partitions_are_those_of_awss_sdk() -> None:
    profiles = sdk.mig_profiles()
    assert {name: sorted(of_type) for name, of_type in MIG_PROFILES.items()} == {
        name: sorted(of_type) for name, of_type in profiles.items()
    }
    assert {*typing.get_args(MigProfile)} <= {*ALL_PROFILES}


def test_why_the_guides_memory_is_not_the_default() -> None:
    p5 = catalogue()["ml.p5.48xlarge"]
    assert round(p5.accelerators * p5.accelerator_memory_gib) == 640
    assert p5.memory_gib == 2048


def test_trn1_has_all_three_neuron_keys() -> None:
    quota = quota_hard(Team(name="neuron", quota={"ml.trn1.32xlarge": 4}))
    assert {key: value for key, value in quota.items() if "neuron" in key or "efa" in key} == {
        "requests.vpc.amazonaws.com/efa": "32",
        "requests.aws.amazon.com/neuron": "64",
        "requests.aws.amazon.com/neuroncore": "128",
        "requests.aws.amazon.com/neurondevice": "64",
    }


def test_a_team_without_quota_is_bounded_where_all_would_run_out() -> None:
    assert quota_hard(Team(name="free")) == BOUNDS
    assert quota_hard(Team(name="free", hard={"pods": "10"})) == {**BOUNDS, "pods": "10"}


def test_a_large_team_has_pods_for_all_of_its_nodes() -> None:
    team = Team(name="large", quota={"ml.m5.4xlarge": 30}, borrow_limit=10)
    assert quota_hard(team)["pods"] == "1650"
    assert quota_hard(team)["requests.ephemeral-storage"] == "3300Gi"


@given(NODES)
def test_every_key_is_there_and_every_value_a_quantity(nodes: Mapping[str, int]) -> None:
    assert quantities(nodes).keys() == quantities({}).keys()
    assert not [*check_hard(hard(amounts(nodes)), "hard")]


@given(NODES, NODES)
def test_the_quota_of_two_shares_is_the_sum_of_their_quotas(one: Mapping[str, int], other: Mapping[str, int]) -> None:
    together = {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
    first, second = quantities(one), quantities(other)
    assert quantities(together) == {key: first[key] + second[key] for key in first}


@given(NODES, st.integers(1, 500))
def test_a_ceiling_is_the_share_and_at_most_the_percentage_more(nodes: Mapping[str, int], percent: int) -> None:
    share, most = amounts(nodes), ceiling(nodes, borrow_limit=percent)
    for key, amount in share.items():
        assert amount <= most[key] <= amount + amount * percent / 100
        assert most[key] % {"cpu": 1000, "memory": 1024}.get(key, 1) == amount % {"cpu": 1000, "memory": 1024}.get(
            key, 1
        )


@given(NODES, NODES)
def test_absolute_limits_are_nodes_more(nodes: Mapping[str, int], more: Mapping[str, int]) -> None:
    together = {name: nodes.get(name, 0) + more.get(name, 0) for name in {**nodes, **more}}
    assert ceiling(nodes, absolute_borrow_limits=more) == amounts(together)


def test_nothing_borrowed_is_the_share() -> None:
    assert ceiling({"ml.p5.48xlarge": 8}) == amounts({"ml.p5.48xlarge": 8})


CLUSTER = {"ml.p5.48xlarge": 8, "ml.g6.xlarge": 1}
P5 = {"InstanceType": "ml.p5.48xlarge", "Count": 8}


@pytest.mark.parametrize(
    ("team", "sharing"),
    [
        (Team(name="t", quota={"ml.p5.48xlarge": 8}), {"Strategy": "Lend"}),
        (
            Team(name="t", quota={"ml.p5.48xlarge": 8}, borrow_limit=50),
            {"Strategy": "LendAndBorrow", "BorrowLimit": 50},
        ),
        (
            Team(name="t", quota={"ml.p5.48xlarge": 8}, absolute_borrow_limits={"ml.g6.xlarge": 2}),
            {
                "Strategy": "LendAndBorrow",
                "AbsoluteBorrowLimits": [{"InstanceType": "ml.g6.xlarge", "Count": 2}],
            },
        ),
    ],
    ids=["nothing borrowed", "percent", "nodes"],
)
def test_a_share_becomes_a_compute_quota_with_its_borrowing(team: Team, sharing: dict[str, object]) -> None:
    config = compute_quota_properties(team, cluster_arn="arn")["ComputeQuotaConfig"]
    assert config == {"ComputeQuotaResources": [P5], "ResourceSharingConfig": sharing}


@pytest.mark.parametrize(
    ("name", "count", "code"),
    [
        pytest.param("ml.p5.48xlarg", 1, "instance-type-unknown", id="no type"),
        pytest.param("ml.p5e.48xlarge", 1, "instance-type-not-in-cluster", id="no group"),
        pytest.param("ml.p5.48xlarge", 0, "quota-nodes-out-of-range", id="0"),
        pytest.param("ml.p5.48xlarge", -1, "quota-nodes-out-of-range", id="-1"),
        pytest.param("ml.p5.48xlarge", 6759, "quota-nodes-out-of-range", id="6759"),
        pytest.param("ml.p5.48xlarge", True, "quota-nodes-out-of-range", id="true"),
        pytest.param("ml.p5.48xlarge", "8", "quota-nodes-out-of-range", id="text"),
    ],
)
def test_nodes_that_are_refused(name: str, count: int, code: str) -> None:
    assert found(check_nodes({name: count}, "q", cluster=CLUSTER)) == [(code, f"q.{name}")]


@pytest.mark.parametrize(("name", "suggested"), [("ml.p5.48xlarg", "ml.p5.48xlarge"), ("m5", "ml.m5.large")])
def test_an_unknown_instance_type_is_answered_with_a_known_one(name: str, suggested: str) -> None:
    (finding,) = check_nodes({name: 1}, "q", cluster=CLUSTER)
    assert finding.remedy == f"did you mean {suggested}?"


def test_an_instance_type_that_no_group_has_is_answered_with_those_of_the_groups() -> None:
    (finding,) = check_nodes({"ml.p5e.48xlarge": 1}, "q", cluster=CLUSTER)
    assert "ml.g6.xlarge or ml.p5.48xlarge" in finding.remedy


def test_nodes_out_of_range_are_shown_beside_the_limit() -> None:
    (finding,) = check_nodes({"ml.p5.48xlarge": 6759}, "q", cluster=CLUSTER)
    assert re.findall(r"\d+", finding.problem) == ["1", str(MAX_NODES), "6759"]


def test_shares_beyond_the_cluster_are_refused() -> None:
    shares = {"a": {"ml.p5.48xlarge": 5}, "b": {"ml.p5.48xlarge": 4, "ml.g6.xlarge": 1}}
    (finding,) = check_shares(shares, CLUSTER)
    assert found([finding]) == [("shares-above-cluster", "teams")]
    for words in ("ml.p5.48xlarge", "9 nodes (a 5, b 4)", "has 8"):
        assert words in finding.problem


def test_a_long_list_of_shares_is_cut() -> None:
    shares = {f"team-{number}": {"ml.p5.48xlarge": 1} for number in range(7)}
    (finding,) = check_shares(shares, {"ml.p5.48xlarge": 6})
    assert found([finding]) == [("shares-above-cluster", "teams")]
    assert "7 nodes (team-0 1, team-1 1, team-2 1, team-3 1, team-4 1, …)" in finding.problem


def test_shares_up_to_the_cluster_are_fine() -> None:
    assert not [*check_shares({"a": {"ml.p5.48xlarge": 5}, "b": {"ml.p5.48xlarge": 3}}, {"ml.p5.48xlarge": 8})]


@pytest.mark.parametrize(
    ("key", "code", "suggested"),
    [
        ("nvidia.com/gpu", "quota-key-device", "requests.nvidia.com/gpu"),
        ("limits.nvidia.com/gpu", "quota-key-limit-of-device", "requests.nvidia.com/gpu"),
        ("cpu", "quota-key-ambiguous", "requests.cpu"),
        ("memory", "quota-key-ambiguous", "requests.memory"),
        ("request.cpu", "quota-key-unknown", "requests.cpu"),
        ("zebras", "quota-key-unknown", "pods"),
        ("requests.ephemeral_storage", "quota-key-unknown", "requests.ephemeral-storage"),
        ("count/jobs", "quota-key-unknown", "count/jobs.batch"),
        ("count/Jobs.batch", "quota-key-unknown", "count/jobs.batch"),
        ("count/pods.", "quota-key-unknown", "count/pods"),
        ("count/a/b", "quota-key-unknown", "count/jobs.batch"),
        (
            "count/hyperpodpytorchjob.sagemaker.amazonaws.com",
            "quota-key-not-plural",
            "count/hyperpodpytorchjobs.sagemaker.amazonaws.com",
        ),
    ],
)
def test_keys_that_are_refused(key: str, code: str, suggested: str) -> None:
    (finding,) = check_hard({key: "8"}, "hard")
    assert found([finding]) == [(code, f"hard.{key}")]
    assert finding.remedy.removesuffix("?").split()[-1] == suggested


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        pytest.param("pods", "eight!", "quantity-invalid", id="word"),
        pytest.param("pods", 8, "quantity-invalid", id="number"),
        pytest.param("pods", "0.5", "quantity-with-fraction", id="half a pod"),
        pytest.param("requests.memory", "100m", "quantity-with-fraction", id="a tenth of a byte"),
    ],
)
def test_quantities_that_are_refused(key: str, value: str, code: str) -> None:
    assert found(check_hard({key: value}, "hard")) == [(code, f"hard.{key}")]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("requests.cpu", "500m"),
        ("limits.ephemeral-storage", "1Ti"),
        ("requests.hugepages-2Mi", "1Gi"),
        ("requests.nvidia.com/mig-1g.10gb", "7"),
        ("count/jobs.batch", "10"),
        ("count/pods", "10"),
        ("count/rayjobs.ray.io", "10"),
        ("services.loadbalancers", "0"),
        ("fsx.storageclass.storage.k8s.io/requests.storage", "1Ti"),
    ],
)
def test_overrides_that_kubernetes_enforces(key: str, value: str) -> None:
    assert not [*check_hard({key: value}, "hard")]
