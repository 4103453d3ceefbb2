"""Pins SageMaker's API model: the operations that the Lambda functions and the commands call, cut from the locked
botocore.

The Lambda runtime's botocore, and a user's, may be older than HyperPod's API. An old botocore rejects unknown request
members, and drops unknown members of a reply. botocore finds the pinned model before its own (botocore.loaders, "The
data path"), and reads everything else from its own data. Run `python tools/trim_model.py` after the lock file has a new
botocore. A test fails until the committed file matches this tool's output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from botocore.loaders import Loader  # type: ignore[import-untyped]

FILE = (
    Path(__file__).resolve().parent.parent
    / "constructs/cdk_hyperpod/_lambda/hyperpod/common/models/sagemaker/2017-07-24/service-2.json"
)

OPERATIONS = (
    "BatchDeleteClusterNodes",
    "BatchRebootClusterNodes",
    "BatchReplaceClusterNodes",
    "DescribeCluster",
    "DescribeClusterEvent",
    "DescribeClusterNode",
    "DescribeClusterOperation",
    "DescribeTrainingPlan",
    "ListClusterEvents",
    "ListClusterNodes",
    "ListClusterOperations",
    "ListClusters",
    "ListTags",
    "UpdateCluster",
    "UpdateClusterSoftware",
)

LEFT_OUT = frozenset({"documentation", "documentationUrl", "examples"})
"""Members of a model that only people read."""

Json = dict[str, Any]


def make() -> str:
    """The file's text, with each operation and each shape on a line. The same botocore gives the same bytes."""
    model = trim(Loader().load_service_model("sagemaker", "service-2", FILE.parent.name), OPERATIONS)
    parts = (f'"{name}": {{\n{_lines(model[name])}\n}}' for name in ("metadata", "operations", "shapes"))
    return "{\n" + ",\n".join([*parts, f'"version": {json.dumps(model["version"])}']) + "\n}\n"


def _lines(members: Json) -> str:
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(members[name], sort_keys=True)}" for name in sorted(members))


def trim(model: Mapping[str, Any], operations: Iterable[str]) -> Json:
    """The model with these operations and the shapes that they use."""
    kept = {name: _without_prose(model["operations"][name]) for name in sorted(operations)}
    shapes: Json = {}
    left = _shapes_of(kept)
    while left:
        name = left.pop()
        if name not in shapes:
            shapes[name] = _without_prose(model["shapes"][name])
            left |= _shapes_of(shapes[name])
    metadata = model["metadata"]
    return {"version": model["version"], "metadata": metadata, "operations": kept, "shapes": shapes}


def _without_prose(value: Any) -> Any:
    """A copy without documentation.

    A member may have the same name (its value is then a shape reference), so only texts are removed.
    """
    match value:
        case dict():
            return {
                key: _without_prose(item)
                for key, item in value.items()
                if not (key in LEFT_OUT and isinstance(item, str))
            }
        case list():
            return [_without_prose(item) for item in value]
        case _:
            return value


def _shapes_of(value: Any) -> set[str]:
    """Names of the shapes that a part of a model refers to."""
    match value:
        case dict():
            found = set().union(*(_shapes_of(item) for item in value.values())) if value else set()
            shape = value.get("shape")
            return found | {shape} if isinstance(shape, str) else found
        case list():
            return set().union(*(_shapes_of(item) for item in value)) if value else set()
        case _:
            return set()


def main() -> None:
    """Write the file."""
    FILE.write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
