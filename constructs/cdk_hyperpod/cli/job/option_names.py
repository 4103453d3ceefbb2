"""Findings of `job render` name options instead of the library's fields."""

from __future__ import annotations

import dataclasses
import re

from ...errors import Finding

_SAME_NAME = (
    "instance_type",
    "learning_rate",
    "max_replicas",
    "memory_gib",
    "min_replicas",
    "nproc_per_node",
    "preferred_topology",
    "quota_nodes",
    "replica_discrete_values",
    "replica_increment_step",
    "required_topology",
    "train_batch_size",
    "vcpus",
    "workload_priority_class",
)
_FLAGS = {name: f"--{name.replace('_', '-')}" for name in _SAME_NAME} | {
    "queue_name": "--queue",
    "priority_class_name": "--priority-class",
    "base_priority_class_name": "--base-priority-class",
    "service_account_name": "--service-account",
    "scaling_timeout_in_seconds": "--scaling-timeout",
    "graceful_shutdown_timeout_in_seconds": "--graceful-shutdown-timeout",
    "faulty_scale_down_timeout_in_seconds": "--faulty-scale-down-timeout",
    "scale_up_snooze_time_in_seconds": "--scale-up-snooze-time",
    "job_max_retry_count": "--max-retries",
    "termination_grace_period_seconds": "--termination-grace-period",
    "image_pull_policy": "--image-pull-policy",
    "expected_start_cut_off_in_seconds": "--log-start-cut-off",
    "expected_recurring_frequency_in_seconds": "--log-recurring-frequency",
    "log_pattern": "--log-pattern",
    "deep_health_check_passed": "--deep-health-check-passed",
}

# Names that are ordinary words too, so they are replaced only as the path, not inside a sentence.
_FLAG_PLACES = {
    "name": "--name",
    "namespace": "--namespace",
    "nodes": "--nodes",
    "group": "--group",
    "config": "--config",
    "zone": "--zone",
    "image": "--image",
    "replicas": "--replicas",
    "script": "SCRIPT",
    "spares": "--spares",
    "log_monitoring[0]": "--log-pattern",
    "elastic_policy": "",
    "scale_config": "--train-batch-size",
}
_NAMES = re.compile(rf"\b({'|'.join(sorted(_FLAGS, key=len, reverse=True))})\b")


_SIZES = ("min_replicas", "max_replicas", "replica_discrete_values")


def with_option_names(finding: Finding, *, one_size: bool = False) -> Finding:
    """The library's finding with the command's options in place of its fields.

    `one_size`: the job is of `--nodes`, which sets all its sizes.
    """
    flags = {**_FLAGS, **dict.fromkeys(_SIZES, "--nodes")} if one_size else _FLAGS

    def flag(match: re.Match[str]) -> str:
        return flags[match[1]]

    path = finding.path.removeprefix("elastic_policy.").removeprefix("run_policy.")
    path = re.sub(r"^claims(\[\d+\])?", "--claim", re.sub(r"^env\b", "--env", path))
    path = path.removeprefix("log_monitoring[0].")
    path = re.sub(r"^scale_config\[\d+\]\.", "", path)
    return dataclasses.replace(
        finding,
        path=_FLAG_PLACES[path] if path in _FLAG_PLACES else _NAMES.sub(flag, path),
        problem=_NAMES.sub(flag, finding.problem),
        remedy=_NAMES.sub(flag, finding.remedy),
    )
