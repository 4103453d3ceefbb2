"""Measures `cdk-hyperpod nodes` for 6,758 nodes, as a whole process with a server on this machine. The goal is 2 s."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

GOAL_S, NODES, PAGE, RUNS = 2.0, 6758, 100, 5
DELAY_S = 0.05
"""The delay of each call in the second measurement."""
ARN = "arn:aws:sagemaker:us-west-2:000000000000:cluster/abcdefghijkl"
GROUP = {"InstanceGroupName": "work", "Status": "InService", "CurrentCount": NODES, "TargetCount": NODES}
NODE = {
    "InstanceGroupName": "work",
    "InstanceType": "ml.p5.48xlarge",
    "LaunchTime": 1.78e9,
    "InstanceStatus": {"Status": "Running", "Message": ""},
    "PrivateDnsHostname": "ip-10-1-2-3.ec2.internal",
    "CurrentImageReleaseVersion": "2.1",
    "ImageVersionStatus": "UpToDate",
}


def _rendered(reply: dict[str, object]) -> bytes:
    """A whole HTTP response."""
    body = json.dumps(reply).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _page(begin: int) -> bytes:
    end = min(begin + PAGE, NODES)
    nodes = [{**NODE, "InstanceId": f"i-{number:017x}"} for number in range(begin, end)]
    return _rendered({"ClusterNodeSummaries": nodes} | ({"NextToken": str(end)} if end < NODES else {}))


CLUSTER = _rendered(
    {"ClusterArn": ARN, "ClusterName": "small", "ClusterStatus": "InService", "InstanceGroups": [GROUP]}
)
PAGES = {begin: _page(begin) for begin in range(0, NODES, PAGE)}


class _Served(StreamRequestHandler):
    """Serves prepared responses, each in one piece, so that the command is measured and not this server.

    Head and body in separate packets would add 40 ms, because the second waits for the acknowledgement of the first.
    """

    delay_s = 0.0
    """The delay of each call, as of a network and AWS."""

    def handle(self) -> None:
        while self.rfile.readline():
            headers = dict(line.lower().split(b":", 1) for line in iter(self.rfile.readline, b"\r\n"))
            asked = json.loads(self.rfile.read(int(headers[b"content-length"])))
            time.sleep(self.delay_s)
            of_nodes = headers[b"x-amz-target"].strip().endswith(b"listclusternodes")
            self.wfile.write(PAGES[int(asked.get("NextToken", 0))] if of_nodes else CLUSTER)


class _Server(ThreadingTCPServer):
    daemon_threads = True


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(tool: Path, folder: str, variables: dict[str, str]) -> tuple[float, float]:
    """Wall-clock seconds, and processor seconds of the command."""
    began, before = time.perf_counter(), _processor_s()
    words = [str(tool), "nodes", "--cluster", "small", "--region", "us-west-2"]
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=True)
    took = time.perf_counter() - began, _processor_s() - before
    assert len(done.stdout.splitlines()) == NODES + 2, done.stdout[-300:]
    return took


def main() -> None:
    """Measure and print."""
    tool = Path(sys.executable).with_name("cdk-hyperpod")
    with _Server(("127.0.0.1", 0), _Served) as server, tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        variables = {
            **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "none"),
            "AWS_EC2_METADATA_DISABLED": "true",
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
        }
        _run(tool, folder, variables)
        times, spent = zip(*(_run(tool, folder, variables) for _ in range(RUNS)), strict=True)
        _Served.delay_s = DELAY_S
        delayed, _ = _run(tool, folder, variables)
        server.shutdown()
    print(
        f"nodes: {statistics.median(times):.2f} s for {NODES:,} nodes, at best {min(times):.2f} (goal: {GOAL_S:.0f}); "
        f"of its processor {statistics.median(spent):.2f} s; with {DELAY_S * 1000:.0f} ms in each of its "
        f"{len(PAGES) + 1} calls: {delayed:.2f} s"
    )


if __name__ == "__main__":
    main()
