"""The part of the typed model about the deletion of nodes: `scale_down`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from .._lambda.hyperpod.kernel.drain_protocol import MAX_NODES
from ..typed.bounds import Pattern, Range
from ..typed.validation import as_tuple
from .effects import IN_PLACE, Change, Deletion, has_new_names, in_place
from .patterns import CronJobName, GroupName, NodeId

_DRAINED = in_place("applies to deployments that delete nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownDrain:
    """Deployments drain nodes before they delete them. Under Slurm the agent of `slurm.drain` drains them and saves
    what its `backup` names. Under EKS a function in the VPC cordons the nodes and evicts their pods, within their
    PodDisruptionBudgets.

    A deployment deletes its nodes only when all of them are ready. If one is not ready, none is deleted. A change of
    these settings touches no node.
    """

    _change = _DRAINED
    timeout_minutes: Annotated[int, Range(1, 30)] = 25
    """Maximum time in minutes for the nodes' jobs or pods and the backup together. CloudFormation waits 60 minutes in
    all, and a node takes 15 to 20 minutes to terminate. For longer jobs, drain before you deploy: `cdk-hyperpod drain
    --hold 12h` under Slurm, `kubectl drain` under EKS."""
    on_timeout: Literal["fail", "force"] = "fail"
    """fail: the deployment fails, no node is deleted, and the nodes run jobs again. force: the nodes are deleted at the
    end of the time, unless their data must be saved and is not. Under Slurm, jobs that still run after four fifths of
    the time are requeued, or cancelled if Slurm cannot requeue them. Under EKS, pods that still run end with the node
    at the end of the time. The backup begins after four fifths of it, even if pods still run, and what pods write after
    that is lost."""
    on_silent: Literal["fail", "undrained"] | None = None
    """What happens if the agent, or under EKS the function, does not answer for three minutes. fail: the deployment
    fails, and its message says what to do. undrained: nodes are deleted without a drain, and their jobs or pods end.
    Absent: fail. Required for a Slurm cluster of another app."""
    backup_cron_job: CronJobName | None = None
    """EKS only: NAMESPACE/NAME of a suspended CronJob of yours, such as hyperpod-backup/save-node. The library creates
    the namespace hyperpod-backup, and no team has permissions there. A Job of it runs on each node after the pods have
    left. If it succeeds, the node is ready. If it fails, the node stays. Absent: nothing is saved. Under Slurm, set
    `slurm.drain.backup` instead."""
    unmanaged_pods: Literal["fail", "evict"] = "fail"
    """EKS only: pods without a controller, which nothing creates again. fail: a deployment fails before it evicts any
    pod if such a pod runs on a node that it would delete, also under on_timeout: force. evict: they are evicted like
    other pods. Finished pods, and those of DaemonSets and static manifests, do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownConfig:
    """What a deployment may delete. Absent: no node or group is deleted by name."""

    nodes_to_delete: Annotated[
        Sequence[NodeId],
        Change(
            effect="in place",
            deletion=Deletion(when=has_new_names, condition="if you add ids", says="exactly these nodes are deleted"),
        ),
    ] = ()
    """Instance ids: exactly these nodes are deleted. Ids of deleted nodes may stay in the list, up to a few thousand."""
    instance_groups_to_delete: Annotated[
        Sequence[GroupName],
        Change(
            effect="in place",
            deletion=Deletion(
                when=has_new_names,
                condition="if you add names",
                says="these groups are deleted with all their nodes",
            ),
        ),
    ] = ()
    """Groups to delete with all their nodes. The name of a deleted group may stay here."""
    max_nodes: Annotated[int, Range(0, MAX_NODES), IN_PLACE] = 16
    """One deployment never deletes more nodes than this."""
    drain: Annotated[ScaleDownDrain | None, _DRAINED] = None
    """Drain nodes and save their data before they are deleted. Absent: nodes are deleted without a drain, and their
    jobs or pods end."""
    retry: Annotated[
        str | None,
        Pattern(r"[^\r\n]{1,256}", "1 to 256 characters in one line"),
        in_place("what should have been deleted is deleted"),
    ] = None
    """Any text, such as a date. If you change it, the next deployment continues to delete a group that should be
    deleted and still exists (the stack's output StillStanding names it). Without a change, the same file changes
    nothing. Running nodes: only those that should have been deleted are deleted."""

    def __post_init__(self) -> None:
        """Make tuples of other sequences, since the value is frozen."""
        for name in ("nodes_to_delete", "instance_groups_to_delete"):
            object.__setattr__(self, name, as_tuple(getattr(self, name)))
