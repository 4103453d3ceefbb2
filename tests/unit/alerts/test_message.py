"""What a subscriber reads, and SNS's limits whatever HyperPod and the nodes' users write."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.alerts.message import PAGE, subject
from helpers.alerts.account import Account, deliver, error, group
from helpers.alerts.events import (
    CAPACITY,
    NOT_PROVISIONED,
    SCRIPTS,
    cluster_event,
    envelope,
    failed_launch,
    health_event,
    health_record,
    node_id,
)

Json = Any
EXPECTED = f"""\
Instance group p5 of cluster llm-train: 3 nodes failed to launch.

HyperPod:  Failed to provision EC2 Instance in Cluster llm-train and InstanceGroup p5 (3 events)
Reason:    {CAPACITY}
Nodes:     i-00000000000000001, i-00000000000000002 and 1 node without an instance id
Counts:    current 5, target 8, minimum 4
By itself: HyperPod tries again until the group has its target count.

Next:      cdk-hyperpod watch --cluster llm-train --region us-west-2
           cdk-hyperpod logs i-00000000000000001 --cluster llm-train --region us-west-2
Page:      {PAGE}, in the folder that `cdk-hyperpod docs` prints
First:     2025-06-01 16:20:25 UTC, event 83ea0bb5-0000-0000-0000-000000000001
"""


def test_the_whole_message_of_a_capacity_shortfall() -> None:
    account = Account()
    nodes = [node_id(1), node_id(2), None]
    ids = [f"83ea0bb5-0000-0000-0000-{number:012}" for number in (1, 2, 3)]
    deliver(
        account,
        *(
            cluster_event(NOT_PROVISIONED, node=node, reason=CAPACITY, event_id=each)
            for node, each in zip(nodes, ids, strict=True)
        ),
    )
    (message,) = account.messages
    assert message["Subject"] == "[llm-train] p5: 3 nodes failed to launch"
    assert message["Message"] == EXPECTED
    assert {name: value["StringValue"] for name, value in message["MessageAttributes"].items()} == {
        "cluster": "llm-train", "group": "p5", "kind": "launch", "level": "Error",
    }  # fmt: skip


def line(account: Account, label: str) -> str:
    (message,) = account.messages
    (found,) = [each for each in message["Message"].splitlines() if each.startswith(label)]
    text: str = found
    return text[11:]


@pytest.mark.parametrize(
    ("groups", "failure", "said"),
    [
        ([group(minimum=None)], None, "current 5, target 8, no minimum"),
        ([group("c5")], None, "the group does not exist now"),
        ([], error("ResourceNotFound"), "unknown: the cluster does not exist now"),
        (
            [],
            error("AccessDeniedException", "no permission"),
            "unknown: DescribeCluster failed: AccessDeniedException: no permission",
        ),
    ],
)
def test_a_message_has_the_counts_of_the_group_or_why_they_are_unknown(
    groups: list[Json], failure: Exception | None, said: str
) -> None:
    account = Account(groups=groups, errors={} if failure is None else {"describe_cluster": failure})
    assert deliver(account, *failed_launch()) == []
    assert line(account, "Counts:") == said


@pytest.mark.parametrize(
    ("recovery", "said"),
    [
        ("Automatic", "HyperPod reboots or replaces the node."),
        ("None", "HyperPod leaves the node as it is"),
        ("New", "With NodeRecovery Automatic"),
    ],
)
def test_a_message_explains_hyperpods_own_action_by_node_recovery(recovery: str, said: str) -> None:
    account = Account(recovery=recovery)
    deliver(account, health_event(node_id(1)))
    assert said in line(account, "By itself:")


@pytest.mark.parametrize("key", ["details", "details: "])
def test_a_health_record_has_its_group_node_and_reason(key: str) -> None:
    # AWS's samples have both keys.
    account = Account()
    deliver(account, health_record(node_id(1), "p5", key=key))
    assert line(account, "Log:") == "HealthMonitoringAgentDetectionEvent in the cluster's log group"
    assert line(account, "Reason:").startswith(
        "written on the node: XidHardwareFailure: NVRM: Xid (PCI:0000:b9:00): 71"
    )
    assert line(account, "Nodes:") == node_id(1)


@pytest.mark.parametrize("text", ["plain words", '{"HealthMonitoringAgentDetectionEvent": "HealthEvent", "new": 1}'])
def test_a_health_record_of_an_unknown_form_is_passed_on_as_it_is(text: str) -> None:
    account = Account()
    record = {"logStream": f"SagemakerHealthMonitoringAgent/p5/{node_id(1)}", "timestamp": 0, "message": text}
    assert deliver(account, {"healthRecord": record}) == []
    assert line(account, "Reason:") == f"written on the node: {text}"
    assert account.messages[0]["Subject"] == "[llm-train] p5: 1 node wrote a health record"


def test_an_event_of_an_unknown_type_is_passed_on_as_it_is() -> None:
    account = Account()
    novelty = envelope("SageMaker HyperPod Cluster Novelty", {"ClusterName": "llm-train", "Colour": "green"})
    deliver(account, novelty)
    assert account.messages[0]["Subject"] == "[llm-train] SageMaker HyperPod Cluster Novelty"
    assert '"Colour": "green"' in line(account, "Event:")


def test_a_failed_cluster_is_named_although_it_is_gone() -> None:
    account = Account(errors={"describe_cluster": error("ResourceNotFound")})
    deliver(
        account,
        envelope(
            "SageMaker HyperPod Cluster State Change", {"ClusterStatus": "Failed", "FailureMessage": "no controller"}
        ),
    )
    assert account.messages[0]["Subject"] == "[llm-train] the cluster failed"
    assert line(account, "Reason:") == "no controller"


def test_a_name_of_another_form_is_in_no_command() -> None:
    # A user of a node can name a log stream, and a reader copies commands.
    account = Account(errors={"describe_cluster": error("ThrottlingException")})
    event = health_record("i-0123456789abcdef0; rm -rf /")
    deliver(account, event, cluster_event(SCRIPTS, node="$(reboot)", group="c5"))
    commands = [
        each for message in account.messages for each in message["Message"].splitlines() if "cdk-hyperpod" in each
    ]
    assert commands
    assert not [each for each in commands if re.search("[;$]", each)]


HOSTILE = st.text(st.characters(codec="utf-8"), max_size=2000) | st.sampled_from(
    ["a\nSubject: b", "\x1b[31mred", "\u202egnp.exe", "é" * 5000, "\U0001f4a5" * 5000, "\ud800", "", " ", "…" * 200]
)


@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE, st.sampled_from(["Error", "Warn", None, "New"]))
def test_untrusted_text_is_bounded_printable_lines_within_the_limits_of_sns(
    a: str, b: str, c: str, d: str, level: str | None
) -> None:
    account = Account(groups=[group(a or "p5")])
    events = [cluster_event(NOT_PROVISIONED if a < b else "{group}{node}", group=a, node=b, reason=c, level=level)]
    events[0]["detail"]["EventDetails"] |= {"EventId": d, "ClusterName": b}
    records = [{"healthRecord": {"logStream": f"SagemakerHealthMonitoringAgent/{a}/{b}", "timestamp": 1, "message": c}}]
    assert deliver(account, *events, *records, envelope(d, {"x": c}), health_event(b), *failed_launch(a, b, c)) == []
    assert account.messages
    for message in account.messages:
        assert re.fullmatch(r"[\x21-\x7e][\x20-\x7e]{0,98}", message["Subject"])
        size = len(message["Message"].encode()) + len(str(message["MessageAttributes"]).encode())
        assert size < 40_000, "SNS takes 262,144 bytes"
        assert all(each.isprintable() for each in message["Message"].splitlines())
        assert message["Message"].count("\n") <= 25
        assert all(value["StringValue"] for value in message["MessageAttributes"].values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 100, "x" * 96 + "..."),
        ("x" * 99, "x" * 99),
        ("[a] é…", "[a] ?..."),
        (" a ", "a"),
        ("", "?"),
        ("a" * 95 + " bcde", "a" * 95 + "..."),
    ],
)
def test_a_subject_is_ascii_of_less_than_100_characters(text: str, expected: str) -> None:
    assert subject(text) == expected


@pytest.mark.parametrize("name", ["controller", "login"])
def test_a_controller_that_is_replaced_leads_to_the_page_about_it(name: str) -> None:
    groups = [{**group(each), "SlurmConfig": {"NodeType": each.capitalize()}} for each in ("controller", "login")]
    account = Account(groups=groups)
    deliver(account, health_record(node_id(1), name))
    assert ("docs/controller-replaced.md" in line(account, "By itself:")) == (name == "controller")
