"""Prints the tests of a lane (`make test LANE=cli`), or those that a change touches (`make test CHANGED=origin/main`).

A room is a folder whose `__init__.py` says what it may import; the tests of it are in the folder of its name in
tests/unit. A changed file touches the lanes of its room and of all rooms that may import it, and the test files of the
other lanes that import one of these. The tests of the project read all files.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
LIBRARY = "constructs/cdk_hyperpod"
FUNCTIONS = f"{LIBRARY}/_lambda/hyperpod"
LOCAL_AWS = "local_aws/cdk_hyperpod_local"

LANES = {
    "library": (
        *("constructs", "stacks", "app.py", "cluster.yaml", "cluster.schema.json", "docs", "examples", "tools"),
        *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/goldens", "tests/project", "tests/test_layers.py"),
    ),
    "functions": (FUNCTIONS,),
    "nodes": ("lifecycle", "tests/real/slurm"),
    "cli": (f"{LIBRARY}/cli",),
    "local": ("local_aws", "tests/deployments"),
    "simulations": ("tests/simulations",),
}
"""The roots of each lane. The longest root counts; a file below none of them is everybody's."""

APART = {
    "test-lives": ("tests/deployments", "tests/unit/local_aws/engine"),
    "test-kubernetes": ("tests/real/kubernetes", "tests/real/drainer"),
    "test-slurm": ("tests/real/slurm",),
    "audit": ("tests/project/test_rule_packs.py",),
}
"""What has a command of its own, and runs only where it is named: `pytest` alone runs what `make test` does."""

OF_ALL_FILES = ("tests/project", "tests/test_layers.py")


def may_import(room: str) -> set[str]:
    """What the `__init__` of a folder says: rooms, modules, or `nothing`."""
    text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text("utf-8"))) or ""
    (said,) = re.findall(r"May import: (\S.*?)\.(?:\n|$)", text, re.DOTALL)
    return set(re.split(r",\s", said)) - {"nothing"}


def is_in(path: str, *folders: str) -> bool:
    """Whether a path is one of the folders, or below one."""
    return any(f"{path}/".startswith(f"{folder}/") for folder in folders)


def is_apart(path: str) -> bool:
    """Whether `make test` leaves a file or folder to another command."""
    return any(is_in(path, *paths) for paths in APART.values())


def lane_of(path: str) -> str | None:
    """The lane of a file or folder; None: it is everybody's."""
    if room := re.match(r"tests/(?:unit|real)/(\w+)", path):
        homes = (f"{LIBRARY}/{room[1]}", f"{LIBRARY}/_{room[1]}", f"{FUNCTIONS}/{room[1]}", room[1])
        path = next((home for home in homes if (ROOT / home).is_dir()), path)
    roots = [(len(root), lane) for lane, found in LANES.items() for root in found if is_in(path, root)]
    return max(roots)[1] if roots else None


def tests_of(lane: str) -> list[str]:
    """The folders and files that `make test` runs of a lane."""
    found = (str(path.relative_to(ROOT)) for folder in ("tests", "tests/unit") for path in (ROOT / folder).iterdir())
    return sorted(path for path in found if lane_of(path) == lane and not is_apart(path))


@functools.cache
def _rooms() -> dict[str, set[str]]:
    """What each room may import, as paths without an ending."""
    rooms: dict[str, set[str]] = {}
    for base in (FUNCTIONS, LIBRARY, LOCAL_AWS):
        for init in (ROOT / base).rglob("__init__.py"):
            room = str(init.parent.relative_to(ROOT))
            if room not in (*rooms, FUNCTIONS) and "May import:" in init.read_text("utf-8"):
                names = {f"{base}/{name.replace('.', '/')}" for name in may_import(room)}
                rooms[room] = {LIBRARY if name == f"{LOCAL_AWS}/cdk_hyperpod" else name for name in names}
    return rooms


def room_of(path: str) -> str:
    """The innermost folder that says what it may import, or the file itself."""
    return max((room for room in _rooms() if is_in(path, room)), key=len, default=path.removesuffix(".py"))


def importers(room: str) -> set[str]:
    """A room, and all that may import it, or a room that may."""
    found, left = set[str](), {room}
    while left:
        found.add(now := left.pop())
        left |= {each for each, may in _rooms().items() for name in may if is_in(now, name) or is_in(name, now)} - found
    return found


IMPORT = re.compile(r"^ *(?:from ([\w.]+) import (.+)|import ([\w.]+))", re.MULTILINE)
HOMES = {"cdk_hyperpod": LIBRARY, "cdk_hyperpod_local": LOCAL_AWS}


@functools.cache
def imports(file: Path) -> frozenset[str]:
    """What a file of the tests imports, also by way of other files of theirs: paths without an ending."""
    found: set[str] = set()
    for base, names, module in IMPORT.findall(file.read_text("utf-8")):
        found |= {module or base, *(f"{base}.{name}" for name in re.findall(r"\w+", names))}
    parts = [name.split(".") for name in found]
    paths = {"/".join([HOMES.get(top, top), *rest]) for top, *rest in parts}
    fixtures = (above / "conftest.py" for above in file.parents if TESTS in above.parents)
    ours = {*(TESTS / f"{path}.py" for path in paths), *fixtures} - {file}
    return frozenset(paths.union(*(imports(each) for each in ours if each.is_file())))


def touched(changed: list[str]) -> tuple[set[str], set[str]]:
    """The lanes that changed files touch, and the test files of other lanes."""
    rooms = {room_of(path) for path in changed}
    above = set[str]().union(*map(importers, rooms))
    lanes = {lane_of(each) or "" for each in {*changed, *above}}
    files = {str(file.relative_to(ROOT)): file for file in TESTS.rglob("test_*.py")}
    others = [path for path in files if lane_of(path) not in lanes and not is_apart(path)]
    # `import cdk_hyperpod` leads to each room of the library.
    library = {LIBRARY} if "library" in lanes else set[str]()
    return lanes, {
        path for path in others if any(is_in(each, *rooms, *above) or each in library for each in imports(files[path]))
    }


def changed_since(ref: str) -> list[str]:
    """The files that differ from where this branch left `ref`, committed or not."""
    git = functools.partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False)
    done = git(["git", "diff", "--name-only", "--no-renames", "--merge-base", "--end-of-options", ref])
    if done.returncode:
        known = git(
            ["git", "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes", "refs/tags"]
        ).stdout.split()
        raise SystemExit(f"CHANGED={ref}: git finds no such commit; give one, or {', '.join(known)}")
    return [*done.stdout.splitlines(), *git(["git", "ls-files", "--others", "--exclude-standard"]).stdout.splitlines()]


def chosen(lane: str, ref: str) -> tuple[list[str], str]:
    """What to run, and why."""
    if lane and (ref or lane not in LANES):
        raise SystemExit(f"LANE={lane}: give one of {', '.join(LANES)}, and no CHANGED beside it")
    if lane:
        return tests_of(lane), f"the lane {lane}: {' '.join(tests_of(lane))}"
    if not (changed := changed_since(ref)):
        return [], f"no test: nothing has changed since {ref}"
    if shared := [path for path in changed if lane_of(path) is None]:
        return ["tests"], f"all tests: {shared[0]} has changed since {ref}, and is part of every lane"
    lanes, files = touched(changed)
    tests = sorted({*files, *OF_ALL_FILES, *(test for each in lanes for test in tests_of(each))})
    first = f"{', '.join(changed[:3])}{' and others' * (len(changed) > 3)}"
    more = f", and {len(files)} files of others that import it" if files else ""
    return tests, f"{first} has changed since {ref}: lanes {', '.join(sorted(lanes))}, {OF_ALL_FILES[0]}{more}"


if __name__ == "__main__":
    tests, why = chosen(*sys.argv[1:])
    print(f"· {why}", file=sys.stderr)
    print(*tests)
