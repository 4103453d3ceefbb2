"""Every link between the pages leads to a file and an anchor that exist, and so does every page that code or a message names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from helpers.repository import ROOT, prose_lines, tracked

_NAMES_PAGES = (".py", ".sh", ".yaml", ".md")


def test_links_lead_to_files_and_anchors() -> None:
    assert_none(broken_links())


def test_pages_that_code_names_exist() -> None:
    assert_none(unknown_pages())


def test_anchors_are_those_of_github() -> None:
    page = "# What `plan` cannot know\n```bash\n# no heading\n```\n## Names\n## Names\n"
    assert anchors_of(page) == {"what-plan-cannot-know", "names", "names-1"}


def assert_none(findings: Iterator[str]) -> None:
    """All of them at once, one a line."""
    found = list(findings)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def broken_links() -> Iterator[str]:
    for page in tracked(".md"):
        for number, line in prose_lines(page.read_text("utf-8")):
            for link in re.findall(r"\]\(([^)\s]+)\)", line):
                problem = problem_of(page, link)
                if problem:
                    yield f"{page.relative_to(ROOT)}:{number}: {link}: {problem}"


def problem_of(page: Path, link: str) -> str | None:
    if re.match(r"[a-z]+:", link):
        return None
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return "no such file"
    if anchor and anchor not in anchors_of(target.read_text("utf-8")):
        return "no such heading"
    return None


def unknown_pages() -> Iterator[str]:
    for file in tracked(*_NAMES_PAGES):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
            for name in re.findall(r"(?<![\w./-])docs/[\w/-]+\.md", line):
                if not (ROOT / name).exists():
                    yield f"{file.relative_to(ROOT)}:{number}: {name}: no such page"


@cache
def anchors_of(text: str) -> frozenset[str]:
    """The anchors that GitHub gives to a page's headings."""
    found: list[str] = []
    for _, line in prose_lines(text):
        heading = re.fullmatch(r"#+ (.*)", line)
        if heading:
            anchor = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            times = sum(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other) is not None for other in found)
            found.append(f"{anchor}-{times}" if times else anchor)
    return frozenset(found)
