"""Teams and jobs that several tests use."""

from __future__ import annotations

import dataclasses

from cdk_hyperpod.config.jobs import (
    ClaimMount,
    ElasticJob,
    ElasticPolicy,
    LogMonitoring,
    RunPolicy,
    ScaleSettings,
    Toleration,
    UnevenBatch,
)
from cdk_hyperpod.config.teams import PriorityClass, Team
from cdk_hyperpod.kubernetes.jobs import job_manifests
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.teams import priority_class_manifests, team_manifests

RESEARCH = Team(
    name="research",
    quota={"ml.p5.48xlarge": 8},
    role_arns=("arn:aws:iam::111122223333:role/research",),
)
NEURON = Team(name="neuron", quota={"ml.trn1.32xlarge": 4})
BORROWER = Team(
    name="borrower",
    namespace="borrowers-corner",
    quota={"ml.p5.48xlarge": 2, "ml.g6.12xlarge": 3},
    borrow_limit=50,
    hard={"pods": "200"},
    default_vcpus=2,
    default_memory_gib=16,
)
WORKER = Team(name="worker", quota={"ml.p5.48xlarge": 1}, work=("training", "ray"), see_nodes=True)
PRIORITIES = (
    PriorityClass(name="high", value=1000, description="the part of a job that keeps it going"),
    PriorityClass(name="low", value=-10, preempts=False),
)

ELASTIC = ElasticJob(
    name="llama",
    namespace="research",
    image="111122223333.dkr.ecr.us-west-2.amazonaws.com/train:1",
    instance_type="ml.p5.48xlarge",
    elastic_policy=ElasticPolicy(min_replicas=2, max_replicas=8, replica_increment_step=2),
    script="train.py",
)
GOVERNED = ElasticJob(
    name="llama",
    namespace="hyperpod-ns-neuron",
    image="111122223333.dkr.ecr.us-west-2.amazonaws.com/train:1",
    instance_type="ml.trn1.32xlarge",
    elastic_policy=ElasticPolicy(
        min_replicas=1,
        max_replicas=3,
        replica_discrete_values=(1, 3),
        scaling_timeout_in_seconds=600,
        graceful_shutdown_timeout_in_seconds=300,
        faulty_scale_down_timeout_in_seconds=45,
    ),
    replicas=3,
    node_labels={"pool": "chips", "topology.kubernetes.io/zone": "us-west-2c"},
    tolerations=(Toleration(key="aws.amazon.com/neuron", effect="no_schedule"),),
    script="train.py",
    script_args=("--checkpoint-dir", "/fsx/llama"),
    env={"NCCL_DEBUG": "INFO"},
    vcpus=64,
    memory_gib=256,
    workload_priority_class="training-priority",
    priority_class_name="low",
    base_priority_class_name="high",
    service_account_name="trainer",
    claims=(
        ClaimMount(claim_name="fsx", mount_path="/fsx"),
        ClaimMount(claim_name="d", mount_path="/d", read_only=True),
    ),
    disruption_budget=True,
    run_policy=RunPolicy(
        clean_pod_policy="All",
        job_max_retry_count=3,
        max_full_job_restarts=2,
        scale_up_snooze_time_in_seconds=60,
        ttl_seconds_after_finished=-1,
        log_monitoring=(
            LogMonitoring(
                name="progress",
                log_pattern=".*loss=([0-9]+).*",
                expected_start_cut_off_in_seconds=240,
                expected_recurring_frequency_in_seconds=600,
                metric_threshold=3,
                operator="lt",
                metric_evaluation_data_points=5,
                stop_pattern="saving",
            ),
        ),
    ),
    required_topology="topology.k8s.aws/network-node-layer-3",
    deep_health_check_passed=True,
    termination_grace_period_seconds=900,
    image_pull_policy="Always",
    scale_config={
        1: ScaleSettings(train_batch_size=128, micro_train_batch_size=2, learning_rate=0.0004),
        3: ScaleSettings(
            train_batch_size=128,
            learning_rate=0.0004,
            uneven_batch=UnevenBatch(
                num_dp_groups_with_small_batch_size=64, small_local_batch_size=1, large_local_batch_size=2
            ),
        ),
    },
)

JOBS: dict[str, tuple[Manifest, ...]] = {
    "elastic-job": job_manifests(ELASTIC),
    "elastic-job-with-everything": job_manifests(GOVERNED),
}
SAMPLES: dict[str, tuple[Manifest, ...]] = {
    "team": team_manifests(RESEARCH, task_governance=False),
    "team-under-task-governance": team_manifests(NEURON, task_governance=True),
    "team-that-borrows": team_manifests(BORROWER, task_governance=False),
    "team-of-other-work": team_manifests(WORKER, task_governance=False),
    "team-that-borrows-in-a-queue": team_manifests(dataclasses.replace(BORROWER, namespace=None), task_governance=True),
    "priority-classes": priority_class_manifests(PRIORITIES),
    **JOBS,
}
"""All rendered objects, by the name of their golden file."""
