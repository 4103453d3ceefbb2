"""Output of commands: tables for people, JSON for programs, colour for terminals."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from .._lambda.hyperpod.kernel.text import one_line, printable

BOLD, RED, YELLOW, GREEN, DIM = COLOURS = "1", "31", "33", "32", "2"
WIDTH = 80
"""Columns of an ordinary terminal, at which sentences are wrapped."""
_LEAST = 8
"""Characters that a cell keeps, however narrow the terminal is."""


def colour_wanted() -> bool:
    """Whether standard output is a terminal that may be coloured, or the environment asks for colour (no-color.org,
    force-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def width() -> int | None:
    """Columns of the terminal, or of COLUMNS; None: no terminal, so nothing is cut."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def _terminal(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream writes to. None: a file or another program, for which a line stays whole.

    COLUMNS alone is not a terminal: Python's readline sets it for the programs that it starts.
    """
    return shutil.get_terminal_size().columns if stream.isatty() else None


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    columns: int | None = None,
    cut: Sequence[int] = (),
    right: Sequence[int] = (),
    paint: Mapping[str, str] | None = None,
) -> list[str]:
    """Lines of a table, two spaces between its columns.

    `columns`: the longest line; None: no limit. `cut`: columns that may be shortened, in this order. `right`: columns of numbers.
    `paint`: colours of cells by their text; None: no colour.
    """
    lines = [headings, *([printable(cell) for cell in row] for row in rows)]
    widths = _widths(lines, columns, cut)
    return [
        _line(line, widths, right, paint if number else dict.fromkeys(headings, BOLD) if paint is not None else None)
        for number, line in enumerate(lines)
    ]


def fits(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, columns: int | None, cut: Sequence[int] = ()
) -> bool:
    """Whether `table` makes no line longer than `columns`."""
    if columns is None:
        return True
    widths = _widths([headings, *rows], columns, cut)
    return sum(widths) + 2 * (len(widths) - 1) <= columns


def _widths(lines: Sequence[Sequence[str]], columns: int | None, cut: Sequence[int]) -> list[int]:
    """The width of each column, of which some are shortened in their order until the lines fit."""
    headings = lines[0]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    if columns is None:
        return widths
    over = sum(widths) + 2 * (len(widths) - 1) - columns
    for column in cut:
        less = min(max(over, 0), max(widths[column] - max(_LEAST, len(headings[column])), 0))
        widths[column] -= less
        over -= less
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[int], paint: Mapping[str, str] | None) -> str:
    shown = []
    for column, (cell, size) in enumerate(zip(cells, widths, strict=True)):
        text = cell if len(cell) <= size else f"{cell[: size - 1]}…"
        text = text.rjust(size) if column in right else text.ljust(size)
        if column == len(cells) - 1:
            text = text.rstrip()
        shown.append(painted(text, (paint or {}).get(cell)))
    return "  ".join(shown).rstrip()


def painted(text: str, colour: str | None) -> str:
    """The text in a colour; None: as it is."""
    return f"\033[{colour}m{text}\033[0m" if colour and text.strip() else text


def wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    """The text in lines, with a prefix for the first line and one for the rest. Names, options and commands are never broken."""
    return _broken(f"{first}{' '.join(printable(text).split())}", WIDTH, rest) if text.strip() else []


def fitted(line: str, columns: int | None) -> list[str]:
    """A line in as many lines as a terminal needs. `columns`: None: no terminal, so the line stays whole."""
    if columns is None or _visible(line) <= columns:
        return [line]
    return _broken(line, columns, " " * (len(line) - len(line.lstrip(" ")) + 2))


_WORD = re.compile(r" *(?:`[^`]+`|[^ ])+")
"""What is never broken, so that it can be copied: a word, or a command in backticks."""


def _broken(line: str, columns: int, rest: str) -> list[str]:
    """The line in lines of at most so many columns, unless a word is longer. `rest`: the prefix of all but the first."""
    lines, current = [], ""
    for word in _WORD.findall(line):
        if current.strip() and _visible(current + word) > columns:
            lines.append(current)
            current = rest + word.lstrip(" ")
        else:
            current += word
    return [*lines, current]


def _visible(text: str) -> int:
    """Columns of a text, of which colours take none."""
    return len(_OWN.sub("", text))


def now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


def age(since: datetime | None, now: datetime) -> str:
    """A span of time: 40s, 12m, 5h, 12d; `-` if the beginning is unknown."""
    if since is None:
        return "-"
    seconds = max(int((now - since).total_seconds()), 0)
    for size, unit, most in ((1, "s", 60), (60, "m", 3600), (3600, "h", 48 * 3600)):
        if seconds < most:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def json_text(command: str, version: int, content: Mapping[str, Any], *, indent: int | None = 1) -> str:
    """The text of `--json`. `schema` is the version of this command's members; within a version, members are only added."""
    return json.dumps({"command": command, "schema": version, **content}, indent=indent, default=_plain)


def say(*lines: object, whole: bool = False) -> None:
    """Print each as one line, wrapped at words on a terminal, with control characters replaced, and flush.

    `whole`: do not wrap, since the user copies the lines or a program reads them.
    """
    columns = None if whole else _terminal(sys.stdout)
    for line in lines:
        text = _coloured(str(line)) if colour_wanted() else printable(line)
        print(*fitted(text, columns), sep="\n")
    sys.stdout.flush()


def complain(*lines: object) -> None:
    """The same on standard error, without colour."""
    columns = _terminal(sys.stderr)
    for line in lines:
        print(*fitted(printable(line), columns), sep="\n", file=sys.stderr)
    sys.stderr.flush()


def print_question(question: str) -> None:
    """Print a question; the user's answer follows on the same line."""
    sys.stdout.write(printable(question))
    sys.stdout.flush()


def say_json(command: str, version: int, content: Mapping[str, Any], *, indent: int | None = 1) -> None:
    """Print `json_text`. JSON escapes control characters."""
    say_document(f"{json_text(command, version, content, indent=indent)}\n")


def say_document(text: str) -> None:
    """Print text for programs as it is: JSON, YAML, a script. The caller escapes its content."""
    sys.stdout.write(text)
    sys.stdout.flush()


def shown(text: object, most: int = 1000) -> str:
    """Foreign text as a part of a line, at most `most` characters."""
    return one_line(text)[:most]


_OWN = re.compile(f"(\033\\[(?:{'|'.join(('0', *COLOURS))})m)")
"""The sequences that `painted` writes."""


def _coloured(line: str) -> str:
    """The line with the colours of `painted`; other control characters are replaced."""
    return "".join(part if number % 2 else printable(part) for number, part in enumerate(_OWN.split(line)))


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    raise TypeError(f"{value!r} has no JSON form")
