"""What a cluster costs by AWS's Price List: pure, prices in, lines out; and prices that were asked for before, in the user's cache.

Usage types: `<REGION>-Cluster:ml.<type>` of AmazonSageMaker with component Cluster, `ReservedCluster:` for nodes of a training
plan; of the rest `AmazonEKS-Hours:perCluster`, `NatGateway-Hours` and `VpcEndpoint-Hours`, and of AmazonFSx with operation
CreateFileSystem:Lustre `Storage.SSD.<MB/s for each TiB>`, for a GB and a month. Each begins with the region's code, except in
us-east-1, so they are told by how they end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ...config.cluster import ClusterConfig, InstanceGroup, StorageConfig
from ...config.zones import INTERFACE_ENDPOINTS, has_interface_endpoints, more_endpoints

HOURS = 730
"""Of a month, as AWS's calculator has it."""
EKS, NAT, ENDPOINT = "AmazonEKS-Hours:perCluster", "NatGateway-Hours", "VpcEndpoint-Hours"
LUSTRE = "Storage.SSD."
FORMAT = 3
"""Of the cache's files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A region's prices in US dollars an hour, before any discount and tax."""

    region: str
    when: str
    """The day on which they were asked for, in UTC: 2026-11-22."""
    hourly: Mapping[str, float]
    """By how the usage type ends, such as Cluster:ml.p5.48xlarge."""
    gb_month: Mapping[str, float] = field(default_factory=dict)
    """Of storage, US dollars for a GB and a month, likewise: Storage.SSD.250."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One line: so many of something, at so much an hour."""

    what: str
    count: int
    each_hour: float | None
    """US dollars for one. None: the price list does not know, and it is in no sum."""
    note: str = ""

    @property
    def hour(self) -> float | None:
        """US dollars an hour for all of them."""
        return None if self.each_hour is None else self.each_hour * self.count


def costs(config: ClusterConfig, prices: Prices) -> tuple[Cost, ...]:
    """Every group at its full count, and what stands beside the nodes as long as the stacks do."""
    return (*(_group(group, prices) for group in config.instance_groups), *_beside(config, prices))


def hourly(found: Iterable[Cost]) -> float:
    """US dollars an hour, of what has a price."""
    return sum(cost.hour or 0.0 for cost in found)


def wanted_usage(ends: str) -> bool:
    """Whether a cluster can need a price, by how its usage type ends."""
    return ends.startswith(("Cluster:ml.", "ReservedCluster:ml.", LUSTRE)) or ends in (EKS, NAT, ENDPOINT)


def usage_end(usage_type: str) -> str:
    """A usage type without its region's code: `USW2-Cluster:ml.p5.48xlarge`, and us-east-1's with none."""
    head, dash, tail = usage_type.partition("-")
    return tail if dash and head.isupper() else usage_type


def _group(group: InstanceGroup, prices: Prices) -> Cost:
    use = "ReservedCluster" if group.training_plan_arn else "Cluster"
    kinds = group.all_instance_types
    note = ""
    if group.spot:
        note = "Spot: its price changes, and the list has none"
    elif len(kinds) > 1:
        note = f"as if all were {kinds[0]}"
    elif group.training_plan_arn:
        note = "a training plan, which is paid for beforehand"
    price = None if group.spot else prices.hourly.get(f"{use}:{kinds[0]}")
    return Cost(what=f"{group.name} ({kinds[0]})", count=group.instance_count, each_hour=price, note=note)


def _beside(config: ClusterConfig, prices: Prices) -> Iterable[Cost]:
    network, storage = config.network, config.storage
    if config.orchestrator == "eks" and config.eks is not None and config.eks.existing_cluster is None:
        yield Cost(what="EKS control plane", count=1, each_hour=prices.hourly.get(EKS))
    if network.vpc_id is None and network.internet_egress:
        yield Cost(
            what="NAT gateway",
            count=1,
            each_hour=prices.hourly.get(NAT),
            note="its public IPv4 address and what goes through it are billed too",
        )
    if has_interface_endpoints(network):
        count = len(INTERFACE_ENDPOINTS) + len(more_endpoints(config))
        yield Cost(what="interface endpoints", count=count, each_hour=prices.hourly.get(ENDPOINT), note="what goes through them is billed too")  # fmt: skip
    if storage is not None and storage.capacity_gib is not None:
        what = f"FSx for Lustre, {storage.capacity_gib} GiB"
        price = prices.gb_month.get(f"{LUSTRE}{storage.throughput_mbps_per_tib}")
        price = None if price is None else price * storage.capacity_gib / HOURS
        yield Cost(what=what, count=1, each_hour=price, note=_of_lustre(storage) if price is not None else "")
    yield Cost(what="volumes, S3, logs, KMS", count=1, each_hour=None, note="by use")


def _of_lustre(storage: StorageConfig) -> str:
    """What a file system costs besides its capacity."""
    extras = [
        *(["metadata_iops"] if storage.metadata_iops is not None else []),
        *(["backups"] if storage.automatic_backup_retention_days else []),
    ]
    return f"{' and '.join(extras)}: not counted" if extras else ""


# -- the cache --------------------------------------------------------------------------------------------------------


def cache_file(region: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Where a region's prices are kept: in the user's cache folder (XDG Base Directory), one file for a region."""
    home = environment.get("XDG_CACHE_HOME", "")
    root = Path(home) if home.startswith("/") else Path.home() / ".cache"
    return root / "cdk-hyperpod" / f"prices-{region}.json"


def cached(region: str) -> Prices | None:
    """The prices that were asked for last; None: none were, or nobody can read them."""
    try:
        found = json.loads(cache_file(region).read_text("utf-8"))
        if found["format"] != FORMAT or found["region"] != region:
            return None
        kinds = {kind: {str(k): float(v) for k, v in found[kind].items()} for kind in ("hourly", "gb_month")}
        return Prices(region=region, when=str(found["when"])[:10], **kinds)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        return None


def keep(prices: Prices) -> None:
    """Write prices for the next time, all or nothing. Where the cache cannot be written there is none."""
    try:
        path = cache_file(prices.region)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        try:
            new.write_text(json.dumps({"format": FORMAT, **asdict(prices)}), "utf-8")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except (OSError, RuntimeError):
        return


def today() -> str:
    """The date of what is asked for now."""
    return datetime.now(UTC).strftime("%Y-%m-%d")
