"""CloudFormation's early validation: a change set with a bucket name that is taken, and what DescribeEvents reports."""

from __future__ import annotations

from typing import Any

import pytest

from cdk_hyperpod.cli.deployment.stack_failures import read_failure
from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates

Json = Any
TAKEN = "taken-by-another-stack"


def bucket(name: str) -> Json:
    return {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": name}}


TOPIC: Json = {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {}}}


@pytest.fixture(scope="module")
def taken(engine: LocalAws) -> LocalAws:
    engine.client("s3").create_bucket(Bucket=TAKEN, CreateBucketConfiguration={"LocationConstraint": engine.region})
    return engine


@pytest.mark.parametrize("kind", ["CREATE", "UPDATE"])
def test_a_change_set_with_a_taken_bucket_name_is_refused(taken: LocalAws, kind: str) -> None:
    client, stack = taken.client("cloudformation"), f"early-{kind.lower()}"
    if kind == "UPDATE":
        assert templates.deploy(taken, stack, TOPIC).status == "CREATE_COMPLETE"
    body = templates.template({**TOPIC, "Bucket": bucket(TAKEN)})
    made = client.create_change_set(StackName=stack, ChangeSetName="refused", ChangeSetType=kind, TemplateBody=body)
    described = client.describe_change_set(ChangeSetName=made["Id"])
    assert (described["Status"], described["ExecutionStatus"]) == ("FAILED", "UNAVAILABLE")
    assert "AWS::EarlyValidation::ResourceExistenceCheck" in described["StatusReason"]
    for named in (
        {"ChangeSetName": made["Id"]},
        {"StackName": stack},
        {"StackName": stack, "ChangeSetName": "refused"},
    ):
        (event,) = client.describe_events(**named, Filters={"FailedEvents": True})["OperationEvents"]
        assert event["OperationType"] == "CREATE_CHANGESET"
        assert (event["EventType"], event["ValidationName"]) == ("VALIDATION_ERROR", "NAME_CONFLICT_VALIDATION")
        assert (event["LogicalResourceId"], event["ValidationPath"]) == ("Bucket", "/Resources/Bucket")
        assert TAKEN in event["ValidationStatusReason"]
    assert TAKEN in str(read_failure(stack, client).reason)
    (found,) = client.describe_stacks(StackName=stack)["Stacks"]
    assert found["StackStatus"] == ("CREATE_COMPLETE" if kind == "UPDATE" else "REVIEW_IN_PROGRESS")


def test_an_update_with_a_taken_bucket_name_rolls_back_and_the_reason_is_found(taken: LocalAws) -> None:
    """Without a change set, no event of the stack has the reason."""
    assert templates.deploy(taken, "early-direct", TOPIC).status == "CREATE_COMPLETE"
    outcome = templates.deploy(taken, "early-direct", {**TOPIC, "Bucket": bucket(TAKEN)})
    assert outcome.status == "UPDATE_ROLLBACK_COMPLETE"
    failure = read_failure("early-direct", taken.client("cloudformation"))
    assert TAKEN in str(failure.reason) and failure.began is None


def test_a_stack_may_keep_its_own_bucket(engine: LocalAws) -> None:
    client, own = engine.client("cloudformation"), {"Bucket": bucket("of-this-stack")}
    assert templates.deploy(engine, "early-own", own).status == "CREATE_COMPLETE"
    body = templates.template({**own, **TOPIC})
    client.create_change_set(StackName="early-own", ChangeSetName="more", TemplateBody=body)
    assert client.describe_change_set(StackName="early-own", ChangeSetName="more")["Status"] == "CREATE_COMPLETE"
    assert client.describe_events(StackName="early-own", ChangeSetName="more")["OperationEvents"] == []
