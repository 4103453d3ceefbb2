"""Pins the API models of the Lambda functions and of the command line: the operations they call, cut from the locked botocore.

The Lambda runtime's own botocore lags behind: it drops response members that it does not know and rejects request members
that it does not know. The pinned model comes first on botocore's data path (botocore.loaders, "The data path"), and being
small it also makes the client quicker to build. A user's boto3 may lag behind too, so the commands pin SageMaker's model, and
take all else from it. Run `python tools/trim_model.py` after botocore moved in the lock file;
a test fails until the committed files are what this tool makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from botocore.loaders import Loader  # type: ignore[import-untyped]

FOLDER = Path(__file__).parent.parent / "constructs" / "cdk_hyperpod" / "_lambda" / "models"

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "sagemaker": (
        "BatchDeleteClusterNodes",
        "DescribeCluster",
        "DescribeClusterNode",
        "DescribeClusterOperation",
        "ListClusterNodes",
        "ListClusterOperations",
        "ListTags",
        "UpdateCluster",
    ),
    "cloudformation": ("DescribeStackEvents", "DescribeStacks", "GetTemplate", "ListStackResources"),
    "ec2": ("DescribeSubnets",),
    "fsx": ("DescribeFileSystems",),
    "lambda": ("Invoke",),
    "s3": ("GetObject", "PutObject"),
}
"""What hyperpod_provider/api.py and foundation_guard/look.py declare, by service, and what `cdk-hyperpod plan` asks besides
(GetTemplate)."""

CLI_FOLDER = FOLDER.parent.parent / "cli" / "models"

CLI_OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "sagemaker": (
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
    ),
}
"""What the commands ask of HyperPod, which moves faster than users' boto3."""

AS_THEY_ARE = ("_retry", "partitions", "sdk-default-configuration")
"""Small tables that botocore may read for any client."""

LEFT_OUT = frozenset({"documentation", "documentationUrl", "examples"})
"""Members of a model that only people read."""

Json = dict[str, Any]


def make() -> dict[str, str]:
    """Path below the models' folder -> content. The same botocore gives the same bytes."""
    loader = Loader()
    files: dict[str, Json] = {
        "endpoints.json": trim_endpoints(loader.load_data("endpoints")),
        **{f"{name}.json": loader.load_data(name) for name in AS_THEY_ARE},
    }
    for service, operations in OPERATIONS.items():
        version = loader.determine_latest_version(service, "service-2")
        folder = f"{service}/{version}"
        files[f"{folder}/service-2.json"] = trim(loader.load_service_model(service, "service-2"), operations)
        files[f"{folder}/endpoint-rule-set-1.json"] = loader.load_service_model(service, "endpoint-rule-set-1")
    return {path: json.dumps(content, indent=1, sort_keys=True) + "\n" for path, content in sorted(files.items())}


def make_for_commands() -> dict[str, str]:
    """Path below the commands' folder -> content."""
    loader = Loader()
    files = {}
    for service, operations in CLI_OPERATIONS.items():
        version = loader.determine_latest_version(service, "service-2")
        content = trim(loader.load_service_model(service, "service-2"), operations)
        files[f"{service}/{version}/service-2.json"] = json.dumps(content, indent=1, sort_keys=True) + "\n"
    return files


def trim(model: Mapping[str, Any], operations: Iterable[str]) -> Json:
    """The model with these operations and the shapes that they reach."""
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
    """A copy without documentation. A member may be called like it (its value is then a shape reference), so only texts go."""
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


def trim_endpoints(endpoints: Mapping[str, Any]) -> Json:
    """botocore's table of endpoints with our services alone: 1.3 MB of it are read for every client otherwise."""
    names = {"api.sagemaker", *OPERATIONS}
    partitions = [
        {**partition, "services": {name: entry for name, entry in partition["services"].items() if name in names}}
        for partition in endpoints["partitions"]
    ]
    return {**endpoints, "partitions": partitions}


def main() -> None:
    """Write the files, and remove what an earlier version made."""
    for folder, files in ((FOLDER, make()), (CLI_FOLDER, make_for_commands())):
        stale = {str(path.relative_to(folder)) for path in folder.rglob("*.json")} - files.keys()
        for name in stale:
            (folder / name).unlink()
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            print(f"{len(content):>9,} bytes  {path}")


if __name__ == "__main__":
    main()
