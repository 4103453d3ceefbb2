"""YAML that the user wrote: read with a limit on its expanded size, and with the lines of errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from .words import show, shown_name

MAX_VALUES = 20_000
"""The maximum number of values in a file. A value with an alias counts as often as it is used. 100 groups with as many
nodes to delete as a group can have need half of this."""

MAX_DEPTH = 50
"""The maximum nesting of lists and settings. A cluster file has six levels."""


class YamlProblem(Exception):
    """Text that cannot be read as YAML. The message is one line, with the line number if it is known."""

    def __init__(self, words: str, line: int | None = None, *, remedy: str = "correct what is wrong") -> None:
        super().__init__(words)
        self.line = line
        self.remedy = remedy


class ConflictProblem(YamlProblem):
    """Text in which a merge left its markers."""


class TabProblem(YamlProblem):
    """Text with a tab where YAML allows spaces only."""


class Loader(yaml.SafeLoader):
    """A SafeLoader with a limit on the expanded size, which reports the line of an unreadable value."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._count = 0
        self._depth = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """One value, counted. The values behind an alias count each time."""
        before = self._count
        is_alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self._depth > MAX_DEPTH:
            raise _problem("nested too deeply", mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if not is_alias:
            self._count += 1
            self._sizes[id(node)] = self._count - before
        elif id(node) in self._sizes:
            self._count += self._sizes[id(node)]
        else:
            raise _problem("a value contains itself", mark)
        if self._count > MAX_VALUES:
            raise _problem(f"more than {MAX_VALUES:,} values, counting each use of an alias,", mark)
        return node

    def scan_flow_scalar_non_spaces(self, double: bool, start_mark: yaml.Mark) -> Any:
        """Quoted text. PyYAML raises an error without a line for an escape of a character that does not exist."""
        try:
            return super().scan_flow_scalar_non_spaces(double, start_mark)
        except (OverflowError, ValueError):
            raise _problem("the escape of a character that does not exist", self.get_mark()) from None

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value in Python. PyYAML raises an error without a line for an invalid date or number."""
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise _problem(f"{show(node.value)} is not a valid date, number or truth value", node.start_mark) from None


def _problem(text: str, mark: yaml.Mark | None) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=mark)


def decoded(content: bytes) -> str:
    """The text of a file. Raises YamlProblem."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise YamlProblem(f"byte {error.start}, in line {line}, is not UTF-8 text", line) from None


_PLAINER = {"found unhashable key": "found a key that is not plain text"}
_TAG = ("could not determine a constructor for the tag", "only plain values are allowed, and not the tag")
"""PyYAML's words about Python, and plain ones."""


_CONFLICT = re.compile(r"^(<<<<<<<|\|\|\|\|\|\|\||=======|>>>>>>>)(?: .*)?\r?$", re.MULTILINE)
"""A line that a merge of Git, Mercurial or Subversion leaves around two versions."""
_PAIRS: Mapping[type[yaml.Token], tuple[type[yaml.Token], str]] = {
    yaml.FlowMappingStartToken: (yaml.FlowMappingEndToken, "{"),
    yaml.FlowSequenceStartToken: (yaml.FlowSequenceEndToken, "["),
}
"""Opening brackets, with the closing ones."""
_BEGINS_BEFORE = ("while scanning a quoted scalar", "while scanning a simple key")
"""Contexts whose beginning is the line to correct. PyYAML notices the error later, at the end of the file for a quote."""
_NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"

_COMMON = (
    (r"^while scanning a quoted scalar, found unexpected end of stream", "a quote opens and is not closed", "close the quote"),
    (r"expected <block end>, but found '<block ", "the indentation is that of no line above", "indent like the neighbouring lines"),
    (r"(?:<block end>|<document start>)'?, but found '([\]}])'", r"there is a \1 that closes nothing", "remove it"),
    (r"^mapping values are not allowed here", "a second key follows a value", "correct the indentation, or quote a value that has a colon and a space"),
    (r"^while scanning a simple key, could not find expected ':'", "there is no colon with a space behind it", "write it as key: value"),
)  # fmt: skip
"""PyYAML's words for the most frequent mistakes (a pattern), ours, and the remedy."""


def in_words(error: yaml.YAMLError | RecursionError, text: str) -> YamlProblem:
    """PyYAML's error, which may have several lines, on one line and in plain words.

    Names the line to correct, even if PyYAML notices the error in a later one.
    """
    if (marker := _CONFLICT.search(text)) is not None:
        line = text.count("\n", 0, marker.start()) + 1
        return ConflictProblem(f"the marker {marker[1]} of a merge conflict is in line {line}", line)
    if isinstance(error, yaml.parser.ParserError) and (opened := _unclosed(text)) is not None:
        line = opened.start_mark.line + 1
        return YamlProblem(f"the {_PAIRS[type(opened)][1]} in line {line} is not closed", line)
    if isinstance(error, yaml.MarkedYAMLError):
        parts = [_PLAINER.get(part, part) for part in (error.context, error.problem) if part]
        words = shown_name(", ".join(parts).replace(*_TAG), 300)
        mark = error.context_mark if error.context in _BEGINS_BEFORE else error.problem_mark
        return _marked(words, mark, text) if mark is not None else YamlProblem(words)
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return YamlProblem(f"the character U+{error.character:04X} is not allowed in line {line}", line)
    return YamlProblem("nested too deeply" if isinstance(error, RecursionError) else shown_name(str(error), 300))


def _marked(words: str, mark: yaml.Mark, text: str) -> YamlProblem:
    """PyYAML's words about a line, in plain ones if the mistake is a frequent one."""
    line = mark.line + 1
    if "found character '\\t'" in words:
        return TabProblem(f"there is a tab in line {line}", line)
    # A key without a plain space behind its colon is noticed in the next line.
    first = max(1, line - 1)
    # For YAML more characters than one break a line, so the mark may be behind the last of these lines.
    for number, each in enumerate(text.split("\n")[first - 1 : line], start=first):
        if _NO_BREAK_SPACE in each:
            return YamlProblem(
                f"there is a no-break space (U+00A0) in line {number}", number, remedy="write a plain space"
            )
    for pattern, plain, remedy in _COMMON:
        if (match := re.search(pattern, words)) is not None:
            return YamlProblem(f"{match.expand(plain)} in line {line}", line, remedy=remedy)
    return YamlProblem(f"{words} in line {line}", line)


def _unclosed(text: str) -> yaml.Token | None:
    """The first bracket that is not closed, or is closed by one of the other kind. None: all are closed, or the text is not readable
    to its end."""
    opened: list[yaml.Token] = []
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if type(token) in _PAIRS:
                opened.append(token)
            elif isinstance(token, yaml.FlowMappingEndToken | yaml.FlowSequenceEndToken):
                if not opened or not isinstance(token, _PAIRS[type(opened[-1])][0]):
                    break
                opened.pop()
    except yaml.YAMLError:
        return None
    return opened[-1] if opened else None


def read_yaml(content: bytes) -> object:
    """The one document of a small file. Raises YamlProblem."""
    text = decoded(content)
    try:
        loader = Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError) as error:
        raise in_words(error, text) from None
