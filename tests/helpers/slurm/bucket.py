"""A bucket for tests, run where the agent reaches it: objects are files, requests must be signed.

    python3 bucket.py PORT FOLDER [CLOCK_OFFSET_S]

Objects with etags, If-Match and If-None-Match, and S3's errors as XML. It checks that requests are signed, and not the signature:
tests/unit/lifecycle/agent/test_s3.py compares that with botocore's. While there is a file FOLDER.refuses, nobody has any right. The standard
library only.
"""

from __future__ import annotations

import email.utils
import hashlib
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder = Path()
    clock_offset_s = 0.0
    asked = 0
    """Requests so far, without those for this number: /-/asked."""

    def do_GET(self) -> None:
        if self.path == "/-/asked":
            self._answer(200, str(self.asked).encode())
            return
        file = self._object()
        if file is None:
            return
        if not file.is_file():
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        content = file.read_bytes()
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        if self.headers.get("If-None-Match") == etag:
            self._answer(304, b"", etag)
        else:
            self._answer(200, content, etag)

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        file = self._object()
        if file is None:
            return
        there = f'"{hashlib.md5(file.read_bytes()).hexdigest()}"' if file.is_file() else None
        if self.headers.get("If-Match", there) != there or (self.headers.get("If-None-Match") == "*" and there):
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}")
        new.write_bytes(content)
        new.replace(file)
        self._answer(200, b"", f'"{hashlib.md5(content).hexdigest()}"')

    def _object(self) -> Path | None:
        type(self).asked += 1
        signed = self.headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 Credential=")
        if not signed or self.folder.with_name(f"{self.folder.name}.refuses").exists():
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return None
        # Without the bucket's name.
        return self.folder / self.path.lstrip("/").partition("/")[2]

    def _answer(self, status: int, content: bytes, etag: str = "") -> None:
        self.send_response_only(status)
        self.send_header("Date", email.utils.formatdate(time.time() + self.clock_offset_s, usegmt=True))
        self.send_header("x-amz-request-id", "0123456789ABCDEF")
        self.send_header("x-amz-id-2", "as S3 has it")
        self.send_header("Content-Length", str(len(content)))
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def serve(port: int, folder: Path, clock_offset_s: float = 0.0) -> ThreadingHTTPServer:
    handler = type("OwnHandler", (Handler,), {"folder": folder, "clock_offset_s": clock_offset_s})
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0).serve_forever()
