"""Synthesizes templates in this process, and reads them: common to the tests of the CDK code.

Assets are hashed and not copied, so a template is the real one and takes a second instead of five.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk
import pytest
from aws_cdk import App, Environment, Stack

from cdk_hyperpod import load_config
from stacks import add_stacks

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "tests" / "helpers" / "configs"
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/cdk.json"))
CONTEXT: Mapping[str, Any] = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]

_HASH_ONLY = {"aws:cdk:disable-asset-staging": True}
_outdirs = tempfile.TemporaryDirectory(prefix="hyperpod-synth-")

Json = dict[str, Any]


class Template:
    """A synthesized template, as its JSON."""

    def __init__(self, body: Json) -> None:
        self.body = body

    @property
    def resources(self) -> dict[str, Json]:
        """Every resource by its logical id."""
        resources: dict[str, Json] = self.body.get("Resources", {})
        return resources

    def of(self, kind: str) -> dict[str, Json]:
        """The resources of a type by their logical id."""
        return {name: resource for name, resource in self.resources.items() if resource["Type"] == kind}

    def properties(self, kind: str) -> list[Json]:
        """The properties of each resource of a type."""
        return [resource.get("Properties", {}) for resource in self.of(kind).values()]

    def only(self, kind: str) -> Json:
        """The properties of the one resource of a type."""
        (properties,) = self.properties(kind)
        return properties

    def only_id(self, kind: str) -> str:
        """The logical id of the one resource of a type."""
        (name,) = self.of(kind)
        return name

    def groups(self) -> dict[str, Json]:
        """The instance groups of the one cluster, by name."""
        groups = self.only("AWS::SageMaker::Cluster")["InstanceGroups"]
        return {group["InstanceGroupName"]: group for group in groups}


def new_app(context: Mapping[str, Any] = CONTEXT, **more: Any) -> App:
    """An app as `python app.py` creates it, in a folder that is deleted with the process."""
    outdir = tempfile.mkdtemp(dir=_outdirs.name)
    return App(context={**context, **_HASH_ONLY, **more}, outdir=outdir, analytics_reporting=False)


def folder_of(app: App) -> Path:
    """The synthesized assembly's folder."""
    return Path(app.synth().directory)


def template_files(folder: Path) -> dict[str, str]:
    """Every stack's template in an assembly, by the stack's name."""
    return {
        path.name.removesuffix(".template.json"): path.read_text("utf-8")
        for path in sorted(folder.glob("*.template.json"))
    }


def templates_in(folder: Path) -> dict[str, Template]:
    """Every stack's template in an assembly."""
    return {name: Template(json.loads(text)) for name, text in template_files(folder).items()}


def of_stack(build: Callable[[Stack], object], *, region: str | None = "us-west-2", **context: Any) -> Template:
    """The template of one stack with the resources of `build`; region None: it is unknown at synth."""
    app = new_app(**context)
    stack = Stack(app, "Stack", env=None if region is None else Environment(region=region))
    build(stack)
    return templates_in(folder_of(app))["Stack"]


def of_text(text: str, folder: Path, **context: Any) -> dict[str, Template]:
    """The templates of a cluster file with this text, which is written into the folder."""
    path = folder / "cluster.yaml"
    path.write_text(text, "utf-8")
    app = new_app(**context)
    add_stacks(app, load_config(path))
    return templates_in(folder_of(app))


def of_file(path: Path) -> dict[str, Template]:
    """The templates of a cluster file, by stack name."""
    return templates_in(assembly_of_file(path))


@cache
def assembly_of_file(path: Path) -> Path:
    """The assembly of a cluster file."""
    app = new_app()
    add_stacks(app, load_config(path))
    return folder_of(app)


def of_example(name: str) -> dict[str, Template]:
    """The templates of an example."""
    return templates_in(assembly_of_example(name))


@cache
def assembly_of_example(name: str) -> Path:
    """The assembly of examples/<name>/app.py, run unchanged."""
    folder = ROOT / "examples" / name
    apps: list[App] = []

    def app_here() -> App:
        apps.append(new_app(json.loads((folder / "cdk.json").read_text("utf-8"))["context"]))
        return apps[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aws_cdk, "App", app_here)
        runpy.run_path(str(folder / "app.py"))
    (app,) = apps
    return folder_of(app)


def needs(template: Template, name: str) -> set[str]:
    """Everything that CloudFormation creates before a resource, and deletes after it."""
    found: set[str] = set()

    def visit(value: object) -> None:
        match value:
            case {"Ref": str(other)} | {"Fn::GetAtt": [str(other), str()]} if other in template.resources:
                if other not in found:
                    found.add(other)
                    visit(template.resources[other])
            case dict():
                for item in value.values():
                    visit(item)
                depends = value.get("DependsOn", [])
                for other in [depends] if isinstance(depends, str) else depends:
                    visit({"Ref": other})
            case list():
                for item in value:
                    visit(item)

    visit(template.resources[name])
    return found


def walk(value: Any) -> Iterator[Any]:
    """The value and everything in it."""
    yield value
    if isinstance(value, dict):
        for item in value.values():
            yield from walk(item)
    elif isinstance(value, list):
        for item in value:
            yield from walk(item)


def flat(value: Any) -> str:
    """A template's text with its references in angle brackets, for comparing texts."""
    match value:
        case {"Fn::Join": [str(separator), [*parts]]}:
            return separator.join(flat(part) for part in parts)
        case {"Ref": str(name)}:
            return f"<{name}>"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"<{name}.{attribute}>"
        case {"Fn::GetStackOutput": {"OutputName": str(name)}}:
            return f"<{name}>"
        case _:
            return str(value)


def filled(value: Any) -> Any:
    """A part of a template as it is deployed, with its references in angle brackets."""
    if isinstance(value, dict):
        late = len(value) == 1 and next(iter(value)).startswith(("Fn::", "Ref"))
        return flat(value) if late else {key: filled(item) for key, item in value.items()}
    return [filled(item) for item in value] if isinstance(value, list) else value


def run_app(outdir: Path, cwd: Path, **environment: str) -> Path:
    """The folder that `python app.py` synthesizes into."""
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "CDK_")) and key != "PYTHONPATH"
    }
    subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        cwd=cwd,
        env={**inherited, "CDK_OUTDIR": str(outdir), "CDK_VALIDATION": "false", **environment},
        check=True,
    )
    return outdir
