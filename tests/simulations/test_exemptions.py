"""The exemptions of the judge, each with a counterexample without the action, switch or time that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from helpers.simulations.scenarios import NEW, OLD, drained, goes, kinds, lifetime, look, request, spec, write
from simulations.lifetimes.actors import Deed
from simulations.lifetimes.cloudformation import STACK, TAG, ClusterUpdate, Deployment, Template
from simulations.lifetimes.draining import Heard, Policy, Undone
from simulations.lifetimes.function import FINALIZE, PREPARE, Calls, Request
from simulations.lifetimes.hyperpod import Ending, How, Lowering, Measure, Node, Operation, Who
from simulations.lifetimes.judge import Cause, Expected
from simulations.lifetimes.lifetime import Lifetime
from simulations.lifetimes.software import Dropped, ReImaging, ami
from simulations.lifetimes.switches import Operations


def ends(life: Lifetime, node: Node, at: float, how: How, by: Who, call: object = None) -> Ending:
    return Ending(node, at, how, by, call, life.pod.groups[node.group])


def sends(life: Lifetime, made: Request, sent: Mapping[str, Any], live: Mapping[str, Any]) -> list[str]:
    found = write(made, look(life))
    found.counts, found.specs = {"p5": 3}, [dict(sent)]
    life.judge.update_was_sent(found, {"p5": live})
    return [kind for kind in kinds(life.judge.faults) if kind.startswith("UpdateCluster with another")]


def test_a_rollback_may_send_what_the_group_goes_back_to() -> None:
    before, after = spec(4, ThreadsPerCore=1), spec(3, ThreadsPerCore=2)
    life = lifetime()
    back = request(life, rollback=True)
    back.new["Groups"] = Template(groups=(before,)).properties(PREPARE)["Groups"]
    assert not sends(life, back, before, after)
    life = lifetime()
    assert sends(life, request(life), before, after), "an update may not"


def test_prepare_and_the_cluster_that_went_back_to_two_templates_are_spared() -> None:
    life = lifetime()
    assert sends(life, request(life), spec(3, ThreadsPerCore=2), spec(4))
    life = lifetime()
    life.stack.known[PREPARE] = Template(groups=(spec(3, ThreadsPerCore=2),))
    assert not sends(life, request(life), spec(3, ThreadsPerCore=2), spec(4))
    assert life.judge.unavoidable == {Cause.BACK_TO_TWO: 1}


@pytest.mark.parametrize(
    ("outcomes", "reached", "spared"),
    [
        (["failed, left as it is"], True, True),
        (["failed, left as it is", "no changes"], True, True),
        (["failed, left as it is", "succeeded"], True, False),
        (["failed, left as it is"], False, False),
        (["succeeded"], True, False),
        ([], False, False),
    ],
)
def test_a_rollback_behind_a_deployment_that_was_left_in_failure(
    outcomes: list[str], reached: bool, spared: bool
) -> None:
    """It may return the cluster too, which is not documented."""
    life = lifetime()
    for number, outcome in enumerate(outcomes, 1):
        found = Deployment(number, OLD, NEW, "none", False, 0.0, "before", outcome=outcome)
        found.reached = reached and outcome != "no changes"
        life.stack.deployments.append(found)
    back = request(life, rollback=True, number=len(life.stack.deployments) + 1)
    life.stack.deployments.append(back.deployment)
    back.new["Groups"] = NEW.properties(PREPARE)["Groups"]
    life.judge.batch_delete_was_sent(write(back, look(life), life.pod.groups["p5"].nodes[3]))
    taken = [kind for kind in kinds(life.judge.faults) if kind.startswith("a rollback takes nodes")]
    assert bool(taken) is not spared
    assert life.judge.unavoidable[Cause.BACK_TO_TWO] == spared


def test_nodes_chosen_by_the_first_poll_stay_chosen() -> None:
    life = lifetime()
    made = request(life)
    made.first_look = look(life, at=996.0)
    nodes = life.pod.groups["p5"].nodes
    failed_since = write(made, look(life, n2="Failure"), nodes[3])
    life.judge._order(failed_since, "p5")
    assert not life.judge.faults
    made.first_look = look(life, at=996.0, n2="Failure")
    life.judge._order(failed_since, "p5")
    assert kinds(life.judge.faults) == ["the wrong order"], "it had failed before"


@pytest.mark.parametrize("asked", [True, False])
def test_a_request_that_was_launched_before_its_call_keeps_its_place(asked: bool) -> None:
    """It was requested by its logical id, which HyperPod no longer knew. Now it has another name, and stays."""
    life = lifetime()
    made = request(life)
    *_, newest, booted = life.pod.groups["p5"].nodes
    seen = look(life)
    booted.logical, seen.nodes[3]["NodeLogicalId"] = "n4", "n4"
    del seen.nodes[3]["InstanceId"]
    life.pod.ever = {node.logical: node for node in life.pod.groups["p5"].nodes}
    written = write(made, seen, newest)
    made.asked[seen.at] |= {"n4"} if asked else set()
    life.judge._order(written, "p5")
    assert bool(life.judge.faults) is not asked


def test_a_replacement_of_a_deleted_node_may_be_deleted_beyond_the_expected_count() -> None:
    for requested, faults in ((990.0, ["not the expected number of nodes"]), (999.0, [])):
        life = lifetime(lowering="late, absolute")
        made = request(life)
        expected = Expected(life, OLD, NEW)
        assert expected.takes == {"p5": 1}
        came = Node("p5", "n9", requested, "hyperpod", id="i-9", launched=999.5, status="Running")
        write(made, look(life), life.pod.groups["p5"].nodes[3], came)
        made.succeeded, made.answered, made.data = True, 1000.0, {"NodesTaken": "i-4, i-9"}
        life.judge.deployment_ended(made.deployment, expected)
        assert [kind for kind in kinds(life.judge.faults) if kind.startswith("not the expected")] == faults


@pytest.mark.parametrize(
    ("status", "told", "fault"),
    [
        ("InService", 'Group "p5" with 4 nodes', ""),
        ("InService", "nothing", "a group stands in silence"),
        ("InService", 'HyperPod accepted the deletion of group "p5"', "tells of a deletion that is none"),
        ("Deleting", 'HyperPod accepted the deletion of group "p5"', ""),
        ("Deleting", 'Group "p5" with 4 nodes', "a group is being deleted in silence"),
        ("Deleting", "nothing", "a group is being deleted in silence"),
        ("", "nothing", ""),
    ],
)
def test_a_group_that_should_be_deleted_must_be_reported_while_it_exists(status: str, told: str, fault: str) -> None:
    """Unless another party created it meanwhile, or deleted it."""
    for deeds, expected in ([], [fault] if fault else []), ([Deed(997.0, "person", "makes the group", "p5")], []):
        life = lifetime()
        gone = replace(NEW, groups=(), groups_to_delete=("p5",))
        made = replace(request(life), kind=FINALIZE, new=gone.properties(FINALIZE), described=996.0)
        life.pod.groups["p5"].status = status
        if not status:
            del life.pod.groups["p5"]
        life.actors.deeds = deeds
        made.succeeded, made.data = True, {"StillStanding": told}
        life.judge.request_ended(made)
        assert kinds(life.judge.faults) == expected


@pytest.mark.parametrize(
    ("operations", "began", "lasts", "waited", "unwitnessed", "spared"),
    [
        ("told", 900.0, 800.0, 100.0, False, False),
        ("told", 900.0, 0.0, 100.0, False, True),
        ("denied", 900.0, 800.0, 100.0, False, True),
        ("another cluster's", 900.0, 800.0, 100.0, False, True),
        ("told", 996.0, 800.0, 0.0, False, True),
        ("told", 300.0, 800.0, 605.0, False, True),
        ("told", 900.0, 800.0, 100.0, True, True),
    ],
)
def test_nodes_of_a_group_that_anothers_operation_lowers(
    operations: Operations, began: float, lasts: float, waited: float, unwitnessed: bool, spared: bool
) -> None:
    """It may have begun with the function's own call, or last longer than the wait, or not be recorded."""
    life = lifetime(operations=operations, operations_lag=lasts)
    made = replace(request(life), unwitnessed=unwitnessed)
    made.heard -= waited
    life.pod.operations.append(Operation("1", began, "person", {"p5": (5, 4)}, []))
    life.judge.batch_delete_was_sent(write(made, look(life), life.pod.groups["p5"].nodes[3]))
    assert ("takes nodes of a group that another operation lowers" in kinds(life.judge.faults)) is not spared


@pytest.mark.parametrize(
    ("requested", "rollback", "spared"), [(996.0, True, True), (980.0, True, False), (996.0, False, False)]
)
def test_a_rollback_takes_what_the_failed_update_launched_while_the_list_is_late(
    requested: float, rollback: bool, spared: bool
) -> None:
    """The list shows i-1 as it was, and the target is three already: an update waits."""
    life = lifetime()
    life.switches = life.pod.switches = replace(life.switches, list_lag=100.0)
    nodes = life.pod.groups["p5"].nodes
    made = request(life, rollback=rollback)
    made.new["Groups"], made.deployment.reached = NEW.properties(PREPARE)["Groups"], True
    life.pod.endings.append(ends(life, nodes[0], 990.0, "at random", "hyperpod"))
    nodes[3].requested = nodes[3].launched = requested
    found = write(made, look(life, target=3), nodes[3])
    found.before = {"p5": found.before["p5"]._replace(live=3)}
    life.judge.batch_delete_was_sent(found)
    assert ("more nodes than the count allows" in kinds(life.judge.faults)) is not spared
    assert life.judge.unavoidable[Cause.STALE_LIST] == spared


@pytest.mark.parametrize(
    ("launched", "requested", "by", "spared"),
    [
        (False, 996.0, "autoscaler", True),
        (False, 996.0, "person", True),
        (False, 996.0, "hyperpod", False),
        (False, 990.0, "autoscaler", False),
        (True, 996.0, "autoscaler", False),
    ],
)
def test_nodes_requested_by_others_meanwhile_may_exceed_max_nodes_in_place_of_unlaunched_ones(
    launched: bool, requested: float, by: Who, spared: bool
) -> None:
    """Two are deleted, and one may be. Another one was requested, and stays."""
    life = lifetime()
    made = request(life)
    made.new["MaxNodes"] = "1"
    took = life.pod.groups["p5"].nodes[2:]
    for node in took:
        node.id = node.id if launched else None
    life.pod.groups["p5"].nodes.append(Node("p5", "n9", requested, by))
    life.judge.batch_delete_was_sent(write(made, look(life), *took))
    assert ("more than max_nodes" in kinds(life.judge.faults)) is not spared


@pytest.mark.parametrize("left_out", [True, False])
def test_two_looks_that_leave_out_a_named_node_see_too_few_names(left_out: bool) -> None:
    life = lifetime()
    made = request(life)
    made.new["NodesToDelete"] = ["i-3", "i-4"]
    made.left_out = {"p5"} if left_out else set()
    life.judge.batch_delete_was_sent(write(made, look(life), *life.pod.groups["p5"].nodes[2:]))
    assert ("more names than the count allows" in kinds(life.judge.faults)) is not left_out


def test_a_new_guard_does_not_know_the_previous_settings() -> None:
    life = lifetime()
    autoscaled = replace(NEW, autoscaled=("p5",))
    same = replace(autoscaled, nodes_to_delete=("i-00000000",))
    assert not any("autoscaled" in why for why in Expected(life, autoscaled, same).refused)
    life.stack.known[PREPARE] = None
    assert any("autoscaled" in why for why in Expected(life, autoscaled, same).refused)


@pytest.mark.parametrize(
    ("lowering", "target", "stays"),
    [
        ("never", 4, True),
        ("late, absolute", 4, True),
        ("late, absolute", 3, False),
        ("late, relative", 4, False),
        ("at once", 4, False),
    ],
)
def test_a_target_that_two_late_lowerings_left_standing(lowering: str, target: int, stays: bool) -> None:
    life = lifetime(lowering=lowering, lowering_delay=20.0)
    made = request(life)
    expected = Expected(life, OLD, NEW)
    write(made, look(life), life.pod.groups["p5"].nodes[3])
    life.pod.groups["p5"].target = target
    life.clock.now = 1100.0
    made.succeeded, made.reason, made.answered = False, "It holds on to a target of 4.", 1100.0
    life.judge.deployment_ended(made.deployment, expected)
    assert (life.judge.unavoidable[Cause.STAYS] == 1) is stays
    assert ("a sound deployment fails" in kinds(life.judge.faults)) is not stays


@pytest.mark.parametrize(
    ("continuous", "minutes", "target", "spared"),
    [(False, 55, 5, True), (False, 30, 5, False), (True, 55, 5, False), (False, 55, 4, False)],
)
def test_a_standard_target_that_stands_until_the_deadline_of_a_rollback(
    continuous: bool, minutes: float, target: int, spared: bool
) -> None:
    life = lifetime(by_target=True, counts_leaving=False, counts_ended=False, only_on_a_fall=False)
    life.pod.continuous = continuous
    life.pod.ends_at_random = lambda measure, count: 1  # type: ignore[method-assign]
    back = request(life, rollback=True)
    back.look = look(life, target=target)
    back.began, back.answered = 1000.0 - 60 * minutes, 1000.0
    update = ClusterUpdate(back.deployment, True, 1001.0, back, {"p5": 4})
    node = life.pod.groups["p5"].nodes[0]
    life.judge._cloudformation_at_random(ends(life, node, 1001.0, "at random", "cloudformation", update))
    assert bool(life.judge.unavoidable[Cause.STANDARD_TARGET]) is spared
    assert bool(life.judge.faults) is not spared


def test_a_request_that_was_hidden_at_either_end_of_a_look() -> None:
    """An instance was launched between the two reads, and the nodes were read first."""
    life = lifetime(counts_leaving=False, counts_ended=False, only_on_a_fall=False, by_target=False)
    life.pod.continuous = True
    seen, made = look(life), request(life)
    before = {"p5": Measure(live=4, unlaunched=1, leaving=0, ended=0, target=4)}
    after = {"p5": Measure(live=4, unlaunched=0, leaving=0, ended=0, target=4)}
    seen = replace(seen, before=before, measures=after)
    assert life.judge._hidden(seen, "p5", 3, made) is None
    life.switches = life.pod.switches = replace(life.switches, unlaunched_listed=False)
    assert life.judge._hidden(seen, "p5", 3, made) is Cause.HIDDEN_UNLAUNCHED
    assert life.judge._hidden(replace(seen, before=after), "p5", 3, made) is None


@pytest.mark.parametrize("by_this_request", [True, False])
def test_a_stale_list_exempts_only_nodes_that_this_request_did_not_delete(by_this_request: bool) -> None:
    """It knows what it deleted itself, but not what an earlier request deleted, nor which node its count terminated."""
    life = lifetime()
    life.switches = life.pod.switches = replace(life.switches, list_lag=40.0)
    node = life.pod.groups["p5"].nodes[0]
    made, earlier = request(life), request(life)
    write(made if by_this_request else earlier, look(life), node)
    life.pod.endings.append(ends(life, node, 990.0, "named", "function"))
    assert life.judge._stale(look(life), "p5", made) == (not by_this_request)


@pytest.mark.parametrize(
    ("requested", "by", "spared"),
    [(999.5, "hyperpod", True), (998.0, "hyperpod", False), (999.5, "person", False), (1000.5, "hyperpod", False)],
)
def test_a_node_that_hyperpod_asks_for_between_a_look_and_the_call_that_follows_it(
    requested: float, by: Who, spared: bool
) -> None:
    """A running node is terminated instead, unless an update gives up requests first."""
    life = lifetime(
        counts_leaving=False, counts_ended=False, only_on_a_fall=False, by_target=False, unlaunched_first=False
    )
    life.pod.switches = life.switches
    life.pod.continuous = True
    life.pod.ever["n9"] = Node("p5", "n9", requested, by)
    sent = write(request(life), look(life))
    sent.before = {"p5": Measure(live=5, unlaunched=1, leaving=0, ended=0, target=5)}
    assert life.judge._asked_for_since(sent, "p5", 4) is spared


@pytest.mark.parametrize(("lowered", "spared"), [(999.9, True), (900.0, False)])
def test_a_target_that_a_late_lowering_moved_after_the_last_look(lowered: float, spared: bool) -> None:
    life = lifetime()
    life.pod.ends_at_random = lambda measure, count: 0  # type: ignore[method-assign]
    made = request(life)
    made.look, made.answered = look(life), 1000.0
    life.pod.groups["p5"].lowered.append((lowered, Lowering(lowered, "function")))
    update = ClusterUpdate(made.deployment, False, 1001.0, made, {"p5": 3})
    life.judge._cloudformation_at_random(
        ends(life, life.pod.groups["p5"].nodes[0], 1001.0, "at random", "cloudformation", update)
    )
    assert bool(life.judge.unavoidable[Cause.LATE_OVERWRITES]) is spared
    assert bool(life.judge.faults) is not spared


@pytest.mark.parametrize(
    ("by", "sent", "cause"),
    [
        ("person", (), Cause.LOWERED_TWICE),
        ("function", (995.0,), Cause.DOUBLE_LOWERING),
        ("function", (980.0,), None),
        ("function", (1003.0,), None),
        ("function", (), None),
    ],
)
def test_an_earlier_deletion_lowers_the_target_after_ours(
    by: Who, sent: tuple[float, ...], cause: Cause | None
) -> None:
    """A node that another party deleted, or that this function deleted and sent a count for, while the target did not
    fall."""
    life = lifetime()
    group, ours = life.pod.groups["p5"], Lowering(1000.0, "function")
    group.lowered = [(1001.0, Lowering(990.0, by)), (1002.0, ours)]
    life.judge._explicit["p5"] = [(at, write(request(life), look(life))) for at in sent]
    life.judge._late_lowering(ends(life, group.nodes[0], 1002.0, "late lowering", "hyperpod", ours))
    assert [Cause(name) for name in life.judge.unavoidable] == ([cause] if cause else [])
    assert bool(life.judge.faults) is (cause is None)


@pytest.mark.parametrize(
    ("lowering", "meanwhile", "requested", "by", "ended", "spared"),
    [
        ("late, absolute", 1001.0, 1001.0, "hyperpod", 1, True),
        ("late, absolute", 1001.0, 1001.0, "hyperpod", 2, False),
        ("late, absolute", 1001.0, 1000.5, "hyperpod", 1, False),
        ("late, absolute", 1001.0, 1001.0, "person", 1, False),
        ("late, absolute", 999.0, 1001.0, "hyperpod", 1, False),
        ("late, relative", 1001.0, 1001.0, "hyperpod", 1, False),
    ],
)
def test_an_earlier_deletion_of_ours_sets_the_target_back_before_a_later_one_lowers_it(
    lowering: str, meanwhile: float, requested: float, by: Who, ended: int, spared: bool
) -> None:
    """HyperPod requests a node in between, and terminates one for it. CloudFormation sends its count afterwards."""
    life = lifetime(lowering=lowering)
    group, ours = life.pod.groups["p5"], Lowering(1000.0, "function")
    group.lowered = [(meanwhile, Lowering(990.0, "function")), (1002.0, ours)]
    life.pod.ever["n9"] = Node("p5", "n9", requested, by)
    life.pod.endings += [ends(life, node, 1002.0, "late lowering", "hyperpod", ours) for node in group.nodes[:ended]]
    made = request(life)
    life.judge._explicit["p5"] = [(1003.0, ClusterUpdate(made.deployment, False, 1003.0, made, {"p5": 3}))]
    life.judge.look_at_endings()
    assert life.judge.unavoidable[Cause.LOWERED_TWICE] == (ended if spared else 0)
    assert bool(life.judge.faults) is not spared


@pytest.mark.parametrize("own", [True, False])
def test_polls_of_a_cancelled_update_go_on_while_the_stack_is_deleted(own: bool) -> None:
    life = lifetime()
    cancelled, deletion = request(life), request(life, number=2)
    write(deletion if own else cancelled, look(life), life.pod.groups["p5"].nodes[0])
    life.judge.destroyed(deletion.deployment)
    assert kinds(life.judge.faults) == (["a deletion changes the cluster"] if own else [])


def test_a_late_lowering_is_judged_when_its_group_is_gone() -> None:
    life = lifetime()
    group, ours = life.pod.groups["p5"], Lowering(1000.0, "function")
    group.lowered = [(1001.0, Lowering(990.0, "person")), (1002.0, ours)]
    life.pod.endings.append(ends(life, group.nodes[0], 1002.0, "late lowering", "hyperpod", ours))
    del life.pod.groups["p5"]
    life.judge.look_at_endings()
    assert not life.judge.faults
    assert life.judge.unavoidable == {Cause.LOWERED_TWICE: 1}


@pytest.mark.parametrize(
    ("succeeded", "same", "target", "spared"),
    [
        (False, False, 4, True),
        (False, False, 5, True),
        (False, False, 6, False),
        (True, False, 4, False),
        (False, True, 4, False),
    ],
)
def test_a_target_falls_late_by_what_a_failed_deployment_took(
    succeeded: bool, same: bool, target: int, spared: bool
) -> None:
    """It was killed. The next deployment requests five, which is not below the target that its guard saw."""
    life = lifetime()
    killed, made = request(life), request(life, number=2)
    node = life.pod.groups["p5"].nodes[0]
    took, killed.succeeded = write(killed, look(life), node), succeeded
    life.writes.append(took)
    made.look, made.answered = look(life, target=target), 1100.0
    update = ClusterUpdate(killed.deployment if same else made.deployment, False, 1101.0, made, {"p5": 5})
    life.judge._explicit["p5"] = [(1101.0, update)]
    life.judge._late_lowering(ends(life, node, 1102.0, "late lowering", "hyperpod", Lowering(took.at, "function")))
    assert bool(life.judge.unavoidable[Cause.LEFT_OVER]) is spared
    assert bool(life.judge.faults) is not spared


@pytest.mark.parametrize(("tag", "rollback", "spared"), [("0", True, True), ("", True, False), ("0", False, False)])
def test_a_rollback_of_a_cluster_that_carries_anothers_tag(tag: str, rollback: bool, spared: bool) -> None:
    """The guard does not change it, and CloudFormation sends it back all the same. An update is refused."""
    life = lifetime(counts_leaving=False, counts_ended=False, only_on_a_fall=True, unlaunched_first=False)
    life.pod.tags = {TAG: STACK + tag}
    made = request(life, rollback=rollback)
    made.look, made.answered = look(life, target=5), 1000.0
    count = 4 if rollback else 3
    update = ClusterUpdate(made.deployment, rollback, 1001.0, made, {"p5": count})
    life.pod.ends_at_random = lambda measure, count: 1  # type: ignore[method-assign]
    life.judge._cloudformation_at_random(
        ends(life, life.pod.groups["p5"].nodes[0], 1001.0, "at random", "cloudformation", update)
    )
    assert bool(life.judge.unavoidable[Cause.ANOTHERS]) is spared
    assert bool(life.judge.faults) is not spared


@pytest.mark.parametrize(("requested", "spared"), [(991.0, True), (900.0, False)])
def test_an_autoscaler_asks_for_more_all_through_a_rollback(requested: float, spared: bool) -> None:
    """Of the failed update's nodes, the function may delete one too many, but never one that existed before."""
    life = lifetime()
    made = request(life, rollback=True)
    node = Node("p5", "n5", requested, "hyperpod", id="i-5", launched=996.0, status="Running")
    life.pod.groups["p5"].nodes.append(node)
    life.actors.deeds.append(Deed(998.0, "autoscaler", "adds 3", "p5"))
    life.judge._taken(write(made, look(life), node), "p5", 4, [node], set())
    assert bool(life.judge.unavoidable[Cause.AUTOSCALER_IN_ROLLBACK]) is spared
    assert ("more nodes than the count allows" in kinds(life.judge.faults)) is not spared


@pytest.mark.parametrize(("requested", "spared"), [(991.0, True), (900.0, False)])
def test_an_autoscalers_node_ends_by_the_count_of_a_rollback(requested: float, spared: bool) -> None:
    life = lifetime()
    life.pod.ends_at_random = lambda measure, count: 1  # type: ignore[method-assign]
    made = request(life, rollback=True)
    sent = write(made, look(life))
    sent.counts = {"p5": 4}
    life.actors.deeds.append(Deed(998.0, "autoscaler", "adds 3", "p5"))
    node = Node("p5", "n5", requested, "autoscaler", id="i-5", launched=996.0, status="Running")
    life.judge._function_at_random(ends(life, node, 1000.0, "at random", "function", sent))
    assert bool(life.judge.unavoidable[Cause.AUTOSCALER_IN_ROLLBACK]) is spared
    assert bool(life.judge.faults) is not spared


@pytest.mark.parametrize(("requested", "spared"), [(996.0, True), (900.0, False)])
def test_the_list_shows_what_this_request_took_and_a_newcomer_goes(requested: float, spared: bool) -> None:
    life = lifetime()
    life.switches = life.pod.switches = replace(life.switches, list_lag=20.0)
    made, gone = request(life), life.pod.groups["p5"].nodes[0]
    write(made, look(life, at=996.0), gone)
    life.pod.endings.append(ends(life, gone, 996.5, "named", "function"))
    newcomer = Node("p5", "n5", requested, "hyperpod", id="i-5", launched=997.0, status="Running")
    life.judge._taken(write(made, look(life), newcomer), "p5", 4, [newcomer], set())
    assert bool(life.judge.unavoidable[Cause.STALE_LIST]) is spared
    assert ("more nodes than the count allows" in kinds(life.judge.faults)) is not spared


@pytest.mark.parametrize(
    ("blocks", "known", "doubtful"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_the_minimum_of_a_group_that_a_rollback_left(blocks: bool, known: bool, doubtful: bool) -> None:
    life = lifetime(minimum_blocks=blocks)
    life.pod.groups["p5"].minimum = 4
    old = OLD if known else replace(OLD, groups=())
    assert Expected(life, old, NEW).doubtful is doubtful


@pytest.mark.parametrize(
    ("unheard", "succeeded", "spared"), [(True, True, True), (False, True, False), (False, False, True)]
)
def test_a_launched_node_is_deleted_before_an_unlaunched_one_only_after_a_lost_reply_or_error(
    unheard: bool, succeeded: bool, spared: bool
) -> None:
    life = lifetime()
    waiting = Node("p5", "n5", 0.0, "person")
    life.pod.ever[waiting.name] = waiting
    made, seen = request(life), look(life)
    seen.nodes.append(
        {"InstanceGroupName": "p5", "NodeLogicalId": waiting.name, "InstanceStatus": {"Status": "Pending"}}
    )
    taken = write(made, seen, life.pod.groups["p5"].nodes[3])
    taken.unheard, made.succeeded = unheard, succeeded
    life.judge._order(taken, "p5")
    assert kinds(life.judge.faults) == ([] if spared else ["the wrong order"])


@pytest.mark.parametrize(("known", "doubtful"), [("another", True), (None, True), ("llm", False)])
def test_a_guard_that_came_with_a_failed_change_of_the_name(known: str | None, doubtful: bool) -> None:
    life = lifetime()
    life.stack.known[PREPARE] = replace(OLD, name=known) if known else None
    expected = Expected(life, replace(OLD, name="llm"), replace(NEW, name="another"))
    assert expected.doubtful is doubtful
    assert ("the cluster has another name" in expected.refused) is not doubtful


@pytest.mark.parametrize(("list_lag", "cause"), [(20.0, Cause.STALE_LIST), (0.0, None)])
def test_the_list_shows_nodes_as_they_were_before_others_are_asked_for(list_lag: float, cause: Cause | None) -> None:
    """By what was true at the look, no node is terminated.

    The request that replaces the node that is shutting down makes one too many.
    """
    life = lifetime()
    life.switches = life.pod.switches = replace(life.switches, list_lag=list_lag)
    life.pod.ends_at_random = lambda measure, count: 0  # type: ignore[method-assign]
    node = life.pod.groups["p5"].nodes[0]
    life.pod.endings.append(ends(life, node, 990.0, "named", "person"))
    made = request(life)
    made.look, made.answered = look(life), 1000.0
    update = ClusterUpdate(made.deployment, False, 1001.0, made, {"p5": 4})
    life.judge._cloudformation_at_random(ends(life, node, 1001.0, "at random", "cloudformation", update))
    assert [Cause(name) for name in life.judge.unavoidable] == ([cause] if cause else [])
    assert bool(life.judge.faults) is (cause is None)


@pytest.mark.parametrize(("current", "cause"), [(2, Cause.HIDDEN_COUNT), (3, None)])
def test_current_count_may_stand_for_a_request_or_for_a_node_that_ended(current: int, cause: Cause | None) -> None:
    """One runs, one is requested, and one is terminated: a CurrentCount of 2 may be of the first two."""
    life = lifetime(
        counts_leaving=False, counts_ended=True, only_on_a_fall=False, by_target=False, unlaunched_first=False
    )
    made = request(life)
    made.began = 600.0
    measures = {"p5": Measure(live=2, unlaunched=1, leaving=0, ended=1, target=2)}
    seen = replace(look(life), before=measures, measures=measures, nodes=look(life).nodes[:2])
    seen.shown["p5"]["CurrentCount"] = current
    assert life.judge._hidden(seen, "p5", 2, made) is cause


@pytest.mark.parametrize(
    ("current", "count", "began", "cause"),
    [
        (5, 6, 600.0, Cause.HIDDEN_COUNT),
        (6, 6, 600.0, None),
        (5, 5, 600.0, None),
        (5, 6, 900.0, None),
    ],
)
def test_current_count_may_hold_booting_nodes_and_fewer_that_ended(
    current: int, count: int, began: float, cause: Cause | None
) -> None:
    """Three run, one boots, one is requested, and two are terminated: a CurrentCount of 5 may be of the four in the
    list and of one terminated node."""
    life = lifetime(
        counts_leaving=False, counts_ended=True, only_on_a_fall=False, by_target=False, unlaunched_first=False
    )
    made = request(life)
    made.began = began
    measures = {"p5": Measure(live=5, unlaunched=1, leaving=0, ended=2, target=5)}
    seen = replace(look(life), before=measures, measures=measures)
    seen.shown["p5"]["CurrentCount"] = current
    assert life.judge._hidden(seen, "p5", count, made) is cause


@pytest.mark.parametrize(("list_lag", "faults"), [(0.0, ["an older node goes because of a newer one"]), (20.0, [])])
def test_a_list_that_shows_others_as_they_were_makes_an_older_node_go(list_lag: float, faults: list[str]) -> None:
    life = lifetime()
    life.switches = life.pod.switches = replace(life.switches, list_lag=list_lag)
    nodes = life.pod.groups["p5"].nodes
    newer = Node("p5", "n9", 996.0, "hyperpod", id="i-9", launched=1056.0, status="Running")
    made = request(life)
    made.first_look = replace(look(life), at=made.heard)
    taken = write(made, look(life), nodes[3])
    for node in nodes[2:]:
        node.status = "ShuttingDown"
        if node is not nodes[3]:
            life.pod.endings.append(ends(life, node, 990.0, "named", "person"))
    nodes.append(newer)
    life.judge._taken(taken, "p5", 3, [nodes[3]], set())
    assert [kind for kind in kinds(life.judge.faults) if kind.startswith("an older")] == faults


@pytest.mark.parametrize(("continuous", "cause"), [(False, Cause.STALE_LIST), (True, None)])
def test_a_stale_list_explains_a_hidden_replacement_under_standard_provisioning(
    continuous: bool, cause: Cause | None
) -> None:
    """HyperPod replaces a node.

    The list shows neither its termination nor, with standard provisioning, the request for another.
    """
    life = lifetime(
        counts_leaving=True, counts_ended=False, only_on_a_fall=False, by_target=True, unlaunched_first=False
    )
    life.switches = life.pod.switches = replace(life.switches, list_lag=40.0)
    life.pod.continuous = continuous
    life.pod.endings.append(ends(life, life.pod.groups["p5"].nodes[0], 990.0, "replaced", "hyperpod"))
    measures = {"p5": Measure(live=4, unlaunched=1, leaving=1, ended=0, target=4)}
    seen = replace(look(life), before=measures, measures=measures)
    assert life.judge._hidden(seen, "p5", 4, request(life)) is cause


FAIL = Policy(minutes=10, force=False, undrained=False, must_be_saved=False)
FORCE = replace(FAIL, force=True)
HEARD, SILENT = Heard(999.0, {"nodes": {}, "busy": []}, silent=False), Heard(999.0, None, silent=True)


@pytest.mark.parametrize(
    ("said", "heard", "waited", "allowed"),
    [
        (FAIL, HEARD, 3000, False),
        (FORCE, HEARD, 500, False),
        (FORCE, HEARD, 610, True),
        (replace(FORCE, must_be_saved=True), HEARD, 610, False),
        (FAIL, SILENT, 0, False),
        (FAIL, None, 0, False),
        (replace(FAIL, undrained=True), SILENT, 0, True),
        (replace(FAIL, undrained=True), HEARD, 3000, False),
    ],
)
def test_a_node_that_is_not_ready_goes_where_the_policy_says_so(
    said: Policy, heard: Heard | None, waited: float, allowed: bool
) -> None:
    life = lifetime()
    drained(life)
    assert bool(goes(life, said, heard, waited=waited)) is not allowed


@pytest.mark.parametrize(
    ("said", "came", "apart", "allowed"),
    [
        (FAIL, 690.0, 0.0, False),
        (FORCE, 690.0, 0.0, True),
        (FORCE, 710.0, 0.0, False),
        (FORCE, 710.0, -30.0, True),  # LaunchTime is HyperPod's: 680.
        (FORCE, 740.0, -30.0, False),
        (FORCE, 690.0, 30.0, False),
    ],
)
def test_a_node_in_place_of_another_has_five_minutes_and_goes_where_the_policy_says_so(
    said: Policy, came: float, apart: float, allowed: bool
) -> None:
    life = lifetime(clocks_apart=apart)
    drained(life)
    node = life.pod.groups["p5"].nodes[3]
    node.requested, node.launched = 650.0, came
    assert bool(goes(life, said, HEARD, waited=610.0)) is not allowed


@pytest.mark.parametrize(("heard", "waited", "allowed"), [(HEARD, 0, False), (HEARD, 310, True), (SILENT, 0, True)])
def test_a_rollback_waits_five_minutes_for_a_node(heard: Heard, waited: float, allowed: bool) -> None:
    life = lifetime()
    drained(life)
    assert bool(goes(life, FAIL, heard, rollback=True, waited=waited)) is not allowed


@pytest.mark.parametrize(("node", "at", "spared"), [("i-4", 990.0, True), ("i-3", 990.0, False), ("i-4", 500.0, False)])
def test_a_node_that_another_party_undrained_is_an_unavoidable_case(node: str, at: float, spared: bool) -> None:
    life = lifetime()
    drained(life).undone.append(Undone(at, node))
    assert bool(goes(life, FAIL, HEARD)) is not spared
    assert life.judge.unavoidable[Cause.UNDRAINED] == spared


@pytest.mark.parametrize("left_out", [True, False])
def test_a_node_missing_from_two_lists_may_be_deleted_undrained_with_its_group(left_out: bool) -> None:
    life = lifetime()
    drained(life)
    made, seen, node = request(life), look(life), life.pod.groups["p5"].nodes[3]
    seen.heard, seen.left_out_again = HEARD, frozenset({node} if left_out else ())
    assert life.judge.readiness
    life.judge.readiness._went(node, made, seen, FAIL, 1000.0)
    assert bool(life.judge.faults) is not left_out
    assert life.judge.unavoidable[Cause.LEFT_OUT] == left_out


@pytest.mark.parametrize(
    ("polls", "first", "drains", "spared"),
    [(1, 996.0, True, True), (1, 930.0, True, False), (2, 996.0, True, False), (1, 996.0, False, False)],
)
def test_a_target_raised_while_nodes_are_released_is_unavoidable_after_a_recent_first_poll(
    polls: int, first: float, drains: bool, spared: bool
) -> None:
    """At its first look it had nothing to do, and a target was raised before it released the held nodes.

    If that took long, the look cannot be used.
    """
    life = lifetime()
    if drains:
        drained(life)
    life.pod.ends_at_random = lambda measure, count: int(measure.target > 4)  # type: ignore[method-assign]
    life.actors.deeds.append(Deed(997.0, "person", "raises to 7", "p5"))
    made = request(life)
    made.first_look, made.look, made.polls, made.answered = look(life, at=first), look(life), polls, 1000.0
    made.look.before["p5"] = made.look.measures["p5"] = made.look.measures["p5"]._replace(target=7)
    update = ClusterUpdate(made.deployment, False, 1001.0, made, {"p5": 4})
    life.judge._cloudformation_at_random(
        ends(life, life.pod.groups["p5"].nodes[0], 1001.0, "at random", "cloudformation", update)
    )
    assert bool(life.judge.unavoidable[Cause.CHANGED_BEFORE_CLOUDFORMATION]) is spared
    assert bool(life.judge.faults) is not spared


def test_nodes_without_an_agent_status_are_deleted_in_the_documented_order() -> None:
    life = lifetime()
    drained(life)
    made, seen = request(life), look(life)
    seen.heard = Heard(
        999.0, {"nodes": {"i-1": {"requests": {"deployment": "another's"}}}, "busy": ["i-4"]}, silent=False
    )
    life.judge._order(write(made, seen, life.pod.groups["p5"].nodes[2]), "p5")
    assert not life.judge.faults, "i-4 has jobs, and i-3 is the newest of the others"
    life.judge._order(write(made, seen, life.pod.groups["p5"].nodes[0]), "p5")
    assert kinds(life.judge.faults) == ["the wrong order"], "another deployment's request chooses nobody"


@pytest.mark.parametrize(
    ("chosen", "busy", "spared"),
    [({"i-2", "i-3"}, "i-3", True), ({"i-2", "i-3"}, "i-2", False), ({"i-3"}, "i-3", False)],
)
def test_of_two_that_were_chosen_the_one_without_jobs_goes(chosen: set[str], busy: str, spared: bool) -> None:
    """Another party deleted a node, so one of the two is enough, and only i-3 is still being drained."""
    life = lifetime()
    drained(life)
    made, seen = request(life), look(life)
    made.drain_request_ids, made.drained = {"w"}, chosen
    told = {"i-3": {"requests": {"deployment": "w"}}}
    seen.heard = Heard(999.0, {"nodes": told, "busy": ["i-1", "i-4", busy]}, silent=False)
    life.judge._order(write(made, seen, life.pod.groups["p5"].nodes[1]), "p5")
    assert bool(life.judge.faults) is not spared


@pytest.mark.parametrize(("status", "spared"), [("Pending", True), ("Running", False)])
@pytest.mark.parametrize("rollback", [False, True])
def test_a_node_that_boots_between_the_look_and_the_call_is_spared(status: str, spared: bool, rollback: bool) -> None:
    life = lifetime()
    drained(life)
    made = request(life, rollback=rollback)
    made.new["Drain"] = FAIL.text()
    seen = look(life, n4=status)
    seen.heard = HEARD
    life.judge.batch_delete_was_sent(write(made, seen, life.pod.groups["p5"].nodes[3]))
    assert ("a node that was not ready goes" in kinds(life.judge.faults)) is not spared


@pytest.mark.parametrize(
    ("late", "ago", "asks", "looks", "over"),
    [
        # CloudFormation reports it after all three calls, before all, or between the second and the third.
        (60.0, 30.0, True, True, 0),
        (60.0, 30.0, False, False, 0),
        (60.0, 90.0, True, True, 3),
        (60.0, 90.0, False, False, 3),
        (0.0, -5.0, True, False, 0),
        (0.0, -5.0, True, True, 1),
        (0.0, -5.0, False, False, 1),
    ],
)
def test_calls_after_one_poll_may_rely_on_the_stack_status_that_it_read(
    late: float, ago: float, asks: bool, looks: bool, over: int
) -> None:
    """The third call too, unless the function has looked since: that is another change, and it checks again before."""
    life = lifetime(minimum_blocks=False)
    life.faults.calm()
    life.pod.exists, life.stack.status_late = True, late
    made = request(life)
    made.over_at = life.clock.now - ago
    calls = Calls(life, made)

    def look_at_it() -> None:
        calls.list_cluster_nodes(ClusterName=life.pod.name)
        calls.describe_cluster(ClusterName=life.pod.name)

    look_at_it()
    if asks:
        calls.describe_stacks(StackName=STACK)
    for number, name in enumerate(("i-2", "i-3", "i-4")):
        if number == 2:
            life.clock.pass_time(10.0)
            if looks:
                look_at_it()
        made.over = life.clock.now >= made.over_at
        calls.batch_delete_cluster_nodes(ClusterName=life.pod.name, NodeIds=[name])
    assert len([kind for kind in kinds(life.judge.faults) if kind.endswith("over")]) == over


@pytest.mark.parametrize(
    ("after", "live", "unread", "spared"),
    [(3300.0, 4, True, True), (3300.0, 4, False, False), (3300.0, 5, True, False), (600.0, 4, True, False)],
)
def test_a_rollback_that_cannot_read_the_cluster_at_its_deadline(
    after: float, live: int, unread: bool, spared: bool
) -> None:
    life = lifetime(lowering="at once")
    group = life.pod.groups["p5"]
    group.nodes += [Node("p5", "n5", 0.0, "person", id="i-5", launched=5.0, status="Running")] * (live - 4)
    made = request(life, rollback=True)
    made.answered, made.succeeded, made.reason = made.began + after, False, "Reading the cluster: Rate exceeded"
    made.cluster_unread = unread
    life.judge.request_ended(made)
    assert bool(life.judge.unavoidable[Cause.UNREAD_IN_ROLLBACK.value]) == spared
    assert kinds(life.judge.faults) == ([] if spared else ["a rollback gets stuck"])


def test_a_run_that_reads_the_cluster_clears_an_earlier_failure_to_read_it() -> None:
    life = lifetime()
    life.pod.exists = True
    made = request(life, rollback=True)
    calls = Calls(life, made)
    life.faults.before = lambda *_, **__: "ThrottlingException"  # type: ignore[method-assign]
    with pytest.raises(ClientError):
        calls.describe_cluster(ClusterName=life.pod.name)
    assert made.cluster_unread
    calls.begin()
    assert not made.cluster_unread


# -- images and patching --


def cluster_update(life: Lifetime, *, rollback: bool = False, guarded: bool = True) -> ClusterUpdate:
    """CloudFormation's call after prepare has looked."""
    made = request(life, rollback=rollback)
    made.first_look = made.look = look(life)
    template = OLD if rollback else NEW
    found = ClusterUpdate(
        made.deployment, rollback, 1000.0, made if guarded else None, template.counts, template.groups
    )
    made.deployment.updates.append(found)
    return found


def re_imaged(life: Lifetime, call: object, *, by: Who = "cloudformation", before: str = "1.4.0") -> list[str]:
    node = life.pod.groups["p5"].nodes[0]
    life.pod.software.re_images.append(ReImaging(node, 1000.0, by, call, before, "1.5.0"))
    life.judge.look_at_endings()
    return kinds(life.judge.faults)


def dropped(life: Lifetime, call: object, *, by: Who = "cloudformation", alone: bool = False) -> list[str]:
    life.pod.software.dropped.append(Dropped("p5", "AutoPatchConfig", 1000.0, by, call, alone))
    life.judge.look_at_endings()
    return kinds(life.judge.faults)


def test_a_deployment_re_images_no_node() -> None:
    life = lifetime()
    assert re_imaged(life, cluster_update(life)) == ["a deployment re-images a node"]
    life = lifetime()
    assert re_imaged(life, write(request(life), look(life)), by="function") == ["the function re-images a node"]
    for by in ("person", "hyperpod"):
        assert re_imaged(lifetime(), None, by=by) == []


@pytest.mark.parametrize("again", [True, False])
def test_the_same_image_again_is_spared_if_hyperpod_gives_it_again(again: bool) -> None:
    life = lifetime(same_image_again=again)
    assert bool(re_imaged(life, cluster_update(life), before="1.5.0")) is not again
    assert life.judge.unavoidable[Cause.SAME_IMAGE] == again


@pytest.mark.parametrize("versions", [True, False])
def test_a_node_with_a_hidden_image_is_spared_where_no_list_shows_it(versions: bool) -> None:
    life = lifetime()
    life.pod.orchestrator = {"Eks": {}} if versions else {"Slurm": {}}
    update = cluster_update(life)
    update.before.look.shown["p5"]["CurrentImageId"] = ami("1.5.0")
    assert bool(re_imaged(life, update)) is versions
    life = lifetime()
    assert re_imaged(life, cluster_update(life)), "the group shows another image"


@pytest.mark.parametrize("at", [999.7, 998.0])
def test_a_patch_after_prepares_look_is_spared(at: float) -> None:
    life = lifetime()
    life.actors.deeds.append(Deed(at, "person", "updates software to 1.5.0", "p5"))
    assert bool(re_imaged(life, cluster_update(life))) is (at < 998.5)


@pytest.mark.parametrize(
    ("rollback", "at", "spared"), [(True, 999.5, True), (True, 900.0, False), (False, 999.5, False)]
)
def test_an_update_that_took_effect_before_a_rollback_is_spared(rollback: bool, at: float, spared: bool) -> None:
    life = lifetime()
    node = life.pod.groups["p5"].nodes[0]
    life.pod.software.re_images.append(ReImaging(node, at, "person", None, "1.4.0", "1.6.0"))
    assert bool(re_imaged(life, cluster_update(life, rollback=rollback))) is not spared


def test_without_prepare_nothing_is_refused() -> None:
    life = lifetime()
    assert not re_imaged(life, cluster_update(life, guarded=False))
    assert life.judge.unavoidable == {Cause.GUARD_NOT_CALLED: 1}


def test_a_deployment_turns_no_patching_off_that_its_file_does_not_mention() -> None:
    life = lifetime()
    assert dropped(life, cluster_update(life)) == ["a deployment turns patching off"]
    life = lifetime()
    update = cluster_update(life)
    update.deployment.new = replace(NEW, patching_off=(("AutoPatchConfig", "p5"),))
    assert dropped(life, update) == [], "the file says none"
    life = lifetime()
    assert dropped(life, write(request(life), look(life)), by="function") == ["the function turns patching off"]


def test_the_deletion_of_a_group_alone_may_turn_patching_off() -> None:
    life = lifetime()
    assert dropped(life, write(request(life), look(life)), by="function", alone=True) == []
    assert life.judge.unavoidable == {Cause.DELETED_ALONE: 1}


@pytest.mark.parametrize(("at", "what"), [(995.0, "sets AutoPatchConfig"), (980.0, "sets AutoPatchConfig")])
def test_a_rollback_takes_back_what_a_person_set_meanwhile(at: float, what: str) -> None:
    life = lifetime()
    life.actors.deeds.append(Deed(at, "person", what, "p5"))
    assert bool(dropped(life, cluster_update(life, rollback=True))) is (at < 990)


def test_a_group_that_was_to_be_deleted_is_not_compared() -> None:
    life = lifetime()
    update = cluster_update(life, rollback=True)
    update.deployment.new = Template(groups=(), groups_to_delete=("p5",))
    assert dropped(life, update) == []
    assert life.judge.unavoidable == {Cause.PATCHING_IN_ROLLBACK: 1}


def test_a_rollback_takes_back_what_the_update_had_brought() -> None:
    life = lifetime()
    update = cluster_update(life, rollback=True)
    update.deployment.new = Template(groups=(spec(3, AutoPatchConfig={"PatchingStrategy": "WhenIdle"}),))
    assert dropped(life, update) == []


@pytest.mark.parametrize(
    ("reached", "failed", "stuck"),
    [
        (True, {"ImageId": ami("1.5.0")}, False),
        (False, {"ImageId": ami("1.5.0")}, True),
        (True, {}, True),
    ],
)
def test_a_rollback_that_takes_an_image_back_may_be_refused(reached: bool, failed: dict[str, str], stuck: bool) -> None:
    life = lifetime()
    made = request(life, rollback=True)
    made.old = Template(groups=(spec(4, **failed),)).properties(PREPARE)
    made.deployment.reached = reached
    made.succeeded, made.reason = False, "re-images 4 nodes of p5 and ends their jobs [nodes-re-imaged]"
    life.judge.request_ended(made)
    assert bool(kinds(life.judge.faults)) is stuck
