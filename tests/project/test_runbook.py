"""Each reason that keeps a node from being drained and saved is a row of a page, which says what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = "constructs/cdk_hyperpod/_lambda"
PAGES = ("drain-slurm-messages.md", "drain-eks-messages.md")
STATES = ("unknown", "refused", "backup-failed")
"""In which a node stays until somebody does something."""


def reasons() -> Iterator[tuple[str, str]]:
    """Why the backup's job, the agent and the drainer keep a node: where it stands, and its constant parts."""
    for file in (
        *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "lifecycle/agent").rglob("*.py")),
        f"{FUNCTION}/hyperpod/drainer/rules.py",
    ):
        for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            told = (
                node.func.id in ("Judgement", "Decision")
                and isinstance(node.args[0], ast.Constant)
                and node.args[0].value in STATES
            )
            message = node.args[1] if told else node.args[0] if node.func.id == "BackupError" else None
            if message is not None and (text := _text(message)):
                yield f"{file}:{node.lineno}", text


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return " … ".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
    return ""


def phrases(text: str) -> set[str]:
    """Three words in a row, and all of what has fewer."""
    found: set[str] = set()
    for part in re.split(r"[…;:,()`|.?]", text):
        words = part.split()
        found |= {" ".join(words[at : at + 3]) for at in range(len(words) - 2)} or {" ".join(words)}
    return found - {""}


def test_each_reason_has_a_row() -> None:
    lines = [line for page in PAGES for line in (ROOT / "docs" / page).read_text("utf-8").splitlines()]
    told: set[str] = set().union(*(phrases(line.split(" | ")[0]) for line in lines if line.startswith("| ")))
    found = dict(reasons())
    assert len(found) > 20
    assert [f"{where}: {text}" for where, text in found.items() if not phrases(text) & told] == []
