"""A Kubernetes API that stores objects, for machines without a built API server. It supports kubectl and Helm.

It knows every built-in kind and those of CRDs, validates every object strictly against the published schema, merges
patches and enforces RBAC. It has no controllers: a quota counts nothing, and no object creates another.
"""

from __future__ import annotations

import json
import secrets
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi, discovery, patches, protobuf
from cdk_hyperpod_local.engine.kubernetes.control_plane import kubeconfig
from cdk_hyperpod_local.engine.kubernetes.kinds import Kind, Kinds
from cdk_hyperpod_local.engine.kubernetes.objects import ObjectStore, RefusedError
from cdk_hyperpod_local.engine.kubernetes.rights import MASTERS, Attempt, User, allowed, forbidden
from cdk_hyperpod_local.engine.kubernetes.running import Start

Json = Any
Who = Callable[[str, str], tuple[str, list[str]] | None]
"""who(cluster, token) -> user name and groups."""
ADMIN = User("admin", (MASTERS,))
NOT_SERVED = "the server could not find the requested resource"
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class _Target:
    """The target of a path. Without a name: the collection."""

    kind: Kind
    namespace: str
    name: str
    subresource: str
    is_served: bool
    """Whether the kind exists. A caller without permission gets that answer first."""


class RecordingApi:
    """The API of one cluster. `authority`: the authority of the server's certificate."""

    def __init__(self, port: int, authority: Path, store: ObjectStore) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.certificate_authority = authority.read_bytes()
        self._store = store

    def request(self, method: str, path: str, body: Json = None) -> tuple[int, Json]:
        patch = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self.answer(method, path, b"" if body is None else json.dumps(body).encode(), patch, ADMIN)

    def answer(self, method: str, target: str, body: bytes, content_type: str, user: User) -> tuple[int, Json]:
        address = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        try:
            found = discovery.answer(address.path, self._store.kinds)
            if found is not None:
                return 200, found
            return self._objects(method, self._target(address.path), query, body, content_type, user)
        except RefusedError as error:
            return error.status, _status(error)

    def _target(self, path: str) -> _Target:
        parts = path.strip("/").split("/")
        group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[2:])
        version, rest = (rest[0], rest[1:]) if rest else ("", [])
        namespace = ""
        # /namespaces/NAME is a namespace itself, and so are its subresources status and finalize.
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        if not rest or parts[0] not in ("api", "apis"):
            raise RefusedError(404, "NotFound", NOT_SERVED)
        found = self._store.kinds.find(group, version, rest[0])
        kind = found or Kind(group, version, "", rest[0], bool(namespace))
        name, subresource = (*rest[1:3], "", "")[:2]
        return _Target(kind, namespace, name, subresource, is_served=found is not None)

    def _objects(
        self, method: str, target: _Target, query: Json, body: bytes, content_type: str, user: User
    ) -> tuple[int, Json]:
        kind, store = target.kind, self._store
        self._check(method, target, query, user)
        if not target.is_served:
            raise RefusedError(404, "NotFound", NOT_SERVED)
        if target.subresource not in ("", "status"):
            raise RefusedError(404, "NotFound", f"{target.subresource} is not recorded")
        given = {} if method in ("GET", "DELETE") else _parsed(body, content_type)
        where, dry = (kind, target.namespace), "dryRun" in query
        match method, bool(target.name):
            case "GET", False:
                return 200, self._list(target, query)
            case "GET", True:
                return 200, store.get(*where, target.name)
            case "POST", False:
                return 201, store.create(*where, given, dry=dry)
            case "PUT", True:
                return 200, store.change(*where, target.name, lambda _: given, dry=dry)
            case "PATCH", True:
                return self._patch(target, given, content_type, query.get("fieldManager", ""), dry)
            case "DELETE", True:
                deleted = store.get(*where, target.name) if dry else store.delete(*where, target.name)
                return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": deleted["metadata"]}
            case "DELETE", False:
                for item in self._list(target, query)["items"]:
                    store.delete(kind, item["metadata"].get("namespace", ""), item["metadata"]["name"])
                return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        raise RefusedError(405, "MethodNotAllowed", f"{method} is not for {kind.plural}")

    def _check(self, method: str, target: _Target, query: Json, user: User) -> None:
        verb = _VERBS.get(method, method.lower())
        if not target.name:
            verb = {"get": "watch" if "watch" in query else "list", "delete": "deletecollection"}.get(verb, verb)
        resource = "/".join(filter(None, (target.kind.plural, target.subresource)))
        # A namespace counts as an object in itself, as in Kubernetes: a Role may grant access to its own namespace.
        namespace = target.name if resource == "namespaces" else target.namespace
        attempt = Attempt(verb, target.kind.group, resource, namespace, target.name)
        if not allowed(self._store, user, attempt):
            raise RefusedError(403, "Forbidden", forbidden(user, target.kind, attempt))

    def _list(self, target: _Target, query: Json) -> Json:
        kind = target.kind
        found = self._store.of(kind.group, kind.plural, target.namespace)
        chosen = [item for item in found if _is_selected(item, query)]
        metadata = {"resourceVersion": "0"}
        return {"apiVersion": kind.api_version, "kind": f"{kind.name}List", "metadata": metadata, "items": chosen}

    def _patch(self, target: _Target, patch: Json, content_type: str, manager: str, dry: bool) -> tuple[int, Json]:
        kind, store = target.kind, self._store
        where = (kind, target.namespace, target.name)
        match content_type.partition(";")[0]:
            case "application/merge-patch+json":
                return 200, store.change(*where, lambda value: patches.merged(value, patch), dry=dry)
            case "application/strategic-merge-patch+json":
                schema, kinds = store.kinds.schema(kind), store.kinds
                merge = partial(patches.strategically_merged, patch=patch, schema=schema, kinds=kinds)
                return 200, store.change(*where, merge, dry=dry)
            case "application/apply-patch+yaml":
                known = store.find(*where)
                if known is None:
                    made = store.create(kind, target.namespace, patch, dry=dry)
                else:
                    before = store.applied(known["metadata"]["uid"], manager)
                    made = store.change(*where, lambda value: patches.applied(value, before, patch), dry=dry)
                if not dry:
                    store.note_applied(made["metadata"]["uid"], manager, patch)
                return 201 if known is None else 200, made
        raise RefusedError(415, "UnsupportedMediaType", f"patches of {content_type} are not recorded")


def _parsed(body: bytes, content_type: str) -> Json:
    try:
        # JSON is YAML too, but the YAML parser is slow.
        match content_type.partition(";")[0]:
            case protobuf.CONTENT_TYPE:
                return protobuf.decoded(body)
            case "application/apply-patch+yaml":
                return yaml.safe_load(body)
        return json.loads(body)
    except (ValueError, yaml.YAMLError) as error:
        raise RefusedError(400, "BadRequest", f"the object cannot be read: {error}") from error


def _is_selected(item: Json, query: Json) -> bool:
    metadata = item["metadata"]
    labels = metadata.get("labels") or {}
    for term in filter(None, query.get("labelSelector", "").split(",")):
        name, _, value = term.replace("==", "=").partition("=")
        if (labels.get(name) != value) if "=" in term else (name not in labels):
            return False
    fields = dict(term.split("=", 1) for term in filter(None, query.get("fieldSelector", "").split(",")))
    return all(metadata.get(name.removeprefix("metadata.")) == value for name, value in fields.items())


def _status(error: RefusedError) -> Json:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason,
        "code": error.status,
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    api: RecordingApi
    identify: Callable[[str], User | None]

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        user = self.identify(self.headers.get("Authorization", "").removeprefix("Bearer "))
        if user is None:
            status, answer = 401, _status(RefusedError(401, "Unauthorized", "Unauthorized"))
        else:
            content_type = self.headers.get("Content-Type", "application/json")
            status, answer = self.api.answer(self.command, self.path, body, content_type, user)
        if status == 200 and "watch=" in self.path and "items" in answer:
            # A watch returns the existing objects. No later events follow.
            content = "".join(json.dumps({"type": "ADDED", "object": item}) for item in answer["items"]).encode()
        else:
            content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the engine's journal has the important requests."""


def start(schemas: Path, authority: Path, certificate: Path, key: Path, who: Who) -> Start:
    """`schemas`: see Kinds. Certificate, key and their authority are the server's."""

    def started(cluster: str, folder: Path, port: int) -> tuple[KubernetesApi, Callable[[], None]]:
        token = _admin_token(folder / "token")
        api = RecordingApi(port, authority, ObjectStore(folder / "objects.json", Kinds(schemas)))

        def identify(given: str) -> User | None:
            if secrets.compare_digest(given, token):
                return ADMIN
            found = who(cluster, given)
            return None if found is None else User(found[0], (*found[1], "system:authenticated"))

        handler = type("Handler", (_Handler,), {"api": api, "identify": staticmethod(identify)})
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # The handshake runs in each connection's own thread, so that a client which sends nothing does not block the
        # others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (folder / "kubeconfig").touch(mode=0o600)
        (folder / "kubeconfig").write_text(kubeconfig(cluster, api.url, authority, token))

        def end() -> None:
            server.shutdown()
            server.server_close()

        return api, end

    return started


def _admin_token(file: Path) -> str:
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe())
    return file.read_text()
