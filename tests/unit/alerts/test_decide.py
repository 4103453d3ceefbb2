"""Which messages a batch gives: one for each incident, few for health records, and none that was sent within the hour."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.alerts.memory import COPIES, MOST, RECORDS_AN_HOUR, Memory, Reported
from helpers.alerts.account import Account, deliver, error, group
from helpers.alerts.events import (
    CAPACITY,
    NOT_CREATED,
    NOT_PROVISIONED,
    REPLACED,
    SCRIPTS,
    cluster_event,
    envelope,
    failed_launch,
    health_event,
    health_record,
    lost_ready,
    node_id,
)

Json = Any
DAYS_OF_SCALING = [(3, 10, 5), (4, 6, 5), (1, 5, 5), (2, 7, 9)]


def subjects(account: Account) -> list[str]:
    return [message["Subject"] for message in account.messages]


def body(account: Account) -> str:
    (message,) = account.messages
    text: str = message["Message"]
    return text


# -- one incident, one message -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nodes", [(None, None), (1, 1), (1, None), (None, 1)], ids=["no ids", "both", "the first", "the second"]
)
def test_the_two_events_of_a_failed_launch_are_one_message(nodes: tuple[int | None, int | None]) -> None:
    account = Account()
    pair = [
        cluster_event(words, node=None if number is None else node_id(number), reason=CAPACITY)
        for words, number in zip((NOT_PROVISIONED, NOT_CREATED), nodes, strict=True)
    ]
    assert deliver(account, *pair) == []
    assert subjects(account) == ["[llm-train] p5: 1 node failed to launch"]


def test_500_failures_are_one_message_with_the_count_and_ten_ids() -> None:
    account = Account()
    deliver(account, *(event for number in range(500) for event in failed_launch(node=node_id(number))))
    assert subjects(account) == ["[llm-train] p5: 500 nodes failed to launch"]
    (line,) = [line for line in body(account).splitlines() if line.startswith("Nodes:")]
    assert line.split(None, 1)[1] == ", ".join(map(node_id, range(10))) + " and 490 more"


def test_an_event_that_sqs_delivers_twice_counts_once() -> None:
    account, event = Account(), cluster_event(NOT_PROVISIONED, reason=CAPACITY)
    deliver(account, event, event, event)
    assert subjects(account) == ["[llm-train] p5: 1 node failed to launch"]


@pytest.mark.parametrize("also", [{"node": node_id(1)}, {"node": None}], ids=["of the node", "without an id"])
def test_failed_scripts_explain_the_launch_that_fails_with_them(also: Json) -> None:
    account = Account()
    deliver(account, *failed_launch(**also), cluster_event(SCRIPTS, node=node_id(1), reason="exit code 1"))
    assert subjects(account) == ["[llm-train] p5: 1 node failed in the lifecycle scripts"]
    assert "exit code 1" in body(account) and CAPACITY not in body(account)


def test_failed_scripts_do_not_explain_other_nodes_that_fail_to_launch() -> None:
    account = Account()
    scripts = cluster_event(SCRIPTS, node=node_id(1), reason="exit code 1")
    deliver(account, scripts, *failed_launch(), *failed_launch())
    assert subjects(account) == [
        "[llm-train] p5: 2 nodes failed to launch",
        "[llm-train] p5: 1 node failed in the lifecycle scripts",
    ]


@pytest.mark.parametrize("old", [3, 4], ids=["the same node", "the node that it replaces"])
def test_a_health_event_names_no_group_and_explains_the_replacement_in_any(old: int) -> None:
    account = Account()
    deliver(account, health_event(node_id(old)), cluster_event(REPLACED, node=node_id(3), level="Info"))
    (subject,) = subjects(account)
    assert subject.endswith("1 node is unhealthy")


def test_an_unhealthy_node_does_not_explain_the_record_of_another() -> None:
    account = Account()
    deliver(account, health_event(node_id(1)), health_record(node_id(1)), health_record(node_id(2)))
    assert subjects(account) == [
        "[llm-train] 1 node is unhealthy",
        "[llm-train] p5: 1 node wrote the health record XidHardwareFailure",
    ]
    assert node_id(1) not in account.messages[1]["Message"]


def test_up_to_twenty_incidents_of_hyperpod_have_a_message_each() -> None:
    account = Account()
    deliver(account, *(cluster_event(SCRIPTS, group=f"g{number:02}", reason="1") for number in range(20)))
    assert subjects(account) == [
        f"[llm-train] g{number:02}: 1 node failed in the lifecycle scripts" for number in range(20)
    ]


def test_a_thousand_events_of_a_hundred_groups_are_twenty_messages_and_the_last_leaves_none_out() -> None:
    account = Account()
    alerts = account.alerts()
    events = [
        *(cluster_event(SCRIPTS, group=f"g{number % 100}", node=node_id(number), reason="1") for number in range(1000)),
        *failed_launch("g7", node_id(2000), "no capacity"),
    ]
    for _ in range(2):
        assert deliver(account, *events, alerts=alerts) == []
    assert len(account.messages) == 20, "none is sent again"
    last = account.messages[-1]
    assert last["Subject"] == "[llm-train] 82 more failures"
    lines = [line for line in last["Message"].splitlines() if line.startswith("- ")]
    assert len(lines) == 82
    listed = {line[2:].partition(":")[0] for line in lines}
    own = {subject.split()[1].rstrip(":") for subject in subjects(account)[:-1]}
    assert own | listed == {f"g{number}" for number in range(100)} and own & listed <= {"g7"}
    assert lines[-1] == (
        f"- g7: 1 node failed to launch. HyperPod: {failed_launch('g7')[0]['detail']['EventDetails']['Description']} "
        f"Reason: no capacity Nodes: {node_id(2000)}"
    )
    attributes = last["MessageAttributes"]
    assert attributes["kind"] == {"DataType": "String.Array", "StringValue": '["lifecycle-script", "launch"]'}
    assert attributes["level"] == {"DataType": "String", "StringValue": "Error"}
    assert {*json.loads(attributes["group"]["StringValue"])} == listed


def test_a_list_of_failures_that_is_too_long_for_sns_is_more_than_one_message() -> None:
    account = Account()
    names = [f"g{number:03}{'x' * 59}" for number in range(300)]
    deliver(account, *(cluster_event(SCRIPTS, group=name, reason="\U0001f4a5" * 600) for name in names))
    assert len(account.messages) < 30
    sizes = [len(json.dumps(each, ensure_ascii=False).encode()) for each in account.messages]
    assert max(sizes) < 200_000, "SNS takes 262,144 bytes"
    text = "\n".join(each["Message"] for each in account.messages)
    assert {name: text.count(f"{name}: 1 node failed") for name in names[19:]} == dict.fromkeys(names[19:], 1)


def test_a_minimum_that_is_given_up_explains_the_cluster_s_state() -> None:
    account = Account()
    deliver(
        account,
        cluster_event("Rollback initiated", level="Warn", reason="2 of 4 running", subtree="InstanceGroupScaling"),
        envelope(
            "SageMaker HyperPod Cluster State Change", {"ClusterName": "llm-train", "ClusterStatus": "RollingBack"}
        ),
    )
    assert subjects(account) == ["[llm-train] p5: the minimum was not reached, the group is rolled back"]


def test_a_minimum_that_is_given_up_does_not_explain_a_cluster_that_failed() -> None:
    account = Account()
    failed = envelope(
        "SageMaker HyperPod Cluster State Change", {"ClusterName": "llm-train", "ClusterStatus": "Failed"}
    )
    deliver(account, cluster_event("Rollback initiated", level="Warn", reason="2 of 4 running"), failed)
    assert subjects(account)[0] == "[llm-train] the cluster failed"
    assert len(account.messages) == 2


def test_groups_and_kinds_have_messages_of_their_own_the_worst_first() -> None:
    account = Account(groups=[group("p5"), group("c5")])
    deliver(
        account,
        health_record(node_id(1), group="c5"),
        *failed_launch("p5"),
        *(event for _ in range(3) for event in failed_launch("c5")),
    )
    assert subjects(account) == [
        "[llm-train] c5: 3 nodes failed to launch",
        "[llm-train] p5: 1 node failed to launch",
        "[llm-train] c5: 1 node wrote the health record XidHardwareFailure",
    ]


FAULTS: list[Callable[[int, str], Json]] = [
    lambda number, name: failed_launch(name, node_id(number))[number % 2],
    lambda number, name: cluster_event(SCRIPTS, group=name, node=node_id(number), reason=f"exit code {number}"),
    lambda number, name: health_record(node_id(number), name, reason=f"Xid{number}"),
    lambda number, name: health_event(node_id(number)),
    lambda number, name: cluster_event(f"Something new {name} {number}", group=name, level="Warn"),
    lambda number, name: envelope(f"SageMaker HyperPod Novelty {number}", {"ClusterName": "llm-train"}),
    lambda number, name: cluster_event("Rollback initiated", group=name, level="Warn"),
]


@given(
    st.lists(
        st.tuples(st.sampled_from(FAULTS), st.integers(0, 999), st.sampled_from(["p5", "c5", "trn", "g6", ""])),
        max_size=60,
    )
)
def test_a_batch_of_any_failures_has_at_most_five_messages_of_records_and_ten_calls(
    faults: list[tuple[Callable[[int, str], Json], int, str]],
) -> None:
    account = Account()
    assert deliver(account, *(make(number, name) for make, number, name in faults)) == []
    assert len(of_records(account)) <= 5
    assert (len(account.messages) > 0) == (len(faults) > 0)
    assert account.calls["describe_cluster"] <= 1
    assert account.calls["describe_cluster_event"] <= 10


def test_1000_records_of_a_hundred_groups_have_five_messages_and_all_are_counted() -> None:
    account = Account(groups=[group(f"g{number}") for number in range(100)])
    deliver(account, *(health_record(node_id(number), f"g{number % 100}") for number in range(1000)))
    assert len(account.messages) == 5
    assert subjects(account)[-1] == "[llm-train] 96 more kinds of health records"
    text = account.messages[-1]["Message"]
    assert text.count("10 nodes wrote the health record XidHardwareFailure (written on the node: Xid") == 30
    assert "- and 66 more" in text


# -- a process on a node with PutLogEvents -----------------------------------------------------------------------------

FORGED = ["XidHardwareFailure", "all is well", "", "a\nSubject: b\u202e"]


def of_records(account: Account) -> list[Json]:
    return [each for each in account.messages if each["MessageAttributes"]["kind"]["StringValue"] == "health-record"]


@given(
    st.lists(
        st.tuples(st.sampled_from(FAULTS[:2] + FAULTS[3:]), st.integers(0, 9), st.sampled_from(["p5", "c5", ""])),
        max_size=10,
    ),
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["p5", "c5", ""]), st.sampled_from(FORGED)), max_size=30),
    st.booleans(),
)
def test_forged_records_change_and_hide_no_message_of_hyperpod(
    faults: list[tuple[Callable[[int, str], Json], int, str]], forged: list[tuple[int, str, str]], before: bool
) -> None:
    """In the same batch and in those before it: HyperPod's messages are what they are without the records, and come first."""
    events = [make(number, name) for make, number, name in faults]
    records = [health_record(node_id(number), name, reason) for number, name, reason in forged]
    alone, account = Account(), Account()
    deliver(alone, *events)
    alerts = account.alerts()
    deliver(account, *(records if before else []), alerts=alerts)
    account.messages.clear()
    deliver(account, *records, *events, alerts=alerts)
    assert account.messages[: len(alone.messages)] == alone.messages
    assert of_records(account) == account.messages[len(alone.messages) :]


def test_records_make_ten_messages_an_hour_at_most() -> None:
    account = Account()
    copies = [account.alerts() for _ in range(COPIES)]
    for number in range(40):
        for alerts in copies:
            deliver(account, *(health_record(node_id(each), reason=f"Xid{number}") for each in range(3)), alerts=alerts)
        account.now += timedelta(minutes=1)
    assert len(account.messages) == RECORDS_AN_HOUR
    deliver(account, health_event(node_id(1)), alerts=alerts)
    assert subjects(account)[-1] == "[llm-train] 1 node is unhealthy"
    account.now += timedelta(minutes=21)
    assert deliver(account, health_record(node_id(2), reason="Xid99"), alerts=alerts) == []
    assert subjects(account)[-1] == "[llm-train] p5: 1 node wrote the health record Xid99"


def test_a_flood_of_records_pushes_no_event_out_of_the_memory() -> None:
    account = Account()
    alerts = account.alerts()
    deliver(account, health_event(node_id(1)), alerts=alerts)
    deliver(account, *(health_record(node_id(number)) for number in range(MOST)), alerts=alerts)
    deliver(account, health_event(node_id(1)), alerts=alerts)
    assert subjects(account).count("[llm-train] 1 node is unhealthy") == 1


def test_a_forged_record_names_no_group_that_the_cluster_does_not_have() -> None:
    account = Account()
    event = health_event(node_id(1))
    deliver(account, health_record(node_id(1), "call-0900-now", "call 0900 now\n\u202eHyperPod: all is well"), event)
    deliver(account, health_record(node_id(2), "call-0900-now", "call 0900 now\n\u202eHyperPod: all is well"))
    assert subjects(account) == ["[llm-train] 1 node is unhealthy", "[llm-train] 1 node wrote a health record"]
    (line,) = [line for line in account.messages[1]["Message"].splitlines() if "0900" in line]
    assert line.startswith("Reason:    written on the node: call 0900 now ?HyperPod: all is well: NVRM")


# -- progress ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [[group(current=5, target=8)], [group(current=8, target=5), group("c5", 1, 1)]])
def test_nodes_that_lose_readiness_while_counts_change_are_progress(groups: list[Json]) -> None:
    account = Account(groups=groups)
    assert deliver(account, *(lost_ready(*each) for each in DAYS_OF_SCALING)) == []
    assert account.messages == []


@pytest.mark.parametrize("more", [{"Status": "SystemUpdating"}, {"SoftwareUpdateStatus": "InProgress"}])
def test_nodes_that_lose_readiness_during_a_software_update_are_progress(more: Json) -> None:
    account = Account(groups=[group(current=8, target=8, **more)])
    deliver(account, lost_ready(1, 7, 8))
    assert account.messages == []


def test_the_last_event_of_a_scale_down_comes_when_no_count_changes_any_more() -> None:
    account = Account(groups=[group(current=5, target=5)])
    deliver(account, lost_ready(1, 5, 5))
    assert account.messages == []


@pytest.mark.parametrize("is_known", [True, False])
def test_nodes_that_lose_readiness_while_no_count_changes_are_a_fault_without_the_misleading_reason(
    is_known: bool,
) -> None:
    account = Account(
        groups=[group(current=8, target=8)], errors={} if is_known else {"describe_cluster": error("Throttling")}
    )
    deliver(account, lost_ready(1, 7, 8), lost_ready(2, 6, 8))
    assert subjects(account) == ["[llm-train] nodes lost orchestration-ready status while no count changes"]
    assert "1 node(s) lost orchestration-ready status. Current: 7/8" in body(account)
    assert "contact customer support" not in body(account)
    assert account.calls["describe_cluster_event"] == 0


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(
            cluster_event("Instance lifecycle script execution for EC2InstanceId {node} has Started", node=node_id(1), level=None),
            id="an old sample, without a level",
        ),
        pytest.param(
            cluster_event(
                "Instance {node} creation completed successfully as part of instance replacement in Cluster llm-train and IG p5",
                node=node_id(1), level="Info",
            ),
            id="a replacement that is complete",
        ),
        pytest.param(health_event(node_id(1), status="Healthy"), id="a node that is healthy again"),
        pytest.param(
            envelope("SageMaker HyperPod Cluster State Change", {"ClusterStatus": "InService"}), id="a cluster in service"
        ),
    ],
)  # fmt: skip
def test_progress_has_no_message_and_costs_no_call(event: Json) -> None:
    account = Account()
    assert deliver(account, event) == []
    assert account.calls.total() == 0


def test_progress_at_the_level_of_a_fault_is_passed_on() -> None:
    account = Account()
    deliver(
        account,
        cluster_event("UpdateClusterSoftware completed successfully for IG p5 in Cluster llm-train.", level="Warn"),
    )
    assert subjects(account) == [
        "[llm-train] p5: UpdateClusterSoftware completed successfully for IG p5 in Cluster llm-train"
    ]


# -- reasons -----------------------------------------------------------------------------------------------------------


def null_and_filled(make: Callable[[str | None], list[Json]]) -> tuple[Account, Account]:
    """The same events, with and without their metadata."""
    accounts = []
    for is_null in (True, False):
        events = make(None if is_null else CAPACITY)
        ids = [event["detail"]["EventDetails"]["EventId"] for event in events]
        account = Account(reasons=dict.fromkeys(ids, CAPACITY))
        deliver(account, *events)
        accounts.append(account)
    return accounts[0], accounts[1]


@pytest.mark.parametrize("description", [NOT_PROVISIONED, NOT_CREATED, SCRIPTS, "Rollback initiated", "Something new"])
@pytest.mark.parametrize("count", [1, 7])
def test_null_and_filled_metadata_give_the_same_text(description: str, count: int) -> None:
    null, filled = null_and_filled(
        lambda reason: [
            cluster_event(
                description, node=node_id(number), reason=reason, event_id=f"83ea0bb5-be77-45e8-a458-{number:012x}"
            )
            for number in range(count)
        ]
    )
    assert CAPACITY in body(null)
    assert null.messages == filled.messages
    assert (null.calls["describe_cluster_event"], filled.calls["describe_cluster_event"]) == (1, 0)


def test_the_event_that_is_described_is_the_inner_one_and_the_pair_s_first() -> None:
    first = cluster_event(NOT_PROVISIONED)
    account = Account(reasons={first["detail"]["EventDetails"]["EventId"]: CAPACITY})
    deliver(account, cluster_event(NOT_CREATED), first)
    assert CAPACITY in body(account)


@pytest.mark.parametrize(
    "subtree", ["Cluster", "InstanceGroupScaling", "InstanceHealth", "DatabaseConfiguration", "New"]
)
def test_a_reason_is_read_in_any_subtree(subtree: str) -> None:
    account = Account()
    deliver(account, cluster_event(NOT_PROVISIONED, reason=CAPACITY, subtree=subtree))
    assert CAPACITY in body(account)


def test_500_failures_of_two_causes_are_described_twice_at_most() -> None:
    account = Account()
    deliver(
        account,
        *(event for number in range(200) for event in failed_launch(reason=None)),
        *(cluster_event(SCRIPTS, node=node_id(number)) for number in range(100)),
    )
    assert account.calls["describe_cluster_event"] == 2


def test_reasons_that_differ_in_ids_alone_are_one() -> None:
    account = Account()
    deliver(
        account,
        *(cluster_event(SCRIPTS, node=node_id(each), reason=f"{node_id(each)} ended with 1") for each in range(9)),
    )
    assert body(account).count("ended with 1") == 1


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (error("AccessDeniedException", "no permission"), "not available: DescribeClusterEvent failed: AccessDeniedException: no permission"),
        (error("ThrottlingException", "slow down"), "not available: DescribeClusterEvent failed: ThrottlingException: slow down"),
        (error("ResourceNotFound"), "not available: HyperPod no longer has the event"),
        (None, "HyperPod gives none"),
    ],
    ids=["denied", "throttled", "gone", "no reason"],
)  # fmt: skip
def test_a_message_without_a_reason_goes_and_says_so(failure: Exception | None, said: str) -> None:
    event = cluster_event(NOT_PROVISIONED)
    account = Account(reasons={event["detail"]["EventDetails"]["EventId"]: ""})
    account.errors = {} if failure is None else {"describe_cluster_event": failure}
    assert deliver(account, event) == []
    assert f"Reason:    {said}" in body(account).splitlines()


def test_a_call_that_is_denied_is_not_repeated_for_each_cause() -> None:
    account = Account(errors={"describe_cluster_event": error("AccessDeniedException")})
    deliver(account, *(cluster_event(SCRIPTS, group=name) for name in ("p5", "c5", "g6")))
    assert (account.calls["describe_cluster_event"], len(account.messages)) == (1, 3)
    assert all("AccessDeniedException" in message["Message"] for message in account.messages)


# -- the memory --------------------------------------------------------------------------------------------------------

REPEATED = [
    pytest.param(lambda: failed_launch(reason=CAPACITY), id="a launch"),
    pytest.param(lambda: [cluster_event(SCRIPTS, node=node_id(1), reason="exit code 1")], id="scripts"),
    pytest.param(lambda: [health_record(node_id(1))], id="a health record"),
    pytest.param(lambda: [health_event(node_id(1))], id="a node health event"),
    pytest.param(lambda: [lost_ready(1, 7, 8)], id="lost readiness"),
    pytest.param(lambda: [cluster_event("Something new 17", level="Warn")], id="an unknown Description"),
    pytest.param(lambda: [envelope("SageMaker HyperPod Novelty", {})], id="an unknown type"),
    pytest.param(lambda: [cluster_event("Rollback initiated", level="Warn", reason="2 of 4")], id="a minimum"),
]


@pytest.mark.parametrize("make", REPEATED)
def test_the_same_cause_on_the_same_nodes_is_not_reported_again_within_an_hour(make: Callable[[], list[Json]]) -> None:
    account = Account(groups=[group(current=8, target=8)])
    alerts = account.alerts()
    for _ in range(4):
        assert deliver(account, *make(), alerts=alerts) == []
        account.now += timedelta(minutes=14)
    assert len(account.messages) == 1
    account.now += timedelta(minutes=14)
    deliver(account, *make(), alerts=alerts)
    assert len(account.messages) == 2, "an hour after the first message"


def test_a_copy_of_the_function_that_is_new_remembers_nothing() -> None:
    account = Account()
    deliver(account, *failed_launch())
    deliver(account, *failed_launch())
    assert len(account.messages) == 2


def test_1000_records_of_one_fault_are_one_message() -> None:
    account = Account()
    alerts = account.alerts()
    for _ in range(100):
        deliver(account, *(health_record(node_id(1)) for _ in range(10)), alerts=alerts)
        account.now += timedelta(seconds=30)
    assert subjects(account) == ["[llm-train] p5: 1 node wrote the health record XidHardwareFailure"]


def test_another_node_or_another_cause_is_reported() -> None:
    account = Account()
    alerts = account.alerts()
    deliver(account, health_record(node_id(1)), alerts=alerts)
    deliver(account, health_record(node_id(1)), health_record(node_id(2)), alerts=alerts)
    deliver(account, health_record(node_id(1), reason="XidUserAppError"), alerts=alerts)
    assert subjects(account) == [
        "[llm-train] p5: 1 node wrote the health record XidHardwareFailure",
        "[llm-train] p5: 1 node wrote the health record XidHardwareFailure",
        "[llm-train] p5: 1 node wrote the health record XidUserAppError",
    ]
    assert node_id(1) not in account.messages[1]["Message"]


def test_a_failed_update_and_its_failed_rollback_are_two_causes_and_both_are_shown() -> None:
    failed = "Failed to complete UpdateClusterSoftware for IG p5 in Cluster llm-train."
    rollback = "Rollback failed for IG p5 in Cluster llm-train. Some instances may be in FailedMaintenance state."
    account = Account()
    alerts = account.alerts()
    deliver(account, cluster_event(failed, reason="no"), alerts=alerts)
    deliver(account, cluster_event(failed, reason="no"), cluster_event(rollback, reason="no"), alerts=alerts)
    assert len(account.messages) == 2
    assert rollback in account.messages[1]["Message"] and failed not in account.messages[1]["Message"]
    deliver(account, cluster_event(failed), cluster_event(rollback))
    assert rollback in account.messages[2]["Message"] and failed in account.messages[2]["Message"]


def test_attempts_with_new_ids_are_the_same_nodes_until_more_are_missing() -> None:
    account = Account(groups=[group(current=5, target=8)])
    alerts = account.alerts()
    for number in range(6):
        deliver(account, *failed_launch(node=node_id(number)), alerts=alerts)
        account.now += timedelta(minutes=5)
    assert len(account.messages) == 1
    deliver(
        account, *(event for number in range(4) for event in failed_launch(node=node_id(100 + number))), alerts=alerts
    )
    assert subjects(account)[1:] == ["[llm-train] p5: 4 nodes failed to launch"]


def test_the_second_event_of_a_pair_in_the_next_batch_is_no_message() -> None:
    account = Account()
    alerts = account.alerts()
    deliver(account, cluster_event(SCRIPTS, node=node_id(1), reason="exit code 1"), alerts=alerts)
    account.now += timedelta(seconds=40)
    deliver(account, *failed_launch(reason="lifecycle scripts failed"), alerts=alerts)
    assert len(account.messages) == 1
    account.now += timedelta(minutes=30)
    deliver(account, *failed_launch(), alerts=alerts)
    assert len(account.messages) == 2


def test_a_replacement_after_a_fault_was_announced_by_it() -> None:
    account = Account()
    alerts = account.alerts()
    deliver(account, health_event(node_id(1)), alerts=alerts)
    account.now += timedelta(minutes=5)
    deliver(account, cluster_event(REPLACED, node=node_id(9), level="Info"), alerts=alerts)
    assert len(account.messages) == 1
    failed = "Instance {node} failed to start as part of instance replacement in Cluster llm-train and IG p5"
    deliver(account, cluster_event(failed, node=node_id(9)), alerts=alerts)
    assert subjects(account)[1:] == ["[llm-train] p5: 1 node could not be replaced"]


def test_a_cluster_s_rollback_in_the_next_batch_was_announced_by_the_minimum() -> None:
    account = Account()
    alerts = account.alerts()
    deliver(account, cluster_event("Rollback initiated", level="Warn", reason="2 of 4"), alerts=alerts)
    rollback = envelope("SageMaker HyperPod Cluster State Change", {"ClusterStatus": "RollingBack"})
    deliver(account, rollback, alerts=alerts)
    assert len(account.messages) == 1
    deliver(account, rollback)
    assert subjects(account)[1:] == ["[llm-train] the cluster is rolled back"]


def test_the_name_of_a_fault_is_its_cause_whatever_the_line_says() -> None:
    account = Account()
    alerts = account.alerts()
    for words in ("Xid 71", "Xid 94"):
        record = health_record(node_id(1))
        record["healthRecord"]["message"] = record["healthRecord"]["message"].replace("Xid (PCI:0000:b9:00): 71", words)
        deliver(account, record, alerts=alerts)
    assert len(account.messages) == 1


def test_another_reason_that_only_describe_cluster_event_has_is_reported() -> None:
    account = Account()
    alerts = account.alerts()
    for reason in ("the first", "the first", "the second"):
        event = cluster_event("Failed to terminate EC2 Instance {node} in Cluster llm-train and IG p5", node=node_id(1))
        account.reasons[event["detail"]["EventDetails"]["EventId"]] = reason
        deliver(account, event, alerts=alerts)
    assert ["the second" in message["Message"] for message in account.messages] == [False, True]


def test_the_memory_is_bounded_and_ends_after_an_hour() -> None:
    memory, now = Memory(), Account().now
    for number in range(3 * MOST // 4):
        memory.note(Reported(group="p5", kind="unhealthy", cause="c", nodes=[node_id(number)], count=1), now)
    assert not memory.knows_node("p5", "unhealthy", "c", node_id(0), now), "the oldest are forgotten"
    assert memory.knows_node("p5", "unhealthy", "c", node_id(3 * MOST // 4 - 1), now)
    assert len(memory) <= MOST
    memory.note(Reported(group="c5", kind="launch", cause="c", nodes=[""], count=1), now + timedelta(hours=1))
    assert len(memory) < 20


def test_a_record_of_another_node_than_the_unhealthy_one_is_news() -> None:
    account = Account()
    alerts = account.alerts()
    deliver(account, health_event(node_id(1)), alerts=alerts)
    deliver(account, health_record(node_id(2)), alerts=alerts)
    assert len(account.messages) == 2


def test_a_message_that_could_not_be_published_is_sent_when_its_records_return() -> None:
    account = Account(errors={"publish": error("InternalError", status=500)})
    alerts = account.alerts()
    assert deliver(account, *failed_launch(), alerts=alerts) == ["message-1", "message-2"]
    account.errors = {}
    assert deliver(account, *failed_launch(), alerts=alerts) == []
    assert len(account.messages) == 1


@pytest.mark.parametrize(("shared_out", "messages"), [([(0, 1)], 1), ([(0,), (1,)], 2)], ids=["together", "apart"])
def test_records_that_come_again_in_two_copies_of_the_function_give_a_message_each_at_most(
    shared_out: list[tuple[int, ...]], messages: int
) -> None:
    """The queue has two copies, and each knows its own messages only. Nothing is lost."""
    records = [health_event(node_id(1)), cluster_event(REPLACED, node=node_id(9), level="Info")]
    account = Account(errors={"publish": error("InternalError", status=500)})
    copies = [account.alerts(), account.alerts()]
    assert deliver(account, *records, alerts=copies[0]) == ["message-1", "message-2"]
    account.errors = {}
    for _ in range(3):
        for alerts, part in zip(copies, shared_out, strict=False):
            assert deliver(account, *(records[number] for number in part), alerts=alerts) == []
    assert len(account.messages) == messages


# -- records that fail -------------------------------------------------------------------------------------------------

MALFORMED = ["", "no JSON", "[]", "null", "1", "{}", '{"detail-type": "x"}', '{"detail": {}}', '{"detail-type": 1, "detail": {}}', "[" * 100_000,
             json.dumps({"healthRecord": {"message": "x"}}), json.dumps({"healthRecord": 1}),
             json.dumps(envelope("SageMaker HyperPod Cluster Event", {"EventDetails": None}))]  # fmt: skip


@pytest.mark.parametrize("record", MALFORMED, ids=lambda record: record[:30])
def test_a_malformed_record_fails_alone(record: str) -> None:
    account = Account()
    assert deliver(account, record, *failed_launch()) == ["message-1"]
    assert len(account.messages) == 1


def test_the_records_of_a_message_that_cannot_be_published_fail_with_what_it_explains() -> None:
    account = Account(errors={"publish": error("AuthorizationError")})
    scripts = cluster_event(SCRIPTS, node=node_id(1))
    assert sorted(deliver(account, "x", scripts, *failed_launch(node=node_id(1)), health_event(node_id(2), "Healthy"))) == [
        "message-1", "message-2", "message-3", "message-4",
    ]  # fmt: skip


@pytest.mark.parametrize("value", [None, True, 7, -(10**30), 1e300, [], ["Error"], {}, {"a": {}}], ids=repr)
def test_a_member_of_another_type_is_as_if_it_were_absent(value: Json) -> None:
    account = Account()
    events = []
    for name in (
        "EventId",
        "EventTime",
        "EventLevel",
        "Description",
        "InstanceId",
        "InstanceGroupName",
        "EventDetails",
    ):
        event = cluster_event(NOT_PROVISIONED)
        event["detail"]["EventDetails"][name] = value
        events.append(event)
    summary = {"HealthStatus": value, "HealthStatusReason": value, "RepairAction": value, "Recommendation": value}
    events.append(
        envelope("SageMaker HyperPod Cluster Node Health Event", {"InstanceId": value, "HealthSummary": summary})
    )
    events.append(
        envelope("SageMaker HyperPod Cluster Node Health Event", {"InstanceId": node_id(1), "HealthSummary": value})
    )
    events.append(envelope("SageMaker HyperPod Cluster State Change", {"ClusterStatus": value}))
    events.append({**health_record(node_id(1)), "timestamp": value})
    assert deliver(account, *events) == []
    assert account.messages


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
WORD = JSON | st.sampled_from(
    ["Error", "Info", "Failed", "RollingBack", "Unhealthy", NOT_CREATED, "Rollback initiated"]
)


def any_object(*names: str) -> st.SearchStrategy[Json]:
    """An object with some of these members, each with any value."""
    return JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(names, WORD))


EVENT = any_object(
    "EventId", "EventTime", "EventLevel", "Description", "InstanceId", "InstanceGroupName", "EventDetails"
)
DETAIL = st.one_of(
    st.fixed_dictionaries({"EventDetails": EVENT}),
    st.fixed_dictionaries({"HealthSummary": any_object("HealthStatus", "HealthStatusReason"), "InstanceId": WORD}),
    any_object("ClusterStatus", "FailureMessage", "ClusterName"),
)
TYPES = st.sampled_from(
    [f"SageMaker HyperPod Cluster {kind}" for kind in ("Event", "State Change", "Node Health Event", "New")]
)
RECORD = st.fixed_dictionaries({"healthRecord": any_object("logStream", "timestamp", "message")})


@given(st.lists(st.one_of(JSON, st.builds(envelope, TYPES, DETAIL), RECORD), max_size=6))
def test_any_record_is_read_or_reported_as_failed(bodies: list[Json]) -> None:
    account = Account()
    failed = deliver(account, *bodies)
    assert {*failed} <= {f"message-{number}" for number in range(1, len(bodies) + 1)}
