"""Endpoint policies on the local AWS: who gets through an endpoint to what, by IAM's evaluator over the deployed policies.

Every opening of the table is tried, and is refused once it is taken out. What an endpoint lets through, the service may
refuse all the same: here only the endpoint is asked.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from aws_cdk import Stack
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod import HyperPodNetwork
from cdk_hyperpod.network.endpoint_policies import OPENINGS
from cdk_hyperpod_local import environment
from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates
from helpers.synthesis import flat, of_stack

Json = Any

OURS = environment.ACCOUNT
TRUSTED, FOREIGN, AWS = "444455556666", "999999999999", "210987654321"
BUCKETS = {OURS: "weights-of-ours", TRUSTED: "weights-of-friends", FOREIGN: "weights-of-thieves"}
AWS_EKS = "602401143452"
UNHEARD = {"MissingAuthenticationToken", "InvalidClientTokenId", "SignatureDoesNotMatch", "IncompleteSignature"}
REFUSED = "because no VPC endpoint policy allows the"


def client_of(aws: LocalAws, service: str, account: str) -> Any:
    secret = environment.secret(aws.place)
    return environment.client(aws.place, service, region=aws.region, account=account, secret=secret)


@dataclass(frozen=True)
class Endpoints:
    """A network's endpoints by service, and calls through them."""

    aws: LocalAws
    ids: dict[str, str]
    policies: dict[str, Json]
    _clients: dict[Json, Any] = field(default_factory=dict, compare=False)

    def client(self, service: str, endpoint: str, *, account: str | None, by_service: bool = False) -> Any:
        """A client whose calls come through an endpoint; account None: nobody signs them."""
        wanted = (service, endpoint, account, by_service)
        if wanted in self._clients:
            return self._clients[wanted]
        client = client_of(self.aws, service, account or OURS)
        signed_by = "service" if by_service else "nobody" if account is None else None

        def through(request: Any, **_: object) -> None:
            request.headers["x-local-aws-vpc-endpoint"] = self.ids[endpoint]
            if signed_by is not None:
                request.headers["x-local-aws-signed-by"] = signed_by

        client.meta.events.register("before-send", through)
        # boto3 does not sign what asks for a role with a token; the engine hears nothing else.
        for operation in ("AssumeRoleWithSAML", "AssumeRoleWithWebIdentity"):
            client.meta.events.register_first(f"choose-signer.sts.{operation}", lambda **_: "v4")
        self._clients[wanted] = client
        return client

    def lets(self, service: str, endpoint: str, operation: str, *, account: str | None, **request: Json) -> bool:
        """Whether the endpoint lets a call through, whatever the service says then."""
        by_service = request.pop("by_service", False)
        client = self.client(service, endpoint, account=account, by_service=by_service)
        try:
            getattr(client, operation)(**request)
        except ClientError as error:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] != 500, error
            assert error.response["Error"]["Code"] not in UNHEARD, error
            return REFUSED not in error.response["Error"].get("Message", "")
        return True

    def lets_url(self, url: str, method: str) -> bool:
        """The same of a presigned URL."""
        request = urllib.request.Request(url, method=method, data=b"{}" if method == "PUT" else None)
        request.add_header("x-local-aws-vpc-endpoint", self.ids["s3"])
        request.add_header("Content-Type", "")  # it is part of what was signed
        context = ssl.create_default_context(cafile=str(self.aws.place.authority))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            opener.open(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace")
            assert error.code != 500 and not any(code in said for code in UNHEARD), said
            return REFUSED not in said
        return True


def template(**arguments: Any) -> Json:
    def build(stack: Stack) -> None:
        network = HyperPodNetwork(
            stack, "Network", availability_zones=["us-west-2c"], more_endpoints=["eks", "lambda"], **arguments
        )
        network.allow_custom_resources()

    return templates.part(of_stack(build).body, "AWS::EC2::VPCEndpoint")


def deployed(engine: LocalAws, name: str, body: Json) -> Endpoints:
    made = templates.deploy_whole(engine, name, {"Resources": body["Resources"]})
    assert made.status.endswith("_COMPLETE") and "ROLLBACK" not in made.status, made.reasons
    ids, policies = {}, {}
    for logical_id, resource in body["Resources"].items():
        if resource["Type"] == "AWS::EC2::VPCEndpoint":
            service = resource["Properties"]["ServiceName"].partition(".us-west-2.")[2]
            ids[service] = templates.physical_id(engine, name, logical_id)
            policies[service] = as_deployed(resource["Properties"].get("PolicyDocument"))
    return Endpoints(engine, ids, policies)


def as_deployed(item: Json) -> Json:
    """A part of a template with CloudFormation's own values in it."""
    if isinstance(item, list):
        return [as_deployed(entry) for entry in item]
    if not isinstance(item, dict):
        return item
    if any(key == "Ref" or key.startswith("Fn::") for key in item):
        return flat(item).replace("<AWS::Partition>", "aws").replace("<AWS::AccountId>", OURS)
    return {key: as_deployed(value) for key, value in item.items()}


@pytest.fixture(scope="module")
def buckets(engine: LocalAws) -> None:
    theirs = {**BUCKETS, AWS: "prod-us-west-2-starport-layer-bucket"}
    for account, bucket in theirs.items():
        client_of(engine, "s3", account).create_bucket(
            Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
        )


@pytest.fixture(scope="module")
def account(engine: LocalAws, buckets: None) -> Endpoints:
    return deployed(engine, "policies-account", template(endpoint_policies="account", trusted_accounts=[TRUSTED]))


@pytest.fixture(scope="module")
def organization(engine: LocalAws, buckets: None) -> Endpoints:
    """The engine knows organizations of one account each: ours has one, and so has the foreign one."""
    ids = {
        owner: client_of(engine, "organizations", owner).describe_organization()["Organization"]["Id"]
        for owner in (OURS, FOREIGN)
    }
    assert ids[OURS] != ids[FOREIGN]
    policies = {"endpoint_policies": "organization", "trusted_accounts": [TRUSTED]}
    return deployed(engine, "policies-organization", template(organization_id=ids[OURS], **policies))


@pytest.fixture(scope="module")
def none(engine: LocalAws, buckets: None) -> Endpoints:
    return deployed(engine, "policies-none", template())


def put(endpoints: Endpoints, who: str | None, owner: str) -> bool:
    return endpoints.lets("s3", "s3", "put_object", account=who, Bucket=BUCKETS[owner], Key="model", Body=b"")


@pytest.mark.parametrize("mode", ["account", "organization"])
@pytest.mark.parametrize("who", [OURS, TRUSTED, FOREIGN, None])
@pytest.mark.parametrize("owner", [OURS, TRUSTED, FOREIGN])
def test_data_stays_with_us_and_those_we_trust(
    mode: str, who: str | None, owner: str, request: pytest.FixtureRequest
) -> None:
    endpoints: Endpoints = request.getfixturevalue(mode)
    assert put(endpoints, who, owner) is ({who, owner} <= {OURS, TRUSTED})


def test_without_policies_keys_of_another_account_take_data_out(none: Endpoints) -> None:
    assert put(none, FOREIGN, FOREIGN)


CALLS: dict[str, tuple[str, str, Json]] = {
    "ec2": ("ec2", "describe_vpcs", {}),
    "ecr.api": ("ecr", "get_authorization_token", {}),
    "eks": ("eks", "list_clusters", {}),
    "lambda": ("lambda", "list_functions", {}),
    "logs": ("logs", "describe_log_groups", {}),
    "monitoring": ("cloudwatch", "list_metrics", {}),
    "sagemaker.api": ("sagemaker", "list_clusters", {}),
    "ssm": ("ssm", "describe_parameters", {}),
    "sts": ("sts", "get_caller_identity", {}),
}


@pytest.mark.parametrize("endpoint", CALLS)
@pytest.mark.parametrize("mode", ["account", "organization"])
def test_a_foreign_principal_gets_through_no_endpoint(mode: str, endpoint: str, request: pytest.FixtureRequest) -> None:
    endpoints: Endpoints = request.getfixturevalue(mode)
    service, operation, arguments = CALLS[endpoint]
    assert endpoints.lets(service, endpoint, operation, account=OURS, **arguments)
    assert endpoints.lets(service, endpoint, operation, account=TRUSTED, **arguments)
    assert not endpoints.lets(service, endpoint, operation, account=FOREIGN, **arguments)


def test_a_service_of_aws_gets_through(account: Endpoints) -> None:
    call = partial(account.lets, "s3", "s3", "get_object", account=FOREIGN, Bucket=BUCKETS[FOREIGN], Key="k")
    assert call(by_service=True)
    assert not call()


def _presigned(endpoints: Endpoints, operation: str, bucket: str) -> bool:
    """A URL that AWS has signed with an account of its own."""
    signer = client_of(endpoints.aws, "s3", AWS)
    url = signer.generate_presigned_url(operation, Params={"Bucket": bucket, "Key": "key"})
    return endpoints.lets_url(url, "PUT" if operation == "put_object" else "GET")


def _anonymous_get(endpoints: Endpoints, bucket: str) -> bool:
    return endpoints.lets("s3", "s3", "get_object", account=None, Bucket=bucket, Key="key")


def _pull(endpoints: Endpoints, registry: str, who: str = OURS) -> bool:
    ask = partial(endpoints.lets, "ecr", "ecr.api", account=who, registryId=registry, repositoryName="eks/pause")
    return (
        ask("batch_get_image", imageIds=[{"imageTag": "3.10"}])
        and ask("batch_check_layer_availability", layerDigests=["sha256:0"])
        and ask("get_download_url_for_layer", layerDigest="sha256:0")
    )


def _document(endpoints: Endpoints, who: str = OURS) -> bool:
    ask = partial(endpoints.lets, "ssm", "ssm", account=who)
    parameter = "arn:aws:ssm:us-west-2::parameter/aws/service/ami"
    document = "arn:aws:ssm:us-west-2::document/AWS-StartSSHSession"
    return (
        ask("get_parameter", Name=parameter)
        and ask("get_parameters", Names=[parameter])
        and ask("get_document", Name=document)
        and ask("describe_document", Name=document)
    )


def _federated(endpoints: Endpoints, owner: str) -> bool:
    role, saml = f"arn:aws:iam::{owner}:role/pod", f"arn:aws:iam::{owner}:saml-provider/people"
    ask = partial(endpoints.lets, "sts", "sts", account=None, RoleArn=role)
    return ask("assume_role_with_web_identity", RoleSessionName="pod", WebIdentityToken="a.b.c") and ask(
        "assume_role_with_saml", PrincipalArn=saml, SAMLAssertion="abcd"
    )


TRIED: dict[str, Callable[[Endpoints], bool]] = {
    "ImageLayers": lambda endpoints: _presigned(endpoints, "get_object", "prod-us-west-2-starport-layer-bucket"),
    "SystemsManager": lambda endpoints: all(
        _anonymous_get(endpoints, bucket)
        for bucket in (
            "amazon-ssm-us-west-2",
            "amazon-ssm-packages-us-west-2",
            "aws-ssm-us-west-2",
            "aws-ssm-distributor-file-us-west-2",
            "aws-ssm-document-attachments-us-west-2",
            "patch-baseline-snapshot-us-west-2",
            "us-west-2-birdwatcher-prod",
        )
    ),
    "Packages": lambda endpoints: all(
        _anonymous_get(endpoints, bucket)
        for bucket in (
            "al2023-repos-us-west-2-de612dc2",
            "amazonlinux-2-repos-us-west-2",
            "amazonlinux.us-west-2.amazonaws.com",
            "packages.us-west-2.amazonaws.com",
            "repo.us-west-2.amazonaws.com",
        )
    ),
    "CloudWatchAgent": lambda endpoints: _anonymous_get(endpoints, "amazoncloudwatch-agent-us-west-2"),
    "CustomResources": lambda endpoints: _presigned(
        endpoints, "put_object", "cloudformation-custom-resource-response-uswest2"
    ),
    "RegistriesOfAws": lambda endpoints: all(
        _pull(endpoints, registry) for registry in ("602401143452", "763104351884", "905418368575")
    ),
    "DocumentsOfAws": _document,
    "FederatedRoles": lambda endpoints: _federated(endpoints, OURS) and _federated(endpoints, TRUSTED),
}
"""What each opening is for."""


def test_each_opening_is_tried() -> None:
    assert [opening.sid for opening in OPENINGS] == [*TRIED]


@pytest.mark.parametrize("sid", TRIED)
@pytest.mark.parametrize("mode", ["account", "organization"])
def test_each_opening_of_the_endpoint_policies_allows_its_request(
    mode: str, sid: str, request: pytest.FixtureRequest
) -> None:
    assert TRIED[sid](request.getfixturevalue(mode))


@pytest.fixture(scope="module")
def without(engine: LocalAws, buckets: None) -> Iterator[Endpoints]:
    """The same network with nothing but the rule."""
    body = template(endpoint_policies="account", trusted_accounts=[TRUSTED])
    for resource in body["Resources"].values():
        if resource["Type"] == "AWS::EC2::VPCEndpoint":
            policy = resource["Properties"]["PolicyDocument"]
            policy["Statement"] = [item for item in policy["Statement"] if item["Sid"].startswith("Ours")]
    yield deployed(engine, "policies-bare", json.loads(json.dumps(body)))


@pytest.mark.parametrize("sid", TRIED)
def test_every_opening_is_needed(sid: str, without: Endpoints) -> None:
    assert not TRIED[sid](without)


def test_openings_are_no_wider_than_they_say(account: Endpoints) -> None:
    assert not _presigned(account, "get_object", BUCKETS[FOREIGN])
    assert not _presigned(account, "put_object", "prod-us-west-2-starport-layer-bucket")
    assert not _anonymous_get(account, "cloudformation-custom-resource-response-uswest2")
    assert not _pull(account, FOREIGN)
    assert not _pull(account, "602401143452", who=FOREIGN)
    assert not _document(account, who=FOREIGN)
    assert not _federated(account, FOREIGN)


# -- each part of a policy --------------------------------------------------------------------------------------------

NO_CALLS = {"sts:SetSourceIdentity", "sts:TagSession"}
"""They come with another call, and are judged with it."""


def by_a_service(endpoints: Endpoints) -> bool:
    bucket = {"Bucket": BUCKETS[FOREIGN], "Key": "key"}
    return endpoints.lets("s3", "s3", "get_object", account=FOREIGN, by_service=True, **bucket)


def among_us(endpoints: Endpoints) -> bool:
    return all(put(endpoints, who, owner) for who in (OURS, TRUSTED) for owner in (OURS, TRUSTED))


NEEDED: dict[str, Callable[[Endpoints], bool]] = {
    "Ours": among_us,
    "ServicesOfAws": by_a_service,
    **TRIED,
    "RegistriesOfAws": lambda endpoints: TRIED["RegistriesOfAws"](endpoints) and _pull(endpoints, AWS_EKS, who=TRUSTED),
    "DocumentsOfAws": lambda endpoints: _document(endpoints) and _document(endpoints, who=TRUSTED),
}
"""What each statement is for, by its Sid without a number."""
WHERE = {
    **dict.fromkeys(("Ours", "ServicesOfAws", "ImageLayers", "SystemsManager"), "s3"),
    **dict.fromkeys(("Packages", "CloudWatchAgent", "CustomResources"), "s3"),
    "RegistriesOfAws": "ecr.api",
    "DocumentsOfAws": "ssm",
    "FederatedRoles": "sts",
}
"""The endpoint at which it is tried; the rule is the same at each."""


def parts_left_out(policy: Json, sid: str) -> Iterator[tuple[str, Json]]:
    """The policy without one part of a statement, for each: an action, a resource, an account, all of it; and what it is."""
    for statement in (item for item in policy["Statement"] if item["Sid"].rstrip("0123456789") == sid):
        others = [item for item in policy["Statement"] if item is not statement]
        yield statement["Sid"], policy | {"Statement": others}
        for left_out, less in _less(statement):
            yield left_out, policy | {"Statement": [*others, less]}


def _less(statement: Json) -> Iterator[tuple[str, Json]]:
    for key in ("Action", "Resource"):
        listed = statement[key] if isinstance(statement[key], list) else []
        for item in listed if len(listed) > 1 else []:
            yield item, statement | {key: [other for other in listed if other != item]}
    condition = statement.get("Condition", {})
    for operator, keys in condition.items():
        for key, values in keys.items():
            for item in values if isinstance(values, list) and len(values) > 1 else []:
                less = {**keys, key: [other for other in values if other != item]}
                yield f"{key} {item}", statement | {"Condition": {**condition, operator: less}}


@pytest.mark.parametrize(
    ("mode", "sid"),
    # The others are the same statements under both.
    [*(("account", sid) for sid in NEEDED), *(("organization", sid) for sid in ("Ours", "FederatedRoles"))],
)
def test_each_part_of_a_policy_is_needed(mode: str, sid: str, request: pytest.FixtureRequest) -> None:
    endpoints: Endpoints = request.getfixturevalue(mode)
    endpoint = WHERE[sid]
    change = partial(client_of(endpoints.aws, "ec2", OURS).modify_vpc_endpoint, VpcEndpointId=endpoints.ids[endpoint])
    whole = endpoints.policies[endpoint]
    assert NEEDED[sid](endpoints)
    try:
        for left_out, less in parts_left_out(whole, sid):
            change(PolicyDocument=json.dumps(less))
            assert NEEDED[sid](endpoints) is (left_out in NO_CALLS), left_out
    finally:
        change(PolicyDocument=json.dumps(whole))
