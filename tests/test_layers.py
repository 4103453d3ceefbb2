"""Guards of the rooms of the library and of the local AWS: who may import whom, read from the sources."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cdk_hyperpod
from tools import lanes
from tools.lanes import ROOT, TESTS, may_import

LIBRARY, LOCAL_AWS = ROOT / lanes.LIBRARY, ROOT / lanes.LOCAL_AWS
FUNCTION = "_lambda"
CDK = {"aws_cdk", "constructs", "jsii"}


def _sources(package: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(package.rglob("*.py")):
        # `_project` is a template of an app, and no part of the library's own code.
        if "_project" not in path.parts:
            parts = path.relative_to(package).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(_sources(LIBRARY))
LOCAL_MODULES = dict(_sources(LOCAL_AWS))


@functools.cache
def _imports(module: str, top: str = "cdk_hyperpod") -> frozenset[str]:
    """What a module of `top` imports when it runs, in functions too: its own package's below its name, others as they are."""
    modules = MODULES if top == "cdk_hyperpod" else LOCAL_MODULES
    path = modules[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    tree = ast.parse(path.read_text("utf-8"))
    for_types = {
        inner for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }  # fmt: skip
    found = set()
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = [top, *package[: len(package) + 1 - node.level]] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full.removeprefix(f"{top}.") in modules else base)
    return frozenset(found)


def _own(module: str, top: str = "cdk_hyperpod") -> set[str]:
    return {name.removeprefix(top).removeprefix(".") for name in _imports(module, top) if name.split(".")[0] == top}


def _room(module: str) -> str:
    return module.split(".")[0]


ROOMS = [path.name for path in sorted(LIBRARY.iterdir()) if (path / "__init__.py").is_file()]
WITHOUT_CDK = ("typed", "facts", "config", "kubernetes", "rules", "cli")
LOCAL_ROOMS = [module for module, path in LOCAL_MODULES.items() if path.name == "__init__.py"]
"""Folders in folders are rooms too; the package's own folder is "", with what is in no other."""


HYPERPOD = f"{FUNCTION}.hyperpod"
FUNCTION_ROOMS = [
    module.removeprefix(f"{HYPERPOD}.")
    for module, path in MODULES.items()
    if module.startswith(f"{HYPERPOD}.") and path.name == "__init__.py"
]
FUNCTIONS = [room for room in FUNCTION_ROOMS if "." not in room]


def _function_room(module: str) -> str:
    """The innermost folder of the functions, below theirs. Empty: it is no function's."""
    name = module.removeprefix(f"{HYPERPOD}.")
    return max((room for room in FUNCTION_ROOMS if f"{name}.".startswith(f"{room}.")), key=len, default="")


def test_the_library_has_no_import_circle() -> None:
    order = [*graphlib.TopologicalSorter({module: _own(module) - {""} for module in MODULES}).static_order()]

    assert len(order) >= len(MODULES) - 1


def test_the_rooms_have_no_import_circle() -> None:
    """A folder of commands is a room, too, and so is one of a function."""

    def of(module: str) -> str:
        parts = module.split(".")
        if module.startswith(f"{HYPERPOD}."):
            return _function_room(module)
        return (
            ".".join(parts[:2]) if (LIBRARY / "cli" / ".".join(parts[1:2])).is_dir() and parts[0] == "cli" else parts[0]
        )

    rooms: dict[str, set[str]] = {of(module): set() for module in MODULES}
    for module in MODULES:
        rooms[of(module)] |= {of(name) for name in _own(module) if name} - {of(module)}
    # What starts the commands is in cli itself, and loads each when it is used.
    rooms["cli"] -= {room for room in rooms if room.startswith("cli.")}

    graphlib.TopologicalSorter(rooms).prepare()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_it_may_and_nothing_else(room: str) -> None:
    imported = {(module, name) for module in MODULES if _room(module) == room for name in _own(module)}
    may = may_import(f"{lanes.LIBRARY}/{room}")

    assert {
        f"{module} imports {name}"
        for module, name in imported
        if not any(f"{name}.".startswith(f"{each}.") for each in (room, *may))
    } == set()
    unused = {each for each in may if not any(f"{name}.".startswith(f"{each}.") for _, name in imported)}
    assert unused == set(), "it says more than it imports"


@pytest.mark.parametrize("room", WITHOUT_CDK)
def test_a_room_never_comes_to_a_construct(room: str) -> None:
    # Also not by way of what it may import, and not late.
    reached: set[str] = set()
    left = [module for module in MODULES if _room(module) == room]
    while left:
        module = left.pop()
        if module not in reached and module in MODULES:
            reached.add(module)
            left += _own(module)

    assert {module for module in reached for name in _imports(module) if name.split(".")[0] in CDK} == set()


def test_only_the_cli_imports_the_cli() -> None:
    assert {module for module in MODULES if _room(module) != "cli" and "cli" in map(_room, _own(module))} == set()


def test_only_the_cli_imports_terminal_libraries() -> None:
    # So nothing of it is imported at synth.
    drawers = {"click", "rich", "rich_click", "ruamel"}
    strange = {
        module
        for module in MODULES
        if _room(module) != "cli"
        for name in _imports(module)
        if name.split(".")[0] in drawers
    }
    assert strange == set()


def test_the_function_never_imports_the_library() -> None:
    # It is uploaded without it.
    modules = [module for module in MODULES if _room(module) == FUNCTION]
    assert modules
    assert {f"{module}: {name}" for module in modules for name in _own(module) if _room(name) != FUNCTION} == set()


@pytest.mark.parametrize("room", FUNCTION_ROOMS)
def test_a_room_of_the_functions_imports_what_it_says_and_nothing_else(room: str) -> None:
    """Besides its own function's, only `common` and `kernel`: the others are not uploaded with it."""
    here = [module for module in MODULES if module.startswith(f"{HYPERPOD}.") and _function_room(module) == room]
    imported = {(module, name, _function_room(name)) for module in here for name in _own(module)}
    may = may_import(f"{lanes.FUNCTIONS}/{room.replace('.', '/')}")

    assert {f"{module} imports {name}" for module, name, of in imported if of not in {room, *may}} == set()
    assert may - {of for _, _, of in imported} == set(), "it says more than it imports"
    assert {name.split(".")[0] for name in may} <= {room.split(".")[0], "common", "kernel"}


def test_the_terminal_s_words_never_ship_in_the_function() -> None:
    # Tables, colours, options and exit codes are the command's; the function answers CloudFormation in sentences.
    for module, path in MODULES.items():
        if _room(module) == FUNCTION:
            text = path.read_text("utf-8")
            assert not _imports(module) & {"argparse", "click", "textwrap", "shutil", "sys"}, module
            assert "\\033" not in text and "print(" not in text and "exit_code" not in text, module


def test_the_function_means_one_thing_by_refusing() -> None:
    # Its own decision that a deployment must not go on. AWS and the drain agent reject.
    words = re.compile(r"refus", re.IGNORECASE)
    names: set[object] = set()
    for module, path in MODULES.items():
        if _room(module) == FUNCTION:
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names |= {getattr(node, kind, None) for kind in ("name", "id", "attr", "arg")}
    assert {name for name in names if words.search(str(name))} == {
        "Refuse",
        "refusals",
        "_refusals",
        "_refuse",
        "refused",
    }


def test_reasons_for_findings_stand_in_one_place() -> None:
    rule = re.compile(r"NIST\.800|AwsSolutions-(?!IAM[45]\[)|CloudFormation-Validate")

    assert {module for module, path in MODULES.items() if rule.search(path.read_text("utf-8"))} == {"_common.reasons"}


def test_type_checkers_see_the_public_names_in_the_same_modules() -> None:
    tree = ast.parse((LIBRARY / "__init__.py").read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    seen = {str(alias.asname): f".{node.module}" for node in imports for alias in node.names}

    assert seen == cdk_hyperpod._MODULES


def test_each_room_has_its_tests_in_a_folder_of_its_name() -> None:
    """A room that begins with an underscore has them without it; the functions have a folder each."""
    unit = Path(__file__).parent / "unit"
    folders = {*(room.removeprefix("_") for room in ROOMS), *FUNCTIONS}
    assert [folder for folder in sorted(folders) if not [*(unit / folder).glob("test_*.py")]] == []


# -- the local AWS -----------------------------------------------------------------------------------------------------


def _local(module: str) -> set[str]:
    """What of ours a module of the local AWS imports: its own package's, and `cdk_hyperpod`, the library."""
    library = {name.split(".")[0] for name in _imports(module, "cdk_hyperpod_local")} & {"cdk_hyperpod"}
    return _own(module, "cdk_hyperpod_local") | library


def _local_room(module: str) -> str:
    """The innermost folder that says what it may import."""
    return max((room for room in LOCAL_ROOMS if f"{module}.".startswith(f"{room}." if room else "")), key=len)


@pytest.mark.parametrize("room", LOCAL_ROOMS, ids=lambda room: room or "cdk_hyperpod_local")
def test_a_room_of_the_local_aws_imports_what_it_says_and_nothing_else(room: str) -> None:
    imported = {
        (module, name, "cdk_hyperpod" if name == "cdk_hyperpod" else _local_room(name))
        for module in LOCAL_MODULES
        if _local_room(module) == room
        for name in _local(module)
    }
    may = may_import(f"{lanes.LOCAL_AWS}/{room.replace('.', '/')}")

    assert {f"{module} imports {name}" for module, name, of in imported if not {name, of} & {room, *may}} == set()
    assert may - {part for _, name, of in imported for part in (name, of)} == set(), "it says more than it imports"


def test_the_local_aws_imports_nothing_of_the_tests() -> None:
    here = {path.stem for path in TESTS.iterdir() if path.suffix in ("", ".py")} | {"tests", "stacks"}
    strange = {
        f"{module} imports {name}"
        for module in LOCAL_MODULES
        for name in _imports(module, "cdk_hyperpod_local")
        if name.split(".")[0] in here
    }
    assert strange == set()


@pytest.mark.parametrize(
    ("room", "package"), [("engine.seam", "ministack"), ("commands", "cdk_hyperpod"), ("commands", "rich_click")]
)
def test_one_room_of_the_local_aws_alone_knows(room: str, package: str) -> None:
    knowing = {
        _local_room(module)
        for module in LOCAL_MODULES
        if package in {name.split(".")[0] for name in _imports(module, "cdk_hyperpod_local")}
    }
    assert knowing == {room}
