"""A function's log level decides which of its output reaches its log."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from cdk_hyperpod_local.session import LocalAws

FAILING = "def handler(event, context):\n    print('printed')\n    raise ValueError('thrown')\n"


@pytest.fixture(scope="module")
def role(engine: LocalAws) -> str:
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam = engine.client("iam")
    made = iam.create_role(RoleName="function", AssumeRolePolicyDocument=document)
    iam.attach_role_policy(
        RoleName="function", PolicyArn="arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
    )
    return str(made["Role"]["Arn"])


@pytest.mark.parametrize(("level", "kept"), [("INFO", {"printed", "thrown"}), ("FATAL", set())])
def test_a_failing_function_writes_what_its_level_lets_through(
    engine: LocalAws, role: str, level: str, kept: set[str]
) -> None:
    """CDK's framework has FATAL, and raises at each poll of an unfinished resource.

    The user's message must be the last one.
    """
    asset = io.BytesIO()
    with zipfile.ZipFile(asset, "w") as packed:
        packed.writestr("index.py", FAILING)
    functions, group = engine.client("lambda"), f"/functions/{level}"
    functions.create_function(
        FunctionName=level,
        Role=role,
        Runtime="python3.12",
        Handler="index.handler",
        Code={"ZipFile": asset.getvalue()},
        LoggingConfig={"LogFormat": "JSON", "ApplicationLogLevel": level, "LogGroup": group},
    )
    assert functions.invoke(FunctionName=level)["FunctionError"]
    events = engine.client("logs").filter_log_events(logGroupName=group)["events"]
    text = " ".join(event["message"] for event in events)
    assert text.startswith("START ")
    assert {word for word in ("printed", "thrown") if word in text} == kept
