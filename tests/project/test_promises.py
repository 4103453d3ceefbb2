"""Each sentence of docs/patch.md that promises something names its test in patch-promises.toml, and no test that is not there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.repository import ROOT
from project.test_security_pages import is_test

PAGE = ROOT / "docs" / "patch.md"
PROMISES = Path(__file__).with_name("patch-promises.toml")


def sentences(text: str) -> Iterator[str]:
    """Of paragraphs, lists and rows of tables, without code."""
    prose = re.sub(r"^```.*?^```$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=[|#]|\d\. )", prose):
        line = " ".join(block.split())
        if line and not line.startswith(("#", "|---")):
            yield from re.split(r"(?<=[.:])\s+(?=[A-Z`*\[-])", line)


def problems(text: str, promises: dict[str, list[str]]) -> Iterator[str]:
    """Sentences without a test, tests that do not exist, and words that no sentence has."""
    found = [*sentences(text)]
    for sentence in found:
        if not any(words in sentence for words in promises):
            yield f"{sentence!r}: names no test. Add its words to {PROMISES.name}, or a test"
    for words, tests in promises.items():
        yield from (f"{words!r}: there is no test {test}" for test in tests if not is_test(test))
        if not any(words in sentence for sentence in found):
            yield f"{words!r}: no sentence of {PAGE.name} has these words"


def test_each_promise_of_the_page_has_its_test() -> None:
    promises = tomllib.loads(PROMISES.read_text("utf-8"))
    found = list(problems(PAGE.read_text("utf-8"), promises["tests"] | dict.fromkeys(promises["none"]["words"], ())))
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_a_promise_without_a_test_is_found() -> None:
    text = "# Page\n\nIt loses no job. It is fast.\n"
    assert len([*problems(text, {"loses no job": ["project/test_promises"]})]) == 1
    assert len([*problems(text, {"loses no job": ["project/no_such_test"], "is fast": []})]) == 1
    assert len([*problems(text, {"loses no job": [], "is fast": [], "is gone": []})]) == 1
