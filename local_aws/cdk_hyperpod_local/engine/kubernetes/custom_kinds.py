"""The kinds that other software brings to a cluster, as CRDs with small, strict schemas, which find misspelt fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi

Json = Any
TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": "array", "items": TEXT}
WHOLE: Json = {"type": "integer"}
ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def an_object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    found: Json = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def definition(group: str, name: str, plural: str, spec: Json, *, namespaced: bool) -> Json:
    """The CRD of a kind with one version, v1. Its status has no schema."""
    schema = an_object(("spec",), apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=spec, status=ANYTHING)
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": name, "plural": plural, "singular": name.lower(), "listKind": f"{name}List"},
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [version],
        },
    }


def install(api: KubernetesApi, definitions: Iterable[Json]) -> None:
    """Create the CRDs. Existing ones do not change."""
    for item in definitions:
        status, answer = api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", item)
        if status not in (201, 409):
            raise RuntimeError(f"{item['metadata']['name']}: {answer}")
