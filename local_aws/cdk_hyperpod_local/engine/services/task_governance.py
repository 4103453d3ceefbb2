"""Task governance of HyperPod clusters: a scheduling policy for each cluster, and the teams' compute quotas.

In Kubernetes it creates a team's namespace with HyperPod's own labels. Kueue's objects (cluster queue, local queue) are
left out, because no jobs run here. If a quota is deleted, its namespace and everything in it remain. What AWS does is
not documented.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi
from cdk_hyperpod_local.hyperpod import ApiError, api_shapes

Json = Any

SETTLE_SECONDS = 30.0
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


class Clusters(Protocol):
    """HyperPod and EKS for task governance."""

    def instance_groups(self, arn: str) -> Json | None:
        """Instance type -> target count of a HyperPod cluster; None if the cluster does not exist."""

    def has_task_governance(self, arn: str) -> bool:
        """Whether its EKS cluster has the add-on, and it is ACTIVE."""

    def kubernetes(self, arn: str) -> KubernetesApi | None: ...


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Both kinds have the same five operations."""

    name: str
    config: tuple[str, ...]
    path: str


SCHEDULER = Kind(
    name="ClusterSchedulerConfig", config=("SchedulerConfig", "Description"), path="cluster-scheduler-config"
)
QUOTA = Kind(
    name="ComputeQuota",
    config=("ComputeQuotaConfig", "ComputeQuotaTarget", "ActivationState", "Description"),
    path="compute-quota",
)


@dataclass(kw_only=True)
class Governance:
    """The state is plain JSON (`records`). Every read first updates it to the current time."""

    clusters: Clusters
    now: Callable[[], float]
    speed: float = 1.0
    seed: int = 0
    records: dict[str, Json] = field(default_factory=dict)
    _making: dict[str, Future[str]] = field(default_factory=dict)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="governance"))

    def serves(self, operation: str, params: Mapping[str, Any]) -> bool:
        return operation in _OPERATIONS or (operation in _TAGGING and self._tagged(params) is not None)

    def call(self, operation: str, params: Mapping[str, Any], *, account: str, region: str) -> Json:
        """The reply; raises ApiError."""
        self.settle()
        request = api_shapes.request(operation, params)
        if operation in _TAGGING:
            return api_shapes.response(operation, _TAGGING[operation](self._tagged(request), request))
        kind, serve = _OPERATIONS[operation]
        return api_shapes.response(operation, serve(self, kind, request, account, region))

    def _tagged(self, params: Mapping[str, Any]) -> Json:
        return next((item for item in self.records.values() if item["_arn"] == params.get("ResourceArn")), None)

    def resource(self, operation: str, request: Mapping[str, Any], *, account: str, region: str) -> str:
        """The ARN that policies name for this call."""
        if operation.startswith("List"):
            return "*"
        kind = _OPERATIONS[operation][0]
        return f"arn:aws:sagemaker:{region}:{account}:{kind.path}/{request.get(f'{kind.name}Id', '*')}"

    def of(self, kind: Kind, account: str, region: str) -> list[Json]:
        begin = f"arn:aws:sagemaker:{region}:{account}:{kind.path}/"
        return [record for record in self.records.values() if record["_arn"].startswith(begin)]

    def tags(self) -> Iterator[tuple[str, list[Json]]]:
        for record in list(self.records.values()):
            yield record["_arn"], record["Tags"]

    def settle(self) -> None:
        """Update everything to the current time."""
        for identifier, record in list(self.records.items()):
            status, making = record["Status"], self._making.get(identifier)
            if not status.endswith("ing") or self.now() < record["_ready"] or (making and not making.done()):
                continue
            problem = _problem(self._making.pop(identifier, None))
            if status == "Deleting":
                del self.records[identifier]
            elif problem:
                record |= {"Status": "CreateFailed", "FailureReason": problem}
            else:
                record["Status"] = {"Creating": "Created", "Updating": "Updated"}[status]

    def begin(self, record: Json, status: str) -> None:
        record |= {"Status": status, "_ready": self.now() + SETTLE_SECONDS / self.speed, "LastModifiedTime": self.now()}
        if record["_kind"] == QUOTA.name and status == "Creating":
            identifier = record["_id"]
            self._making[identifier] = self._threads.submit(self._make_namespace, record["ClusterArn"], _team(record))

    def _make_namespace(self, cluster: str, team: str) -> str:
        """Why the namespace is missing. Empty: it exists."""
        api = self.clusters.kubernetes(cluster)
        if api is None:
            return "The EKS cluster's Kubernetes API cannot be reached"
        name = f"hyperpod-ns-{team}"
        prefix = "sagemaker.amazonaws.com"
        labels = {
            f"{prefix}/sagemaker-managed-queue": "true",
            f"{prefix}/quota-allocation-id": team,
            f"{prefix}/activate-quota": "Enabled",
        }
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        status, reply = api.request("POST", "/api/v1/namespaces", body)
        if status == 409:
            status, reply = api.request("PATCH", f"/api/v1/namespaces/{name}", {"metadata": {"labels": labels}})
        return "" if status < 300 else str(reply)

    def identifier(self) -> str:
        draw = random.Random(f"{self.seed}/governance/{len(self.records)}/{self.now()}")
        return "".join(draw.choice(_ALPHABET) for _ in range(12))

    def find(self, kind: Kind, request: Json) -> Json:
        given = request[f"{kind.name}Id"]
        record = self.records.get(given)
        if record is None or record["_kind"] != kind.name:
            raise ApiError("ResourceNotFound", f"{kind.name} with id {given} does not exist")
        return record


def _problem(making: Future[str] | None) -> str:
    if making is None:
        return ""
    error = making.exception()
    return making.result() if error is None else f"{type(error).__name__}: {error}"


def _team(record: Json) -> str:
    return str(record["ComputeQuotaTarget"]["TeamName"])


# -- operations -------------------------------------------------------------------------------------------------------


def _create(governance: Governance, kind: Kind, request: Json, account: str, region: str) -> Json:
    for problem in _problems(governance, kind, request, governance.of(kind, account, region)):
        raise problem
    identifier = governance.identifier()
    arn = f"arn:aws:sagemaker:{region}:{account}:{kind.path}/{identifier}"
    record = {
        **{key: request[key] for key in ("Name", "ClusterArn", *kind.config) if key in request},
        "Tags": request.get("Tags", []),
        "CreationTime": governance.now(),
        "_kind": kind.name,
        "_id": identifier,
        "_arn": arn,
        "_version": 1,
    }
    if kind is QUOTA:
        record.setdefault("ActivationState", "Enabled")
    governance.records[identifier] = record
    governance.begin(record, "Creating")
    return {f"{kind.name}Arn": arn, f"{kind.name}Id": identifier}


def _problems(governance: Governance, kind: Kind, request: Json, others: list[Json]) -> Iterator[ApiError]:
    cluster, name = request["ClusterArn"], request["Name"]
    groups = governance.clusters.instance_groups(cluster)
    if groups is None:
        yield ApiError("ValidationException", f"Cluster {cluster} does not exist")
        return
    if not governance.clusters.has_task_governance(cluster):
        yield ApiError("ValidationException", f"The task governance add-on is not installed on cluster {cluster}")
    if any(record["Name"] == name for record in others):
        yield ApiError("ConflictException", f"{kind.name} with name {name} already exists")
    others = [record for record in others if record["ClusterArn"] == cluster]
    if kind is SCHEDULER and others:
        # "Create cluster policy": one for a cluster.
        yield ApiError("ConflictException", f"Cluster {cluster} has a {kind.name} already")
    if kind is QUOTA:
        team = request["ComputeQuotaTarget"]["TeamName"]
        if any(_team(record) == team for record in others):
            yield ApiError("ConflictException", f"Team {team} has a compute quota on cluster {cluster} already")
        yield from _strangers(request, cluster, groups)


def _strangers(request: Json, cluster: str, groups: Json) -> Iterator[ApiError]:
    """A quota is a share of the cluster's instances."""
    for resource in request.get("ComputeQuotaConfig", {}).get("ComputeQuotaResources", []):
        if resource["InstanceType"] not in groups:
            yield ApiError(
                "ValidationException", f"Cluster {cluster} has no instance group of {resource['InstanceType']}"
            )


def _describe(governance: Governance, kind: Kind, request: Json, account: str, region: str) -> Json:
    record = governance.find(kind, request)
    shown = {key: value for key, value in record.items() if not key.startswith("_") and key != "Tags"}
    return {**shown, **_identity(kind, record)}


def _list(governance: Governance, kind: Kind, request: Json, account: str, region: str) -> Json:
    more = ("ComputeQuotaConfig", "ComputeQuotaTarget", "ActivationState") if kind is QUOTA else ()
    keys = ("Name", "Status", "ClusterArn", "CreationTime", "LastModifiedTime", *more)
    found = [
        {**{key: record[key] for key in keys if key in record}, **_identity(kind, record)}
        for record in governance.of(kind, account, region)
        if request.get("NameContains", "") in record["Name"]
        and all(request.get(key) in (None, record[key]) for key in ("ClusterArn", "Status"))
    ]
    return {f"{kind.name}Summaries": found}


def _update(governance: Governance, kind: Kind, request: Json, account: str, region: str) -> Json:
    record = governance.find(kind, request)
    if record["Status"].endswith("ing"):
        raise ApiError("ConflictException", f"{kind.name} {record['Name']} is {record['Status']}")
    if request["TargetVersion"] != record["_version"]:
        raise ApiError("ConflictException", f"The version of {kind.name} {record['Name']} is {record['_version']}")
    target = request.get("ComputeQuotaTarget")
    if target and target["TeamName"] != _team(record):
        raise ApiError("ValidationException", "The team of a compute quota cannot be changed")
    groups = governance.clusters.instance_groups(record["ClusterArn"]) or {}
    for problem in _strangers(request, record["ClusterArn"], groups):
        raise problem
    record |= {key: request[key] for key in kind.config if key in request}
    record["_version"] += 1
    governance.begin(record, "Updating")
    return {f"{kind.name}Arn": record["_arn"], f"{kind.name}Version": record["_version"]}


def _delete(governance: Governance, kind: Kind, request: Json, account: str, region: str) -> Json:
    governance.begin(governance.find(kind, request), "Deleting")
    return {}


def _identity(kind: Kind, record: Json) -> Json:
    return {
        f"{kind.name}Arn": record["_arn"],
        f"{kind.name}Id": record["_id"],
        f"{kind.name}Version": record["_version"],
    }


def _add_tags(record: Json, request: Json) -> Json:
    record["Tags"] = _merged(record["Tags"], request["Tags"])
    return {"Tags": record["Tags"]}


def _merged(tags: list[Json], more: list[Json]) -> list[Json]:
    merged = {tag["Key"]: tag["Value"] for tag in [*tags, *more]}
    return [{"Key": key, "Value": value} for key, value in merged.items()]


def _delete_tags(record: Json, request: Json) -> Json:
    record["Tags"] = [tag for tag in record["Tags"] if tag["Key"] not in request["TagKeys"]]
    return {}


def _list_tags(record: Json, request: Json) -> Json:
    return {"Tags": record["Tags"]}


Operation = Callable[[Governance, Kind, Json, str, str], Json]
_VERBS: Mapping[str, Operation] = {"Create": _create, "Describe": _describe, "Update": _update, "Delete": _delete}
_OPERATIONS: dict[str, tuple[Kind, Operation]] = {
    **{f"{verb}{kind.name}": (kind, serve) for kind in (SCHEDULER, QUOTA) for verb, serve in _VERBS.items()},
    **{f"List{kind.name}s": (kind, _list) for kind in (SCHEDULER, QUOTA)},
}
_TAGGING: Mapping[str, Callable[[Json, Json], Json]] = {
    "AddTags": _add_tags,
    "DeleteTags": _delete_tags,
    "ListTags": _list_tags,
}
