"""The least-privilege policies and the boundary, as docs/deploy-permissions.md has them: they deploy, and nothing gets out of them.

CloudFormation works with the execution role that the recipe makes, and IAM is asked what that role may do of roles, policies
and keys. A role with the same policies that a test may take on shows what else they refuse.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cdk_hyperpod._common.tags import KEY_TAG
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.configs import small
from helpers.deployments.permissions import ANYTHING, allowed_unless, document
from helpers.deployments.recipe import BOUNDARY, bootstrap, context
from helpers.local_aws import templates
from helpers.local_aws.rehearsal import Rehearsal

Json = Any

QUALIFIER, TWIN = "bounded", "deploys-by-hand"
CONTEXT = context(QUALIFIER)
TRUST = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
ADMINISTRATOR = "arn:aws:iam::aws:policy/AdministratorAccess"


@pytest.fixture(scope="module")
def recipe(engine: LocalAws, policies: dict[str, str]) -> dict[str, str]:
    """What the guide's commands make for clusters under Slurm: the policies by name, and a bootstrap that deploys with them."""
    ours = {name: arn for name, arn in policies.items() if "-eks-" not in name}
    bootstrap(engine, QUALIFIER, [arn for name, arn in ours.items() if name != BOUNDARY])
    return ours


@pytest.fixture(scope="module")
def execution_role(engine: LocalAws, recipe: dict[str, str]) -> str:
    return f"arn:aws:iam::{engine.account}:role/cdk-{QUALIFIER}-cfn-exec-role-{engine.account}-{engine.region}"


@pytest.fixture(scope="module")
def twin(engine: LocalAws, recipe: dict[str, str]) -> Callable[[str], Any]:
    """Clients of a role with the execution role's policies, which CloudFormation alone may take on."""
    iam, trusted = engine.client("iam"), {"Principal": {"AWS": engine.account}}
    iam.create_role(RoleName=TWIN, AssumeRolePolicyDocument=json.dumps(document(TRUST | trusted)))
    for name, arn in recipe.items():
        if name != "cluster-boundary":
            iam.attach_role_policy(RoleName=TWIN, PolicyArn=arn)
    return partial(engine.client_as, TWIN)


may = allowed_unless("AccessDenied", "AccessDeniedException")
"""Services say it in either word."""


def test_the_boundary_recipe_deploys_and_a_role_without_the_boundary_is_denied(
    engine: LocalAws, recipe: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = small("bounded")
    life = Rehearsal(engine, tmp_path_factory.mktemp("bounded"), config, CONTEXT)
    made = life.deploy()
    assert made.ok, made.reason

    iam = engine.client("iam")
    roles = [role["RoleName"] for page in iam.get_paginator("list_roles").paginate() for role in page["Roles"]]
    ours = [iam.get_role(RoleName=name)["Role"] for name in roles if name.startswith("hyperpod-bounded-")]
    assert len(ours) > 5
    assert {role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn") for role in ours} == {
        recipe["cluster-boundary"]
    }
    # It was CloudFormation with this execution role, and none that may do everything.
    without = Rehearsal(engine, tmp_path_factory.mktemp("unbounded"), config | {"name": "unbounded"}, {
        name: value for name, value in CONTEXT.items() if "Qualifier" in name
    })  # fmt: skip
    failed = without.deploy()
    assert not failed.ok
    assert "is not authorized to perform: iam:CreateRole" in failed.output
    assert "with an explicit deny" in failed.output


def role(recipe: dict[str, str], **properties: Json) -> Json:
    bounded = {"PermissionsBoundary": recipe["cluster-boundary"]}
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {"AssumeRolePolicyDocument": document(TRUST), **bounded, **properties},
    }


def unbounded(found: Json) -> Json:
    return {**found, "Properties": {k: v for k, v in found["Properties"].items() if k != "PermissionsBoundary"}}


def test_a_role_with_the_boundary_is_made_and_keeps_it(
    engine: LocalAws, recipe: dict[str, str], execution_role: str
) -> None:
    name, whole = "hyperpod-keeps", role(recipe, ManagedPolicyArns=[ADMINISTRATOR])
    made = templates.deploy_whole(engine, name, {"Resources": {"Role": whole}}, role=execution_role)
    assert made.status == "CREATE_COMPLETE", made.reasons
    for changed in (unbounded(whole), role(recipe, PermissionsBoundary=ADMINISTRATOR)):
        failed = templates.deploy_whole(engine, name, {"Resources": {"Role": changed}})
        assert failed.status == "UPDATE_ROLLBACK_COMPLETE", failed
        assert "RolePermissionsBoundary" in failed.reasons[0] and "explicit deny" in failed.reasons[0]


@pytest.mark.parametrize(
    ("case", "refused"),
    [
        ("none", "iam:CreateRole"),
        ("another", "iam:CreateRole"),
        ("another-name", "iam:CreateRole"),
        ("a-policy-on-another-role", "iam:PutRolePolicy"),
        ("a-managed-policy-of-another-name", "iam:CreatePolicy"),
    ],
)
def test_a_resource_that_evades_the_boundary_is_denied(
    engine: LocalAws, recipe: dict[str, str], execution_role: str, case: str, refused: str
) -> None:
    engine_role = f"outside-{case}"
    engine.client("iam").create_role(RoleName=engine_role, AssumeRolePolicyDocument=json.dumps(document(TRUST)))
    policy = {"PolicyDocument": document(ANYTHING)}
    resources = {
        "none": unbounded(role(recipe, ManagedPolicyArns=[ADMINISTRATOR])),
        "another": role(recipe, PermissionsBoundary=ADMINISTRATOR),
        "another-name": role(recipe, RoleName="admin"),
        "a-policy-on-another-role": {
            "Type": "AWS::IAM::Policy",
            "Properties": {**policy, "PolicyName": "more", "Roles": [engine_role]},
        },
        "a-managed-policy-of-another-name": {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {**policy, "ManagedPolicyName": "keep-the-boundary-2"},
        },
    }
    failed = templates.deploy_whole(
        engine, f"hyperpod-{case}", {"Resources": {"Escape": resources[case]}}, role=execution_role
    )
    assert failed.status == "ROLLBACK_COMPLETE", failed
    assert f"is not authorized to perform: {refused}" in failed.reasons[0]


@pytest.mark.parametrize("name", ["cluster-boundary", "keep-the-boundary", "deploy-hyperpod-1"])
def test_the_policies_cannot_be_changed_with_the_permissions_that_they_grant(
    twin: Callable[[str], Any], recipe: dict[str, str], name: str
) -> None:
    iam, arn = twin("iam"), recipe[name]
    more = json.dumps(document(ANYTHING))
    assert not may(iam.create_policy_version, PolicyArn=arn, PolicyDocument=more, SetAsDefault=True)
    assert not may(iam.set_default_policy_version, PolicyArn=arn, VersionId="v1")
    assert not may(iam.delete_policy, PolicyArn=arn)


def test_a_role_created_by_hand_needs_and_keeps_the_boundary(
    engine: LocalAws, twin: Callable[[str], Any], recipe: dict[str, str]
) -> None:
    iam, name, bounded = twin("iam"), "hyperpod-by-hand", {"PermissionsBoundary": recipe["cluster-boundary"]}
    made = {"RoleName": name, "AssumeRolePolicyDocument": json.dumps(document(TRUST))}
    assert not may(iam.create_role, **made)
    assert not may(iam.create_role, **made, PermissionsBoundary=ADMINISTRATOR)
    assert may(iam.create_role, **made, **bounded)
    assert may(iam.attach_role_policy, RoleName=name, PolicyArn=ADMINISTRATOR)
    assert not may(iam.delete_role_permissions_boundary, RoleName=name)
    assert not may(iam.put_role_permissions_boundary, RoleName=name, PermissionsBoundary=ADMINISTRATOR)
    # The policies that deploy are attached to roles of CDK's, which they do not reach.
    assert not may(iam.attach_role_policy, RoleName=TWIN, PolicyArn=ADMINISTRATOR)
    assert not may(iam.detach_role_policy, RoleName=TWIN, PolicyArn=recipe["keep-the-boundary"])


def test_the_boundary_limits_a_role_with_administrator_access(engine: LocalAws, recipe: dict[str, str]) -> None:
    iam = engine.client("iam")
    trust = document(TRUST | {"Principal": {"AWS": engine.account}})
    made = iam.create_role(
        RoleName="hyperpod-does-all",
        AssumeRolePolicyDocument=json.dumps(trust),
        PermissionsBoundary=recipe["cluster-boundary"],
    )
    iam.attach_role_policy(RoleName="hyperpod-does-all", PolicyArn=ADMINISTRATOR)
    client = partial(engine.client_as, "hyperpod-does-all")
    assert may(client("s3").list_buckets)
    assert may(client("cloudformation").describe_stacks)
    assert not may(client("iam").list_roles)
    assert not may(client("sts").assume_role, RoleArn=made["Role"]["Arn"], RoleSessionName="again")
    assert not may(client("cloudformation").delete_stack, StackName="CDKToolkit")
    assert not may(client("lambda").delete_function, FunctionName="somebody-elses")


def test_the_deployment_can_change_and_use_only_keys_with_our_tag(engine: LocalAws, twin: Callable[[str], Any]) -> None:
    kms, owner = twin("kms"), engine.client("kms")
    ours = kms.create_key(Tags=[{"TagKey": KEY_TAG, "TagValue": "hyperpod-a-foundation"}])["KeyMetadata"]["KeyId"]
    others = owner.create_key()["KeyMetadata"]["KeyId"]
    secret = owner.encrypt(KeyId=others, Plaintext=b"secret")["CiphertextBlob"]
    assert not may(kms.decrypt, CiphertextBlob=secret, KeyId=others)
    policy = owner.get_key_policy(KeyId=others, PolicyName="default")["Policy"]
    for key, allowed in ((others, False), (ours, True)):
        assert may(kms.put_key_policy, KeyId=key, PolicyName="default", Policy=policy) is allowed
        assert may(kms.disable_key, KeyId=key) is allowed
        assert may(kms.enable_key, KeyId=key) is allowed
        assert may(kms.encrypt, KeyId=key, Plaintext=b"text") is allowed
        assert may(kms.describe_key, KeyId=key)
        assert may(kms.schedule_key_deletion, KeyId=key, PendingWindowInDays=7) is allowed


def test_the_deployment_can_read_and_not_write_the_assets_of_other_apps(
    engine: LocalAws, twin: Callable[[str], Any]
) -> None:
    bucket, s3 = f"cdk-{QUALIFIER}-assets-{engine.account}-{engine.region}", twin("s3")
    engine.client("s3").put_object(Bucket=bucket, Key="code.zip", Body=b"")
    assert may(s3.get_object, Bucket=bucket, Key="code.zip")
    assert not may(s3.put_object, Bucket=bucket, Key="code.zip", Body=b"evil")
    assert not may(s3.delete_object, Bucket=bucket, Key="code.zip")
