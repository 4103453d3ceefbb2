"""Sentences of several parts, and how they fit into the reason that CloudFormation shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .text import one_line

LIMIT = 1000
"""Maximum characters of a failure's reason. CloudFormation shows little more."""


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
    """The text in one line as a sentence. If it begins with a path of the file or an id, the first letter stays as it is."""
    text = one_line(text).rstrip(".")
    return f"{text[0].upper() if re.match('[a-z]+ ', text) else text[:1]}{text[1:]}."


def fit(head: str, items: Sequence[str], limit: int = LIMIT) -> str:
    """`head` and as many items as fit into `limit` characters, each a sentence. The rest are counted, with their codes."""
    text = one_line(head)
    sentences = [sentence(item) for item in items]
    for index, each in enumerate(sentences):
        longer, rest = f"{text} {each}", _count_rest(sentences[index + 1 :])
        if len(longer) + len(rest) <= limit:
            text = longer
        elif index == 0:
            return cut(longer, max(0, limit - len(rest))) + rest
        else:
            return text + _count_rest(sentences[index:])
    return cut(text, limit)


def _count_rest(rest: Sequence[str]) -> str:
    if not rest:
        return ""
    return f" And {len(rest)} more, in the log{_list_codes(' '.join(rest))}."


def cut(text: str, limit: int, mark: str = "…") -> str:
    """The text with at most `limit` characters. If it is cut, `mark` and the codes of what is cut off follow: no code is lost."""
    if len(text) <= limit:
        return text
    length = limit - len(mark)
    while length > 0:
        end = mark + _list_codes(text, after=length)
        if length + len(end) <= limit:
            return text[:length] + end
        length = limit - len(end)
    return text[:limit]


def _list_codes(text: str, *, after: int = 0) -> str:
    """` [code, code]`: each code that ends behind that many characters, once. Empty: there is none."""
    ends = [match for match in _CODES.finditer(text) if match.end() > after]
    codes = dict.fromkeys(code for match in ends for code in match[1].split(", "))
    return f" [{', '.join(codes)}]" if codes else ""


_CODES = re.compile(r" \[([a-z0-9]+(?:-[a-z0-9]+)+(?:, [a-z0-9]+(?:-[a-z0-9]+)+)*)\]")
"""Codes as a text shows them. An instance id in brackets looks like one, and is kept as well."""


DENIED_HINT = (
    "The stack gives the function this permission: find what denies it, such as a permissions boundary or a service "
    "control policy"
)
