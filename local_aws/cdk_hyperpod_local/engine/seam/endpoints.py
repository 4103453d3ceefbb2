"""Requests through a VPC endpoint: its policy is evaluated before the service gets the request.

Packets are not routed here, so a request names its endpoint: the header `x-local-aws-vpc-endpoint` contains the
endpoint's id. The engine accepts signed requests only, so `x-local-aws-signed-by: nobody` stands for an unsigned
request, and `x-local-aws-signed-by: service` for one that a service principal has signed. IAM's own evaluator decides,
with two keys that it lacks: the owner of a bucket, and the organization of the resource's owner.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ministack import app  # type: ignore[import-not-found]
from ministack.core import iam_actions, iam_evaluator, responses, router  # type: ignore[import-not-found]
from ministack.services import ec2, s3  # type: ignore[import-not-found]

from cdk_hyperpod_local.engine.seam.services import Reply

Json = Any
ENDPOINT = "x-local-aws-vpc-endpoint"
SIGNED_BY = "x-local-aws-signed-by"
# EC2's names of service endpoints, if they differ from ministack's.
_NAMES = {"ecr": "ecr.api", "sagemaker": "sagemaker.api", "cloudwatch": "monitoring"}


def install() -> None:
    """Evaluate the endpoint policy for every request that names an endpoint."""
    dispatch = app._dispatch_service_request
    resolve = iam_evaluator._resolve_condition_key

    def key_of(key: str, context: Any) -> Any:
        through = context.service_context.get("local-aws:through-endpoint", {})
        return through[key.lower()] if key.lower() in through else resolve(key, context)

    async def evaluated(method: str, path: str, headers: Json, body: bytes, query: Json, request_id: str) -> Reply:
        endpoint_id = headers.get(ENDPOINT)
        refusal = _refusal(endpoint_id, method, path, headers, body, query, request_id) if endpoint_id else None
        reply: Reply = refusal or await dispatch(method, path, headers, body, query, request_id)
        return reply

    iam_evaluator._resolve_condition_key = key_of
    app._dispatch_service_request = evaluated


@dataclass(frozen=True, kw_only=True)
class _Request:
    """A request as IAM sees it. `principal`: absent for a request that no user or role has signed."""

    service: str
    action: str | None
    resource: str
    region: str
    account: str
    principal: Any | None
    signed_by_service: bool

    @property
    def who(self) -> str:
        return "anonymous" if self.principal is None else str(self.principal.arn)

    @property
    def principal_type(self) -> str:
        if self.signed_by_service:
            return "AWSService"
        return str(getattr(self.principal, "type", "Anonymous"))


def _refusal(
    endpoint_id: str, method: str, path: str, headers: Json, body: bytes, query: Json, request_id: str
) -> Reply | None:
    """The reply if the endpoint's policy refuses the request; None if it allows it."""
    parameters = app._routing_params(method, path, headers, body, query)
    service = router.detect_service(method, path, headers, parameters)
    endpoint = _endpoint(endpoint_id, service)
    if endpoint["PolicyDocument"] is None:
        return None
    region = _region(endpoint)
    account = responses.get_account_id()
    resource = iam_actions.extract_resource_arn(service, method, path, headers, body, parameters, region, account)
    key = router.extract_access_key_id(headers, query)
    request = _Request(
        service=service,
        action=iam_actions.extract_iam_action(service, method, path, headers, body, parameters),
        resource=_named_elsewhere(service, region, body, parameters) or resource,
        region=region,
        account=account,
        principal=None if SIGNED_BY in headers else iam_evaluator.resolve_principal(key, account),
        signed_by_service=headers.get(SIGNED_BY) == "service",
    )
    evaluated = iam_evaluator.evaluate_resource_policy(endpoint["PolicyDocument"], _context(request))
    return None if evaluated.decision == "Allow" else _access_denied(request, request_id, headers)


def _endpoint(endpoint_id: str, service: str) -> Json:
    """The record of the endpoint. Raises ValueError if it is not an endpoint of the service."""
    name = _NAMES.get(service, service)
    for record in ec2._vpc_endpoints._data.values():
        if record["VpcEndpointId"] == endpoint_id and record["ServiceName"].endswith(f".{_region(record)}.{name}"):
            found: Json = record
            return found
    raise ValueError(f"{endpoint_id} is not an endpoint of {name}")


def _region(endpoint: Json) -> str:
    """As in com.amazonaws.REGION.SERVICE."""
    return str(endpoint["ServiceName"].split(".")[2])


def _context(request: _Request) -> Any:
    """The context of IAM's evaluator, with the condition keys of a request through an endpoint."""
    owner = _owner(request.service, request.resource)
    if owner is None and request.principal is not None:
        owner = request.account
    through: Json = {
        "aws:resourceaccount": owner,
        "aws:resourceorgid": None if owner is None else iam_evaluator._principal_org_id(owner),
        "aws:principalisawsservice": str(request.signed_by_service).lower(),
    }
    if request.principal is None:
        through |= {"aws:principalaccount": None, "aws:principalorgid": None}
    return iam_evaluator.EvalContext(
        principal_arn=request.who,
        principal_type=request.principal_type,
        principal_account=request.account,
        action=request.action or f"{request.service}:Unknown",
        resource_arn=request.resource,
        region=request.region,
        service_context={"local-aws:through-endpoint": through},
    )


def _access_denied(request: _Request, request_id: str, headers: Json) -> Reply:
    message = (
        f"User: {request.who} is not authorized to perform: {request.action} on resource: {request.resource} "
        f"because no VPC endpoint policy allows the {request.action} action"
    )
    reply: Reply = iam_actions.access_denied_response(
        request.service,
        request.action,
        request.who,
        request_id,
        error_code="AccessDenied",
        message=message,
        headers=headers,
    )
    return reply


def _owner(service: str, arn: str) -> str | None:
    """The account that owns a resource. None: the ARN names no account, so the caller's."""
    if service == "s3":
        owner: str | None = s3._bucket_owner_account(arn.removeprefix("arn:aws:s3:::").partition("/")[0])
        return owner
    account = arn.split(":")[4] if arn.startswith("arn:") else None
    return "aws" if account == "" else account


def _named_elsewhere(service: str, where: str, body: bytes, parameters: Json) -> str | None:
    """The resource that a request names in full. ministack uses the caller's own instead."""
    if service == "sts":
        return str(parameters["RoleArn"][0]) if "RoleArn" in parameters else None
    request = json.loads(body or b"{}") if service in ("ecr", "ssm") else {}
    named = str(request.get("Name") or next(iter(request.get("Names", [])), ""))
    if named.startswith("arn:"):
        return named
    registry, repository = request.get("registryId"), request.get("repositoryName")
    return f"arn:aws:ecr:{where}:{registry}:repository/{repository}" if registry and repository else None
