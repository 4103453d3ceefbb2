"""The contract of scale-down, as a judge of one lifetime. It knows what was true, and which party did what when.

A fault breaks the contract. An unavoidable case is counted under a name. This file decides who is judged and when; the
rules are beside it, by what they judge: updates, deletions, terminations, software_changes, answers and expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .answers import failed_rollback, faults_of_sentence, faults_of_success
from .causes import Cause, Rules, verdict_of
from .cloudformation import ClusterUpdate, Deployment
from .deletions import FromGroup, Order, Rank, limited, out_of_order, overtaken, was_chosen
from .exemptions import Seen, SentCount, not_called
from .expected import Expected, Result
from .function import FINALIZE, PREPARE, Killed, Look, Request, Write
from .hyperpod import Ending, Lowering, Node
from .properties import counts_of
from .software import Dropped, ReImaging
from .software_changes import patching_dropped, re_imaged
from .terminations import LateLowering, by_cloudformation, by_function, last_look, only_hyperpod_asked
from .updates import FunctionsCount, group_deletion, left_out, specification

if TYPE_CHECKING:
    from .lifetime import Lifetime
    from .readiness import Readiness

__all__ = ["Cause", "Expected", "Judge"]


class Judge:
    def __init__(self, life: Lifetime) -> None:
        self.life = life
        self.faults: list[str] = []
        self.unavoidable: Counter[str] = Counter()
        self.readiness: Readiness | None = None
        """Nodes are drained before they are deleted."""
        self._seen = self._seen_images = self._seen_dropped = 0
        self._explicit: dict[str, list[tuple[float, object]]] = {}
        """Counts that the function or CloudFormation sent, by group."""

    def fault(self, kind: str, text: str) -> None:
        self.faults.append(f"{kind}: {text}")
        self.life.tell(f"!!! {kind}: {text}")

    def spare(self, name: Cause) -> None:
        self.unavoidable[name.value] += 1
        self.life.tell(f"(!) unavoidable: {name}")

    def decide(self, rules: Rules, text: object) -> None:
        verdict = verdict_of(rules)
        if isinstance(verdict, Cause):
            self.spare(verdict)
        elif verdict:
            self.fault(verdict, str(text))

    def find(self, faults: Iterable[tuple[str, str]]) -> None:
        for kind, text in faults:
            self.fault(kind, text)

    # -- calls --

    def update_is_asked_for(self, write: Write, shown: Mapping[str, Mapping[str, Any]]) -> None:
        """The function calls UpdateCluster. Whatever the result, it knew what it had read."""
        for name in write.groups:
            if shown.get(name, {}).get("Status") == "Deleting":
                self.fault("a group that is being deleted is asked for again", f"{write.request}: {name}")

    def update_was_sent(self, write: Write, was: Mapping[str, Any]) -> None:
        """An UpdateCluster of the function took effect."""
        request, look = write.request, write.look
        self._over(write, "UpdateCluster")
        for name in write.groups:
            if request.kind != FINALIZE:
                self.fault("prepare deletes a group", f"{request}: {name}")
            self.decide(group_deletion(self.life, write, name), f"{request}: {name}")
        if write.counts and look is not None and look.wrote_since:
            self.fault("UpdateCluster without another look after a change", str(request))
        for name, count in write.counts.items():
            self._count_sent(write, name, count)
        if write.specs and request.old is None and request.kind == PREPARE:
            self.fault("UpdateCluster without old properties", str(request))
        for spec in write.specs:
            name = spec["InstanceGroupName"]
            self.decide(specification(self.life, request, spec, was.get(name)), f"{request}: {name}")

    def _count_sent(self, write: Write, name: str, count: int) -> None:
        self._explicit.setdefault(name, []).append((write.at, write))
        request, look = write.request, write.look
        if look is None or name not in look.measures:
            self.fault("UpdateCluster without a look", f"{request} sends {name}={count}")
            return
        sent = FunctionsCount(self.life, request, look, name, write, count)
        self.decide(sent.raised(), sent)
        if request.kind == PREPARE:  # finalize sends what CloudFormation sent right before.
            for rules in (sent.stale_count(), sent.leaving_nodes(), sent.autoscaler()):
                self.decide(rules, sent)

    def batch_delete_was_sent(self, write: Write) -> None:
        """A BatchDeleteClusterNodes of the function deleted nodes."""
        request = write.request
        self._over(write, "BatchDelete")
        if self.readiness:
            self.readiness.nodes_taken(write)
        if request.kind == FINALIZE:
            self.fault("finalize takes nodes", str(request))
        if write.look is None:
            self.fault("BatchDelete without a look", str(request))
            return
        if request.rollback and not request.deployment.reached:
            self._taken_before_the_update(request)
        named = set() if request.rollback else set(request.new["NodesToDelete"])
        counts = counts_of(request.new)
        for name in dict.fromkeys(node.group for node in write.took):
            took = [node for node in write.took if node.group == name]
            if name not in counts:
                self.fault("nodes of a group that is not in the template", f"{request}: {name}")
                continue
            self._taken(write, name, counts[name], took, named)
            for by in overtaken(self.life, write, name):
                self.fault("takes nodes of a group that another operation lowers", f"{request}: {name}, {by}")
        total = 0 if request.rollback else limited(self.life, request)
        if total > int(request.new["MaxNodes"]) and request.left_out:
            self.spare(Cause.LEFT_OUT)
        elif total > int(request.new["MaxNodes"]):
            self.fault("more than max_nodes", f"{request}: {total}")

    def _taken(self, write: Write, name: str, count: int, took: Sequence[Node], named: set[str]) -> None:
        look = write.look
        if look is None or name not in look.measures:
            self.fault("BatchDelete without a look", f"{write.request}: {name}")
            return
        case = FromGroup(self.life, write.request, look, name, write, count, took, named)
        for rules in (case.by_autoscaler(), case.number_by_count(), case.number_by_name(), case.age()):
            self.decide(rules, case)

    def _taken_before_the_update(self, request: Request) -> None:
        if self._left_in_failure(request):
            self.spare(Cause.BACK_TO_TWO)
        else:
            self.fault("a rollback takes nodes though the cluster was not reached", str(request))

    def _left_in_failure(self, request: Request) -> bool:
        """Earlier deployments reached the cluster, and were left failed.

        It is not documented whether a rollback sends the cluster back beyond them.
        """
        earlier = reversed(self.life.stack.deployments[: request.deployment.number - 1])
        called = [each for each in earlier if each.outcome != "no changes"]  # Otherwise CloudFormation was not called.
        ended = next((each for each in called if each.reached or not each.outcome.startswith("failed")), None)
        return ended is not None and ended.outcome.startswith("failed")

    def cluster_update_is_sent(self, update: ClusterUpdate, gone: Iterable[str]) -> None:
        """CloudFormation's handler is about to call UpdateCluster."""
        for name in update.counts:
            self._explicit.setdefault(name, []).append((self.life.clock.now, update))
        for name in () if update.rollback else gone:
            self.decide(left_out(self.life, update, name), f"CloudFormation deletes {name}, which nobody named")

    def _over(self, write: Write, what: str) -> None:
        if write.over:
            self.fault("a change for a deployment that is over", f"{write.request}: {what}")
        elif write.request.over:
            self.spare(Cause.CANCELLED_BEFORE_OUR_CALL)

    # -- what ended --

    def look_at_endings(self) -> None:
        endings, software = self.life.pod.endings, self.life.pod.software
        for ending in endings[self._seen :]:
            self._ended(ending)
        for made in software.re_images[self._seen_images :]:
            self._re_imaged(made)
        for dropped in software.dropped[self._seen_dropped :]:
            self._patching_dropped(dropped)
        self._seen, self._seen_images = len(endings), len(software.re_images)
        self._seen_dropped = len(software.dropped)

    def _ended(self, ending: Ending) -> None:
        launched = ending.node.id is not None
        match ending.how, ending.by:
            case "at random", "function" if launched:
                self._function_at_random(ending)
            case "at random", "cloudformation" if launched:
                self._cloudformation_at_random(ending)
            case "late lowering", _ if launched:
                self._late_lowering(ending)
            case "minimum's rollback", _ if launched and ending.call == "function":
                self.fault("a minimum that the function sent is taken back", f"{ending.node.name}")
            case "minimum's rollback", _ if launched:
                self.spare(Cause.MINIMUM_TIMED_OUT)
            case "with its group", _ if self.readiness:
                self.readiness.group_deleted(ending)

    def _function_at_random(self, ending: Ending) -> None:
        write, name = ending.call, ending.node.group
        assert isinstance(write, Write)
        request, look, count = write.request, write.look, write.counts[name]
        what = f"{request}: {ending.node.name} of {name}, by UpdateCluster {name}={count}"
        if look is None or name not in look.measures:
            self.fault("the function ends a node at random, without a look", what)
            return
        sent = SentCount(self.life, request, look, name, count)
        self.decide(by_function(sent, write, ending), f"{what}; it saw {sent.then}, then {write.before[name]}")

    def _cloudformation_at_random(self, ending: Ending) -> None:
        update, name = ending.call, ending.node.group
        assert isinstance(update, ClusterUpdate)
        how, prepare, count = "rollback" if update.rollback else "update", update.before, update.counts[name]
        what = f"{ending.node.name} of {name}, by the cluster's {how} to {count}"
        look = last_look(prepare, drains=self.readiness is not None) if prepare else None
        if prepare is None:
            self.spare(not_called(self.life, update))
        elif look is None:
            self.fault("CloudFormation ends a node at random, and prepare had not looked", what)
        else:
            sent = SentCount(self.life, prepare, look, name, count)
            self.decide(by_cloudformation(sent, update, ending), f"{what}; prepare saw {look.measures.get(name)}")

    def _late_lowering(self, ending: Ending) -> None:
        assert isinstance(ending.call, Lowering)
        explicit = self._explicit.get(ending.node.group, ())
        rules = LateLowering(self.life, ending, ending.call, explicit).rules()
        self.decide(rules, f"{ending.node.name} of {ending.node.group}")

    def _re_imaged(self, made: ReImaging) -> None:
        what = f"{made.node.name} of {made.node.group} from {made.before} to {made.after}"
        if made.by == "function":
            self.fault("the function re-images a node", what)
        elif made.by == "cloudformation":
            assert isinstance(made.call, ClusterUpdate)
            self.decide(re_imaged(self.life, made.call, made), what)

    def _patching_dropped(self, dropped: Dropped) -> None:
        call, what = dropped.call, f"{dropped.setting} of {dropped.group}, by {dropped.by}"
        if dropped.by not in ("function", "cloudformation"):
            return
        if dropped.alone:
            self.spare(Cause.DELETED_ALONE)
        elif isinstance(call, ClusterUpdate):
            self.decide(patching_dropped(self.life, call, dropped), what)
        elif isinstance(call, Write) and self.life.actors.since(call.look.since if call.look else 0.0, dropped.group):
            self.spare(Cause.CHANGED_BEFORE_OUR_CALL)
        else:
            self.fault("the function turns patching off", what)

    # -- requests and deployments --

    def request_ended(self, request: Request) -> None:
        """CloudFormation has its answer, or no longer waits for one."""
        if request.over:
            return
        if self.readiness:
            self.readiness.request_ended(request)
        if not request.done or request.reason == "Operation timed out":
            self.fault("no answer within CloudFormation's hour", str(request))
        elif request.succeeded:
            self.find(faults_of_success(self.life, request))
        else:
            self._failed(request)

    def _failed(self, request: Request) -> None:
        killed = isinstance(request.error, Killed)
        if not killed:
            self.find(faults_of_sentence(request))
        if request.rollback:
            text = f"{request}: {request.reason[:300]}"
            self.decide(failed_rollback(self.life, request, killed=killed), text)

    def lifetime_ended(self) -> None:
        """Nothing was requested any more, for longer than a node may be held."""
        if self.readiness:
            self.readiness.lifetime_ended()

    def same_again(self, deployment: Deployment) -> None:
        """The file was deployed before with success, and nothing has interfered since: prepare changes nothing."""
        for request in deployment.requests:
            if request.kind == PREPARE and not request.rollback and request.writes:
                write = request.writes[0]
                named = ", ".join(node.name for node in write.took) or str(write.counts)
                self.fault("the same again makes a change", f"{deployment.what}: {write.kind} {named}")

    def destroyed(self, deployment: Deployment) -> None:
        """Its own requests change nothing.

        The polls of a cancelled update may continue meanwhile, and are judged separately.
        """
        if any(request.writes for request in deployment.requests):
            self.fault("a deletion changes the cluster", deployment.what)

    def deployment_ended(self, deployment: Deployment, expected: Expected | None) -> None:
        """`expected`: the required result; absent: something interfered."""
        self.look_at_endings()
        for write in [write for request in deployment.requests for write in request.writes if write.look is not None]:
            for name in dict.fromkeys(node.group for node in write.took):
                self._order(write, name)
        first = next((r for r in deployment.requests if r.kind == PREPARE and not r.rollback), None)
        if expected is None or expected.doubtful or first is None or first.over:
            return
        result = Result(self.life, deployment, expected, first)
        self.decide(result.rules(), result)
        self.find(result.faults_of_success())

    def _order(self, write: Write, name: str) -> None:
        """No node stays that should have been deleted before one that was, by the current state or by that of the first
        look."""
        look, request = write.look, write.request
        assert look is not None
        then = self._ranks(write, name, request.first_look) if request.first_look else {}
        # A node that was not launched when it was requested may have another name now.
        nodes = self.life.pod.ever.values()
        asked = {node.name for node in nodes if {node.id, node.logical} & request.asked[look.at]}
        now = self._ranks(write, name, look)
        wrong = out_of_order([node.name for node in write.took], now, asked)
        faults = [pair for pair in wrong if not was_chosen(pair, now, then, request.drained)]
        if wrong and name in request.left_out:
            self.spare(Cause.LEFT_OUT)
        elif faults:
            gone, stays = faults[0]
            self.fault("the wrong order", f"{request}: {gone} of {name} goes, {stays} stays")

    def _ranks(self, write: Write, name: str, look: Look) -> dict[str, Rank]:
        known = self.readiness.heard(write.request, look) if self.readiness else {}
        return Order(self.life, write, look, name, known).ranks()

    # -- single predicates, for the tests of exemptions --

    def _hidden(self, look: Look, name: str, count: int, request: Request) -> str | None:
        return verdict_of(SentCount(self.life, request, look, name, count).hidden())

    def _stale(self, look: Look, name: str, request: Request) -> int:
        return Seen(self.life, request, look, name).stale()

    def _asked_for_since(self, write: Write, name: str, count: int) -> bool:
        assert write.look is not None
        assert write.look is not None
        return only_hyperpod_asked(SentCount(self.life, write.request, write.look, name, count), write)
