"""A request without an SDK, as another user of the machine can send it."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Mapping

from cdk_hyperpod_local.session import LocalAws


def send(
    aws: LocalAws, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> tuple[int, dict[str, str], str]:
    """Status, headers by lower-case name, and text. The Host is the engine's, unless the headers contain another."""
    context = ssl.create_default_context(cafile=str(aws.place.authority))
    connection = http.client.HTTPSConnection("127.0.0.1", aws.place.port, context=context, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body or None, headers=dict(headers or {}))
        reply = connection.getresponse()
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read().decode()
