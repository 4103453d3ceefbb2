"""Each row of docs/security.md that says that something is closed names what shows it.

The last column of such a table, "shown by", has at least one of

- a test: its path below tests/ without `.py`, such as `deployments/test_boundary`, or one function of it with `::name`
- a link to a question of docs/first-deployment.md. Its text is in a bullet of that page's section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.pages import lines_of
from helpers.repository import ROOT

PAGE = ROOT / "docs" / "security.md"
HEADING = "| who | closed | how | not closed | shown by |"
QUESTIONS = "first-deployment.md"


def problems(page: Path) -> Iterator[str]:
    """What is wrong with the page's rows."""
    found = list(rows(page.read_text("utf-8")))
    if not found:
        yield f'{page.name}: no table begins with "{HEADING}"'
    for number, cells in found:
        yield from (f"{page.name}:{number}: {each}" for each in problems_of(cells))


def rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each row of the tables about who may do what."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        inside = line == HEADING or (inside and line.startswith("|"))
        if inside and line != HEADING and not line.startswith("|---"):
            yield number, [cell.strip() for cell in line.strip("|").split("|")]


def problems_of(cells: list[str]) -> Iterator[str]:
    if len(cells) != HEADING.count("|") - 1:
        yield f"has {len(cells)} cells"
        return
    tests, links = re.findall(r"`([^`]+)`", cells[-1]), re.findall(r"\[([^\]]+)\]\(([^)]+)\)", cells[-1])
    if cells[1] and not tests and not links:
        yield "says that something is closed, and names no test and no question of a first deployment"
    yield from (f"there is no test {name}" for name in tests if not is_test(name))
    yield from (
        f"{link} has no question with the words {words!r}" for words, link in links if not is_question(words, link)
    )


def is_test(name: str) -> bool:
    path, _, function = name.partition("::")
    file = ROOT / "tests" / f"{path}.py"
    return file.is_file() and (not function or f"\ndef {function}(" in file.read_text("utf-8"))


def is_question(words: str, link: str) -> bool:
    name, _, anchor = link.partition("#")
    if name != QUESTIONS:
        return False
    page = (ROOT / "docs" / name).read_text("utf-8")
    lines = page.splitlines()
    sections = [line[3:] for line in lines if line.startswith("## ")]
    numbers = next((lines_of(page, each) for each in sections if each.lower().replace(" ", "-") == anchor), ())
    bullets = " ".join(lines[number - 1].strip() for number in numbers)
    return words in bullets


def test_each_closed_row_names_what_shows_it() -> None:
    found = list(problems(PAGE))
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize(
    "shown_by",
    [
        "",
        "a test",
        "`deployments/test_no_such_file`",
        "`deployments/test_boundary::test_no_such_test`",
        "[IPv6](first-deployment.md#no-such-section)",
        "[no such words](first-deployment.md#alerts)",
        "[Security](security.md#the-aws-account)",
    ],
)
def test_a_row_without_a_test_that_exists_is_a_problem(shown_by: str) -> None:
    assert list(problems_of(["somebody", "a door", "by a wall", "the rest", shown_by]))
    assert not list(problems_of(["somebody", "", "", "everything", ""]))
