"""The page of messages: one row per code of a finding or refusal, read from the syntax tree without running anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "constructs" / "cdk_hyperpod"
SOURCES = (PACKAGE, ROOT / "stacks")

HEAD = """# Messages

Look up the code that a message ends with, and read what is wrong and what to do. A warning can be acknowledged in an app by
its code: `Annotations.of(cluster).acknowledge_warning("cdk-hyperpod:CODE", "the reason")`.

`make docs` writes this page from the code. Words in `<angle brackets>` stand for values of your configuration."""

HEADINGS: Mapping[str, str] = {
    "loader.py": "Cluster file: reading it",
    "config": "Cluster file: reading it",
    "typed": "Cluster file: types and names of settings",
    "names.py": "Cluster file: types and names of settings",
    "rules/__init__.py": "Cluster file: the cluster as a whole",
    "rules/accounts.py": "Cluster file: the cluster as a whole",
    "rules/lifecycle.py": "Cluster file: lifecycle scripts",
    "rules/files.py": "Cluster file: lifecycle scripts",
    "rules/groups.py": "Cluster file: instance groups",
    "rules/patching.py": "Cluster file: instance groups",
    "rules/network.py": "Cluster file: network",
    "rules/storage.py": "Cluster file: storage",
    "rules/users.py": "Cluster file: users, groups and Slurm accounts",
    "rules/slurm_queues.py": "Cluster file: queues and files for Slurm",
    "rules/slurm_files.py": "Cluster file: queues and files for Slurm",
    "rules/drain_agent.py": "Cluster file: draining nodes under Slurm",
    "rules/scale_down.py": "Cluster file: lowering counts and deleting groups",
    "rules/scale_down_drain.py": "Cluster file: lowering counts and deleting groups",
    "rules/guard.py": "Lowering counts and deleting nodes",
    "rules/charts.py": "Cluster file: EKS",
    "rules/eks.py": "Cluster file: EKS",
    "rules/add_ons.py": "Cluster file: EKS",
    "rules/governance.py": "Cluster file: teams",
    "rules/quotas.py": "Cluster file: teams",
    "rules/teams.py": "Cluster file: teams",
    "rules/jobs.py": "Commands: job",
    "cli": "Commands",
    "cli/job": "Commands: job",
    "_lambda/hyperpod/scale_down": "Lowering counts and deleting nodes",
    "_lambda/hyperpod/drainer": "Lowering counts and deleting nodes",
    "_lambda/hyperpod/foundation_guard": "Settings that cannot change after creation",
    "_lambda": "Deployments",
    "guard": "Lowering counts and deleting nodes",
    "interface.py": "Arguments of constructs",
    "": "Arguments of constructs",
}
"""The heading of each file or folder of the package; the longest path that fits decides."""

MAKERS: Mapping[str, tuple[str, str]] = {
    "Finding": ("problem", "remedy"),
    "Refuse": ("why", "fix"),
    "Problem": ("problem", "remedy"),
    "Failure": ("problem", "remedy"),
}
"""The classes that have a code, and the two arguments with the text."""
AFTER_PROBLEM = {"Problem": ", got <value>"}
"""What a finding adds to the text of such a class."""

MOVE = (
    "undo this change, or deploy a new cluster under another name and move your work there. For a file system, first remove storage "
    "from the file in a separate deployment"
)
GENERAL: Mapping[str, tuple[str, str]] = {
    "argument-known-at-deployment-only": (
        "is known at deployment only, and is needed at synthesis",
        "write the value out, without a token or parameter",
    ),
    "argument-of-wrong-class": ("must be of the class <class name>, got <value>", "create a <class name>"),
    "argument-without-interface": ("must be an <interface>, got <value>", "create or import one"),
    "backup-namespace-reserved": (
        "is in the namespace <namespace>, which belongs to Kubernetes",
        "name the backup namespace, and create the CronJob there after the EKS stack has created the namespace",
    ),
    "group-kept-and-deleted": (
        "names <group>, which is also in instance_groups",
        "remove it from one of the two",
    ),
    "group-unknown": ("the file has no group <name>", "add it to groups, or use one that the message names"),
    "instance-type-unknown": (
        "HyperPod has no instance type <name>",
        "use the type that the message suggests, or another one of the region",
    ),
    "limit-key-unknown": ("nodes have no resource <key>", "use the key that the message suggests"),
    "pods-unmanaged": (
        "has pods that no controller owns, so nothing would create them again: <pods>",
        "end them, or set scale_down.drain.unmanaged_pods: evict",
    ),
    "quota-key-ambiguous": ("<key> is another name for requests.<key>, which the quota already has", "remove it"),
    "quota-key-device": (
        "a quota does not enforce <key>: Kubernetes limits devices by their requests",
        "use requests.<key>",
    ),
    "quota-key-limit-of-device": (
        "a quota has no key <key>: the limit of a device is always its request",
        "use requests.<key>",
    ),
    "quota-key-unknown": ("a quota has no key <key>", "use the key that the message suggests"),
    "nodes-beyond-count": (
        'names <named> nodes of group "<group>", but lowering it from <most> to <count> deletes only <deletable> nodes',
        "set instance_groups[<group>].instance_count to <fitting>",
    ),
    "nodes-not-in-cluster": (
        (
            "<node ids> are not in this cluster, so lowering the count would delete other nodes. An id may be mistyped, or its "
            "node was replaced, or an earlier deployment that rolled back has deleted it"
        ),
        "correct the id, or remove it from the list. To delete other nodes, name those. To let the guard choose, name none",
    ),
    "subnet-immutable": (
        "the first subnet is <subnet id>, and the live cluster or file system is in another one",
        MOVE,
    ),
    "subnet-range-immutable": (
        "gives the first zone the subnet <cidr>, and the live cluster or file system is in another one",
        MOVE,
    ),
    "task-governance-required": ("needs task governance, which is off", "turn it on, or remove this setting"),
    "vpc-immutable": (
        "is missing, so this deployment would create a VPC, and the live cluster or file system is in an existing one",
        MOVE,
    ),
    "zone-immutable": ("the first zone is <zone>, and the live cluster or file system is in another one", MOVE),
    "zone-names-and-ids": (
        "zone names and zone ids are mixed",
        "use only names such as us-west-2c, or only ids such as usw2-az3",
    ),
    "value-missing": ("must have a value, got nothing", "give it a value, or leave it out"),
}
"""What is wrong and what to do, for codes whose text comes from elsewhere, such as a parser, or differs between places."""

FORMATTERS = frozenset(
    ["listed", "listing", "plural", "several", "show", "shown", "shown_name", "some", "sorted", "str", "set", "tuple"]
)
"""Functions that say the same as their first argument."""

_CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


class PageError(Exception):
    """A place in the code of which no row can be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One place that makes a finding or a refusal."""

    code: str
    problem: str
    remedy: str
    is_warning: bool
    heading: str
    settings: tuple[str, ...]
    """The settings that it is about, as far as the code names them. `…` stands for the path before them."""
    place: str
    """File and line."""


class _Module:
    """One file: its tree, its constants, and what it imports."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text("utf-8"))
        self.values: dict[str, ast.expr] = {}
        self.imports: dict[str, tuple[Path, str]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.values[node.targets[0].id] = node.value
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.values[node.target.id] = node.value
            if isinstance(node, ast.ImportFrom):
                self._note_import(node)

    def _note_import(self, node: ast.ImportFrom) -> None:
        if node.level == 0:
            return
        folder = self.path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
        source = folder.with_suffix(".py") if folder.with_suffix(".py").is_file() else folder / "__init__.py"
        for alias in node.names:
            self.imports[alias.asname or alias.name] = (source, alias.name)


class Reader:
    """Reads every message of the sources."""

    def __init__(self, sources: tuple[Path, ...] = SOURCES, general: Mapping[str, tuple[str, str]] = GENERAL) -> None:
        self._sources = sources
        self._general = general
        self._modules: dict[Path, _Module] = {}
        self.messages: list[Message] = []
        self.uncoded: list[str] = []
        """The places that make a finding or a refusal without a code: file and line."""
        self._unreadable: list[PageError] = []
        for source in sources:
            for path in sorted(source.rglob("*.py")):
                self._read(path)

    def _module(self, path: Path) -> _Module:
        if path not in self._modules:
            self._modules[path] = _Module(path)
        return self._modules[path]

    def _read(self, path: Path) -> None:
        module = self._module(path)
        for call, function in _calls(module.tree):
            if isinstance(call.func, ast.Name) and call.func.id in MAKERS:
                try:
                    self._note(module, function, call, call.func.id)
                except PageError as error:
                    self._unreadable.append(error)

    def _note(self, module: _Module, function: ast.AST | None, call: ast.Call, maker: str) -> None:
        place = f"{self._shown(module.path)}:{call.lineno}"
        arguments = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        code_value = arguments.get("code")
        if code_value is None:
            self.uncoded.append(place)
            return
        if isinstance(code_value, ast.Attribute) and code_value.attr == "code":
            return  # a message that was made elsewhere is handed on
        text = _Text(self._constant_finder(module), module, function, place)
        code = text.template(code_value)
        if not _CODE.fullmatch(code):
            raise PageError(f"{place}: {code!r} is not two or more lower-case words joined by hyphens")
        if code in self._general:
            problem, remedy = self._general[code]
        else:
            problem, remedy = (text.template(arguments[name]) for name in MAKERS[maker])
            problem += AFTER_PROBLEM.get(maker, "")
        level = arguments.get("level")
        self.messages.append(
            Message(
                code=code,
                problem=problem,
                remedy=remedy,
                is_warning=isinstance(level, ast.Constant) and level.value == "warning",
                heading=self._heading(module.path),
                settings=text.settings(arguments.get("path")),
                place=place,
            )
        )

    def _shown(self, path: Path) -> str:
        return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name

    def _heading(self, path: Path) -> str:
        if not path.is_relative_to(PACKAGE):
            return HEADINGS[""]
        name = path.relative_to(PACKAGE).as_posix()
        fitting = [each for each in HEADINGS if each in ("", name) or name.startswith(f"{each}/")]
        return HEADINGS[max(fitting, key=len)]

    def _constant_finder(self, module: _Module) -> Callable[[str], ast.expr | None]:
        def find(name: str) -> ast.expr | None:
            if name in module.values:
                return module.values[name]
            if name not in module.imports:
                return None
            source, original = module.imports[name]
            return self._module(source).values.get(original) if source.is_file() else None

        return find

    def rows(self) -> dict[str, list[Message]]:
        """One message per code below each heading. Raises PageError with every place of which no row can be made."""
        by_code: dict[str, list[Message]] = {}
        errors = [*self._unreadable]
        for message in self.messages:
            by_code.setdefault(message.code, []).append(message)
            other = by_code[message.code][0]
            if (other.problem, other.remedy) != (message.problem, message.remedy):
                errors.append(
                    PageError(
                        f"{message.place}: {message.code} has another text than in {other.place}. Use another code, the "
                        "same text, or add the code to GENERAL in tools/messages_page.py"
                    )
                )
            if other.is_warning != message.is_warning:
                errors.append(PageError(f"{message.place}: {message.code} has another level than in {other.place}"))
        if errors:
            raise PageError("\n".join(map(str, errors)))
        rows: dict[str, list[Message]] = {heading: [] for heading in HEADINGS.values()}
        for _, places in sorted(by_code.items()):
            heading = min((each.heading for each in places), key=[*rows].index)
            settings = tuple(dict.fromkeys(setting for each in places for setting in each.settings))
            rows[heading].append(replace(places[0], settings=settings))
        return {heading: found for heading, found in rows.items() if found}


class _Text:
    """Texts of one call as templates."""

    def __init__(
        self, constant: Callable[[str], ast.expr | None], module: _Module, function: ast.AST | None, place: str
    ) -> None:
        self._constant = constant
        self._module = module
        self._function = function
        self._place = place

    def template(self, value: ast.expr) -> str:
        """A literal, an f-string, or a name that stands for one."""
        match value:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(self._part(part) for part in parts)
            case ast.Name(id=name):
                return self.template(self._assigned(name) or self._refuse(value))
            case _:
                return self._refuse(value)

    def settings(self, path: ast.expr | None) -> tuple[str, ...]:
        """The path as a template, in which `…` stands for whatever the code does not name. Empty: it names nothing."""
        text = self._path(path)
        return (text,) if text.strip("….[]") else ()

    def _path(self, path: ast.expr | None, *, resolve: bool = True) -> str:
        match path:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(self._path(part, resolve=resolve) for part in parts)
            case ast.FormattedValue(value=value):
                return self._path(value, resolve=resolve)
            case ast.Name(id=name) if resolve and len(values := self._values(name)) == 1:
                # `path` itself may be in the value.
                return self._path(values[0], resolve=False)
            case _:
                return "…"

    def _assigned(self, name: str) -> ast.expr | None:
        values = self._values(name)
        if len(values) > 1:
            raise PageError(f"{self._place}: {name} is assigned more than once. Make one finding per text")
        return values[0] if values else self._constant(name)

    def _values(self, name: str) -> list[ast.expr]:
        """What the function assigns to a name."""
        return [
            node.value
            for node in ast.walk(self._function or ast.Module([], []))
            if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets)
        ]

    def _part(self, part: ast.expr) -> str:
        match part:
            case ast.Constant(value=str(text)):
                return text
            case ast.FormattedValue(value=value):
                return self._placeholder(value)
            case _:
                return self._refuse(part)

    def _placeholder(self, value: ast.expr) -> str:
        match value:
            case ast.Name(id=name) if name.isupper():
                return self._of_constant(name)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return f"<{name.strip('_').replace('_', ' ').lower()}>"
            case ast.Call(func=ast.Name(id="len"), args=[argument]):
                return f"<number of {self._placeholder(argument).strip('<>')}>"
            case ast.Call(func=ast.Name(id=name), args=[argument, *_]) if name in FORMATTERS:
                return self._placeholder(argument)
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[argument]):
                return self._placeholder(argument)
            case _:
                return self._refuse(value)

    def _of_constant(self, name: str) -> str:
        match self._constant(name):
            case ast.Constant(value=str(text)):
                return text
            case ast.Constant(value=int(number)):
                return f"{number:,}"
            case ast.JoinedStr() as text:
                return self.template(text)
            case _:
                return f"<{name.strip('_').replace('_', ' ').lower()}>"

    def _refuse(self, value: ast.expr) -> NoReturn:
        raise PageError(f"{self._place}: give `{ast.unparse(value)}` a name before the finding, or make one per text")


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.AST | None]]:
    """Every call, and the innermost function that it stands in."""

    def walk(node: ast.AST, function: ast.AST | None) -> Iterator[tuple[ast.Call, ast.AST | None]]:
        if isinstance(node, ast.Call):
            yield node, function
        inside = node if isinstance(node, ast.FunctionDef) else function
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    yield from walk(tree, None)


def page(reader: Reader | None = None) -> str:
    """The page in Markdown."""
    lines = [HEAD]
    for heading, messages in (reader or Reader()).rows().items():
        lines += [f"\n## {heading}\n", "| code | setting | what is wrong | what to do |", "| --- | --- | --- | --- |"]
        lines += [_row(message) for message in messages]
    return "\n".join(lines) + "\n"


def _row(message: Message) -> str:
    code = f"`{message.code}`{' (warning)' if message.is_warning else ''}"
    settings = ", ".join(f"`{setting}`" for setting in message.settings[:3])
    more = ", …" if len(message.settings) > 3 else ""
    return f"| {code} | {settings}{more} | {_cell(message.problem)} | {_cell(message.remedy)} |"


def _cell(text: str) -> str:
    """A template in Markdown: placeholders as code, of which a browser shows the angle brackets."""
    outside_code = text.replace("|", "\\|").split("`")
    outside_code[::2] = [re.sub(r"<[^<>]+>", r"`\g<0>`", part) for part in outside_code[::2]]
    return "`".join(outside_code)
