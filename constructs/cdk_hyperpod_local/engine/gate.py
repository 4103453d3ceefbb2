"""What stands in front of the engine: who is on this machine is not yet its owner.

The engine runs the code of Lambda functions as whoever started it, so a request is heard only if it is signed with a
secret: the root key's, new at every start and in a file that only its owner reads, or that of a role's session or a
user, which IAM gave out. What AWS itself sends unsigned has an address that nobody guesses.
A browser is not heard at all: whatever page it shows could ask.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, quote

from cdk_hyperpod_local.engine import control
from cdk_hyperpod_local.engine.kubernetes import real

Json = Any
Problem = tuple[str, str]
Reply = tuple[int, Mapping[str, str], bytes]
Send = Callable[[Json], Awaitable[None]]

UNSIGNED = (
    ("GET", f"{control.PREFIX}status"),  # that it is up
    ("PUT", "/_ministack/cfn-response/"),  # a custom resource's answer: the rest of the path is a random UUID
    ("PUT", "/_ministack/cfn-signal/"),  # the same, of a wait condition
    ("POST", real.ROUTE),  # an API server that asks whose a token is: it holds the token
)
"""Methods and how their paths begin."""


class Gate:
    """ASGI. `hosts`: what a request may have as Host. `secret`: the root key's, which opens the control routes too.

    signature_problem(method, raw path, query, headers, body) -> AWS's code and sentence, or None.
    refusal(method, path, query, headers, problem) -> the reply.
    """

    def __init__(
        self,
        engine: Callable[..., Awaitable[None]],
        *,
        hosts: frozenset[str],
        secret: str,
        signature_problem: Callable[..., Problem | None],
        refusal: Callable[..., Reply],
    ) -> None:
        self._engine = engine
        self._hosts = hosts
        self._secret = secret
        self._signature_problem = signature_problem
        self._refusal = refusal

    async def __call__(self, scope: Json, receive: Callable[[], Awaitable[Json]], send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._engine(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope)
        if headers.get("host") not in self._hosts:
            await _answer(send, _plain(421, f"no such host; this is {', '.join(sorted(self._hosts))}"))
        elif "origin" in headers or "sec-fetch-site" in headers:
            await _answer(send, _plain(403, "a browser is not heard here"))
        elif scope["path"].startswith(control.PREFIX) or _is_unsigned(scope):
            if _is_unsigned(scope) or self._has_secret(headers):
                await self._engine(scope, receive, send)
            else:
                await _answer(send, _plain(403, "the engine's secret is missing"))
        else:
            await self._let_in_signed(scope, headers, receive, send)

    def _has_secret(self, headers: Mapping[str, str]) -> bool:
        return hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {self._secret}".encode())

    async def _let_in_signed(
        self, scope: Json, headers: Mapping[str, str], receive: Callable[[], Awaitable[Json]], send: Send
    ) -> None:
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
    """By lower-case name; one that is sent on several lines is its values joined by a comma, as SigV4 signs it."""
    found: dict[str, str] = {}
    for raw_name, raw in scope.get("headers", []):
        try:
            value = raw.decode()
        except UnicodeDecodeError:
            value = raw.decode("latin-1")
        name = raw_name.decode("latin-1").lower()
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _is_unsigned(scope: Json) -> bool:
    return any(scope["method"] == method and scope["path"].startswith(path) for method, path in UNSIGNED)


async def _whole(receive: Callable[[], Awaitable[Json]]) -> list[Json]:
    messages = [await receive()]
    while messages[-1]["type"] == "http.request" and messages[-1].get("more_body"):
        messages.append(await receive())
    return messages


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
