"""The programs of lifecycle/, to test their decisions: steps begin with a number, so no import statement finds them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from lifecycle import provision

LIFECYCLE = Path(provision.__file__).parent


def load(path: str) -> ModuleType:
    """A program by its path in lifecycle/, with what it imports from there."""
    name = f"node_{Path(path).stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, LIFECYCLE / path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        sys.path.insert(0, str(LIFECYCLE))
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(LIFECYCLE))
    return sys.modules[name]
