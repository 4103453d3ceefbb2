"""Elastic jobs: what is rendered, and everything for which one is refused, by full message."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod.config.jobs import ClaimMount, ElasticJob, ElasticPolicy, RunPolicy, ScaleSettings, UnevenBatch
from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.facts.instance_types import catalogue
from cdk_hyperpod.kubernetes.allocatable import allocatable
from cdk_hyperpod.kubernetes.jobs import job_manifests
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.quantities import cpu_quantity, memory_quantity
from cdk_hyperpod.kubernetes.replicas import even_scale_config, replica_resources, uneven_batch
from cdk_hyperpod.kubernetes.teams import quota_hard
from cdk_hyperpod.rules.jobs import check_job
from helpers.kubernetes.samples import ELASTIC, GOVERNED

BY_VALUES = ElasticPolicy(min_replicas=2, max_replicas=8, replica_discrete_values=(2, 4, 8))


def job(**changes: Any) -> ElasticJob:
    return dataclasses.replace(ELASTIC, **changes)


def policy(**changes: Any) -> ElasticPolicy:
    return dataclasses.replace(ELASTIC.elastic_policy, **changes)


def findings(checked: ElasticJob, **quota: Any) -> list[str]:
    return [*map(str, check_job(checked, **quota))]


def spec(of: ElasticJob) -> Manifest:
    (manifest,) = (manifest for manifest in job_manifests(of) if manifest["kind"] == "HyperPodPyTorchJob")
    return dict(manifest["spec"])


def test_the_samples_are_accepted() -> None:
    assert findings(ELASTIC) == []
    assert findings(GOVERNED) == []


def test_sizes() -> None:
    assert ELASTIC.elastic_policy.sizes == (2, 4, 6, 8)
    assert BY_VALUES.sizes == (2, 4, 8)


@given(st.integers(1, 100), st.integers(1, 100), st.integers(1, 100))
def test_an_accepted_step_reaches_both_ends(low: int, high: int, step: int) -> None:
    tried = ElasticPolicy(min_replicas=low, max_replicas=high, replica_increment_step=step)
    if not findings(job(elastic_policy=tried)):
        assert (tried.sizes[0], tried.sizes[-1]) == (low, high)
        assert all(second - first == step for first, second in itertools.pairwise(tried.sizes))
    else:
        assert low > high or (high - low) % step


@given(st.integers(1, 10**9), st.integers(1, 4096))
def test_an_uneven_batch_deals_out_every_sample(batch: int, ranks: int) -> None:
    uneven = uneven_batch(batch, ranks)
    if uneven is None:
        assert batch % ranks == 0
    else:
        small = uneven.num_dp_groups_with_small_batch_size
        assert 0 < small < ranks
        assert small * uneven.small_local_batch_size + (ranks - small) * uneven.large_local_batch_size == batch


def test_the_uneven_batch_of_the_recipes() -> None:
    """128 samples on 3 nodes of 8 GPUs, as AWS's guide has them."""
    assert uneven_batch(128, 24) == UnevenBatch(
        num_dp_groups_with_small_batch_size=16, small_local_batch_size=5, large_local_batch_size=6
    )


@given(st.sampled_from([2, 4, 8]), st.integers(64, 10**6))
def test_an_even_scale_config_is_accepted(replicas: int, batch: int) -> None:
    by_values = ElasticPolicy(min_replicas=1, max_replicas=replicas, replica_discrete_values=(1, replicas))
    config = even_scale_config(by_values.sizes, train_batch_size=batch, ranks=8, learning_rate=0.1)
    assert findings(job(elastic_policy=by_values, scale_config=config)) == []


@pytest.mark.parametrize("name", catalogue())
def test_a_replica_takes_the_whole_node_and_no_more(name: str) -> None:
    node, resources = allocatable(catalogue()[name]), replica_resources(job(instance_type=name))
    assert resources.pop("cpu") == cpu_quantity(node.millicpus)
    assert resources.pop("memory") == memory_quantity(node.memory_mib)
    # The chips once, by the name that every version of Neuron's plug-in has.
    assert resources == {
        device: str(count)
        for device, count in node.devices.items()
        if device not in ("aws.amazon.com/neuroncore", "aws.amazon.com/neurondevice")
    }


@pytest.mark.parametrize(
    ("changes", "requested"),
    [
        ({}, "neuron"),
        ({"namespace": "hyperpod-ns-chips"}, "neurondevice"),
        ({"queue_name": "mine"}, "neurondevice"),
        ({"namespace": "hyperpod-ns-chips", "neuron_resource": "neuron"}, "neuron"),
        ({"neuron_resource": "neurondevice"}, "neurondevice"),
    ],
)
def test_chips_are_requested_once_by_the_name_that_the_queue_covers(changes: dict[str, Any], requested: str) -> None:
    resources = replica_resources(job(instance_type="ml.trn1.32xlarge", **changes))
    assert {name: count for name, count in resources.items() if "neuron" in name} == {
        f"aws.amazon.com/{requested}": "16"
    }


def test_with_one_thread_a_core_there_are_half_the_vcpus() -> None:
    assert replica_resources(job(threads_per_core=1))["cpu"] == "89"
    assert findings(job(threads_per_core=1, vcpus=90))[0].startswith("vcpus: pods can have 89 vCPUs")


def test_a_job_of_one_size_is_an_ordinary_one() -> None:
    rendered = spec(job(elastic_policy=ElasticPolicy(min_replicas=4, max_replicas=4, replica_discrete_values=(4,))))
    assert "elasticPolicy" not in rendered
    (replica,) = rendered["replicaSpecs"]
    assert (replica["replicas"], "maxReplicas" in replica) == (4, False)


@pytest.mark.parametrize("name", catalogue())
def test_a_quota_of_so_many_nodes_holds_so_many_replicas(name: str) -> None:
    hard = quota_hard(Team(name="t", quota={name: 8}))
    assert findings(job(instance_type=name), hard=hard) == []
    (finding,) = findings(job(instance_type=name, elastic_policy=policy(max_replicas=10)), hard=hard)
    assert finding.startswith("elastic_policy.max_replicas: 10 replicas are more than the team's quota holds (")
    assert finding.endswith("); lower it to 8 at most, or raise the quota")


def test_elastic_events_are_always_on() -> None:
    for container in (replica["template"]["spec"]["containers"][0] for replica in spec(GOVERNED)["replicaSpecs"]):
        assert {"name": "HYPERPOD_SIGNAL_COORDINATION", "value": "distributed"} in container["env"]


def test_the_queue_is_that_of_the_team() -> None:
    label = "kueue.x-k8s.io/queue-name"
    assert label not in job_manifests(ELASTIC)[0]["metadata"]["labels"]
    governed = job(namespace="hyperpod-ns-research")
    assert job_manifests(governed)[0]["metadata"]["labels"][label] == "hyperpod-ns-research-localqueue"
    named = dataclasses.replace(governed, queue_name="other")
    assert job_manifests(named)[0]["metadata"]["labels"][label] == "other"


def test_an_image_with_its_own_command() -> None:
    (replica,) = spec(job(script=None))["replicaSpecs"]
    assert not {"command", "args"} & replica["template"]["spec"]["containers"][0].keys()
    (replica,) = spec(job(script=None, command=("./run.sh", "8")))["replicaSpecs"]
    assert replica["template"]["spec"]["containers"][0]["command"] == ["./run.sh", "8"]


def test_ranks_are_accelerators_unless_told() -> None:
    assert spec(ELASTIC)["nprocPerNode"] == "8"
    assert spec(job(instance_type="ml.trn1.32xlarge"))["nprocPerNode"] == "32"
    assert spec(job(instance_type="ml.m5.4xlarge"))["nprocPerNode"] == "1"
    assert spec(job(nproc_per_node=4))["nprocPerNode"] == "4"


NAME = "must be 1 to 63 lower-case letters, digits and hyphens, no hyphen at either end"
RESERVED = "belongs to Kubernetes, EKS or HyperPod; use one of the team's own"
OBJECT = "must be a Kubernetes name: lower-case letters, digits, hyphens and dots"
LABEL = "must be 1 to 63 lower-case letters, digits, hyphens and dots, a letter or digit at either end"
VALUES = "elastic_policy.replica_discrete_values"


def values(*numbers: int, low: int = 2, high: int = 8) -> dict[str, Any]:
    return {"elastic_policy": ElasticPolicy(min_replicas=low, max_replicas=high, replica_discrete_values=numbers)}


def scales(**changes: ScaleSettings | None) -> dict[str, Any]:
    config = even_scale_config((2, 4, 8), train_batch_size=128, ranks=8)
    changed = config | {int(size.removeprefix("at")): settings for size, settings in changes.items()}
    return {
        "elastic_policy": BY_VALUES,
        "scale_config": {size: settings for size, settings in changed.items() if settings is not None},
    }


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"name": "Llama"}, f"name: {NAME}, got 'Llama'; change it"),
        ({"namespace": "kube-system"}, f"namespace: the namespace 'kube-system' {RESERVED}"),
        ({"namespace": "hyperpod-observability"}, f"namespace: the namespace 'hyperpod-observability' {RESERVED}"),
        (
            {"namespace": f"hyperpod-ns-{'a' * 41}"},
            (
                f"namespace: its queue would be 'hyperpod-ns-{'a' * 41}-localqueue', and a label holds 63 characters; "
                "name the queue (queue_name), or use a shorter team name"
            ),
        ),
        ({"image": ""}, "image: must be an image, got ''; name one"),
        ({"image": "train:1 "}, "image: must be an image, got 'train:1 '; name one"),
        (
            {"instance_type": "p5.48xlarge"},
            "instance_type: HyperPod has no instance type 'p5.48xlarge'; did you mean ml.p5.48xlarge?",
        ),
        (
            {"elastic_policy": policy(replica_discrete_values=(2, 8))},
            (
                "elastic_policy: has both replica_increment_step and replica_discrete_values; keep one: a step, or the sizes "
                "themselves"
            ),
        ),
        (
            {"elastic_policy": policy(replica_increment_step=None)},
            (
                "elastic_policy: has neither replica_increment_step nor replica_discrete_values; add one: a step such as 1, or "
                "the sizes such as 2,4,8"
            ),
        ),
        (
            {"elastic_policy": policy(min_replicas=9)},
            "elastic_policy.min_replicas: 9 is more than max_replicas, which is 8; lower it, or raise max_replicas",
        ),
        (
            {"elastic_policy": policy(min_replicas=0)},
            "elastic_policy.min_replicas: must be 1 to 6758, got 0; change it",
        ),
        (
            {"elastic_policy": policy(max_replicas=10**9)},
            "elastic_policy.max_replicas: must be 1 to 6758, got 1000000000; change it",
        ),
        (
            {"elastic_policy": policy(replica_increment_step=0)},
            "elastic_policy.replica_increment_step: must be 1 to 6758, got 0; change it",
        ),
        (
            {"elastic_policy": policy(replica_increment_step=4)},
            (
                "elastic_policy.replica_increment_step: from 2 in steps of 4 the job never reaches max_replicas, which is 8 "
                "(2, 6); use a step that divides 6, or max_replicas 6"
            ),
        ),
        (
            {"elastic_policy": policy(max_replicas=101)},
            (
                "elastic_policy.replica_increment_step: from 2 in steps of 2 the job never reaches max_replicas, which is 101 "
                "(2, 4, 6, …, 100); use a step that divides 99, or max_replicas 100"
            ),
        ),
        (values(2, 4, 4, 8), f"{VALUES}: 4 is there twice; name it once"),
        (
            values(2, 8, 16),
            f"{VALUES}: 16 is outside of min_replicas 2 and max_replicas 8; leave it out, or move the bound",
        ),
        (
            values(2, 0, 8),
            f"{VALUES}: 0 is outside of min_replicas 2 and max_replicas 8; leave it out, or move the bound",
        ),
        (
            values(4, 8),
            (
                f"{VALUES}: min_replicas 2 is not among them, so the job could never have that size; add 2, or set "
                "min_replicas to 4"
            ),
        ),
        (
            values(2, 4),
            (
                f"{VALUES}: max_replicas 8 is not among them, so the job could never have that size; add 8, or set "
                "max_replicas to 4"
            ),
        ),
        *(
            (
                {"elastic_policy": policy(**{f"{time}_in_seconds": 604_801})},
                f"elastic_policy.{time}_in_seconds: must be 0 to 604800, got 604801; change it",
            )
            for time in ("scaling_timeout", "graceful_shutdown_timeout", "faulty_scale_down_timeout")
        ),
        (
            {"replicas": 3},
            "replicas: the job cannot start with 3: its sizes are 2, 4, 6, 8; use one of them, or leave it out",
        ),
        (
            {"replicas": 10},
            "replicas: the job cannot start with 10: its sizes are 2, 4, 6, 8; use one of them, or leave it out",
        ),
        (
            {"elastic_policy": policy(max_replicas=2, min_replicas=2), "base_priority_class_name": "high"},
            (
                "base_priority_class_name: the job has one size, 2, and so no replicas beyond its minimum; "
                "use priority_class_name"
            ),
        ),
        (
            {"vcpus": 180},
            (
                "vcpus: pods can have 179 vCPUs of ml.p5.48xlarge, got 180: the job would wait for ever; leave it out for all "
                "that pods can have (179 vCPUs, 1890Gi)"
            ),
        ),
        (
            {"memory_gib": 1891},
            (
                "memory_gib: pods can have 1890 GiB of host memory of ml.p5.48xlarge, got 1891: the job would wait for ever; "
                "leave it out for all that pods can have (179 vCPUs, 1890Gi)"
            ),
        ),
        ({"nproc_per_node": 0}, "nproc_per_node: must be 1 to 512, got 0; change it"),
        ({"command": ("x",)}, "command: does not go with a script; keep one of them"),
        ({"script": None, "script_args": ("x",)}, "script_args: there is no script for them; add the script"),
        (
            {"env": {"1X": "y"}},
            "env.1X: '1X' is not a name for an environment variable; use letters, digits and underscores, no digit first",
        ),
        (
            {"env": {"HYPERPOD_SIGNAL_COORDINATION": "disabled"}},
            (
                "env.HYPERPOD_SIGNAL_COORDINATION: with 'disabled' the training script never hears of a change of size; "
                "remove it: it is set to distributed"
            ),
        ),
        (
            {"claims": (ClaimMount(claim_name="Fsx", mount_path="/fsx"),)},
            f"claims[0].claim_name: {OBJECT}, got 'Fsx'; change it",
        ),
        (
            {"claims": (ClaimMount(claim_name="fsx", mount_path="fsx/"),)},
            "claims[0].mount_path: must be an absolute path without a slash at its end, got 'fsx/'; change it",
        ),
        (
            {"claims": (ClaimMount(claim_name="fsx", mount_path="/dev/shm"),)},
            "claims: 2 volumes are mounted at '/dev/shm'; mount each elsewhere",
        ),
        ({"queue_name": "a" * 64}, f"queue_name: {LABEL}, got '{'a' * 64}'; change it"),
        ({"workload_priority_class": "High"}, f"workload_priority_class: {LABEL}, got 'High'; change it"),
        ({"priority_class_name": "High"}, f"priority_class_name: {OBJECT}, got 'High'; change it"),
        ({"service_account_name": "a b"}, f"service_account_name: {OBJECT}, got 'a b'; change it"),
        (
            {"run_policy": RunPolicy(job_max_retry_count=-1)},
            "run_policy.job_max_retry_count: must be 0 to 10000, got -1; change it",
        ),
        (
            {"scale_config": even_scale_config((2, 4, 6, 8), train_batch_size=4032, ranks=8)},
            (
                "scale_config: goes with replica_discrete_values, and the policy has replica_increment_step; "
                "use replica_discrete_values 2,4,6,8"
            ),
        ),
        (scales(at4=None), "scale_config[4]: is missing; add it"),
        (
            scales(at3=ScaleSettings(train_batch_size=128)),
            "scale_config[3]: the job never has 3 replicas; remove it, or add the size",
        ),
        (
            scales(at4=ScaleSettings(train_batch_size=64)),
            (
                "scale_config: the global batch differs between sizes (64, 128); use one train_batch_size at every size, so "
                "that the loss does not depend on the free capacity"
            ),
        ),
        (
            scales(at4=ScaleSettings(train_batch_size=128, micro_train_batch_size=3)),
            "scale_config[4].micro_train_batch_size: 3 does not divide a rank's 4 samples; use one that divides 4",
        ),
        (
            scales(
                at4=ScaleSettings(
                    train_batch_size=128,
                    uneven_batch=UnevenBatch(
                        num_dp_groups_with_small_batch_size=16, small_local_batch_size=1, large_local_batch_size=2
                    ),
                )
            ),
            (
                "scale_config[4].uneven_batch: deals out 48 samples to 32 ranks, and the global batch is 128; leave it out: 128 "
                "divides evenly"
            ),
        ),
    ],
)
def test_a_job_that_is_refused(changes: dict[str, Any], finding: str) -> None:
    assert findings(job(**changes)) == [finding]


def test_a_batch_that_does_not_divide_is_refused_at_each_size() -> None:
    config = {size: ScaleSettings(train_batch_size=100) for size in (2, 4, 16)}
    sized = values(2, 4, 16, high=16)["elastic_policy"]
    assert findings(job(elastic_policy=sized, scale_config=config)) == [
        (
            "scale_config[2].train_batch_size: 100 samples cannot be dealt out evenly to 16 ranks; "
            "add uneven_batch: 12 ranks with 6 samples, the others one more"
        ),
        (
            "scale_config[4].train_batch_size: 100 samples cannot be dealt out evenly to 32 ranks; "
            "add uneven_batch: 28 ranks with 3 samples, the others one more"
        ),
        "scale_config[16].train_batch_size: 100 samples are too few for 128 ranks; use at least 128, or fewer replicas",
    ]


@pytest.mark.parametrize(
    ("hard", "finding"),
    [
        (
            quota_hard(Team(name="t", quota={"ml.p5.48xlarge": 6})),
            (
                "8 replicas are more than the team's quota holds (cpu 1432 of 1074, memory 15120Gi of 11340Gi, "
                "nvidia.com/gpu 64 of 48, vpc.amazonaws.com/efa 256 of 192); lower it to 6 at most, or raise the quota"
            ),
        ),
        (
            quota_hard(Team(name="t", quota={"ml.trn1.32xlarge": 8})),
            (
                "8 replicas are more than the team's quota holds (cpu 1432 of 952, memory 15120Gi of 3688Gi, "
                "nvidia.com/gpu 64 of 0, vpc.amazonaws.com/efa 256 of 64); raise the quota: not even one fits"
            ),
        ),
        (
            {"pods": "5"},
            "8 replicas are more than the team's quota holds (pods 8 of 5); lower it to 5 at most, or raise the quota",
        ),
        (
            {"requests.memory": "5120Gi"},
            (
                "8 replicas are more than the team's quota holds (memory 15120Gi of 5120Gi); lower it to 2 at most, or raise the "
                "quota"
            ),
        ),
    ],
    ids=["nodes", "other nodes", "pods", "the guide's memory"],
)
def test_a_maximum_beyond_the_quota_is_refused(hard: dict[str, str], finding: str) -> None:
    assert findings(ELASTIC, hard=hard) == [f"elastic_policy.max_replicas: {finding}"]


def test_all_findings_come_at_once() -> None:
    wrong = job(
        name="A", namespace="default", image="", instance_type="x", elastic_policy=policy(min_replicas=9), env={"": ""}
    )
    assert len(findings(wrong)) == 6
