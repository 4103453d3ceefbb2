"""Read and write single objects in S3 with the node's own role. The standard library only.

The AWS CLI would take a second of CPU and 60 MB for each call, and the drain agent makes calls every few seconds.

    AWS_ENDPOINT_URL_S3  another endpoint than the region's own, as AWS's own tools have it; keys then follow the bucket
"""

from __future__ import annotations

import calendar
import email.utils
import hashlib
import hmac
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from lib import run

TIMEOUT_S = 10
METADATA = "http://169.254.169.254/latest"
NOTHING_THERE = ("NoSuchKey", "NoSuchBucket")
"""S3's codes if there is no request. The bucket is deleted when `slurm.drain` is removed from the file."""
RENEW_S = 300
"""Credentials that expire sooner than this are fetched again."""
OWN_HEADERS = ("x-amz-request-id", "x-amz-id-2")
"""S3 sets both in every response, also in errors ("Common response headers"). A proxy's own page has neither."""
CLOSE_S = 5
"""Two responses agree on the time within this. Date has no fractions, and a response may take a while."""
AGREE = 3
"""So many responses in a row set the clock again, if the last came AGREE_S after the first."""
AGREE_S = 60


class S3Error(Exception):
    """Why an object could not be read or written: one sentence."""


class Credentials(NamedTuple):
    """Of the node's role."""

    key: str
    secret: str
    token: str
    expires: float
    """When, in seconds since 1970."""


class Object(NamedTuple):
    """What a look found."""

    content: bytes | None
    """None: there is no such object."""
    etag: str


class Clock:
    """The time of S3's responses, kept between them by this machine's monotonic clock.

    The first response sets the clock. A later response that differs moves the clock only if others agree with it for a
    minute. Until then the earlier of the two times counts, so that one response ends no lease and passes no deadline.
    """

    def __init__(self) -> None:
        self._ahead: float | None = None
        """S3's time less the monotonic clock's."""
        self._doubts: list[tuple[float, float]] = []
        """Responses in a row that differ from the clock and agree with each other: when, and how far ahead each was."""

    def now(self) -> float:
        """In seconds since 1970."""
        if self._ahead is None:
            return time.time()
        return time.monotonic() + min([self._ahead, *(ahead for _, ahead in self._doubts)])

    def note(self, time_s: float) -> None:
        """Take in the time of a response, in seconds since 1970."""
        at = time.monotonic()
        ahead = time_s - at
        if self._ahead is None:
            self._ahead = ahead
        elif abs(ahead - self._ahead) <= CLOSE_S:
            self._doubts = []
        else:
            agreeing = [each for each in self._doubts if abs(each[1] - ahead) <= CLOSE_S]
            self._doubts = [*agreeing, (at, ahead)]
            if len(self._doubts) >= AGREE and at - self._doubts[0][0] >= AGREE_S:
                self._ahead, self._doubts = ahead, []


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: urllib would send the signature and the session token to whatever host a response names."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the response an error."""


_OPENER = urllib.request.build_opener(_Straight)


class Bucket:
    """One bucket. Not for several threads."""

    def __init__(self, name: str, region: str) -> None:
        self.name = name
        self.region = region
        self.clock = Clock()
        """All users of the bucket may share its clock."""
        self._credentials: Credentials | None = None

    def now(self) -> float:
        """The time by S3's clock, in seconds since 1970."""
        return self.clock.now()

    def get(self, key: str, etag: str, most_bytes: int) -> Object | None:
        """The object; None: it still has this etag. Of a larger one, only as much as tells that it is too large.

        Where S3 says that there is no such object, or no bucket, its content is None. Any other answer raises S3Error: a
        proxy's 404 is not S3's.
        """
        what, request = self._request("GET", key, None, {"If-None-Match": etag} if etag else {})
        status, headers, content = self._ask(what, request, most_bytes + 1)
        if status == 304:
            return None
        if status == 404:
            return Object(None, "")
        return Object(content, headers.get("ETag", ""))

    def put(self, key: str, content: bytes) -> None:
        """Write the object."""
        # urllib would call it a form otherwise.
        self._ask(*self._request("PUT", key, content, {"Content-Type": "application/json"}), 0)

    def _request(
        self, method: str, key: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[str, urllib.request.Request]:
        """The request in words for an error, and signed."""
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3")
        path = urllib.parse.quote(f"/{self.name}/{key}" if endpoint else f"/{key}", safe="/-_.~")
        base = endpoint.rstrip("/") if endpoint else f"https://{self.name}.s3.{self.region}.{_suffix(self.region)}"
        request = urllib.request.Request(base + path, data=content, method=method, headers=headers)
        signed = self._signed(method, urllib.parse.urlsplit(base).netloc, path, content or b"")
        for name, value in signed.items():
            request.add_header(name, value)
        return f"{method} s3://{self.name}/{key}", request

    def _ask(self, what: str, request: urllib.request.Request, most_bytes: int) -> Any:
        """The status, the headers and the content. Raises S3Error."""
        try:
            try:
                with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
                    return self._read(what, answer, most_bytes)
            except urllib.error.HTTPError as error:
                return self._read_error(what, error, is_get=request.get_method() == "GET")
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise S3Error(f"{what}: {getattr(error, 'reason', '') or error or type(error).__name__}") from None

    def _read(self, what: str, answer: Any, most_bytes: int) -> Any:
        self._note_clock(answer.headers)
        read = answer.read(most_bytes)
        # Given a length to read, http.client takes a connection that ends early for the end of the content.
        if len(read) < min(most_bytes, int(answer.headers.get("Content-Length") or 0)):
            raise S3Error(f"{what}: the response was cut off")
        return answer.status, answer.headers, read

    def _read_error(self, what: str, error: urllib.error.HTTPError, *, is_get: bool) -> Any:
        """An object that has not changed, or does not exist. Raises S3Error for any other."""
        self._note_clock(error.headers)
        if is_get and error.code == 304:
            return error.code, error.headers, b""
        if error.code in (400, 403):
            self._credentials = None  # perhaps another role's, or too old
        code = _between(error.read(2000), b"<Code>", b"</Code>") or str(error.code)
        if is_get and error.code == 404 and code in NOTHING_THERE:
            return error.code, error.headers, b""
        raise S3Error(f"{what}: {code}") from None

    def _note_clock(self, headers: Any) -> None:
        if not all(headers.get(name) for name in OWN_HEADERS):
            return
        try:
            moment = email.utils.parsedate_to_datetime(headers["Date"]).timestamp() if headers.get("Date") else None
        except (TypeError, ValueError, OverflowError):
            return
        if moment is not None:
            self.clock.note(moment)

    def _signed(self, method: str, host: str, path: str, content: bytes) -> dict[str, str]:
        """The headers of AWS Signature Version 4, "Authenticating Requests: Using the Authorization Header"."""
        if self._credentials is None or self._credentials.expires - time.time() < RENEW_S:
            self._credentials = find_credentials()
        found = self._credentials
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.now()))
        day = stamp[:8]
        digest = hashlib.sha256(content).hexdigest()
        headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
        if found.token:
            headers["x-amz-security-token"] = found.token
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        canonical = f"{method}\n{path}\n\n{lines}\n{names}\n{digest}"
        scope = f"{day}/{self.region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{found.secret}".encode()
        for part in (day, self.region, "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        del headers["host"]  # urllib's own
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={found.key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return headers


def find_credentials() -> Credentials:
    """The role's, where AWS's own tools look: environment, the instance's metadata, and what the AWS CLI is set up with.

    Raises S3Error.
    """
    environment = os.environ
    if environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
        token = environment.get("AWS_SESSION_TOKEN", "")
        return Credentials(
            environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"], token, time.time() + 3600
        )
    try:
        return _of_instance()
    except (OSError, ValueError, TypeError, LookupError, http.client.HTTPException) as error:
        # It is not documented that every process on a HyperPod node reaches the instance metadata.
        exported = run("aws", "configure", "export-credentials", "--format", "process", timeout_s=30)
        try:
            return _parse(json.loads(exported.stdout), "SessionToken")
        except (ValueError, LookupError, TypeError):
            raise S3Error(
                f"this node has no credentials: the instance metadata failed ({error}), and the AWS CLI has none"
            ) from None


def _of_instance() -> Credentials:
    """IMDSv2."""
    token = _metadata("PUT", "/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "300"})
    header = {"X-aws-ec2-metadata-token": token}
    role = _metadata("GET", "/meta-data/iam/security-credentials/", header).split()[0]
    return _parse(json.loads(_metadata("GET", f"/meta-data/iam/security-credentials/{role}", header)), "Token")


def _metadata(method: str, path: str, headers: dict[str, str]) -> str:
    base = os.environ.get("PROVISION_METADATA", METADATA)
    request = urllib.request.Request(base + path, method=method, headers=headers)
    # Never through a proxy: the metadata must be this machine's.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Straight)
    with opener.open(request, timeout=5) as answer:
        return str(answer.read(20_000), "utf-8")


def _parse(found: dict[str, Any], token: str) -> Credentials:
    ends = found.get("Expiration")
    moment = calendar.timegm(time.strptime(ends[:19], "%Y-%m-%dT%H:%M:%S")) if ends else time.time() + 3600
    return Credentials(found["AccessKeyId"], found["SecretAccessKey"], found.get(token, ""), moment)


def _suffix(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def _between(text: bytes, before: bytes, after: bytes) -> str:
    return text.partition(before)[2].partition(after)[0].decode("utf-8", "replace")[:100] if before in text else ""
