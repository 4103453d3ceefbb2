"""Teams, quotas and elastic training jobs as Kubernetes objects: rendering only.

Pure functions over the frozen values of `config/`: no AWS CDK, no Kubernetes client, no network. What a stack does with
them, in this order; everything that a rule finds (`rules/teams.py`, `rules/governance.py`) is an error of the configuration:

1. with task governance `scheduler_properties` for the cluster and `compute_quota_properties` for each team: HyperPod then
   makes the teams' namespaces, and they get the `pod_security_labels`;
2. `priority_class_manifests` once and `team_manifests` for each team, applied in the order in which they come;
3. an EKS access entry for each IAM role in `access_groups`, with its groups.

Teams apply their own jobs: `job_manifests` of an `ElasticJob` for which `check_job` (`rules/jobs.py`) finds nothing.

May import: config, errors, facts, typed.
"""
