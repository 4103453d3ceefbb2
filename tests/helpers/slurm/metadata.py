"""An instance's metadata for tests, run where the agent reaches it: the credentials of the node's role, by IMDSv2 alone.

    python3 metadata.py PORT FILE

FILE: {"token": the session's token, "credentials": what EC2 answers for the role}. The standard library only.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

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
            self._answer(200, "node" if self.path == ROLE else json.dumps(self.known["credentials"]))
        else:
            self._answer(404, "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    Handler.known = json.loads(Path(sys.argv[2]).read_text())
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
