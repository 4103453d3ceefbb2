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

READING_STATUS = "Reading the stack's status"

PHYSICAL_IDS = {PREPARE: "hyperpod-scale-down", FINALIZE: "hyperpod-group-removal"}

Answer = dict[str, Any]
UNFINISHED: Answer = {"IsComplete": False}
COMPLETE: Answer = {"IsComplete": True}
ATTRIBUTES = {PREPARE: {"NodesTaken": "nothing"}, FINALIZE: {"StillStanding": "nothing"}}


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
        found = _read(event)
        state = State(began=self._now(), rolling_back=False, updated=None, pending=False)
        if found.request != "Delete":
            state = self._look(found, state)
        return {
            "PhysicalResourceId": found.physical_id or PHYSICAL_IDS[found.kind],
            "Data": ATTRIBUTES[found.kind],
            **state.write(),
        }

    def is_complete(self, event: Mapping[str, Any]) -> Answer:
        """One poll. Raises ScaleDownError when it is refused, when AWS refuses for good, or when time is up."""
        found = _read(event)
        if found.request == "Delete":
            return COMPLETE
        state = wire.read_state(event)
        if state.pending is False:
            return COMPLETE
        if state.rolling_back is None:
            try:
                known = self._with_status(found, state)
            except api.CALL_ERRORS as error:
                if not self._passing(error, state) and self._idle(found, state):
                    return COMPLETE
                return self._failed_read(error, READING_STATUS, found, state)
            if answer := self._given_up(found, state):
                return answer
            state = known
        if state.pending is None:
            try:
                state = self._with_reached(found, state)
            except api.CALL_ERRORS as error:
                return self._failed_read(error, "Reading the stack's events", found, state)
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
                state = self._with_status(event, state)
            except api.CALL_ERRORS as error:
                self._log(f"cannot read the stack's status yet: {api.reason(error)}")
                return replace(state, rolling_back=None, pending=None)
            try:
                state = self._with_reached(event, state)
            except api.CALL_ERRORS as error:
                self._log(f"cannot read the stack's events yet: {api.reason(error)}")
                return replace(state, pending=None)
        desired = self._desired(event, state)
        if desired is None:
            return state
        occasion = self._occasion(event, desired, state, first=True)
        if event.kind == FINALIZE and not _may_remove(desired, occasion):
            return state
        if occasion.renamed_from is not None and event.kind == PREPARE:
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

    def _with_status(self, event: Event, state: State) -> State:
        """Whether the stack is rolling back, and since when it is being updated."""
        stack = self._stack(event)
        return replace(state, rolling_back="ROLLBACK" in stack["StackStatus"], updated=stack.get("LastUpdatedTime"))

    def _with_reached(self, event: Event, state: State) -> State:
        """In a rollback: what the failed update got to."""
        # CloudFormation calls finalize in a rollback only after an update that got past the cluster.
        if not state.rolling_back or event.kind != PREPARE:
            return state
        from .history import clusters_reached

        try:
            events = api.read_events(self._cloudformation(), event.stack)
            return replace(state, reached=clusters_reached(events, event.stack))
        except api.CALL_ERRORS as error:
            if self._passing(error, state):
                raise
            # E.g. with the role of an earlier version; a rollback goes on regardless.
            self._log(f"cannot read how far the failed update got: {api.reason(error)}")
            return state

    def _stack(self, event: Event) -> Mapping[str, Any]:
        stack: Mapping[str, Any] = self._cloudformation().describe_stacks(StackName=event.stack)["Stacks"][0]
        return stack

    def _given_up(self, event: Event, state: State) -> Answer | None:
        """The answer where CloudFormation no longer waits for one, so that a change would be nobody's wish any more. When an
        update is cancelled, or another of its resources fails, it goes on without this one; and nobody stops the polls.

        It is a wait: nobody reads it, and should the stack's status ever mislead, a deployment that fails for time costs no
        node, where one that goes on with the nodes still there costs random ones.
        """
        from . import messages

        try:
            if not self._is_over(event, state):
                return None
        except api.CALL_ERRORS as error:
            return self._failed_read(error, READING_STATUS, event, state)
        self._log(f"not yet: {messages.OVER}")
        return self._unfinished(event, state, [messages.OVER])

    def _is_over(self, event: Event, state: State) -> bool:
        """Whether the stack does something else by now than what this request is part of."""
        stack = self._stack(event)
        status, updated = stack["StackStatus"], stack.get("LastUpdatedTime")
        # A later update begins after this request did. By the clock of the function, unless the first look knew better.
        later = updated is not None and updated > max(state.began, state.updated or state.began)
        if later or not status.endswith("_IN_PROGRESS"):
            return True
        rolling_back = "ROLLBACK" in status
        if state.rolling_back is not None or not rolling_back:
            return rolling_back != bool(state.rolling_back)
        # The first look could not tell: this request belongs to the rollback if it is younger.
        from .history import rollback_began

        began = rollback_began(api.read_events(self._cloudformation(), event.stack), event.stack)
        return began is None or began >= state.began

    def _idle(self, event: Event, state: State) -> bool:
        """Whether there is nothing to do, be it in an update or in a rollback."""
        from .planner import plan
        from .removal import plan_removal

        desired = self._desired(event, state)
        if desired is None:
            return False
        try:
            live = self._live(event, desired, tags=True)
        except api.CALL_ERRORS:
            return False
        either = [
            self._occasion(event, desired, replace(state, rolling_back=rolling_back), first=True)
            for rolling_back in (False, True)
        ]
        look = plan if event.kind == PREPARE else plan_removal
        return all(look(live, desired, occasion).done for occasion in either)

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
        self._refuse(found, desired, first=False)
        if live is None:
            return COMPLETE
        if found.done:
            if waits := self._not_yet(found, live, unchecked=unchecked):
                return self._unfinished(event, state, waits)
            return COMPLETE
        if answer := self._given_up(event, state):
            return answer
        moment = Moment(now=self._now(), began=state.began)
        outcome = execute(found, live, desired, self._sagemaker(), moment)
        for wait in outcome.waits:
            self._log(f"not yet: {wait}")
        refusal: list[str] = []
        if outcome.error is not None:
            self._log(f"{outcome.call} refused: {api.reason(outcome.error)}")
            # Nothing but time can help a rollback, and failing it is worse than waiting.
            if not state.rolling_back:
                raise ScaleDownError(_failure(desired.cluster, outcome.call, outcome.error))
            refusal = _refusal(desired.cluster, outcome.call, outcome.error)
        going = (*found.taken, *found.held)
        left = [pick.node.name for pick in going if pick.node.name not in outcome.accepted]
        waits = [*refusal, *outcome.waits, *(wait.why for wait in found.waits)]
        return self._unfinished(event, state, waits, left)

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
        from . import messages

        if state.rolling_back or self._passing(error, state):
            return self._unfinished(event, state, [api.reason(error)])
        raise ScaleDownError(messages.failed(event.cluster, _told(call, error, messages.DENIED_HINT))) from None

    def _passing(self, error: Exception, state: State) -> bool:
        return api.is_passing(error, now=self._now(), began=state.began)

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
        if answer := self._given_up(event, state):
            return answer
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


def _read(event: Mapping[str, Any]) -> Event:
    from . import messages

    try:
        return wire.read_event(event)
    except MalformedError as error:
        raise ScaleDownError(messages.malformed("this resource", error.problems)) from None


def _may_remove(desired: Desired, occasion: Occasion) -> bool:
    """Whether finalize has anything to look for."""
    if desired.groups_to_delete:
        return True
    old = {group.name for group in occasion.previous.groups} if occasion.previous else set()
    return bool(old - {group.name for group in desired.groups})


def _failure(cluster: str, call: str, error: Exception) -> str:
    """The end of a deployment, and not of a rollback."""
    from . import messages

    if api.needs_software_update(error):
        return messages.needs_software_update(cluster)
    return messages.failed(cluster, _told(call, error, messages.FIRST_HINT))


def _refusal(cluster: str, call: str, error: Exception) -> list[str]:
    """Why a rollback does not get on."""
    from . import messages

    if api.needs_software_update(error):
        return [messages.software_update(cluster, "continue the rollback")]
    return _told(call, error, messages.DENIED_HINT)


def _told(call: str, error: Exception, hint: str) -> list[str]:
    """What AWS said, and what to do about a missing permission."""
    said = f"{call}: {api.reason(error)}"
    return [said, hint] if api.is_denied(error) else [said]
