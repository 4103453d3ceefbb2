"""Teams, quotas and elastic training jobs as Kubernetes objects: values, checks and manifests.

Pure functions over frozen values: no AWS CDK, no Kubernetes client, no network. What a stack does with them, in this
order; everything that a `check_` function finds is an error of the configuration:

1. `check_teams`, `check_priority_classes`, `check_task_governance`, with `cluster_nodes` for what there is to share;
2. with task governance `scheduler_properties` for the cluster and `compute_quota_properties` for each team: HyperPod then
   makes the teams' namespaces, and they get the `pod_security_labels`;
3. `priority_class_manifests` once and `team_manifests` for each team, applied in the order in which they come;
4. an EKS access entry for each IAM role in `access_groups`, with its groups.

Teams apply their own jobs: `job_manifests` of an `ElasticJob` for which `check_job` finds nothing.
"""

from __future__ import annotations

from .allocatable import Allocatable, allocatable
from .elastic_job import (
    ClaimMount,
    ElasticJob,
    ElasticPolicy,
    RunPolicy,
    ScaleSettings,
    Toleration,
    UnevenBatch,
)
from .governance import (
    TaskClass,
    TaskGovernance,
    check_task_governance,
    compute_quota_properties,
    scheduler_properties,
)
from .job_checks import check_job
from .job_objects import job_manifests
from .manifests import Manifest, to_yaml
from .quotas import AWS_EXAMPLE_HARD
from .team_checks import check_priority_classes, check_teams
from .team_objects import priority_class_manifests, team_manifests
from .teams import (
    PriorityClass,
    Team,
    access_groups,
    cluster_nodes,
    group_name,
    namespace_name,
    pod_security_labels,
    quota_hard,
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
    "TaskClass",
    "TaskGovernance",
    "Team",
    "Toleration",
    "UnevenBatch",
    "access_groups",
    "allocatable",
    "check_job",
    "check_priority_classes",
    "check_task_governance",
    "check_teams",
    "cluster_nodes",
    "compute_quota_properties",
    "group_name",
    "job_manifests",
    "namespace_name",
    "pod_security_labels",
    "priority_class_manifests",
    "quota_hard",
    "scheduler_properties",
    "team_manifests",
    "to_yaml",
]
