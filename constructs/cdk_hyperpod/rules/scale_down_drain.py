"""Rules of `scale_down.drain`: what a deployment cannot drain, and in which namespace the backup of an EKS cluster may be."""

from __future__ import annotations

from collections.abc import Iterator

from ..config.cluster import ClusterConfig
from ..config.eks import EksConfig, ExistingEksCluster
from ..config.scale_down import ScaleDownConfig, ScaleDownDrain
from ..config.slurm import SlurmConfig
from ..config.teams import Team
from ..errors import Finding
from ..kubernetes.drainer import BACKUP_NAMESPACE, RESERVED
from ..kubernetes.teams import namespace_name
from ..typed.known import is_known


def check_scale_down_drain(config: ClusterConfig) -> Iterator[Finding]:
    """A drain that deployments request, but that is impossible on this cluster."""
    if not isinstance(config.scale_down, ScaleDownConfig) or config.scale_down.drain is None:
        return
    drain: object = config.scale_down.drain
    if config.orchestrator == "eks":
        existing = config.eks.existing_cluster if isinstance(config.eks, EksConfig) else None
        if isinstance(existing, ExistingEksCluster):
            yield from check_existing(existing, "eks.existing_cluster")
        if isinstance(drain, ScaleDownDrain):
            path = "scale_down.drain.backup_cron_job"
            yield from check_backup_namespace(drain.backup_cron_job, path, config.teams)
        return
    if isinstance(drain, ScaleDownDrain) and drain.backup_cron_job is not None:
        yield Finding(
            code="drain-cron-job-under-slurm",
            path="scale_down.drain.backup_cron_job",
            problem="applies only under EKS",
            remedy="remove it. Under Slurm, set slurm.drain.backup",
        )
    if isinstance(drain, ScaleDownDrain) and drain.unmanaged_pods == "evict":
        yield Finding(
            code="drain-pods-under-slurm",
            path="scale_down.drain.unmanaged_pods",
            problem="applies only under EKS, which has pods",
            remedy="remove it",
        )
    if config.slurm is None or (isinstance(config.slurm, SlurmConfig) and config.slurm.drain is None):
        yield Finding(
            code="drain-without-agent",
            path="scale_down.drain",
            problem="needs the drain agent on the controller, but slurm.drain is missing",
            remedy="add `slurm: {drain: {}}`, and deploy it before you lower a count",
        )


def check_backup_namespace(cron_job: str | None, path: str, teams: object = ()) -> Iterator[Finding]:
    """Who can change Jobs in the backup's namespace can replace the backup. A quota or Pod Security can refuse it."""
    if not isinstance(cron_job, str) or not is_known(cron_job):
        return
    namespace, _, name = cron_job.partition("/")
    own = f"name {BACKUP_NAMESPACE}/{name}, and create the CronJob there after the EKS stack has created the namespace"
    if namespace == BACKUP_NAMESPACE:
        return
    if namespace in RESERVED:
        yield Finding(
            code="backup-namespace-reserved",
            path=path,
            problem=f"is in the namespace {namespace}, which belongs to Kubernetes",
            remedy=own,
        )
    elif namespace.startswith("hyperpod-ns-") or namespace in _team_namespaces(teams):
        yield Finding(
            code="backup-namespace-of-team",
            path=path,
            problem=(
                f"is in the namespace {namespace} of a team, whose members can replace the backup, and whose "
                "quota can refuse it"
            ),
            remedy=own,
        )
    else:
        yield Finding(
            code="backup-namespace-unprotected",
            path=path,
            problem=(
                f"is in the namespace {namespace}. Unless it exists, the teams' stack fails. Who can change "
                "Jobs there can prevent the backup, and a quota or Pod Security can refuse it"
            ),
            remedy=own,
            level="warning",
        )


def _team_namespaces(teams: object) -> set[str]:
    """The teams' namespaces with and without HyperPod's prefix, since task governance may be switched on or off."""
    known = [
        team
        for team in (teams if isinstance(teams, tuple) else ())
        if isinstance(team, Team) and is_known(team.name) and is_known(team.namespace)
    ]
    return {namespace_name(team, task_governance=on) for team in known for on in (True, False)} | {
        team.name for team in known
    }


def check_existing(cluster: ExistingEksCluster, path: str) -> Iterator[Finding]:
    """The address of an existing EKS cluster's API: neither synthesis nor the drainer's permissions can look it up."""
    for name, query in (("endpoint", "endpoint"), ("certificate_authority", "certificateAuthority.data")):
        if getattr(cluster, name) is None:
            eks_cluster = cluster.name
            yield Finding(
                code="existing-cluster-address-missing",
                path=f"{path}.{name}",
                problem="is missing, but scale_down.drain calls the API of this EKS cluster",
                remedy=(
                    f"add what `aws eks describe-cluster --name {eks_cluster} --query cluster.{query} --output "
                    "text` prints"
                ),
            )
