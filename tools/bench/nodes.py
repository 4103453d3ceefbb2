"""How long `cdk-hyperpod nodes` takes for 6,758 nodes, as a whole process against a server on this machine: the goal is 2 s."""

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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

GOAL_S, NODES, RUNS = 2.0, 6758, 3
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


class _Served(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        begin = int(asked.get("NextToken", 0))
        end = min(begin + 100, NODES)
        reply: dict[str, object] = {"ClusterArn": ARN, "ClusterName": "small", "ClusterStatus": "InService"}
        if self.headers["X-Amz-Target"].endswith("ListClusterNodes"):
            nodes = [{**NODE, "InstanceId": f"i-{number:017x}"} for number in range(begin, end)]
            reply = {"ClusterNodeSummaries": nodes} | ({"NextToken": str(end)} if end < NODES else {})
        else:
            reply |= {"InstanceGroups": [GROUP]}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: only the times count."""


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    variables = {
        **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        **os.environ,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
    }
    tool = Path(sys.executable).with_name("cdk-hyperpod")
    times, spent = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(RUNS):
            began, before = time.perf_counter(), _processor_s()
            done = subprocess.run(
                [tool, "nodes", "--cluster", "small", "--region", "us-west-2"],
                cwd=folder,
                env=variables,
                capture_output=True,
                text=True,
                check=True,
            )
            times.append(time.perf_counter() - began)
            spent.append(_processor_s() - before)
            assert len(done.stdout.splitlines()) == NODES + 2, done.stdout[-300:]
    server.shutdown()
    print(
        f"nodes: {statistics.median(times):.2f} s for {NODES:,} nodes, at best {min(times):.2f} (goal: {GOAL_S:.0f}); "
        f"of its processor {statistics.median(spent):.2f} s"
    )


if __name__ == "__main__":
    main()
