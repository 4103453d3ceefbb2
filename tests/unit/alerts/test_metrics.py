"""The metrics of the schedule: what is counted, how often AWS is asked, and when there is no heartbeat."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.alerts.handler import route
from helpers.alerts.account import PLAN, Account, error, group

Json = Any
SCHEDULE = {"schedule": "metrics"}


def measured(account: Account) -> dict[tuple[str, str], float]:
    """(metric, group) -> value of the one call. The cluster's own have no group."""
    (call,) = account.data
    assert call["Namespace"] == "HyperPod/Clusters"
    found = {}
    for datum in call["MetricData"]:
        dimensions = {each["Name"]: each["Value"] for each in datum["Dimensions"]}
        assert dimensions.pop("ClusterName") == "llm-train"
        found[datum["MetricName"], dimensions.pop("InstanceGroup", "")] = datum["Value"]
        assert dimensions == {}
    return found


def test_each_group_and_the_cluster_have_their_metrics() -> None:
    account = Account(
        groups=[
            group("p5", 5, 8, 6, TrainingPlanArn=PLAN, ImageVersionStatus="EndOfLife"),
            group("c5", 3, 2, None, ImageVersionStatus="UpdateAvailable"),
        ]
    )
    route(SCHEDULE, account.alerts())
    assert measured(account) == {
        ("Heartbeat", ""): 1,
        ("MissingNodes", ""): 3,
        ("NodesBelowMinimum", ""): 1,
        ("TrainingPlanDaysLeft", ""): 10,
        ("OutdatedImage", ""): 1,
        ("MissingNodes", "p5"): 3,
        ("NodesBelowMinimum", "p5"): 1,
        ("TrainingPlanDaysLeft", "p5"): 10,
        ("OutdatedImage", "p5"): 1,
        ("MissingNodes", "c5"): 0,
        ("NodesBelowMinimum", "c5"): 0,
        ("OutdatedImage", "c5"): 0,
    }


@pytest.mark.parametrize(
    ("status", "outdated"), [("UpToDate", 0), ("UpdateAvailable", 0), ("SecurityUpdateRequired", 1), ("EndOfLife", 1)]
)
def test_a_new_release_alone_is_not_outdated(status: str, outdated: int) -> None:
    account = Account(groups=[group(ImageVersionStatus=status)])
    route(SCHEDULE, account.alerts())
    assert measured(account)["OutdatedImage", ""] == outdated


def test_a_value_that_hyperpod_does_not_return_has_no_metric() -> None:
    account = Account(groups=[group(minimum=None)])
    route(SCHEDULE, account.alerts())
    assert {name for name, _ in measured(account)} == {"Heartbeat", "MissingNodes", "NodesBelowMinimum"}


def test_the_cluster_s_plan_is_the_one_that_ends_first_and_an_ended_one_has_no_days() -> None:
    account = Account(groups=[group("p5", TrainingPlanArn=PLAN), group("c5")])
    account.now += timedelta(days=20)
    route(SCHEDULE, account.alerts())
    assert measured(account)["TrainingPlanDaysLeft", ""] == 0


def test_a_day_has_288_descriptions_of_the_cluster_and_24_of_a_plan() -> None:
    account = Account(groups=[group(f"g{number}", TrainingPlanArn=PLAN) for number in range(3)])
    alerts = account.alerts()
    for _ in range(288):
        route(SCHEDULE, alerts)
        account.now += timedelta(minutes=5)
    assert account.calls == {"describe_cluster": 288, "describe_training_plan": 24, "put_metric_data": 288}


def test_more_metrics_than_one_call_takes_are_several_calls() -> None:
    account = Account(groups=[group(f"g{number}") for number in range(600)])
    route(SCHEDULE, account.alerts())
    assert [len(call["MetricData"]) for call in account.data] == [1000, 1000, 406]


def test_each_value_is_of_two_minutes_so_that_a_late_run_leaves_no_period_empty() -> None:
    account = Account()
    route(SCHEDULE, account.alerts())
    times: dict[str, list[float]] = {}
    for datum in account.data[0]["MetricData"]:
        key = f"{datum['MetricName']} {datum['Dimensions']}"
        times.setdefault(key, []).append((datum["Timestamp"] - account.now).total_seconds())
    assert set(map(tuple, times.values())) == {(0, 60)}


@pytest.mark.parametrize("log_group", [None, "", "/aws/sagemaker/Clusters/llm-train/abcdefghijkl"])
def test_a_cluster_that_is_gone_has_a_heartbeat_alone(log_group: str | None) -> None:
    account = Account(errors={"describe_cluster": error("ResourceNotFound")})
    alerts = account.alerts() if log_group is None else account.alerts(LOG_GROUP=log_group)
    route(SCHEDULE, alerts)
    datum, _ = account.data[0]["MetricData"]
    assert (datum["MetricName"], datum["Value"]) == ("Heartbeat", 1)
    assert datum["Dimensions"] == [{"Name": "ClusterName", "Value": "abcdefghijkl" if log_group == "" else "llm-train"}]


@pytest.mark.parametrize("operation", ["describe_cluster", "put_metric_data"])
def test_a_schedule_that_cannot_measure_fails_without_a_heartbeat(operation: str) -> None:
    account = Account(errors={operation: error("AccessDeniedException")})
    with pytest.raises(ClientError):
        route(SCHEDULE, account.alerts())
    assert account.data == []


def test_a_plan_that_cannot_be_read_leaves_out_the_heartbeat_and_its_own_metric() -> None:
    account = Account(
        groups=[group(TrainingPlanArn=PLAN)], errors={"describe_training_plan": error("AccessDeniedException")}
    )
    route(SCHEDULE, account.alerts())
    assert {name for name, _ in measured(account)} == {"MissingNodes", "NodesBelowMinimum"}
    assert "AccessDeniedException" in account.said[0] and PLAN in account.said[0]


def test_a_plan_that_is_gone_or_has_no_end_is_no_failure() -> None:
    for account in (
        Account(groups=[group(TrainingPlanArn=PLAN)], errors={"describe_training_plan": error("ResourceNotFound")}),
        Account(groups=[group(TrainingPlanArn=PLAN)], plan_end=None),
    ):
        route(SCHEDULE, account.alerts())
        assert {name for name, _ in measured(account)} == {"Heartbeat", "MissingNodes", "NodesBelowMinimum"}


def test_a_plan_that_cannot_be_read_again_keeps_its_end_for_an_hour() -> None:
    account = Account(groups=[group(TrainingPlanArn=PLAN)])
    alerts = account.alerts()
    route(SCHEDULE, alerts)
    account.errors["describe_training_plan"] = error("ThrottlingException")
    account.data.clear()
    account.now += timedelta(minutes=55)
    route(SCHEDULE, alerts)
    assert ("Heartbeat", "") in measured(account) and ("TrainingPlanDaysLeft", "p5") in measured(account)


def test_restricted_groups_are_counted() -> None:
    account = Account()
    whole = account.describe_cluster({})
    account.describe_cluster = lambda _: {**whole, "RestrictedInstanceGroups": [group("nova", 1, 2)]}  # type: ignore[method-assign]
    route(SCHEDULE, account.alerts())
    assert measured(account)["MissingNodes", ""] == 4
