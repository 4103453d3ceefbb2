"""The requests of the tests to the API server, as the administrator or as another user."""

from __future__ import annotations

import dataclasses
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cdk_hyperpod.kubernetes.manifests import Manifest, document
from cdk_hyperpod_local.engine.kubernetes.control_plane import ControlPlane

_PLURALS = {"PriorityClass": "priorityclasses", "ValidatingAdmissionPolicy": "validatingadmissionpolicies"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The server's reply."""

    status: int
    body: Any

    @property
    def message(self) -> str:
        """The reason of a refusal, in the server's words."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else ""


@dataclass(frozen=True, slots=True)
class Client:
    """One user's client. `as_member` returns another."""

    cluster: ControlPlane
    user: str | None = None
    groups: tuple[str, ...] = ()

    def as_member(self, user: str, *groups: str) -> Client:
        """The same server, as a user in these groups, as EKS maps an access entry."""
        return dataclasses.replace(self, user=user, groups=(*groups, "system:authenticated"))

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Answer:
        return self.request("POST", _collection(manifest) + ("?dryRun=All" if dry_run else ""), manifest)

    def delete(self, manifest: Manifest) -> Answer:
        """Without a grace period, because no kubelet would end the pod."""
        return self.request("DELETE", _address(manifest), {"gracePeriodSeconds": 0})

    def apply(self, manifest: Manifest) -> Answer:
        """As `kubectl apply --server-side` does, from the YAML that is shipped."""
        path = f"{_address(manifest)}?fieldManager=cdk-hyperpod"
        return self.request("PATCH", path, document(manifest), "application/apply-patch+yaml")

    def apply_all(self, manifests: Iterable[Manifest]) -> None:
        """Apply every object. A refusal is an error."""
        for manifest in manifests:
            answer = self.apply(manifest)
            assert answer.status in (200, 201), f"{manifest['kind']} {manifest['metadata']['name']}: {answer.body}"

    def patch_status(self, manifest: Manifest, status: Manifest) -> Answer:
        """Write a status, as a kubelet would."""
        return self.request(
            "PATCH", f"{_address(manifest)}/status", {"status": status}, "application/strategic-merge-patch+json"
        )

    def may(self, verb: str, resource: str, namespace: str | None = None, name: str = "") -> bool:
        """Whether the user may: `kubectl auth can-i`. resource: plural.group, with /subresource if there is one."""
        whole, _, subresource = resource.partition("/")
        plural, _, group = whole.partition(".")
        attributes = {
            "verb": verb,
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "namespace": namespace or "",
            "name": name,
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self.request("POST", path, {"spec": {"resourceAttributes": attributes}})
        assert answer.status == 201, answer.body
        return bool(answer.body["status"]["allowed"])

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Answer:
        """Tests name the API versions of today. A server of 1.20 has some of them as v1beta1, with the same fields."""
        if self.cluster.minor < 21:
            path, body = older_path(path), _older_body(body)
        address = urlsplit(self.cluster.url)
        connection = http.client.HTTPSConnection(
            address.hostname or "",
            address.port,
            timeout=30,
            context=ssl.create_default_context(cafile=str(self.cluster.certificate)),
        )
        try:
            connection.putrequest(method, path)
            data = (body if isinstance(body, str) else json.dumps(body)).encode() if body is not None else b""
            for name, value in self._headers(content_type, len(data)):
                connection.putheader(name, value)
            connection.endheaders(data)
            response = connection.getresponse()
            return Answer(status=response.status, body=_decoded(response.read()))
        finally:
            connection.close()

    def _headers(self, content_type: str, length: int) -> Iterable[tuple[str, str]]:
        yield "Authorization", f"Bearer {self.cluster.token}"
        yield "Accept", "application/json"
        yield "Content-Type", content_type
        yield "Content-Length", str(length)
        if self.user is not None:
            yield "Impersonate-User", self.user
        for group in self.groups:
            yield "Impersonate-Group", group


def older_path(path: str) -> str:
    """The path of an object that 1.20 has as v1beta1."""
    path = path.replace("/apis/policy/v1/", "/apis/policy/v1beta1/")
    return path.replace("/apis/batch/v1/", "/apis/batch/v1beta1/") if "/cronjobs" in path else path


def _older_body(body: Any) -> Any:
    match body:
        case str():
            return body.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n")
        case {"apiVersion": "policy/v1"}:
            return {**body, "apiVersion": "policy/v1beta1"}
        case {"apiVersion": "batch/v1", "kind": "CronJob"}:
            return {**body, "apiVersion": "batch/v1beta1"}
        case _:
            return body


def await_answer(
    ask: Callable[[], Answer], is_there: Callable[[Answer], bool], what: str, limit_s: float = 30
) -> Answer:
    """Repeat a request until the answer is right, because controllers take time."""
    deadline = time.monotonic() + limit_s
    while not is_there(answer := ask()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {limit_s:.0f} s: {answer.status} {answer.body}")
        time.sleep(0.1)
    return answer


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def _collection(manifest: Manifest) -> str:
    version, kind = manifest["apiVersion"], manifest["kind"]
    namespace = manifest["metadata"].get("namespace")
    base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    return "/".join([base, *(["namespaces", namespace] if namespace else []), _PLURALS.get(kind, f"{kind.lower()}s")])


def _address(manifest: Manifest) -> str:
    return f"{_collection(manifest)}/{manifest['metadata']['name']}"
