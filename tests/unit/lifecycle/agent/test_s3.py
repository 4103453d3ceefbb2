"""The small S3 client of the nodes: signatures as botocore makes them, and what a look finds."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.auth  # type: ignore[import-untyped]
import botocore.awsrequest  # type: ignore[import-untyped]
import botocore.credentials  # type: ignore[import-untyped]
import pytest

from helpers.lifecycle.programs import load
from helpers.slurm.bucket import serve

s3 = load("agent/s3.py")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server = serve(0, tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    monkeypatch.setenv("no_proxy", "*")
    yield s3.Bucket("drains", "us-west-2")
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ["/c/requests/operator.json", "/drains/c/status.json"])
@pytest.mark.parametrize(("method", "content"), [("GET", b""), ("PUT", b'{"a": 1}')])
def test_it_signs_as_botocore_does(bucket: Any, method: str, content: bytes, path: str) -> None:
    host = "drains.s3.us-west-2.amazonaws.com"
    ours = bucket._signed(method, host, path, content)
    request = botocore.awsrequest.AWSRequest(method, f"https://{host}{path}", data=content)
    request.context["timestamp"] = ours["x-amz-date"]
    request.headers["X-Amz-Date"] = ours["x-amz-date"]
    request.headers["X-Amz-Security-Token"] = "token"
    request.headers["X-Amz-Content-SHA256"] = ours["x-amz-content-sha256"]
    signer = botocore.auth.S3SigV4Auth(botocore.credentials.Credentials("AKIDEXAMPLE", "secret"), "s3", "us-west-2")
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert ours["Authorization"].rpartition("Signature=")[2] == signer.signature(text, request)
    assert f"SignedHeaders={signer.signed_headers(signer.headers_to_sign(request))}," in ours["Authorization"]


def test_it_reads_what_is_there_once_and_too_much_only_in_part(bucket: Any) -> None:
    assert bucket.get("c/none.json", "", 100) == s3.Object(None, "")
    bucket.put("c/one.json", b"x" * 50)
    found = bucket.get("c/one.json", "", 100)
    assert found.content == b"x" * 50
    assert bucket.get("c/one.json", found.etag, 100) is None
    assert len(bucket.get("c/one.json", "", 20).content) == 21


def test_an_s3_error_is_one_sentence_without_a_secret(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_signed", lambda *_: {})
    with pytest.raises(s3.S3Error, match=r"^GET s3://drains/c/one\.json: AccessDenied$"):
        bucket.get("c/one.json", "", 100)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(s3.S3Error, match="Connection refused"):
        bucket.put("c/one.json", b"")


class Answers:
    """A server that says the same bytes to everybody."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{self._socket.getsockname()[1]}")
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as request:
                request.readline()
                headers = http.client.parse_headers(request)
                # The kernel resets a connection that is closed with unread bytes, and then the client may lose the answer.
                request.read(int(headers.get("Content-Length", 0)))
                connection.sendall(self.said)

    def end(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def answers(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    server = Answers(monkeypatch)
    yield server
    server.end()


@pytest.mark.parametrize("code", ["NoSuchKey", "NoSuchBucket"])
def test_there_is_no_object_where_s3_says_so(bucket: Any, answers: Answers, code: str) -> None:
    answers.said = f"HTTP/1.1 404 Not Found\r\n\r\n<Error><Code>{code}</Code></Error>".encode()
    assert bucket.get("c/one.json", "", 100) == s3.Object(None, "")
    # Nothing is written into what is not there.
    with pytest.raises(s3.S3Error, match=code):
        bucket.put("c/one.json", b"{}")


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "404"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n<html>This page is not NoSuchKey", "404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{half", "cut off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\nDate: someday\r\n\r\n{}", "IncompleteRead|invalid literal"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "IncompleteRead"),
        (b"nonsense\r\n\r\n", "nonsense"),
        (b"", "closed connection"),
    ],
)
def test_no_other_answer_is_one(bucket: Any, answers: Answers, said: bytes, says: str) -> None:
    answers.said = said
    with pytest.raises(s3.S3Error, match=says):
        bucket.get("c/one.json", "", 100)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_it_follows_no_redirect(bucket: Any, answers: Answers, tmp_path: Path, status: int) -> None:
    """Whoever the answer names would get the signature and the session token."""
    elsewhere = serve(0, tmp_path)
    threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
    location = f"http://127.0.0.1:{elsewhere.server_port}/drains/c/one.json"
    answers.said = f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    calls: list[Callable[[], object]] = [
        lambda: bucket.get("c/one.json", "", 100),
        lambda: bucket.put("c/one.json", b"{}"),
    ]
    for call in calls:
        with pytest.raises(s3.S3Error, match=f"^(GET|PUT) s3://drains/c/one\\.json: {status}$"):
            call()
    assert elsewhere.RequestHandlerClass.asked == 0  # type: ignore[attr-defined]
    elsewhere.shutdown()
    elsewhere.server_close()


def test_everybody_shares_s3_s_clock(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(0, tmp_path, clock_offset_s=300)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
    bucket.get("c/one.json", "", 100)
    assert abs(bucket.now() - time.time() - 300) < 60
    server.shutdown()
    server.server_close()


OURS = "x-amz-request-id: 0123456789ABCDEF\r\nx-amz-id-2: abc\r\n"
TOMORROW = "Date: Fri, 01 Jan 2100 00:00:00 GMT\r\n"


@pytest.mark.parametrize(
    "said",
    [
        f"HTTP/1.1 503 Service Unavailable\r\n{TOMORROW}\r\n",
        f"HTTP/1.1 404 Not Found\r\n{TOMORROW}x-amz-request-id: 1\r\n\r\n<html>",
        f"HTTP/1.1 200 OK\r\n{TOMORROW}\r\nlogin first",
        f"HTTP/1.1 503 Slow Down\r\n{OURS}Date: Mon, 99 Jan 99999999999999999999 00:00:00 GMT\r\n\r\n",
    ],
    ids=["503", "proxy", "portal", "no date"],
)
def test_only_a_response_of_s3_sets_the_clock(bucket: Any, answers: Answers, said: str) -> None:
    answers.said = said.encode()
    with contextlib.suppress(s3.S3Error):
        bucket.get("c/one.json", "", 100)
    assert abs(bucket.now() - time.time()) < 60


def test_an_error_response_of_s3_sets_the_clock(bucket: Any, answers: Answers) -> None:
    """RequestTimeTooSkewed, for one: a clock that is wrong can sign nothing that S3 takes."""
    answers.said = (
        f"HTTP/1.1 403 Forbidden\r\n{OURS}{TOMORROW}\r\n<Error><Code>RequestTimeTooSkewed</Code></Error>".encode()
    )
    with pytest.raises(s3.S3Error, match="RequestTimeTooSkewed"):
        bucket.get("c/one.json", "", 100)
    assert bucket.now() > 4_000_000_000


class Told:
    """A clock, and the answers that it hears: `hear(after_s, ahead_s)`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 1000.0
        monkeypatch.setattr(s3.time, "monotonic", lambda: self.at)
        self.clock = s3.Clock()

    def hear(self, after_s: float, ahead_s: float) -> float:
        """How far the clock is ahead of the truth afterwards."""
        self.at += after_s
        self.clock.note(2_000_000_000 + self.at + ahead_s)
        return self.ahead()

    def ahead(self) -> float:
        return round(float(self.clock.now()) - self.at - 2_000_000_000)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


@pytest.mark.parametrize("wrong", [3600, -3600, 30])
def test_one_answer_moves_the_clock_only_where_it_is_the_first(told: Told, wrong: float) -> None:
    assert told.hear(0, 0) == 0
    assert told.hear(10, wrong) == min(0, wrong)
    assert told.hear(10, 0) == 0
    # And the first, if the second differs, ends nothing: the earlier of the two counts.
    told.clock = s3.Clock()
    assert told.hear(0, wrong) == wrong
    assert told.hear(1, 0) == min(0, wrong)


def test_three_answers_over_a_minute_set_the_clock(told: Told) -> None:
    told.hear(0, 0)
    assert [told.hear(20, 3600) for _ in range(3)] == [0, 0, 0]
    assert told.hear(20, 3600) == 3600
    # Each that agrees with the clock begins the count anew, and so does each that agrees with nothing.
    assert [told.hear(29, ahead) for ahead in (0, 0, 3600, 0, 0, 7200, 60, 0)] == [0, 0, 3600, 0, 0, 3600, 60, 0]


def test_many_answers_within_a_minute_prove_no_more_than_one(told: Told) -> None:
    told.hear(0, 0)
    assert {told.hear(1, 3600) for _ in range(60)} == {0}
    assert told.hear(1, 3600) == 3600


def test_a_role_s_keys_come_from_the_metadata_or_else_from_the_aws_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has documented which of them a node of HyperPod has."""
    keys = '{"AccessKeyId": "A", "SecretAccessKey": "B", "%s": "C", "Expiration": "2030-01-01T00:00:00Z"}'
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("PROVISION_METADATA", "http://127.0.0.1:1")
    command = tmp_path / "aws"
    command.write_text(f"#!/bin/sh\necho '{keys % 'SessionToken'}'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert s3.find_credentials() == s3.Credentials("A", "B", "C", 1893456000)
    command.write_text("#!/bin/sh\necho no credentials; exit 253\n")
    with pytest.raises(s3.S3Error, match="this node has no credentials"):
        s3.find_credentials()
    monkeypatch.setattr(s3, "_metadata", lambda method, path, headers: "")  # no role in the list
    with pytest.raises(s3.S3Error, match="this node has no credentials"):
        s3.find_credentials()
    said = {"/api/token": "t", "/meta-data/iam/security-credentials/": "role\n"}
    monkeypatch.setattr(s3, "_metadata", lambda method, path, headers: said.get(path, keys % "Token"))
    assert s3.find_credentials() == s3.Credentials("A", "B", "C", 1893456000)
