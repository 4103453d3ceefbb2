"""Discovery for kubectl and Helm: the kinds of an API server, and that it validates objects itself."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.engine.kubernetes.kinds import Kind, Kinds

Json = Any
VERSION = "1.35"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SHORT = {
    "ConfigMap": "cm",
    "CustomResourceDefinition": "crd",
    "DaemonSet": "ds",
    "Deployment": "deploy",
    "LimitRange": "limits",
    "Namespace": "ns",
    "PersistentVolume": "pv",
    "PersistentVolumeClaim": "pvc",
    "Pod": "po",
    "PriorityClass": "pc",
    "ResourceQuota": "quota",
    "Service": "svc",
    "ServiceAccount": "sa",
}


def answer(path: str, kinds: Kinds) -> Json | None:
    """The answer for a discovery path; None for the path of an object, and for an unknown path."""
    parts = path.strip("/").split("/")
    groups = sorted({(kind.group, kind.version) for kind in kinds.all() if kind.group})
    match parts:
        case ["healthz" | "livez" | "readyz"]:
            return "ok"
        case ["version"]:
            major, minor = VERSION.split(".")
            return {"major": major, "minor": minor, "gitVersion": f"v{VERSION}.0-recording", "platform": "local"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            names = sorted({group for group, _ in groups})
            listed = [_group(name, [version for group, version in groups if group == name]) for name in names]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ["api", version]:
            return _resources("", version, kinds)
        case ["apis", group, version]:
            return _resources(group, version, kinds)
        case ["openapi", "v3"]:
            known = ["api/v1", *(f"apis/{group}/{version}" for group, version in groups)]
            return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}"} for name in known}}
        case ["openapi", "v3", "api", version]:
            return _checks("", version, kinds)
        case ["openapi", "v3", "apis", group, version]:
            return _checks(group, version, kinds)
    return None


def _of(group: str, version: str, kinds: Kinds) -> list[Kind]:
    return [kind for kind in kinds.all() if (kind.group, kind.version) == (group, version)]


def _group(name: str, versions: list[str]) -> Json:
    # v1 before v1beta1 before v1alpha1: clients use the first one.
    ordered = sorted(versions, key=lambda version: ("alpha" in version, "beta" in version, version))
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in ordered]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(group: str, version: str, kinds: Kinds) -> Json | None:
    found = _of(group, version, kinds)
    if not found:
        return None
    listed = [
        {
            "name": kind.plural,
            "singularName": kind.name.lower(),
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "shortNames": [_SHORT[kind.name]] if kind.name in _SHORT else [],
            "verbs": _VERBS,
        }
        for kind in found
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": found[0].api_version, "resources": listed}


def _checks(group: str, version: str, kinds: Kinds) -> Json:
    """OpenAPI with a single fact: a patch supports `fieldValidation`. Without it, kubectl validates objects itself."""
    parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
    paths = {
        f"/{kind.plural}/{{name}}": {
            "patch": {
                "parameters": parameters,
                "responses": {},
                "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind.name},
            }
        }
        for kind in _of(group, version, kinds)
    }
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION}, "paths": paths}
