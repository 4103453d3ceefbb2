"""Text from outside as one line: from AWS, Slurm, Kubernetes, a bucket's writer or a user of a node.

A terminal executes some characters (ESC, CR), and shows others in another order (U+202E). A text with a line break could forge a
line of ours.
"""

from __future__ import annotations


def printable(text: object) -> str:
    """The same number of characters, all printable: blanks become spaces, other characters `?`."""
    whole = str(text)
    return whole if whole.isprintable() else "".join(map(_shown, whole))


def one_line(text: object) -> str:
    """The text with single spaces, and without blanks around it."""
    return " ".join(printable(text).split())


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if letter.isspace() else "?"
