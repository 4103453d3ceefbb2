"""A list of pods that is too large for one answer, on the real server."""

from __future__ import annotations

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import MOST_BYTES, Api, Connection, Reply
from helpers.drainer.rig import TOKEN, Rig, of_1_20


def test_a_list_goes_on_in_smaller_pages_on_the_real_server(rig: Rig) -> None:
    """The server accepts the token of a larger page."""
    node = rig.node()
    for number in range(12):
        rig.pod(node, f"web-{number}", annotations={"filler": "x" * 1000})
    rig.pod(node, "large", annotations={"filler": "x" * 200_000})
    cluster = rig.admin.cluster
    connection = Connection(cluster.url, cluster.certificate.read_text(), TOKEN)
    asked: list[str] = []

    def send(method: str, path: str, body: bytes | None, kind: str) -> Reply:
        asked.append(path)
        reply = of_1_20(connection.send)(method, path, body, kind)
        # As if 100,000 bytes were too many.
        return (
            reply
            if len(reply.content) < 100_000 or "limit=1&" in path or path.endswith("limit=1")
            else Reply(200, b"x" * (MOST_BYTES + 1))
        )

    try:
        names = [each["metadata"]["name"] for each in Api(send).items("/api/v1/pods", fieldSelector="spec.nodeName!=")]
    finally:
        connection.close()
    assert sorted(names) == sorted(["large", *(f"web-{number}" for number in range(12))])
    assert any("continue" in path for path in asked)
