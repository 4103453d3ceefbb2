"""CloudFormation generates the name of a log group that has none: STACK-LOGICALID-SUFFIX."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates

Json = Any


def log_group(days: int) -> Json:
    return {"GuardLog": {"Type": "AWS::Logs::LogGroup", "Properties": {"RetentionInDays": days}}}


def name_of_the_group(engine: LocalAws) -> str:
    (made,) = engine.client("cloudformation").list_stack_resources(StackName="logging")["StackResourceSummaries"]
    return str(made["PhysicalResourceId"])


def test_a_log_group_without_a_name_gets_cloudformation_s(engine: LocalAws) -> None:
    assert templates.deploy(engine, "logging", log_group(7)).status == "CREATE_COMPLETE"
    name = name_of_the_group(engine)
    assert name.startswith("logging-GuardLog-")
    engine.client("logs").create_log_stream(logGroupName=name, logStreamName="kept")

    assert templates.deploy(engine, "logging", log_group(14)).status == "UPDATE_COMPLETE"
    assert name_of_the_group(engine) == name
    assert engine.client("logs").describe_log_streams(logGroupName=name)["logStreams"]
    assert templates.delete(engine, "logging").status == "DELETE_COMPLETE"
