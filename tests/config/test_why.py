"""`cdk-hyperpod why`: one sentence out of a stack's events, as CloudFormation and CDK's provider framework write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdk_hyperpod.why import first_reason

STACK = "arn:aws:cloudformation:us-west-2:111122223333:stack/hyperpod-train-cluster/0a1b2c"
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
SENTENCE = "Scaling down train was refused. It is so; do that."


def event(kind: str, status: str, reason: str = "") -> dict[str, Any]:
    physical = STACK if kind == "AWS::CloudFormation::Stack" else "x"
    return {
        "StackId": STACK,
        "PhysicalResourceId": physical,
        "ResourceType": kind,
        "ResourceStatus": status,
        "ResourceStatusReason": reason,
        "Timestamp": WHEN,
    }


BEGAN = event("AWS::CloudFormation::Stack", "UPDATE_IN_PROGRESS", "User Initiated")
BACK = event(
    "AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_IN_PROGRESS", "The following resource(s) failed to update: [P]."
)
CANCELLED = event("AWS::IAM::Role", "UPDATE_FAILED", "Resource update cancelled")


@pytest.mark.parametrize(
    "reason",
    [
        f"Error: {SENTENCE}\n\nLogs: /aws/lambda/hyperpod-train-onevent\n",
        (
            f"Received response status [FAILED] from custom resource. Message returned: Error: {SENTENCE}\n\nLogs: /aws/lambda/x\n"
            " (RequestId: 0a1b)"
        ),
        f"Received response status [FAILED] from custom resource. Message returned: {SENTENCE} (RequestId: 0a1b)",
        SENTENCE,
    ],
)
def test_the_sentence_alone(reason: str) -> None:
    failed = event("Custom::HyperPodScaleDown", "UPDATE_FAILED", reason)
    earlier = event("Custom::HyperPodScaleDown", "UPDATE_FAILED", "Something else, some time ago")
    assert first_reason([BACK, CANCELLED, failed, BEGAN, earlier, BEGAN]) == SENTENCE


def test_what_failed_first_is_the_reason() -> None:
    first, then = (event("AWS::FSx::FileSystem", status, status) for status in ("CREATE_FAILED", "DELETE_FAILED"))
    assert first_reason([then, BACK, first, BEGAN]) == "CREATE_FAILED"


def test_what_succeeded_has_no_reason() -> None:
    done = event("AWS::CloudFormation::Stack", "UPDATE_COMPLETE")
    assert first_reason([done, BEGAN, event("AWS::IAM::Role", "CREATE_FAILED", "long ago"), BEGAN]) is None


def test_what_failed_before_is_not_told_where_somebody_asks_since_when() -> None:
    """A deployment that did not even begin, say for want of an approval, has not failed for a reason of yesterday."""
    failed = event("AWS::IAM::Role", "UPDATE_FAILED", "of yesterday")
    assert first_reason([failed, BEGAN], WHEN) == "of yesterday"
    assert first_reason([failed, BEGAN], WHEN + timedelta(seconds=1)) is None
