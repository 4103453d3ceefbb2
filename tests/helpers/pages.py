"""Pages with steps that tests follow: their blocks in order, edits of the cluster file, and expected output.

Such a page has its commands in `console` blocks and its edits of cluster.yaml in `yaml` blocks. A line of a console
block that begins with "$ " is a command, which ends with exit code 0 or as its comment `# exit code N` says; `# Ctrl-C` means
that its reader ends it. The lines below it must be in its output, in this order. In them "…" stands for any text, and spaces
count once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

Json = Any
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    """The line of the page on which the text begins."""


@dataclass(frozen=True)
class Command:
    words: str
    line: int
    code: int
    shown: tuple[str, ...]
    """The expected output."""


def blocks(page: str) -> Iterator[Block]:
    """The code blocks of a page, including those in lists."""
    for found in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", page, re.MULTILINE | re.DOTALL):
        indent, language, text = found.groups()
        line = page.count("\n", 0, found.start(3)) + 1
        yield Block(language, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE), line)


def lines_of(page: str, section: str) -> range:
    """The numbers of the lines below a heading of the second level, up to the next."""
    lines = page.splitlines()
    headings = [number for number, line in enumerate(lines, 1) if line.startswith("## ")]
    heading = lines.index(f"## {section}") + 1
    return range(heading + 1, next((number for number in headings if number > heading), len(lines) + 1))


def commands(block: Block) -> Iterator[Command]:
    lines = block.text.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        line = re.sub(r"  # Ctrl-C$", f"  # exit code {INTERRUPTED}", lines[start])
        words, _, comment = line.removeprefix("$ ").partition("  # exit code ")
        shown = tuple(line for line in lines[start + 1 : end] if line.strip())
        yield Command(words, block.line + start, int(comment or 0), shown)


def named(text: str, names: Mapping[str, str]) -> str:
    """Replace the names of a page, such as its instance ids, by those of a cluster."""
    for name, real in names.items():
        text = text.replace(name, real)
    return text


def missing(shown: Sequence[str], printed: str) -> str | None:
    """The first line that is not in the output after those before it. None: all are."""
    left = " ".join(printed.split())
    for line in shown:
        pattern = ".*?".join(re.escape(" ".join(part.split())) for part in line.split("…"))
        found = re.search(pattern, left)
        if found is None:
            return line
        left = left[found.end() :]
    return None


def edited(file: str, part: str) -> str:
    """The cluster file with an edit: mappings are merged, groups of the same name replaced, other values replaced."""
    return yaml.safe_dump(_merged(yaml.safe_load(file), yaml.safe_load(part)), sort_keys=False)


def _merged(old: Json, new: Json) -> Json:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _value(key, old.get(key), value) for key, value in new.items()}}
    return new


def _value(key: str, old: Json, new: Json) -> Json:
    if key == "instance_groups" and isinstance(old, list):
        changed = {group["name"]: group for group in new}
        kept = [changed.pop(group["name"], group) for group in old]
        return [*kept, *changed.values()]
    return _merged(old, new)
