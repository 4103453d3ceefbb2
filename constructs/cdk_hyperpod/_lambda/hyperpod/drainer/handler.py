"""The Lambda's entry point, and its token: the rest of the package knows nothing of AWS.

Environment: KUBERNETES_ENDPOINT (https://…), KUBERNETES_CA (base64 of PEM, as EKS gives it), EKS_CLUSTER (the EKS cluster's
name), and BACKUP_CRON_JOB (NAMESPACE/NAME; absent or empty: nothing is saved).

The caller has to wait longer than the function may run (a minute): a look whose caller gave up might hold a node that a
later one has just released.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from botocore.auth import SigV4QueryAuth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

from .api_client import Api, Connection
from .drainer import Drainer

TOKEN_S = 60
"""The lifetime that `aws eks get-token` signs. EKS accepts a token for 15 minutes, and each look makes a new one."""


def on_event(event: Any, _context: object) -> dict[str, Any]:
    """Lambda entry point. Never raises because of an answer of Kubernetes or the event's content."""
    return _look(event, os.environ)


def _look(event: Any, environ: Mapping[str, str], log: Callable[[str], None] = print) -> dict[str, Any]:
    authority = base64.b64decode(environ["KUBERNETES_CA"]).decode()
    connection = Connection(environ["KUBERNETES_ENDPOINT"], authority, make_token(environ["EKS_CLUSTER"], environ))
    try:
        api = Api(connection.send)
        return Drainer(api, environ.get("BACKUP_CRON_JOB") or None, log=log).look(event, time.time())
    finally:
        connection.close()


def make_token(cluster: str, environ: Mapping[str, str]) -> str:
    """A request for sts:GetCallerIdentity, signed for this EKS cluster alone, which EKS sends to STS; nothing is sent here.

    The cluster's name is in a signed header, so that no cluster can use the token to get into another one. Source:
    https://docs.aws.amazon.com/eks/latest/best-practices/identity-and-access-management.html, and `aws eks get-token`.
    """
    region = environ["AWS_REGION"]
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    own = environ.get("AWS_ENDPOINT_URL_STS") or environ.get("AWS_ENDPOINT_URL")
    request = AWSRequest(
        method="GET",
        url=f"{own.rstrip('/') if own else f'https://sts.{region}.{domain}'}/",
        params={"Action": "GetCallerIdentity", "Version": "2011-06-15"},
        headers={"x-k8s-aws-id": cluster},
    )
    credentials = Credentials(
        environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], environ.get("AWS_SESSION_TOKEN")
    )
    SigV4QueryAuth(credentials, "sts", region, expires=TOKEN_S).add_auth(request)
    return "k8s-aws-v1." + base64.urlsafe_b64encode(request.url.encode()).decode().rstrip("=")
