"""A caller with an IAM role at an EKS cluster's Kubernetes API. The token is made as `aws eks get-token` makes it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3  # type: ignore[import-untyped]
from botocore.model import ServiceId  # type: ignore[import-untyped]
from botocore.signers import RequestSigner  # type: ignore[import-untyped]

from cdk_hyperpod_local.session import LocalAws

Json = Any
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}],
}
_PODS = {"Service": "pods.eks.amazonaws.com"}


def add_role(aws: LocalAws, name: str) -> None:
    """A role without IAM permissions, because an access entry is all that it needs. Pods can have it too."""
    pods = {"Effect": "Allow", "Principal": _PODS, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    trust = {**_TRUST, "Statement": [*_TRUST["Statement"], pods]}
    aws.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The endpoint's reply to one token."""

    url: str
    authority: str
    token: str

    def ask(self, method: str, path: str, body: Json = None) -> tuple[int, Json]:
        context = ssl.create_default_context(cadata=self.authority)
        address = urlsplit(self.url)
        connection = http.client.HTTPSConnection(address.hostname or "", address.port, timeout=30, context=context)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        with closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


def caller(aws: LocalAws, cluster: str, role: str, *, signed_for: str | None = None) -> Caller:
    """`role`: a name. `signed_for`: the cluster for which the token is signed (absent: the called one)."""
    found = aws.client("eks").describe_cluster(name=cluster)["cluster"]
    return Caller(
        url=found["endpoint"],
        authority=base64.b64decode(found["certificateAuthority"]["data"]).decode(),
        token=_token(aws, role, signed_for or cluster),
    )


def kubeconfig(who: Caller) -> Json:
    """What kubectl needs to be this caller, as long as the token is valid."""
    authority = base64.b64encode(who.authority.encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {"server": who.url, "certificate-authority-data": authority}}],
        "users": [{"name": "caller", "user": {"token": who.token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "caller"}}],
        "current-context": "it",
    }


def _token(aws: LocalAws, role: str, cluster: str) -> str:
    arn = f"arn:aws:iam::{aws.account}:role/{role}"
    given = aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="someone")["Credentials"]
    session = boto3.session.Session(
        aws_access_key_id=given["AccessKeyId"],
        aws_secret_access_key=given["SecretAccessKey"],
        aws_session_token=given["SessionToken"],
        region_name=aws.region,
    )
    credentials, events = session.get_credentials(), session.events
    signer = RequestSigner(ServiceId("sts"), aws.region, "sts", "v4", credentials, events)
    request = {
        "method": "GET",
        "url": f"{aws.place.url}/?Action=GetCallerIdentity&Version=2011-06-15",
        "body": {},
        "headers": {"x-k8s-aws-id": cluster},
        "context": {},
    }
    url = signer.generate_presigned_url(request, region_name=aws.region, expires_in=60, operation_name="")
    return f"k8s-aws-v1.{base64.urlsafe_b64encode(url.encode()).decode().rstrip('=')}"
