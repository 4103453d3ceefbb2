"""Quotas by nodes: what a ResourceQuota and a ComputeQuota hold for them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.facts.instance_types import catalogue
from cdk_hyperpod.kubernetes.governance import compute_quota_properties
from cdk_hyperpod.kubernetes.quantities import parse_quantity
from cdk_hyperpod.kubernetes.quotas import AWS_EXAMPLE_HARD, amounts, ceiling, hard
from cdk_hyperpod.kubernetes.teams import quota_hard
from cdk_hyperpod.rules.quotas import check_hard, check_nodes, check_shares

NODES = st.dictionaries(st.sampled_from([*catalogue()]), st.integers(1, 6758), max_size=5)


BOUNDS = {
    "pods": "1k",
    "persistentvolumeclaims": "100",
    "configmaps": "1k",
    "secrets": "200",
    "count/jobs.batch": "1k",
    "count/hyperpodpytorchjobs.sagemaker.amazonaws.com": "1k",
    "count/jobsets.jobset.x-k8s.io": "1k",
    "count/pytorchjobs.kubeflow.org": "1k",
    "count/mpijobs.kubeflow.org": "1k",
    "count/deployments.apps": "200",
    "count/replicasets.apps": "2200",
    "count/serviceaccounts": "100",
    "count/poddisruptionbudgets.policy": "1k",
    "services": "200",
    "services.loadbalancers": "0",
    "services.nodeports": "0",
}


def quantities(nodes: Mapping[str, int]) -> dict[str, Fraction]:
    parsed = {key: parse_quantity(text) for key, text in hard(amounts(nodes)).items()}
    return {key: amount for key, amount in parsed.items() if amount is not None}


def test_eight_p5_nodes() -> None:
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
        **BOUNDS,
    }


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
def test_quotas_add_up(one: Mapping[str, int], other: Mapping[str, int]) -> None:
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
def test_compute_quota(team: Team, sharing: dict[str, object]) -> None:
    config = compute_quota_properties(team, cluster_arn="arn")["ComputeQuotaConfig"]
    assert config == {"ComputeQuotaResources": [P5], "ResourceSharingConfig": sharing}


@pytest.mark.parametrize(
    ("nodes", "finding"),
    [
        (
            {"ml.p5.48xlarg": 1},
            "q.ml.p5.48xlarg: HyperPod has no instance type 'ml.p5.48xlarg'; did you mean ml.p5.48xlarge?",
        ),
        ({"m5": 1}, "q.m5: HyperPod has no instance type 'm5'; did you mean ml.m5.large?"),
        (
            {"ml.p5e.48xlarge": 1},
            "q.ml.p5e.48xlarge: no instance group has ml.p5e.48xlarge; use ml.g6.xlarge or ml.p5.48xlarge, or add a group",
        ),
        ({"ml.p5.48xlarge": 0}, "q.ml.p5.48xlarge: must be 1 to 6758 nodes, got 0; change it"),
        ({"ml.p5.48xlarge": -1}, "q.ml.p5.48xlarge: must be 1 to 6758 nodes, got -1; change it"),
        ({"ml.p5.48xlarge": 6759}, "q.ml.p5.48xlarge: must be 1 to 6758 nodes, got 6759; change it"),
        ({"ml.p5.48xlarge": True}, "q.ml.p5.48xlarge: must be 1 to 6758 nodes, got true; change it"),
        ({"ml.p5.48xlarge": "8"}, "q.ml.p5.48xlarge: must be 1 to 6758 nodes, got '8'; change it"),
    ],
)
def test_nodes_that_are_refused(nodes: Mapping[str, int], finding: str) -> None:
    assert [*map(str, check_nodes(nodes, "q", cluster={"ml.p5.48xlarge": 8, "ml.g6.xlarge": 1}))] == [finding]


def test_shares_beyond_the_cluster_are_refused() -> None:
    shares = {"a": {"ml.p5.48xlarge": 5}, "b": {"ml.p5.48xlarge": 4, "ml.g6.xlarge": 1}}
    assert [*map(str, check_shares(shares, {"ml.p5.48xlarge": 8, "ml.g6.xlarge": 1}))] == [
        (
            "teams: the shares of ml.p5.48xlarge add up to 9 nodes (a 5, b 4), and the cluster has 8; "
            "lower a quota and let its team borrow (borrow_limit), or raise instance_count"
        )
    ]


def test_a_long_list_of_shares_is_cut() -> None:
    shares = {f"team-{number}": {"ml.p5.48xlarge": 1} for number in range(7)}
    assert [*map(str, check_shares(shares, {"ml.p5.48xlarge": 6}))] == [
        (
            "teams: the shares of ml.p5.48xlarge add up to 7 nodes (team-0 1, team-1 1, team-2 1, team-3 1, team-4 1, …), and "
            "the cluster has 6; lower a quota and let its team borrow (borrow_limit), or raise instance_count"
        )
    ]


def test_shares_up_to_the_cluster_are_fine() -> None:
    assert not [*check_shares({"a": {"ml.p5.48xlarge": 5}, "b": {"ml.p5.48xlarge": 3}}, {"ml.p5.48xlarge": 8})]


@pytest.mark.parametrize(
    ("key", "value", "finding"),
    [
        (
            "nvidia.com/gpu",
            "64",
            (
                "a quota is not enforced under 'nvidia.com/gpu': Kubernetes limits devices by what is requested; "
                "use requests.nvidia.com/gpu"
            ),
        ),
        (
            "limits.nvidia.com/gpu",
            "64",
            "a quota has no key 'limits.nvidia.com/gpu': a device's limit is always its request; use requests.nvidia.com/gpu",
        ),
        ("cpu", "8", "a quota has 'requests.cpu' already, and 'cpu' is another name for it; use requests.cpu"),
        (
            "memory",
            "8Gi",
            "a quota has 'requests.memory' already, and 'memory' is another name for it; use requests.memory",
        ),
        ("request.cpu", "8", "a quota has no key 'request.cpu'; did you mean requests.cpu?"),
        ("zebras", "8", "a quota has no key 'zebras'; use one such as requests.cpu, limits.memory, pods"),
        (
            "requests.ephemeral_storage",
            "1Gi",
            "a quota has no key 'requests.ephemeral_storage'; did you mean requests.ephemeral-storage?",
        ),
        ("count/jobs", "8", "a quota has no key 'count/jobs'; did you mean count/jobs.batch?"),
        ("count/Jobs.batch", "8", "a quota has no key 'count/Jobs.batch'; did you mean count/jobs.batch?"),
        ("count/pods.", "8", "a quota has no key 'count/pods.'; did you mean count/pods?"),
        ("count/a/b", "8", "a quota has no key 'count/a/b'; name the kind and its group, such as count/jobs.batch"),
        (
            "count/hyperpodpytorchjob.sagemaker.amazonaws.com",
            "8",
            (
                "a quota has no key 'count/hyperpodpytorchjob.sagemaker.amazonaws.com'; "
                "did you mean count/hyperpodpytorchjobs.sagemaker.amazonaws.com?"
            ),
        ),
        ("pods", "eight!", 'must be a quantity, got \'eight!\'; write it as "64", "500m" or "5120Gi"'),
        ("pods", 8, 'must be a quantity, got 8; write it as "64", "500m" or "5120Gi"'),
        ("pods", "0.5", "must be a whole amount, got '0.5'; leave the fraction out"),
        ("requests.memory", "100m", "must be a whole amount, got '100m'; leave the fraction out"),
    ],
)
def test_overrides_that_are_refused(key: str, value: str, finding: str) -> None:
    assert [*map(str, check_hard({key: value}, "hard"))] == [f"hard.{key}: {finding}"]


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
