"""Sentences of several parts, as they fit into the reason that CloudFormation shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .text import one_line

LIMIT = 1000
"""Characters of a failure's reason that are worth filling; CloudFormation shows little more of them."""


def several(count: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def some(items: Iterable[str], shown: int = 5) -> str:
    """The first few items, and how many more there are."""
    names = list(items)
    rest = len(names) - shown
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:shown])} and {rest} more"


def join_clauses(*clauses: str) -> str:
    """The clauses that are not empty, with semicolons between them."""
    return "; ".join(filter(None, clauses))


def sentence(text: str) -> str:
    """The text in one line as a sentence. What begins with a path of the file or an id keeps its first letter."""
    text = one_line(text).rstrip(".")
    return f"{text[0].upper() if re.match('[a-z]+ ', text) else text[:1]}{text[1:]}."


def fit(head: str, items: Sequence[str], limit: int = LIMIT) -> str:
    """`head` and as many items as fit into `limit` characters, each a sentence; the rest are counted."""
    text = one_line(head)
    for index, item in enumerate(items):
        more = len(items) - index - 1
        tail = f" And {more} more, in the log." if more else ""
        longer = f"{text} {sentence(item)}"
        if len(longer) + len(tail) > limit:
            if index == 0:
                return f"{longer[: limit - len(tail) - 1]}…{tail}"
            return f"{text} And {more + 1} more, in the log."
        text = longer
    return text[:limit]


DENIED_HINT = (
    "The stack gives the function this permission: find what denies it, such as a permissions boundary or a service "
    "control policy"
)
