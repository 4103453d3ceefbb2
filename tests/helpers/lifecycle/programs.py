"""The programs of lifecycle/, to test their decisions. Steps begin with a number, so no import statement finds them."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from cdk_hyperpod._common.assets import drain_protocol
from lifecycle import provision

LIFECYCLE = Path(provision.__file__).parent
FILES = [*sorted(LIFECYCLE.rglob("*.py")), drain_protocol()]
"""All Python code on nodes."""


def load(path: str) -> ModuleType:
    """A program, or a module of a package, by its path in lifecycle/, with its imports from there."""
    # Nodes have it beside the programs.
    _load(drain_protocol().stem, drain_protocol())
    sys.path.insert(0, str(LIFECYCLE))
    try:
        if (LIFECYCLE / path).with_name("__init__.py").exists():
            return importlib.import_module(path.removesuffix(".py").replace("/", "."))
        return _load(f"node_{Path(path).stem}", LIFECYCLE / path)
    finally:
        sys.path.remove(str(LIFECYCLE))


def _load(name: str, file: Path) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@cache
def pythons() -> list[str]:
    """This Python, and one of the nodes' version if it is on this machine. pyenv may have a python3.8 that does not
    run."""
    found = [shutil.which("python3.8"), *map(str, Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8"))]
    runs = (
        path
        for path in found
        if path and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
    )
    return [sys.executable, *itertools.islice(runs, 1)]
