"""Writes the default cluster's resources as a program of plain L1 classes, one call each, from its templates. `make bench`
runs it.

This is a program without a construct library, so `make bench` compares the library with it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import typing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from app import use_project_node

HEADER = f"""import os
import sys
from pathlib import Path

sys.path.insert(0, {str(ROOT)!r})

from app import use_project_node

use_project_node()

import aws_cdk as cdk
from aws_cdk import Fn, Stack
from aws_cdk import aws_s3_assets as s3_assets
"""


def words(name: str) -> str:
    """A name without case and separators, to match a property with its parameter."""
    return name.replace("_", "").lower()


def literal(value: Any) -> str:
    """A template value in Python, with intrinsic functions as calls."""
    match value:
        case {"Ref": str(name)}:
            return f"Fn.ref({name!r})"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"cdk.Token.as_string(Fn.get_att({name!r}, {attribute!r}))"
        case {"Fn::Join": [str(separator), [*parts]]}:
            return f"Fn.join({separator!r}, [{', '.join(map(literal, parts))}])"
        case {"Fn::Select": [int(index), items]}:
            return f"Fn.select({index}, {literal(items)})"
        case {"Fn::Split": [str(separator), text]}:
            return f"Fn.split({separator!r}, {literal(text)})"
        case {"Fn::Sub": str(text)}:
            return f"Fn.sub({text!r})"
        case {"Fn::GetStackOutput": _}:
            return f"cdk.Token.as_string({value!r})"
        case dict():
            return "{" + ", ".join(f"{key!r}: {literal(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(literal, value)) + "]"
        case _:
            return repr(value)


def struct_of(annotation: Any) -> type | None:
    """The property class in a parameter's type, if there is one."""
    for option in (annotation, *typing.get_args(annotation)):
        if inspect.isclass(option) and (option.__name__.endswith("Property") or option.__name__ == "CfnTag"):
            return option
        if option is not annotation and (found := struct_of(option)):
            return found
    return None


def argument(value: Any, annotation: Any, prefix: str) -> str:
    """A property's value for a parameter of this type, with nested property classes."""
    struct = struct_of(annotation)
    intrinsic = isinstance(value, dict) and any(key == "Ref" or key.startswith("Fn::") for key in value)
    if struct is None or intrinsic:
        return literal(value)
    if isinstance(value, list):
        return "[" + ", ".join(argument(item, annotation, prefix) for item in value) + "]"
    if not isinstance(value, dict):
        return literal(value)
    module = "cdk" if struct.__name__ == "CfnTag" else prefix
    return f"{module}.{struct.__qualname__}({arguments(value, struct, prefix)})"


def arguments(properties: dict[str, Any], kind: type, prefix: str) -> str:
    """Keyword arguments for all properties."""
    signature = inspect.signature(kind.__init__)  # type: ignore[misc]
    hints = typing.get_type_hints(kind.__init__)  # type: ignore[misc]
    names = {words(name): name for name in signature.parameters}
    return ", ".join(
        f"{names[words(key)]}={argument(value, hints.get(names[words(key)]), prefix)}"
        for key, value in properties.items()
    )


def resource_line(logical_id: str, resource: dict[str, Any]) -> str:
    """One resource as one statement."""
    kind, properties = resource["Type"], resource.get("Properties", {})
    if kind.startswith("Custom::"):
        return f"cdk.CfnResource(stack, {logical_id!r}, type={kind!r}, properties={literal(properties)})"
    _, service, name = kind.split("::")
    # CloudFormation's own types are in the package itself, which the program imports as cdk.
    module = "cdk" if service == "CloudFormation" else f"aws_{service.lower()}"
    package = "aws_cdk" if module == "cdk" else f"aws_cdk.{module}"
    l1 = getattr(importlib.import_module(package), f"Cfn{name}")
    return f"{module}.{l1.__name__}(stack, {logical_id!r}, {arguments(properties, l1, module)})"


def main(assembly: Path, program: Path) -> None:
    """Read a cloud assembly's templates, and write the program that creates the same resources."""
    use_project_node()
    body: list[str] = []
    modules: set[str] = set()
    for path in sorted(assembly.glob("*.template.json")):
        template = json.loads(path.read_text("utf-8"))
        name = path.name.removesuffix(".template.json")
        body.append(f"stack = Stack(app, {name!r}, analytics_reporting=False)")
        for logical_id, resource in template["Resources"].items():
            line = resource_line(logical_id, resource)
            if line.startswith("aws_"):
                modules.add(line.split(".")[0])
            variable = f"resource = {line}"
            body.append(variable + f"\nresource.override_logical_id({logical_id!r})")
    # The same files are uploaded: the scripts, and the code of CDK's functions.
    body.append("for path in sorted(Path(os.environ['BENCH_ASSETS']).glob('asset.*')):")
    body.append("    s3_assets.Asset(stack, path.name, path=str(path))")
    imports = "\n".join(f"from aws_cdk import {module}" for module in sorted(modules))
    program.write_text(
        f"{HEADER}{imports}\n\napp = cdk.App(outdir=os.environ['CDK_OUTDIR'], analytics_reporting=False)\n"
        + "\n".join(body)
        + "\napp.synth()\n",
        "utf-8",
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
