"""Who writes what in the drain bucket, each object and each way: whoever forges one there ends nodes, or has busy ones deleted unsaved.

One file by the CLI. Every role here may do everything by its own policies: what is refused, the bucket's policy refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import request_key, status_key
from cdk_hyperpod.names import drain_bucket_name
from cdk_hyperpod_local.environment import ACCOUNT
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.configs import small
from helpers.deployments.permissions import ANYTHING, Edit, document, may
from helpers.local_aws.rehearsal import Rehearsal

Json = Any

NAME = "walled"
SSO = "aws-reserved/sso.amazonaws.com/us-west-2/AWSReservedSSO_Operators_0123456789abcdef"
STATUS, DEPLOYMENT, OPERATOR = (
    status_key(NAME),
    request_key(NAME, "deployment"),
    request_key(NAME, "operator"),
)
WRITER_OF = {STATUS: "controller", DEPLOYMENT: "guard", OPERATOR: "operator"}
WALL_OF = {STATUS: "AgentsStatus", DEPLOYMENT: "DeploymentsRequest", OPERATOR: "OperatorsRequest"}
TRUST = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": ACCOUNT}}


@pytest.fixture(scope="module")
def life(engine: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    config = small(NAME) | {"removal": "destroy", "termination_protection": False}
    del config["storage"]
    config["slurm"] = {"drain": {"operators": [f"arn:aws:iam::{ACCOUNT}:role/{SSO}"]}}
    config["scale_down"] = {"drain": {}}
    rehearsal = Rehearsal(engine, tmp_path_factory.mktemp("walled"), config)
    made = rehearsal.deploy()
    assert made.ok, made.reason
    return rehearsal


@pytest.fixture(scope="module")
def bucket(engine: LocalAws) -> str:
    return drain_bucket_name(NAME, engine.account, engine.region)


@pytest.fixture(scope="module")
def clients(engine: LocalAws, life: Rehearsal) -> dict[str, Any]:
    """S3 clients of everybody who matters here, and of somebody who does not."""
    iam = engine.client("iam")
    for path, name in (("/", "drain-somebody"), (f"/{SSO.rpartition('/')[0]}/", SSO.rpartition("/")[2])):
        iam.create_role(Path=path, RoleName=name, AssumeRolePolicyDocument=json.dumps(document(TRUST)))
    names = {
        "somebody": "drain-somebody",
        "operator": SSO,
        "controller": role_of(life, "ControllerRole"),
        "compute": role_of(life, "ComputeRole"),
        "guard": role_of(life, "ScaleDownRole"),
        "emptying": role_of(life, "CustomS3AutoDelete"),
    }
    for name in (path.rpartition("/")[2] for path in names.values()):
        iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(document(TRUST)))
        iam.put_role_policy(RoleName=name, PolicyName="test", PolicyDocument=json.dumps(document(ANYTHING)))
    return {who: engine.client_as(name, "s3") for who, name in names.items()}


def role_of(life: Rehearsal, part: str) -> str:
    """The role of the cluster's stack whose logical id has this part."""
    pages = life.aws.client("cloudformation").list_stack_resources(StackName=life.cluster)["StackResourceSummaries"]
    (found,) = (
        each["PhysicalResourceId"]
        for each in pages
        if each["ResourceType"] == "AWS::IAM::Role" and part in each["LogicalResourceId"]
    )
    return str(found)


@pytest.fixture
def version(clients: dict[str, Any], bucket: str) -> Callable[[str], str]:
    """Write an object as its only writer, and say which version that is."""

    def write(key: str) -> str:
        return str(clients[WRITER_OF[key]].put_object(Bucket=bucket, Key=key, Body=b"{}")["VersionId"])

    return write


CALLS: dict[str, Callable[[Any, str, str, str], bool]] = {
    "put": lambda s3, bucket, key, version: may(s3.put_object, Bucket=bucket, Key=key),
    "multipart": lambda s3, bucket, key, version: may(s3.create_multipart_upload, Bucket=bucket, Key=key),
    "delete": lambda s3, bucket, key, version: may(s3.delete_object, Bucket=bucket, Key=key),
    "version": lambda s3, bucket, key, version: may(s3.delete_object, Bucket=bucket, Key=key, VersionId=version),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("key", WRITER_OF)
def test_each_object_is_changed_by_its_writer_alone(
    clients: dict[str, Any], bucket: str, version: Callable[[str], str], without: Edit, key: str, call: str
) -> None:
    writer = WRITER_OF[key]
    for who, s3 in clients.items():
        assert CALLS[call](s3, bucket, key, version(key)) == (who in (writer, "emptying")), who
    without(WALL_OF[key], lambda statement: statement.update(Action="s3:Nothing"))
    assert CALLS[call](clients["somebody"], bucket, key, version(key)), "the statement is what refuses it"


@pytest.mark.parametrize("call", ["put", "multipart"])
def test_no_object_has_another_name(clients: dict[str, Any], bucket: str, without: Edit, call: str) -> None:
    for key in ("status.json", f"{STATUS}.new", f"{NAME}/requests/other.json", "requests/operator.json"):
        for who, s3 in clients.items():
            assert not CALLS[call](s3, bucket, key, ""), (who, key)
    without("NoOtherObject", lambda statement: statement.update(Action="s3:Nothing"))
    assert CALLS[call](clients["somebody"], bucket, "status.json", ""), "the statement is what refuses it"
    assert CALLS["delete"](clients["somebody"], bucket, "status.json", "")


def test_objects_are_encrypted_with_our_key_or_the_buckets_own_default(
    engine: LocalAws, clients: dict[str, Any], bucket: str, without: Edit
) -> None:
    rules = engine.client("s3").get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    ours = rules[0]["ApplyServerSideEncryptionByDefault"]["KMSMasterKeyID"]
    other = engine.client("kms").create_key()["KeyMetadata"]["Arn"]

    def put(**how: str) -> bool:
        return may(clients["operator"].put_object, Bucket=bucket, Key=OPERATOR, Body=b"{}", **how)

    def with_key(arn: str) -> bool:
        return put(ServerSideEncryption="aws:kms", SSEKMSKeyId=arn)

    assert put() and with_key(ours)
    assert not with_key(other)
    without("NoOtherKey", lambda statement: statement.update(Action="s3:Nothing"))
    assert with_key(other), "the statement is what refuses it"


def test_a_forged_request_is_possible_where_the_file_names_no_operators(
    life: Rehearsal, clients: dict[str, Any], bucket: str
) -> None:
    """As the warning says; the other two objects have their walls all the same."""
    with_operators = life.config
    try:
        changed = life.change({**with_operators, "slurm": {"drain": {}}})
        assert changed.status == "UPDATE_COMPLETE", changed.reasons
        forged = {key: CALLS["put"](clients["somebody"], bucket, key, "") for key in WRITER_OF}
        assert forged == {STATUS: False, DEPLOYMENT: False, OPERATOR: True}
    finally:
        assert life.change(with_operators).status == "UPDATE_COMPLETE"


def test_destroy_empties_the_bucket(life: Rehearsal, bucket: str, version: Callable[[str], str]) -> None:
    """The last test: nothing is left of the stacks."""
    for key in WRITER_OF:
        version(key)
    iam = life.aws.client("iam")
    for part in ("ControllerRole", "ComputeRole", "ScaleDownRole", "CustomS3AutoDelete"):
        iam.delete_role_policy(RoleName=role_of(life, part), PolicyName="test")
    gone = life.cdk.destroy(life.synth())
    assert gone.ok, gone.reason
    assert bucket not in {item["Name"] for item in life.aws.client("s3").list_buckets()["Buckets"]}
