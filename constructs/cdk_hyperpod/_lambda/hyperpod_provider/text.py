"""Text of others as one line: what AWS, Slurm, Kubernetes, a bucket's writer or a user of a node has written.

A terminal takes some characters for orders (ESC, CR), and shows others in another order than they stand (U+202E); whoever can
begin a line can write one in our name.
"""

from __future__ import annotations


def printable(text: object) -> str:
    """The same number of characters, none of which a terminal takes for anything but text: blanks are spaces, others `?`."""
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in str(text))


def one_line(text: object) -> str:
    """The text with single spaces, and without blanks around it."""
    return " ".join(printable(text).split())
