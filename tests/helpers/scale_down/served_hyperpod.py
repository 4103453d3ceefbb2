"""The simulated HyperPod behind HTTP, for code that creates its own client."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from cdk_hyperpod_local.hyperpod import ACCOUNT, REGION, HyperPod, handle_json

Replies = Mapping[str, tuple[int, str]]
"""Status and text by the name of a call."""
NOT_THERE = (
    "<ErrorResponse><Error><Code>ValidationError</Code><Message>Stack does not exist</Message></Error></ErrorResponse>"
)


def foundation_in(zone: str, cidr: str, subnet: str, *, made: bool = True) -> Replies:
    """The resources of a cluster in this subnet, whether the foundation's stack created them or not."""
    resource = (
        f"<member><ResourceType>AWS::EC2::Subnet</ResourceType><PhysicalResourceId>{subnet}</PhysicalResourceId>"
        "<ResourceStatus>CREATE_COMPLETE</ResourceStatus></member>"
    )
    return {
        "ListStackResources": (
            200,
            (
                "<ListStackResourcesResponse><ListStackResourcesResult><StackResourceSummaries>"
                f"{resource if made else ''}</StackResourceSummaries></ListStackResourcesResult></ListStackResourcesResponse>"
            ),
        ),
        "DescribeSubnets": (
            200,
            (
                f"<DescribeSubnetsResponse><subnetSet><item><subnetId>{subnet}</subnetId><vpcId>vpc-1</vpcId>"
                f"<availabilityZone>{zone}</availabilityZone><availabilityZoneId>usw2-az3</availabilityZoneId>"
                f"<cidrBlock>{cidr}</cidrBlock></item></subnetSet></DescribeSubnetsResponse>"
            ),
        ),
    }


@contextmanager
def serve(model: HyperPod, foundation: Replies | None = None) -> Iterator[str]:
    """The address of the model, and the resources of its cluster. Absent: stack and subnet are unknown."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            target = self.headers["X-Amz-Target"]
            if not str(target).startswith("SageMaker."):
                self._reply_of_foundation(parse_qs(body.decode()), str(target))
                return
            status, headers, reply = handle_json(model, target, body, principal="user", account=ACCOUNT, region=REGION)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(reply))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply)

        def do_GET(self) -> None:
            """An object in S3."""
            status, reply = (foundation or {}).get("GetObject", (404, "<Error><Code>NoSuchBucket</Code></Error>"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(reply.encode())))
            self.end_headers()
            self.wfile.write(reply.encode())

        def _reply_of_foundation(self, query: dict[str, list[str]], target: str) -> None:
            status, reply = (foundation or {}).get(query.get("Action", [target])[0], (400, NOT_THERE))
            self.send_response(status)
            self.send_header("Content-Length", str(len(reply.encode())))
            self.end_headers()
            self.wfile.write(reply.encode())

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
