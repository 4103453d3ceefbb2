"""Counts the calls from Python to Node (jsii) during synthesis, by kind. `make bench` prints them for the default
cluster's app.py.

Calls are counted and not timed, so that results of different machines can be compared.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import app

KINDS = {"create": "objects made", "get": "properties read", "set": "properties set", "invoke": "methods called"}


def main() -> None:
    """Run app.py, or another program, and print the calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", type=Path, default=ROOT / "app.py", help="default: app.py")
    parser.add_argument("--by-name", action="store_true", help="also print the called functions")
    options = parser.parse_args()
    app.use_project_node()
    os.environ["CDK_VALIDATION"] = "false"
    from jsii._kernel.providers.process import ProcessProvider

    calls: Counter[tuple[str, str]] = Counter()

    def count(name: str, kind: str) -> None:
        call = getattr(ProcessProvider, name)

        def counted(self: Any, request: Any) -> Any:
            of = getattr(request, "fqn", None) or request.objref.ref.split("@")[0]
            member = getattr(request, "method", None) or getattr(request, "property", None) or ""
            calls[kind, f"{of} {member}"] += 1
            return call(self, request)

        setattr(ProcessProvider, name, counted)

    for kind in KINDS:
        count(kind, kind)
        if kind != "create":
            count(f"s{kind}", kind)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CDK_OUTDIR"] = folder
        try:
            runpy.run_path(str(options.program), run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
    print(f"\ncalls into Node by {options.program.name}: {calls.total()}\n")
    for kind, words in KINDS.items():
        print(f"  {words:<16}{sum(number for (of, _), number in calls.items() if of == kind):>5}")
    if options.by_name:
        print("\n".join(f"  {number:>5}  {kind} {name}" for (kind, name), number in calls.most_common()))


if __name__ == "__main__":
    main()
