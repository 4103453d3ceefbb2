"""What holds for every cluster, every deployment and every answer that AWS leaves open, against the simulated HyperPod.

Left out are combinations in which nothing could keep HyperPod from a random choice. Both begin with a BatchDeleteClusterNodes
that does not lower the target at once, which nobody has reported: together with an UpdateCluster that counts nodes that are
shutting down, or with one that ends running nodes while it has requests without an instance to drop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod_provider import api, wire
from cdk_hyperpod._lambda.hyperpod_provider.model import Desired, Occasion
from cdk_hyperpod._lambda.hyperpod_provider.planner import plan
from cdk_hyperpod._lambda.hyperpod_provider.wire import PREPARE
from local_aws.hyperpod.cfn_handler import VanishedGroups
from provider.stack import STACK_ID, Behaviour, Faults, Stack, Timings, Wish, group

EXAMPLES = settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""HYPOTHESIS_PROFILE=default draws other examples than these."""

QUICK = Timings(boot=300, shut_down=300, count_lag=90, minimum_limit=7_200)

NAMES = ("p5", "trn1", "cpu")


@st.composite
def behaviours(draw: st.DrawFn) -> Behaviour:
    lowers = draw(st.sampled_from(["at_once", "when_gone", "never"]))
    at_once = lowers == "at_once"
    counts = ["never", "while_listed", "while_counted"] if at_once else ["never"]
    return Behaviour(
        batch_delete_lowers_target=lowers,  # type: ignore[arg-type]
        counts_shutting_down_nodes=draw(st.sampled_from(counts)),
        replaces_missing_nodes_after_batch_delete=draw(st.booleans()),
        all_fail_code=draw(st.sampled_from(["ValidationException", "InvalidParameterException"])),
        busy_code=draw(st.sampled_from(["ConflictException", "ValidationException"])),
        controller_code=draw(st.sampled_from(["NodeIdInUse", "NODE_ID_IN_USE"])),
        logical_not_found_code=draw(st.sampled_from(["NodeIdNotFound", "NodeLogicalIdNotFound"])),
        logical_ids_delete_launched_nodes=draw(st.booleans()),
        random_spares_unlaunched=draw(st.booleans()) if at_once else True,
        update_needs_groups_with_delete=draw(st.booleans()),
        delete_unknown_group=draw(st.sampled_from(["refuse", "ignore"])),
        delete_deleting_group=draw(st.sampled_from(["accept", "conflict"])),
        absent_minimum_means=draw(st.sampled_from(["unchanged", "zero"])),
        below_minimum=draw(st.sampled_from(["allow", "refuse", "lowers_minimum"])),
        minimum_blocks=draw(st.sampled_from(["group", "cluster"])),
        count_change_restarts_minimum=draw(st.booleans()),
        continuous_update_shows_updating=draw(st.booleans()),
        standard_batch_delete_shows_updating=draw(st.booleans()),
        unlaunched_instance_id=draw(st.sampled_from(["absent", "empty"])),
        default_page_size=draw(st.integers(1, 100)),
    )


@dataclass(frozen=True)
class Change:
    """One group, before and after."""

    name: str
    before: int
    after: int
    minimum_before: int
    minimum_after: int
    named: int


@st.composite
def changes(draw: st.DrawFn, continuous: bool = True) -> list[Change]:
    """Groups whose counts and minimums change, and how many of their nodes are named: never more than the count allows."""
    found = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)):
        before, after = draw(st.integers(0, 5)), draw(st.integers(0, 5))
        minimums = (st.integers(0, before), st.integers(0, after)) if continuous else (st.just(0), st.just(0))
        found.append(
            Change(
                name=name,
                before=before,
                after=after,
                minimum_before=draw(minimums[0]),
                minimum_after=draw(minimums[1]),
                named=draw(st.integers(0, max(0, before - after))),
            )
        )
    return found


def before(groups: list[Change], continuous: bool, **more: Any) -> Wish:
    specs = [_spec(each.name, each.before, each.minimum_before, continuous) for each in groups]
    return Wish(groups=tuple(specs), continuous=continuous, **more)


def after(groups: list[Change], continuous: bool, **more: Any) -> Wish:
    specs = [_spec(each.name, each.after, each.minimum_after, continuous) for each in groups]
    return Wish(groups=tuple(specs), continuous=continuous, **more)


def _spec(name: str, count: int, minimum: int, continuous: bool) -> dict[str, Any]:
    return group(name, count, minimum=minimum if continuous else None)


def named(stack: Stack, groups: list[Change], data: st.DataObject) -> tuple[str, ...]:
    chosen: list[str] = []
    for each in groups:
        ids = [node.instance_id for node in stack.model.nodes("train", each.name) if node.instance_id]
        chosen += data.draw(st.permutations(ids), label=f"nodes of {each.name}")[: each.named]
    return tuple(chosen)


def wanted(wish: Wish) -> Desired:
    return wire.read_properties(wish.prepare, kind=PREPARE, owner=STACK_ID)


def planned(stack: Stack, wish: Wish) -> set[str]:
    """Names of the nodes that the plan would take now."""
    live = api.read_live(stack.client, wish.name)
    found = plan(live, wanted(wish), Occasion())
    assert not found.refusals
    return {pick.node.name for change in found.changes for pick in getattr(change, "picks", ())}


def ended(stack: Stack, *causes: str) -> set[str]:
    return {item.node_id or item.logical_id for item in stack.model.terminations if not causes or item.cause in causes}


def ids(stack: Stack) -> set[str]:
    return {node.instance_id for node in stack.model.nodes("train") if node.instance_id and node.live}


FAULTS = st.fixed_dictionaries(
    {
        "throttle_next": st.integers(0, 3),
        "throttle_probability": st.sampled_from([0.0, 0.2]),
        "lose_reply_next": st.integers(0, 2),
        "kill_after_calls": st.none() | st.integers(1, 12),
    }
)


def disturb(stack: Stack, faults: dict[str, Any], victims: set[str]) -> None:
    """Faults at the polls of the custom resources; some of the nodes are in use for a while."""
    busy = dict.fromkeys(sorted(victims)[:2], stack.clock.now() + 300)
    stack.disturbance = Faults(**faults, in_use_until=busy)


@EXAMPLES
@given(behaviour=behaviours(), groups=changes(), faults=FAULTS, data=st.data(), seed=st.integers(0, 99))
def test_exactly_the_plan_goes_and_nothing_at_random(
    behaviour: Behaviour, groups: list[Change], faults: dict[str, Any], data: st.DataObject, seed: int
) -> None:
    stack = Stack(before(groups, True), behaviour=behaviour, seed=seed, timings=QUICK, poll=60)
    here = ids(stack)
    wish = after(groups, True, nodes_to_delete=named(stack, groups, data))
    expected = planned(stack, wish)
    disturb(stack, faults, expected)
    assert stack.deploy(wish) == "complete", stack.reasons
    assert not stack.model.random_terminations
    assert ended(stack, "named") & here == expected
    assert ended(stack) & here == expected
    assert set(wish.nodes_to_delete) <= expected
    # Planning again finds nothing, and deploying again calls nothing that changes anything.
    assert plan(api.read_live(stack.client, "train"), wanted(wish), Occasion()).done
    changed = stack.model.changes(principal="lambda")
    assert stack.deploy(wish) == "complete"
    assert stack.model.changes(principal="lambda") == changed


@EXAMPLES
@given(behaviour=behaviours(), groups=changes(continuous=False), data=st.data(), seed=st.integers(0, 99))
def test_standard_provisioning_ends_nothing_at_random(
    behaviour: Behaviour, groups: list[Change], data: st.DataObject, seed: int
) -> None:
    stack = Stack(before(groups, False), behaviour=behaviour, seed=seed, timings=QUICK, poll=60)
    here = ids(stack)
    wish = after(groups, False, nodes_to_delete=named(stack, groups, data))
    expected = planned(stack, wish)
    ending = stack.deploy(wish)
    # Where the service holds on to its target, the deployment is refused rather than left to chance.
    if behaviour.batch_delete_lowers_target != "never" or not expected:
        assert ending == "complete", stack.reasons
    assert not stack.model.random_terminations
    assert ended(stack, "named") & here == expected


@EXAMPLES
@given(
    behaviour=behaviours(),
    groups=changes(),
    faults=FAULTS,
    data=st.data(),
    fail=st.sampled_from(["before", "after"]),
    capacity=st.integers(0, 20),
    seed=st.integers(0, 99),
)
def test_rollback_ends_no_node_but_the_plans(
    behaviour: Behaviour,
    groups: list[Change],
    faults: dict[str, Any],
    data: st.DataObject,
    fail: Any,
    capacity: int,
    seed: int,
) -> None:
    stack = Stack(before(groups, True), behaviour=behaviour, seed=seed, timings=QUICK, poll=60)
    here = ids(stack)
    stack.model.set_capacity("ml.p5.48xlarge", capacity)
    wish = after(groups, True, nodes_to_delete=named(stack, groups, data))
    expected = planned(stack, wish)
    disturb(stack, faults, expected)
    stack.deploy(wish, fail=fail)
    # What was taken on purpose may be missing for the cluster's own way back, when capacity is short; we never stop it.
    assert stack.status != "UPDATE_ROLLBACK_FAILED" or stack.reasons[-1].startswith("cluster: "), stack.reasons
    assert ended(stack, "named", "random", "group-deleted", "cluster-deleted") & here == expected
    assert not {item.node_id for item in stack.model.random_terminations} & here


@EXAMPLES
@given(
    behaviour=behaviours(),
    groups=changes(),
    drift=st.integers(1, 4),
    data=st.data(),
    vanished=st.sampled_from(["delete_present", "leave", "delete_blindly"]),
    seed=st.integers(0, 99),
)
def test_count_changed_by_hand_before_a_tag_is(
    behaviour: Behaviour, groups: list[Change], drift: int, data: st.DataObject, vanished: VanishedGroups, seed: int
) -> None:
    old = before(groups, True)
    stack = Stack(old, behaviour=behaviour, seed=seed, timings=QUICK, poll=60, vanished=vanished)
    ops = stack.model.client(principal="somebody")
    name = data.draw(st.sampled_from([each.name for each in groups]))
    ops.batch_add_cluster_nodes(
        ClusterName="train", NodesToAdd=[{"InstanceGroupName": name, "IncrementTargetCountBy": drift}]
    )
    stack.clock.advance(data.draw(st.sampled_from([1, 120, 3_600])))
    wish = Wish(groups=old.groups, tags={"team": "research"})
    assert stack.deploy(wish) == "complete", stack.reasons
    assert not stack.model.random_terminations
    assert len([node for node in stack.model.nodes("train", name) if node.live]) == next(
        each.before for each in groups if each.name == name
    )


@EXAMPLES
@given(
    behaviour=behaviours(),
    keep=st.integers(0, 4),
    drop=st.integers(0, 4),
    limit=st.integers(0, 4),
    seed=st.integers(0, 99),
    vanished=st.sampled_from(["delete_present", "leave", "delete_blindly"]),
)
def test_groups_go_by_name_only_and_never_beyond_the_limit(
    behaviour: Behaviour, keep: int, drop: int, limit: int, seed: int, vanished: VanishedGroups
) -> None:
    stack = Stack(
        Wish(groups=(group("p5", keep), group("old", drop))),
        behaviour=behaviour,
        seed=seed,
        timings=QUICK,
        poll=60,
        vanished=vanished,
    )
    assert stack.deploy(Wish(groups=(group("p5", keep),))) == "rolled back"
    assert not ended(stack), "an accident is refused before anything happened"
    wish = Wish(groups=(group("p5", keep),), groups_to_delete=("old",), max_nodes=limit)
    if drop > limit:
        assert stack.deploy(wish) == "rolled back"
        assert not ended(stack)
        return
    assert stack.deploy(wish) == "complete", stack.reasons
    assert not stack.model.random_terminations
    assert {item.cause for item in stack.model.terminations} <= {"group-deleted"}
    live = stack.model.cluster("train").groups
    assert "old" not in live or live["old"].status == "Deleting"
    assert {"controller", "p5"} <= live.keys()


@EXAMPLES
@given(
    behaviour=behaviours(),
    have=st.integers(0, 5),
    missing=st.integers(1, 4),
    after=st.integers(0, 9),
    name_some=st.booleans(),
    arrives=st.booleans(),
    seed=st.integers(0, 99),
)
def test_missing_capacity_ends_no_node_that_is_needed(
    behaviour: Behaviour, have: int, missing: int, after: int, name_some: bool, arrives: bool, seed: int
) -> None:
    stack = Stack(Wish(groups=(group("p5", have),)), behaviour=behaviour, seed=seed, timings=QUICK, poll=60)
    here = ids(stack) - {node.instance_id for node in stack.model.nodes("train", "controller")}
    stack.model.set_capacity("ml.p5.48xlarge", have)
    assert stack.deploy(Wish(groups=(group("p5", have + missing),))) == "complete", stack.reasons
    assert len(ids(stack)) == have + 1
    if arrives:
        stack.model.set_capacity("ml.p5.48xlarge", None, at=stack.clock.now() + 200)
    excess = max(0, have + missing - after)
    chosen = tuple(sorted(here)[: min(excess, have)]) if name_some else ()
    wish = Wish(groups=(group("p5", after),), nodes_to_delete=chosen)
    expected = planned(stack, wish)
    assert stack.deploy(wish) == "complete", stack.reasons
    assert not stack.model.random_terminations
    assert ended(stack, "named") & here == expected & here
    if not chosen:
        assert len(expected & here) == max(0, have - after)


@EXAMPLES
@given(
    behaviour=behaviours(),
    count=st.integers(1, 4),
    drift=st.integers(1, 3),
    after=st.integers(0, 8),
    accident=st.sampled_from(["names", "group", "limit"]),
    seed=st.integers(0, 99),
)
def test_refused_deployment_touches_nothing_on_its_way_back(
    behaviour: Behaviour, count: int, drift: int, after: int, accident: str, seed: int
) -> None:
    old = Wish(groups=(group("p5", count), group("cpu", 1)))
    stack = Stack(old, behaviour=behaviour, seed=seed, timings=QUICK, poll=60)
    stack.model.client(principal="somebody").batch_add_cluster_nodes(
        ClusterName="train", NodesToAdd=[{"InstanceGroupName": "p5", "IncrementTargetCountBy": drift}]
    )
    stack.clock.advance(3_600)
    everyone = [node.instance_id for node in stack.model.nodes("train", "p5") if node.instance_id]
    wishes = {
        "names": Wish(groups=(group("p5", max(after, 1)), old.groups[1]), nodes_to_delete=tuple(everyone)),
        "group": Wish(groups=(group("p5", after),)),
        "limit": Wish(groups=(group("p5", 0), old.groups[1]), max_nodes=0),
    }
    assert stack.deploy(wishes[accident]) == "rolled back"
    assert stack.status == "UPDATE_ROLLBACK_COMPLETE", stack.reasons
    assert not ended(stack)
    assert not stack.model.changes(principal="lambda")
