"""Writes docs/bootstrap/*.json: what CloudFormation needs to deploy our templates, and no more.

    make docs

The permissions are those that each resource type's handlers declare in the CloudFormation registry, as cfn-lint ships
it, for every type in the templates of a cloud assembly. IAM limits a managed policy to 6,144 characters, so there are
several; `cdk bootstrap --cloudformation-execution-policies` takes their ARNs, up to ten (docs/deploying.md).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cfnlint  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "bootstrap"
SCHEMAS = Path(cfnlint.__file__).parent / "data" / "schemas"
REGION = "us-west-2"
LIMIT = 6144

# Names that CloudFormation gives our resources begin with the stack's, and the stacks' with hyperpod-.
SCOPES = {
    "iam": ["arn:*:iam::*:role/hyperpod-*", "arn:*:iam::*:policy/hyperpod-*", "arn:*:iam::*:role/aws-service-role/*"],
    "lambda": ["arn:*:lambda:*:*:function:hyperpod-*", "arn:*:lambda:*:*:layer:*"],
    "s3": [
        "arn:*:s3:::hyperpod-*",
        "arn:*:s3:::hyperpod-*/*",
        "arn:*:s3:::sagemaker-*",
        "arn:*:s3:::sagemaker-*/*",
        "arn:*:s3:::cdk-*-assets-*",
        "arn:*:s3:::cdk-*-assets-*/*",
    ],
    "states": ["arn:*:states:*:*:stateMachine:*"],
    "ssm": ["arn:*:ssm:*:*:parameter/cdk-bootstrap/*"],
}
# What a deployment needs beyond its resource types: the bootstrap version, the functions' code, custom resources.
ALWAYS = {"ssm:GetParameters", "ssm:GetParameter", "s3:GetObject", "lambda:InvokeFunction"}


def resource_types(assembly: Path) -> list[str]:
    """Every resource type in an assembly's templates, without custom resources."""
    found = {
        str(resource["Type"])
        for path in assembly.glob("*.template.json")
        for resource in json.loads(path.read_text("utf-8"))["Resources"].values()
    }
    return sorted(kind for kind in found if kind.startswith("AWS::"))


def handler_permissions(kind: str) -> set[str]:
    """What a type's handlers declare that they call."""
    provider = json.loads((SCHEMAS / "providers" / f"{REGION}.json").read_text("utf-8"))
    schema = json.loads((SCHEMAS / "resources" / f"{provider[kind]}.json").read_text("utf-8"))
    handlers: dict[str, dict[str, Any]] = schema.get("handlers", {})
    return {permission for handler in handlers.values() for permission in handler.get("permissions", [])}


def statements(permissions: Iterable[str]) -> list[dict[str, Any]]:
    """A statement for each service, on our names where the service's names are ours to give."""
    by_service: dict[str, list[str]] = {}
    for permission in sorted({permission[0].lower() + permission[1:] for permission in permissions}):
        by_service.setdefault(permission.split(":")[0].lower(), []).append(permission)
    made = []
    for service, actions in sorted(by_service.items()):
        passing = [action for action in actions if action == "iam:PassRole"]
        others = [action for action in actions if action not in passing]
        if others:
            made.append({"Effect": "Allow", "Action": others, "Resource": SCOPES.get(service, "*")})
        if passing:
            made.append({"Effect": "Allow", "Action": passing, "Resource": "arn:*:iam::*:role/hyperpod-*"})
    return made


def policies(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As few policies as hold the statements; IAM counts characters without white space."""
    made: list[dict[str, Any]] = []
    for part in parts:
        if made and len(compact({"Version": "2012-10-17", "Statement": [*made[-1]["Statement"], part]})) <= LIMIT:
            made[-1]["Statement"].append(part)
        else:
            made.append({"Version": "2012-10-17", "Statement": [part]})
    return made


def compact(policy: dict[str, Any]) -> str:
    """A policy as IAM counts it."""
    return json.dumps(policy, separators=(",", ":"))


def generated(assembly: Path) -> dict[Path, str]:
    """Each file and its content."""
    permissions = ALWAYS.union(*(handler_permissions(kind) for kind in resource_types(assembly)))
    return {
        TARGET / f"execution-policy-{number}.json": json.dumps(policy, indent=1) + "\n"
        for number, policy in enumerate(policies(statements(permissions)), 1)
    }


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    for path, text in generated(Path(sys.argv[1])).items():
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
