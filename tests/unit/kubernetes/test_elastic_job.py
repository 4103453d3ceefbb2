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
from helpers.findings import Found, found
from helpers.kubernetes.samples import ELASTIC, GOVERNED

BY_VALUES = ElasticPolicy(min_replicas=2, max_replicas=8, replica_discrete_values=(2, 4, 8))


def job(**changes: Any) -> ElasticJob:
    return dataclasses.replace(ELASTIC, **changes)


def policy(**changes: Any) -> ElasticPolicy:
    return dataclasses.replace(ELASTIC.elastic_policy, **changes)


def findings(checked: ElasticJob, **quota: Any) -> Found:
    return found(check_job(checked, **quota))


def spec(of: ElasticJob) -> Manifest:
    (manifest,) = (manifest for manifest in job_manifests(of) if manifest["kind"] == "HyperPodPyTorchJob")
    return dict(manifest["spec"])


def test_the_samples_are_accepted() -> None:
    assert findings(ELASTIC) == []
    assert findings(GOVERNED) == []


def test_an_elastic_policy_lists_its_sizes() -> None:
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
    node, resources = allocatable(catalogue()[name]), replica_resources(job(instance_type=name, lists_extended=True))
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
    assert findings(job(threads_per_core=1, vcpus=90)) == [("job-above-node", "vcpus")]


def test_a_job_of_one_size_is_an_ordinary_one() -> None:
    rendered = spec(job(elastic_policy=ElasticPolicy(min_replicas=4, max_replicas=4, replica_discrete_values=(4,))))
    assert "elasticPolicy" not in rendered
    (replica,) = rendered["replicaSpecs"]
    assert (replica["replicas"], "maxReplicas" in replica) == (4, False)


@pytest.mark.parametrize("name", catalogue())
def test_a_quota_of_so_many_nodes_holds_so_many_replicas(name: str) -> None:
    hard = quota_hard(Team(name="t", quota={name: 8}), lists_extended=True)
    whole = job(instance_type=name, lists_extended=True)
    assert findings(whole, hard=hard) == []
    (finding,) = check_job(dataclasses.replace(whole, elastic_policy=policy(max_replicas=10)), hard=hard)
    assert (finding.code, finding.path) == ("job-above-quota", "elastic_policy.max_replicas")
    assert finding.remedy == "lower it to at most 8, or raise the quota"


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


def test_a_node_has_one_process_for_each_accelerator_unless_set() -> None:
    assert spec(ELASTIC)["nprocPerNode"] == "8"
    assert spec(job(instance_type="ml.trn1.32xlarge"))["nprocPerNode"] == "32"
    assert spec(job(instance_type="ml.m5.4xlarge"))["nprocPerNode"] == "1"
    assert spec(job(nproc_per_node=4))["nprocPerNode"] == "4"


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
        ({"name": "Llama"}, ("value-malformed", "name")),
        ({"namespace": "kube-system"}, ("namespace-reserved", "namespace")),
        ({"namespace": "hyperpod-observability"}, ("namespace-reserved", "namespace")),
        (
            {"namespace": f"hyperpod-ns-{'a' * 41}"},
            ("job-queue-name-too-long", "namespace"),
        ),
        ({"image": ""}, ("job-image-invalid", "image")),
        ({"image": "train:1 "}, ("job-image-invalid", "image")),
        (
            {"instance_type": "p5.48xlarge"},
            ("instance-type-unknown", "instance_type"),
        ),
        (
            {"elastic_policy": policy(replica_discrete_values=(2, 8))},
            ("job-step-and-sizes", "elastic_policy"),
        ),
        (
            {"elastic_policy": policy(replica_increment_step=None)},
            ("job-without-step-or-sizes", "elastic_policy"),
        ),
        (
            {"elastic_policy": policy(min_replicas=9)},
            ("job-minimum-above-maximum", "elastic_policy.min_replicas"),
        ),
        (
            {"elastic_policy": policy(min_replicas=0)},
            ("value-out-of-range", "elastic_policy.min_replicas"),
        ),
        (
            {"elastic_policy": policy(max_replicas=10**9)},
            ("value-out-of-range", "elastic_policy.max_replicas"),
        ),
        (
            {"elastic_policy": policy(replica_increment_step=0)},
            ("value-out-of-range", "elastic_policy.replica_increment_step"),
        ),
        (
            {"elastic_policy": policy(replica_increment_step=4)},
            ("job-maximum-not-reached", "elastic_policy.replica_increment_step"),
        ),
        (
            {"elastic_policy": policy(max_replicas=101)},
            ("job-maximum-not-reached", "elastic_policy.replica_increment_step"),
        ),
        (values(2, 4, 4, 8), ("value-duplicated", "elastic_policy.replica_discrete_values")),
        (
            values(2, 8, 16),
            ("job-size-out-of-range", "elastic_policy.replica_discrete_values"),
        ),
        (
            values(2, 0, 8),
            ("job-size-out-of-range", "elastic_policy.replica_discrete_values"),
        ),
        (
            values(4, 8),
            ("job-size-missing", "elastic_policy.replica_discrete_values"),
        ),
        (
            values(2, 4),
            ("job-size-missing", "elastic_policy.replica_discrete_values"),
        ),
        *(
            (
                {"elastic_policy": policy(**{f"{time}_in_seconds": 604_801})},
                ("value-out-of-range", f"elastic_policy.{time}_in_seconds"),
            )
            for time in ("scaling_timeout", "graceful_shutdown_timeout", "faulty_scale_down_timeout")
        ),
        (
            {"replicas": 3},
            ("job-replicas-not-a-size", "replicas"),
        ),
        (
            {"replicas": 10},
            ("job-replicas-not-a-size", "replicas"),
        ),
        (
            {"elastic_policy": policy(max_replicas=2, min_replicas=2), "base_priority_class_name": "high"},
            ("job-base-priority-without-effect", "base_priority_class_name"),
        ),
        (
            {"vcpus": 180},
            ("job-above-node", "vcpus"),
        ),
        (
            {"memory_gib": 1891},
            ("job-above-node", "memory_gib"),
        ),
        ({"nproc_per_node": 0}, ("value-out-of-range", "nproc_per_node")),
        ({"command": ("x",)}, ("job-command-and-script", "command")),
        ({"script": None, "script_args": ("x",)}, ("job-script-missing", "script_args")),
        (
            {"env": {"1X": "y"}},
            ("job-variable-name-invalid", "env.1X"),
        ),
        (
            {"env": {"HYPERPOD_SIGNAL_COORDINATION": "disabled"}},
            ("job-coordination-overridden", "env.HYPERPOD_SIGNAL_COORDINATION"),
        ),
        (
            {"claims": (ClaimMount(claim_name="Fsx", mount_path="/fsx"),)},
            ("value-malformed", "claims[0].claim_name"),
        ),
        (
            {"claims": (ClaimMount(claim_name="fsx", mount_path="fsx/"),)},
            ("value-malformed", "claims[0].mount_path"),
        ),
        (
            {"claims": (ClaimMount(claim_name="fsx", mount_path="/dev/shm"),)},
            ("job-mounts-duplicated", "claims"),
        ),
        ({"queue_name": "a" * 64}, ("value-malformed", "queue_name")),
        ({"workload_priority_class": "High"}, ("value-malformed", "workload_priority_class")),
        ({"priority_class_name": "High"}, ("value-malformed", "priority_class_name")),
        ({"service_account_name": "a b"}, ("value-malformed", "service_account_name")),
        (
            {"run_policy": RunPolicy(job_max_retry_count=-1)},
            ("value-out-of-range", "run_policy.job_max_retry_count"),
        ),
        (
            {"scale_config": even_scale_config((2, 4, 6, 8), train_batch_size=4032, ranks=8)},
            ("job-scale-config-with-step", "scale_config"),
        ),
        (scales(at4=None), ("job-scale-config-missing", "scale_config[4]")),
        (
            scales(at3=ScaleSettings(train_batch_size=128)),
            ("job-scale-config-unused", "scale_config[3]"),
        ),
        (
            scales(at4=ScaleSettings(train_batch_size=64)),
            ("job-batches-differ", "scale_config"),
        ),
        (
            scales(at4=ScaleSettings(train_batch_size=128, micro_train_batch_size=3)),
            ("job-micro-batch-not-even", "scale_config[4].micro_train_batch_size"),
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
            ("job-uneven-batch-not-needed", "scale_config[4].uneven_batch"),
        ),
    ],
)
def test_a_job_that_is_refused(changes: dict[str, Any], finding: tuple[str, str]) -> None:
    assert findings(job(**changes)) == [finding]


def test_a_batch_that_does_not_divide_is_refused_at_each_size() -> None:
    config = {size: ScaleSettings(train_batch_size=100) for size in (2, 4, 16)}
    sized = values(2, 4, 16, high=16)["elastic_policy"]
    assert findings(job(elastic_policy=sized, scale_config=config)) == [
        ("job-batch-not-even", "scale_config[2].train_batch_size"),
        ("job-batch-not-even", "scale_config[4].train_batch_size"),
        ("job-batch-too-small", "scale_config[16].train_batch_size"),
    ]


@pytest.mark.parametrize(
    ("hard", "code", "most"),
    [
        pytest.param(quota_hard(Team(name="t", quota={"ml.p5.48xlarge": 6})), "job-above-quota", 6, id="nodes"),
        pytest.param(
            quota_hard(Team(name="t", quota={"ml.trn1.32xlarge": 8})), "job-replica-above-quota", 0, id="other nodes"
        ),
        pytest.param({"pods": "5"}, "job-above-quota", 5, id="pods"),
        pytest.param({"requests.memory": "5120Gi"}, "job-above-quota", 2, id="the guide's memory"),
    ],
)
def test_a_maximum_beyond_the_quota_is_refused(hard: dict[str, str], code: str, most: int) -> None:
    (finding,) = check_job(ELASTIC, hard=hard)
    assert (finding.code, finding.path) == (code, "elastic_policy.max_replicas")
    assert f"at most {most}" in finding.remedy or most == 0


def test_a_job_above_the_quota_is_refused_with_its_needs_and_the_quota() -> None:
    (finding,) = check_job(ELASTIC, hard=quota_hard(Team(name="t", quota={"ml.p5.48xlarge": 6})))
    assert (
        "(cpu 1432 of 1074, memory 15120Gi of 11340Gi, nvidia.com/gpu 64 of 48, vpc.amazonaws.com/efa 256 of 192)"
        in (finding.problem)
    )


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        pytest.param(
            {"elastic_policy": policy(replica_increment_step=4)},
            "use a step that divides 6, or max_replicas 6",
            id="step",
        ),
        pytest.param(
            {"elastic_policy": policy(max_replicas=101)},
            "use a step that divides 99, or max_replicas 100",
            id="many steps",
        ),
    ],
)
def test_the_remedy_has_numbers_that_work(changes: dict[str, Any], remedy: str) -> None:
    (finding,) = check_job(job(**changes))
    assert finding.remedy == remedy


def test_the_remedy_of_an_uneven_batch_distributes_all_samples() -> None:
    config = {size: ScaleSettings(train_batch_size=100) for size in (2, 4, 16)}
    sized = values(2, 4, 16, high=16)["elastic_policy"]
    two, four, _ = check_job(job(elastic_policy=sized, scale_config=config))
    assert two.remedy == "add uneven_batch: 12 ranks with 6 samples, the others one more"
    assert four.remedy == "add uneven_batch: 28 ranks with 3 samples, the others one more"


def test_all_findings_come_at_once() -> None:
    wrong = job(
        name="A", namespace="default", image="", instance_type="x", elastic_policy=policy(min_replicas=9), env={"": ""}
    )
    assert len(findings(wrong)) == 6
