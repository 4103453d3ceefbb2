"""The repository's files, and what people read in its pages."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked(*endings: str) -> tuple[Path, ...]:
    """The repository's files with one of these endings, also those that are not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *(f"*{ending}" for ending in endings)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return tuple(path for path in map(ROOT.joinpath, sorted(set(listed))) if path.is_file())


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside of code blocks, with their numbers."""
    in_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, line
