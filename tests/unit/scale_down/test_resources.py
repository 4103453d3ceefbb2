"""Both resources from their first event to their answer: what fails, when, and in which words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down import messages
from cdk_hyperpod._lambda.hyperpod.scale_down.aws.clients import READ_PATIENCE
from cdk_hyperpod._lambda.hyperpod.scale_down.model.properties import FINALIZE, PREPARE
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.poll import PATIENCE
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import ScaleDownError
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.request import State
from helpers.findings import codes
from helpers.scale_down.scenarios import QUICK, ended, failure, ids
from helpers.scale_down.stack import LAMBDA, STACK_ID, Behaviour, Faults, Stack, Template, Timings, group

FOUR = Template(groups=(group("p5", 4),))
TWO = Template(groups=(group("p5", 2),))


def four(timings: Timings = QUICK, **behaviour: Any) -> Stack:
    return Stack(FOUR, timings=timings, behaviour=Behaviour(**behaviour))


def begins(train: Stack, template: Template, kind: str) -> None:
    """CloudFormation begins with the resource in an update."""
    train._is("UPDATE_IN_PROGRESS")
    train._event(kind, "physical", "UPDATE_IN_PROGRESS", template.prepare if kind == PREPARE else template.finalize)


def event(request: str, template: Template, kind: str = PREPARE, old: Template | None = None) -> dict[str, Any]:
    properties = [
        None if each is None else (each.prepare if kind == PREPARE else each.finalize) for each in (template, old)
    ]
    return {
        "RequestType": request,
        "ResponseURL": "https://secret.example/",
        "StackId": STACK_ID,
        "ResourceType": kind,
        "LogicalResourceId": kind.rpartition(":")[2],
        "ResourceProperties": properties[0],
        "OldResourceProperties": properties[1],
    }


def changes(train: Stack) -> dict[str, int]:
    return dict(train.hyperpod.changes(principal=LAMBDA))


# -- the shape of it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PREPARE, FINALIZE])
def test_physical_id_never_changes(kind: str) -> None:
    train = four()
    made = train.provider.on_event(event("Create", FOUR, kind))["PhysicalResourceId"]
    begins(train, TWO, kind)
    kept = train.provider.on_event({**event("Update", TWO, kind, FOUR), "PhysicalResourceId": made})
    assert kept["PhysicalResourceId"] == made


@pytest.mark.parametrize("kind", [PREPARE, FINALIZE])
def test_a_delete_request_makes_no_call(kind: str) -> None:
    train = four()
    since = len(train.hyperpod.journal)
    answer = train.provider.on_event(event("Delete", FOUR, kind))
    assert train.provider.is_complete({**event("Delete", FOUR, kind), **answer})["IsComplete"]
    assert len(train.hyperpod.journal) == since


def test_first_deployment_finds_no_cluster() -> None:
    train = four()
    answer = train.provider.on_event(event("Create", replace(FOUR, name="other")))
    assert answer["Pending"] is False


def test_unknown_request_is_refused() -> None:
    with pytest.raises(ScaleDownError, match=r"^The properties of this resource are invalid"):
        four().provider.on_event(event("Import", FOUR))


def test_log_holds_no_event() -> None:
    train = four()
    assert train.deploy(TWO) == "complete"
    assert train.log
    assert not any("secret.example" in line or "ResponseURL" in line for line in train.log)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_refusal_is_readable_and_nothing_happened() -> None:
    train = four()
    refusal = messages.refusals.too_many(2, limit=1)
    head = "Scaling down train was refused, and nothing in the cluster was changed."
    assert failure(train, replace(TWO, max_nodes=1)) == f"{head} {refusal}."
    assert changes(train) == {}


def test_many_refusals_are_counted() -> None:
    names = [f"group-{number}" for number in range(30)]
    train = Stack(Template(groups=tuple(group(name, 1) for name in names)), timings=QUICK)
    reason = failure(train, Template(groups=()))
    assert reason.endswith("more, in the log [group-missing].")
    assert {*codes(reason)} == {"group-missing"}
    assert sum(line.startswith("refuse: instance_groups: ") for line in train.log) == 30, "all of them are in the log"


def test_renamed_cluster_is_refused_without_a_look_at_it() -> None:
    train = four()
    since = len(train.hyperpod.journal)
    assert codes(failure(train, replace(FOUR, name="other"))) == ["cluster-renamed"]
    # The rollback looks at the old cluster, and does nothing.
    assert {call.params.get("ClusterName") for call in train.hyperpod.journal[since:]} <= {"train", None}
    assert changes(train) == {}


def test_a_cluster_of_another_stack_is_refused() -> None:
    train = four()
    arn = train.hyperpod.cluster("train").arn
    train.hyperpod.client(principal="somebody").delete_tags(ResourceArn=arn, TagKeys=["cdk-hyperpod:stack-id"])
    assert codes(failure(train, TWO)) == ["cluster-of-another-stack"]
    assert changes(train) == {}


def test_software_update_that_hyperpod_demands_is_refused_with_the_how() -> None:
    train = four(patched_once_required="always")
    reason = failure(train, TWO)
    assert codes(reason) == ["scale-down-failed", "software-update-required"]
    assert "`cdk-hyperpod patch`" in reason
    assert changes(train) == {}


def test_standard_target_that_stays_is_refused_and_not_lowered() -> None:
    """There an UpdateCluster with a lower count ends nodes at random, also right after some were taken."""
    six = Template(groups=(group("p5", 6),), continuous=False)
    stays: dict[str, Any] = {
        "batch_delete_lowers_target": "never",
        "standard_batch_delete_shows_updating": False,
        "counts_shutting_down_nodes": "while_counted",
        "replaces_missing_nodes_after_batch_delete": False,
    }
    train = Stack(six, timings=QUICK, behaviour=Behaviour(**stays))
    chosen = ids(train, "p5")[:2]
    template = replace(six, groups=(group("p5", 4),), nodes_to_delete=tuple(chosen))
    assert str(messages.refusals.target_stays("p5", target=6, nodes=4, count=4)) in failure(train, template)
    assert changes(train) == {"BatchDeleteClusterNodes": 1}
    assert ended(train) == set(chosen)


def test_other_network_is_refused() -> None:
    train = four()
    other = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    assert f"{messages.refusals.replaced('network')}" in failure(train, replace(TWO, vpc=other))
    assert changes(train) == {}


# -- what is waited for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["DescribeCluster", "ListClusterNodes", "ListTags", "BatchDeleteClusterNodes"])
def test_permission_that_arrives_late(operation: str) -> None:
    train = four()
    late = Faults(denied_until={operation: train.clock.now() + 100})
    train.hyperpod.faults = train.disturbance = late
    assert train.deploy(TWO) == "complete", train.reasons
    assert changes(train) == {"BatchDeleteClusterNodes": 1}


@pytest.mark.parametrize("operation", ["DescribeCluster", "ListClusterNodes", "ListTags", "BatchDeleteClusterNodes"])
def test_permission_that_is_missing(operation: str) -> None:
    train = four()
    began = train.clock.now()
    train.hyperpod.faults = train.disturbance = Faults(denied_until={operation: began + 600})
    assert train.deploy(TWO) != "complete"
    reason = train.reasons[0]
    assert codes(reason) == ["scale-down-failed"]
    assert f"is not authorized to perform: sagemaker:{operation}" in reason
    first = messages.failures.FIRST_HINT in reason
    assert first is (operation == "BatchDeleteClusterNodes"), "rights to read are there before"
    assert ("find what denies it" in reason) is not first
    assert changes(train) == {}


@pytest.mark.parametrize("code", ["AccessDenied", "Throttling"])
def test_stack_status_that_cannot_be_read_yet(code: str) -> None:
    """A rollback that can be told from an update only after a while does its part."""
    train = four()
    here = ids(train)

    def fails() -> None:
        train.status_fails, train.status_fails_until = code, train.clock.now() + 90

    assert train.deploy(SIX, fail="after", meanwhile=fails) == "rolled back", train.reasons
    assert ids(train) == here
    fails()
    assert train.deploy(TWO) == "complete", train.reasons


@pytest.mark.parametrize("code", ["AccessDenied", "Throttling"])
@pytest.mark.parametrize("kind", [PREPARE, FINALIZE])
def test_nothing_is_done_without_the_stacks_status(kind: str, code: str) -> None:
    """An unknown status is never taken for a rollback, which takes without limit."""
    both = Template(groups=(group("p5", 4), group("old", 1)))
    train = Stack(both, timings=QUICK, vanished="leave")
    began = train.clock.now()
    train.status_fails, train.status_fails_until = code, began + 1_000_000
    template = replace(FOUR, groups_to_delete=("old",))
    with pytest.raises(ScaleDownError) as caught:
        train.provider.on_event(event("Update", template, kind, both))
    reason = str(caught.value)
    assert codes(reason) == ["scale-down-failed", "stack-status-unreadable"]
    assert f"Reading the stack's status (cloudformation:DescribeStacks): {code}: not now." in reason
    assert 60 < train.clock.now() - began <= READ_PATIENCE.total_seconds()


def test_finalize_without_groups_to_look_for_needs_no_status() -> None:
    train = four()
    train.status_fails, train.status_fails_until = "AccessDenied", train.clock.now() + 1_000_000
    assert train.provider.on_event(event("Update", TWO, FINALIZE, FOUR))["Pending"] is False


def by_hand(train: Stack, count: int) -> None:
    """Somebody sets the group's count, and it gets there."""
    train.hyperpod.client(principal="somebody").update_cluster(ClusterName="train", InstanceGroups=[group("p5", count)])
    train.clock.advance(3_600)


@pytest.mark.parametrize(("code", "seconds"), [("AccessDenied", 100), ("Throttling", 2_000)])
def test_events_that_cannot_be_read_yet(code: str, seconds: float) -> None:
    """Until it is known what the failed update got to, a rollback takes nothing: here it did not get to the cluster."""
    train = four()
    by_hand(train, 6)

    def fails() -> None:
        train.events_fail, train.events_fail_until = code, train.clock.now() + seconds

    assert train.deploy(Template(groups=(group("p5", 6),)), fail="before", meanwhile=fails) == "rolled back", (
        train.reasons
    )
    assert train.clock.now() >= train.events_fail_until
    assert not ended(train)
    assert train.log[-1] == f"note: {messages.notes.NOT_REACHED}"


def test_events_that_may_not_be_read_fail_a_rollback_that_would_take_nodes() -> None:
    """Nothing is taken before it is known whether the cluster is sent back; the sentence names the permission."""
    train = four()
    here = ids(train)
    train.events_fail, train.events_fail_until = "AccessDenied", train.clock.now() + 1_000_000
    assert train.deploy(Template(groups=(group("p5", 6),)), fail="after") == "rollback failed"
    assert len(ids(train)) == len(here) + 2
    assert codes(train.reasons[-1]) == ["rollback-reach-unknown"]
    assert "cloudformation:DescribeStackEvents" in train.reasons[-1]
    train.events_fail_until = train.clock.now()
    assert train.roll_back() == "rolled back", train.reasons
    assert ids(train) == here


def test_events_that_may_not_be_read_do_not_hold_up_a_rollback_without_anything_to_take() -> None:
    train = four()
    train.events_fail, train.events_fail_until = "AccessDenied", train.clock.now() + 1_000_000
    assert train.deploy(replace(FOUR, tags={"team": "a"}), fail="after") == "rolled back", train.reasons
    assert "cannot read how far the failed update got: AccessDenied: not now" in train.log


def test_events_are_read_before_changes_only() -> None:
    train = four()
    assert train.deploy(TWO) == "complete", train.reasons
    looks = train.looks_at_events
    assert looks == 2, "once by on_event, which has something to do, and once before the change"
    assert train.deploy(FOUR, fail="after") == "rolled back", train.reasons
    assert train.looks_at_events > looks
    looks = train.looks_at_events
    train._is("UPDATE_ROLLBACK_IN_PROGRESS")
    train.provider.on_event(event("Update", FOUR, FINALIZE, TWO))
    assert train.looks_at_events == looks, "there is nothing to do"


@pytest.mark.parametrize("fail", ["before", "after"])
def test_rollback_that_failed_and_is_continued(fail: Any) -> None:
    """What the failed update got to is still known, and whatever CloudFormation makes of the stack's time is no matter."""
    train = four()
    by_hand(train, 6)
    here = ids(train, "p5")
    template = Template(groups=(group("p5", 6),), tags={"team": "a"})

    def fails() -> None:
        train.hyperpod.faults = train.disturbance = Faults(
            throttle_operations=frozenset({"DescribeCluster"}), throttle_next=10_000
        )

    assert train.deploy(template, fail=fail, meanwhile=fails) == "rollback failed"
    train.hyperpod.faults = train.disturbance = Faults()
    train.updated = train.clock.now()
    assert train.roll_back() == "rolled back", train.reasons
    assert ids(train, "p5") == (here if fail == "before" else here[:4])


SIX = Template(groups=(group("p5", 6),))


def test_rollback_says_at_its_end_what_hyperpod_refused() -> None:
    train = four(patched_once_required="always")
    assert train.deploy(SIX, fail="after") == "rollback failed"
    reason = train.reasons[-1]
    assert codes(reason) == ["rollback-out-of-time", "software-update-required"]
    assert ": 0 of 2 nodes deleted [" in reason
    assert reason.endswith("and continue the rollback [software-update-required].")
    train.hyperpod.behaviour = Behaviour()
    assert train.roll_back() == "rolled back", train.reasons


def test_rollback_says_at_its_end_what_is_not_allowed() -> None:
    train = four()
    train.disturbance = Faults(denied_until={"BatchDeleteClusterNodes": train.clock.now() + 1_000_000})
    assert train.deploy(SIX, fail="after") == "rollback failed"
    assert "BatchDeleteClusterNodes: AccessDeniedException: User: lambda is not authorized" in train.reasons[-1]
    assert train.reasons[-1].endswith(
        "find what denies it, such as a permissions boundary or a service control policy."
    )


@pytest.mark.parametrize("operation", ["DescribeCluster", "ListClusterNodes", "BatchDeleteClusterNodes"])
def test_rollback_waits_for_a_permission_as_long_as_it_can(operation: str) -> None:
    train = four()
    here = ids(train)

    def fails() -> None:
        train.hyperpod.faults = train.disturbance = Faults(denied_until={operation: train.clock.now() + 1_200})

    assert train.deploy(SIX, fail="after", meanwhile=fails) == "rolled back", train.reasons
    assert ids(train) == here


def test_rollback_goes_on_where_a_group_cannot_be_deleted() -> None:
    """The group that the failed update brought stays."""
    train = Stack(FOUR, timings=QUICK, vanished="leave")
    train.disturbance = Faults(denied_until={"UpdateCluster": train.clock.now() + 1_000_000})
    template = Template(groups=(*FOUR.groups, group("new", 1)))
    assert train.deploy(template, cancel=(FINALIZE, 0)) == "rolled back", train.reasons
    assert "new" in train.hyperpod.cluster("train").groups
    assert any("not yet: AccessDeniedException" in line for line in train.log)


def test_malformed_properties_in_a_rollback_do_nothing() -> None:
    """Of an earlier version, or edited by hand."""
    train = four()
    train.status = "UPDATE_ROLLBACK_IN_PROGRESS"
    found = event("Update", FOUR, PREPARE, SIX) | {"ResourceProperties": {"ClusterName": "train", "Groups": ["{"]}}
    assert train.provider.on_event(found)["Pending"] is False
    assert train.log[0].startswith("malformed: Groups[0]: must be the text of a JSON object")
    blind = found | State(began=train.now(), rolling_back=True, pending=None).write()
    assert train.provider.is_complete(blind)["IsComplete"]


def reads_updating(train: Stack, monkeypatch: pytest.MonkeyPatch, until: list[float]) -> None:
    """The cluster says that it is being updated, whatever its groups say."""
    describe = train.client.describe_cluster

    def describe_cluster(**arguments: Any) -> Any:
        reply = describe(**arguments)
        return reply | ({"ClusterStatus": "Updating"} if train.clock.now() < until[0] else {})

    monkeypatch.setattr(train.client, "describe_cluster", describe_cluster)


def test_cluster_that_does_not_accept_its_own_update_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    train = four()
    until = [0.0]
    reads_updating(train, monkeypatch, until)
    started = event("Update", TWO, PREPARE, FOUR)
    train.updated = train.clock.now()
    train._is("UPDATE_IN_PROGRESS")
    train._event(PREPARE, "prepare", "UPDATE_IN_PROGRESS", TWO.prepare)
    started |= train.provider.on_event(started)
    assert train.provider.is_complete(started) == {"IsComplete": False}
    train.clock.advance(2_000)
    until[0] = train.clock.now() + 60
    assert train.provider.is_complete(started) == {"IsComplete": False}, "the nodes are gone"
    train.clock.advance(61)
    assert train.provider.is_complete(started)["IsComplete"]


def test_nothing_to_take_is_no_reason_to_wait_after_a_first_look_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    train = four()
    reads_updating(train, monkeypatch, [train.clock.now() + 10_000])
    train.hyperpod.faults = Faults(throttle_operations=frozenset({"DescribeCluster"}), throttle_next=1)
    began = train.clock.now()
    train.custom(PREPARE, replace(FOUR, tags={"team": "a"}).prepare, FOUR.prepare)
    assert train.clock.now() - began < 90


def test_node_in_use_is_asked_for_again() -> None:
    train = four()
    first, second = ids(train, "p5")[-2:]
    train.disturbance = Faults(in_use_until={first: train.clock.now() + 600})
    assert train.deploy(replace(TWO, nodes_to_delete=(first, second))) == "complete", train.reasons
    assert ended(train) == {first, second}
    assert any(line.startswith(f"not yet: {first}: NodeIdInUse") for line in train.log)


# -- time -------------------------------------------------------------------------------------------------------------


def test_time_limit_says_what_is_done_and_what_is_left() -> None:
    train = four()
    first, second = ids(train, "p5")[-2:]
    train.disturbance = Faults(in_use_until={second: train.clock.now() + 100_000})
    began = train.clock.now()
    reason = failure(train, replace(TWO, nodes_to_delete=(first, second)))
    assert reason.startswith("Scaling down train did not finish within 55 minutes: 1 of 2 nodes deleted [")
    assert codes(reason) == ["scale-down-out-of-time"]
    assert f"Left: {second}. {second}: ValidationException" in reason
    assert "NodeIdInUse" in reason
    assert train.clock.now() - began < 3_600 + 1_000, "CloudFormation's own limit was not reached"
    # Deploying again goes on from there.
    train.disturbance = Faults()
    assert train.deploy(replace(TWO, nodes_to_delete=(first, second))) == "complete", train.reasons
    assert ended(train, "named") >= {first, second}


def test_time_limit_while_nodes_shut_down() -> None:
    train = four()
    victims = ids(train, "p5")[-2:]
    train.disturbance = Faults(undying_nodes=set(victims))
    reason = failure(train, replace(TWO, nodes_to_delete=tuple(victims)))
    assert ": 0 of 2 nodes deleted, and HyperPod has accepted the deletion of 2 [scale-down-out-of-time]." in reason
    assert messages.waits.shutting_down("p5", victims).why in reason
    assert reason.endswith(f" {victims[0]}, {victims[1]}.")


def test_time_limit_of_a_wait_names_what_could_not_go() -> None:
    train = four()
    train.hyperpod.set_capacity("ml.p5.48xlarge", 4)
    assert train.deploy(Template(groups=(group("p5", 6, minimum=0),))) == "complete", train.reasons
    train.hyperpod.client(principal="somebody").update_cluster(
        ClusterName="train", InstanceGroups=[group("p5", 6, minimum=6)]
    )
    reason = failure(train, Template(groups=(group("p5", 5, minimum=5),)))
    (left,) = (node.logical_id for node in train.hyperpod.nodes("train", "p5") if node.logical_id in reason)
    assert ": 0 of 1 node deleted [scale-down-out-of-time]." in reason
    assert reason.endswith(f"""Left: {left}. Group "p5" has 4 of the 5 nodes of its minimum.""")


def test_time_limit_of_finalize_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    train = Stack(Template(groups=(group("p5", 4), group("old", 1))), timings=QUICK, vanished="leave")
    train.disturbance = Faults(throttle_operations=frozenset({"UpdateCluster"}), throttle_next=10_000)
    template = replace(FOUR, groups_to_delete=("old",))
    assert train.deploy(template) == "complete", train.reasons
    assert "old" in train.hyperpod.cluster("train").groups
    assert any(line.startswith("time is up, groups are left to the next deployment") for line in train.log)
    train.disturbance = Faults()
    assert train.deploy(replace(template, tags={"team": "a"})) == "complete", train.reasons
    assert ended(train, "group-deleted")


def test_group_that_keeps_failing_to_boot_does_not_keep_the_deployment() -> None:
    """CurrentCount above the booted nodes may be nodes that boot, for ever: it is waited for, and not until time is up."""
    train = four(current_count_holds="launched", counts_shutting_down_nodes="while_counted")
    train.hyperpod.faults.failing_groups = {"p5"}
    train.disturbance = Faults(failing_groups={"p5"})
    assert train.deploy(Template(groups=(group("p5", 5),))) == "complete", train.reasons
    began = train.clock.now()
    assert train.deploy(Template(groups=(group("p5", 4),))) == "complete", train.reasons
    assert train.clock.now() - began < PATIENCE.total_seconds() + 1_000


def test_a_state_of_an_older_version_is_a_sentence() -> None:
    of_older = {**event("Update", TWO, old=FOUR), "StartedAt": 0.0, "RollingBack": False}
    with pytest.raises(
        ScaleDownError, match=r"another version .*; deploy again \[scale-down-state-of-another-version\]\."
    ):
        four().provider.is_complete(of_older)


def test_sentences_of_the_end() -> None:
    """AWS ends a sentence with a period, or not; ids and paths keep their first letter."""
    waits = ["the cluster is Updating", "ConflictException: The cluster is being updated.", "i-0a1b: NodeIdInUse it."]
    assert messages.failures.out_of_time("train", 55, None, [], waits, rolling_back=False).endswith(
        ". The cluster is Updating. ConflictException: The cluster is being updated. i-0a1b: NodeIdInUse it."
    )
    assert "its effect could not be seen" in messages.failures.out_of_time("train", 55, None, [], [], rolling_back=True)


# -- what a template may read -----------------------------------------------------------------------------------------


def test_the_attribute_lists_the_deleted_nodes_with_the_reason() -> None:
    train = four()
    first, *_, last = ids(train, "p5")
    when = train.now()
    assert train.deploy(replace(TWO, nodes_to_delete=(first,))) == "complete", train.reasons
    assert train.attributes == {
        PREPARE: {"NodesTaken": f"{when:%Y-%m-%d %H:%M} UTC: 2 nodes. p5: {first} (named), {last} (newest)."},
        FINALIZE: {"StillStanding": "nothing"},
    }


@pytest.mark.parametrize("kind", [PREPARE, FINALIZE])
@pytest.mark.parametrize("request_type", ["Create", "Update", "Delete"])
def test_every_answer_has_its_attribute(kind: str, request_type: str) -> None:
    train = four()
    train.custom(kind, event("Create", FOUR, kind)["ResourceProperties"], None, request=request_type)
    assert train.attributes[kind] == {"NodesTaken" if kind == PREPARE else "StillStanding": "nothing"}


def test_many_nodes_are_counted_and_the_answer_stays_small() -> None:
    train = Stack(Template(groups=(group("p5", 120),)), timings=QUICK)
    assert train.deploy(Template(groups=(group("p5", 1),))) == "complete", train.reasons
    text = train.attributes[PREPARE]["NodesTaken"]
    assert "UTC: 119 nodes. p5: i-" in text and text.endswith("And 69 more, in the log.")
    assert len(text) < 2_500


def test_a_group_that_is_left_is_reported_and_deleted_by_the_next_try() -> None:
    train = Stack(Template(groups=(group("p5", 4), group("old", 1))), timings=QUICK, vanished="leave")
    (node,) = ids(train, "old")
    train.disturbance = Faults(throttle_operations=frozenset({"UpdateCluster"}), throttle_next=10_000)
    template = replace(FOUR, groups_to_delete=("old",))
    assert train.deploy(template) == "complete", train.reasons
    text = train.attributes[FINALIZE]["StillStanding"]
    assert text.startswith(
        f'Group "old" with 1 node ({node}). ThrottlingException: Rate exceeded. Change scale_down.retry'
    )
    train.disturbance = Faults()
    assert train.deploy(replace(template, retry="once more")) == "complete", train.reasons
    text = train.attributes[FINALIZE]["StillStanding"]
    assert text.startswith(f'HyperPod accepted the deletion of group "old" with 1 node ({node})')
    train.clock.advance(600)
    assert "old" not in train.hyperpod.cluster("train").groups


def test_the_last_group_is_kept_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deleted the others after prepare had looked. HyperPod does not delete the last one."""
    both = Template(groups=(group("p5", 4), group("old", 1)))
    train = Stack(both, timings=QUICK, vanished="leave")
    (node,) = ids(train, "old")
    describe = train.client.describe_cluster

    def describe_cluster(**arguments: Any) -> Any:
        reply = describe(**arguments)
        return {
            **reply,
            "InstanceGroups": [each for each in reply["InstanceGroups"] if each["InstanceGroupName"] == "old"],
        }

    monkeypatch.setattr(train.client, "describe_cluster", describe_cluster)
    train.custom(FINALIZE, replace(FOUR, groups_to_delete=("old",)).finalize, both.finalize)
    text = train.attributes[FINALIZE]["StillStanding"]
    assert text.startswith(f'Group "old" with 1 node ({node}). Change scale_down.retry')
    assert not changes(train)


def test_a_cluster_that_cannot_be_read_at_the_end_is_reported() -> None:
    train = Stack(Template(groups=(group("p5", 4), group("old", 1))), timings=QUICK, vanished="leave")
    train.disturbance = Faults(throttle_operations=frozenset({"DescribeCluster"}), throttle_next=10_000)
    template = replace(FOUR, groups_to_delete=("old",))
    train.custom(FINALIZE, template.finalize, Template(groups=(group("p5", 4), group("old", 1))).finalize)
    assert train.attributes[FINALIZE]["StillStanding"].startswith("Reading the cluster: ThrottlingException: Rate")


# -- a function that fails --------------------------------------------------------------------------------------------


def breaks(train: Stack, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """HyperPod answers what nobody understands, for so long."""
    describe, until = train.client.describe_cluster, train.clock.now() + seconds

    def describe_cluster(**arguments: Any) -> Any:
        return {} if train.clock.now() < until else describe(**arguments)

    monkeypatch.setattr(train.client, "describe_cluster", describe_cluster)


def test_failure_of_the_function_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    train = four()
    breaks(train, monkeypatch, 90)
    with pytest.raises(ScaleDownError, match=r"\[scale-down-failed\]\. Reading the cluster: KeyError: 'ClusterArn'\."):
        train.provider.on_event(event("Update", TWO, PREPARE, FOUR))
    train.clock.advance(60)
    begins(train, TWO, PREPARE)
    started = event("Update", TWO, PREPARE, FOUR)
    started |= train.provider.on_event(started)
    breaks(train, monkeypatch, 60)
    with pytest.raises(ScaleDownError, match=r"\[scale-down-failed\]\. The function failed: KeyError: 'ClusterArn'\."):
        train.provider.is_complete(started)


def test_failure_of_the_function_is_another_poll_in_a_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    """CDK's framework never polls again once the function failed, and the stack would be stuck."""
    train = four()
    here = ids(train)
    failing = lambda: breaks(train, monkeypatch, 900)
    assert train.deploy(SIX, fail="after", meanwhile=failing) == "rolled back", train.reasons
    assert ids(train) == here
    assert not train.crashes


def test_failure_of_the_function_is_another_poll_after_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """finalize's failure would launch again what was just taken."""
    both = Template(groups=(group("p5", 4), group("old", 1)))
    train = Stack(both, timings=QUICK, vanished="leave")
    breaks(train, monkeypatch, 900)
    train._is("UPDATE_IN_PROGRESS")
    train.custom(FINALIZE, replace(FOUR, groups_to_delete=("old",)).finalize, both.finalize)
    train.clock.advance(600)
    assert "old" not in train.hyperpod.cluster("train").groups


# -- a rollback at its deadline (docs/adr/0010) -----------------------------------------------------------------------


def test_rollback_whose_nodes_still_shut_down_fails_and_says_how_to_go_on() -> None:
    """Nobody knows whether the cluster's way back would count them, and end others."""
    train = four()

    def stay() -> None:
        train.disturbance = train.hyperpod.faults = Faults(undying_nodes=set(ids(train, "p5")[-2:]))

    assert train.deploy(SIX, fail="after", meanwhile=stay) == "rollback failed"
    assert (
        ": 0 of 2 nodes deleted, and HyperPod has accepted the deletion of 2 [rollback-out-of-time]."
        in train.reasons[-1]
    )
    assert "aws cloudformation continue-update-rollback" in train.reasons[-1]
    train.disturbance = train.hyperpod.faults = Faults()
    assert train.roll_back() == "rolled back", train.reasons


def test_rollback_with_nothing_left_but_a_status_to_wait_for_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """CloudFormation's own handler waits for twelve hours."""
    train = four()
    here = ids(train)
    describe = train.client.describe_cluster

    def describe_cluster(**arguments: Any) -> Any:
        return describe(**arguments) | ({"ClusterStatus": "Updating"} if changes(train) else {})

    monkeypatch.setattr(train.client, "describe_cluster", describe_cluster)
    assert train.deploy(SIX, fail="after") == "rolled back", train.reasons
    assert ids(train) == here
    assert "time is up, and nothing is left to delete: the rollback continues" in train.log


def test_rollback_that_took_nodes_at_its_deadline_fails() -> None:
    """They are on their way out, and may be counted."""
    train = four()

    def in_use() -> None:
        busy = dict.fromkeys(ids(train, "p5")[-2:], train.clock.now() + 3_290)
        train.hyperpod.faults = train.disturbance = Faults(in_use_until=busy)

    assert train.deploy(SIX, fail="after", meanwhile=in_use) == "rollback failed"
    assert ended(train) and "0 of 2 nodes deleted, and HyperPod has accepted the deletion of 2" in train.reasons[-1]
    assert train.roll_back() == "rolled back", train.reasons


def test_rollback_with_nodes_left_to_take_fails_whatever_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    train = four()

    def checked() -> None:
        for node in train.hyperpod.nodes("train", "p5")[-2:]:
            train.hyperpod.change_node(
                node.logical_id, status="DeepHealthCheckInProgress", due=train.clock.now() + 7_200
            )

    assert train.deploy(SIX, fail="after", meanwhile=checked) == "rollback failed"
    assert "0 of 2 nodes deleted" in train.reasons[-1] and "a deep health check" in train.reasons[-1]
    train.clock.advance(7_200)
    assert train.roll_back() == "rolled back", train.reasons
