"""The instances' metadata for tests, run where nodes reach it: the credentials of the asking node's role, by IMDSv2 alone.

    with metadata_of(cluster, {node: credentials}): ...

It runs beside the nodes, as a program of its own: `metadata.py FILE`. The standard library only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helpers.slurm.cluster import Cluster, Node

ADDRESS = "169.254.169.254"
ROLE = "/latest/meta-data/iam/security-credentials/"


class Handler(BaseHTTPRequestHandler):
    known: dict[str, Any]

    def do_PUT(self) -> None:
        # The kernel resets a connection that is closed with unread bytes.
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200 if self.path == "/latest/api/token" else 404, self.known["token"])

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != self.known["token"]:
            self._answer(401, "")
        elif self.path in (ROLE, f"{ROLE}node"):
            credentials = self.known["credentials"][self.client_address[0]]
            self._answer(200, "node" if self.path == ROLE else json.dumps(credentials))
        else:
            self._answer(404, "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def metadata_of(
    cluster: Cluster, credentials: Mapping[Node, Mapping[str, str]], *, token: str = "token"
) -> Iterator[None]:
    """Each node reaches the metadata at its usual address. `credentials`: what EC2 answers for a node's role."""
    known = {"token": token, "credentials": {node.instance.address: found for node, found in credentials.items()}}
    file = cluster.folder / "metadata.json"
    file.write_text(json.dumps(known))
    cluster.on_each(lambda node: node.run(f"ip route add {ADDRESS} dev eth0"))
    script = f"ip address add {ADDRESS}/32 dev br0; echo $$ >/run/metadata.pid; exec {sys.executable} -I {__file__} $1"
    server = cluster.start_in_hub(script, str(file), console=cluster.folder / "metadata.console")
    try:
        cluster.until(lambda: cluster.controller.try_run(f"echo >/dev/tcp/{ADDRESS}/80").returncode == 0, "it listens")
        yield
    finally:
        cluster.on_each(lambda node: node.run(f"ip route del {ADDRESS} dev eth0"))
        cluster.run_in_hub(f"ip address del {ADDRESS}/32 dev br0; kill $(cat /run/metadata.pid)")
        server.wait()


if __name__ == "__main__":
    Handler.known = json.loads(Path(sys.argv[1]).read_text())
    ThreadingHTTPServer((ADDRESS, 80), Handler).serve_forever()
