"""What HyperPod looks up in other services before it accepts a request; the model knows nothing but itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from local_aws.engine.seam import stores

Json = Any
_PASSING = ("CreateCluster", "UpdateCluster")


def roles_passed(operation: str, body: bytes) -> tuple[str, ...]:
    """The roles that the caller hands to the service, for which it needs iam:PassRole."""
    if operation not in _PASSING:
        return ()
    request = _json(body)
    roles = {group.get("ExecutionRole") for group in _groups(request)} | {request.get("ClusterRole")}
    return tuple(sorted(role for role in roles if isinstance(role, str)))


def refusal(operation: str, body: bytes) -> str | None:
    """Why the request cannot work; None where it can."""
    if operation not in _PASSING:
        return None
    request = _json(body)
    return next(
        (problem for check in (_roles, _networks, _scripts) for problem in check(request)),
        None,
    )


def _roles(request: Json) -> Iterator[str]:
    for group in _groups(request):
        role = str(group.get("ExecutionRole", ""))
        found = stores.role(role)
        if found is None:
            yield f"The execution role {role} of instance group {group.get('InstanceGroupName')} does not exist."
        elif "sagemaker.amazonaws.com" not in json.dumps(found.get("AssumeRolePolicyDocument")):
            yield f"Could not assume role {role}. Please ensure that the role exists and allows principal sagemaker."


def _networks(request: Json) -> Iterator[str]:
    networks = [request.get("VpcConfig"), *(group.get("OverrideVpcConfig") for group in _groups(request))]
    subnets, groups = stores.ec2_store("subnets"), stores.ec2_store("security_groups")
    for network in filter(None, networks):
        yield from (f"The subnet ID '{item}' does not exist" for item in network["Subnets"] if item not in subnets)
        unknown = (item for item in network["SecurityGroupIds"] if item not in groups)
        yield from (f"The security group '{item}' does not exist" for item in unknown)
        vpcs = {subnets[item]["VpcId"] for item in network["Subnets"] if item in subnets}
        vpcs |= {groups[item]["VpcId"] for item in network["SecurityGroupIds"] if item in groups}
        if len(vpcs) > 1:
            yield f"Subnets and security groups must be in one VPC, these are in {', '.join(sorted(vpcs))}"


def _scripts(request: Json) -> Iterator[str]:
    for group in _groups(request):
        source = str((group.get("LifeCycleConfig") or {}).get("SourceS3Uri", ""))
        bucket = source.removeprefix("s3://").partition("/")[0]
        if source.startswith("s3://") and not stores.bucket_exists(bucket):
            yield f"The lifecycle script's bucket {bucket} of group {group.get('InstanceGroupName')} does not exist."


def _groups(request: Json) -> list[Json]:
    groups = request.get("InstanceGroups") or []
    return [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []


def _json(body: bytes) -> Json:
    """The model itself refuses what is not well-formed."""
    try:
        request = json.loads(body or b"{}")
    except ValueError:
        return {}
    return request if isinstance(request, dict) else {}
