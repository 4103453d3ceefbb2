"""Checks of the guard's `drain` and `drain_channel` against the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aws_cdk import aws_kms as kms

from ..config.cluster import ScaleDownDrain
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
    ours = isinstance(cluster, IHyperPodCluster)
    if not isinstance(drain, ScaleDownDrain):
        if isinstance(channel, DrainChannel | IEksDrainer) and drain is None and not ours:
            yield Finding(
                path="drain_channel", problem="means nothing without drain", remedy="give both, or none of them"
            )
        return
    orchestrator = properties.get("Orchestrator")
    if isinstance(orchestrator, Mapping) and "Eks" in orchestrator:
        yield from _check_eks_drainer(drain, channel, ours=ours)
    else:
        yield from _check_drain_agent(drain, channel, encryption_key, ours=ours)
    if isinstance(channel, DrainChannel | IEksDrainer) and channel.cluster_name != properties.get("ClusterName"):
        yield Finding(
            path="drain_channel",
            problem=f"is that of cluster {channel.cluster_name}",
            remedy="give the one of this cluster",
        )


def _check_eks_drainer(drain: ScaleDownDrain, channel: object, *, ours: bool) -> Iterator[Finding]:
    if not isinstance(channel, IEksDrainer):
        yield Finding(
            path="drain",
            problem="asks a function in the EKS cluster's VPC, and none is given",
            remedy=f"give {'HyperPodCluster a drainer' if ours else 'drain_channel'}: an EksDrainer",
        )
    elif drain.backup_cron_job not in (None, channel.backup_cron_job):
        yield Finding(
            path="drain.backup_cron_job",
            problem=f"is {drain.backup_cron_job}, and the drainer's is {channel.backup_cron_job or 'none'}",
            remedy="give EksDrainer the same backup_cron_job",
        )


def _check_drain_agent(
    drain: ScaleDownDrain, channel: object, encryption_key: kms.IKey | None, *, ours: bool
) -> Iterator[Finding]:
    if isinstance(channel, IEksDrainer):
        yield Finding(
            path="drain_channel",
            problem="drains nodes of an EKS cluster, and this cluster is under Slurm",
            remedy="give a DrainChannel",
        )
    elif ours and channel is None:
        yield Finding(
            path="drain",
            problem="asks an agent on the controller, and the cluster's lifecycle scripts start none",
            remedy="give LifecycleScripts a DrainChannel",
        )
    elif not ours:
        if drain.on_silent is None:
            yield Finding(
                path="drain.on_silent",
                problem="is missing, and nobody knows whether an agent runs on this cluster's controller",
                remedy="say fail or undrained",
            )
        if channel is None and encryption_key is None:
            yield Finding(
                path="encryption_key",
                problem="is missing, and the bucket in which an agent is asked to drain nodes is encrypted with it",
                remedy="give it, or a drain_channel",
            )
