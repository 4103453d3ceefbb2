"""The phrases of words.toml are in no page, message, docstring, comment or name of a test."""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from helpers.repository import ROOT, prose_lines, tracked

CODE = ("constructs/", "lifecycle/", "stacks/", "local_aws/", "tools/", "examples/", "app.py")


TEST_NAME = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def instead_of(table: str = "instead_of") -> dict[str, str]:
    words: dict[str, str] = tomllib.loads((ROOT / "tests/project/words.toml").read_text("utf-8"))[table]
    return words


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """What a person reads in a file: the first line of each text, and the text."""
    content = file.read_text("utf-8")
    if file.suffix == ".md":
        yield from paragraphs(content)
        return
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield token.start[0], token.string


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Lines that follow each other, since a phrase may go over the end of a line."""
    first, lines = 0, list[str]()
    for number, line in prose_lines(page):
        if lines and number == first + len(lines) and line.strip():
            lines.append(line)
            continue
        if lines:
            yield first, "\n".join(lines)
        first, lines = number, [line]
    if lines:
        yield first, "\n".join(lines)


def findings_in(first: int, text: str, phrases: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The line and the phrase of each finding in a text that begins on the line `first`."""
    for found in phrases.finditer(text):
        yield first + text.count("\n", 0, found.start()), re.sub(r"[\s#]+", " ", found[0]).lower()


def pattern_of(phrases: Iterable[str]) -> re.Pattern[str]:
    """Any of the phrases. Between two words is any space, and the hash of a comment's next line."""
    alternatives = (r"[\s#]+".join(map(re.escape, phrase.split())) for phrase in phrases)
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


def files() -> Iterator[str]:
    for path in tracked(".md", ".py"):
        name = str(path.relative_to(ROOT))
        if path.suffix == ".md" or name.startswith(CODE):
            yield name


@cache
def all_findings() -> tuple[tuple[str, str], ...]:
    """A file, and the finding in it as file:line: text."""
    better = instead_of()
    phrases = pattern_of(better)
    return tuple(
        (name, f'{name}:{line}: "{phrase}": write {better[phrase]}')
        for name in files()
        for first, text in texts(ROOT / name)
        for line, phrase in findings_in(first, text, phrases)
    )


def test_no_phrase_of_the_list_is_written() -> None:
    found = [finding for _, finding in all_findings()]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_no_test_name_has_a_phrase_of_the_lists() -> None:
    better = instead_of() | instead_of("instead_of_in_test_names")
    phrases = pattern_of(better)
    found = [
        f'{file.relative_to(ROOT)}: {name}: "{phrase}": write {better[phrase]}'
        for file in tracked(".py")
        if file.name.startswith("test_")
        for name in TEST_NAME.findall(file.read_text("utf-8"))
        for _, phrase in findings_in(1, name.replace("_", " "), phrases)
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("It is there twice.", [1]),
        ("first\nThe zone is there\ntwice, and is there twice.", [2, 3]),
        ("# is there\n# twice", [1]),
        ("There are two of them.", []),
        ("this there twice", []),
    ],
)
def test_a_phrase_is_found_with_its_line(text: str, lines: list[int]) -> None:
    assert [line for line, _ in findings_in(1, text, pattern_of(["is there twice"]))] == lines
