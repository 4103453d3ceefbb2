"""Finds the owner of a token of `aws eks get-token`, as EKS does: the request in the token is sent to STS.

The token is a signed request for sts:GetCallerIdentity. Its signature covers the cluster's name, so that one cluster
cannot use it for another. STS returns the signer, and no secret has to be known here.
"""

from __future__ import annotations

import base64
import binascii
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, urlsplit

PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
_LONGEST_SECONDS = 900


class Callers:
    """`url` and `authority` (its certificate's) are those of the only STS that is called.

    A token for another one is refused.
    """

    def __init__(self, url: str, authority: Path) -> None:
        self._url = url
        self._authority = authority

    def arn(self, cluster: str, token: str) -> str | None:
        """The caller's ARN in STS's form; None if the token has expired, or is not for this cluster."""
        request = _signed_request(token)
        if request is None or f"{request.scheme}://{request.netloc}" != self._url or not _is_allowed(request):
            return None
        signed = urllib.request.Request(request.geturl(), headers={CLUSTER_HEADER: cluster})
        context = ssl.create_default_context(cafile=str(self._authority))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(signed, timeout=25) as answer:
                found = re.search(r"<Arn>([^<]+)</Arn>", answer.read().decode())
        except urllib.error.HTTPError:  # expired, invalid, or signed for another cluster
            return None
        return found[1] if found else None


def _signed_request(token: str) -> SplitResult | None:
    if not token.startswith(PREFIX):
        return None
    encoded = token.removeprefix(PREFIX)
    try:
        return urlsplit(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode())
    except (binascii.Error, ValueError):
        return None


def _is_allowed(request: SplitResult) -> bool:
    """Whether it is exactly the request that a token may contain: the sender of the token chose its address."""
    given = {name.lower(): values for name, values in parse_qs(request.query).items()}
    expected = {"action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires"}
    expected |= {"x-amz-signedheaders", "x-amz-signature"}
    if not expected <= set(given) <= expected | {"x-amz-security-token"} or any(
        len(item) != 1 for item in given.values()
    ):
        return False
    return (
        request.path in ("", "/")
        and given["action"] == ["GetCallerIdentity"]
        and CLUSTER_HEADER in given["x-amz-signedheaders"][0].split(";")
        and given["x-amz-expires"][0].isdecimal()
        and int(given["x-amz-expires"][0]) <= _LONGEST_SECONDS
    )
