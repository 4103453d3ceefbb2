"""Cloud assemblies: their stacks, and how a template is changed after synthesis."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cdk_hyperpod_local import environment

Json = Any
_OPEN = ("unknown-account", "unknown-region")
"""The manifest's values for a stack without an account or Region."""


_WARNING = "aws:cdk:warning"
_ACKNOWLEDGED_BY = re.compile(r"\s*\[ack: [^\]]*\]\s*$")


@dataclass(frozen=True, kw_only=True)
class Stack:
    name: str
    account: str
    region: str
    template: Path


def stacks(assembly: Path) -> tuple[Stack, ...]:
    """The stacks of a cloud assembly.

    A stack without an account or Region gets those of the other stacks. If no stack has one, it gets the engine's own
    account and us-east-1.
    """
    found = _as_synthesized(assembly)
    account = next((stack.account for stack in found if stack.account != _OPEN[0]), environment.ACCOUNT)
    region = next((stack.region for stack in found if stack.region != _OPEN[1]), "us-east-1")
    return tuple(
        replace(
            stack,
            account=account if stack.account == _OPEN[0] else stack.account,
            region=region if stack.region == _OPEN[1] else stack.region,
        )
        for stack in found
    )


def warnings(assembly: Path) -> list[str]:
    """`PATH: warning` of each construct, without the ids that acknowledge them. The path begins with the stack's name."""
    manifest: dict[str, Json] = json.loads((assembly / "manifest.json").read_text("utf-8"))
    found: list[str] = []
    for artifact in manifest["artifacts"].values():
        if artifact["type"] == "cdk:cloud-assembly":  # a Stage
            found += warnings(assembly / artifact["properties"]["directoryName"])
        more = artifact.get("additionalMetadataFile")
        by_path = artifact.get("metadata") or (json.loads((assembly / more).read_text("utf-8")) if more else {})
        found += [
            f"{path.removeprefix('/')}: {_ACKNOWLEDGED_BY.sub('', entry['data'])}"
            for path, entries in by_path.items()
            for entry in entries
            if entry["type"] == _WARNING
        ]
    return list(dict.fromkeys(found))


def _as_synthesized(assembly: Path) -> list[Stack]:
    manifest: dict[str, Json] = json.loads((assembly / "manifest.json").read_text("utf-8"))
    found: list[Stack] = []
    for artifact_id, artifact in manifest["artifacts"].items():
        if artifact["type"] == "cdk:cloud-assembly":  # a Stage
            found += _as_synthesized(assembly / artifact["properties"]["directoryName"])
        if artifact["type"] != "aws:cloudformation:stack":
            continue
        account, region = artifact["environment"].removeprefix("aws://").split("/")
        found.append(
            Stack(
                name=artifact["properties"].get("stackName", artifact_id),
                account=account,
                region=region,
                template=assembly / artifact["properties"]["templateFile"],
            )
        )
    return found


def unanswered(assembly: Path) -> set[str]:
    """The accounts in which the app looks something up that the CLI could not answer. Empty if the app made no assembly."""
    manifest = assembly / "manifest.json"
    if not manifest.is_file():
        return set()
    content: dict[str, Json] = json.loads(manifest.read_text("utf-8"))
    found = {str(each["props"]["account"]) for each in content.get("missing", [])}
    for artifact in content["artifacts"].values():
        if artifact["type"] == "cdk:cloud-assembly":  # a Stage
            found |= unanswered(assembly / artifact["properties"]["directoryName"])
    return found


def are_equal(one: Path, other: Path) -> bool:
    """Whether two assemblies deploy the same stacks, templates and assets. Their reports and lookups may differ."""
    return _deployed(one) == _deployed(other)


def _deployed(assembly: Path) -> dict[str, bytes]:
    files = [*assembly.glob("manifest.json"), *assembly.rglob("*.template.json"), *assembly.rglob("*.assets.json")]
    return {str(path.relative_to(assembly)): path.read_bytes() for path in files}


def template(assembly: Path, stack: str) -> Json:
    """The stack's template."""
    return json.loads(_path(assembly, stack).read_text("utf-8"))


def edit_template(assembly: Path, stack: str, change: Callable[[Json], None]) -> None:
    """Change a stack's template in place, and its hash, so that the CLI uploads it."""
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
