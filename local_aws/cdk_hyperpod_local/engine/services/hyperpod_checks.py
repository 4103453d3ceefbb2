"""The checks in other services before HyperPod accepts a request.

The simulation itself does not know other services.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from cdk_hyperpod_local.engine.seam import stores

Json = Any
_PASSING = ("CreateCluster", "UpdateCluster")


def roles_passed(operation: str, body: bytes) -> tuple[str, ...]:
    """The roles that the caller passes to the service, which require iam:PassRole."""
    if operation not in _PASSING:
        return ()
    request = _json(body)
    roles = {group.get("ExecutionRole") for group in _groups(request)} | {request.get("ClusterRole")}
    return tuple(sorted(role for role in roles if isinstance(role, str)))


def refusal(operation: str, body: bytes, control_plane: Callable[[str], Json | None]) -> str | None:
    """Why the request cannot succeed; None if it can. control_plane(ARN) -> the EKS cluster, as EKS describes it."""
    if operation not in _PASSING:
        return None
    request = _json(body)
    problems = (problem for check in (_roles, _networks, _scripts) for problem in check(request))
    return next(problems, None) or next(_orchestrator(request, control_plane), None)


def eks_cluster(request: Json) -> str | None:
    """ARN of the EKS cluster that orchestrates."""
    orchestrator = request.get("Orchestrator")
    eks = orchestrator.get("Eks") if isinstance(orchestrator, dict) else None
    return str(eks["ClusterArn"]) if isinstance(eks, dict) and "ClusterArn" in eks else None


def _orchestrator(request: Json, control_plane: Callable[[str], Json | None]) -> Iterator[str]:
    """AWS documentation "Prerequisites for using SageMaker HyperPod with Amazon EKS"; the messages are ours."""
    arn = eks_cluster(request)
    if arn is None:
        return
    cluster = control_plane(arn)
    if cluster is None:
        yield f"The EKS cluster {arn} does not exist."
        return
    if cluster["status"] not in ("ACTIVE", "UPDATING"):
        yield f"The EKS cluster {arn} must be ACTIVE, it is {cluster['status']}."
    if cluster["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
        yield f"The authentication mode of EKS cluster {arn} must be API or API_AND_CONFIG_MAP."
    subnets, vpc_id = stores.ec2_store("subnets"), cluster["resourcesVpcConfig"]["vpcId"]
    for subnet in (request.get("VpcConfig") or {}).get("Subnets", []):
        if subnets[subnet]["VpcId"] != vpc_id:
            yield f"The subnet '{subnet}' must be in the VPC of EKS cluster {arn}, {vpc_id}."


def _roles(request: Json) -> Iterator[str]:
    for group in _groups(request):
        role = str(group.get("ExecutionRole", ""))
        trusted = stores.trusts(role, "sagemaker.amazonaws.com")
        if trusted is None:
            yield f"The execution role {role} of instance group {group.get('InstanceGroupName')} does not exist."
        elif not trusted:
            yield f"Could not assume role {role}. Please ensure that the role exists and allows principal sagemaker."
    cluster_role = request.get("ClusterRole")
    if cluster_role and not stores.trusts(str(cluster_role), "hyperpod.sagemaker.amazonaws.com"):
        yield (
            f"Could not assume role {cluster_role}. Please ensure that the role exists and allows principal "
            "hyperpod.sagemaker.amazonaws.com."
        )


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
    """The request; empty if it is not a JSON object. HyperPod itself refuses that."""
    try:
        request = json.loads(body or b"{}")
    except ValueError:
        return {}
    return request if isinstance(request, dict) else {}
