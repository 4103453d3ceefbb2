"""RBAC of the recording API: what roles and bindings allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from cdk_hyperpod_local.engine.kubernetes.kinds import Kind

Json = Any
MASTERS = "system:masters"
_GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Attempt:
    verb: str
    group: str
    resource: str
    """The plural, with /subresource if there is one."""
    namespace: str
    name: str


class Objects(Protocol):
    def of(self, group: str, plural: str, namespace: str = "") -> list[Json]: ...


def allowed(objects: Objects, user: User, attempt: Attempt) -> bool:
    return MASTERS in user.groups or any(_covers(rule, attempt) for rule in _rules(objects, user, attempt.namespace))


def forbidden(user: User, kind: Kind, attempt: Attempt) -> str:
    """The message of a real API server."""
    what = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    what = f'{what} "{attempt.name}"' if attempt.name else what
    where = f'in the namespace "{attempt.namespace}"' if attempt.namespace else "at the cluster scope"
    return (
        f'{what} is forbidden: User "{user.name}" cannot {attempt.verb} resource "{attempt.resource}" '
        f'in API group "{attempt.group}" {where}'
    )


def _rules(objects: Objects, user: User, namespace: str) -> Iterator[Json]:
    bindings = objects.of(_GROUP, "clusterrolebindings")
    if namespace:
        bindings = [*bindings, *objects.of(_GROUP, "rolebindings", namespace)]
    for binding in bindings:
        if not any(_is(user, subject) for subject in binding.get("subjects", [])):
            continue
        role = binding["roleRef"]
        where = binding["metadata"].get("namespace", "") if role["kind"] == "Role" else ""
        for found in objects.of(_GROUP, f"{role['kind'].lower()}s", where):
            if found["metadata"]["name"] == role["name"]:
                yield from found.get("rules") or []


def _is(user: User, subject: Json) -> bool:
    return subject["name"] in (user.groups if subject["kind"] == "Group" else (user.name,))


def _covers(rule: Json, attempt: Attempt) -> bool:
    def within(values: list[str], value: str) -> bool:
        return value in values or "*" in values

    names = rule.get("resourceNames")
    return (
        within(rule["verbs"], attempt.verb)
        and within(rule.get("apiGroups", []), attempt.group)
        and within(rule.get("resources", []), attempt.resource)
        and (not names or attempt.name in names)
    )
