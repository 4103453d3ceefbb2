"""A role's permissions boundary must exist, as IAM requires."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates

Json = Any
EXISTING = "arn:aws:iam::aws:policy/AdministratorAccess"
TRUST = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}


def role(boundary: str) -> Json:
    document = {"Version": "2012-10-17", "Statement": [TRUST]}
    properties = {"AssumeRolePolicyDocument": document, "PermissionsBoundary": boundary}
    return {"Role": {"Type": "AWS::IAM::Role", "Properties": properties}}


def test_a_role_with_a_boundary_that_does_not_exist_is_refused(engine: LocalAws) -> None:
    missing = f"arn:aws:iam::{engine.account}:policy/nothere"
    message = f"Scope ARN: {missing} does not exist or is not attachable. (Service: Iam, Status Code: 404)"
    failed = templates.deploy(engine, "bounded", role(missing))
    assert message in failed.reasons[0] and "(HandlerErrorCode: NotFound)" in failed.reasons[0]
    assert templates.delete(engine, "bounded").status == "DELETE_COMPLETE"

    assert templates.deploy(engine, "bounded", role(EXISTING)).status == "CREATE_COMPLETE"
    changed = templates.deploy(engine, "bounded", role(missing))
    assert changed.status == "UPDATE_ROLLBACK_COMPLETE" and message in changed.reasons[0]
    (made,) = (
        item["PhysicalResourceId"]
        for item in engine.client("cloudformation").list_stack_resources(StackName="bounded")["StackResourceSummaries"]
    )
    kept = engine.client("iam").get_role(RoleName=made)["Role"]["PermissionsBoundary"]["PermissionsBoundaryArn"]
    assert kept == EXISTING
    assert templates.delete(engine, "bounded").status == "DELETE_COMPLETE"
