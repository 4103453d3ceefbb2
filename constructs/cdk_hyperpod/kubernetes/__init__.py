"""Teams, quotas and elastic training jobs as Kubernetes objects: values, checks and manifests.

Pure functions over frozen values: no AWS CDK, no Kubernetes client, no network.
"""

from __future__ import annotations

from .allocatable import Allocatable, allocatable
from .elastic_job import (
    ClaimMount,
    ElasticJob,
    ElasticPolicy,
    RunPolicy,
    ScaleSettings,
    UnevenBatch,
    check_job,
    job_manifests,
)
from .manifests import Manifest, to_yaml
from .quotas import AWS_EXAMPLE_HARD
from .teams import (
    PriorityClass,
    Team,
    access_groups,
    check_priority_classes,
    check_teams,
    cluster_nodes,
    compute_quota_config,
    group_name,
    namespace_name,
    priority_class_manifests,
    quota_hard,
    team_manifests,
)

__all__ = [
    "AWS_EXAMPLE_HARD",
    "Allocatable",
    "ClaimMount",
    "ElasticJob",
    "ElasticPolicy",
    "Manifest",
    "PriorityClass",
    "RunPolicy",
    "ScaleSettings",
    "Team",
    "UnevenBatch",
    "access_groups",
    "allocatable",
    "check_job",
    "check_priority_classes",
    "check_teams",
    "cluster_nodes",
    "compute_quota_config",
    "group_name",
    "job_manifests",
    "namespace_name",
    "priority_class_manifests",
    "quota_hard",
    "team_manifests",
    "to_yaml",
]
