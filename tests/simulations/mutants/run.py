"""Small faults in one module of the functions, one at a time, in a copy of the project: `make mutants`.

cosmic-ray changes the copy and runs the tests. A fault that no test notices has survived: write a test of the
behaviour, or delete the code. Excluded is code without an effect at run time: annotations, arguments of decorators, the
`*` before keywords, and `is` instead of `==`, which are the same for texts and numbers.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
WORK = ROOT / ".mutants"
COPY = WORK / "copy"
FUNCTIONS = Path("constructs/cdk_hyperpod/_lambda/hyperpod")
LIFETIMES = "tests/simulations/test_soak.py"
"""Last, because a row of a unit test finds most faults in seconds."""

IDENTITY = tuple(f"ReplaceComparisonOperator_{change}" for change in ("Eq_Is", "Is_Eq", "NotEq_IsNot", "IsNot_NotEq"))

Position = tuple[int, int]
Span = tuple[Position, Position]


class Fault(NamedTuple):
    """One change of the code, and the result of the tests."""

    line: int
    outcome: str
    """cosmic-ray's word: killed, survived or incompetent (the tests could not be started). Empty: not tried."""
    late: bool
    """Killed because the tests did not end in time."""
    diff: str


def main() -> int:
    """Exit code 1: faults survived, or were not tried. 2: the tests fail without a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--module",
        default="scale_down/decide/planner",
        help="a module of the functions (default: scale_down/decide/planner)",
    )
    parser.add_argument("--share", type=float, default=20, help="percentage of its faults to try (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="another seed chooses others (default: 0)")
    parser.add_argument(
        "tests", nargs="*", help="what must notice them (default: the unit tests of its folder, and lifetimes)"
    )
    options = parser.parse_args()
    module = FUNCTIONS / f"{options.module}.py"
    if not (ROOT / module).is_file():
        found = (ROOT / FUNCTIONS).rglob("[!_]*.py")
        known = ", ".join(sorted(str(path.relative_to(ROOT / FUNCTIONS).with_suffix("")) for path in found))
        parser.error(f"--module: {options.module!r} is no module of the functions; name one of {known}")
    if not 0 < options.share <= 100:
        parser.error(f"--share: {options.share:g} is no percentage; give more than 0 and at most 100")
    tests = options.tests or nearest_tests(options.module)
    _copy()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    seconds = _without_faults(command)
    if seconds is None:
        return 2
    session, config = WORK / "session.sqlite", WORK / "session.toml"
    session.unlink(missing_ok=True)
    config.write_text(_configuration(module, command, timeout=max(60, 5 * seconds)), "utf-8")
    _cosmic_ray("init", config, session)
    with closing(sqlite3.connect(session)) as database, database:
        chosen, all_of_them = _choose(database, list(idle(ast.parse((COPY / module).read_text("utf-8")))), options)
    print(f"{chosen} of {all_of_them} faults in {module}; without a fault the tests take {seconds:.0f} s", flush=True)
    _cosmic_ray("exec", config, session)
    with closing(sqlite3.connect(session)) as database:
        faults = list(_tried(database))
    print("\n".join(report(module, faults)))
    return 0 if all(fault.outcome == "killed" for fault in faults) else 1


def nearest_tests(module: str) -> list[str]:
    """The unit tests of the module's folder, its own first, then lifetimes.

    The tests of the scale-down function cover common code, too.
    """
    folder, _, name = module.partition("/")
    folders = [folder, "scale_down"] if folder in ("common", "kernel") else [folder]
    found = [path for each in folders for path in sorted((ROOT / "tests/unit" / each).glob("test_*.py"))]
    found.sort(key=lambda path: path.stem != f"test_{name.rpartition('/')[2]}")
    return [*(str(path.relative_to(ROOT)) for path in found), LIFETIMES]


def report(module: Path, faults: Sequence[Fault]) -> Iterator[str]:
    """The surviving faults, by line and with the change, and the sums."""
    for fault in sorted(fault for fault in faults if fault.outcome != "killed"):
        yield f"{module}:{fault.line}: {fault.outcome or 'not tried'}"
        yield from (f"    {line}" for line in changed(fault.diff))
    killed = sum(fault.outcome == "killed" for fault in faults)
    survived = sum(fault.outcome == "survived" for fault in faults)
    late = sum(fault.late for fault in faults)
    other = len(faults) - killed - survived
    yield (
        f"{len(faults)} faults: {killed} killed"
        + (f" ({late} of them because the tests did not end)" if late else "")
        + f", {survived} survived"
        + (f", {other} not tried" if other else "")
    )


def changed(diff: str) -> list[str]:
    """The removed and added lines of a unified diff."""
    return [line for line in diff.splitlines() if line.startswith(("-", "+")) and not line.startswith(("---", "+++"))]


def idle(tree: ast.AST) -> Iterator[Span]:
    """Where annotations are (none is evaluated), the arguments of decorators (they configure a class), and the `*`
    before keywords (cosmic-ray treats it as a product)."""
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        match node:
            case ast.FunctionDef(args=ast.arguments(args=args, defaults=defaults, kwonlyargs=after)):
                parts = [node.returns, *node.decorator_list]
                if after:
                    before: list[ast.arg | ast.expr] = [*args, *defaults]
                    yield _end(before[-1]) if before else (node.lineno, 0), (after[0].lineno, after[0].col_offset)
            case ast.ClassDef():
                parts = [*node.decorator_list]
            case ast.arg() | ast.AnnAssign():
                parts = [node.annotation]
        for part in parts:
            if part is not None:
                yield (part.lineno, part.col_offset), _end(part)


def _end(node: ast.expr | ast.arg) -> Position:
    assert node.end_lineno is not None and node.end_col_offset is not None, "ast.parse tells it"
    return node.end_lineno, node.end_col_offset


def _copy() -> None:
    """The files in git, as they are in the work tree."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, COPY / name)


def _environment() -> dict[str, str]:
    """The copy comes before the project on Python's path."""
    path = os.pathsep.join(str(COPY / folder) for folder in ("constructs", "local_aws", "tests", "."))
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def _without_faults(command: Sequence[str]) -> float | None:
    """Seconds that the tests take on the unchanged copy; None if they fail, which would look like killed faults."""
    where = [sys.executable, "-c", "import cdk_hyperpod; print(cdk_hyperpod.__file__)"]
    imported = subprocess.run(where, cwd=COPY, env=_environment(), check=True, capture_output=True, text=True).stdout
    if not imported.startswith(str(COPY)):
        print(f"mutants: the tests would import {imported.strip()} and not the copy", file=sys.stderr)
        return None
    began = time.monotonic()
    done = subprocess.run(command, cwd=COPY, env=_environment(), check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"{done.stdout[-4000:]}{done.stderr[-1000:]}\nmutants: the tests fail without a fault", file=sys.stderr)
        return None
    return time.monotonic() - began


def _configuration(module: Path, command: Sequence[str], timeout: float) -> str:
    return (
        f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = {timeout:.1f}\nexcluded-modules = []\n'
        f'test-command = "{" ".join(command)}"\n[cosmic-ray.distributor]\nname = "local"\n'
    )


def _cosmic_ray(command: str, *arguments: Path) -> None:
    program = WORK / "venv" / "bin" / "cosmic-ray"
    subprocess.run([program, command, *map(str, arguments)], cwd=COPY, env=_environment(), check=True)


def _choose(database: sqlite3.Connection, spans: Sequence[Span], options: argparse.Namespace) -> tuple[int, int]:
    """Leave the share of the faults that the seed chooses; how many, of how many."""
    # Job ids are different each time.
    rows = database.execute(
        "select job_id, start_pos_row, start_pos_col, operator_name from mutation_specs"
        " order by start_pos_row, start_pos_col, operator_name, operator_args, occurrence"
    ).fetchall()
    jobs = [
        job
        for job, line, column, operator in rows
        if not operator.endswith(IDENTITY) and not any(begin <= (line, column) < end for begin, end in spans)
    ]
    chosen = set(random.Random(options.seed).sample(jobs, max(1, round(len(jobs) * options.share / 100))))
    others = [(job,) for job, *_ in rows if job not in chosen]
    database.executemany("delete from mutation_specs where job_id = ?", others)
    database.executemany("delete from work_items where job_id = ?", others)
    return len(chosen), len(jobs)


def _tried(database: sqlite3.Connection) -> Iterator[Fault]:
    rows = database.execute(
        "select start_pos_row, test_outcome, output, diff from mutation_specs left join work_results using (job_id)"
    )
    for line, outcome, output, diff in rows:
        yield Fault(line, str(outcome or "").lower(), output == "timeout", diff or "")


if __name__ == "__main__":
    sys.exit(main())
