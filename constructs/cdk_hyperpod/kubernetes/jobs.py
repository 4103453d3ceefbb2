"""An elastic job as Kubernetes objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..config.jobs import ClaimMount, ElasticJob, ElasticPolicy, LogMonitoring, RunPolicy, ScaleSettings, Toleration
from .manifests import Manifest, document
from .queue_policy import QUEUE_LABEL
from .replicas import (
    COORDINATION,
    SCALE_CONFIG_FOLDER,
    first_size,
    grace_period,
    queue_of,
    ranks_per_replica,
    replica_resources,
    shutdown_timeout,
)

_SCALE_CONFIG_FILE = "scale_config.yaml"


def job_manifests(job: ElasticJob) -> tuple[Manifest, ...]:
    """The job and what it needs, in the order in which they can be applied. Of a job that `check_job` accepts."""
    manifests = []
    if job.scale_config:
        manifests.append(_scale_config_map(job))
    manifests.append(_job(job))
    if job.disruption_budget:
        manifests.append(_disruption_budget(job))
    return tuple(manifests)


def _job(job: ElasticJob) -> Manifest:
    policy = job.elastic_policy
    sizes: Manifest = {"elasticPolicy": _elastic_policy(policy)} if policy.min_replicas < policy.max_replicas else {}
    return {
        "apiVersion": "sagemaker.amazonaws.com/v1",
        "kind": "HyperPodPyTorchJob",
        "metadata": {"name": job.name, "namespace": job.namespace, "labels": _labels(job), **_annotations(job)},
        "spec": {
            "nprocPerNode": str(ranks_per_replica(job)),
            **sizes,
            "replicaSpecs": _replica_specs(job),
            "runPolicy": _run_policy(job.run_policy),
        },
    }


def _elastic_policy(policy: ElasticPolicy) -> Manifest:
    elastic: Manifest = {"minReplicas": policy.min_replicas, "maxReplicas": policy.max_replicas}
    if policy.replica_increment_step is not None:
        elastic["replicaIncrementStep"] = policy.replica_increment_step
    else:
        elastic["replicaDiscreteValues"] = [*policy.sizes]
    return elastic | {
        "scalingTimeoutInSeconds": policy.scaling_timeout_in_seconds,
        "gracefulShutdownTimeoutInSeconds": policy.graceful_shutdown_timeout_in_seconds,
        "faultyScaleDownTimeoutInSeconds": policy.faulty_scale_down_timeout_in_seconds,
    }


def _replica_specs(job: ElasticJob) -> list[Manifest]:
    """One kind of replica. Or two: a base of min_replicas that does not scale, and the rest at a lower priority."""
    if job.base_priority_class_name is None:
        return [_worker(job)]
    policy, start = job.elastic_policy, first_size(job)
    return [
        {
            "name": "base",
            "replicas": policy.min_replicas,
            "template": _template(job, job.base_priority_class_name),
        },
        {
            "name": "elastic",
            "replicas": start - policy.min_replicas,
            "maxReplicas": policy.max_replicas - policy.min_replicas,
            "template": _template(job, job.priority_class_name),
        },
    ]


def _worker(job: ElasticJob) -> Manifest:
    policy, start = job.elastic_policy, first_size(job)
    spec: Manifest = {"name": "worker", "replicas": start}
    can_scale = policy.min_replicas < start or start < policy.max_replicas
    if can_scale:
        spec["maxReplicas"] = policy.max_replicas
    if job.spares:
        spec["spares"] = job.spares
    return spec | {"template": _template(job, job.priority_class_name)}


def _template(job: ElasticJob, priority_class: str | None) -> Manifest:
    volumes = _volumes(job)
    health = {"sagemaker.amazonaws.com/deep-health-check-status": "Passed"} if job.deep_health_check_passed else {}
    pod: Manifest = {
        "nodeSelector": {"node.kubernetes.io/instance-type": job.instance_type, **health, **job.node_labels}
    }
    if job.tolerations:
        pod["tolerations"] = [_toleration(item) for item in job.tolerations]
    if priority_class is not None:
        pod["priorityClassName"] = priority_class
    if job.service_account_name is not None:
        pod["serviceAccountName"] = job.service_account_name
    if (seconds := grace_period(job)) is not None:
        pod["terminationGracePeriodSeconds"] = seconds
    pod["containers"] = [_container(job, volumes)]
    pod["volumes"] = [volume.source for volume in volumes]
    # The SDK's model requires a name in the template's metadata. Pods get their own names.
    return {"metadata": {"name": job.name, "labels": _labels(job), **_annotations(job)}, "spec": pod}


@dataclass(frozen=True, slots=True)
class _Volume:
    """A volume of the pod, and its mount in the container."""

    source: Manifest
    mount: Manifest


def _volumes(job: ElasticJob) -> list[_Volume]:
    # Data loaders share memory, and a container's default /dev/shm has 64 MiB. Its content counts against the memory limit.
    shared_memory = _Volume(
        source={"name": "shm", "emptyDir": {"medium": "Memory"}}, mount={"name": "shm", "mountPath": "/dev/shm"}
    )
    volumes = [shared_memory]
    if job.scale_config:
        volumes.append(_scale_config_volume(job))
    volumes += [_claim_volume(f"claim-{index}", claim) for index, claim in enumerate(job.claims)]
    return volumes


def _scale_config_volume(job: ElasticJob) -> _Volume:
    return _Volume(
        source={"name": "scale-config", "configMap": {"name": _scale_config_name(job)}},
        mount={"name": "scale-config", "mountPath": SCALE_CONFIG_FOLDER, "readOnly": True},
    )


def _claim_volume(name: str, claim: ClaimMount) -> _Volume:
    mount: Manifest = {"name": name, "mountPath": claim.mount_path}
    if claim.read_only:
        mount["readOnly"] = True
    return _Volume(
        source={"name": name, "persistentVolumeClaim": {"claimName": claim.claim_name}},
        mount=mount,
    )


def _container(job: ElasticJob, volumes: Sequence[_Volume]) -> Manifest:
    resources = replica_resources(job)
    return {
        "name": "pytorch",
        "image": job.image,
        **({} if job.image_pull_policy is None else {"imagePullPolicy": job.image_pull_policy}),
        **_command(job),
        "env": [{"name": name, "value": value} for name, value in _environment(job).items()],
        "resources": {"requests": resources, "limits": resources},
        "volumeMounts": [volume.mount for volume in volumes],
    }


def _toleration(toleration: Toleration) -> Manifest:
    effect = "".join(part.capitalize() for part in toleration.effect.split("_"))
    # A taint without a value has an empty one, which Equal with an empty value matches.
    value = {} if toleration.value is None else {"value": toleration.value}
    return {"key": toleration.key, "operator": "Equal", **value, "effect": effect}


def _command(job: ElasticJob) -> Manifest:
    if job.command:
        return {"command": [*job.command]}
    if job.script is None:
        return {}
    # The agent asserts that --nnodes is one number; the operator tells it the real one at every start.
    launch = [f"--nnodes={first_size(job)}", f"--nproc-per-node={ranks_per_replica(job)}", "--rdzv-backend=hyperpod"]
    if (timeout := shutdown_timeout(job)) is not None:
        launch.append(f"--shutdown-timeout={timeout}")
    return {"command": ["hyperpodrun"], "args": [*launch, job.script, *job.script_args]}


def _environment(job: ElasticJob) -> dict[str, str]:
    environment = {COORDINATION: "distributed"}
    if job.scale_config:
        environment["SCALE_CONFIG"] = f"{SCALE_CONFIG_FOLDER}/{_SCALE_CONFIG_FILE}"
    return environment | dict(job.env)


def _labels(job: ElasticJob) -> dict[str, str]:
    """On the job and, as the SDK does it, on its pods. The first is what the disruption budget selects by."""
    labels = {"app.kubernetes.io/instance": job.name}
    if (queue := queue_of(job)) is not None:
        labels[QUEUE_LABEL] = queue
    if job.workload_priority_class is not None:
        labels["kueue.x-k8s.io/priority-class"] = job.workload_priority_class
    return labels


def _annotations(job: ElasticJob) -> Manifest:
    given = {
        "kueue.x-k8s.io/podset-required-topology": job.required_topology,
        "kueue.x-k8s.io/podset-preferred-topology": job.preferred_topology,
    }
    annotations = {name: label for name, label in given.items() if label is not None}
    return {"annotations": annotations} if annotations else {}


def _run_policy(policy: RunPolicy) -> Manifest:
    rendered: Manifest = {"cleanPodPolicy": policy.clean_pod_policy}
    if policy.job_max_retry_count is not None:
        rendered["jobMaxRetryCount"] = policy.job_max_retry_count
    restart: dict[str, int | None] = {
        "maxFullJobRestarts": policy.max_full_job_restarts,
        "scaleUpSnoozeTimeInSeconds": policy.scale_up_snooze_time_in_seconds,
    }
    given = {name: value for name, value in restart.items() if value is not None}
    if given:
        rendered["restartPolicy"] = {"evalPeriodSeconds": policy.eval_period_seconds, **given}
    if policy.ttl_seconds_after_finished is not None:
        rendered["ttlSecondsAfterFinished"] = policy.ttl_seconds_after_finished
    if policy.log_monitoring:
        rendered["logMonitoringConfiguration"] = [_log_rule(rule) for rule in policy.log_monitoring]
    return rendered


def _log_rule(rule: LogMonitoring) -> Manifest:
    given = {
        "name": rule.name,
        "logPattern": rule.log_pattern,
        "expectedStartCutOffInSeconds": rule.expected_start_cut_off_in_seconds,
        "expectedRecurringFrequencyInSeconds": rule.expected_recurring_frequency_in_seconds,
        "metricThreshold": rule.metric_threshold,
        "operator": rule.operator,
        "metricEvaluationDataPoints": rule.metric_evaluation_data_points,
        "stopPattern": rule.stop_pattern,
    }
    return {name: value for name, value in given.items() if value is not None}


def _disruption_budget(job: ElasticJob) -> Manifest:
    """minAvailable as a number: for pods of a custom resource, Kubernetes takes no percentage and no maxUnavailable."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": job.name, "namespace": job.namespace, "labels": {"app.kubernetes.io/instance": job.name}},
        "spec": {
            "minAvailable": job.elastic_policy.min_replicas,
            "selector": {"matchLabels": {"app.kubernetes.io/instance": job.name}},
        },
    }


def _scale_config_map(job: ElasticJob) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _scale_config_name(job),
            "namespace": job.namespace,
            "labels": {"app.kubernetes.io/instance": job.name},
        },
        "data": {
            _SCALE_CONFIG_FILE: document(
                {"scale_config": {size: _recipe(size, job.scale_config[size]) for size in sorted(job.scale_config)}}
            )
        },
    }


def _recipe(size: int, settings: ScaleSettings) -> Manifest:
    """One size in the recipes' form: a part of a recipe, by which the base recipe is updated."""
    arguments: dict[str, Any] = {"train_batch_size": settings.train_batch_size}
    if settings.micro_train_batch_size is not None:
        arguments["micro_train_batch_size"] = settings.micro_train_batch_size
    if settings.learning_rate is not None:
        arguments["learning_rate"] = settings.learning_rate
    if (uneven := settings.uneven_batch) is not None:
        arguments["uneven_batch"] = {
            "use_uneven_batch": True,
            "num_dp_groups_with_small_batch_size": uneven.num_dp_groups_with_small_batch_size,
            "small_local_batch_size": uneven.small_local_batch_size,
            "large_local_batch_size": uneven.large_local_batch_size,
        }
    return {"trainer": {"num_nodes": size}, "training_config": {"training_args": arguments}}


def _scale_config_name(job: ElasticJob) -> str:
    return f"{job.name}-scale-config"
