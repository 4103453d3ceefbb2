"""The page of messages: one row per code, read from the calls that make a finding or a refusal."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (ROOT / "constructs" / "cdk_hyperpod", ROOT / "stacks")

HEAD = """# Messages

Look up the code that a message ends with, and read what is wrong and what to do. A warning can be acknowledged in an app by
its code: `Annotations.of(cluster).acknowledge_warning("cdk-hyperpod:CODE", "the reason")`.

`make docs` writes this page from the code. Words in `<angle brackets>` stand for values of your configuration, and `…` for what
the message itself says.

| code | setting | what is wrong | what to do |
| --- | --- | --- | --- |
"""

MAKERS = {
    "Finding": ("problem", "remedy"),
    "Problem": ("problem", "remedy"),
    "Failure": ("problem", "remedy"),
    "Refuse": ("why", "fix"),
}
"""The classes that have a code, and their arguments with the text."""
UNKNOWN = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One place that makes a finding or a refusal."""

    code: str
    setting: str
    problem: str
    remedy: str
    is_warning: bool


@cache
def messages() -> tuple[Message, ...]:
    """Every message of the sources."""
    return tuple(_messages())


def _messages() -> Iterator[Message]:
    for path in (path for source in SOURCES for path in sorted(source.rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
                yield from _message(node, node.func.id, path)


def _message(call: ast.Call, maker: str, path: Path) -> Iterator[Message]:
    arguments = {keyword.arg: keyword.value for keyword in call.keywords}
    if not isinstance(arguments["code"], ast.Constant):
        return  # a message that was made elsewhere is handed on
    problem, remedy = (_text(arguments[name], path) for name in MAKERS[maker])
    setting = re.sub("<[^>]+>", UNKNOWN, _text(arguments["path"], path)) if "path" in arguments else ""
    yield Message(
        code=str(arguments["code"].value),
        setting=setting if setting.strip("….[]") else "",
        problem=f"{problem}, got <value>" if maker == "Problem" else problem,
        remedy=remedy,
        is_warning="level" in arguments and ast.unparse(arguments["level"]) == "'warning'",
    )


def _text(value: ast.expr, path: Path) -> str:
    match value:
        case ast.Constant(value=text):
            return str(text)
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, path) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)) | ast.Name(id=name) if name.isupper():
            return _constant(path, name)
        case ast.FormattedValue(value=inner):
            return f"<{_name(inner)}>"
        case _:
            return UNKNOWN


def _constant(path: Path, name: str) -> str:
    top = ROOT / "constructs" if path.is_relative_to(ROOT / "constructs") else ROOT
    module = importlib.import_module(".".join(path.relative_to(top).with_suffix("").parts).removesuffix(".__init__"))
    value = vars(module)[name]
    return f"{value:,}" if isinstance(value, int) else str(value)


def _name(value: ast.expr) -> str:
    """The last name in an expression, which is the value in `', '.join(show(name) for name in names)`."""
    *_, name = re.findall(r"[A-Za-z]\w*", re.sub(r"'[^']*'|, \w+=.*", "", ast.unparse(value)))
    return f"{'number of ' if ast.unparse(value).startswith('len(') else ''}{name.replace('_', ' ').lower()}"


def page() -> str:
    """The page in Markdown."""
    rows: dict[str, Message] = {}
    for message in messages():
        if message.code not in rows or UNKNOWN in (rows[message.code].problem, rows[message.code].remedy):
            rows[message.code] = message
    return HEAD + "".join(_row(rows[code]) for code in sorted(rows))


def _row(message: Message) -> str:
    code = f"`{message.code}`{' (warning)' if message.is_warning else ''}"
    setting = f"`{message.setting}`" if message.setting else ""
    return f"| {code} | {setting} | {_cell(message.problem)} | {_cell(message.remedy)} |\n"


def _cell(text: str) -> str:
    """A text in Markdown: placeholders as code, of which a browser shows the angle brackets."""
    outside_code = text.replace("|", "\\|").split("`")
    outside_code[::2] = [re.sub(r"<[^<>]+>", r"`\g<0>`", part) for part in outside_code[::2]]
    return "`".join(outside_code)
