"""The policies of a VPC's endpoints: AWS's data perimeter, opened as far as HyperPod's nodes need it.

The rule allows our principals to use our resources, and AWS's services. One table, `OPENINGS`, has the exceptions. AWS's own examples:
https://github.com/aws-samples/data-perimeter-policy-examples (vpc_endpoint_policies and service_owned_resources.md). "data perimeter"
below refers to them.

AWS does not document what HyperPod's own agents call, so the default is no policy (docs/closed-networks.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aws_cdk import Fn, Token, region_info

from .._common.pseudo import ACCOUNT_ID, PARTITION
from ..config.cluster import NetworkConfig

Json = dict[str, Any]
Who = Literal["anyone", "ours"]

RESOURCE_KEY_KNOWN = frozenset({"s3", "ec2", "ecr.api", "ecr.dkr", "lambda", "ssm"})
"""The services whose requests contain the resource's owner: AWS's examples require it for these (of ecr for one of the two). For
other services it is compared if present (IfExists), because `aws:ResourceAccount` is in the context of most actions, but not of all."""

# EKS user guide, "View Amazon container image registries for Amazon EKS add-ons".
_EKS_REGISTRIES = {
    "ap-south-2": "900889452093",
    "ap-southeast-3": "296578399912",
    "ap-southeast-4": "491585149902",
    "eu-south-2": "455263428931",
}
_EKS_REGISTRY = "602401143452"
# aws/sagemaker-hyperpod-cli, helm_chart/readme.md: the health monitoring agent's images.
_HYPERPOD_REGISTRIES = {
    "ap-northeast-1": "533267052152",
    "ap-south-1": "011528288864",
    "ap-southeast-1": "905418428165",
    "ap-southeast-2": "851725636348",
    "eu-central-1": "211125453373",
    "eu-north-1": "654654141839",
    "eu-west-1": "533267293120",
    "eu-west-2": "011528288831",
    "sa-east-1": "025066253954",
    "us-east-1": "767398015722",
    "us-east-2": "851725546812",
    "us-west-1": "011528288828",
    "us-west-2": "905418368575",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """An exception to the rule."""

    sid: str
    services: Sequence[str]
    """The services whose endpoints have it."""
    who: Who
    """ours: only our principals. anyone: an account of AWS signs the request, or the request is not signed."""
    actions: Sequence[str]
    resources: Sequence[str]
    """ARNs. {partition}, {region}, {region_without_dashes} and {registry} are replaced. Empty: all our resources."""
    why: str
    source: str
    for_functions: bool = False
    """True: needed only if a custom resource's function is in the VPC."""


OPENINGS: Sequence[Opening] = (
    Opening(
        sid="ImageLayers",
        services=("s3",),
        who="anyone",
        actions=("s3:GetObject",),
        resources=("arn:{partition}:s3:::prod-{region}-starport-layer-bucket/*",),
        why="ECR keeps the layers of images there, and hands out URLs that an account of its own has signed.",
        source="ECR user guide, VPC endpoints, Minimum Amazon S3 Bucket Permissions for Amazon ECR",
    ),
    Opening(
        sid="SystemsManager",
        services=("s3",),
        who="anyone",
        actions=("s3:GetObject",),
        resources=(
            "arn:{partition}:s3:::amazon-ssm-{region}/*",
            "arn:{partition}:s3:::amazon-ssm-packages-{region}/*",
            "arn:{partition}:s3:::aws-ssm-{region}/*",
            "arn:{partition}:s3:::aws-ssm-distributor-file-{region}/*",
            "arn:{partition}:s3:::aws-ssm-document-attachments-{region}/*",
            "arn:{partition}:s3:::patch-baseline-snapshot-{region}/*",
            "arn:{partition}:s3:::{region}-birdwatcher-prod/*",
        ),
        why="The SSM agent, by which people log in to nodes, brings itself and its documents up to date from there.",
        source="Systems Manager user guide, SSM Agent communications with AWS managed S3 buckets",
    ),
    Opening(
        sid="Packages",
        services=("s3",),
        who="anyone",
        actions=("s3:GetObject",),
        resources=(
            "arn:{partition}:s3:::al2023-repos-{region}-de612dc2/*",
            "arn:{partition}:s3:::amazonlinux-2-repos-{region}/*",
            "arn:{partition}:s3:::amazonlinux.{region}.amazonaws.com/*",
            "arn:{partition}:s3:::packages.{region}.amazonaws.com/*",
            "arn:{partition}:s3:::repo.{region}.amazonaws.com/*",
        ),
        why="Packages of Amazon Linux, which nobody signs for.",
        source="data perimeter, s3_endpoint_policy.json",
    ),
    Opening(
        sid="CloudWatchAgent",
        services=("s3",),
        who="anyone",
        actions=("s3:GetObject",),
        resources=("arn:{partition}:s3:::amazoncloudwatch-agent-{region}/*",),
        why="The CloudWatch agent's package.",
        source="data perimeter, s3_endpoint_policy.json",
    ),
    Opening(
        sid="CustomResources",
        services=("s3",),
        who="anyone",
        actions=("s3:PutObject",),
        resources=("arn:{partition}:s3:::cloudformation-custom-resource-response-{region_without_dashes}/*",),
        why="A function in the VPC, as CDK's kubectl handler is, answers CloudFormation by a presigned PUT.",
        source="CloudFormation user guide, Setting up VPC endpoints for AWS CloudFormation",
        for_functions=True,
    ),
    Opening(
        sid="RegistriesOfAws",
        services=("ecr.api", "ecr.dkr"),
        who="ours",
        actions=("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
        resources=("arn:{partition}:ecr:{region}:{registry}:repository/*",),
        why="Images of EKS add-ons, of HyperPod's health monitoring agent, and AWS's deep learning containers.",
        source="data perimeter, ecr.api_endpoint_policy.json; each registry's own source stands beside it here",
    ),
    Opening(
        sid="DocumentsOfAws",
        services=("ssm",),
        who="ours",
        actions=("ssm:DescribeDocument", "ssm:GetDocument", "ssm:GetParameter", "ssm:GetParameters"),
        resources=("arn:{partition}:ssm:{region}::document/*", "arn:{partition}:ssm:{region}::parameter/aws/*"),
        why="Sessions run documents of AWS's own; images are looked up in AWS's parameters.",
        source="data perimeter, ssm_endpoint_policy.json",
    ),
    Opening(
        sid="FederatedRoles",
        services=("sts",),
        who="anyone",
        actions=(
            "sts:AssumeRoleWithSAML",
            "sts:AssumeRoleWithWebIdentity",
            "sts:SetSourceIdentity",
            "sts:TagSession",
        ),
        resources=(),
        why="Whoever asks for a role with a token has no account yet; the role has to be ours.",
        source="data perimeter, resource_control_policies/README.md, on EnforceOrgIdentities",
    ),
)


def endpoint_policy(network: NetworkConfig, service: str, region: str, *, functions: bool = False) -> Json | None:
    """The policy of one service's endpoint. None: AWS's default, which allows everything.

    `region` may be a token. The registries are then those of all regions. `functions`: whether a custom resource's function is in the VPC.
    """
    if network.endpoint_policies == "none":
        return None
    statements = _statements_for_ours(network, service)
    statements.append(_allow("ServicesOfAws", {"Bool": {"aws:PrincipalIsAWSService": "true"}}))
    for opening in OPENINGS:
        is_wanted = functions or not opening.for_functions
        if is_wanted and service in opening.services:
            statements += _statement(opening, network, region)
    return {"Version": "2012-10-17", "Statement": statements}


def _statements_for_ours(network: NetworkConfig, service: str) -> list[Json]:
    """A statement for each pair of keys of our principals and our resources."""
    pairs = itertools.product(_keys(network, "Principal"), _keys(network, "Resource"))
    return [
        _allow(f"Ours{number}", _ours(principal, resource, service))
        for number, (principal, resource) in enumerate(pairs)
    ]


def _ours(principal: Json, resource: Json, service: str) -> Json:
    if service in RESOURCE_KEY_KNOWN:
        return {"StringEquals": {**principal, **resource}}
    return {"StringEquals": principal, "StringEqualsIfExists": resource}


def _keys(network: NetworkConfig, of: Literal["Principal", "Resource"]) -> list[Json]:
    """The condition keys that identify our principals or resources. One match is enough."""
    if network.endpoint_policies == "account":
        return [{f"aws:{of}Account": [ACCOUNT_ID, *network.trusted_accounts]}]
    trusted = [{f"aws:{of}Account": list(network.trusted_accounts)}] if network.trusted_accounts else []
    return [{f"aws:{of}OrgID": network.organization_id}, *trusted]


def _statement(opening: Opening, network: NetworkConfig, region: str) -> list[Json]:
    """An opening as statements: one for each key of our principals or resources."""
    resources = [arn for text in opening.resources for arn in _arns(text, region)]
    if opening.who == "anyone" and resources:
        return [_allow(opening.sid, None, opening.actions, resources)]
    keys = _keys(network, "Principal" if opening.who == "ours" else "Resource")
    return [
        _allow(f"{opening.sid}{number}", {"StringEquals": key}, opening.actions, resources or "*")
        for number, key in enumerate(keys)
    ]


def _allow(sid: str, condition: Json | None, actions: Sequence[str] = (), resources: Sequence[str] = "*") -> Json:
    statement: Json = {
        "Sid": sid,
        "Effect": "Allow",
        "Principal": "*",
        "Action": list(actions) or "*",
        "Resource": resources,
    }
    return statement if condition is None else {**statement, "Condition": condition}


def _arns(text: str, region: str) -> list[str]:
    without_dashes = Fn.join("", Fn.split("-", region)) if Token.is_unresolved(region) else region.replace("-", "")
    filled = {"partition": PARTITION, "region": region, "region_without_dashes": without_dashes}
    registries = _registries(region) if "{registry}" in text else [""]
    return [text.format(**filled, registry=registry) for registry in registries]


def _registries(region: str) -> list[str]:
    regions = [*_HYPERPOD_REGISTRIES, *_EKS_REGISTRIES] if Token.is_unresolved(region) else [region]
    found: set[str | None] = set()
    for one in regions:
        found |= {
            _EKS_REGISTRIES.get(one, _EKS_REGISTRY),
            _HYPERPOD_REGISTRIES.get(one),
            region_info.RegionInfo.get(one).dlc_repository_account,  # deep learning containers, as CDK knows them
        }
    return sorted(account for account in found if account is not None)
