"""docs/messages.md: each code means one thing and has one row. tests/unit/config/test_schema.py says whether it is current."""

from __future__ import annotations

import re

from tools.messages_page import GENERAL, UNKNOWN, messages, page


def test_a_code_is_lower_case_words_joined_by_hyphens() -> None:
    codes = [message.code for message in messages()]
    assert len(codes) > 500
    assert [code for code in codes if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", code)] == []


def test_a_code_is_either_an_error_or_a_warning() -> None:
    warnings = {message.code for message in messages() if message.is_warning}
    assert warnings & {message.code for message in messages() if not message.is_warning} == set()


def test_a_row_has_the_values_of_constants_and_names_the_other_values() -> None:
    rows = page().splitlines()
    assert "| `tags-too-many` | `tags` | there are `<number of tags>` tags | use at most 40 |" in rows
    assert any(
        row.startswith("| `zone-unnamed` (warning) | `network.availability_zones` | is missing, so ") for row in rows
    )


def test_a_row_says_what_is_wrong_and_what_to_do() -> None:
    assert [line for line in page().splitlines() if f"| {UNKNOWN} |" in line] == []
    assert {*GENERAL} <= {message.code for message in messages()}
