"""Writes what is made from the typed model: cluster.schema.json and docs/reference.md. `make docs` runs it."""

from __future__ import annotations

import json
from pathlib import Path

from cdk_hyperpod.schema import json_schema, reference

ROOT = Path(__file__).resolve().parent.parent


def generated() -> dict[Path, str]:
    """Each file and its content."""
    return {
        ROOT / "cluster.schema.json": json.dumps(json_schema(), indent=1) + "\n",
        ROOT / "docs" / "reference.md": reference(),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
