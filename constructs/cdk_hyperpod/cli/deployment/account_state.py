"""What preflight reads of an account and region: quotas, clusters, zones, offers, and existing resources that the file uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRead:
    """In place of a fact that could not be read."""

    why: str


T = TypeVar("T")
Read: TypeAlias = T | NotRead


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGroup:
    """A group of a cluster of the account."""

    name: str
    instance_type: str
    """The first one, if it may have several."""
    count: int
    """Its TargetCount; for other clusters, CurrentCount if that is higher."""
    spot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """A cluster of the account in the region."""

    name: str
    groups: tuple[LiveGroup, ...]
    created: datetime | None = None
    """None: not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePlan:
    """A training plan."""

    status: str
    instance_type: str
    available: int
    """Instances that no cluster uses yet."""
    zones: frozenset[str]
    """Names and ids of the zones that its capacity is in."""
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFileSystem:
    """A file system of FSx. None: not reported."""

    lifecycle: str | None
    vpc: str | None
    mount_name: str | None
    """Lustre's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEksCluster:
    """An EKS cluster. None: not reported."""

    status: str | None
    vpc: str | None
    authentication_mode: str | None
    """CONFIG_MAP, API or API_AND_CONFIG_MAP (EKS API Reference, AccessConfigResponse)."""
    version: str | None = None
    """The Kubernetes version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTopic:
    """An SNS topic."""

    attributes: Mapping[str, str]
    """As sns:GetTopicAttributes answers."""
    key_policy: Read[str | None] = None
    """The policy of its key; None: it has no key of a customer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState:
    """An account and a region. Each part may be unread by itself."""

    now: datetime
    account: str = ""
    """The account of the credentials."""
    quotas: Read[Mapping[str, float]] = field(default_factory=dict)
    """SageMaker's quotas by their names."""
    interfaces: Read[tuple[float, int]] = NotRead(why="not read")
    """The quota of network interfaces, and how many exist."""
    clusters: Read[tuple[LiveCluster, ...]] = ()
    zones: Read[Mapping[str, str]] = field(default_factory=dict)
    """Zone name -> zone id."""
    offered: Read[Mapping[str, frozenset[str]]] = field(default_factory=dict)
    """Instance type with ml. -> names of the zones in which EC2 offers it."""
    free: Mapping[str, Read[int | None]] = field(default_factory=dict)
    """Subnet -> its free addresses; None: there is no such subnet."""
    plans: Mapping[str, Read[LivePlan | None]] = field(default_factory=dict)
    """By ARN; None: there is no such plan."""
    bootstrap: Read[int | None] = None
    """The version of CDK's bootstrap; None: the region has none."""
    needed: Mapping[str, Read[bool]] = field(default_factory=dict)
    """Existing roles, buckets and alarms that the file uses -> whether they exist."""
    file_systems: Mapping[str, Read[LiveFileSystem | None]] = field(default_factory=dict)
    """By id. None: there is no such file system."""
    eks_clusters: Mapping[str, Read[LiveEksCluster | None]] = field(default_factory=dict)
    """By name. None: there is no such EKS cluster."""
    topics: Mapping[str, Read[LiveTopic | None]] = field(default_factory=dict)
    """By ARN. None: there is no such topic."""
    assets_buckets: Mapping[str, Read[str | None]] = field(default_factory=dict)
    """CDK's buckets of assets -> their policies. None: it has none."""
    invokers: Mapping[str, Read[bool]] = field(default_factory=dict)
    """ARNs of roles and users -> whether they may invoke the functions of the EKS cluster's stack."""
