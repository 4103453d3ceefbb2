"""What the function does with each kind of input."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.alerts.handler import HeartbeatNotVisible, first_answer, route
from helpers.alerts.account import DEFAULT_POLICY, PLAN, TOPIC, Account, deliver, error, group
from helpers.alerts.events import SCRIPTS, awslogs, cluster_event, health_line, node_id
from helpers.findings import codes

Json = Any


@pytest.mark.parametrize("event", [{}, {"schedule": "other"}, {"detail-type": "x"}])
def test_an_input_of_another_form_is_an_error(event: Json) -> None:
    with pytest.raises(ValueError, match="no input of this function"):
        route(event, Account().alerts())


# -- the health agent's lines ------------------------------------------------------------------------------------------


def test_lines_go_to_the_queue_and_become_a_message() -> None:
    account = Account()
    assert route(awslogs(health_line(), health_line()), account.alerts()) is None
    assert account.messages == []
    deliver(account, *account.queue)
    assert [message["Subject"] for message in account.messages] == [
        "[llm-train] p5: 1 node wrote the health record XidHardwareFailure"
    ]


def test_ten_lines_are_one_call_and_no_line_is_too_long_for_it() -> None:
    account = Account()
    route(awslogs(*("\U0001f4a5" * 200_000 for _ in range(25))), account.alerts())
    assert account.calls["send_message_batch"] == 3
    assert sum(len(body.encode()) for body in account.queue[:10]) < 262_144
    assert len(account.queue) == 25


def test_a_user_who_floods_a_log_does_not_fill_the_queue() -> None:
    account = Account()
    route(awslogs(*[health_line()] * 5000), account.alerts())
    assert len(account.queue) == 100


def test_a_control_message_puts_nothing_on_the_queue() -> None:
    account = Account()
    route(
        awslogs("CWL CONTROL MESSAGE: Checking health of destination Firehose.", kind="CONTROL_MESSAGE"),
        account.alerts(),
    )
    assert account.calls.total() == 0


def test_lines_that_sqs_does_not_accept_are_sent_again_and_a_failure_is_an_error() -> None:
    account = Account(refused_entries=2)
    route(awslogs(*(health_line() for _ in range(5))), account.alerts())
    assert len(account.queue) == 5
    account.refused_entries = 100
    with pytest.raises(RuntimeError, match="are not on the queue"):
        route(awslogs(health_line()), account.alerts())


# -- the first run -----------------------------------------------------------------------------------------------------


def request(kind: str = "Create") -> Json:
    return {
        "RequestType": kind,
        "ResponseURL": "https://secret.example.com",
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": "First",
        "ResourceProperties": {},
    }


def outcome(account: Account, kind: str = "Create") -> str:
    reply = first_answer(request(kind), account.alerts(), account.said.append)
    assert reply["Status"] == "SUCCESS"
    text: str = reply["Data"]["Outcome"]
    assert text.isprintable() and len(str(reply)) < 4096
    return text


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_the_first_run_writes_the_metrics_and_sends_nothing(kind: str) -> None:
    account = Account(groups=[group(TrainingPlanArn=PLAN)])
    assert outcome(account, kind) == "Metrics are written."
    assert "Heartbeat" in str(account.data)
    assert account.messages == []


def test_a_deletion_does_nothing() -> None:
    account = Account()
    assert first_answer({**request("Delete"), "PhysicalResourceId": "it"}, account.alerts()) == {
        "StackId": "stack", "RequestId": "request", "LogicalResourceId": "First", "PhysicalResourceId": "it", "Status": "SUCCESS",
    }  # fmt: skip
    assert account.calls.total() == 0


def test_the_answer_waits_until_cloudwatch_shows_the_heartbeat() -> None:
    account = Account(delay=timedelta(seconds=30))
    assert outcome(account) == "Metrics are written."
    assert account.now >= account.data[0]["MetricData"][0]["Timestamp"] + account.delay


@pytest.mark.parametrize("copies", ["one copy", "a new copy for each attempt"])
def test_a_heartbeat_that_is_late_is_left_to_lambda_s_next_attempt(copies: str) -> None:
    # Lambda tries an asynchronous event again after a minute, and after two.
    account = Account(delay=timedelta(seconds=100))
    began, alerts = account.now, account.alerts()
    with pytest.raises(HeartbeatNotVisible):
        first_answer(request(), alerts)
    assert (account.now - began).total_seconds() < 50, "the function has a minute"
    account.now += timedelta(seconds=60)
    reply = first_answer(request(), alerts if copies == "one copy" else account.alerts())
    assert reply["Data"]["Outcome"] == "Metrics are written."


def test_a_heartbeat_that_never_shows_fails_no_deployment() -> None:
    account = Account(delay=timedelta(days=1))
    alerts = account.alerts()
    with pytest.raises(HeartbeatNotVisible):
        first_answer(request(), alerts)
    assert "does not show the heartbeat yet" in first_answer(request(), alerts)["Data"]["Outcome"]


def test_without_the_permission_to_look_for_the_heartbeat_the_answer_is_at_once() -> None:
    account = Account(errors={"get_metric_statistics": error("AccessDeniedException")})
    assert outcome(account) == "Metrics are written."
    assert "GetMetricStatistics failed" in account.said[0]


def test_permissions_on_their_way_are_waited_for() -> None:
    account = Account(errors={"put_metric_data": error("AccessDeniedException")})
    account.until = account.now + timedelta(seconds=20)
    assert outcome(account) == "Metrics are written."


@pytest.mark.parametrize("operation", ["describe_cluster", "put_metric_data"])
def test_metrics_that_cannot_be_written_fail_no_deployment_and_end_in_time(operation: str) -> None:
    account = Account(errors={operation: error("AccessDeniedException", f"not authorized to perform {operation}")})
    began = account.now
    assert outcome(account).startswith(
        f"Metrics are NOT written: AccessDeniedException: not authorized to perform {operation}; The stack"
    )
    assert (account.now - began).total_seconds() <= 40


def test_a_plan_that_cannot_be_read_is_in_the_outcome() -> None:
    account = Account(
        groups=[group(TrainingPlanArn=PLAN)], errors={"describe_training_plan": error("AccessDeniedException")}
    )
    assert outcome(account).startswith(
        f"Metrics are written without a heartbeat: DescribeTrainingPlan of {PLAN} failed"
    )


@pytest.mark.parametrize(
    ("attributes", "key_policy", "expected"),
    [
        ({"Policy": "{}"}, "{}", ["topic-policy-no-alarms"]),
        ({"Policy": DEFAULT_POLICY, "KmsMasterKeyId": "alias/aws/sns"}, "{}", ["topic-key-managed"]),
        (
            {"Policy": DEFAULT_POLICY, "KmsMasterKeyId": "alias/ours"},
            "{}",
            ["topic-key-no-alarms", "topic-key-no-messages"],
        ),
    ],
)
def test_a_topic_that_alarms_cannot_reach_is_reported(
    attributes: dict[str, str], key_policy: str, expected: list[str]
) -> None:
    account = Account(attributes=attributes, key_policy=key_policy)
    text = outcome(account)
    assert text.startswith("Metrics are written. ")
    assert codes(text) == expected
    assert '"Service": "cloudwatch.amazonaws.com"' in text and '"aws:SourceAccount": "111122223333"' in text


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ("get_topic_attributes", "The topic's policy could not be read: AccessDeniedException: no."),
        ("get_key_policy", "The policy of the topic's key could not be read: AccessDeniedException: no."),
    ],
)
def test_a_topic_or_key_policy_that_cannot_be_read_is_reported(operation: str, said: str) -> None:
    account = Account(
        attributes={"Policy": DEFAULT_POLICY, "KmsMasterKeyId": "alias/ours"},
        errors={operation: error("AccessDeniedException")},
    )
    assert outcome(account) == f"Metrics are written. {said}"


def test_an_error_that_nothing_foresees_ends_no_deployment() -> None:
    account = Account(groups=[{"CurrentCount": 1}])
    assert outcome(account) == "Metrics are NOT written: KeyError; see the function's log."
    assert "secret.example.com" not in str(account.said)


def test_publishing_goes_to_the_topic_and_nothing_of_a_message_but_its_subject_is_logged() -> None:
    account = Account()
    deliver(account, cluster_event(SCRIPTS, node=node_id(1), reason="PASSWORD=swordfish"))
    assert account.messages[0]["TopicArn"] == TOPIC
    assert account.said == ["published: [llm-train] p5: 1 node failed in the lifecycle scripts"]
    assert "swordfish" not in json.dumps(account.said)
