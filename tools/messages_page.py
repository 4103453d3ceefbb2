"""The page of messages: one row per code, read from the calls that make a finding or a refusal."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
_DEVICE_KEY = ("", "use requests.<key>")
_LIVE = "the live cluster or file system is in another one"
_MOVE = (
    "undo this change, or deploy a new cluster under another name and move your work there. For a file system, first remove storage "
    "from the file in a separate deployment"
)
GENERAL = {
    "argument-known-at-deployment-only": ("", "write the value out, without a token or parameter"),
    "instance-type-unknown": ("", "use the type that the message suggests, or another one of the region"),
    "limit-key-unknown": ("", "use the key that the message suggests, or one such as cpu, memory, nvidia.com/gpu"),
    "nodes-beyond-count": (
        'names <named> nodes of group "<group>", but lowering it from <most> to <count> deletes only <deletable> nodes',
        "",
    ),
    "quota-key-ambiguous": ("", "remove it"),
    "quota-key-device": _DEVICE_KEY,
    "quota-key-limit-of-device": _DEVICE_KEY,
    "quota-key-unknown": ("", "use the key that the message suggests"),
    "subnet-immutable": (f"the first subnet is <subnet id>, and {_LIVE}", _MOVE),
    "subnet-range-immutable": (f"gives the first zone the subnet <cidr>, and {_LIVE}", _MOVE),
    "value-missing": ("must have a value, got nothing", ""),
    "vpc-immutable": (
        "is missing, so this deployment would create a VPC, and the live cluster or file system is in an existing one",
        _MOVE,
    ),
    "zone-immutable": (f"the first zone is <zone>, and {_LIVE}", _MOVE),
}
"""Problem and remedy of messages that are put together elsewhere. Empty: as the call has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One place that makes a finding or a refusal."""

    code: str
    settings: tuple[str, ...]
    problem: str
    remedy: str
    is_warning: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text stands."""

    path: Path
    assigned: Mapping[str, ast.expr]
    """The values of the names of its function."""

    def without(self, name: str) -> Place:
        """The place for a value of this name, which may have the name itself."""
        return Place(self.path, {each: value for each, value in self.assigned.items() if each != name})


@cache
def messages() -> tuple[Message, ...]:
    """Every message of the sources."""
    return tuple(_messages())


def _messages() -> Iterator[Message]:
    for path in (path for source in SOURCES for path in sorted(source.rglob("*.py"))):
        module = ast.parse(path.read_text("utf-8"))
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
        for scope in (module, *functions):
            for call in _inside(scope):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in MAKERS:
                    yield from _message(call, call.func.id, Place(path, _assigned(scope, call.lineno)))


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """All of a function or a module without the functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from _inside(child)


def _assigned(scope: ast.AST, line: int) -> dict[str, ast.expr]:
    """The value that each local name got last, above a line."""
    return {
        node.targets[0].id: node.value
        for node in sorted(_inside(scope), key=lambda node: getattr(node, "lineno", 0))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.lineno < line
    }


def _message(call: ast.Call, maker: str, place: Place) -> Iterator[Message]:
    arguments = {keyword.arg: keyword.value for keyword in call.keywords}
    match arguments["code"]:
        case ast.Constant(value=str(code)):
            pass
        case ast.Attribute(attr="code"):
            return  # a message that was made elsewhere is handed on
        case other:
            raise SystemExit(f"{place.path}:{call.lineno}: write the code out, not {ast.unparse(other)}")
    problem, remedy = (
        general or _text(arguments[name], place)
        for general, name in zip(GENERAL.get(code, ("", "")), MAKERS[maker], strict=True)
    )
    setting = re.sub("<[^>]+>", UNKNOWN, _text(arguments["path"], place)) if "path" in arguments else ""
    yield Message(
        code=code,
        settings=tuple(each for each in setting.split(", or ") if each.strip("….[]")),
        problem=f"{problem}, got <value>" if maker == "Problem" else problem,
        remedy=remedy,
        is_warning="level" in arguments and ast.unparse(arguments["level"]) == "'warning'",
    )


def _text(value: ast.expr, place: Place) -> str:
    match value:
        case ast.Constant(value=text):
            return str(text)
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, place) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_text(left, place)}{_text(right, place)}"
        case ast.IfExp(body=one, orelse=other):
            return _either([one, other], place)
        case ast.BoolOp(op=ast.Or(), values=values):
            return _either(values, place)
        case ast.FormattedValue(value=ast.Name(id=name)) | ast.Name(id=name) if name.isupper():
            return _constant(place.path, name)
        case ast.Name(id=name) if name in place.assigned:
            return _text(place.assigned[name], place.without(name))
        case ast.FormattedValue(value=inner):
            return f"<{_name(inner)}>"
        case _:
            return UNKNOWN


def _either(values: Iterable[ast.expr], place: Place) -> str:
    """Texts of which a message has one. Those that are put together elsewhere are left out."""
    texts = dict.fromkeys(_text(value, place) for value in values)
    return ", or ".join(text for text in texts if text != UNKNOWN) or UNKNOWN


def _constant(path: Path, name: str) -> str:
    top = ROOT / "constructs" if path.is_relative_to(ROOT / "constructs") else ROOT
    module = importlib.import_module(".".join(path.relative_to(top).with_suffix("").parts).removesuffix(".__init__"))
    value = vars(module)[name]
    return f"{value:,}" if isinstance(value, int) else str(value)


def _name(value: ast.expr) -> str:
    """The last name in an expression, which is the value in `', '.join(show(name) for name in names)`."""
    *_, name = re.findall(r"[A-Za-z]\w*", re.sub(r"'[^']*'|, \w+=.*", "", ast.unparse(value)))
    return f"{'number of ' if ast.unparse(value).startswith('len(') else ''}{name.strip('_').replace('_', ' ').lower()}"


def page() -> str:
    """The page in Markdown."""
    rows: dict[str, Message] = {}
    for message in messages():
        first = rows.setdefault(message.code, message)
        settings = dict.fromkeys([*first.settings, *message.settings])
        rows[message.code] = replace(first, settings=tuple(settings))
    return HEAD + "".join(_row(rows[code]) for code in sorted(rows))


def _row(message: Message) -> str:
    code = f"`{message.code}`{' (warning)' if message.is_warning else ''}"
    settings = ", ".join(f"`{setting}`" for setting in message.settings)
    return f"| {code} | {settings} | {_cell(message.problem)} | {_cell(message.remedy)} |\n"


def _cell(text: str) -> str:
    """A text in Markdown: placeholders as code, of which a browser shows the angle brackets."""
    outside_code = text.replace("|", "\\|").split("`")
    outside_code[::2] = [re.sub(r"<[^<>]+>", r"`\g<0>`", part) for part in outside_code[::2]]
    return "`".join(outside_code)
