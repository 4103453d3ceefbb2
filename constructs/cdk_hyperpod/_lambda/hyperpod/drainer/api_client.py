"""A client of the Kubernetes API: the few kinds of requests, which of them may be repeated, and the meaning of errors."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from ..kernel.text import one_line

TIMEOUT_S = 10
"""For one request."""
JSON = "application/json"
TABLE = f"{JSON};as=Table;v=v1;g=meta.k8s.io,{JSON}"
"""Of each object of a list, its columns and its metadata. The second type is for a server that has no tables."""
PAGE = 500
"""The most objects in a page of a list; kubectl's own figure."""
FIRST_PAGE = 50
"""Objects in the first page. The next one may be larger, if this one was small."""
MOST_BYTES = 8 * 1024**2
"""Maximum size of one answer. Parsed, it may need twenty times as much of the function's 512 MB. The largest object has 1.5 MB
(etcd)."""
PAUSES_S = (0.2, 0.5, 1.0)
"""Before a read is sent again."""
RETRY_S = 15.0
"""No read is repeated later than this after the first one, because the caller waits."""
MOST_PAUSE_S = 2.0
"""Maximum pause, whatever the server requests: a longer one leaves no time for the rest."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server sent."""

    status: int
    content: bytes
    retry_after: str = ""


Send = Callable[[str, str, bytes | None, str], Reply]
"""Sends one request: method, path with query, body, and its type; without a body, the type of the answer. Raises OSError or
HTTPException if no reply comes."""


class KubernetesError(Exception):
    """A request that failed. `status` is 0 if no reply came."""

    def __init__(self, what: str, detail: str, status: int = 0, causes: tuple[str, ...] = ()) -> None:
        self.detail = one_line(detail[:1000])[:300]
        super().__init__(f"{what}: {self.detail}")
        self.status = status
        self.causes = causes
        """The disruption budgets that refuse an eviction, in the server's words."""


class TooLargeError(KubernetesError):
    """An answer of more than MOST_BYTES."""


class Connection:
    """One HTTPS connection, opened when it is needed, to a server with a certificate of this authority."""

    def __init__(self, endpoint: str, authority: str, token: str) -> None:
        """`authority`: PEM. No other one is trusted. Raises ValueError or SSLError if it is invalid."""
        self._address = urlsplit(endpoint)
        # Not ssl.create_default_context: given nothing it trusts every authority of the machine, and since Python 3.13 it
        # refuses one without a key identifier, such as old EKS clusters have (kubernetes-client/python, issue 2394).
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authority)
        self._context = context
        self._token = token
        self._open: http.client.HTTPSConnection | None = None

    def send(self, method: str, path: str, body: bytes | None, kind: str) -> Reply:
        """As `Send` has it. Of a larger answer, MOST_BYTES and one more."""
        if self._open is None:
            host, port = self._address.hostname or "", self._address.port or 443
            self._open = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=self._context)
        headers = {"Authorization": f"Bearer {self._token}", "Accept": kind if body is None else JSON}
        if body is not None:
            headers["Content-Type"] = kind
        try:
            self._open.request(method, path, body, headers)
            answer = self._open.getresponse()
            content = answer.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                self.close()  # The rest is on its way.
            return Reply(answer.status, content, answer.getheader("Retry-After") or "")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """It opens again with the next request."""
        if self._open is not None:
            self._open.close()
            self._open = None


class Api:
    """The drainer's requests to Kubernetes. Reads are repeated if that may help. Changes are sent once."""

    def __init__(
        self,
        send: Send,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send, self._sleep, self._clock = send, sleep, clock
        self._began = clock()
        self._received = 0
        """Bytes of the last answer."""

    def get(self, path: str, kind: str = JSON) -> Json:
        """An object. Raises KubernetesError."""
        for pause in (*PAUSES_S, None):
            try:
                return self._request("GET", path, kind=kind)
            except _MayPassError as error:
                if pause is None or self._clock() - self._began > RETRY_S:
                    raise error.error from None
                self._sleep(max(pause, min(error.after, MOST_PAUSE_S)))
        raise AssertionError

    def items(self, path: str, **query: str) -> Iterator[Json]:
        """The objects of a list, page by page: as they all were at one moment. One page is in memory at a time."""
        for page in self._pages(path, JSON, query):
            yield from page.pop("items", None) or ()

    def rows(self, path: str, column: str, **query: str) -> Iterator[tuple[str | None, Json]]:
        """The objects of a list as a table shows them: a column, and an object that has its metadata alone. None and the whole object:
        the server has no tables, or none with this column."""
        for page in self._pages(path, TABLE, query):
            names = [each.get("name") for each in page.get("columnDefinitions") or ()]
            place = names.index(column) if column in names else None
            for each in page.pop("items", None) or ():
                yield None, each
            if page.get("rows") and place is None:
                raise KubernetesError(f"GET {path}", f"the server's table has no column {column}")
            for row in page.pop("rows", None) or ():
                yield str(row["cells"][place]), row["object"]

    def _pages(self, path: str, kind: str, query: Mapping[str, str]) -> Iterator[Json]:
        following, limit = "", FIRST_PAGE
        while True:
            try:
                page = self.get(f"{path}?{urlencode(_page_query(query, limit, following))}", kind)
            except TooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            following = (page.get("metadata") or {}).get("continue") or ""
            if 4 * self._received < MOST_BYTES:
                limit = min(PAGE, 2 * limit)
            yield page
            del page
            if not following:
                return

    def change(self, method: str, path: str, body: Json, kind: str = "application/json") -> Json:
        """Sent once: whether it was done is seen at the next look. Raises KubernetesError."""
        try:
            return self._request(method, path, body, kind)
        except _MayPassError as error:
            raise error.error from None

    def _request(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        what = f"{method} {path.partition('?')[0]}"
        try:
            reply = self._send(method, path, None if body is None else json.dumps(body).encode(), kind)
        except (OSError, http.client.HTTPException) as error:
            raise _MayPassError(KubernetesError(what, f"{type(error).__name__}: {error}")) from None
        self._received = len(reply.content)
        if self._received > MOST_BYTES:
            raise TooLargeError(what, f"the answer has more than {MOST_BYTES} bytes")
        return _read(what, reply)


def _page_query(query: Mapping[str, str], limit: int, following: str) -> dict[str, str | int]:
    """`following`: the token of the page. Empty: the first page."""
    page: dict[str, str | int] = {"limit": limit, **query}
    if following:
        page["continue"] = following
    return page


def _read(what: str, reply: Reply) -> Json:
    """The object in the reply. Raises KubernetesError, or _MayPassError if another try may succeed."""
    found = _parsed(reply.content)
    if not 200 <= reply.status < 300:
        raise _rejected(what, reply, found)
    if not isinstance(found, dict):
        raise _MayPassError(KubernetesError(what, "the answer is no JSON object, or only a part of it"))
    return found


def _rejected(what: str, reply: Reply, found: Any) -> Exception:
    error = _error(what, reply, found)
    if reply.status != 429 and reply.status < 500:
        return error
    after = float(reply.retry_after) if reply.retry_after.isdecimal() else 0.0
    return _MayPassError(error, after)


class _MayPassError(Exception):
    """An error that another try may not have."""

    def __init__(self, error: KubernetesError, after: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.after = after


def _error(what: str, reply: Reply, found: Any) -> KubernetesError:
    status = found if isinstance(found, dict) else {}
    detail = str(status.get("message") or f"HTTP {reply.status}")
    return KubernetesError(what, detail, reply.status, _blocking_budgets(status.get("details")))


def _blocking_budgets(details: Any) -> tuple[str, ...]:
    """The disruption budgets that a Status names as causes, in the server's words."""
    if not isinstance(details, dict):
        return ()
    causes = details.get("causes") or ()
    return tuple(one_line(str(cause.get("message", "")))[:300] for cause in causes if _is_budget(cause))


def _is_budget(cause: Any) -> bool:
    return isinstance(cause, dict) and cause.get("reason") == "DisruptionBudget"


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
