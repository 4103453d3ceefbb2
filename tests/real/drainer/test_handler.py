"""The handler on a real server: its TLS, and the data that it never prints."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

from cdk_hyperpod._lambda.hyperpod.drainer import handler
from helpers.drainer.handler_input import ENVIRONMENT, QUESTION, SECRET
from helpers.kubernetes.apiserver.client import Client


def environment(server: Client) -> dict[str, str]:
    certificate = base64.b64encode(server.cluster.certificate.read_bytes()).decode()
    return {**ENVIRONMENT, "KUBERNETES_ENDPOINT": server.cluster.url, "KUBERNETES_CA": certificate}


def test_a_rejected_token_is_reported_as_a_problem_and_never_logged(server: Client) -> None:
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


def test_an_unreachable_api_server_is_reported_as_a_problem(server: Client) -> None:
    nobody = {**environment(server), "KUBERNETES_ENDPOINT": "https://127.0.0.1:1"}
    answer = handler._look(QUESTION, nobody, log=lambda _: None)
    assert answer["problem"].startswith("GET /api/v1/nodes: ConnectionRefusedError")
