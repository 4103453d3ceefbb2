"""Cloud assemblies: what is in them, and templates that are changed after synthesis."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdk_hyperpod_local import environment

Json = Any


@dataclass(frozen=True, kw_only=True)
class Stack:
    name: str
    account: str
    region: str
    template: Path


def stacks(assembly: Path) -> tuple[Stack, ...]:
    """The stacks of a cloud assembly. What it leaves open is the engine's own account and the region us-east-1."""
    manifest: dict[str, Json] = json.loads((assembly / "manifest.json").read_text("utf-8"))
    found: list[Stack] = []
    for artifact_id, artifact in manifest["artifacts"].items():
        if artifact["type"] == "cdk:cloud-assembly":  # of a Stage
            found += stacks(assembly / artifact["properties"]["directoryName"])
        if artifact["type"] != "aws:cloudformation:stack":
            continue
        account, region = artifact["environment"].removeprefix("aws://").split("/")
        found.append(
            Stack(
                name=artifact["properties"].get("stackName", artifact_id),
                account=environment.ACCOUNT if account == "unknown-account" else account,
                region="us-east-1" if region == "unknown-region" else region,
                template=assembly / artifact["properties"]["templateFile"],
            )
        )
    return tuple(found)


def are_equal(one: Path, other: Path) -> bool:
    """Whether two assemblies deploy the same: stacks, templates and assets. What was measured or found may differ."""
    return _deployed(one) == _deployed(other)


def _deployed(assembly: Path) -> dict[str, bytes]:
    files = [*assembly.glob("manifest.json"), *assembly.rglob("*.template.json"), *assembly.rglob("*.assets.json")]
    return {str(path.relative_to(assembly)): path.read_bytes() for path in files}


def template(assembly: Path, stack: str) -> Json:
    """A stack's template."""
    return json.loads(_path(assembly, stack).read_text("utf-8"))


def edit_template(assembly: Path, stack: str, change: Callable[[Json], None]) -> None:
    """Change a stack's template in place, under a new hash, so that the CLI uploads it."""
    path = _path(assembly, stack)
    old = hashlib.sha256(path.read_bytes()).hexdigest()
    edited = json.loads(path.read_text("utf-8"))
    change(edited)
    path.write_text(json.dumps(edited, indent=1), "utf-8")
    new = hashlib.sha256(path.read_bytes()).hexdigest()
    for file in assembly.glob("*.json"):
        text = file.read_text("utf-8")
        if old in text:
            file.write_text(text.replace(old, new), "utf-8")


def _path(assembly: Path, stack: str) -> Path:
    (found,) = (item.template for item in stacks(assembly) if item.name == stack)
    return found
