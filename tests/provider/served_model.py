"""The simulated HyperPod behind HTTP, for code that makes its own client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from local_aws.hyperpod import ACCOUNT, REGION, HyperPod, handle_json


@contextmanager
def serve(model: HyperPod) -> Iterator[str]:
    """The address of the model."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            target = self.headers["X-Amz-Target"]
            status, headers, reply = handle_json(model, target, body, principal="user", account=ACCOUNT, region=REGION)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(reply))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
