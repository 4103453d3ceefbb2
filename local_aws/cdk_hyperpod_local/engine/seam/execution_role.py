"""CloudFormation's execution role: whether it may perform the calls for a stack's IAM resources and KMS keys.

`cdk deploy` passes the role with every stack. A stack without one has all permissions, as in ministack. Checked are the
resources that could grant permissions or make data inaccessible: roles, policies and KMS keys, with the calls that
their handlers make to IAM and KMS. Deletions are not checked, because ministack does not pass on the stack that they
belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ministack.core import iam_actions, responses  # type: ignore[import-not-found]
from ministack.services import iam, kms  # type: ignore[import-not-found]
from ministack.services.cloudformation import handlers as requests  # type: ignore[import-not-found]
from ministack.services.cloudformation import provisioners

from cdk_hyperpod_local.engine.seam import policies
from cdk_hyperpod_local.engine.seam.cloudformation import handlers

Json = Any
Call = tuple[str, str, Json]
"""An action, its resource, and the condition keys of the request."""
_NAMING_A_ROLE = ("CreateChangeSet", "CreateStack", "UpdateStack")
_BOUNDARY = "iam:permissionsboundary"
_SESSION = "AWSCloudFormation"

_execution_roles: dict[tuple[str, str], str] = {}
"""Account and stack -> role. The CLI passes it with each change, so it need not outlive the engine."""


def install() -> None:
    """Check every role, policy and key of a stack that has an execution role."""
    for name in _NAMING_A_ROLE:
        requests._ACTION_HANDLERS[name] = _noting(requests._ACTION_HANDLERS[name])
    for kind, calls in _CALLS.items():
        _check(kind, calls)


def _noting(handle: Callable[[Json], Any]) -> Callable[[Json], Any]:
    def noted(params: Json) -> Any:
        stack, role = (_parameter(params, name) for name in ("StackName", "RoleARN"))
        if role:
            _execution_roles[responses.get_account_id(), _name_of(stack)] = role
        return handle(params)

    return noted


def _check(kind: str, calls: Callable[[str, Json, Json], Iterator[Call]]) -> None:
    entry = handlers()[kind]
    create, update = entry["create"], entry["update"]

    def created(logical_id: str, properties: Json, stack_name: str) -> Any:
        _require(stack_name, calls(_physical_name(kind, stack_name, logical_id, properties), {}, properties))
        return create(logical_id, properties, stack_name)

    def updated(physical_id: str, old: Json, new: Json, stack_name: str, *rest: str) -> Any:
        _require(stack_name, calls(physical_id, old, new))
        return update(physical_id, old, new, stack_name, *rest)

    entry |= {"create": created, "update": updated}


def _require(stack_name: str, calls: Iterator[Call]) -> None:
    account = responses.get_account_id()
    role = _execution_roles.get((account, _name_of(stack_name)))
    if role is None:
        return
    who = f"arn:aws:sts::{account}:assumed-role/{role.rpartition('/')[2]}/{_SESSION}"
    for action, resource, keys in calls:
        decision = policies.decision(role, _SESSION, action, resource, keys)
        if decision != "Allow":
            raise ValueError(iam_actions.identity_denial_message(action, who, resource, decision == "Deny"))


def _of_role(name: str, old: Json, new: Json) -> Iterator[Call]:
    """The calls of the handler of AWS::IAM::Role. An empty `old`: it creates the role."""
    arn, had, has = _arn("role", name), old.get("PermissionsBoundary"), new.get("PermissionsBoundary")
    if not old:
        yield "iam:CreateRole", arn, {_BOUNDARY: has}
    elif has != had and has:
        yield "iam:PutRolePermissionsBoundary", arn, {_BOUNDARY: has}
    elif has != had:
        yield "iam:DeleteRolePermissionsBoundary", arn, {_BOUNDARY: had}
    if old and old.get("AssumeRolePolicyDocument") != new.get("AssumeRolePolicyDocument"):
        yield "iam:UpdateAssumeRolePolicy", arn, {}
    if new.get("ManagedPolicyArns", []) != old.get("ManagedPolicyArns", []):
        yield "iam:AttachRolePolicy", arn, {_BOUNDARY: has}
    if new.get("Policies", []) != old.get("Policies", []):
        yield "iam:PutRolePolicy", arn, {_BOUNDARY: has}


def _of_policy(name: str, old: Json, new: Json) -> Iterator[Call]:
    """The calls of the handler of AWS::IAM::Policy."""
    for role in new.get("Roles") or []:
        yield "iam:PutRolePolicy", _arn("role", role), {_BOUNDARY: _boundary_of(role)}


def _of_managed_policy(name: str, old: Json, new: Json) -> Iterator[Call]:
    """The calls of the handler of AWS::IAM::ManagedPolicy. A policy's physical id is its ARN."""
    arn = name if name.startswith("arn:") else _arn("policy", name)
    yield "iam:CreatePolicyVersion" if old else "iam:CreatePolicy", arn, {}
    for role in new.get("Roles") or []:
        yield "iam:AttachRolePolicy", _arn("role", role), {_BOUNDARY: _boundary_of(role)}


def _of_key(key_id: str, old: Json, new: Json) -> Iterator[Call]:
    """The calls of the handler of AWS::KMS::Key. A new key already has the tags of the request."""
    arn = f"arn:aws:kms:{responses.get_region()}:{responses.get_account_id()}:key/{key_id}"
    if not old:
        yield "kms:CreateKey", "*", {}
        if new.get("Tags"):
            yield "kms:TagResource", arn, {}
    kept = kms._keys.get(key_id, {}).get("Tags", []) if old else new.get("Tags", [])
    tags = {f"aws:resourcetag/{_either(tag, 'Key')}".lower(): _either(tag, "Value") for tag in kept}
    if old.get("KeyPolicy") != new.get("KeyPolicy"):
        yield "kms:PutKeyPolicy", arn, tags


_CALLS: dict[str, Callable[[str, Json, Json], Iterator[Call]]] = {
    "AWS::IAM::Role": _of_role,
    "AWS::IAM::Policy": _of_policy,
    "AWS::IAM::ManagedPolicy": _of_managed_policy,
    "AWS::KMS::Key": _of_key,
}


def _physical_name(kind: str, stack_name: str, logical_id: str, properties: Json) -> str:
    """The name that ministack will generate."""
    given = properties.get("RoleName") or properties.get("ManagedPolicyName")
    longest = 64 if kind == "AWS::IAM::Role" else 128
    return str(given or provisioners._physical_name(stack_name, logical_id, max_len=longest))


def _boundary_of(role: str) -> str | None:
    found: str | None = (iam._roles.get(role) or {}).get("PermissionsBoundary")
    return found


def _either(tag: Json, name: str) -> str:
    """A tag's name or value, in CloudFormation's or in KMS's form."""
    return str(tag.get(name, tag.get(f"Tag{name}")))


def _arn(kind: str, name: str) -> str:
    return f"arn:aws:iam::{responses.get_account_id()}:{kind}/{name}"


def _name_of(stack: str) -> str:
    return stack.split("/")[1] if stack.startswith("arn:") else stack


def _parameter(params: Json, name: str) -> str:
    value = params.get(name) or ""
    return str(value[0] if isinstance(value, list) else value)
