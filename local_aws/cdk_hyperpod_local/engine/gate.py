"""The gate in front of the engine: another user of this machine must not be able to use it.

The engine runs the code of Lambda functions as the user who started it. So every request must be signed with a secret:
the root key's, which is new at each start and in a file that only its owner can read, or one that IAM issued for a
role's session or a user. Requests that AWS itself sends unsigned reach a handler of their own and nothing else.
Requests from a browser are refused, because any web page can send them.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote

Json = Any
Problem = tuple[str, str]
Reply = tuple[int, Mapping[str, str], bytes]
Receive = Callable[[], Awaitable[Json]]
Send = Callable[[Json], Awaitable[None]]

LONGEST_BODY = 1024 * 1024
"""Maximum bytes of a request to a route.

A custom resource's answer has at most 4,096; a TokenReview contains one token.
"""
ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All that a route's handler gets: no query, and no header that could claim a caller or a service."""

    method: str
    path: str
    content_type: str
    body: bytes


Handler = Callable[[Request], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method (or ANY), the beginning of its paths, and its handler.

    No handler: 404, as if no API server is installed.
    """

    method: str
    prefix: str
    handler: Handler | None
    needs_secret: bool = False


class Gate:
    """An ASGI application. `hosts`: the allowed Host headers. `secret`: the root key's, which opens the protected routes
    too.

    `routes`: the first that matches a request answers it, and the engine never gets the request.
    signature_problem(method, raw path, query, headers, body) -> AWS's code and sentence, or None.
    refusal(method, path, query, headers, problem) -> the reply.
    """

    def __init__(
        self,
        engine: Callable[..., Awaitable[None]],
        *,
        hosts: frozenset[str],
        routes: Sequence[Route],
        secret: str,
        signature_problem: Callable[..., Problem | None],
        refusal: Callable[..., Reply],
    ) -> None:
        self._engine = engine
        self._hosts = hosts
        self._routes = tuple(routes)
        self._secret = secret
        self._signature_problem = signature_problem
        self._refusal = refusal

    async def __call__(self, scope: Json, receive: Receive, send: Send) -> None:
        """Pass a signed request on, and refuse every other."""
        if scope["type"] == "lifespan":
            await self._engine(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope)
        if headers.get("host") not in self._hosts:
            await _answer(
                send, _plain(421, f"the Host header names another host. Use {', '.join(sorted(self._hosts))}")
            )
        elif "origin" in headers or "sec-fetch-site" in headers:
            await _answer(send, _plain(403, "requests from a browser are refused"))
        elif route := self._route(scope):
            await _answer(send, await self._handled(route, scope, headers, receive))
        else:
            await self._pass_on_signed(scope, headers, receive, send)

    def _route(self, scope: Json) -> Route | None:
        fitting = (
            route
            for route in self._routes
            if route.method in (ANY, scope["method"]) and scope["path"].startswith(route.prefix)
        )
        return next(fitting, None)

    async def _handled(self, route: Route, scope: Json, headers: Mapping[str, str], receive: Receive) -> Reply:
        if route.needs_secret and not self._has_secret(headers):
            return _plain(403, "the engine's secret is missing")
        if route.handler is None:
            return _plain(404, "this path is not served here")
        body = await _short(receive)
        if body is None:
            return _plain(413, f"the body is longer than {LONGEST_BODY} bytes")
        return await route.handler(
            Request(method=scope["method"], path=scope["path"], content_type=headers.get("content-type", ""), body=body)
        )

    def _has_secret(self, headers: Mapping[str, str]) -> bool:
        return hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {self._secret}".encode())

    async def _pass_on_signed(self, scope: Json, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        query = parse_qs(scope.get("query_string", b"").decode("utf-8", "replace"), keep_blank_values=True)
        messages = await _whole(receive)
        raw_path = (scope.get("raw_path") or quote(scope["path"]).encode()).decode("latin-1")
        body = b"".join(message.get("body", b"") for message in messages)
        if problem := self._signature_problem(scope["method"], raw_path, query, headers, body):
            await _answer(send, self._refusal(scope["method"], scope["path"], query, dict(headers), problem))
            return

        async def again() -> Json:
            return messages.pop(0) if messages else await receive()

        await self._engine(scope, again, _without_cors(send))


def _headers(scope: Json) -> dict[str, str]:
    """Headers by lower-case name. A repeated header becomes its values joined by a comma, as SigV4 signs it."""
    found: dict[str, str] = {}
    for raw_name, raw in scope.get("headers", []):
        try:
            value = raw.decode()
        except UnicodeDecodeError:
            value = raw.decode("latin-1")
        name = raw_name.decode("latin-1").lower()
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


async def _whole(receive: Receive) -> list[Json]:
    messages = [await receive()]
    while messages[-1]["type"] == "http.request" and messages[-1].get("more_body"):
        messages.append(await receive())
    return messages


async def _short(receive: Receive) -> bytes | None:
    """The body; None if it is longer than a route allows. The rest of such a body is read and dropped."""
    body, is_short, more = b"", True, True
    while more:
        message = await receive()
        is_short = is_short and len(body) + len(message.get("body", b"")) <= LONGEST_BODY
        body = body + message.get("body", b"") if is_short else b""
        more = message["type"] == "http.request" and bool(message.get("more_body"))
    return body if is_short else None


def _without_cors(send: Send) -> Send:
    async def sent(message: Json) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message["headers"] if not bytes(pair[0]).lower().startswith(b"access-control-")]
            message = {**message, "headers": kept}
        await send(message)

    return sent


def _plain(status: int, message: str) -> Reply:
    return status, {"Content-Type": "application/json"}, json.dumps({"message": message}).encode()


async def _answer(send: Send, reply: Reply) -> None:
    status, headers, body = reply
    pairs = [(name.lower().encode(), str(value).encode()) for name, value in headers.items()]
    pairs = [pair for pair in pairs if not pair[0].startswith(b"access-control-")]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
