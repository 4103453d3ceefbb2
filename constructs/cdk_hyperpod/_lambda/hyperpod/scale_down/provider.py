"""Both resources behind the Lambda's two entry points, on clients that are handed in.

on_event looks, for as long as it takes to see, and refuses at once; is_complete reads, plans, has what goes drained first
where the file says so, and makes at most one kind of change at each poll. What on_event returns is the only state
(poll_state.State). Nothing of an event is logged: it holds a ResponseURL.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import tee
from types import MappingProxyType
from typing import Any, TypeVar

from ..common import api, sentences
from ..common.text import one_line
from . import clients, messages
from .actions import Pick, Plan, Wait
from .cluster import MOVING, Cluster, Desired, DrainSettings, Node, Occasion
from .cluster_operations import PATIENCE as PATIENCE_FOR_OPERATIONS
from .cluster_operations import lowered_by_another, read_operations
from .deletion_record import POLL, Ledger, Rollback
from .drain.channels import BucketChannel, Channel, FunctionChannel
from .drain.ready import BACK, DEADLINE, JOINING, SILENT, Ask, going, judge, judge_first
from .drain.requester import KEPT, LEASE, TAKEN, DrainRequester, Hearing
from .event import Event, read_event
from .executor import Moment, delete_groups, execute
from .group_deletion import deleting, plan_group_deletion, standing
from .planner import plan
from .poll_state import State, read_state, with_plan
from .properties import FINALIZE, PREPARE, MalformedError, read_properties
from .stack_events import clusters_reached, is_left_over

LOOKING = timedelta(minutes=2)
"""How long on_event tries to see, be it that AWS throttles or that a permission is on its way; its function has ten minutes."""

LATE = timedelta(seconds=65)
"""How old may be what CloudFormation tells of a stack, its status and its events."""

PATIENCE = timedelta(minutes=30)
"""How long a count that may stand for nodes on their way out is waited for where there were such nodes, or nodes to take, and
for a target to fall with them by itself: longer than it takes them to go, and shorter than a group whose nodes fail to boot
again and again would keep the deployment. By the request's beginning, since nothing tells when a node was taken."""

MOST_PATIENCE = timedelta(minutes=45)
"""The same where nodes are drained first, and so taken later, by as long as they may be waited for. What is left until the
deadline is for a target to be lowered."""

SHORT_PATIENCE = timedelta(minutes=5)
"""The same where there was nothing to take: only somebody else can have ended nodes just before."""

GIVING_BACK = timedelta(seconds=45)
"""How long a drainer is asked to give nodes back: after that nobody does, until prepare is called again."""

STALE = timedelta(seconds=10)
"""How long after a look others are taken to have done nothing meanwhile."""

PHYSICAL_IDS = {PREPARE: "hyperpod-scale-down", FINALIZE: "hyperpod-group-removal"}
ATTRIBUTES = {PREPARE: "NodesTaken", FINALIZE: "StillStanding"}
"""What a template may read of each resource (Fn::GetAtt); properties.py tells."""

Answer = dict[str, Any]
UNFINISHED: Answer = {"IsComplete": False}
_Seen = TypeVar("_Seen")


class ScaleDownError(Exception):
    """A refusal or failure; its text is the reason that CloudFormation shows."""

    def __init__(self, text: str, *, accepted: frozenset[str] = frozenset()) -> None:
        """`accepted`: names of nodes whose deletion the service has accepted just now."""
        super().__init__(one_line(text))
        self.accepted = accepted


class Provider:
    """Both resources, on clients that are handed in."""

    def __init__(
        self,
        sagemaker: Callable[[], clients.Client],
        cloudformation: Callable[[], clients.CloudFormation],
        *,
        s3: Callable[[], clients.S3],
        functions: Callable[[], clients.Lambda],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
        log: Callable[[str], None] = print,
    ) -> None:
        """Clients are asked for when they are needed: most polls need no CloudFormation, and S3 and Lambda (`functions`) are for
        draining alone. `sleep` takes seconds."""
        self._sagemaker = sagemaker
        self._cloudformation = cloudformation
        self._s3 = s3
        self._functions = functions
        self._now = now
        self._sleep = sleep
        self._log: Callable[[str], None] = lambda text: log(one_line(text))
        self._ledger = Ledger()

    # -- what the framework calls --

    def on_event(self, event: Mapping[str, Any]) -> Answer:
        """The first look. Raises ScaleDownError where the deployment must not go on; changes nothing."""
        found = _read(event)
        state = State(began=self._now())
        if found.request != "Delete":
            state = self._look(found, state)
        state = replace(state, looked=self._now())
        return {"PhysicalResourceId": found.physical_id or PHYSICAL_IDS[found.kind], **state.write()}

    def is_complete(self, event: Mapping[str, Any]) -> Answer:
        """One poll. Raises ScaleDownError when it is refused, when AWS rejects a call for good, or when time is up."""
        found = _read(event)
        if found.request == "Delete":
            return _nothing(found)
        state = read_state(event)
        request = (found.kind, found.stack, state.began)
        record = self._ledger.at_poll(request, looked=state.looked or state.began, now=self._now())
        state = replace(state, record=record)
        if state.pending is False:
            after = self._release(found, state)
            if not isinstance(after, State):
                return after
            state = after
        try:
            return self._poll(found, state)
        except ScaleDownError as error:
            why = self._give_back(found, state, error.accepted)
            text = messages.with_asked(str(error), record.asked)
            raise ScaleDownError(messages.still_held(text, why) if why else text) from None
        finally:
            record.due = self._now() + POLL

    def _poll(self, event: Event, state: State) -> Answer:
        try:
            desired = self._desired(event, state)
            if desired is None:
                return _nothing(event)
            if state.rolling_back and state.pending is None and state.reached is None:
                state = self._with_reached(event, state)
            return (self._prepare if event.kind == PREPARE else self._finalize)(event, desired, state)
        except ScaleDownError:
            raise
        except Exception as error:  # noqa: BLE001 - CDK's framework never polls again once the function has failed
            return self._failed(error, event, state)

    # -- looking --

    def _look(self, event: Event, state: State) -> State:
        """Whether the stack rolls back, how far the failed update got, and what there is to do.

        What CloudFormation tells may be of a moment before this request. So where there is something to do, the decision is made by
        what it tells LATE.
        """
        if event.kind == FINALIZE and not self._may_delete_groups(event):
            return state
        seen = self._with_status(event, state)
        early = self._early(event, seen)
        if early.pending is False and early.looked:
            return early
        self._sleep(max(0.0, (state.began + LATE - self._now()).total_seconds()))
        # What HyperPod launches meanwhile is no older than the request.
        state = replace(state, looked=early.looked, newest=early.newest, unlaunched=early.unlaunched)
        state = self._with_status(event, state)
        try:
            if state.rolling_back:
                state = self._with_reached(event, state)
            return self._with_plan(event, state)
        except ScaleDownError:
            raise
        except Exception as error:  # noqa: BLE001 - as in is_complete
            if event.kind == PREPARE and not state.rolling_back:
                raise ScaleDownError(messages.failed(event.cluster, _unread(error))) from None
            # The polls will see. A rollback must not end here, and finalize's failure would launch again what was just taken.
            self._log(f"cannot look yet: {api.reason(error)}")
            return replace(state, pending=None)

    def _early(self, event: Event, state: State) -> State:
        """The state after one look at once, which finds whether there is anything to do or to refuse. As it was, if nobody could
        look."""
        try:
            desired = self._desired(event, state)
            if desired is None or state.rolling_back:
                return state
            occasion = self._occasion(event, desired, state, first=True)
            if occasion.renamed_from is not None:
                return state
            live = self._live(desired, tags=True)
        except Exception:  # noqa: BLE001 - the look that decides tells what is wrong
            return state
        found = _with_group_deletion if event.kind == FINALIZE else _with_changes
        return replace(found(state, live, desired, occasion), looked=self._now())

    def _with_status(self, event: Event, state: State) -> State:
        """Whether the stack is rolling back, and since when it is being updated. Nothing goes on without: a rollback takes
        what an update would refuse. A resource that is new is of no rollback."""
        if event.request == "Create":
            return state
        try:
            stack = self._patiently(lambda: self._stack(event), state)
        except api.CALL_ERRORS as error:
            raise ScaleDownError(messages.failed(event.cluster, [*_unread(error)[:1], messages.STATUS_HINT])) from None
        return replace(state, rolling_back="ROLLBACK" in stack["StackStatus"], updated=stack.get("LastUpdatedTime"))

    def _with_reached(self, event: Event, state: State) -> State:
        """What the failed update got to. A request that is left over from that update, because it was cancelled before anybody
        looked, is not of the rollback: it may refuse, and its deployment is over before any change (_given_up)."""

        def read() -> State:
            left_over, told = self._whose(event, state)
            if left_over is None:
                return state
            if left_over:
                return replace(state, rolling_back=False)
            return replace(state, reached=clusters_reached(told, event.stack))

        try:
            return self._patiently(read, state) if state.pending is False else read()
        except api.CALL_ERRORS as error:
            if not api.is_denied(error):
                raise
            # A rollback that has nothing to do goes on regardless.
            self._log(f"cannot read how far the failed update got: {api.reason(error)}")
            return state

    def _whose(self, event: Event, state: State) -> tuple[bool | None, Iterator[Mapping[str, Any]]]:
        """Whether the request is left over, and the events that tell. They are read until they tell of the way back that the stack's
        status tells of; absent: they never did."""
        until = self._now() + LATE
        while True:
            asked, told = tee(clients.read_events(self._cloudformation(), event.stack))
            left_over = is_left_over(asked, event.stack, event.resource, state.began)
            if left_over is not None or self._now() >= until:
                return left_over, told
            self._sleep(STALE.total_seconds())

    def _with_plan(self, event: Event, state: State) -> State:
        """What there is to do."""
        desired = self._desired(event, state)
        if desired is None:
            return state
        occasion = self._occasion(event, desired, state, first=True)
        if occasion.renamed_from is not None and event.kind == PREPARE:
            self._refuse(plan(None, desired, occasion), desired, first=True)
        live = self._patiently(lambda: self._live(desired, tags=True), state)
        if event.kind == FINALIZE:
            return _with_group_deletion(state, live, desired, occasion)
        live = _agreed(
            live,
            lambda seen: plan(seen, desired, occasion).done,
            lambda: self._patiently(lambda: self._live(desired, tags=True), state),
        )
        found = plan(live, desired, occasion)
        requester = self._requester(event, desired, state) if going(found, live) else None
        if requester is not None:
            self._listen(requester)
            found = plan(live, desired, _with_said(occasion, requester))
        self._tell(found)
        self._refuse(found, desired, first=True)
        if requester is not None:
            previous = self._previous(event)
            why = judge_first(found, live, requester.said, requester.ask, new=not (previous and previous.drain))
            self._fail_undrained(requester, desired, [str(why)] if why else [], first=True)
        return with_plan(state, live, found)

    def _may_delete_groups(self, event: Event) -> bool:
        """Whether finalize has anything to look for, be it in an update or in a rollback."""
        try:
            desired = read_properties(event.properties, kind=event.kind)
        except MalformedError:
            return True
        previous = self._previous(event)
        old = {group.name for group in previous.groups} if previous else set()
        return bool(desired.groups_to_delete) or bool(old - {group.name for group in desired.groups})

    def _patiently(self, look: Callable[[], _Seen], state: State) -> _Seen:
        """What a look finds, tried again with growing pauses for as long as LOOKING, and twice that for all looks. Any error is
        worth it: AWS throttles, and permissions arrive late."""
        until = min(self._now() + LOOKING, state.began + 2 * LOOKING)
        return self._again(look, lambda _: until)

    def _again(self, look: Callable[[], _Seen], until: Callable[[Exception], datetime]) -> _Seen:
        """`until`: the end of the time for looks that fail like this."""
        return api.again(look, until, now=self._now, sleep=self._sleep, log=self._log)

    def _stack(self, event: Event) -> Mapping[str, Any]:
        stack: Mapping[str, Any] = self._cloudformation().describe_stacks(StackName=event.stack)["Stacks"][0]
        return stack

    def _given_up(self, event: Event, state: State) -> Wait | None:
        """Why no change may be made where CloudFormation no longer waits for an answer, so that nobody wants it any more.
        When an update is cancelled, or another of its resources fails, it goes on without this one; and nobody
        stops the polls.

        It is a wait: nobody reads it, and should the stack's status ever mislead, a deployment that fails for time costs no
        node, where one that goes on with the nodes still there costs random ones.
        """
        stack = self._stack(event)
        status, updated = stack["StackStatus"], stack.get("LastUpdatedTime")
        # A later update begins after this request did. By the clock of the function, unless the first look knew better.
        later = updated is not None and updated > max(state.began, state.updated or state.began)
        running = (
            ("UPDATE_ROLLBACK_IN_PROGRESS",) if state.rolling_back else ("UPDATE_IN_PROGRESS", "CREATE_IN_PROGRESS")
        )
        over = later or status not in running
        return Wait(why=messages.OVER) if over else None

    def _previous(self, event: Event) -> Desired | None:
        """The properties before. Absent: a first deployment; or they are of a failed update, or of an earlier version of this
        resource, and make no sense."""
        try:
            return read_properties(event.old_properties, kind=event.kind, owner=event.stack)
        except MalformedError:
            return None

    def _occasion(self, event: Event, desired: Desired, state: State, *, first: bool) -> Occasion:
        old = event.old_properties
        name = old.get("ClusterName") if isinstance(old, Mapping) else None
        previous = self._previous(event)
        drained = self._drained_within(desired, previous, state)
        patience = min(PATIENCE + drained, MOST_PATIENCE)
        age = self._now() - state.began
        settling = state.settling or bool(state.record.asked)
        return Occasion(
            first=first,
            began=state.began,
            previous=previous,
            renamed_from=name if isinstance(name, str) and name != desired.cluster else None,
            deployed_ids=frozenset(previous.nodes_to_delete if previous else ()),
            chosen=frozenset(pick.name for pick in state.picked),
            unlaunched=None if first and state.looked is None else state.unlaunched,
            newest=state.newest,
            drained_within=drained,
            doubting=age < (patience if settling or state.pending is None else SHORT_PATIENCE),
            young=settling and age < patience,
            rolling_back=state.rolling_back,
            updated=state.updated,
            reached=state.reached,
        )

    def _drained_within(self, desired: Desired, previous: Desired | None, state: State) -> timedelta:
        """How long after the request's beginning nodes may go at the latest, because they are drained first."""
        drain = desired.drain or (previous.drain if previous and state.rolling_back else None)
        if drain is None:
            return timedelta(0)
        return BACK if state.rolling_back else timedelta(minutes=drain.minutes)

    def _live(self, desired: Desired, *, tags: bool) -> Cluster | None:
        return clients.read_live(self._sagemaker(), desired.cluster, tags=tags)

    def _desired(self, event: Event, state: State) -> Desired | None:
        """Absent: malformed in a rollback, which goes on regardless."""
        try:
            return read_properties(event.properties, kind=event.kind, owner=event.stack)
        except MalformedError as error:
            self._log(f"malformed: {error}")
            if state.rolling_back:
                return None
            raise ScaleDownError(messages.malformed(event.kind, error.problems)) from None

    # -- prepare --

    def _prepare(self, event: Event, desired: Desired, state: State) -> Answer:
        live = self._live(desired, tags=state.pending is None)
        requester = self._heard(event, desired, state)
        live = self._with_held(live, requester, desired, tags=state.pending is None)
        occasion = _with_said(self._occasion(event, desired, state, first=False), requester)
        found = plan(live, desired, occasion)
        self._tell(found)
        self._refuse(found, desired, first=False)
        if live is None:
            return self._complete(event, state, None)
        pending = (*found.taken, *found.held)
        if (found.changes or requester is not None) and (over := self._given_up(event, state)):
            return self._unfinished(event, state, [over], live, pending)
        if requester is not None and (waits := self._make_ready(requester, found, live, desired, state)):
            return self._unfinished(event, state, (*waits, *found.waits), live, pending)
        if found.taken and (wait := self._operation_of_another(found, live, state)):
            return self._unfinished(event, state, [wait, *found.waits], live, pending)
        if not found.changes:
            if waits := found.waits or _not_yet(live, state):
                return self._unfinished(event, state, waits, live, found.held)
            if requester is not None:
                requester.hold(going(found, live), live, KEPT)
        # Pages of a list may skip a node: none goes that only one look chooses, and no look alone says that all have gone.
        if wait := self._overtaken(found, live, desired, occasion):
            return self._unfinished(event, state, [wait], live, pending)
        if not found.changes:
            return self._complete(event, state, live, left_out=requester.said.left_out if requester else {})
        return self._carry_out(found, live, event, desired, occasion, state)

    def _operation_of_another(self, found: Plan, live: Cluster, state: State) -> Wait | None:
        """The wait for somebody else's operation that lowers the same group, as far as HyperPod's record can be read."""
        if state.rolling_back or not live.continuous or self._now() - state.began >= PATIENCE_FOR_OPERATIONS:
            return None
        # Another process of the function may have made a call that this one does not know of.
        called = state.record.asked or (not state.record.whole and _taken_from(state, live))
        own_since = state.began if called else None
        groups = {pick.node.group for pick in found.taken}
        try:
            return lowered_by_another(read_operations(self._sagemaker(), live.name, live.arn), groups, own_since)
        except Exception as error:  # noqa: BLE001 - the permission is optional, and the record a second witness only
            self._log(f"cannot read HyperPod's operations: {api.reason(error)}")
            return None

    def _carry_out(
        self, found: Plan, live: Cluster, event: Event, desired: Desired, occasion: Occasion, state: State
    ) -> Answer:
        """One kind of change, and what is left to do."""

        def look(then: Occasion) -> tuple[Cluster | None, Plan]:
            now = self._live(desired, tags=False)
            return now, plan(now, desired, then)

        moment = Moment(now=self._now(), began=state.began)
        outcome = execute(found, live, look, occasion, self._sagemaker(), moment)
        state.record.add(found.taken, outcome.accepted | outcome.unheard)
        failure: list[str] = []
        if outcome.error is not None:
            self._log(f"{outcome.call} failed: {api.reason(outcome.error)}")
            failure = _failure(desired.cluster, outcome.call, outcome.error, back=state.rolling_back)
            # Nothing but time can help a rollback, and failing it is worse than waiting.
            if not state.rolling_back:
                raise ScaleDownError(messages.failed(desired.cluster, failure), accepted=outcome.accepted)
        left = [pick for pick in (*found.taken, *found.held) if pick.node.name not in outcome.accepted]
        said = [Wait(why=why) for why in (*failure, *outcome.waits)]
        return self._unfinished(event, state, [*said, *found.waits], live, left, outcome.accepted)

    # -- draining --

    def _overtaken(self, found: Plan, seen: Cluster, desired: Desired, occasion: Occasion) -> Wait | None:
        """The wait if the plan or the list of nodes is another by now. A drainer or S3 may have taken minutes to answer, and others act
        meanwhile: no node goes, and CloudFormation sends no count, by what was true before. It is a passing wait if both lists
        together leave nothing to do: a rollback does not end because pages of a list differ."""
        live = self._live(desired, tags=False)
        if live is not None and live.staying == seen.staying and plan(live, desired, occasion) == found:
            return None
        both = {node.name: node for node in (*seen.nodes, *(live.nodes if live else ()))}
        together = plan(replace(live or seen, nodes=tuple(both.values())), desired, occasion)
        return replace(messages.OVERTAKEN, passing=together.done)

    def _requester(
        self, event: Event, desired: Desired, state: State, *, before: bool = False
    ) -> DrainRequester | None:
        """Absent: nodes go as they are. A rollback gives back what the failed update asked for, and neither it nor finalize
        ends for what S3 or Lambda says. `before`: also where only the properties before say how."""
        previous = self._previous(event) if state.rolling_back or before else None
        drain = desired.drain or (previous.drain if previous else None)
        if drain is None:
            return None
        ask = Ask(drain=drain, began=state.began, now=self._now(), rolling_back=state.rolling_back)
        must = event.kind == PREPARE and not state.rolling_back
        return DrainRequester(ask, self._channel(drain, desired.cluster), must=must)

    def _channel(self, drain: DrainSettings, cluster: str) -> Channel:
        if drain.eks:
            return FunctionChannel(drain.function, cluster, self._functions)
        return BucketChannel(drain.bucket, cluster, self._s3, self._sagemaker)

    def _heard(self, event: Event, desired: Desired, state: State) -> DrainRequester | None:
        """The same, with what is said of the nodes now."""
        requester = self._requester(event, desired, state)
        if requester is not None:
            self._listen(requester)
        return requester

    def _listen(self, requester: DrainRequester) -> None:
        """Hear what is said now. Only who does not answer for three minutes is silent. A rollback asks once in each poll: it waits
        for five minutes at most, whoever answers."""
        if requester.ask.rolling_back:
            requester.read()
        else:
            hearing = Hearing(requester.is_unanswered, self._now, unanswered=SILENT, refused=LOOKING)
            requester.read(lambda look: self._again(look, hearing.until))
        requester.ask = replace(requester.ask, now=self._now())

    def _with_held(
        self, live: Cluster | None, requester: DrainRequester | None, desired: Desired, *, tags: bool
    ) -> Cluster | None:
        """The cluster, read again if its list leaves out a node that is held. A node that is no longer asked for goes back to work,
        so only two lists in a row say that it is gone."""
        held = requester.said.deployment_requests().keys() if requester else set()
        return _agreed(
            live,
            lambda seen: held <= {node.name for node in seen.nodes},
            lambda: self._live(desired, tags=tags),
        )

    def _make_ready(
        self, requester: DrainRequester, found: Plan, live: Cluster, desired: Desired, state: State
    ) -> tuple[Wait, ...]:
        """Have what goes drained; what is still waited for."""
        leaving, taken = going(found, live), _taken_from(state, live)
        requester.ask = replace(requester.ask, taken=taken, nowhere=requester.locate(leaving))
        ready = judge(leaving, requester.said, requester.ask).ready
        requester.hold(leaving, live, TAKEN if found.changes and ready else LEASE)
        # A drainer has answered by now.
        verdict = judge(leaving, requester.said, requester.ask)
        self._fail_undrained(requester, desired, verdict.never, first=not (taken or state.record.asked))
        return verdict.waits

    def _give_back(self, event: Event, state: State, accepted: frozenset[str] = frozenset()) -> str:
        """Nobody wants nodes drained any more. Why some of them stay held; empty: none does, or only until their lease ends."""
        requester: DrainRequester | None = None
        try:
            desired = self._desired(event, state)
            requester = None if desired is None else self._requester(event, desired, state, before=True)
            if desired is None or requester is None:
                return ""
            wanted, giver = desired, requester

            def look() -> Cluster | None:
                return self._with_held(self._live(wanted, tags=False), giver, wanted, tags=False)

            def give_back() -> None:
                if self._given_up(event, state):
                    state.record.gives_back_again = True
                else:
                    giver.give_back(look, accepted)

            until = self._now() + GIVING_BACK
            self._again(give_back, lambda _: until)
            state.record.gives_back_again |= giver.gave_back
        except Exception as error:  # noqa: BLE001 - it must not take the place of a refusal, nor end a rollback
            self._log(f"cannot give nodes back: {error}")
            if requester is not None and requester.ask.drain.eks:
                return messages.not_given_back(requester.held)
        return ""

    def _make_doomed_ready(
        self, requester: DrainRequester, live: Cluster, desired: Desired, state: State
    ) -> tuple[Wait, ...]:
        """Hold the nodes of groups to delete, which prepare had drained; and have those drained that came since, during the
        cluster's own update. What is still waited for: until the time is up, and then the group stays."""
        groups = standing(live, desired)
        doomed = [node for node in live.nodes if node.group in groups]
        ready = frozenset(
            name
            for name, request_id in requester.said.deployment_requests().items()
            if request_id != requester.ask.request_id
        )
        came = [node for node in doomed if node.name not in ready and _is_young(node, state)]
        requester.ask = replace(requester.ask, nowhere=requester.locate(came))
        requester.hold(
            doomed, live, TAKEN, drained=frozenset(node.name for node in doomed) - {node.name for node in came}
        )
        verdict = judge(came, requester.said, requester.ask)
        return (*verdict.waits, *(Wait(why=why) for why in verdict.never))

    def _release(self, event: Event, state: State) -> Answer | State:
        """Give back what an earlier deployment's rollback had no right to. A rollback during which others changed the cluster while
        nobody answered has something to do by now: its state, for this poll. Raises ScaleDownError where an update has."""
        if event.kind == FINALIZE:
            return _nothing(event)
        if known := state.record.goes_on:
            return replace(state, rolling_back=True, pending=None, updated=known.updated, reached=known.reached)
        state = self._with_status_since(event, state)
        held = _answer(event, self._give_back(event, state) or messages.NOTHING)
        if state.record.gives_back_again and self._now() - state.began < LATE:
            # To the cancelled update's own polls that update may go on for so long, and they ask for the nodes again. Or this is
            # a rollback, and only the second of two reads of the stack's status told.
            return UNFINISHED
        desired = self._desired(event, state)
        requester = None if desired is None else self._requester(event, desired, state, before=True)
        if desired is None or requester is None or self._now() - (state.looked or state.began) < STALE:
            return held
        why = self._overtaken_first(event, desired, state)
        if not (why or state.record.asked):
            return held
        if not state.rolling_back:
            # A first look that found nothing to do did not wait until CloudFormation's status was this request's.
            self._sleep(max(0.0, (state.began + LATE - self._now()).total_seconds()))
            state = self._with_status(event, state)
        if not state.rolling_back:
            raise ScaleDownError(messages.failed(desired.cluster, why))
        state.record.goes_on = Rollback(state.updated, state.reached)
        return replace(state, pending=None)

    def _with_status_since(self, event: Event, state: State) -> State:
        """A first look that found nothing to do did not wait until CloudFormation's status was this request's. A rollback gives back
        what its update asked for, and is not taken for the update that it ends."""
        if state.rolling_back or event.request != "Update" or not self._may_hold(event, state):
            return state
        try:
            seen = self._with_status(event, state)
            return self._with_reached(event, seen) if seen.rolling_back else state
        except (ScaleDownError, *api.CALL_ERRORS) as error:
            self._log(f"cannot look yet: {error}")
            return state

    def _may_hold(self, event: Event, state: State) -> bool:
        desired = self._desired(event, state)
        return desired is not None and self._requester(event, desired, state, before=True) is not None

    def _overtaken_first(self, event: Event, desired: Desired, state: State) -> list[str]:
        """Why there may be something to do, after a first look that found nothing. Empty: there is nothing."""
        try:
            live = self._patiently(lambda: self._live(desired, tags=False), state)
        except api.CALL_ERRORS as error:
            return _unread(error)
        found = plan(live, desired, self._occasion(event, desired, state, first=False))
        return [] if found.done and not found.deletions else [messages.OVERTAKEN_FIRST]

    def _fail_undrained(self, requester: DrainRequester, desired: Desired, why: Sequence[str], *, first: bool) -> None:
        if why:
            raise ScaleDownError(messages.not_drained(desired.cluster, why, first=first, eks=requester.ask.drain.eks))

    # -- finalize --

    def _finalize(self, event: Event, desired: Desired, state: State) -> Answer:
        live = self._live(desired, tags=state.pending is None)
        deletion = plan_group_deletion(live, desired, self._occasion(event, desired, state, first=False))
        for note in deletion.notes:
            self._log(f"note: {note}")
        if live is None or deletion.done:
            return self._complete(event, state, live)
        if deletion.wait is not None and desired.drain is None:
            return self._unfinished(event, state, [deletion.wait], live)
        requester = None if state.rolling_back else self._heard(event, desired, state)
        if over := self._given_up(event, state):
            return self._unfinished(event, state, [over], live)
        waits = () if deletion.wait is None else (deletion.wait,)
        if requester is not None:
            live = self._with_held(live, requester, desired, tags=False)
            if live is None:
                return self._complete(event, state, None)
            waits = (*self._make_doomed_ready(requester, live, desired, state), *waits)
        if waits:
            return self._unfinished(event, state, waits, live)
        return self._delete_groups(event, desired, state, live, deletion.groups)

    def _delete_groups(
        self, event: Event, desired: Desired, state: State, live: Cluster, groups: Sequence[str]
    ) -> Answer:
        self._log(f"delete groups: {', '.join(groups)}")
        moment = Moment(now=self._now(), began=state.began)
        outcome = delete_groups(groups, live, desired, self._sagemaker(), moment)
        if outcome.error is not None:
            why = messages.group_deletion_failed(desired.cluster, groups, api.reason(outcome.error))
            if not state.rolling_back:
                raise ScaleDownError(why)
            return self._complete(event, state, live, [why])  # A rollback must not end here; the groups stay.
        if outcome.waits:
            return self._unfinished(event, state, [Wait(why=why) for why in outcome.waits], live)
        return self._complete(event, state, live, accepted=groups)

    # -- answers --

    def _complete(
        self,
        event: Event,
        state: State,
        live: Cluster | None,
        waits: Sequence[str] = (),
        left_out: Mapping[str, int] = MappingProxyType({}),
        accepted: Sequence[str] = (),
    ) -> Answer:
        """`live`: what there still is; absent: no cluster. `left_out`: node -> files that are not in its backup. `accepted`: groups
        whose deletion HyperPod has just accepted."""
        desired = read_properties(event.properties, kind=event.kind, owner=event.stack)
        groups = standing(live, desired) if live else {}
        if event.kind == PREPARE:
            record, here = state.record, live.staying if live else frozenset()
            elsewhere = [pick.name for pick in state.picked if pick.name not in {*here, *record.asked}]
            unsure = None if record.whole else elsewhere
            gone = record.gone(here)
            listed = [pick for pick in record.asked.values() if pick not in gone]
            return _answer(event, messages.nodes_taken(state.began, gone, groups, unsure, left_out, listed))
        left = {name: nodes for name, nodes in groups.items() if name not in accepted}
        return _answer(event, messages.standing(left, deleting(live, desired, accepted) if live else {}, waits))

    def _unfinished(
        self,
        event: Event,
        state: State,
        waits: Sequence[Wait],
        live: Cluster | None = None,
        left: Sequence[Pick] = (),
        accepted: frozenset[str] = frozenset(),
    ) -> Answer:
        """Another poll, or the end of the time there is. `left`: nodes still to be taken; `accepted`: those that were taken since
        `live` was read."""
        for wait in waits:
            self._log(f"not yet: {wait.why}")
        if self._now() - state.began < DEADLINE:
            return UNFINISHED
        reasons = [wait.why for wait in waits]
        if event.kind == FINALIZE:
            # Its failure would launch again what was just taken.
            self._log("time is up, groups are left to the next deployment")
            self._give_back(event, state)
            return self._complete(event, state, live, reasons)
        if state.rolling_back and waits and not (left or accepted) and all(wait.passing for wait in waits):
            # docs/adr/0010-a-rollback-at-its-deadline.md
            self._log("time is up, and there is nothing left to take: the rollback goes on")
            return self._complete(event, state, live)
        here = live.staying - accepted if live else frozenset()
        # Beyond the nodes that travel by name nobody counts them, nor without a first look.
        looked = live is not None and state.pending is not None and state.planned == len(state.picked)
        counted = looked and state.record.whole
        gone = {pick.name for pick in state.record.gone(here)}
        taken = sum(pick.name in gone for pick in state.picked)
        text = messages.out_of_time(
            event.cluster,
            int(DEADLINE.total_seconds() // 60),
            (taken, state.planned) if counted else None,
            [pick.node.name for pick in left],
            reasons,
            back=state.rolling_back,
            stays=self._stays(event, state, live) if state.rolling_back else "",
        )
        raise ScaleDownError(text, accepted=accepted)

    def _stays(self, event: Event, state: State, live: Cluster | None) -> str:
        """Why a rollback that deleted nodes finds as many again, and what helps; empty: it does not."""
        counts = {group.name: group.count for group in read_properties(event.properties, kind=event.kind).groups}
        taken = {pick.group for pick in state.record.asked.values()}
        for group in live.groups if live else ():
            if group.name in taken and group.target > counts.get(group.name, group.target):
                return messages.target_stays_in_rollback(group.name, group.target, counts[group.name])
        return ""

    def _failed(self, error: Exception, event: Event, state: State) -> Answer:
        """A read that failed, or the function itself. CDK's provider framework never polls again once its function has failed. In a
        rollback that is the end of the stack's way back, and after finalize CloudFormation launches again what was just taken:
        there whatever it is is worth another poll."""
        said, again = [f"the function failed: {api.reason(error)}"], event.kind == FINALIZE
        if isinstance(error, api.CALL_ERRORS):
            said, again = _unread(error), api.is_passing(error, now=self._now(), began=state.began)
        else:
            import traceback

            self._log(" | ".join("".join(traceback.format_exception(error)).split("\n")))
        if state.rolling_back or again:
            return self._unfinished(event, state, [Wait(why=each) for each in said])
        raise ScaleDownError(messages.failed(event.cluster, said)) from None

    # -- words --

    def _tell(self, found: Plan) -> None:
        """The plan in the log, one line for each action."""
        for action in found.actions:
            self._log(messages.line(action))
        for note in found.notes:
            self._log(f"note: {note}")

    def _refuse(self, found: Plan, desired: Desired, *, first: bool) -> None:
        if found.refusals:
            raise ScaleDownError(messages.refused(desired.cluster, found.refusals, first=first))


def _agreed(
    live: Cluster | None, is_enough: Callable[[Cluster], bool], look: Callable[[], Cluster | None]
) -> Cluster | None:
    """The cluster, read again until two looks in a row list the same nodes, unless one of them is enough: pages of a list may skip
    nodes. After five looks the last one counts, because every poll looks again."""
    for _ in range(4):
        if live is None or is_enough(live):
            break
        before, live = live, look()
        if live is not None and live.staying == before.staying:
            break
    return live


def _with_changes(state: State, live: Cluster | None, desired: Desired, occasion: Occasion) -> State:
    return with_plan(state, live, plan(live, desired, occasion))


def _with_group_deletion(state: State, live: Cluster | None, desired: Desired, occasion: Occasion) -> State:
    # The last group cannot be deleted, and a poll's answer says that it stands.
    left = live is not None and bool(standing(live, desired) or deleting(live, desired))
    return replace(state, pending=left or not plan_group_deletion(live, desired, occasion).done)


def _with_said(occasion: Occasion, requester: DrainRequester | None) -> Occasion:
    """What is told of the nodes to choose from: who is being drained for this deployment stays chosen."""
    if requester is None:
        return occasion
    said = requester.said
    asked = {name for name, request_id in said.deployment_requests().items() if request_id == requester.ask.request_id}
    return replace(occasion, busy=frozenset(said.busy), chosen=occasion.chosen | asked)


def _taken_from(state: State, live: Cluster) -> frozenset[str]:
    """Groups of whose nodes to take some are gone."""
    here = live.staying
    return frozenset(pick.group for pick in state.picked if pick.name not in here)


def _is_young(node: Node, state: State) -> bool:
    """Whether it may have come after prepare's last look: since the update of the stack began, or so shortly before that it had
    not joined."""
    return node.launched is not None and state.updated is not None and node.launched > state.updated - JOINING


def _not_yet(live: Cluster, state: State) -> tuple[Wait, ...]:
    """What keeps a plan without anything left to do from being complete: after nodes were taken the cluster must accept its own
    update; where nothing was, nothing is waited for."""
    return (messages.not_accepting(live.status),) if state.planned and live.status in MOVING else ()


def _read(event: Mapping[str, Any]) -> Event:
    try:
        return read_event(event)
    except MalformedError as error:
        raise ScaleDownError(messages.malformed("this resource", error.problems)) from None


def _nothing(event: Event) -> Answer:
    return _answer(event, messages.NOTHING)


def _answer(event: Event, text: str) -> Answer:
    return {"IsComplete": True, "Data": {ATTRIBUTES[event.kind]: one_line(text)}}


_CALLS = {
    "DescribeStacks": "Reading the stack's status",
    "GetObject": "Reading what the drain agent says",
    "PutObject": "Asking the drain agent",
}


def _unread(error: Exception) -> list[str]:
    call = _CALLS.get(getattr(error, "operation_name", ""), "Reading the cluster")
    return _told(call, error, sentences.DENIED_HINT)


def _failure(cluster: str, call: str, error: Exception, *, back: bool) -> list[str]:
    """Why nothing was changed, and what to do; `back`: in a rollback."""
    if api.needs_software_update(error):
        return [messages.software_update(cluster, "continue the rollback" if back else "deploy again")]
    return _told(call, error, sentences.DENIED_HINT if back else messages.FIRST_HINT)


def _told(call: str, error: Exception, hint: str) -> list[str]:
    """What AWS said, and what to do about a missing permission."""
    said = f"{call}: {api.reason(error)}"
    return [said, hint] if api.is_denied(error) else [said]
