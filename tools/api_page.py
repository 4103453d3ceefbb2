"""Writes the API reference: every public name with its signature and docstrings, which griffe reads without running the
code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import griffe

import cdk_hyperpod
from cdk_hyperpod import config

SOURCES = Path(str(cdk_hyperpod.__file__)).parents[1]
# Arguments that a constructor passes to the typed model are described there only.
DESCRIBED_IN: Mapping[str, str] = {
    "HyperPodCluster": "ClusterConfig",
    "HyperPodNetwork": "NetworkConfig",
    "ClusterMonitoring": "MonitoringConfig",
    "LustreFileSystem": "StorageConfig",
    "ScaleDown": "ScaleDownConfig",
}
HEAD = """# API reference

Made from the signatures and docstrings of `constructs/cdk_hyperpod/` by `make docs`; change them there. Import the names
under "Settings" from `cdk_hyperpod.config`, and all others from `cdk_hyperpod`. [The constructs in an app of your own](library.md) shows how to use them together.
[The reference of the cluster file](reference.md) has the same settings in the form of the file.

In the examples `self` is a stack. A test synthesizes each of them."""
_EXAMPLE = re.compile(r"^Example::\n\n((?:    .*\n|\n)+)", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """A parameter, a field or an attribute."""

    name: str
    type: str
    default: str | None
    """In Markdown. None: it has none."""
    text: str


class Name:
    """One public name, or one method, on the page."""

    def __init__(self, library: Library, item: griffe.Object, path: str) -> None:
        self._library = library
        self.item = item
        self.path = path
        """Its name in code: `HyperPodCluster`, `HyperPodCluster.on_event`."""

    @cached_property
    def _sections(self) -> list[griffe.DocstringSection]:
        return [section for each in self._docstrings for section in each.parse("sphinx", warnings=False)]

    @property
    def _docstrings(self) -> list[griffe.Docstring]:
        made = self.item.members.get("__init__") if self.is_class and not self.is_values else None
        both = [self.item.docstring, made.docstring if isinstance(made, griffe.Function) else None]
        return [docstring for docstring in both if docstring is not None]

    @property
    def is_class(self) -> bool:
        """Whether it is a class."""
        return self.item.is_class

    @property
    def is_values(self) -> bool:
        """Whether it is a dataclass, whose fields are its parameters."""
        return isinstance(self.item, griffe.Class) and "dataclass" in self.item.labels

    @property
    def is_made_in_a_scope(self) -> bool:
        """Whether it is a construct."""
        return {"scope", "construct_id"} <= {parameter.name for parameter in self._parameters()}

    @property
    def text(self) -> str:
        """The paragraphs of its docstrings, without examples."""
        return _EXAMPLE.sub("", self._text).strip()

    @property
    def examples(self) -> list[str]:
        """The code in its docstrings."""
        return [textwrap.dedent(code).strip() + "\n" for code in _EXAMPLE.findall(self._text)]

    @property
    def _text(self) -> str:
        found = [section.value for section in self._sections if isinstance(section, griffe.DocstringSectionText)]
        return "\n\n".join(found) + "\n"

    @property
    def raises(self) -> list[str]:
        """Its exceptions, and their reasons."""
        return [
            f"Raises `{each.annotation}` {each.description}"
            for section in self._sections
            if isinstance(section, griffe.DocstringSectionRaises)
            for each in section.value
        ]

    def _parameters(self) -> list[griffe.Parameter]:
        if self.is_values:
            return []
        item = self.item.members.get("__init__") if self.is_class else self.item
        if not isinstance(item, griffe.Function):
            return []
        return [parameter for parameter in item.parameters if not parameter.name.startswith("_")]

    @property
    def signature(self) -> str:
        """The call: its positional arguments, and a star if there are keyword arguments."""
        shown: list[str] = []
        for parameter in self._parameters():
            if parameter.kind is griffe.ParameterKind.keyword_only:
                return f"{self.path}({', '.join([*shown, '*', '…'])})"
            if parameter.name not in ("self", "cls"):
                shown.append(parameter.name)
        return f"{self.path}({', '.join(shown)})"

    @property
    def rows(self) -> list[Row]:
        """Its parameters, except scope and id."""
        texts = {
            each.name: " ".join(each.description.split())
            for section in self._sections
            if isinstance(section, griffe.DocstringSectionParameters)
            for each in section.value
        }
        described = DESCRIBED_IN.get(self.path)
        fields = {} if described is None else {row.name: row for row in self._library[described].fields}
        rows = []
        for parameter in self._parameters():
            if parameter.name in ("self", "cls", "scope", "construct_id"):
                continue
            field = fields.get(parameter.name)
            text = texts.get(parameter.name) or ("" if field is None else field.text)
            # As in CDK's own reference: the default is what an absent argument means.
            text, _, said = text.partition("Default: - ")
            default = None if parameter.default is None else said or f"`{self._library.words(parameter.default)}`"
            rows.append(Row(parameter.name, self._library.words(parameter.annotation), default, text))
        return rows

    @property
    def fields(self) -> list[Row]:
        """Its public attributes and properties, including those of our base classes."""
        found: dict[str, Row] = {}
        for kind in self._library.own_classes(self.item):
            for member in kind.members.values():
                if isinstance(member, griffe.Attribute) and not member.name.startswith("_"):
                    text = " ".join(member.docstring.value.split()) if member.docstring else ""
                    default = f"`{self._library.words(member.value)}`" if self.is_values and member.value else None
                    # An attribute without a text in the class is documented in its base class.
                    kept = found.get(member.name, Row(member.name, "", default, ""))
                    words = kept.type or self._library.words(member.annotation)
                    found[member.name] = Row(member.name, words, kept.default, kept.text or text)
        return list(found.values())

    @property
    def methods(self) -> list[Name]:
        """Its public methods, including those of our base classes."""
        found: dict[str, Name] = {}
        for kind in self._library.own_classes(self.item):
            for member in kind.members.values():
                if isinstance(member, griffe.Function) and not member.name.startswith("_"):
                    found.setdefault(member.name, Name(self._library, member, f"{self.path}.{member.name}"))
        return list(found.values())

    def lines(self) -> Iterator[str]:
        """Its part of the page, below its heading."""
        yield self.text
        for code in self.examples:
            yield f"```python\n{code}```"
        if self._parameters():
            yield f"`{self.signature}`" + "".join(f"  \n{each}" for each in self.raises)
            if self.rows:
                yield _table(self.rows, "parameter")
        if self.is_class and self.fields:
            yield _table(self.fields, "field" if self.is_values else "attribute", defaults=self.is_values)
        for method in self.methods if self.is_class else ():
            yield f"#### `{method.path}`"
            yield from method.lines()


class Library:
    """The public names."""

    def __init__(self) -> None:
        root = griffe.load(cdk_hyperpod.__name__, search_paths=[SOURCES])
        assert isinstance(root, griffe.Module)
        self._root = root

    def __getitem__(self, name: str) -> Name:
        home = self._root["config"] if name in config.__all__ else self._root
        return Name(self, _itself(home.members[name]), name)

    @cached_property
    def names(self) -> list[Name]:
        """All public names: those of `cdk_hyperpod` in the order of its `__init__.py`, then those of
        `cdk_hyperpod.config`."""
        return [self[name] for name in [*cdk_hyperpod.__all__, *config.__all__]]

    def own_classes(self, item: griffe.Object) -> list[griffe.Class]:
        """A class with its base classes in this library."""
        if not isinstance(item, griffe.Class):
            return []
        bases = [self._own(base) for base in item.bases if isinstance(base, griffe.Expr)]
        return [item, *(each for base in bases if base is not None for each in self.own_classes(base))]

    def _own(self, name: griffe.Expr) -> griffe.Object | None:
        package, _, path = name.canonical_path.partition(".")
        if package != cdk_hyperpod.__name__ or not path:
            return None
        try:
            return _itself(self._root[path])
        except KeyError:
            return None  # a parameter of a function

    def words(self, value: str | griffe.Expr | None) -> str:
        """A type or a default in Python's notation, with names that cannot be imported replaced by their values."""
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, griffe.ExprName):
            own = self._own(value)
            return self.words(own.value) if isinstance(own, griffe.Attribute) else value.name
        if isinstance(value, griffe.ExprSubscript) and value.canonical_path.endswith("Annotated"):
            first = value.slice.elements[0] if isinstance(value.slice, griffe.ExprTuple) else value.slice
            return self.words(first)
        return "".join(self.words(part) for part in value.iterate(flat=False))


def _itself(item: griffe.Object | griffe.Alias) -> griffe.Object:
    """The definition of a name, through the modules that re-export it."""
    return item.final_target if isinstance(item, griffe.Alias) else item


def _table(rows: list[Row], what: str, *, defaults: bool = True) -> str:
    lines = [f"| {what} | type |{' default |' if defaults else ''} |", f"|---|---|{'---|' if defaults else ''}---|"]
    for row in rows:
        said = row.text.strip()
        text = said[:1].upper() + said[1:]
        cells = [f"`{row.name}`", f"`{row.type}`", *([row.default or "**required**"] if defaults else []), text]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def parts() -> dict[str, list[Name]]:
    """The names under the headings of the page."""
    found: dict[str, list[Name]] = {
        "Constructs": [],
        "Interfaces": [],
        "Functions": [],
        "Values": [],
        "Settings": [],
        "Errors": [],
    }
    for name in Library().names:
        if name.path in config.__all__:
            found["Settings"].append(name)
        elif name.is_values and name.path != "Finding":
            found["Values"].append(name)
        elif not name.is_class:
            found["Functions"].append(name)
        elif re.match("I[A-Z]", name.path):
            found["Interfaces"].append(name)
        else:
            found["Constructs" if name.is_made_in_a_scope else "Errors"].append(name)
    return found


def undocumented() -> list[str]:
    """Names without a text or a type. There should be none."""
    found = []
    for name in Library().names:
        for each in [name, *(name.methods if name.is_class else ())]:
            found += [] if each.text else [each.path]
            for row in [*each.rows, *(each.fields if each.is_class else ())]:
                found += [] if row.text and row.type else [f"{each.path}: {row.name}"]
    return found


def page() -> str:
    """The page, in Markdown."""
    lines = [HEAD]
    for title, names in parts().items():
        lines.append(f"**{title}.** " + ", ".join(f"[{name.path}](#{name.path.lower()})" for name in names) + ".")
    for title, names in parts().items():
        lines.append(f"## {title}")
        for name in names:
            lines += [f"### {name.path}", *name.lines()]
    return "\n\n".join(line for line in lines if line) + "\n"
