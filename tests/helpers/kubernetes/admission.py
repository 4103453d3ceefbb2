"""ValidatingAdmissionPolicies as the API server evaluates them, with a real CEL engine: CI's API server is 1.20 and has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cel

from cdk_hyperpod.kubernetes.manifests import Manifest


def evaluated(spec: Manifest, context: dict[str, Any]) -> list[str]:
    """The messages of the validations that fail. The context has `object`, `request`, and what else the expressions name."""
    context["variables"] = {}
    if not all(cel.evaluate(item["expression"], context) for item in spec["matchConditions"]):
        return []
    for variable in spec["variables"]:
        context["variables"][variable["name"]] = cel.evaluate(variable["expression"], context)
    return [item["message"] for item in spec["validations"] if not cel.evaluate(item["expression"], context)]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to the API server, in the policies' namespace. `plural` may have a subresource: `deployments/scale`."""

    operation: str
    group: str
    plural: str
    manifest: Manifest
    groups: Sequence[str]
    old: Manifest | None = None
    name: str = ""


def refused(policies: Iterable[Manifest], request: Request, objects: Sequence[Manifest] = ()) -> list[str]:
    """The messages of all policies that match. `objects`: those of the namespace, which a policy may name as its parameters."""
    asked = {
        "operation": request.operation,
        "name": request.name or request.manifest.get("metadata", {}).get("name", ""),
        "userInfo": {"username": "somebody", "groups": [*request.groups]},
    }
    context = {"object": request.manifest, "oldObject": request.old, "request": asked}
    messages = []
    for policy in policies:
        spec = policy["spec"]
        if not any(_matches(rule, request) for rule in spec["matchConstraints"]["resourceRules"]):
            continue
        kind = spec.get("paramKind", {}).get("kind")
        several = [{}] if kind is None else [{"params": each} for each in objects if each["kind"] == kind]
        messages += [message for more in several for message in evaluated(spec, {**context, **more})]
    return messages


def _matches(rule: Manifest, request: Request) -> bool:
    return (
        request.group in rule["apiGroups"]
        and request.plural in rule["resources"]
        and request.operation in rule["operations"]
    )
