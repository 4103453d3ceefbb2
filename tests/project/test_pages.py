"""How pages with steps are read: tests/deployments/test_pages.py follows them."""

from __future__ import annotations

import pytest
import yaml

from helpers.pages import Block, Command, blocks, commands, edited, lines_of, missing

PAGE = """\
# A page

1. Edit:

   ```yaml
   scale_down: {retry: again}
   ```

```console
$ plan  # exit code 2
… i-1 …
$ deploy
```
"""


def test_blocks_have_their_language_text_and_line() -> None:
    assert list(blocks(PAGE)) == [
        Block("yaml", "scale_down: {retry: again}\n", 6),
        Block("console", "$ plan  # exit code 2\n… i-1 …\n$ deploy\n", 10),
    ]


def test_commands_have_their_exit_code_and_what_they_print() -> None:
    *_, block = blocks(PAGE)
    assert list(commands(block)) == [Command("plan", 10, 2, ("… i-1 …",)), Command("deploy", 12, 0, ())]


def test_ctrl_c_is_the_exit_code_of_an_interrupt() -> None:
    assert [command.code for command in commands(Block("console", "$ watch  # Ctrl-C\n", 1))] == [130]


def test_a_section_ends_at_the_next_heading() -> None:
    page = "# Page\n## One\na\n## Two\nb\nc\n"
    assert [list(lines_of(page, section)) for section in ("One", "Two")] == [[3], [5, 6]]


@pytest.mark.parametrize(
    ("shown", "is_missing"),
    [
        (["a … c", "d"], None),
        (["a b\tc d"], None),
        (["d", "a"], "a"),
        (["a.c"], "a.c"),
        (["…x…"], "…x…"),
    ],
)
def test_shown_lines_are_in_the_output_in_their_order(shown: list[str], is_missing: str | None) -> None:
    assert missing(shown, "a  b\nc\nd\n") == is_missing


def test_an_edit_keeps_what_it_does_not_name() -> None:
    file = "instance_groups: [{name: a, count: 1}, {name: b, count: 2}]\nscale_down: {max_nodes: 4, nodes_to_delete: [x]}\n"
    part = "instance_groups: [{name: b, count: 1}]\nscale_down: {nodes_to_delete: [y]}\n"
    assert yaml.safe_load(edited(file, part)) == {
        "instance_groups": [{"name": "a", "count": 1}, {"name": "b", "count": 1}],
        "scale_down": {"max_nodes": 4, "nodes_to_delete": ["y"]},
    }
