"""What the wheel says that it needs: everything that its modules import. Other tests' environments have more than that."""

from __future__ import annotations

import ast
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement

from helpers.synthesis import ROOT

SOURCES = (ROOT / "constructs", ROOT / "local_aws", ROOT / "stacks")
ELSEWHERE = ("cdk_hyperpod/_lambda", "cdk_hyperpod_local/engine")
"""What runs in AWS Lambda, and in the engine's own environment, which has a lock of its own."""
OURS = ("cdk_hyperpod", "cdk_hyperpod_local", "stacks")
# What is imported -> the requirement that brings it, and the extra that it belongs to; "": it is always there.
BROUGHT = {
    "aws_cdk": ("aws-cdk-lib", ""),
    "boto3": ("boto3", ""),
    "botocore": ("boto3", ""),
    "click": ("rich-click", ""),
    "constructs": ("constructs", ""),
    "jsii": ("aws-cdk-lib", ""),
    "rich": ("rich-click", ""),
    "rich_click": ("rich-click", ""),
    "ruamel": ("ruamel-yaml", ""),
    "uv": ("uv", "local"),
    "yaml": ("pyyaml", ""),
}


def test_the_wheel_needs_what_its_modules_import(wheel: Path) -> None:
    imported = {module for file in modules() for module in third_party(file)}
    assert imported <= BROUGHT.keys(), "write here which requirement brings them"
    assert {"aws_cdk", "boto3", "rich_click", "ruamel", "uv", "yaml"} <= imported
    assert {BROUGHT[module] for module in imported} <= needed(wheel)


def needed(wheel: Path) -> set[tuple[str, str]]:
    """Each requirement of the wheel with its extra."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    extras = ["", *(metadata.get_all("Provides-Extra") or ())]
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist") or ()]
    return {(_plain(each.name), _extra(each, extras)) for each in found}


def _extra(requirement: Requirement, extras: list[str]) -> str:
    marker = requirement.marker
    return next(extra for extra in extras if marker is None or marker.evaluate({"extra": extra}))


def _plain(name: str) -> str:
    return name.lower().replace(".", "-").replace("_", "-")


def modules() -> Iterator[Path]:
    """Of the two packages and the stacks: whatever runs where the wheel is installed."""
    for file in (file for folder in SOURCES for file in folder.rglob("*.py")):
        place = file.relative_to(ROOT).as_posix().partition("/")[2]
        if not place.startswith(ELSEWHERE):
            yield file


def third_party(file: Path) -> Iterator[str]:
    """The packages of others that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for top in (name.split(".")[0] for name in names):
            if top not in OURS and top not in sys.stdlib_module_names:
                yield top
