"""One poll of one request: what it knows, what its phases share, and how it ends: done, again, or failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from ...kernel.images import Spec
from ...kernel.text import one_line
from .. import messages
from ..aws.clients import Services
from ..drain.readiness import ROLLBACK_WAIT
from ..model.actions import Pick, Plan, Wait
from ..model.cluster import Cluster, Desired, RequestContext
from ..model.properties import MalformedError, read_properties
from .request import Event, State


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do for this request."""

    text: str
    """What a template may read of the resource (properties.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Another poll is needed. At the deadline, deadline.py decides what follows."""

    waits: tuple[Wait, ...]
    live: Cluster | None = None
    """The cluster as this poll read it. None: it could not be read, or does not matter."""
    left: tuple[Pick, ...] = ()
    """Nodes that are still to be deleted."""
    accepted: frozenset[str] = frozenset()
    """Names of nodes whose deletion HyperPod accepted after `live` was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The deployment must not go on."""

    reason: str
    """CloudFormation shows it."""
    accepted: frozenset[str] = frozenset()
    """Names of nodes whose deletion HyperPod accepted in this poll."""


Result = Done | Again | Failed


class ScaleDownError(Exception):
    """A refusal or failure. Its text is the reason that CloudFormation shows."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


PATIENCE = timedelta(minutes=30)
"""Maximum wait, from the request's beginning, for CurrentCount or TargetCount to drop after nodes were deleted. Longer than a
termination takes, short enough that a group with boot loops does not keep the deployment. AWS does not report when a node was
deleted, so the wait begins with the request."""

MOST_PATIENCE = timedelta(minutes=45)
"""The same if nodes are drained first, and so deleted later. The time until the deadline is for lowering a target."""

SHORT_PATIENCE = timedelta(minutes=5)
"""The same if there was nothing to delete: only another actor can have deleted nodes just before."""

_MOST_READS = 5
"""Of a cluster whose lists differ. After that the last one counts, because every poll reads again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What one poll knows. on_event's first look is a poll, too."""

    event: Event
    desired: Desired
    previous: Desired | None
    """The properties before. None: a first deployment; or the properties of a failed update or of an earlier version of this
    resource are invalid."""
    state: State
    services: Services

    @property
    def rolling_back(self) -> bool:
        return self.state.rolling_back

    @property
    def age(self) -> timedelta:
        """Time since the request began."""
        return self.services.now() - self.state.began

    def read_cluster(self, *, tags: bool) -> Cluster | None:
        """The live cluster. None: it does not exist. Raises api.CALL_ERRORS."""
        return self.services.read_cluster(self.desired.cluster, tags=tags)

    def read_cluster_patiently(self, *, tags: bool) -> Cluster | None:
        """The same, repeated for clients.READ_PATIENCE."""
        return self.services.read_patiently(lambda: self.read_cluster(tags=tags), began=self.state.began)

    def context(self, *, first: bool) -> RequestContext:
        """What the planner knows of the request, besides the cluster. `first`: this is the first look."""
        state = self.state
        drained_within = self._drained_within()
        patience = min(PATIENCE + drained_within, MOST_PATIENCE)
        return RequestContext(
            first=first,
            began=state.began,
            previous=self.previous,
            deployed=self._deployed(),
            renamed_from=_renamed_from(self.event, self.desired),
            deployed_ids=frozenset(self.previous.nodes_to_delete if self.previous else ()),
            chosen=frozenset(pick.name for pick in state.picked),
            chosen_unlaunched={pick.name: pick.group for pick in state.picked if not pick.launched_before},
            unlaunched=None if first and state.looked is None else state.unlaunched,
            newest=state.newest,
            drained_within=drained_within,
            doubting=self.age < self._patience_for_counts(patience),
            young=self._deletes_nodes and self.age < patience,
            unconfirmed=state.unconfirmed,
            rolling_back=state.rolling_back,
            updated=state.updated,
            reached=state.reached,
        )

    def _deployed(self) -> tuple[Spec, ...] | None:
        """What CloudFormation sent for the groups before. None: unknown, after an invalid update."""
        if self.previous is None:
            return None if self.rolling_back else ()
        return tuple(group.spec for group in self.previous.groups)

    @property
    def _deletes_nodes(self) -> bool:
        """Whether nodes were to be deleted, or may still be terminating."""
        return self.state.settling or bool(self.state.record.requested)

    def _patience_for_counts(self, patience: timedelta) -> timedelta:
        may_delete = self._deletes_nodes or self.state.first_look_failed
        return patience if may_delete else SHORT_PATIENCE

    def _drained_within(self) -> timedelta:
        """The most that draining may delay a deletion."""
        drain = self.desired.drain
        if self.rolling_back:
            drain = drain or (self.previous.drain if self.previous else None)
            return ROLLBACK_WAIT if drain else timedelta(0)
        return timedelta(minutes=drain.minutes) if drain else timedelta(0)


def open_poll(event: Event, state: State, services: Services) -> Poll:
    """Raises MalformedError."""
    return Poll(
        event=event,
        desired=read_properties(event.properties, kind=event.kind, owner=event.stack),
        previous=previous_properties(event),
        state=state,
        services=services,
    )


def previous_properties(event: Event) -> Desired | None:
    """None: there were none, or they are invalid."""
    try:
        return read_properties(event.old_properties, kind=event.kind, owner=event.stack)
    except MalformedError:
        return None


def _renamed_from(event: Event, desired: Desired) -> str | None:
    old = event.old_properties
    name = old.get("ClusterName") if isinstance(old, Mapping) else None
    return name if isinstance(name, str) and name != desired.cluster else None


def read_until_agreed(
    live: Cluster | None, is_enough: Callable[[Cluster], bool], read: Callable[[], Cluster | None]
) -> Cluster | None:
    """The cluster, read again until two reads in a row list the same nodes, or one of them is enough: pages of a list may leave
    nodes out. None: it does not exist."""
    for _ in range(_MOST_READS - 1):
        if live is None or is_enough(live):
            return live
        before, live = live, read()
        if live is not None and live.staying == before.staying:
            return live
    return live


def partly_deleted_groups(state: State, live: Cluster) -> frozenset[str]:
    """Groups some of whose picked nodes are no longer in the list."""
    here = live.staying
    return frozenset(pick.group for pick in state.picked if pick.name not in here)


def log_plan(services: Services, plan: Plan) -> None:
    """One line for each action, and for each note."""
    for action in plan.actions:
        services.log(messages.notes.line(action))
    log_notes(services, plan.notes)


def log_notes(services: Services, notes: tuple[str, ...]) -> None:
    """One line for each note."""
    for note in notes:
        services.log(f"note: {note}")


def with_state(poll: Poll, state: State) -> Poll:
    """The same poll with another state."""
    return replace(poll, state=state)
