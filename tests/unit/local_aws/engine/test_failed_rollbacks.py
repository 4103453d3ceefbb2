"""A resource that fails in the rollback of an update: what depends on it is not touched until the rollback is continued."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates

Json = Any

STACK = "failing-back"
ANSWER = """\
import boto3, cfnresponse
def handler(event, context):
    old = event.get("OldResourceProperties", {}).get("Value")
    allowed = boto3.client("ssm").get_parameter(Name="/failing-back/allowed")["Parameter"]["Value"]
    status = "FAILED" if old == "2" and allowed == "no" else "SUCCESS"
    cfnresponse.send(event, context, status, {}, "guard", reason="It may not go back")
"""


def parameter(name: str, value: str, *after: str) -> Json:
    properties = {"Name": f"/{STACK}/{name}", "Type": "String", "Value": value}
    return {"Type": "AWS::SSM::Parameter", "Properties": properties, "DependsOn": [*after]}


def stack(value: str, **more: Json) -> Json:
    """Behind depends on Guard, Last on Behind; Aside depends on none of them."""
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
    reading = {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "*"}
    role = {
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
        "Policies": [{"PolicyName": "p", "PolicyDocument": {"Version": "2012-10-17", "Statement": [reading]}}],
    }
    function = {
        "Handler": "index.handler",
        "Runtime": "python3.12",
        "Role": {"Fn::GetAtt": ["Role", "Arn"]},
        "Code": {"ZipFile": ANSWER},
    }
    guard = {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}, "Value": value}
    return {
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        "Function": {"Type": "AWS::Lambda::Function", "Properties": function},
        "Allowed": parameter("allowed", "no"),
        "Guard": {"Type": "Custom::Guard", "Properties": guard, "DependsOn": ["Allowed"]},
        "Behind": parameter("behind", value, "Guard"),
        "Last": parameter("last", value, "Behind"),
        "Aside": parameter("aside", value, "Allowed"),
        **more,
    }


def values(aws: LocalAws) -> dict[str, str]:
    found = aws.client("ssm").get_parameters_by_path(Path=f"/{STACK}")["Parameters"]
    return {each["Name"].rpartition("/")[2]: each["Value"] for each in found}


def test_dependents_of_a_failed_resource_wait_until_the_rollback_is_continued(engine: LocalAws) -> None:
    assert templates.deploy(engine, STACK, stack("1")).status == "CREATE_COMPLETE"
    broken = {"Type": "AWS::CloudFormation::WaitCondition", "Properties": {}, "DependsOn": ["Last", "Aside", "New"]}
    new = parameter("new", "2", "Last")
    failed = templates.deploy(engine, STACK, stack("2", New=new, Broken=broken))
    assert failed.status == "UPDATE_ROLLBACK_FAILED"
    assert failed.failed == ("Broken", "Guard", STACK)
    assert values(engine) == {"allowed": "no", "behind": "2", "last": "2", "new": "2", "aside": "1"}

    again = templates.continue_rollback(engine, STACK)
    assert (again.status, again.failed) == ("UPDATE_ROLLBACK_FAILED", ("Guard", STACK))
    assert again.reasons[-1] == "The following resource(s) failed to update: [Guard]."
    assert values(engine)["behind"] == "2"

    engine.client("ssm").put_parameter(Name=f"/{STACK}/allowed", Value="yes", Type="String", Overwrite=True)
    done = templates.continue_rollback(engine, STACK)
    assert (done.status, done.failed) == ("UPDATE_ROLLBACK_COMPLETE", ())
    assert values(engine) == {"allowed": "yes", "behind": "1", "last": "1", "aside": "1"}
