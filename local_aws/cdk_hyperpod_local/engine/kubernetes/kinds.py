"""The kinds of the recording API: Kubernetes' own with their published schemas, and those that a CRD defines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

Json = Any

_CLUSTER_SCOPED = {
    "APIService", "CSIDriver", "CSINode", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding",
    "CustomResourceDefinition", "DeviceClass", "FlowSchema", "IPAddress", "IngressClass", "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume",
    "PriorityClass", "PriorityLevelConfiguration", "ResourceSlice", "RuntimeClass", "ServiceCIDR", "StorageClass",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
    "VolumeAttachment",
}  # fmt: skip
_PLURALS = {"Endpoints": "endpoints"}
_MOST_REPORTED = 5


@dataclass(frozen=True)
class Kind:
    group: str
    version: str
    name: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class Kinds:
    """`folder`: the strict schemas of one version, from the package kubernetes-validate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._definitions: dict[str, Json] = json.loads((folder / "_definitions.json").read_text("utf-8"))["$defs"]
        self._built_in = {(kind.group, kind.version, kind.plural): kind for kind in self._found()}
        self._custom: dict[Kind, Json] = {}
        self.schema = cache(self._schema)

    def all(self) -> list[Kind]:
        return [*self._built_in.values(), *self._custom]

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        key = (group, version, plural)
        custom = {(kind.group, kind.version, kind.plural): kind for kind in self._custom}
        return self._built_in.get(key) or custom.get(key)

    def set_custom(self, definitions: list[Json]) -> None:
        """Replace the custom kinds by those of these CRDs."""
        self._custom = {}
        for spec in (item["spec"] for item in definitions):
            for version in filter(lambda item: item["served"], spec["versions"]):
                names, namespaced = spec["names"], spec["scope"] == "Namespaced"
                kind = Kind(spec["group"], version["name"], names["kind"], names["plural"], namespaced)
                self._custom[kind] = _strict(version.get("schema", {}).get("openAPIV3Schema", {}))

    def problems(self, kind: Kind, manifest: Json) -> list[str]:
        """The problems of an object, at most five sentences."""
        if kind in self._custom:
            rest = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}
            validator = jsonschema.Draft202012Validator(self._custom[kind])
        else:
            rest = manifest
            validator = jsonschema.Draft202012Validator({**self.schema(kind), "$defs": self._definitions})
        found = sorted(validator.iter_errors(rest), key=lambda error: error.json_path)
        return [f"{error.json_path.removeprefix('$.')}: {error.message}" for error in found[:_MOST_REPORTED]]

    def fields(self, schema: Json) -> dict[str, Json]:
        """The schemas of an object's fields, which contain the merge keys of lists."""
        known: dict[str, Json] = self._resolved(schema).get("properties", {})
        return known

    def _resolved(self, schema: Json) -> Json:
        while "$ref" in schema:
            schema = self._definitions[schema["$ref"].rpartition("/")[2]]
        return schema

    def _schema(self, kind: Kind) -> Json:
        for definition in self._definitions.values():
            if {"group": kind.group, "version": kind.version, "kind": kind.name} in definition.get(
                "x-kubernetes-group-version-kind", []
            ):
                return definition
        return {}

    def _found(self) -> Iterator[Kind]:
        """Kinds with a list are resources."""
        every = [
            (item["group"], item["version"], item["kind"])
            for definition in self._definitions.values()
            for item in definition.get("x-kubernetes-group-version-kind", [])
        ]
        for group, version, name in every:
            if (group, version, f"{name}List") in every:
                yield Kind(group, version, name, _plural(name), name not in _CLUSTER_SCOPED)


def _plural(name: str) -> str:
    lower = name.lower()
    if name in _PLURALS:
        return _PLURALS[name]
    if lower.endswith("y"):
        return f"{lower[:-1]}ies"
    return f"{lower}es" if lower.endswith("s") else f"{lower}s"


def _strict(schema: Json) -> Json:
    """A CRD's schema that refuses unknown fields. kubectl requests that; Kubernetes would otherwise warn and drop
    them."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    closed = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    if closed and not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
        strict["additionalProperties"] = False
    return strict
