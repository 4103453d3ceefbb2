"""How often synthesis calls Node: every call of the default cluster's app.py across jsii, by kind. `make bench` prints it.

Calls are counted, not timed, so that two machines, and two days, can be compared.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import app

KINDS = {"create": "objects made", "get": "properties read", "set": "properties set", "invoke": "methods called"}


def main() -> int:
    """Synthesize, and print the calls; `--by-name` prints what was called, too."""
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
        code = app.main()
    print(f"\ncalls into Node for the default cluster: {calls.total()}\n")
    for kind, words in KINDS.items():
        print(f"  {words:<16}{sum(number for (of, _), number in calls.items() if of == kind):>5}")
    if "--by-name" in sys.argv:
        print("\n".join(f"  {number:>5}  {kind} {name}" for (kind, name), number in calls.most_common()))
    return code


if __name__ == "__main__":
    sys.exit(main())
