"""A request without the owner's signature reaches the handler of its route, and never AWS behind it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from cdk_hyperpod_local import places
from cdk_hyperpod_local.engine.kubernetes.control_plane import BINARIES, PACKAGE, built, cache
from cdk_hyperpod_local.environment import ACCOUNT
from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws.fixtures import REGION, running_engine
from helpers.local_aws.sending import send

Json = Any
TOKEN = "00000000-0000-4000-8000-000000000000"

ROUTES = [
    ("GET", "/_local_aws/status"),
    ("PUT", f"/_ministack/cfn-response/{TOKEN}"),
    ("PUT", f"/_ministack/cfn-signal/{TOKEN}"),
    ("POST", "/_kubernetes/x"),
]
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/x-amz-json-1.1"}


def forged(service: str) -> dict[str, str]:
    """A signature that any user can write: the root key's number, and zeros."""
    scope = f"{ACCOUNT}/20260101/{REGION}/{service}/aws4_request"
    return {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature={'0' * 64}"}


BEHIND = [
    pytest.param({**JSON, "X-Amz-Target": "SageMaker.ListClusters"}, "", b"{}", "ClusterSummaries", id="target"),
    pytest.param(
        {**forged("sts"), **FORM}, "", b"Action=GetCallerIdentity&Version=2011-06-15", "<Arn>", id="query-in-the-body"
    ),
    pytest.param(forged("sts"), "?Action=GetCallerIdentity&Version=2011-06-15", b"", "<Arn>", id="query"),
    pytest.param(
        {},
        f"?X-Amz-Credential={ACCOUNT}/20260101/{REGION}/iam/aws4_request&Action=ListUsers&Version=2010-05-08",
        b"",
        "ListUsers",
        id="presigned",
    ),
    pytest.param(forged("lambda"), "/../../2015-03-31/functions/", b"", "Functions", id="rest"),
    pytest.param(forged("s3"), "/object", b"content", "", id="s3"),
    pytest.param(
        {**JSON, "X-Amz-Date": "20260101T000000Z", **forged("eks")}, "/clusters", b"{}", '"clusters"', id="eks"
    ),
]


@pytest.fixture(scope="module", params=["no-api-server", "api-server"])
def aws(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    """An engine that found no API server on this machine, and one that found one. (No EKS cluster starts it.)"""
    home, has_server = places.home(), request.param == "api-server"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_AWS_HOME", str(home))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        if has_server:  # what says that one is built; no EKS cluster of this test starts it
            folder = cache() / "bin"
            folder.mkdir(parents=True)
            (folder / "build.json").write_text(json.dumps({"package": PACKAGE}))
            for name in BINARIES:
                (folder / name).touch()
        assert (built() is not None) == has_server
        with running_engine(bootstrap=False) as aws:
            yield aws


@pytest.mark.parametrize(("headers", "behind", "body", "answer"), BEHIND)
@pytest.mark.parametrize(("method", "path"), ROUTES, ids=[path for _, path in ROUTES])
def test_an_unsigned_route_reaches_no_aws_service(
    aws: LocalAws, method: str, path: str, headers: dict[str, str], behind: str, body: bytes, answer: str
) -> None:
    before = len(aws.checks()), len(aws.journal())

    status, replied, text = send(aws, method, f"{path}{behind}", headers=headers, body=body)

    assert status in (200, 400, 403, 404), text
    assert not answer or answer not in text
    assert not [name for name in replied if name.startswith("x-amz")], "a service of AWS answered"
    assert (len(aws.checks()), len(aws.journal())) == before
    assert aws.client("s3").list_buckets()["Buckets"] == []


def test_a_token_review_is_answered_if_api_servers_are_built(aws: LocalAws) -> None:
    body = json.dumps({"kind": "TokenReview", "spec": {"token": "made-up"}}).encode()
    status, _, text = send(aws, "POST", "/_kubernetes/x", headers=JSON, body=body)

    if built() is None:
        assert status == 404
    else:
        assert status == 200 and json.loads(text)["status"] == {"authenticated": False}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"spec": []}', b'{"spec": {"token": 1}}', b"\xff"], ids=repr)
def test_an_invalid_token_review_is_refused(aws: LocalAws, body: bytes) -> None:
    status, _, text = send(aws, "POST", "/_kubernetes/x%0d%0ay", body=body)

    assert status in (200, 400, 404)
    assert "true" not in text


def test_a_body_that_is_too_long_is_not_read(aws: LocalAws) -> None:
    for method, path in ROUTES[:3]:
        assert send(aws, method, path, body=b"x" * 2_000_000)[0] == 413


# -- the exploit -------------------------------------------------------------------------------------------------------

CODE = """
import os, pathlib, urllib.request, json
def handler(event, context):
    pathlib.Path({proof!r}).write_text(os.environ.get("AWS_SECRET_ACCESS_KEY", ""))
    answer = json.dumps({{"Status": "SUCCESS", "PhysicalResourceId": "x", "StackId": event["StackId"],
        "RequestId": event["RequestId"], "LogicalResourceId": event["LogicalResourceId"]}}).encode()
    urllib.request.urlopen(urllib.request.Request(event["ResponseURL"], data=answer, method="PUT",
        headers={{"Content-Type": ""}}))
"""


def a_function_that_runs(proof: Path) -> Json:
    """An attacker's template: a custom resource that runs their code as the user who started the engine."""
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": "lambda.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }
    function = {
        "Runtime": "python3.13",
        "Handler": "index.handler",
        "Role": {"Fn::GetAtt": ["Role", "Arn"]},
        "Code": {"ZipFile": CODE.format(proof=str(proof))},
    }
    return {
        "Resources": {
            "Role": {
                "Type": "AWS::IAM::Role",
                "Properties": {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]}},
            },
            "Function": {"Type": "AWS::Lambda::Function", "Properties": function},
            "Custom": {
                "Type": "Custom::Code",
                "Properties": {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}, "ServiceTimeout": 20},
            },
        }
    }


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=[path for _, path in ROUTES])
def test_another_user_of_the_machine_runs_no_code_as_the_engines_owner(
    aws: LocalAws, tmp_path: Path, method: str, path: str
) -> None:
    proof, stack = tmp_path / "stolen", f"exploit-{ROUTES.index((method, path))}"
    call = {
        "Action": "CreateStack",
        "Version": "2010-05-15",
        "StackName": stack,
        "TemplateBody": json.dumps(a_function_that_runs(proof)),
        "Capabilities.member.1": "CAPABILITY_IAM",
    }

    status, _, text = send(
        aws, method, path, headers={**forged("cloudformation"), **FORM}, body=urlencode(call).encode()
    )

    made = [item["StackName"] for item in aws.client("cloudformation").list_stacks()["StackSummaries"]]
    assert (made, "StackId" in text) == ([], False), (status, text)
    assert not proof.exists()


def test_the_same_template_runs_for_the_owner(aws: LocalAws, tmp_path: Path) -> None:
    """This ensures that the test of the attack does not pass because of a broken template."""
    proof = tmp_path / "run"
    cloudformation = aws.client("cloudformation")
    cloudformation.create_stack(
        StackName="mine",
        TemplateBody=json.dumps(a_function_that_runs(proof)),
        Capabilities=["CAPABILITY_IAM"],
    )
    cloudformation.get_waiter("stack_create_complete").wait(StackName="mine", WaiterConfig={"Delay": 1})

    assert proof.read_text()
    cloudformation.delete_stack(StackName="mine")
    cloudformation.get_waiter("stack_delete_complete").wait(StackName="mine", WaiterConfig={"Delay": 1})


def test_a_signal_to_a_wait_condition_arrives(aws: LocalAws) -> None:
    condition = {"Handle": {"Ref": "Handle"}, "Timeout": "20", "Count": 1}
    template = {
        "Resources": {
            "Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
            "Condition": {"Type": "AWS::CloudFormation::WaitCondition", "Properties": condition},
        }
    }
    cloudformation = aws.client("cloudformation")
    cloudformation.create_stack(StackName="waiting", TemplateBody=json.dumps(template))
    signal = json.dumps({"Status": "SUCCESS", "UniqueId": "one", "Data": "there", "Reason": ""}).encode()

    path = until(lambda: handle(cloudformation)).removeprefix(aws.place.url)
    assert send(aws, "PUT", path, headers=JSON, body=signal)[0] == 403
    assert send(aws, "PUT", path, body=b"{}")[0] == 400
    assert send(aws, "PUT", path, body=signal)[0] == 200

    cloudformation.get_waiter("stack_create_complete").wait(StackName="waiting", WaiterConfig={"Delay": 1})
    cloudformation.delete_stack(StackName="waiting")


def handle(cloudformation: Any) -> str:
    resources = cloudformation.describe_stack_resources(StackName="waiting")["StackResources"]
    return next(
        (str(item.get("PhysicalResourceId", "")) for item in resources if item["LogicalResourceId"] == "Handle"), ""
    )


def until(found: Callable[[], str]) -> str:
    deadline = time.monotonic() + 10
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return value
