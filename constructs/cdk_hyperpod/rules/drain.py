"""Rules of `slurm.drain` and `scale_down.drain`: what the agent on the controller, or the drainer of an EKS cluster, would refuse,
or never hear, at synth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from ..config.cluster import ClusterConfig, ScaleDownConfig, ScaleDownDrain
from ..config.eks import EksConfig, ExistingEksCluster
from ..config.slurm import DrainBackup, SlurmConfig
from ..config.teams import Team
from ..errors import Finding
from ..kubernetes.drainer import BACKUP_NAMESPACE, RESERVED
from ..kubernetes.teams import namespace_name
from ..typed.judge import check_repeated
from ..typed.known import is_known
from ..typed.words import item_paths
from .lifecycle import check_writers
from .storage import mount_paths

MOST_PATHS = 20
_SYSTEM = frozenset(
    [
        *(
            "bin",
            "boot",
            "dev",
            "etc",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "proc",
            "root",
            "run",
            "sbin",
            "snap",
            "sys",
            "usr",
        ),
        *("opt/amazon", "opt/aws", "opt/ml", "opt/nvidia", "opt/sagemaker", "opt/slurm"),
    ]
)
"""Folders that hold the node's system and its secrets: no work of users is there, and every node has its own from its image."""


def check_drain(config: ClusterConfig) -> Iterator[Finding]:
    """An agent that nothing starts or that is asked and not there, and a backup that cannot be."""
    slurm = config.slurm
    if isinstance(config.scale_down, ScaleDownConfig) and config.scale_down.drain is not None:
        yield from _check_asked(config, config.scale_down.drain)
    if config.orchestrator == "eks" or not isinstance(slurm, SlurmConfig) or slurm.drain is None:
        return
    if config.lifecycle is None or is_known(config.lifecycle):
        yield from _check_started(config)
    if is_known(slurm.drain):
        yield from _check_operators(slurm.drain.operators)
    storage_known = config.storage is None or is_known(config.storage)
    if is_known(slurm.drain) and isinstance(slurm.drain.backup, DrainBackup) and storage_known:
        yield from check_backup(slurm.drain.backup, mount_paths(config), "slurm.drain.backup")


def _check_operators(operators: object) -> Iterator[Finding]:
    yield from check_writers(operators, "slurm.drain.operators")
    if operators == ():
        yield Finding(
            path="slurm.drain.operators",
            problem="is missing, so every principal with s3:PutObject on all buckets can drain nodes",
            remedy="name the roles of those who run `cdk-hyperpod drain`",
            level="warning",
            topic="drain-operators",
        )


def _check_asked(config: ClusterConfig, drain: object) -> Iterator[Finding]:
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
            topic="backup-namespace",
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


def _check_started(config: ClusterConfig) -> Iterator[Finding]:
    if config.lifecycle_mode == "bootstrap" or config.scripts_folder is not None:
        yield Finding(
            path="slurm.drain",
            problem="the library's own scripts start the agent on the controller, and they do not run",
            remedy="remove it, or let them run (docs/lifecycle.md)",
        )
    elif config.lifecycle_steps.drain is False:
        yield Finding(
            path="lifecycle.steps.drain",
            problem="is false, so nothing starts the agent that slurm.drain asks for",
            remedy="remove one of the two",
        )


def check_backup(backup: DrainBackup, mounts: frozenset[str], path: str) -> Iterator[Finding]:
    """What is not said, or twice, and folders that could not be saved."""
    if not isinstance(backup.paths, tuple) or not is_known(backup.hook) or not is_known(backup.to):
        return
    if backup.hook is not None:
        if backup.on_unsavable == "skip":
            yield Finding(
                path=f"{path}.on_unsavable",
                problem=f"is about files that are copied from {path}.paths, and {path}.hook saves the node by itself",
                remedy="remove it",
            )
        for name in ("paths", "to"):
            if getattr(backup, name):
                yield Finding(
                    path=f"{path}.{name}",
                    problem=f"says what is copied, and {path}.hook saves the node by itself",
                    remedy="remove one of the two",
                )
        return
    yield from check_repeated(backup.paths, f"{path}.paths")
    if not 1 <= len(backup.paths) <= MOST_PATHS:
        yield Finding(
            path=f"{path}.paths",
            problem=f"{len(backup.paths)} folders are named",
            remedy=f"name 1 to {MOST_PATHS}, or a `hook` of your own, or remove slurm.drain.backup",
        )
    if backup.to is None:
        yield Finding(
            path=f"{path}.to",
            problem="is missing, so nobody knows where the copy goes",
            remedy="add a folder such as /fsx/backup, or a `hook` of your own in place of both",
        )
        return
    yield from _check_folders(backup.paths, backup.to, mounts, path)


def _is_systems(folder: PurePosixPath) -> bool:
    parts = folder.parts[1:]
    return parts in (("opt",), ("var",)) or not _SYSTEM.isdisjoint("/".join(parts[:length]) for length in (1, 2))


def _check_folders(paths: tuple[str, ...], target: str, mounts: frozenset[str], path: str) -> Iterator[Finding]:
    """Folders that lead in a circle, that are shared anyway, or a target that goes with the node."""
    to = PurePosixPath(target)
    if not any(PurePosixPath(mount) in to.parents for mount in mounts):
        below = " or ".join(sorted(mounts))
        yield Finding(
            path=f"{path}.to",
            problem=f"{target} is on no storage of the file, so the copy would go with the node",
            remedy=f"put it below {below}" if below else "add storage, and put it there",
        )
    for item_path, item in zip(item_paths(f"{path}.paths", paths), paths, strict=True):
        if not is_known(item):
            continue
        source = PurePosixPath(item)
        if _is_systems(source):
            yield Finding(
                path=item_path,
                problem=f"{item} is the node's system's, with its secrets, and no work of users is there",
                remedy="name folders of work, such as /opt/dlami/nvme/work",
            )
            continue
        shared = next((mount for mount in sorted(mounts) if PurePosixPath(mount) in (source, *source.parents)), None)
        if shared is not None:
            yield Finding(
                path=item_path,
                problem=f"{item} is on {shared}, which all nodes share and no node takes with it",
                remedy="name folders on the nodes' own disks, such as /opt/dlami/nvme/work",
            )
        elif source in to.parents:
            yield Finding(
                path=item_path,
                problem=f"{item} holds {target}, so the copy would be copied too",
                remedy="name a smaller folder",
            )
