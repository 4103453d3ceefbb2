"""What a cluster costs by AWS's Price List (pure: prices in, lines out), and the cache of prices.

Usage types: `<REGION>-Cluster:ml.<type>` of AmazonSageMaker with component Cluster, `ReservedCluster:` for nodes of a training
plan; of the rest `AmazonEKS-Hours:perCluster`, `NatGateway-Hours` and `VpcEndpoint-Hours`, and of AmazonFSx with operation
CreateFileSystem:Lustre `Storage.SSD.<MB/s for each TiB>`, for a GB and a month; of AmazonCloudWatch `CW:AlarmMonitorUsage` and
`CW:MetricMonitorUsage`, for a month. Each begins with the region's code, except in us-east-1, so they are recognized by how they
end. `DashboardsUsageHour`, for a month too, is of no region.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ...config.cluster import ClusterConfig, InstanceGroup
from ...config.storage import StorageConfig
from ...config.zones import INTERFACE_ENDPOINTS, has_interface_endpoints, more_endpoints

HOURS = 730
"""Hours of a month, as in AWS's calculator."""
EKS, NAT, ENDPOINT = "AmazonEKS-Hours:perCluster", "NatGateway-Hours", "VpcEndpoint-Hours"
LUSTRE = "Storage.SSD."
ALARM, METRIC, DASHBOARD = "CW:AlarmMonitorUsage", "CW:MetricMonitorUsage", "DashboardsUsageHour"
_WANTED = (EKS, NAT, ENDPOINT, ALARM, METRIC, DASHBOARD)
FORMAT = 4
"""Version of the cache's files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A region's prices in US dollars an hour, before any discount and tax."""

    region: str
    when: str
    """The day on which they were read, in UTC: 2026-11-22."""
    hourly: Mapping[str, float]
    """By the end of the usage type, such as Cluster:ml.p5.48xlarge."""
    gb_month: Mapping[str, float] = field(default_factory=dict)
    """Prices of storage per GB and month, by the end of the usage type, such as Storage.SSD.250."""
    monthly: Mapping[str, float] = field(default_factory=dict)
    """Prices per month, by the end of the usage type, such as CW:AlarmMonitorUsage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One line: a number of something, at a price per hour."""

    what: str
    count: int
    each_hour: float | None
    """US dollars for one. None: no list price; not in the total."""
    note: str = ""

    @property
    def hour(self) -> float | None:
        """US dollars per hour for all of them."""
        return None if self.each_hour is None else self.each_hour * self.count


def costs(config: ClusterConfig, prices: Prices) -> tuple[Cost, ...]:
    """Every group at its full count, and the other resources of the stacks."""
    return (*(_group(group, prices) for group in config.instance_groups), *_beside(config, prices))


def hourly(found: Iterable[Cost]) -> float:
    """US dollars per hour of everything that has a price."""
    return sum(cost.hour or 0.0 for cost in found)


def wanted_usage(ends: str) -> bool:
    """Whether a cluster can need a price, by the end of its usage type."""
    return ends.startswith(("Cluster:ml.", "ReservedCluster:ml.", LUSTRE)) or ends in _WANTED


def usage_end(usage_type: str) -> str:
    """A usage type without its region's code, such as `USW2-`. Those of us-east-1 have none."""
    head, dash, tail = usage_type.partition("-")
    return tail if dash and head.isupper() else usage_type


def _group(group: InstanceGroup, prices: Prices) -> Cost:
    use = "ReservedCluster" if group.training_plan_arn else "Cluster"
    kinds = group.all_instance_types
    note = ""
    if group.spot:
        note = "Spot prices change, and the list has none"
    elif len(kinds) > 1:
        note = f"as if all nodes were {kinds[0]}"
    elif group.training_plan_arn:
        note = "by a training plan, which is paid in advance"
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
            note="its public IPv4 address and its traffic are billed too",
        )
    if has_interface_endpoints(network):
        count = len(INTERFACE_ENDPOINTS) + len(more_endpoints(config))
        yield Cost(what="interface endpoints", count=count, each_hour=prices.hourly.get(ENDPOINT), note="their traffic is billed too")  # fmt: skip
    if storage is not None and storage.capacity_gib is not None:
        what = f"FSx for Lustre, {storage.capacity_gib} GiB"
        price = prices.gb_month.get(f"{LUSTRE}{storage.throughput_mbps_per_tib}")
        price = None if price is None else price * storage.capacity_gib / HOURS
        yield Cost(what=what, count=1, each_hour=price, note=_of_lustre(storage) if price is not None else "")
    if config.monitoring is not None:
        yield from _monitoring(config, prices)
    yield Cost(what="volumes, S3, logs, KMS", count=1, each_hour=None, note="by use")


def _monitoring(config: ClusterConfig, prices: Prices) -> Iterable[Cost]:
    def of(what: str, count: int, usage: str, note: str = "") -> Cost:
        month = prices.monthly.get(usage)
        return Cost(what=what, count=count, each_hour=None if month is None else month / HOURS, note=note)

    yield of("CloudWatch alarms", alarm_metrics(config), ALARM)
    yield of("CloudWatch metrics", written_metrics(config), METRIC)
    yield of("CloudWatch dashboard", 1, DASHBOARD, "CloudWatch has free dashboards for each account")
    yield Cost(what="alerts by SNS, SQS, Lambda", count=1, each_hour=None, note="by use")


def alarm_metrics(config: ClusterConfig) -> int:
    """The metrics of all alarms, each of which is billed: five of the cluster, and those of images and of the file system."""
    images = 1 if config.orchestrator == "eks" else 0
    if config.storage is None:
        return 5 + images
    # The free share of an existing file system is calculated from two.
    return 5 + images + (1 if config.storage.file_system_id is None else 2)


def written_metrics(config: ClusterConfig) -> int:
    """The metrics that the function writes: of each group, of the cluster, and the heartbeat."""
    groups = len(config.instance_groups)
    planned = sum(1 for group in config.instance_groups if group.training_plan_arn)
    names = 3 if config.orchestrator == "eks" else 2
    return names * (groups + 1) + (planned + 1 if planned else 0) + 1


def _of_lustre(storage: StorageConfig) -> str:
    """What the price of a file system does not include."""
    extras = [
        *(["metadata_iops"] if storage.metadata_iops is not None else []),
        *(["backups"] if storage.automatic_backup_retention_days else []),
    ]
    return f"{' and '.join(extras)}: not counted" if extras else ""


# -- the cache --------------------------------------------------------------------------------------------------------


def cache_file(region: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The file of a region's prices, in the user's cache folder (XDG Base Directory)."""
    home = environment.get("XDG_CACHE_HOME", "")
    root = Path(home) if home.startswith("/") else Path.home() / ".cache"
    return root / "cdk-hyperpod" / f"prices-{region}.json"


def cached(region: str) -> Prices | None:
    """The prices that were read last; None: there are none, or the file is invalid."""
    try:
        found = json.loads(cache_file(region).read_text("utf-8"))
        if found["format"] != FORMAT or found["region"] != region:
            return None
        kinds = {kind: {str(k): float(v) for k, v in found[kind].items()} for kind in ("hourly", "gb_month", "monthly")}
        return Prices(region=region, when=str(found["when"])[:10], **kinds)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        return None


def keep(prices: Prices) -> None:
    """Write the prices into the cache, all or nothing. Does nothing if the cache cannot be written."""
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
    """Today's date, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d")
