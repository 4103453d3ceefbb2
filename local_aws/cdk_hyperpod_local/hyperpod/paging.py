"""NextToken and MaxResults over entries that can appear and disappear between two pages."""

from __future__ import annotations

import base64
import binascii
import heapq
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .errors import invalid
from .state import Json

Key = tuple[float | str, float | str]
Entry = TypeVar("Entry")


def page(
    entries: Sequence[Entry], params: Json, *, key: Callable[[Entry], Key], default_size: int, descending: bool
) -> tuple[list[Entry], str | None]:
    """One page of `entries`, sorted by `key`, and the token of the next page; None on the last page.

    The token contains the key of the last returned entry, not a position, so an entry that disappears between two pages
    hides no other. Raises ValidationException for a token that this function did not create.
    """
    size = params.get("MaxResults", default_size)
    token = params.get("NextToken")
    if token:
        last = _decode(token)
        entries = [entry for entry in entries if (key(entry) < last if descending else key(entry) > last)]
    first = heapq.nlargest if descending else heapq.nsmallest
    here = first(size, entries, key=key)
    more = len(entries) > size
    return here, _encode(key(here[-1])) if more else None


def _encode(key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def _decode(token: str) -> Key:
    try:
        raw: Any = json.loads(base64.urlsafe_b64decode(token.encode()))
        first, second = raw
    except (ValueError, TypeError, binascii.Error) as error:
        raise invalid("Invalid pagination token") from error
    return (first, second)


def between(at: float, params: Json, name: str) -> bool:
    """Whether `at` is between the request's `<name>After` and `<name>Before`, both exclusive; absent: no bound."""
    after, before = params.get(f"{name}After"), params.get(f"{name}Before")
    return (after is None or at > after) and (before is None or at < before)
