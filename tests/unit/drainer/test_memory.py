"""Pods as large as the API takes them, within the memory of the function."""

from __future__ import annotations

import http.server
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import MOST_BYTES, Api, Connection, KubernetesError
from helpers.synthesis import ROOT

MEMORY_MB = 1024
"""Of the function (eks/drainer.py)."""
CORE_MB = 1769
"""The memory with which a function has one core ("Configure Lambda function memory")."""
TIMEOUT_S = 60
LOOK = r"""
import json, re, sys, time
from urllib.parse import parse_qs, urlsplit
from hyperpod.drainer import drainer
from hyperpod.drainer.api_client import MOST_BYTES, TABLE, Api, Reply
from hyperpod.drainer.mark import MARK

PODS = 1000
# A long text, and as many small values as a list of environment variables has.
LONG = "x" * 1_200_000
MANY = [{"name": f"VARIABLE_{number}", "value": f"value-{number}"} for number in range(4_000)]
OWNER = {"kind": "ReplicaSet", "name": "web", "controller": True}
METADATA = {"name": "NAME", "namespace": "team", "uid": "u", "annotations": {"long": LONG}, "ownerReferences": [OWNER]}
SPEC = {"nodeName": "hyperpod-i-00000000000000001", "containers": [{"name": "main", "env": MANY}]}
POD = json.dumps({"metadata": METADATA, "spec": SPEC, "status": {"phase": "Running"}}).encode()
assert 1_390_000 < len(POD) < 1_450_000, len(POD)

def send(method, path, body, kind):
    address = urlsplit(path)
    if address.path == "/api/v1/nodes":
        mark = json.dumps({"request": "r", "expires": 1_800_000_600, "deadline": 1_800_000_600, "cordon": "ours"})
        held = {"annotations": {MARK: mark}} if sys.argv[1:] else {}
        node = {"metadata": {"name": "hyperpod-i-00000000000000001", "resourceVersion": "1", **held}}
        return Reply(200, json.dumps({"items": [node]}).encode())
    query = {key: values[0] for key, values in parse_qs(address.query).items()}
    if sys.argv[1:]:
        return by_node(query, kind)
    first = int(query.get("continue", 0))
    last = min(PODS, first + int(query["limit"]))
    more = b'"%d"' % last if last < PODS else b'""'
    content = bytearray(b'{"metadata": {"continue": %s}, "items": [' % more)
    for number in range(first, last):
        content += (b"," if number > first else b"") + POD.replace(b"NAME", b"web-%d" % number, 1)
        if len(content) > MOST_BYTES:
            return Reply(200, bytes(content[: MOST_BYTES + 1]))  # As a connection cuts it.
    return Reply(200, bytes(content) + b"]}")

def by_node(query, kind):
    if kind != TABLE:
        assert query["fieldSelector"].endswith("spec.nodeName=hyperpod-i-00000000000000001"), query
        return Reply(200, b'{"items": [%s]}' % POD)
    first, last = int(query.get("continue", 0)), int(query.get("continue", 0)) + int(query["limit"])
    owner = {**METADATA, "annotations": {"long": "x" * 10_000}}
    row = {"cells": ["web", "hyperpod-i-00000000000000001" if first == 0 else "other"], "object": {"metadata": owner}}
    rows = [row] * (min(last, 2 * PODS) - first)
    more = str(last) if last < 2 * PODS else ""
    table = {"metadata": {"continue": more}, "columnDefinitions": [{"name": "Name"}, {"name": "Node"}], "rows": rows}
    return Reply(200, json.dumps(table).encode())

found = drainer.Drainer(Api(send), None, log=lambda _: None).look({"schema": 1, "requests": None}, 1_800_000_000.0)
# ru_maxrss would begin with what the process had that started this one.
peak = re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1]
print(found["problem"] or [*found["busy"]], int(peak) // 1024, time.process_time())
"""


def measure(*words: str) -> tuple[int, float]:
    """Memory in MB, and CPU seconds."""
    folder = ROOT / "constructs" / "cdk_hyperpod" / "_lambda"
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{LOOK}"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, cwd="/")
    busy, peak, seconds = done.stdout.rsplit(" ", 2)
    assert busy == "['i-00000000000000001']"
    return int(peak), float(seconds)


def test_many_pods_of_1_4_mb_are_read_within_the_functions_memory_and_time() -> None:
    """If more nodes are asked than are read node by node. Two thousand, as a thousand show."""
    peak, seconds = measure()
    # A Lambda function's own runtime needs some 60 MB.
    assert peak < 512 * 0.75, f"{peak} MB"
    assert 2 * seconds / (MEMORY_MB / CORE_MB) < TIMEOUT_S * 0.75, f"{seconds} s of CPU"


def test_two_thousand_pods_around_one_that_is_asked_take_a_fraction_of_the_time() -> None:
    """Also with the quarter of a core that 512 MB give."""
    peak, seconds = measure("by node")
    assert seconds / 0.29 < TIMEOUT_S / 4, f"{seconds} s of CPU"
    assert peak < 512 * 0.75


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A server whose answers do not end, and its certificate."""
    where = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "crt")]
    what = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    subprocess.run(["openssl", "req", "-x509", *what, *where], check=True, capture_output=True)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 65536)
            except OSError:
                pass

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", (tmp_path / "crt").read_text()
    server.shutdown()
    server.server_close()


def test_an_answer_without_an_end_is_read_no_further(endless: tuple[str, str]) -> None:
    api = Api(Connection(*endless, "token").send, sleep=lambda _: None)
    with pytest.raises(KubernetesError, match=f"the answer has more than {MOST_BYTES} bytes"):
        list(api.items("/api/v1/pods"))
