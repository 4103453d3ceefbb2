"""Whether alarms can publish to a topic, as far as policies tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.kernel.topic_access import CLOUDWATCH, has_own_key, problems

Json = Any
TOPIC = "arn:aws:sns:us-west-2:111122223333:alerts"
KEY = "arn:aws:kms:us-west-2:111122223333:key/1"
SERVICE = {"Service": CLOUDWATCH}


def policy(*statements: Json) -> str:
    return json.dumps(
        {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Resource": "*", **each} for each in statements]}
    )


ROLE = "arn:aws:iam::111122223333:role"
ROOT = {"AWS": "arn:aws:iam::111122223333:root"}
PUBLISH = policy({"Principal": SERVICE, "Action": "sns:Publish"})
USES = {"Principal": SERVICE, "Action": ["kms:GenerateDataKey*", "kms:Decrypt"]}
BY_IAM = {"Principal": ROOT, "Action": "kms:*"}
USE = policy(USES, BY_IAM)


def codes_of(topic_policy: str | None, key: str = "", key_policy: str | None = None) -> list[str]:
    attributes = {"Policy": topic_policy, "KmsMasterKeyId": key}
    return [
        each.code for each in problems(TOPIC, {name: text for name, text in attributes.items() if text}, key_policy)
    ]


@pytest.mark.parametrize(
    "statement",
    [
        {"Principal": SERVICE, "Action": "SNS:Publish"},
        {"Principal": {"Service": ["events.amazonaws.com", CLOUDWATCH]}, "Action": ["sns:*"]},
        {"Principal": "*", "Action": "*"},
        {
            "Principal": {"AWS": "*"},
            "Action": "SNS:Publish",
            "Condition": {"StringEquals": {"AWS:SourceOwner": "111122223333"}},
        },
    ],
)
def test_a_policy_that_lets_alarms_publish(statement: Json) -> None:
    assert codes_of(policy(statement)) == []


@pytest.mark.parametrize(
    "text",
    [
        None,
        "no JSON",
        "{}",
        policy({"Principal": {"Service": "events.amazonaws.com"}, "Action": "sns:Publish"}),
        policy({"Principal": SERVICE, "Action": "sns:Subscribe"}),
        policy({"Principal": {"AWS": "arn:aws:iam::111122223333:root"}, "Action": "sns:Publish"}),
        policy(
            {"Principal": SERVICE, "Action": "sns:Publish"},
            {"Effect": "Deny", "Principal": "*", "Action": "sns:Publish"},
        ),
    ],
)
def test_a_policy_that_does_not(text: str | None) -> None:
    assert codes_of(text) == ["topic-policy-no-alarms"]


def test_a_denial_under_a_condition_counts_as_none() -> None:
    secure = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sns:Publish",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    assert codes_of(policy({"Principal": SERVICE, "Action": "sns:Publish"}, secure)) == []


@pytest.mark.parametrize(
    ("key", "key_policy", "expected"),
    [
        ("", None, []),
        (KEY, USE, []),
        (KEY, None, []),
        ("alias/aws/sns", None, ["topic-key-managed"]),
        ("arn:aws:kms:us-west-2:111122223333:alias/aws/sns", None, ["topic-key-managed"]),
        (KEY, policy({"Principal": SERVICE, "Action": "kms:Decrypt"}, BY_IAM), ["topic-key-no-alarms"]),
        (KEY, policy(BY_IAM), ["topic-key-no-alarms"]),
        (KEY, policy(USES), ["topic-key-no-messages"]),
        (KEY, policy(USES, {**BY_IAM, "Principal": {"AWS": f"{ROLE}/admin"}}), ["topic-key-no-messages"]),
        (KEY, policy(USES, {**BY_IAM, "Principal": {"AWS": ["111122223333"]}}), []),
        (KEY, policy(USES, {**BY_IAM, "Principal": {"AWS": f"{ROLE}/hyperpod-train-cluster-MonitoringRole1-2"}}), []),
        (KEY, "{}", ["topic-key-no-alarms", "topic-key-no-messages"]),
    ],
    ids=[
        *("no key", "allowed", "unread", "managed", "managed by ARN", "half", "root alone"),
        *("alarms alone", "another role", "account", "our role", "nobody"),
    ],
)
def test_a_topic_key_that_alarms_cannot_use_is_reported(key: str, key_policy: str | None, expected: list[str]) -> None:
    assert codes_of(PUBLISH, key, key_policy) == expected


def test_the_statements_to_add_are_those_that_help() -> None:
    found = problems(TOPIC, {"Policy": "{}", "KmsMasterKeyId": KEY}, "{}")
    statements = {each.code: json.loads(each.remedy[each.remedy.index("{") :]) for each in found}
    of_topic = statements.pop("topic-policy-no-alarms")
    assert codes_of(policy(of_topic), KEY, policy(*statements.values())) == []


def test_only_a_key_of_one_s_own_has_a_policy_to_read() -> None:
    assert [has_own_key({"KmsMasterKeyId": key} if key else {}) for key in ("", "alias/aws/sns", KEY)] == [
        False,
        False,
        True,
    ]
