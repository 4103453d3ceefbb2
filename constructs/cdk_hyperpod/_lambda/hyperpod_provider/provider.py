"""Both resources behind the Lambda's two entry points, on clients that are handed in.

on_event looks once and refuses at once; is_complete reads, plans and makes at most one kind of change at each poll. What
on_event returns is the only state (wire.State). Nothing of an event is logged: it holds a ResponseURL.

What the first call to AWS does not need is imported where it is used: every deployment pays for a cold start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from . import api, wire
from .model import MOVING, Cluster, Desired, Occasion
from .wire import FINALIZE, PREPARE, Event, MalformedError, State

if TYPE_CHECKING:
    from .actions import Plan

DEADLINE = timedelta(minutes=55)
"""CloudFormation gives a custom resource 3,600 s and then says "timed out"; this resource ends before, with a reason."""

PATIENCE = timedelta(minutes=30)
"""How long a count that may stand for nodes on their way out is waited for where nodes were to be taken: longer than it takes
them to go, and shorter than a group whose nodes fail to boot again and again would keep the deployment."""

SHORT_PATIENCE = timedelta(minutes=5)
"""The same where there was nothing to take: only somebody else can have ended nodes just before."""

PHYSICAL_IDS = {PREPARE: "hyperpod-scale-down", FINALIZE: "hyperpod-group-removal"}

Answer = dict[str, Any]
UNFINISHED: Answer = {"IsComplete": False}
COMPLETE: Answer = {"IsComplete": True}


class ScaleDownError(Exception):
    """A refusal or failure; its text is the reason that CloudFormation shows."""


class Provider:
    """Both resources, on clients that are handed in."""

    def __init__(
        self,
        sagemaker: Callable[[], api.SageMaker],
        cloudformation: Callable[[], api.CloudFormation],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        log: Callable[[str], None] = print,
    ) -> None:
        """Clients are asked for when they are needed: most polls need no CloudFormation."""
        self._sagemaker = sagemaker
        self._cloudformation = cloudformation
        self._now = now
        self._log = log

    # -- what the framework calls --

    def on_event(self, event: Mapping[str, Any]) -> Answer:
        """The first look. Raises ScaleDownError where the deployment must not go on; changes nothing."""
        found = _read(wire.read_event, event)
        state = State(began=self._now(), rolling_back=False, updated=None, pending=False)
        if found.request != "Delete":
            state = self._look(found, state)
        return {"PhysicalResourceId": found.physical_id or PHYSICAL_IDS[found.kind], **state.write()}

    def is_complete(self, event: Mapping[str, Any]) -> Answer:
        """One poll. Raises ScaleDownError when it is refused, when AWS refuses for good, or when time is up."""
        found = _read(wire.read_event, event)
        if found.request == "Delete":
            return COMPLETE
        state = wire.read_state(event)
        if state.pending is False:
            return COMPLETE
        if state.rolling_back is None:
            try:
                state = self._with_stack(found, state)
            except api.CALL_ERRORS as error:
                return self._failed_read(error, "Reading the stack's status", found, state)
        desired = self._desired(found, state)
        if desired is None:
            return COMPLETE
        return (self._prepare if found.kind == PREPARE else self._finalize)(found, desired, state)

    # -- looking --

    def _look(self, event: Event, state: State) -> State:
        from .planner import plan
        from .removal import plan_removal

        if event.request == "Update":
            try:
                state = self._with_stack(event, state)
            except api.CALL_ERRORS as error:
                self._log(f"cannot read the stack's status yet: {api.reason(error)}")
                return replace(state, rolling_back=None, pending=None)
        desired = self._desired(event, state)
        if desired is None:
            return state
        occasion = self._occasion(event, desired, state, first=True)
        if event.kind == FINALIZE and not _may_remove(desired, occasion):
            return state
        if occasion.renamed_from is not None and event.kind == PREPARE and not state.rolling_back:
            self._refuse(plan(None, desired, occasion), desired, first=True)
        try:
            live = self._live(event, desired, tags=True)
        except api.CALL_ERRORS as error:
            self._log(f"cannot look yet: {api.reason(error)}")
            return replace(state, pending=None)
        if event.kind == FINALIZE:
            return replace(state, pending=not plan_removal(live, desired, occasion).done)
        found = plan(live, desired, occasion)
        self._tell(found)
        self._refuse(found, desired, first=True)
        return replace(
            state, pending=not found.done or bool(found.deletions), planned=len(found.taken) + len(found.held)
        )

    def _with_stack(self, event: Event, state: State) -> State:
        """Whether the stack is rolling back, since when it is being updated, and what the failed update got to."""
        stack = self._cloudformation().describe_stacks(StackName=event.stack)["Stacks"][0]
        rolling_back = "ROLLBACK" in stack["StackStatus"]
        # CloudFormation calls finalize in a rollback only after an update that got past the cluster.
        reached = self._reached(event, state) if rolling_back and event.kind == PREPARE else None
        return replace(state, rolling_back=rolling_back, updated=stack.get("LastUpdatedTime"), reached=reached)

    def _reached(self, event: Event, state: State) -> frozenset[str] | None:
        """Absent: it may not be read, e.g. with the role of an earlier version; a rollback goes on regardless."""
        from .history import clusters_reached

        try:
            return clusters_reached(api.read_events(self._cloudformation(), event.stack), event.stack)
        except api.CALL_ERRORS as error:
            if api.is_passing(error, now=self._now(), began=state.began):
                raise
            self._log(f"cannot read how far the failed update got: {api.reason(error)}")
            return None

    def _occasion(self, event: Event, desired: Desired, state: State, *, first: bool) -> Occasion:
        old = event.old_properties if event.request == "Update" else None
        name = old.get("ClusterName") if isinstance(old, Mapping) else None
        previous: Desired | None = None
        if old is not None:
            try:
                previous = wire.read_properties(old, kind=event.kind, owner=event.stack)
            except MalformedError:
                # Of a failed update, or of an earlier version of this resource: either way nothing to compare with.
                previous = None
        patience = PATIENCE if state.planned or state.pending is None else SHORT_PATIENCE
        return Occasion(
            first=first,
            began=state.began,
            previous=previous,
            renamed_from=name if isinstance(name, str) and name != desired.cluster else None,
            doubting=self._now() - state.began < patience,
            rolling_back=bool(state.rolling_back),
            updated=state.updated,
            reached=state.reached,
        )

    def _live(self, event: Event, desired: Desired, *, tags: bool) -> Cluster | None:
        # finalize decides by groups; only a rollback has to know how old their nodes are.
        nodes = event.kind == PREPARE or event.request == "Update"
        return api.read_live(self._sagemaker(), desired.cluster, nodes=nodes, tags=tags)

    def _desired(self, event: Event, state: State) -> Desired | None:
        """Absent: malformed in a rollback, which goes on regardless."""
        from . import messages

        try:
            return wire.read_properties(event.properties, kind=event.kind, owner=event.stack)
        except MalformedError as error:
            self._log(f"malformed: {error}")
            if state.rolling_back:
                return None
            raise ScaleDownError(messages.malformed(event.kind, error.problems)) from None

    # -- prepare --

    def _prepare(self, event: Event, desired: Desired, state: State) -> Answer:
        from .executor import Moment, execute
        from .planner import plan

        unchecked = state.pending is None
        try:
            live = self._live(event, desired, tags=unchecked)
        except api.CALL_ERRORS as error:
            return self._failed_read(error, "Reading the cluster", event, state)
        occasion = self._occasion(event, desired, state, first=unchecked)
        found = plan(live, desired, occasion)
        self._tell(found)
        self._refuse(found, desired, first=unchecked)
        if live is None:
            return COMPLETE
        if found.done:
            if waits := self._not_yet(found, live, unchecked=unchecked):
                return self._unfinished(event, state, waits)
            return COMPLETE
        moment = Moment(now=self._now(), began=state.began)
        outcome = execute(found, live, desired, self._sagemaker(), moment)
        for wait in outcome.waits:
            self._log(f"not yet: {wait}")
        if outcome.error is not None:
            self._log(f"{outcome.call} refused: {api.reason(outcome.error)}")
            # Nothing but time can help a rollback, and failing it is worse than waiting.
            if not state.rolling_back:
                raise ScaleDownError(_failure(desired.cluster, outcome.call, outcome.error))
        going = (*found.taken, *found.held)
        left = [pick.node.name for pick in going if pick.node.name not in outcome.accepted]
        return self._unfinished(event, state, [*outcome.waits, *(wait.why for wait in found.waits)], left)

    def _not_yet(self, found: Plan, live: Cluster, *, unchecked: bool) -> list[str]:
        """What keeps a plan without anything left to do from being complete."""
        from . import messages
        from .ready import ready_to_go

        doomed = {deletion.group for deletion in found.deletions}
        going = [node for node in live.nodes if node.group in doomed]
        if len(ready_to_go(going)) < len(going):
            return ["nodes of a group to delete are not ready to go"]
        # After nodes were taken the cluster must accept its own update; where nothing was, nothing is waited for.
        return [messages.not_accepting(live.status).why] if not unchecked and live.status in MOVING else []

    def _failed_read(self, error: Exception, call: str, event: Event, state: State) -> Answer:
        if state.rolling_back or api.is_passing(error, now=self._now(), began=state.began):
            return self._unfinished(event, state, [api.reason(error)])
        raise ScaleDownError(_failure(event.cluster, call, error)) from None

    def _unfinished(self, event: Event, state: State, waits: list[str], left: Sequence[str] = ()) -> Answer:
        """Another poll, or the end of the time there is."""
        from . import messages

        if self._now() - state.began < DEADLINE:
            return UNFINISHED
        if event.kind == FINALIZE:
            # Its failure would launch again what was just taken.
            self._log(f"time is up, groups are left to the next deployment: {messages.some(waits)}")
            return COMPLETE
        minutes = int(DEADLINE.total_seconds() // 60)
        # Without a first look, nobody counted what there was to take.
        planned = max(state.planned, len(left)) if state.pending else None
        text = messages.out_of_time(event.cluster, minutes, planned, left, waits, back=bool(state.rolling_back))
        raise ScaleDownError(text)

    # -- finalize --

    def _finalize(self, event: Event, desired: Desired, state: State) -> Answer:
        from . import messages
        from .executor import Moment, delete_groups
        from .removal import plan_removal

        occasion = self._occasion(event, desired, state, first=False)
        try:
            live = self._live(event, desired, tags=state.pending is None)
        except api.CALL_ERRORS as error:
            return self._failed_read(error, "Reading the cluster", event, state)
        removal = plan_removal(live, desired, occasion)
        for note in removal.notes:
            self._log(f"note: {note}")
        if live is None or removal.done:
            return COMPLETE
        if removal.wait is not None:
            return self._unfinished(event, state, [removal.wait.why])
        self._log(f"delete groups: {', '.join(removal.groups)}")
        moment = Moment(now=self._now(), began=state.began)
        outcome = delete_groups(removal.groups, live, desired, self._sagemaker(), moment)
        if outcome.error is not None and not state.rolling_back:
            raise ScaleDownError(messages.removal_failed(desired.cluster, removal.groups, api.reason(outcome.error)))
        if outcome.waits:
            self._log(f"not yet: {messages.some(outcome.waits)}")
            return self._unfinished(event, state, list(outcome.waits))
        return COMPLETE

    # -- words --

    def _tell(self, found: Plan) -> None:
        """The plan in the log, one line for each action."""
        from . import messages

        for action in found.actions:
            self._log(messages.line(action))
        for note in found.notes:
            self._log(f"note: {note}")

    def _refuse(self, found: Plan, desired: Desired, *, first: bool) -> None:
        from . import messages

        if found.refusals:
            raise ScaleDownError(messages.refused(desired.cluster, found.refusals, first=first))


def _read(read: Callable[[Mapping[str, Any]], Event], event: Mapping[str, Any]) -> Event:
    from . import messages

    try:
        return read(event)
    except MalformedError as error:
        raise ScaleDownError(messages.malformed("this resource", error.problems)) from None


def _may_remove(desired: Desired, occasion: Occasion) -> bool:
    """Whether finalize has anything to look for."""
    if desired.groups_to_delete:
        return True
    old = {group.name for group in occasion.previous.groups} if occasion.previous else set()
    return bool(old - {group.name for group in desired.groups})


def _failure(cluster: str, call: str, error: Exception) -> str:
    from . import messages

    if api.needs_software_update(error):
        return messages.needs_software_update(cluster)
    hint = messages.DENIED_HINT if api.is_denied(error) else ""
    return messages.failed(cluster, call, api.reason(error), hint)
