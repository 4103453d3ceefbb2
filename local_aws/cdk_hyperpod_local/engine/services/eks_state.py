"""The state of Amazon EKS, and its view of the rest of the account."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi, KubernetesApis

Json = Any

# Seconds at speed 1. Orders of magnitude, as users report them.
CREATE_SECONDS = 600.0
UPDATE_SECONDS = 300.0
DELETE_SECONDS = 180.0
_HEX = "0123456789abcdef"


class EksError(Exception):
    """An error reply."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return {"ResourceNotFoundException": 404, "ResourceInUseException": 409}.get(self.code, 400)


def invalid_parameter(message: str) -> EksError:
    return EksError("InvalidParameterException", message)


def invalid_request(message: str) -> EksError:
    return EksError("InvalidRequestException", message)


def in_use(message: str) -> EksError:
    return EksError("ResourceInUseException", message)


def not_found(message: str) -> EksError:
    return EksError("ResourceNotFoundException", message)


class Account(Protocol):
    """EC2, IAM, KMS and HyperPod for EKS."""

    def subnet(self, subnet_id: str) -> Json | None: ...

    def security_group(self, group_id: str) -> Json | None: ...

    def create_group(self, *, vpc_id: str, name: str, description: str) -> str: ...

    def delete_group(self, group_id: str) -> None: ...

    def attach(self, *, subnet_id: str, group_ids: Sequence[str], description: str) -> str: ...

    def detach(self, interface_id: str) -> None: ...

    def trusts(self, role_arn: str, service: str) -> bool | None:
        """Whether the role's trust policy admits the service; None if the role does not exist."""

    def principal_exists(self, arn: str) -> bool:
        """Whether this IAM role or user exists. Those of other accounts always count as existing."""

    def key_exists(self, arn: str) -> bool: ...

    def hyperpod_clusters(self, arn: str) -> Sequence[str]:
        """Names of the HyperPod clusters that this EKS cluster orchestrates."""

    def running_nodes(self, arn: str) -> int:
        """How many nodes have joined this EKS cluster."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """The caller's account and region."""

    account: str
    region: str

    def arn(self, resource: str) -> str:
        return f"arn:aws:eks:{self.region}:{self.account}:{resource}"


@dataclass(kw_only=True)
class EksState:
    """The clusters are plain JSON. Keys that begin with "_" are internal, and appear in no reply."""

    account: Account
    kubernetes: KubernetesApis
    now: Callable[[], float]
    speed: float = 1.0
    seed: int = 0
    clusters: dict[str, Json] = field(default_factory=dict)
    drawn: int = 0
    _starting: dict[str, Future[KubernetesApi | None]] = field(default_factory=dict)
    _ending: dict[str, Future[None]] = field(default_factory=dict)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="eks"))

    def of(self, where: Where) -> list[Json]:
        return [record for record in self.clusters.values() if (record["_account"], record["_region"]) == _pair(where)]

    def cluster(self, name: str, where: Where) -> Json:
        for record in self.of(where):
            if record["name"] == name:
                return record
        raise not_found(f"No cluster found for name: {name}.")

    def active(self, name: str, where: Where) -> Json:
        record = self.cluster(name, where)
        if record["status"] not in ("ACTIVE", "UPDATING"):
            raise invalid_request(f"Cluster '{name}' is not in ACTIVE status, it is {record['status']}")
        return record

    def named(self, name: str) -> Json | None:
        """In any account and region: a Kubernetes API is identified by its cluster's name only."""
        return next((record for record in self.clusters.values() if record["name"] == name), None)

    def later(self, seconds: float) -> float:
        return self.now() + seconds / self.speed

    def identifier(self, length: int = 17) -> str:
        self.drawn += 1
        draw = random.Random(f"{self.seed}/eks/{self.drawn}")
        return "".join(draw.choice(_HEX) for _ in range(length))

    # -- the API servers, which take their time to start --------------------------------------------------------------

    def start(self, name: str, make: Callable[[str], KubernetesApi | None]) -> None:
        self._starting[name] = self._threads.submit(make, name)

    def started(self, name: str) -> tuple[KubernetesApi | None, str] | None:
        """The API, or the reason why it failed. None while it starts."""
        future = self._starting.get(name)
        if future is None or not future.done():
            return None
        del self._starting[name]
        error = future.exception()
        if error is not None:
            return None, f"{type(error).__name__}: {error}"
        api = future.result()
        return api, "" if api else "its Kubernetes API does not exist"

    def stop(self, name: str) -> None:
        self._starting.pop(name, None)
        self._ending[name] = self._threads.submit(self.kubernetes.delete, name)

    def stopped(self, name: str) -> bool:
        ending = self._ending.get(name)
        return ending is None or ending.done()


def _pair(where: Where) -> tuple[str, str]:
    return where.account, where.region


def shown(record: Json) -> Json:
    return {key: value for key, value in record.items() if not key.startswith("_")}


def page(items: Sequence[str], request: Json, key: str) -> Json:
    """A page of a list. The token is where the next page begins."""
    begin = int(request.get("nextToken") or 0)
    end = begin + int(request.get("maxResults") or 100)
    more = {"nextToken": str(end)} if end < len(items) else {}
    return {key: list(items[begin:end]), **more}


def everything(record: Json) -> Iterator[Json]:
    """All parts of a cluster that have an ARN and tags, including the cluster."""
    yield record
    for kind in ("_entries", "_addons", "_associations"):
        yield from record[kind].values()


ARN_KEYS = ("arn", "accessEntryArn", "addonArn", "associationArn")


def arn_of(record: Json) -> str:
    # An add-on's or an entry's record contains other ARNs too. Its own is under the key of its kind.
    return str(next(record[key] for key in ARN_KEYS if key in record))
