"""Carries a patch out: looks, does the next step, and looks again, group by group. It alone changes something."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ..._lambda.hyperpod.common import api
from ..._lambda.hyperpod.kernel.images import is_release
from ...errors import HyperPodError
from .. import aws, live, tables
from ..live import Node
from ..nodes.operator_channel import DrainError
from .drains import DrainerDrains, Drains
from .images import is_of_others
from .model import LATEST, SYSTEM_UPDATING, DrainedBy, Group, Hold, Options, Plan, Progress, Report, Run
from .reading import Reader
from .run_record import AnotherRunError, LocalRecord
from .steps import DONE, HAS_FAILED, Case, Finish, Resume, Step, Stop, Update, Wait, next_step

QUIET_S = 1800.0
"""How long nothing is printed while only numbers change."""
FAILING_S = 1800.0
"""How long looks may fail without a break until it gives up. Each call was tried several times (aws.ATTEMPTS)."""
LOOK_S = 240.0
"""The update is not sent under an older look: nodes whose lease is over may have got jobs, for example while a laptop slept."""
RENEW_UPDATE_S = 2 * 3600.0
"""The hold of an update that is still at work is made longer when less than this is left."""

Emit = Callable[[str, Sequence[str], Mapping[str, Any]], None]
"""Print lines for people, or a document for programs: its kind, the lines, and its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a patch has ended."""

    code: int
    why: str = ""
    patched: tuple[str, ...] = ()
    on_old_image: tuple[str, ...] = ()
    """Nodes on the old image, of a group that is partly updated."""
    unpatched: tuple[str, ...] = ()
    """Groups that it has not patched."""
    left: tuple[str, ...] = ()
    """Those with which the same command goes on."""
    reasons: tuple[str, ...] = ()
    """What HyperPod's events say."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look has read."""

    began: float
    group: Group | None
    report: Report
    deployment: str


@dataclass
class _Turn:
    """One group, from when this run begins with it. A later run begins anew."""

    plan: Plan
    hold: Hold
    nodes: dict[str, Node] = field(default_factory=dict)
    """The union of all lists: what one leaves out stays held."""
    foreign: str = ""
    """An update that this command did not send, as it was seen last."""
    worked: float = 0.0
    """When a sign of this run's update was seen last."""
    unanswered: int = 0
    """How many of this run's calls got no answer."""


@dataclass
class Patcher:
    """One run of `patch`, from the confirmation on."""

    reader: Reader
    drains: Drains
    local: LocalRecord
    run: Run
    options: Options
    must_save: bool
    needs_empty_queue: bool
    """The user has not confirmed what the controller loses."""
    emit: Emit
    has_released: bool = False
    """At its end it holds no node."""
    _turn: _Turn | None = None
    _looked: _Look | None = None
    _said: str = ""
    _said_at: float = 0.0
    _failing: float | None = None
    """Since when looks have failed without a break."""
    _leased: float = 0.0
    """Until when nodes may be held by what was written."""

    @staticmethod
    def wait(seconds: float) -> None:
        """Until the next look."""
        time.sleep(seconds)

    def patch(self, plans: Sequence[Plan]) -> Outcome:
        """Patch the groups in their order, until one fails. Releases what it holds, however it ends."""
        finished = False
        try:
            for plan in plans:
                stop = self._patch_group(plan)
                if stop is not None:
                    return self._stopped(stop, plan, plans)
            finished = True
            return self._outcome(plans, Stop(DONE, ""))
        except (HyperPodError, *api.CALL_ERRORS) as error:
            return self._outcome(plans, Stop(HAS_FAILED, _words(error)))
        finally:
            self._end(finished=finished)

    def _outcome(self, plans: Sequence[Plan], stop: Stop, reasons: Sequence[str] = ()) -> Outcome:
        done = [plan.group for plan in plans if self._progress(plan).done]
        unpatched = [plan.group for plan in plans if plan.group not in done]
        left = [] if stop.deleted == "cluster" else [each for each in unpatched if not self._is_deleted(each, stop)]
        return Outcome(
            code=stop.code,
            why=stop.why,
            patched=tuple(done),
            on_old_image=stop.on_old_image,
            unpatched=tuple(unpatched),
            left=tuple(left),
            reasons=tuple(reasons),
        )

    def _is_deleted(self, group: str, stop: Stop) -> bool:
        return bool(stop.deleted) and self._turn is not None and self._turn.plan.group == group

    def _stopped(self, stop: Stop, plan: Plan, plans: Sequence[Plan]) -> Outcome:
        sent = self._progress(plan).sent
        reasons: list[str] = []
        if sent is not None:
            with suppress(HyperPodError, *api.CALL_ERRORS):
                reasons = self.reader.reasons(plan.group, sent)
        outcome = self._outcome(plans, stop, reasons)
        # What failed begins anew with the next run.
        failed, is_held = self._progress(plan), self._held_for_an_update() is not None
        groups = {name: each for name, each in self.run.groups.items() if each.done}
        if is_held and (stop.may_go_on or failed.sent is None):
            groups[plan.group] = replace(failed, unconfirmed=stop.may_go_on)
        if stop.deleted:
            # The same command may name it.
            groups[plan.group] = Progress()
        self.run = replace(self.run, groups=groups)
        return outcome

    # -- its end ------------------------------------------------------------------------------------------------------

    def _end(self, *, finished: bool) -> None:
        """Release the nodes. An unfinished run leaves its record, and the end of its lease."""
        left = replace(self.run, until=self.drains.now())
        self.local.write(None if finished else left)
        held = self._held_for_an_update()
        if held is not None:
            with suppress(HyperPodError, *api.CALL_ERRORS):
                self.drains.save(self.run)
            # Jobs would start on them, and end with the old image.
            tables.complain(
                f"the nodes stay held until {_time(held)}, because HyperPod may still replace their image. The same command goes "
                "on from there, and releases them. `cdk-hyperpod drain --release` releases them at once"
            )
            return
        try:
            self._release(left, finished=finished, tries=3)
            self.has_released = True
        except AnotherRunError:
            return  # the other process holds them now
        except (HyperPodError, *api.CALL_ERRORS) as error:
            tables.complain(
                f"the nodes were not released: {_words(error)}. They stay held until {_time(max(self._leased, self.drains.now()))}{self._by_hand()}"
            )

    def _held_for_an_update(self) -> float | None:
        """Until when nodes are held, if it stops while HyperPod replaces their image, as far as it knows."""
        plan = self._turn.plan if self._turn else None
        if plan is None or not _is_held(plan) or plan.group not in self.run.held(self.drains.now()):
            return None
        return self._progress(plan).until

    def _by_hand(self) -> str:
        if isinstance(self.drains, DrainerDrains):
            return " and longer, until the drainer is called: run the same command again"
        return ", or run the same command again"

    def _release(self, run: Run, *, finished: bool, tries: int = 0) -> None:
        """Like every other call it is tried again. `tries`: 0: as long as looks are."""
        began, number = self.drains.now(), 0
        while True:
            try:
                self.drains.release(run, finished=finished)
                return
            except (HyperPodError, *api.CALL_ERRORS) as error:
                number += 1
                is_over = number >= tries if tries else self.drains.now() - began >= FAILING_S
                if is_over or not _is_passing(error):
                    raise
                if not tries and self._turn:
                    self._say(self._turn.plan.group, f"the nodes are released at the next try: {_words(error)}")
            self.wait(10 if tries else self.drains.look_s)

    # -- one group --------------------------------------------------------------------------------------------------

    def _patch_group(self, plan: Plan) -> Stop | None:
        """Returns why it stops. None: the group is patched."""
        turn = self._begin(plan)
        while True:
            step = self._look_and_decide(turn)
            if isinstance(step, Update):
                step = self._try_to_update(turn)
            if isinstance(step, Resume):
                progress = self._progress(plan)
                kept = progress.until if progress.unconfirmed else None
                turn.hold = Hold.to_drain(self.drains.now(), self.options, kept)
                self._note(plan, Progress(until=kept))
            if isinstance(step, Stop):
                return step
            if isinstance(step, Finish):
                self._finish(turn, step)
                return None
            if isinstance(step, Wait):
                self._say(plan.group, step.why)
            self._pause(turn)

    def _begin(self, plan: Plan) -> _Turn:
        now, progress = self.drains.now(), self._progress(plan)
        self._said, self._failing = "", None
        if progress.sent is None:
            # The clock of --drain-for and --force-after begins with the run that shows them.
            hold = Hold.to_drain(now, self.options, progress.until)
        else:
            hold = Hold.to_update(progress.sent, progress.until)
        self._turn = _Turn(
            plan, hold, worked=now if progress.seen and not progress.unconfirmed else progress.sent or 0.0
        )
        self._note(plan, progress)
        return self._turn

    def _look_and_decide(self, turn: _Turn) -> Step:
        """The next step. A look that fails is repeated for some time."""
        try:
            self._looked = look = self._look(turn)
        except (HyperPodError, *api.CALL_ERRORS) as error:
            return self._after_failed_look(error)
        self._failing = None
        return next_step(self._case(turn, look))

    def _after_failed_look(self, error: Exception) -> Step:
        if isinstance(error, live.NoClusterError):
            return Stop(HAS_FAILED, "the cluster was deleted meanwhile", deleted="cluster")
        now = self.drains.now()
        self._failing = now if self._failing is None else self._failing
        if now - self._failing >= FAILING_S or not _is_passing(error):
            raise error
        return Wait(f"a look failed and will be repeated: {_words(error)}")

    def _look(self, turn: _Turn) -> _Look:
        began = self.drains.now()
        described = live.describe(self.reader.target)
        group = self.reader.group(described, turn.plan.group)
        if group is not None:
            turn.nodes |= {node.name: node for node in group.with_jobs}
            self._note_what_is_live(turn, group)
        deployment = self.reader.deployment(described) if self._progress(turn.plan).sent is None else ""
        nodes = turn.nodes.values() if group is not None and _is_held(turn.plan) else ()
        return _Look(began, group, self._hold([*nodes], turn.hold), deployment)

    def _hold(self, nodes: Sequence[Node], hold: Hold) -> Report:
        """Hold exactly these nodes. A write without an answer may have arrived."""
        until = hold.lease(self.drains.now()) if nodes else 0.0
        self._leased = max(self._leased, until)
        report = self.drains.hold(self.run, nodes, hold)
        if not report.silence and not report.refused:
            self._leased = until
        return report

    def _note_what_is_live(self, turn: _Turn, group: Group) -> None:
        """An update that is under way is this run's if it has sent one, unless the evidence says otherwise."""
        progress = self._progress(turn.plan)
        if group.is_updating:
            is_foreign = is_of_others(turn.plan.wanted, group, progress)
            turn.foreign = " to ".join([group.software or SYSTEM_UPDATING, *group.coming[-1:]]) if is_foreign else ""
        if progress.sent is not None:
            self._note_progress(turn, group, progress)

    def _note_progress(self, turn: _Turn, group: Group, progress: Progress) -> None:
        now = self.drains.now()
        has_moved = group.software != progress.before
        is_first = (group.is_updating or has_moved) and not progress.seen
        noted = replace(
            progress,
            seen=progress.seen or is_first,
            before="" if has_moved else progress.before,
            rolled_back=progress.rolled_back or group.is_rolling_back,
        )
        if noted != progress:
            self._note(turn.plan, noted)
        if group.is_updating or is_first:
            turn.worked = now
        if group.is_updating and _is_held(turn.plan) and turn.hold.until - now < RENEW_UPDATE_S:
            self._hold_for_update(turn)

    def _hold_for_update(self, turn: _Turn) -> None:
        turn.hold = Hold.to_update(self.drains.now())
        self._note(turn.plan, replace(self._progress(turn.plan), until=turn.hold.until))
        self._say(turn.plan.group, f"if this command is lost, the nodes stay held until {_time(turn.hold.until)}")

    def _case(self, turn: _Turn, look: _Look) -> Case:
        listed = {node.name for node in look.group.nodes} if look.group else set()
        return Case(
            plan=turn.plan,
            group=look.group,
            progress=self._progress(turn.plan),
            report=look.report,
            hold=turn.hold,
            now=self.drains.now(),
            deployment=look.deployment,
            earlier=[node for name, node in turn.nodes.items() if name not in listed],
            foreign=turn.foreign,
            worked=turn.worked,
            unanswered=turn.unanswered,
            must_save=self.must_save,
            needs_empty_queue=turn.plan.is_controller and self.needs_empty_queue,
        )

    # -- what changes something ---------------------------------------------------------------------------------------

    def _try_to_update(self, turn: _Turn) -> Step:
        """Send the update, and report what became of it."""
        try:
            return self._update(turn)
        except (HyperPodError, *api.CALL_ERRORS) as error:
            return self._after_failed_look(error)

    def _update(self, turn: _Turn) -> Wait:
        """Send UpdateClusterSoftware.

        The hold that lasts as long as the update, and the record that it may have arrived, are written before. What has changed
        since the look, and a look that is too old, wait for the next one.
        """
        plan, look = turn.plan, self._looked
        group = self.reader.group(live.describe(self.reader.target), plan.group)
        if look is None or look.group is None or group is None:
            return Wait("the group is not there any more")
        if why := _why_not_now(group, look.group, plan):
            return Wait(why)
        hold = Hold.to_update(self.drains.now()) if _is_held(plan) else turn.hold
        if hold.updates:
            self._say(
                plan.group,
                f"the update is sent. If this command is lost, the nodes stay held until {_time(hold.until)}",
            )
            report = self._hold([*turn.nodes.values()], hold)
            if why := report.silence or report.refused:
                return Wait(f"the update was not sent: {plan.drained_by.value} {why}")
        now = self.drains.now()
        sent = Progress(sent=now, before=group.software, until=hold.until if hold.updates else None)
        # A record that could not be written is no call.
        self.drains.save(self._run_with(plan, sent))
        if self.drains.now() - look.began > LOOK_S:
            return Wait("the last look is too old. It looks again")
        self._note(plan, sent)
        try:
            self.reader.target.client("sagemaker").update_cluster_software(
                **update_request(self.reader.target.name, plan)
            )
        except api.CALL_ERRORS as error:
            return self._after_failed_update(turn, error)
        turn.hold, turn.worked = (hold if hold.updates else turn.hold), now
        self._note(plan, replace(sent, accepted=True))
        with suppress(DrainError, *api.CALL_ERRORS):
            # The next look writes it, too.
            self.drains.save(self.run)
        return Wait("HyperPod has accepted the update")

    def _after_failed_update(self, turn: _Turn, error: Exception) -> Wait:
        """Raises DrainError unless the same call may succeed later."""
        plan, sent = turn.plan, self._progress(turn.plan)
        if aws.is_passing(error) or (is_busy(error) and _was_retried(error)):
            # It may have arrived. The looks show it, or send it again when the time in which it would show is over.
            turn.hold = Hold.to_update(sent.sent or 0.0, sent.until) if sent.until else turn.hold
            turn.worked = self.drains.now()
            turn.unanswered += 1
            return Wait(f"it is unknown whether the update has arrived: {aws.sentence(error)}")
        # The next look finds that the group was deleted, or that another update is under way.
        self._note(plan, Progress(until=turn.hold.kept))
        if aws.is_gone(error) and self.reader.group(live.describe(self.reader.target), plan.group) is None:
            return Wait(aws.sentence(error))
        if not is_busy(error):
            raise DrainError(f"{plan.group}: {_refusal(error)}")
        if self.drains.now() >= turn.hold.until:
            raise DrainError(f"{plan.group}: the time of --drain-for is over; {aws.sentence(error)}")
        return Wait(f"HyperPod is busy, and the update is sent again: {aws.sentence(error)}")

    def _finish(self, turn: _Turn, step: Finish) -> None:
        """The group is patched: release its nodes, so that they work again."""
        self._note(turn.plan, replace(self._progress(turn.plan), done=True))
        note = f" ({step.note})" if step.note else ""
        self._say(turn.plan.group, f"patched{note}")
        self._release(self.run, finished=False)

    # -- the record, and what is printed ------------------------------------------------------------------------------

    def _progress(self, plan: Plan) -> Progress:
        return self.run.groups.get(plan.group) or Progress()

    def _note(self, plan: Plan, progress: Progress) -> None:
        self.run = self._run_with(plan, progress)
        self.local.write(self.run)

    def _run_with(self, plan: Plan, progress: Progress) -> Run:
        return replace(self.run, groups={**self.run.groups, plan.group: progress})

    def _say(self, group: str, text: str) -> None:
        """Print it, unless only numbers differ from what was printed last, half an hour ago or later."""
        words, now = re.sub(r"\d+", "", f"{group}: {text}"), self.drains.now()
        if words == self._said and now - self._said_at < QUIET_S:
            return
        self._said, self._said_at = words, now
        line = f"{tables.now():%H:%M:%S} {group}: {tables.shown(text)}"
        self.emit("step", [line], {"group": group, "text": tables.shown(text)})

    def _pause(self, turn: _Turn) -> None:
        # A page of nodes more for each hundred of them.
        self.wait(self.drains.look_s + len(turn.nodes) // live.PAGE_SIZE)


def _is_held(plan: Plan) -> bool:
    """Whether this command holds the nodes."""
    return plan.drained_by in (DrainedBy.AGENT, DrainedBy.DRAINER)


def _why_not_now(group: Group, before: Group, plan: Plan) -> str:
    """What has changed since the look before the call. Empty: nothing."""
    if group.is_updating:
        return "HyperPod has changed the group at the last moment"
    first, second = ({node.name for node in each.with_jobs} for each in (before, group))
    if _is_held(plan) and (first != second or len(second) < group.current):
        return f"two lists differ: HyperPod lists {len(first)} and {len(second)} of {group.current} nodes"
    return ""


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, HyperPodError) else aws.sentence(error)


def _is_passing(error: Exception) -> bool:
    return error.is_passing if isinstance(error, DrainError) else aws.is_passing(error)


def update_request(cluster: str, plan: Plan) -> dict[str, Any]:
    """UpdateClusterSoftware for one group."""
    release = {"ImageReleaseVersion": plan.wanted} if is_release(plan.wanted) else {}
    image = {} if release or plan.wanted == LATEST else {"ImageId": plan.wanted}
    rolling = {} if plan.rolling is None else {"DeploymentConfig": dict(plan.rolling)}
    return {
        "ClusterName": cluster,
        "InstanceGroups": [{"InstanceGroupName": plan.group, **release}],
        **rolling,
        **image,
    }


def is_busy(error: Exception) -> bool:
    """Whether HyperPod refuses the update only for now, because another operation is in progress."""
    if api.code(error) == "ConflictException":
        return True
    return api.code(error) == "ValidationException" and "in progress" in api.reason(error).lower()


def _was_retried(error: Exception) -> bool:
    """botocore had sent the call before, without an answer: what is in progress may be its own."""
    meta = (getattr(error, "response", None) or {}).get("ResponseMetadata") or {}
    return bool(meta.get("RetryAttempts"))


def _refusal(error: Exception) -> str:
    sentence = aws.sentence(error)
    if api.code(error) == "ValidationException" and "image" in sentence.lower():
        return f"{sentence}. If the group runs an AMI of your own, name the new one by --image-id"
    return sentence
