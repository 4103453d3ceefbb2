"""The part of the typed model that says how teams' jobs are queued: task governance. EKS only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..typed.bounds import Pattern, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClass:
    """How urgent a kind of work is: jobs name it by the label kueue.x-k8s.io/priority-class, with -priority behind it, such
    as training-priority (awsome-distributed-training, task-governance). Orders whole jobs, where a PriorityClass orders
    pods."""

    name: Annotated[
        str,
        Pattern(
            r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?",
            "1 to 40 lower-case letters, digits and hyphens, no hyphen at either end",
            length=40,
        ),
    ]
    """The name, such as training."""
    weight: Annotated[int, Range(0, 100)]
    """100 goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGovernance:
    """How the teams' jobs are queued. One for a cluster; a change acts on what is queued from then on."""

    priority_classes: tuple[TaskClass, ...] = ()
    """At most 10. Absent: jobs go in the order in which they came."""
    fair_share: bool = True
    """True: idle nodes go to the teams by their `fair_share_weight`. False: first come, first served."""
    idle_resource_sharing: bool = False
    """True: nodes that are in no team's share may be borrowed too, up to each team's ceiling."""
