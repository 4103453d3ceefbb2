"""Writes the files that are made from the code: the JSON schema, both references, the messages, and the nodes' list of
types.

`make docs` runs it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cdk_hyperpod.config.schema import json_schema, reference
from cdk_hyperpod.facts.instance_types import catalogue

# `make docs` runs this file, and a test imports it. Both must find the modules beside it.
ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from tools import api_page, messages_page


def generated() -> dict[Path, str]:
    """Each file and its content."""
    return {
        ROOT / "cluster.schema.json": json.dumps(json_schema(), indent=1) + "\n",
        ROOT / "docs" / "reference.md": reference(),
        ROOT / "docs" / "api.md": api_page.page(),
        ROOT / "docs" / "messages.md": messages_page.page(),
        ROOT / "lifecycle" / "devices.json": devices(),
    }


def devices() -> str:
    """What step `checks` expects of a node of each type, one type a line."""
    lines = []
    for name, kind in catalogue().items():
        counts: dict[str, int] = {} if kind.accelerator_kind is None else {kind.accelerator_kind: kind.accelerators}
        counts |= {"efa": kind.efa_interfaces} if kind.has_efa else {}
        lines.append(f"{json.dumps(name)}: {json.dumps(counts)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
