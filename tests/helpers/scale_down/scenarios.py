"""What the property tests draw: undocumented answers, groups that change, faults; and how they check the results.

Excluded are combinations in which nothing could keep HyperPod from a random choice. Both begin with a
BatchDeleteClusterNodes that does not lower the target at once, which has not been reported: together with an
UpdateCluster that counts nodes that are shutting down, or with one that terminates running nodes while it could cancel
requests without an instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.scale_down.aws import clients
from cdk_hyperpod._lambda.hyperpod.scale_down.decide.planner import plan
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import Desired, RequestContext
from cdk_hyperpod._lambda.hyperpod.scale_down.model.properties import PREPARE, read_properties
from helpers.scale_down.stack import STACK_ID, Behaviour, Faults, Stack, Template, Timings, group

P5 = "ml.p5.48xlarge"
NAMES = ("p5", "trn1", "cpu")

QUICK = Timings(boot=300, shut_down=300, count_lag=90, minimum_limit=7_200)

SEEDS = st.integers(0, 99)

VANISHED = st.sampled_from(["delete_present", "leave", "delete_blindly"])
"""The ways in which CloudFormation's handler may treat a group that was removed from the template."""


@st.composite
def behaviours(draw: st.DrawFn) -> Behaviour:
    lowers = draw(st.sampled_from(["at_once", "when_gone"]))
    return Behaviour(
        batch_delete_lowers_target=lowers,  # type: ignore[arg-type]
        counts_shutting_down_nodes=draw(st.sampled_from(["never", "while_listed", "while_counted"])),
        current_count_holds=draw(st.sampled_from(["booted", "launched"])),
        replaces_missing_nodes_after_batch_delete=draw(st.booleans()),
        all_fail_code=draw(st.sampled_from(["ValidationException", "InvalidParameterException"])),
        busy_code=draw(st.sampled_from(["ConflictException", "ValidationException"])),
        controller_code=draw(st.sampled_from(["NodeIdInUse", "NODE_ID_IN_USE"])),
        logical_not_found_code=draw(st.sampled_from(["NodeIdNotFound", "NodeLogicalIdNotFound"])),
        logical_ids_delete_launched_nodes=draw(st.booleans()),
        random_spares_unlaunched=draw(st.booleans()),
        update_needs_groups_with_delete=draw(st.booleans()),
        delete_unknown_group=draw(st.sampled_from(["refuse", "ignore"])),
        delete_deleting_group=draw(st.sampled_from(["accept", "conflict"])),
        absent_minimum_means=draw(st.sampled_from(["unchanged", "zero"])),
        absent_scheduled_update_means=draw(st.sampled_from(["none", "unchanged"])),
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
    """Groups whose counts and minimums change, and how many of their nodes are named: never more than the count
    allows."""
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


def before(groups: list[Change], continuous: bool = True, **more: Any) -> Template:
    specs = [_spec(each.name, each.before, each.minimum_before, continuous) for each in groups]
    return Template(groups=tuple(specs), continuous=continuous, **more)


def after(groups: list[Change], continuous: bool = True, **more: Any) -> Template:
    specs = [_spec(each.name, each.after, each.minimum_after, continuous) for each in groups]
    return Template(groups=tuple(specs), continuous=continuous, **more)


def _spec(name: str, count: int, minimum: int, continuous: bool) -> dict[str, Any]:
    return group(name, count, minimum=minimum if continuous else None)


def stack(template: Template, behaviour: Behaviour, seed: int, **more: Any) -> Stack:
    """A quiet cluster on which everything is a few times faster than on AWS."""
    return Stack(template, behaviour=behaviour, seed=seed, timings=QUICK, poll=60, **more)


def named(stack: Stack, groups: list[Change], data: st.DataObject) -> tuple[str, ...]:
    chosen: list[str] = []
    for each in groups:
        chosen += data.draw(st.permutations(ids(stack, each.name)), label=f"nodes of {each.name}")[: each.named]
    return tuple(chosen)


def wanted(template: Template) -> Desired:
    return read_properties(template.prepare, kind=PREPARE, owner=STACK_ID)


def planned(stack: Stack, template: Template) -> set[str]:
    """Names of the nodes that the plan would delete now."""
    found = plan(clients.read_live(stack.client, template.name), wanted(template), RequestContext())
    assert not found.refusals
    return {pick.node.name for pick in (*found.nodes_to_delete, *found.held)}


def ids(stack: Stack, group: str | None = None) -> list[str]:
    """Instance ids of the nodes that are not shutting down, in the order of their requests."""
    return [node.instance_id for node in stack.hyperpod.nodes("train", group) if node.instance_id and node.live]


def failure(train: Stack, template: Template) -> str:
    """Why a deployment failed: readable, in one line, and without secrets."""
    assert train.deploy(template) == "rolled back", train.reasons
    (reason,) = train.reasons
    assert "\n" not in reason
    assert len(reason) <= 1_000
    assert not any("secret.example" in line for line in (reason, *train.log))
    return reason


def ended(stack: Stack, *causes: str) -> set[str]:
    return {
        item.node_id or item.logical_id for item in stack.hyperpod.terminations if not causes or item.cause in causes
    }


FAULTS = st.fixed_dictionaries(
    {
        "throttle_next": st.integers(0, 3),
        "throttle_probability": st.sampled_from([0.0, 0.2]),
        "lose_reply_next": st.integers(0, 2),
    }
)


def disturb(stack: Stack, faults: dict[str, Any], victims: set[str]) -> None:
    """Faults at the polls of the custom resources. Some of the nodes are in use for a while."""
    busy = dict.fromkeys(sorted(victims)[:2], stack.clock.now() + 300)
    stack.disturbance = Faults(**faults, in_use_until=busy)


def before_poll(train: Stack, number: int, act: Any) -> None:
    """Call a function right before prepare's poll with that number."""
    real, polls = train.provider.is_complete, iter(range(1000))

    def is_complete(event: Mapping[str, Any]) -> Any:
        if event["ResourceType"] == PREPARE and next(polls) == number:
            act()
        return real(event)

    train.provider.is_complete = is_complete  # type: ignore[method-assign]
