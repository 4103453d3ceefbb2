"""The way in, without a server: its token, and what it needs to start."""

from __future__ import annotations

import base64
import ssl
import subprocess
import sys
from urllib.parse import parse_qs, urlsplit

import pytest

from cdk_hyperpod._lambda.hyperpod.drainer import handler
from cdk_hyperpod_local.engine.kubernetes.tokens import _is_allowed, _signed_request
from helpers.drainer.handler_input import ENVIRONMENT, QUESTION, SECRET
from helpers.synthesis import ROOT


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


@pytest.mark.parametrize("authority", ["", "bm9uZQ=="])
def test_without_a_ca_certificate_no_server_is_trusted(authority: str) -> None:
    nobody = {**ENVIRONMENT, "KUBERNETES_ENDPOINT": "https://127.0.0.1:1", "KUBERNETES_CA": authority}
    with pytest.raises((ValueError, ssl.SSLError)):
        handler._look(QUESTION, nobody, log=lambda _: None)


def test_the_drainer_imports_neither_the_library_nor_an_aws_client() -> None:
    """As in the Lambda: beside nothing of the library. A client's import would be most of a cold start."""
    folder = ROOT / "constructs" / "cdk_hyperpod" / "_lambda"
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); import hyperpod.drainer.handler; "
        "print([name for name in ('boto3', 'botocore.session', 'botocore.client', 'cdk_hyperpod') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout == "[]\n"
