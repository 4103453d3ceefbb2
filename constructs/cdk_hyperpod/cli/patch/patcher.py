"""Carries a patch out: looks, does the next step, and looks again, group by group. It alone changes something."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..._lambda.hyperpod.common import api
from ..._lambda.hyperpod.scale_down.images import is_release
from ...errors import HyperPodError
from .. import aws, live, tables
from ..nodes.operator_channel import DrainError
from .drains import DrainerDrains, Drains
from .model import LATEST, Group, Node, Plan, Progress, Report, Run, Terms, Way
from .reading import Calls, Reader
from .run_record import AnotherRunError, LocalRecord
from .steps import DONE, HAS_FAILED, Case, Finish, Relist, Step, Stop, Update, Wait, next_step

POLL_S = 60.0
"""Seconds between two looks of three calls each."""
CALL_S = 15.0
"""Seconds for each call of a look that has more of them: at most four calls a minute."""
LIST_S = 120.0
"""Seconds for each page of nodes between two lists of a group: 6,758 nodes take 68 calls."""
QUIET_S = 1800.0
"""How long nothing is printed while only numbers change."""
FAILED_LOOKS = 5
"""Failed looks in a row after which it gives up. Each call was tried several times (aws.ATTEMPTS)."""
UPDATE_LIMIT_S = 24 * 3600.0
"""How long nodes are held while HyperPod updates them, at most."""

GO_ON = "Run the same command again: it goes on from there, and releases them"

Emit = Callable[[str, Sequence[str], Mapping[str, Any]], None]
"""Print lines for people, or a document for programs: its kind, the lines, and its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a patch has ended."""

    code: int
    why: str = ""
    patched: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Nodes on the old image, of a group that is partly updated."""
    unpatched: tuple[str, ...] = ()
    """Groups that it has not patched."""
    reasons: tuple[str, ...] = ()
    """What HyperPod's events say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The times of the options, in seconds."""

    drain_for_s: float
    force_s: float | None
    must_save: bool
    unconfirmed_controller: bool
    """The user has not confirmed what the controller loses."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look has read."""

    described: live.Reply
    group: Group | None
    report: Report
    deployment: str
    reads_stack: bool
    """False: the lease was renewed, and the stack was not read besides."""


@dataclass
class Patcher:
    """One run of `patch`, from the confirmation on."""

    reader: Reader
    calls: Calls
    drains: Drains
    local: LocalRecord
    run: Run
    limits: Limits
    emit: Emit
    _said: str = ""
    _said_at: float = 0.0
    _listed_at: float = 0.0
    _counts: tuple[int, int] | None = None
    """Counts of the group when its nodes were listed last."""
    _failed_looks: int = 0
    _has_read_stack: bool = False
    _doubts: bool = False
    """The last look found nodes on the old image."""
    _plan: Plan | None = None
    """The group that it patches now."""
    has_released: bool = False
    """At its end it holds no node."""

    @staticmethod
    def wait(seconds: float) -> None:
        """Until the next look."""
        time.sleep(seconds)

    def patch(self, plans: Sequence[Plan]) -> Outcome:
        """Patch the groups in their order, until one fails. Releases what it holds, however it ends."""
        patched: list[str] = []
        finished = False
        self.calls.made = 0
        try:
            for plan in plans:
                stop = self._patch_group(plan)
                if stop is not None:
                    return self._stopped(stop, plan, plans, patched)
                patched.append(plan.group)
            finished = True
        except (HyperPodError, *api.CALL_ERRORS) as error:
            why = _words(error)
            left = tuple(each.group for each in plans if each.group not in patched)
            return Outcome(code=HAS_FAILED, why=why, patched=tuple(patched), unpatched=left)
        finally:
            self._end(finished=finished)
        return Outcome(code=DONE, patched=tuple(patched))

    def _stopped(self, stop: Stop, plan: Plan, plans: Sequence[Plan], patched: Sequence[str]) -> Outcome:
        progress = self._progress(plan)
        reasons: list[str] = []
        if progress.sent is not None:
            since = max(progress.sent, progress.began)
            with suppress(HyperPodError, *api.CALL_ERRORS):
                reasons = self.reader.reasons(self.reader.describe(), plan.group, since)
        # What failed begins anew with the next run.
        self.run = replace(self.run, groups={name: each for name, each in self.run.groups.items() if each.done})
        return Outcome(
            code=stop.code,
            why=stop.why,
            patched=tuple(patched),
            left=stop.left,
            unpatched=tuple(each.group for each in plans if each.group not in patched),
            reasons=tuple(reasons),
        )

    def _end(self, *, finished: bool) -> None:
        """Release the nodes. An unfinished run leaves its record, and the end of its lease."""
        left = replace(self.run, until=self.drains.now())
        self.local.write(None if finished else left)
        if self._may_be_updating:
            # Jobs would start on them, and end with the old image.
            tables.complain("the nodes stay held, because HyperPod replaces their image. " + GO_ON)
            return
        try:
            self.drains.release(left, finished=finished)
            self.has_released = True
        except AnotherRunError:
            return  # the other process holds them now
        except (HyperPodError, *api.CALL_ERRORS) as error:
            tables.complain(f"the nodes were not released: {_words(error)}. {self._released_by_itself()}")

    @property
    def _may_be_updating(self) -> bool:
        """Whether it stops while HyperPod replaces the image of drained nodes, as far as it knows."""
        plan = self._plan
        if plan is None or plan.way not in (Way.AGENT, Way.DRAINER):
            return False
        return plan.group in self.run.updating

    def _released_by_itself(self) -> str:
        if isinstance(self.drains, DrainerDrains):
            return "Run the same command again, or see docs/drain-eks.md, Nodes that stay cordoned"
        return "The drain agent releases them within 10 minutes"

    # -- one group --------------------------------------------------------------------------------------------------

    def _patch_group(self, plan: Plan) -> Stop | None:
        """Returns why it stops. None: the group is patched."""
        self._plan, self._said, self._counts, self._doubts = plan, "", None, False
        if plan.group not in self.run.groups or self._is_long_over(plan):
            self._note(plan, Progress(began=self.drains.now()))
        while True:
            step = self._look_and_decide(plan)
            if isinstance(step, Update):
                step = self._try_to_update(plan)
            if isinstance(step, Stop):
                return step
            if isinstance(step, Finish):
                self._finish(plan, step)
                return None
            if isinstance(step, Wait):
                self._doubts = step.doubts
                self._say(plan.group, step.why)
            self._pause()

    def _is_long_over(self, plan: Plan) -> bool:
        """A process that was killed has left a drain whose time is over by now: it begins anew."""
        progress = self._progress(plan)
        return progress.sent is None and self.drains.now() >= progress.began + self.limits.drain_for_s

    def _look_and_decide(self, plan: Plan) -> Step:
        """The next step. A look that fails is repeated some times."""
        try:
            look = self._look(plan)
            step = next_step(self._case(plan, look, fresh=False))
            if isinstance(step, Relist):
                step = self._decide_by_a_list(plan, look)
            if isinstance(step, Update) and not look.reads_stack:
                return Wait("looks once more for a deployment")
        except (HyperPodError, *api.CALL_ERRORS) as error:
            return self._after_failed_look(plan, error)
        self._failed_looks = 0
        return step

    def _decide_by_a_list(self, plan: Plan, look: _Look) -> Step:
        self._list(plan, look.described)
        fresh = replace(look, group=self._group(look.described, plan))
        return next_step(self._case(plan, fresh, fresh=True))

    def _after_failed_look(self, plan: Plan, error: Exception) -> Step:
        if isinstance(error, live.NoClusterError):
            return Stop(HAS_FAILED, "the cluster was deleted meanwhile")
        self._failed_looks += 1
        is_passing = error.is_passing if isinstance(error, DrainError) else aws.is_passing(error)
        if self._failed_looks >= FAILED_LOOKS or not is_passing:
            raise error
        return Wait(f"a look failed and will be repeated: {_words(error)}")

    def _look(self, plan: Plan) -> _Look:
        described = self.reader.describe()
        group = self._group(described, plan)
        if self._counts is None and group is not None:
            self._counts, self._listed_at = (group.current, group.target), self.drains.now()
        if group is not None:
            self._note_what_is_live(plan, group)
        # A look has four calls at most: the next one reads the stack again.
        reads_stack = not (self.drains.is_due() and self._has_read_stack)
        deployment = self.reader.deployment(described) if reads_stack else ""
        self._has_read_stack = reads_stack
        return _Look(described, group, self._hold(plan, group, deployment), deployment, reads_stack)

    def _group(self, described: live.Reply, plan: Plan) -> Group | None:
        return next((group for group in self.reader.groups(described) if group.name == plan.group), None)

    def _list(self, plan: Plan, described: live.Reply) -> None:
        before = self.calls.made
        self.reader.list_group(described, plan.group)
        self.calls.made = before
        group = self._group(described, plan)
        self._counts = None if group is None else (group.current, group.target)
        self._listed_at = self.drains.now()

    def _note_what_is_live(self, plan: Plan, group: Group) -> None:
        """An update that is under way is this run's, whoever sent it."""
        progress = self._progress(plan)
        if not group.is_updating or progress.seen:
            return
        sent = 0.0 if progress.sent is None else progress.sent
        self._note(plan, replace(progress, sent=sent, accepted=True, seen=True))

    def _hold(self, plan: Plan, group: Group | None, deployment: str) -> Report:
        """Hold the nodes, which renews the lease, and read the report."""
        is_drained = plan.way in (Way.AGENT, Way.DRAINER)
        if not is_drained and isinstance(self.drains, DrainerDrains):
            # It would release the nodes that it is not asked to hold, and there are none.
            return Report()
        if group is None or deployment:
            # The guard requests its own drains now. Under Slurm the looks that do not read the stack renew the lease.
            return Report()
        nodes = self._nodes_to_hold(plan, group) if is_drained else ()
        return self.drains.hold(self.run, nodes, self._terms(plan))

    def _nodes_to_hold(self, plan: Plan, group: Group) -> tuple[Node, ...]:
        if self._progress(plan).sent is None:
            return group.running
        return tuple(node for node in group.nodes if node.id and node.status not in ("ShuttingDown", "Failure"))

    def _terms(self, plan: Plan) -> Terms:
        progress = self._progress(plan)
        until = progress.began + self.limits.drain_for_s
        if progress.sent is not None:
            # The nodes stay held while HyperPod is at work, whatever --drain-for says.
            end = max(progress.sent, progress.began) + UPDATE_LIMIT_S
            return Terms(deadline=end, force=False, until=end)
        force = self.limits.force_s
        deadline = until if force is None else progress.began + force
        return Terms(deadline=deadline, force=force is not None, until=until)

    def _case(self, plan: Plan, look: _Look, *, fresh: bool) -> Case:
        group, now = look.group, self.drains.now()
        pages = 1 if group is None else len(group.nodes) // live.PAGE_SIZE + 1
        return Case(
            plan=plan,
            group=group,
            progress=self._progress(plan),
            report=look.report,
            terms=self._terms(plan),
            now=now,
            deployment=look.deployment,
            fresh=fresh,
            may_list=now - self._listed_at >= LIST_S * pages,
            is_resized=group is not None and (group.current, group.target) != self._counts,
            doubted=self._doubts,
            must_save=self.limits.must_save,
            needs_empty_queue=plan.is_controller and self.limits.unconfirmed_controller,
        )

    # -- what changes something ---------------------------------------------------------------------------------------

    def _try_to_update(self, plan: Plan) -> Step:
        """Send the update, and report what became of it."""
        try:
            return self._update(plan)
        except (HyperPodError, *api.CALL_ERRORS) as error:
            return self._after_failed_look(plan, error)
        finally:
            self.calls.made = 0

    def _update(self, plan: Plan) -> Wait:
        """Send UpdateClusterSoftware. The record is written before, so that whoever goes on knows that it may have arrived."""
        group = self._group(self.reader.describe(), plan)
        before = self._progress(plan)
        sent = replace(
            before, sent=self.drains.now(), before=None if group is None else group.software, accepted=False, seen=False
        )
        self._note(plan, sent)
        self.drains.save(self.run)
        try:
            self.reader.target.client("sagemaker").update_cluster_software(
                **update_request(self.reader.target.name, plan)
            )
        except api.CALL_ERRORS as error:
            return self._after_failed_update(plan, before, error)
        self._note(plan, replace(sent, accepted=True))
        self.drains.save(self.run)
        return Wait("HyperPod has accepted the update")

    def _after_failed_update(self, plan: Plan, before: Progress, error: Exception) -> Wait:
        """Raises DrainError unless the same call may succeed later."""
        if aws.is_gone(error):
            # The next look finds that the group was deleted.
            self._note(plan, before)
            return Wait(aws.sentence(error))
        if not is_busy(error) and not aws.is_passing(error):
            self._note(plan, before)
            raise DrainError(f"{plan.group}: {_refusal(error)}")
        if is_busy(error):
            self._note(plan, before)
        if self.drains.now() >= before.began + self.limits.drain_for_s:
            raise DrainError(f"{plan.group}: the time of --drain-for is over; {aws.sentence(error)}")
        if is_busy(error):
            return Wait(f"HyperPod is busy, and the update is sent again: {aws.sentence(error)}")
        # The call may have arrived. The next look shows it, or sends it again.
        return Wait(f"the update will be sent again: {aws.sentence(error)}")

    def _finish(self, plan: Plan, step: Finish) -> None:
        """The group is patched: release its nodes, so that they work again."""
        self._note(plan, replace(self._progress(plan), done=True))
        if not (isinstance(self.drains, DrainerDrains) and plan.way is not Way.DRAINER):
            self.drains.release(self.run, finished=False)
        note = f" ({step.note})" if step.note else ""
        self._say(plan.group, f"patched{note}")

    # -- the record, and what is printed ------------------------------------------------------------------------------

    def _progress(self, plan: Plan) -> Progress:
        return self.run.groups.get(plan.group) or Progress(began=self.drains.now())

    def _note(self, plan: Plan, progress: Progress) -> None:
        self.run = replace(self.run, groups={**self.run.groups, plan.group: progress})
        self.local.write(self.run)

    def _say(self, group: str, text: str) -> None:
        """Print it, unless only numbers differ from what was printed last, half an hour ago or later."""
        words, now = re.sub(r"\d+", "", f"{group}: {text}"), self.drains.now()
        if words == self._said and now - self._said_at < QUIET_S:
            return
        self._said, self._said_at = words, now
        line = f"{tables.now():%H:%M:%S} {group}: {tables.shown(text)}"
        self.emit("step", [line], {"group": group, "text": tables.shown(text)})

    def _pause(self) -> None:
        made, self.calls.made = self.calls.made, 0
        self.wait(max(POLL_S, made * CALL_S))


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, HyperPodError) else aws.sentence(error)


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


def _refusal(error: Exception) -> str:
    sentence = aws.sentence(error)
    if api.code(error) == "ValidationException" and "image" in sentence.lower():
        return f"{sentence}. If the group runs an AMI of your own, name the new one by --image-id"
    return sentence
