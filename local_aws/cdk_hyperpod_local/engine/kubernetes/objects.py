"""The objects of one recording API: stored in a file and validated against their schemas. Nothing reacts to them."""

from __future__ import annotations

import datetime
import json
import secrets
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cdk_hyperpod_local.engine.kubernetes.kinds import Kind, Kinds

Json = Any
_CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")
_KEPT = {
    "ClusterRoleBinding": ("roleRef",),
    "PriorityClass": ("preemptionPolicy", "value"),
    "RoleBinding": ("roleRef",),
}
"""Fields that no change may touch."""
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class RefusedError(Exception):
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ObjectStore:
    """Objects by group, plural, namespace ("" if cluster-wide) and name. Raises RefusedError."""

    def __init__(self, file: Path, kinds: Kinds) -> None:
        self.lock = threading.RLock()
        self.kinds = kinds
        self._file = file
        self._objects: dict[tuple[str, str, str, str], Json] = {}
        self._applied: dict[str, Json] = {}
        """What each manager applied last, by the object's uid and the manager's name."""
        self._version = 0
        if file.exists():
            kept = json.loads(file.read_text("utf-8"))
            self._objects = {tuple(key): value for key, value in kept["objects"]}
            self._applied, self._version = kept["applied"], kept["version"]
            kinds.set_custom(self.of(*_CRDS))
            return
        for name in _NAMESPACES:
            namespace = kinds.find("", "v1", "namespaces")
            assert namespace is not None
            self.create(namespace, "", {"metadata": {"name": name}, "status": {"phase": "Active"}})

    def of(self, group: str, plural: str, namespace: str = "") -> list[Json]:
        """Objects of one namespace; absent: of all."""
        with self.lock:
            found = sorted((key, value) for key, value in self._objects.items() if key[:2] == (group, plural))
            return [value for key, value in found if namespace in ("", key[2])]

    def find(self, kind: Kind, namespace: str, name: str) -> Json | None:
        return self._objects.get((kind.group, kind.plural, namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        found = self.find(kind, namespace, name)
        if found is None:
            resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
            raise RefusedError(404, "NotFound", f'{resource} "{name}" not found')
        return found

    def create(self, kind: Kind, namespace: str, given: Json, *, dry: bool = False) -> Json:
        metadata = dict(given.get("metadata") or {})
        if "name" not in metadata and "generateName" in metadata:
            metadata["name"] = f"{metadata['generateName']}{secrets.token_hex(3)}"
        if not metadata.get("name"):
            raise RefusedError(422, "Invalid", f"{kind.name} is invalid: metadata.name: Required value")
        with self.lock:
            if self.find(kind, namespace, metadata["name"]) is not None:
                raise RefusedError(409, "AlreadyExists", f'{kind.plural} "{metadata["name"]}" already exists')
            if namespace and ("", "namespaces", "", namespace) not in self._objects:
                raise RefusedError(404, "NotFound", f'namespaces "{namespace}" not found')
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now}
            return self._put(kind, namespace, {**given, "metadata": metadata}, dry)

    def change(self, kind: Kind, namespace: str, name: str, make: Callable[[Json], Json], *, dry: bool = False) -> Json:
        """make(object) -> the changed object. The server's own fields do not change."""
        with self.lock:
            before = self.get(kind, namespace, name)
            after = make(before)
            given = after.get("metadata", {}).get("resourceVersion")
            if given not in (None, before["metadata"]["resourceVersion"]):
                message = f'Operation cannot be fulfilled on {kind.plural} "{name}": the object has been modified'
                raise RefusedError(409, "Conflict", message)
            for field in _KEPT.get(kind.name, ()):
                if field in before and after.get(field) != before[field]:
                    message = f'{kind.name} "{name}" is invalid: {field}: Forbidden: may not be changed in an update.'
                    raise RefusedError(422, "Invalid", message)
            kept = {key: before["metadata"][key] for key in ("uid", "creationTimestamp", "name")}
            return self._put(kind, namespace, {**after, "metadata": {**after.get("metadata", {}), **kept}}, dry)

    def delete(self, kind: Kind, namespace: str, name: str) -> Json:
        """Delete an object; for a namespace or a CRD, everything in it too."""
        with self.lock:
            deleted = self.get(kind, namespace, name)
            del self._objects[kind.group, kind.plural, namespace, name]
            if (kind.group, kind.plural) == ("", "namespaces"):
                self._drop(lambda key: key[2] == name)
            if (kind.group, kind.plural) == _CRDS:
                spec = deleted["spec"]
                self._drop(lambda key: key[:2] == (spec["group"], spec["names"]["plural"]))
                self.kinds.set_custom(self.of(*_CRDS))
            self._save()
            return deleted

    def applied(self, uid: str, manager: str) -> Json:
        return self._applied.get(f"{uid}/{manager}", {})

    def note_applied(self, uid: str, manager: str, manifest: Json) -> None:
        with self.lock:
            self._applied[f"{uid}/{manager}"] = manifest
            self._save()

    def _put(self, kind: Kind, namespace: str, manifest: Json, dry: bool) -> Json:
        metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
        if namespace:
            metadata["namespace"] = namespace
        metadata["resourceVersion"] = str(self._version + 1)
        whole = {**manifest, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        problems = self.kinds.problems(kind, whole)
        if problems:
            message = f'{kind.name} "{metadata["name"]}" is invalid: {"; ".join(problems)}'
            raise RefusedError(422, "Invalid", message)
        if (kind.group, kind.plural) == _CRDS:
            names = {**whole["spec"]["names"], "singular": whole["spec"]["names"]["kind"].lower()}
            conditions = [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
            whole["status"] = {"acceptedNames": names, "conditions": conditions, "storedVersions": []}
        if not dry:
            self._version += 1
            self._objects[kind.group, kind.plural, namespace, metadata["name"]] = whole
            if (kind.group, kind.plural) == _CRDS:
                self.kinds.set_custom(self.of(*_CRDS))
            self._save()
        return whole

    def _drop(self, is_gone: Callable[[tuple[str, str, str, str]], bool]) -> None:
        self._objects = {key: value for key, value in self._objects.items() if not is_gone(key)}

    def _save(self) -> None:
        kept = {"objects": list(self._objects.items()), "applied": self._applied, "version": self._version}
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(kept), "utf-8")
        fresh.rename(self._file)
