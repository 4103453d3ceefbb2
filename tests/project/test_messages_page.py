"""docs/messages.md: each code means one thing and has one row. tests/unit/config/test_schema.py says whether it is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.messages_page import GENERAL, PageError, Reader, page


def read(folder: Path, code: str, general: dict[str, tuple[str, str]] | None = None) -> Reader:
    (folder / "room.py").write_text(code, "utf-8")
    return Reader((folder,), general or {})


def test_every_finding_and_refusal_has_a_code() -> None:
    assert Reader().uncoded == []


def test_every_general_text_is_of_a_code_that_exists() -> None:
    assert {*GENERAL} <= {message.code for message in Reader().messages}


def test_a_row_has_placeholders_for_values_and_the_values_of_constants(tmp_path: Path) -> None:
    code = """
MOST = 1_000
def check(group):
    remedy = "lower it"
    yield Finding(
        code="tags-too-many",
        path="tags",
        problem=f"{len(group.tags)} tags of {show(group.name)}: {', '.join(sorted(names))} is more than {MOST}",
        remedy=remedy,
        level="warning",
    )
"""
    assert page(read(tmp_path, code)).endswith(
        "| `tags-too-many` (warning) | `tags` | `<number of tags>` tags of `<name>`: `<names>` is more than 1,000 | lower it |\n"
    )


def test_a_placeholder_within_code_has_no_marks_of_its_own(tmp_path: Path) -> None:
    code = 'Refuse(code="a-b", path="", why="x | y", fix=f"add `{name}:`")'
    assert page(read(tmp_path, code)).endswith("| `a-b` |  | x \\| y | add `<name>:` |\n")


@pytest.mark.parametrize(
    "problem",
    ["f\"{'a' if b else 'c'}\"", 'f"{a.b[0]}"', 'f"{a.lower()}"', "'a' if b else 'c'", "some_call()", "unknown"],
)
def test_text_that_hides_a_decision_is_refused_with_its_place(tmp_path: Path, problem: str) -> None:
    with pytest.raises(PageError, match=r"^room\.py:1: give "):
        read(tmp_path, f'Finding(code="a-b", path="", problem={problem}, remedy="x")').rows()


def test_a_text_that_is_assigned_twice_is_refused(tmp_path: Path) -> None:
    code = """
def check():
    problem = "a"
    problem = "b"
    yield Finding(code="a-b", path="", problem=problem, remedy="x")
"""
    with pytest.raises(PageError, match="more than once"):
        read(tmp_path, code).rows()


def test_a_code_with_two_texts_needs_a_general_one(tmp_path: Path) -> None:
    code = """
Finding(code="a-b", path="", problem="one", remedy="x")
Finding(code="a-b", path="", problem=text_of(error), remedy="x")
"""
    with pytest.raises(PageError, match="give `text_of"):
        read(tmp_path, code).rows()
    with pytest.raises(PageError, match="another text"):
        read(tmp_path, code.replace("text_of(error)", "'two'")).rows()
    assert page(read(tmp_path, code, {"a-b": ("is wrong", "mend it")})).endswith("| `a-b` |  | is wrong | mend it |\n")


def test_a_code_has_one_level(tmp_path: Path) -> None:
    code = """
Finding(code="a-b", path="", problem="one", remedy="x")
Finding(code="a-b", path="", problem="one", remedy="x", level="warning")
"""
    with pytest.raises(PageError, match="another level"):
        read(tmp_path, code).rows()


@pytest.mark.parametrize("code", ["tags", "Tags-many", "tags_many", "tags-"])
def test_a_code_is_kebab_case(tmp_path: Path, code: str) -> None:
    with pytest.raises(PageError, match="joined by hyphens"):
        read(tmp_path, f'Finding(code="{code}", path="", problem="one", remedy="x")').rows()


def test_a_finding_that_is_handed_on_has_no_row_of_its_own(tmp_path: Path) -> None:
    reader = read(tmp_path, "Finding(code=problem.code, path=path, problem=problem.problem, remedy=problem.remedy)")
    assert reader.rows() == {} and reader.uncoded == []
