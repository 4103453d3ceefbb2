"""The doors beside the stacks, closed as docs/deploy-permissions.md says: who writes CDK's assets, and who invokes our functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod.cli.deployment.preflight_doors import is_walled
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.permissions import add_almighty_role, may
from helpers.synthesis import ROOT

Json = Any
SOMEBODY = "doors-somebody"
OURS = "hyperpod-doors-FrameworkRole"


def door(engine: LocalAws, name: str) -> Json:
    """A file of the page, with this account and region in it."""
    text = (ROOT / "docs/bootstrap/doors" / name).read_text("utf-8")
    return json.loads(text.replace("ACCOUNT", engine.account).replace("REGION", engine.region))


@pytest.fixture(scope="module")
def bucket(engine: LocalAws) -> str:
    add_almighty_role(engine, SOMEBODY)
    return f"cdk-hnb659fds-assets-{engine.account}-{engine.region}"


@pytest.fixture
def closed(engine: LocalAws, bucket: str) -> Iterator[None]:
    """The statement beside CDK's own."""
    s3 = engine.client("s3")
    before = s3.get_bucket_policy(Bucket=bucket)["Policy"]
    after = json.loads(before)
    after["Statement"] += door(engine, "assets-bucket.json")["Statement"]
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(after))
    yield
    s3.put_bucket_policy(Bucket=bucket, Policy=before)


def writes(s3: Any, bucket: str) -> list[bool]:
    return [
        may(s3.put_object, Bucket=bucket, Key="doors.zip", Body=b"code"),
        may(s3.delete_object, Bucket=bucket, Key="doors.zip"),
        may(s3.delete_object, Bucket=bucket, Key="doors.zip", VersionId="null"),
    ]


@pytest.mark.usefixtures("closed")
def test_only_the_publishing_role_can_write_assets(engine: LocalAws, bucket: str) -> None:
    publishing = engine.client_as(f"cdk-hnb659fds-file-publishing-role-{engine.account}-{engine.region}", "s3")
    somebody = engine.client_as(SOMEBODY, "s3")
    publishing.put_object(Bucket=bucket, Key="asset.zip", Body=b"code")
    assert writes(somebody, bucket) == [False] * 3
    # CloudFormation and Lambda read with the deployment's roles.
    assert somebody.get_object(Bucket=bucket, Key="asset.zip")["Body"].read() == b"code"
    assert is_walled(bucket, engine.client("s3").get_bucket_policy(Bucket=bucket)["Policy"])


def test_without_the_statement_other_roles_can_write_assets(engine: LocalAws, bucket: str) -> None:
    assert writes(engine.client_as(SOMEBODY, "s3"), bucket)[:2] == [True] * 2
    assert not is_walled(bucket, engine.client("s3").get_bucket_policy(Bucket=bucket)["Policy"])


@pytest.mark.parametrize(("role", "allowed"), [(SOMEBODY, False), (OURS, True)])
@pytest.mark.usefixtures("bucket")
def test_only_roles_of_the_stacks_can_invoke_the_functions(engine: LocalAws, role: str, allowed: bool) -> None:
    """The local AWS has no organizations, so the statements are denials of a role that may do everything else."""
    if role == OURS:
        add_almighty_role(engine, OURS)
    iam = engine.client("iam")
    iam.put_role_policy(
        RoleName=role, PolicyName="doors", PolicyDocument=json.dumps(door(engine, "keep-the-doors.json"))
    )
    calling, s3 = engine.client_as(role, "lambda"), engine.client_as(role, "s3")
    with pytest.raises(ClientError) as refused:
        calling.invoke(FunctionName="hyperpod-doors-eks-Handler")
    assert (refused.value.response["Error"]["Code"] == "ResourceNotFoundException") == allowed
    with pytest.raises(ClientError) as other:
        calling.invoke(FunctionName="somebody-elses")
    assert other.value.response["Error"]["Code"] == "ResourceNotFoundException"
    rules = {"Rules": [{"ID": "all", "Status": "Enabled", "Prefix": "", "Expiration": {"Days": 1}}]}
    engine.client("s3").create_bucket(
        Bucket=f"hyperpod-doors-{allowed}".lower(), CreateBucketConfiguration={"LocationConstraint": engine.region}
    )
    assert allowed == may(
        s3.put_bucket_lifecycle_configuration, Bucket=f"hyperpod-doors-{allowed}".lower(), LifecycleConfiguration=rules
    )
    iam.delete_role_policy(RoleName=role, PolicyName="doors")
