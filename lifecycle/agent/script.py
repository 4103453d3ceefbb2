"""The script of a backup's job. Slurm takes one file, and none of our files is on the node, so the script contains all of backup/."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("backup")
FILES = {f"backup.{path.stem}": path.read_text("utf-8") for path in sorted(FOLDER.glob("*.py"))}
"""By module name. They are read when the agent starts, so that a job never gets files of two versions during an installation."""
FILES["backup"] = FILES.pop("backup.__init__")
PROGRAM = f'''\
#!/usr/bin/env python3
"""The backup of a node (cdk-hyperpod)."""

import importlib.abc
import importlib.util
import json
import sys

FILES = {FILES!r}


class Loader(importlib.abc.ExecutionLoader):
    """Imports the modules that this script holds."""

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in FILES else None

    def is_package(self, name):
        return name == "backup"

    def get_filename(self, name):
        return name.replace(".", "/") + ".py"

    def get_source(self, name):
        return FILES[name]


sys.meta_path.insert(0, Loader())

from backup.job import main
'''


def make_script(order: Mapping[str, Any]) -> str:
    """The whole script, which carries out the order. The order is data in it, as it may contain names that users chose."""
    return f"{PROGRAM}\nraise SystemExit(main(json.loads({json.dumps(order)!r})))\n"
