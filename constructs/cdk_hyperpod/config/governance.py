"""The part of the typed model about queues of teams' jobs: task governance. EKS only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..typed.bounds import Pattern, Range
from .effects import in_place

_LATER = in_place("applies to jobs that are queued later")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClass:
    """The priority of a kind of work. Jobs name it by the label kueue.x-k8s.io/priority-class, with the suffix
    -priority, such as training-priority (awsome-distributed-training, task-governance). It orders whole jobs, whereas a
    PriorityClass orders pods."""

    _change = _LATER
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
    """The class with the highest weight is first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGovernance:
    """How the teams' jobs are queued. One for a cluster. A change applies to jobs that are queued later."""

    priority_classes: Annotated[tuple[TaskClass, ...], _LATER] = ()
    """At most 10. Absent: jobs run in the order of their submission."""
    fair_share: Annotated[bool, _LATER] = True
    """True: idle nodes are shared between teams by their `fair_share_weight`. False: first come, first served."""
    idle_resource_sharing: Annotated[bool, _LATER] = False
    """True: teams may also borrow nodes that are in no team's share, up to each team's ceiling."""
