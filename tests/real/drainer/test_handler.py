"""The way in: its token, its TLS, what it needs to start, and what it never tells."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from cdk_hyperpod._lambda.hyperpod.drainer import handler
from cdk_hyperpod_local.engine.kubernetes.tokens import _is_allowed, _signed_request
from helpers.kubernetes.apiserver.client import Client
from helpers.synthesis import ROOT

SECRET = "nobody-has-this-key"
ENVIRONMENT = {
    "AWS_REGION": "us-west-2",
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": "the-session",
    "EKS_CLUSTER": "train",
}


def test_the_token_is_a_request_that_eks_takes() -> None:
    token = handler.make_token("train", ENVIRONMENT)

    request = _signed_request(token)
    assert request is not None
    assert f"{request.scheme}://{request.netloc}" == "https://sts.us-west-2.amazonaws.com"
    assert _is_allowed(request)
    query = {name: values[0] for name, values in parse_qs(request.query).items()}
    assert query["X-Amz-SignedHeaders"] == "host;x-k8s-aws-id"
    assert query["X-Amz-Expires"] == "60"
    assert query["X-Amz-Credential"].endswith("/us-west-2/sts/aws4_request")
    assert query["X-Amz-Security-Token"] == "the-session"
    assert SECRET not in base64.urlsafe_b64decode(token.removeprefix("k8s-aws-v1.") + "==").decode()
    # It is good for this cluster alone.
    other = _signed_request(handler.make_token("other", ENVIRONMENT))
    assert other is not None
    assert parse_qs(other.query)["X-Amz-Signature"] != parse_qs(request.query)["X-Amz-Signature"]


@pytest.mark.parametrize(
    ("more", "host"),
    [
        ({"AWS_REGION": "cn-north-1"}, "sts.cn-north-1.amazonaws.com.cn"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}, "127.0.0.1:4566"),
    ],
)
def test_the_token_names_the_sts_that_there_is(more: dict[str, str], host: str) -> None:
    token = handler.make_token("train", {**ENVIRONMENT, **more})
    url = base64.urlsafe_b64decode(token.removeprefix("k8s-aws-v1.") + "==").decode()
    assert urlsplit(url).netloc == host


def environment(server: Client) -> dict[str, str]:
    certificate = base64.b64encode(server.cluster.certificate.read_bytes()).decode()
    return {**ENVIRONMENT, "KUBERNETES_ENDPOINT": server.cluster.url, "KUBERNETES_CA": certificate}


QUESTION = {"schema": 1, "cluster": "train", "requests": None}


def test_a_token_that_is_not_taken_is_a_problem_and_told_to_nobody(server: Client) -> None:
    logged: list[str] = []
    answer = handler._look(QUESTION, environment(server), log=logged.append)

    assert answer["problem"] == "GET /api/v1/nodes: Unauthorized"
    (line,) = logged
    assert line.startswith("a question: no node; 0 busy; 0 done; GET /api/v1/nodes: Unauthorized; ")
    for text in (line, json.dumps(answer)):
        assert not [word for word in ("k8s-aws-v1", "the-session", SECRET, "AKIDEXAMPLE") if word in text]


def test_no_other_authority_is_trusted(server: Client, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.crt"
    what = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kubernetes", "-days", "1"]
    where = ["-keyout", str(tmp_path / "key"), "-out", str(stranger)]
    subprocess.run(["openssl", "req", "-x509", *what, *where], check=True, capture_output=True)
    other = {**environment(server), "KUBERNETES_CA": base64.b64encode(stranger.read_bytes()).decode()}
    answer = handler._look(QUESTION, other, log=lambda _: None)
    assert "CERTIFICATE_VERIFY_FAILED" in answer["problem"]


def test_nobody_there_is_a_problem(server: Client) -> None:
    nobody = {**environment(server), "KUBERNETES_ENDPOINT": "https://127.0.0.1:1"}
    answer = handler._look(QUESTION, nobody, log=lambda _: None)
    assert answer["problem"].startswith("GET /api/v1/nodes: ConnectionRefusedError")


@pytest.mark.parametrize("authority", ["", "bm9uZQ=="])
def test_without_an_authority_nobody_is_trusted(authority: str) -> None:
    nobody = {**ENVIRONMENT, "KUBERNETES_ENDPOINT": "https://127.0.0.1:1", "KUBERNETES_CA": authority}
    with pytest.raises((ValueError, ssl.SSLError)):
        handler._look(QUESTION, nobody, log=lambda _: None)


def test_it_stands_alone_and_imports_no_client_of_aws() -> None:
    """As in the Lambda: beside nothing of the library. A client's import would be most of a cold start."""
    folder = ROOT / "constructs" / "cdk_hyperpod" / "_lambda"
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); import hyperpod.drainer.handler; "
        "print([name for name in ('boto3', 'botocore.session', 'botocore.client', 'cdk_hyperpod') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout == "[]\n"
