"""Checks of the guard's `drain` and `drain_channel` against the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aws_cdk import aws_kms as kms

from ..config.scale_down import ScaleDownDrain
from ..errors import Finding
from ..interface import IHyperPodCluster
from .drain_channel import DrainChannel, IEksDrainer


def check_drain_arguments(
    drain: object,
    channel: object,
    cluster: object,
    properties: Mapping[str, Any],
    encryption_key: kms.IKey | None,
) -> Iterator[Finding]:
    """Findings for arguments with which no node could be drained."""
    is_ours = isinstance(cluster, IHyperPodCluster)
    if not isinstance(drain, ScaleDownDrain):
        if drain is None and not is_ours:
            yield from _check_unused_channel(channel)
        return
    if _is_under_eks(properties):
        yield from _check_eks_drainer(drain, channel)
    elif is_ours:
        yield from _check_own_agent(channel)
    else:
        yield from _check_foreign_agent(drain, channel, encryption_key)
    yield from _check_channel_cluster(channel, properties.get("ClusterName"))


def _is_under_eks(properties: Mapping[str, Any]) -> bool:
    orchestrator = properties.get("Orchestrator")
    return isinstance(orchestrator, Mapping) and "Eks" in orchestrator


def _check_unused_channel(channel: object) -> Iterator[Finding]:
    if isinstance(channel, DrainChannel | IEksDrainer):
        yield Finding(
            code="drain-channel-without-drain",
            path="drain_channel",
            problem="has no effect without drain",
            remedy="set both, or neither",
        )


def _check_channel_cluster(channel: object, cluster_name: object) -> Iterator[Finding]:
    if isinstance(channel, DrainChannel | IEksDrainer) and channel.cluster_name != cluster_name:
        yield Finding(
            code="drain-channel-of-other-cluster",
            path="drain_channel",
            problem=f"is for the cluster {channel.cluster_name}",
            remedy="use the one of this cluster",
        )


def _check_eks_drainer(drain: ScaleDownDrain, channel: object) -> Iterator[Finding]:
    if not isinstance(channel, IEksDrainer):
        yield Finding(
            code="eks-drainer-missing",
            path="drain",
            problem="needs a function in the EKS cluster's VPC, and there is none",
            remedy="set `drainer` of HyperPodCluster, or `drain_channel` of another cluster's ScaleDown, to an EksDrainer",
        )
    elif drain.backup_cron_job not in (None, channel.backup_cron_job):
        drainers_cron_job = channel.backup_cron_job or "none"
        yield Finding(
            code="backup-cron-job-differs",
            path="drain.backup_cron_job",
            problem=f"is {drain.backup_cron_job}, and the drainer's is {drainers_cron_job}",
            remedy="give EksDrainer the same backup_cron_job",
        )


def _check_slurm_channel(channel: object) -> Iterator[Finding]:
    if isinstance(channel, IEksDrainer):
        yield Finding(
            code="eks-drainer-under-slurm",
            path="drain_channel",
            problem="drains nodes of an EKS cluster, and this cluster is under Slurm",
            remedy="use a DrainChannel",
        )


def _check_own_agent(channel: object) -> Iterator[Finding]:
    """The agent of a `HyperPodCluster`, which its lifecycle scripts install."""
    yield from _check_slurm_channel(channel)
    if channel is None:
        yield Finding(
            code="drain-agent-missing",
            path="drain",
            problem="needs an agent on the controller, and the cluster's lifecycle scripts start none",
            remedy="give LifecycleScripts a DrainChannel",
        )


def _check_foreign_agent(drain: ScaleDownDrain, channel: object, encryption_key: kms.IKey | None) -> Iterator[Finding]:
    """The agent of another cluster, which the user starts."""
    if isinstance(channel, IEksDrainer):
        yield from _check_slurm_channel(channel)
        return
    if drain.on_silent is None:
        yield Finding(
            code="drain-on-silent-missing",
            path="drain.on_silent",
            problem="is missing, and it is unknown whether an agent runs on this cluster's controller",
            remedy="set it to fail or undrained",
        )
    if channel is None and encryption_key is None:
        yield Finding(
            code="drain-key-missing",
            path="encryption_key",
            problem="is missing, and it encrypts the bucket for drain requests",
            remedy="set it, or give a drain_channel",
        )
