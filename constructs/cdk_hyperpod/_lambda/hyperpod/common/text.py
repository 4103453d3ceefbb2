"""Text of others as one line: what AWS, Slurm, Kubernetes, a bucket's writer or a user of a node has written.

A terminal takes some characters for orders (ESC, CR), and shows others in another order than they stand (U+202E); whoever can
begin a line can write one in our name.
"""

from __future__ import annotations


def printable(text: object) -> str:
    """The same number of characters, none of which a terminal takes for anything but text: blanks are spaces, others `?`."""
    whole = str(text)
    return whole if whole.isprintable() else "".join(map(_shown, whole))


def one_line(text: object) -> str:
    """The text with single spaces, and without blanks around it."""
    return " ".join(printable(text).split())


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if letter.isspace() else "?"
