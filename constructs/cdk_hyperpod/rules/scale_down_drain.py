"""Rules of `scale_down.drain`: what a deployment could not drain, and where the backup of an EKS cluster may be."""

from __future__ import annotations

from collections.abc import Iterator

from ..config.cluster import ClusterConfig, ScaleDownConfig, ScaleDownDrain
from ..config.eks import EksConfig, ExistingEksCluster
from ..config.slurm import SlurmConfig
from ..config.teams import Team
from ..errors import Finding
from ..kubernetes.drainer import BACKUP_NAMESPACE, RESERVED
from ..kubernetes.teams import namespace_name
from ..typed.known import is_known


def check_scale_down_drain(config: ClusterConfig) -> Iterator[Finding]:
    """A drain that a deployment asks for and that nothing could do."""
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
            path="scale_down.drain.backup_cron_job",
            problem="is a CronJob of Kubernetes, and this cluster is under Slurm",
            remedy="remove it; under Slurm, slurm.drain.backup says what is saved",
        )
    if isinstance(drain, ScaleDownDrain) and drain.unmanaged_pods == "evict":
        yield Finding(
            path="scale_down.drain.unmanaged_pods",
            problem="is about pods, and this cluster is under Slurm",
            remedy="remove it",
        )
    if config.slurm is None or (isinstance(config.slurm, SlurmConfig) and config.slurm.drain is None):
        yield Finding(
            path="scale_down.drain",
            problem="asks an agent on the controller, and without slurm.drain there is none",
            remedy="add `slurm: {drain: {}}`, and deploy it before you take nodes",
        )


def check_backup_namespace(cron_job: str | None, path: str, teams: object = ()) -> Iterator[Finding]:
    """Whoever may change Jobs where the backup's are can replace them; and a team's quota and Pod Security may refuse them."""
    if not isinstance(cron_job, str) or not is_known(cron_job):
        return
    namespace, _, name = cron_job.partition("/")
    own = f"name {BACKUP_NAMESPACE}/{name}, and create the CronJob there once the EKS stack has made the namespace"
    if namespace == BACKUP_NAMESPACE:
        return
    if namespace in RESERVED:
        yield Finding(path=path, problem=f"is in the namespace {namespace}, which is Kubernetes' own", remedy=own)
    elif namespace.startswith("hyperpod-ns-") or namespace in _team_namespaces(teams):
        problem = f"is in the namespace {namespace} of a team, whose members can replace the backup, and whose quota can refuse it"
        yield Finding(path=path, problem=problem, remedy=own)
    else:
        yield Finding(
            path=path,
            problem=f"is in the namespace {namespace}: unless it exists, the teams' stack fails; who may change Jobs there can "
            "prevent the backup, and a quota or Pod Security can refuse it",
            remedy=own,
            level="warning",
            code="backup-namespace",
        )


def _team_namespaces(teams: object) -> set[str]:
    """With HyperPod's prefix and without, whichever the team has: task governance may be switched. Every other namespace with the
    prefix is a team's too, that somebody made elsewhere."""
    known = [
        team
        for team in (teams if isinstance(teams, tuple) else ())
        if isinstance(team, Team) and is_known(team.name) and is_known(team.namespace)
    ]
    return {namespace_name(team, task_governance=on) for team in known for on in (True, False)} | {
        team.name for team in known
    }


def check_existing(cluster: ExistingEksCluster, path: str) -> Iterator[Finding]:
    """How the API of an EKS cluster that exists is reached: nothing at synthesis, and no right of the drainer's, could find out."""
    for name, query in (("endpoint", "endpoint"), ("certificate_authority", "certificateAuthority.data")):
        if getattr(cluster, name) is None:
            yield Finding(
                path=f"{path}.{name}",
                problem="is missing, and scale_down.drain asks this EKS cluster's API",
                remedy=f"add what `aws eks describe-cluster --name {cluster.name} --query cluster.{query} --output text` prints",
            )
