"""Rules of `monitoring`: the topic's place, its subscribers, bounds, and what standard provisioning does not report."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.findings import Found
from helpers.validating import validate

TOPIC = "arn:aws:sns:us-west-2:111122223333:oncall"
CLOSED: dict[str, Any] = {"slurm": {"metadata_users": []}}
EMAILS = ["oncall@example.com", "a.b+c@sub.example.co.uk"]


@pytest.mark.parametrize(
    ("bad", "expected", "good"),
    [
        pytest.param({"topic_arn": TOPIC.replace("west-2", "east-1")}, [("topic-in-another-region", "monitoring.topic_arn")], {"topic_arn": TOPIC}, id="region"),
        pytest.param({"topic_arn": f"{TOPIC}.fifo"}, [("value-malformed", "monitoring.topic_arn")], {"topic_arn": TOPIC}, id="FIFO"),
        pytest.param({"topic_arn": "oncall"}, [("value-malformed", "monitoring.topic_arn")], {"topic_arn": TOPIC}, id="no ARN"),
        pytest.param({"topic_arn": TOPIC, "emails": EMAILS}, [("emails-with-topic", "monitoring.emails")], {"emails": EMAILS}, id="two ways"),
        pytest.param({"emails": ["oncall"]}, [("value-malformed", "monitoring.emails[0]")], {"emails": EMAILS}, id="no domain"),
        pytest.param({"emails": ["oncall@example"]}, [("value-malformed", "monitoring.emails[0]")], {"emails": EMAILS}, id="no dot"),
        pytest.param({"emails": ["on call@example.com"]}, [("value-malformed", "monitoring.emails[0]")], {"emails": EMAILS}, id="a space"),
        pytest.param({"emails": [EMAILS[0]] * 2}, [("value-duplicated", "monitoring.emails")], {"emails": EMAILS}, id="twice"),
        pytest.param({"below_minimum_minutes": 4}, [("value-out-of-range", "monitoring.below_minimum_minutes")], {"below_minimum_minutes": 5}, id="minutes"),
        pytest.param({"below_minimum_minutes": 1441}, [("value-out-of-range", "monitoring.below_minimum_minutes")], {"below_minimum_minutes": 1440}, id="a day of minutes"),
        pytest.param({"missing_nodes_hours": 0}, [("value-out-of-range", "monitoring.missing_nodes_hours")], {"missing_nodes_hours": 1}, id="hours"),
        pytest.param({"missing_nodes_hours": 25}, [("value-out-of-range", "monitoring.missing_nodes_hours")], {"missing_nodes_hours": 24}, id="a day of hours"),
        pytest.param({"training_plan_days": 0}, [("value-out-of-range", "monitoring.training_plan_days")], {"training_plan_days": 1}, id="days"),
        pytest.param({"free_storage_percent": 100}, [("value-out-of-range", "monitoring.free_storage_percent")], {"free_storage_percent": 99}, id="percent"),
    ],
)  # fmt: skip
def test_an_invalid_monitoring_setting_is_refused_and_a_similar_valid_one_accepted(
    bad: dict[str, Any], expected: Found, good: dict[str, Any]
) -> None:
    assert validate({**CLOSED, "monitoring": bad}) == expected
    assert validate({**CLOSED, "monitoring": good}) == []


def test_a_topic_of_another_account_is_refused_if_the_file_names_its_own() -> None:
    other = {**CLOSED, "monitoring": {"topic_arn": TOPIC}, "account": "444455556666"}
    assert validate(other) == [("topic-in-another-account", "monitoring.topic_arn")]
    assert validate({**other, "account": "111122223333"}) == []


def test_all_is_found_at_once() -> None:
    bad = {"topic_arn": TOPIC.replace("west-2", "east-1"), "emails": ["x"], "missing_nodes_hours": 25}
    codes = [code for code, *_ in validate({**CLOSED, "monitoring": bad})]
    assert codes == ["topic-in-another-region", "emails-with-topic", "value-malformed", "value-out-of-range"]


def test_standard_provisioning_is_a_warning() -> None:
    found = validate({**CLOSED, "monitoring": {}, "node_provisioning_mode": "standard"})
    assert found == [("no-cluster-events", "monitoring")]
    assert validate({"node_provisioning_mode": "standard"}) == []
