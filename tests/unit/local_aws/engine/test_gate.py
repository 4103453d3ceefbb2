"""The engine accepts its owner and the functions that it runs, and no other user of the machine."""

from __future__ import annotations

import json
import stat
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod_local import environment
from cdk_hyperpod_local.environment import client
from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws.fixtures import REGION, running_engine
from helpers.local_aws.sending import send

WRONG = "wrong"


@pytest.mark.parametrize("secret", [WRONG, "local", "test", ""], ids=repr)
@pytest.mark.parametrize(
    ("service", "operation", "arguments"),
    [
        ("sts", "get_caller_identity", {}),  # which no policy can forbid
        ("s3", "list_buckets", {}),
        ("cloudformation", "describe_stacks", {}),
        ("sagemaker", "list_clusters", {}),
        ("eks", "list_clusters", {}),
        ("lambda", "list_functions", {}),
        ("iam", "create_user", {"UserName": "intruder"}),
        ("ec2", "describe_vpcs", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_secret_is_refused(
    engine: LocalAws, service: str, operation: str, arguments: dict[str, Any], secret: str
) -> None:
    asking = client(engine.place, service, region=REGION, secret=secret or "x")

    with pytest.raises(ClientError) as refused:
        getattr(asking, operation)(**arguments)

    # As on AWS, each protocol has its own error code.
    code = refused.value.response["Error"]["Code"]
    assert code in ("SignatureDoesNotMatch", "InvalidSignatureException", "AuthFailure")


def test_another_account_s_number_is_refused(engine: LocalAws) -> None:
    asking = client(engine.place, "sts", region=REGION, account="111122223333", secret=WRONG)

    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        asking.get_caller_identity()


@pytest.mark.parametrize("key", ["test", f"AKIA{'X' * 16}", f"ASIA{'X' * 16}"])
def test_a_key_that_iam_did_not_issue_is_refused(engine: LocalAws, key: str) -> None:
    asking = client(engine.place, "sts", region=REGION, account=key, secret="test")

    with pytest.raises(ClientError, match=r"SignatureDoesNotMatch|InvalidClientTokenId"):
        asking.get_caller_identity()


def test_a_session_is_known_by_its_own_secret(engine: LocalAws) -> None:
    given = engine.client("sts").get_session_token()["Credentials"]

    def asking(secret: str) -> Any:
        session = boto3.session.Session(given["AccessKeyId"], secret, given["SessionToken"], region_name=REGION)
        return session.client("sts", endpoint_url=engine.place.url, verify=str(engine.place.authority))

    assert asking(given["SecretAccessKey"]).get_caller_identity()["Account"] == environment.ACCOUNT
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        asking(WRONG).get_caller_identity()


def presigning(aws: LocalAws, secret: str, version: str) -> Any:
    session = boto3.session.Session(environment.ACCOUNT, secret, region_name=REGION)
    config = Config(signature_version=version, s3={"addressing_style": "path"})
    return session.client("s3", endpoint_url=aws.place.url, verify=str(aws.place.authority), config=config)


@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_a_presigned_address_works_until_it_is_changed_or_old(engine: LocalAws, version: str) -> None:
    bucket = f"presigned-{version}"
    s3 = engine.client("s3")
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket=bucket, Key="k", Body=b"v")
    s3.put_object(Bucket=bucket, Key="other", Body=b"secret")
    right, wrong = (presigning(engine, secret, version) for secret in (environment.secret(engine.place), WRONG))
    url = right.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    path = url.removeprefix(engine.place.url)
    forged = wrong.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    old = right.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"}, ExpiresIn=-5)

    assert send(engine, "GET", path)[0::2] == (200, "v")
    assert send(engine, "GET", path.replace("/k?", "/other?"))[0] == 403
    assert send(engine, "GET", forged.removeprefix(engine.place.url))[0] == 403
    assert send(engine, "GET", old.removeprefix(engine.place.url))[0] == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/?Action=GetCallerIdentity&Version=2011-06-15"),
        ("POST", "/"),
        ("PUT", "/bucket"),
        ("GET", "/_ministack/health"),
        ("POST", "/_ministack/reset"),
        ("POST", "/_ministack/config"),
        ("GET", "/_ministack/lambda-code/000000000000/x"),
        ("POST", "/_ministack/eks-auth/000000000000/x/y/zzzzzzzzzzzzzzzzz"),
        ("GET", "/2015-03-31/functions/"),
        ("OPTIONS", "/"),
    ],
)
def test_an_unsigned_request_is_refused(engine: LocalAws, method: str, path: str) -> None:
    status, _, text = send(engine, method, path)

    assert status in (400, 401, 403), text


def test_only_the_status_is_public(engine: LocalAws) -> None:
    assert send(engine, "GET", "/_local_aws/status")[0] == 200
    assert send(engine, "GET", "/_local_aws/hyperpod")[0] == 403
    assert send(engine, "POST", "/_local_aws/hyperpod", headers={"Authorization": f"Bearer {WRONG}"})[0] == 403
    assert engine.hyperpod()["terminations"] is not None


def test_an_answer_to_a_custom_resource_needs_its_address(engine: LocalAws) -> None:
    """An address that was guessed has no effect."""
    status, _, _ = send(engine, "PUT", "/_ministack/cfn-response/00000000-0000-4000-8000-000000000000")

    assert status in (200, 404)


@pytest.mark.parametrize(
    "host", ["example.com", "example.com:{port}", "169.254.169.254", "127.0.0.1", "127.0.0.1.example.com:{port}"]
)
def test_another_host_is_refused(engine: LocalAws, host: str) -> None:
    """A name whose DNS entry leads here (rebinding). A browser would treat the engine as that site."""
    status, _, text = send(engine, "GET", "/_local_aws/status", headers={"Host": host.format(port=engine.place.port)})

    assert (status, json.loads(text)["message"].partition(".")[0]) == (421, "the Host header names another host")


def test_a_browser_is_refused_and_no_reply_allows_cross_origin_requests(engine: LocalAws) -> None:
    assert send(engine, "GET", "/_local_aws/status", headers={"Origin": "https://example.com"})[0] == 403
    assert send(engine, "GET", "/_local_aws/status", headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    url = presigning(engine, environment.secret(engine.place), "s3v4").generate_presigned_url("list_buckets")
    replies = [send(engine, "GET", path) for path in ("/", "/_local_aws/status", url.removeprefix(engine.place.url))]
    replies += [send(engine, "OPTIONS", "/", headers={"Access-Control-Request-Method": "PUT"})]

    assert not [name for _, headers, _ in replies for name in headers if name.startswith("access-control-")]
    assert replies[2][0] == 200


def test_each_start_has_a_new_secret_that_only_the_owner_can_read(engine: LocalAws) -> None:
    with running_engine(bootstrap=False) as other:
        secrets = {environment.secret(aws.place) for aws in (engine, other)}
        assert len(secrets) == 2 and all(len(secret) >= 40 for secret in secrets)
        assert stat.S_IMODE(other.place.secret.stat().st_mode) == 0o600
        assert stat.S_IMODE(other.place.folder.stat().st_mode) == 0o700
        with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
            client(other.place, "sts", region=REGION, secret=environment.secret(engine.place)).get_caller_identity()
