"""Every part of the boundary's two policies is needed: taken away, it lets through a call that has to be refused.

The local AWS's evaluator of IAM judges, and nothing is deployed. The deployment counts as an administrator besides, as it is
where somebody bootstraps with more than docs/bootstrap: what it is refused here, keep-the-boundary refuses.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cdk_hyperpod_local import installation
from helpers import unbuilt
from helpers.synthesis import ROOT

Json = Any
Judge = Callable[..., bool]

EVALUATOR = """
import json, sys
from ministack.core import iam_evaluator as iam
parsed = iam.parse_policy_document
for line in sys.stdin:
    asked = json.loads(line)
    context = iam.EvalContext(
        principal_arn="arn:aws:iam::111122223333:role/x", principal_type="AssumedRole", principal_account="111122223333",
        action=asked["action"], resource_arn=asked["resource"], region="us-west-2", service_context=asked["context"],
    )
    limits = [[parsed(asked["limit"])]] if asked["limit"] else []
    found = iam.evaluate(context, [*map(parsed, asked["policies"])], *limits)
    print(found.decision, flush=True)
"""
ADMINISTRATOR: Json = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
BOUNDARY, KEEPER = (
    json.loads((ROOT / "docs" / "boundary" / f"{name}.json").read_text("utf-8"))
    for name in ("cluster-boundary", "keep-the-boundary")
)
OTHERS = "arn:aws:iam::aws:policy/AdministratorAccess"
IAM = "arn:aws:iam::111122223333"
ROLE = f"{IAM}:role/hyperpod-a-Role"


@pytest.fixture(scope="module")
def allows() -> Iterator[Judge]:
    """Whether IAM allows an action to an administrator with one policy more, or within a boundary."""
    installed = installation.current()
    if not installed.is_ready:
        unbuilt.skip("the local AWS engine is not installed: run `make local-aws-setup`")
    process = subprocess.Popen(
        [str(installed.python), "-c", EVALUATOR],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    to, answers = process.stdin, process.stdout

    def judge(
        action: str, resource: str, *, more: Json = None, limit: Json = None, boundary: str | None = None
    ) -> bool:
        policies = [ADMINISTRATOR, *([more] if more else [])]
        context = {"iam:permissionsboundary": boundary} if boundary else {}
        asked = {"action": action, "resource": resource, "policies": policies, "limit": limit, "context": context}
        to.write(json.dumps(asked) + "\n")
        to.flush()
        answer = answers.readline().strip()
        assert answer in ("Allow", "Deny", "ImplicitDeny"), answer
        return answer == "Allow"

    yield judge
    to.close()
    process.wait(timeout=30)


def parts(policy: Json, key: str) -> list[tuple[int, str]]:
    """Each entry of a list of the policy's statements, with the statement's number."""
    found = ((number, statement.get(key, [])) for number, statement in enumerate(policy["Statement"]))
    return [
        (number, entry) for number, entries in found for entry in ([entries] if isinstance(entries, str) else entries)
    ]


def without(policy: Json, number: int, key: str, entry: str) -> Json:
    """The policy less one entry; a statement that had only this one goes."""
    changed = copy.deepcopy(policy)
    statement = changed["Statement"][number]
    left = [] if isinstance(statement[key], str) else [item for item in statement[key] if item != entry]
    if left:
        statement[key] = left
    else:
        del changed["Statement"][number]
    return changed


# What of an administrator's rights the keeper takes away; the boundary of the role, or of the request, is another's.
CALLS_OF_A_DEPLOYMENT = {
    "iam:AttachRolePolicy": ROLE,
    "iam:CreateRole": ROLE,
    "iam:PutRolePermissionsBoundary": ROLE,
    "iam:PutRolePolicy": ROLE,
    "iam:DeleteRolePermissionsBoundary": ROLE,
    "iam:CreatePolicyVersion": f"{IAM}:policy/cluster-boundary",
    "iam:DeletePolicy": f"{IAM}:policy/cluster-boundary",
    "iam:DeletePolicyVersion": f"{IAM}:policy/cluster-boundary",
    "iam:SetDefaultPolicyVersion": f"{IAM}:policy/cluster-boundary",
}


@pytest.mark.parametrize("boundary", [None, OTHERS], ids=["no-boundary", "another-boundary"])
@pytest.mark.parametrize(("number", "action"), parts(KEEPER, "Action"))
def test_the_keeper_needs_each_action(allows: Judge, number: int, action: str, boundary: str | None) -> None:
    call = (action, CALLS_OF_A_DEPLOYMENT[action])
    assert not allows(*call, more=KEEPER, boundary=boundary)
    assert allows(*call, more=without(KEEPER, number, "Action", action), boundary=boundary)


@pytest.mark.parametrize("name", ["cluster-boundary", "keep-the-boundary"])
def test_the_keeper_needs_each_policy_that_it_guards(allows: Judge, name: str) -> None:
    call = ("iam:CreatePolicyVersion", f"{IAM}:policy/{name}")
    ((number, entry),) = [part for part in parts(KEEPER, "Resource") if part[1].endswith(f"/{name}")]
    assert not allows(*call, more=KEEPER)
    assert allows(*call, more=without(KEEPER, number, "Resource", entry))


def test_the_keeper_refuses_nothing_of_a_role_with_the_boundary_but_its_loss(allows: Judge) -> None:
    ours = f"{IAM}:policy/cluster-boundary"
    allowed = {
        action
        for action, arn in CALLS_OF_A_DEPLOYMENT.items()
        if arn == ROLE and allows(action, arn, more=KEEPER, boundary=ours)
    }
    assert allowed == {
        "iam:AttachRolePolicy",
        "iam:CreateRole",
        "iam:PutRolePermissionsBoundary",
        "iam:PutRolePolicy",
    }


# What a role within the boundary must not do, whatever its policies say, by the entry that refuses it.
CALLS_OF_A_ROLE = {
    # The root user's address: who reads its mail can set its password anew.
    "account:*": ("account:StartPrimaryEmailUpdate", "*"),
    "cloudformation:*": (
        "cloudformation:UpdateStack",
        "arn:aws:cloudformation:us-west-2:111122223333:stack/CDKToolkit/0",
    ),
    "iam:*": ("iam:CreateAccessKey", f"{IAM}:user/admin"),
    "lambda:*": ("lambda:UpdateFunctionCode", "arn:aws:lambda:us-west-2:111122223333:function:somebody-elses"),
    # What bounds every account of the organization.
    "organizations:*": ("organizations:DetachPolicy", "*"),
    "ssm:SendCommand": ("ssm:SendCommand", "arn:aws:ec2:us-west-2:111122223333:instance/i-0"),
    "ssm:StartSession": ("ssm:StartSession", "arn:aws:ec2:us-west-2:111122223333:instance/i-0"),
    "sts:AssumeRole": ("sts:AssumeRole", f"{IAM}:role/admin"),
}


@pytest.mark.parametrize(("number", "entry"), parts(BOUNDARY, "NotAction"))
def test_the_boundary_needs_each_thing_that_it_withholds(allows: Judge, number: int, entry: str) -> None:
    call = CALLS_OF_A_ROLE[entry]
    assert not allows(*call, limit=BOUNDARY)
    assert allows(*call, limit=without(BOUNDARY, number, "NotAction", entry))


# What our roles do beyond that, by the action that lets them.
CALLS_OF_OURS = {
    "cloudformation:Describe*": ("cloudformation:DescribeStacks", "*"),
    "cloudformation:Get*": ("cloudformation:GetTemplate", "*"),
    "cloudformation:List*": ("cloudformation:ListStackResources", "*"),
    "lambda:GetFunction*": ("lambda:GetFunction", "arn:aws:lambda:us-west-2:111122223333:function:hyperpod-a"),
    "lambda:InvokeFunction": ("lambda:InvokeFunction", "arn:aws:lambda:us-west-2:111122223333:function:hyperpod-a"),
    "iam:GetRole": ("iam:GetRole", ROLE),
    "iam:PassRole": ("iam:PassRole", ROLE),
    "iam:CreateServiceLinkedRole": ("iam:CreateServiceLinkedRole", f"{IAM}:role/aws-service-role/x.amazonaws.com/X"),
}


@pytest.mark.parametrize(("number", "entry"), parts(BOUNDARY, "Action"))
def test_the_boundary_needs_each_thing_that_it_allows(allows: Judge, number: int, entry: str) -> None:
    call = CALLS_OF_OURS[entry]
    assert allows(*call, limit=BOUNDARY)
    assert not allows(*call, limit=without(BOUNDARY, number, "Action", entry))


def test_the_policies_have_exactly_the_entries_that_calls_are_tried_for() -> None:
    for policy, key, calls in (
        (KEEPER, "Action", CALLS_OF_A_DEPLOYMENT),
        (BOUNDARY, "NotAction", CALLS_OF_A_ROLE),
        (BOUNDARY, "Action", CALLS_OF_OURS),
    ):
        assert sorted(entry for _, entry in parts(policy, key)) == sorted(calls)


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("iam:PassRole", f"{IAM}:role/Admin"),
        ("lambda:InvokeFunction", "arn:aws:lambda:us-west-2:111122223333:function:somebody-elses"),
        ("iam:CreateServiceLinkedRole", f"{IAM}:role/admin"),
    ],
)
def test_the_boundary_denies_allowed_actions_on_other_resources(allows: Judge, action: str, resource: str) -> None:
    assert not allows(action, resource, limit=BOUNDARY)
