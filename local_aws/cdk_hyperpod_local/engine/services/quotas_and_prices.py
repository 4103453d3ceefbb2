"""Service Quotas and Price List: the quotas of the simulated HyperPod, and invented prices."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from cdk_hyperpod_local.engine.journal import Journal
from cdk_hyperpod_local.engine.seam import services as requests
from cdk_hyperpod_local.engine.services.json_service import JsonService, failure, success
from cdk_hyperpod_local.hyperpod import HyperPod, limits
from cdk_hyperpod_local.hyperpod.api_shapes import service_model

Json = Any
UNLIMITED = 1_000_000
"""The value of a quota that is not set: more than any cluster has."""
INTERFACES = "Network interfaces per Region"
_PAGE = 100


class _Service(JsonService):
    def __init__(self, name: str, answers: dict[str, Callable[[Json], Json]], journal: Journal) -> None:
        super().__init__(name, self._reply, journal)
        self._answers = answers

    def _reply(self, operation: str, body: bytes, caller: str, account: str, region: str) -> requests.Reply:
        if operation not in self._answers:
            return failure("UnknownOperationException", f"{operation} is not served")
        return success(self._answers[operation](json.loads(body or b"{}")))


def install(hyperpod: Callable[[], HyperPod], journal: Journal) -> None:
    """Serve both. `hyperpod`: the HyperPod whose quotas they are."""
    quotas = {name: lambda request: _quotas(hyperpod(), request) for name in ("ListServiceQuotas", "ListAWSDefaultServiceQuotas")}  # fmt: skip
    for name, prefix, answers in (
        ("servicequotas", "ServiceQuotasV20190624.", quotas),
        ("pricing", "AWSPriceListService.", {"GetProducts": _products}),
    ):
        requests.register_service(name, _Service(name, answers, journal), target_prefix=prefix, tagged=lambda: iter(()))


def _quotas(hyperpod: HyperPod, request: Json) -> Json:
    """ListServiceQuotas and ListAWSDefaultServiceQuotas: the quotas that HyperPod enforces, and large values for all
    others."""
    values: dict[str, float] = {INTERFACES: 5000}
    if request["ServiceCode"] == "sagemaker":
        names = [limits.usage_name(kind, spot=spot) for kind in _types() for spot in (False, True)]
        names += [limits.PER_CLUSTER, limits.TOTAL, limits.TOTAL_SPOT, limits.VOLUME_GB]
        values = dict.fromkeys(names, float(UNLIMITED)) | {
            name: float(value) for name, value in hyperpod.quotas.items()
        }
    return _page(
        "Quotas", [{"QuotaName": name, "ServiceCode": request["ServiceCode"], "Value": value} for name, value in values.items()], request
    )  # fmt: skip


def _types() -> list[str]:
    """Every instance type that HyperPod supports (botocore: ClusterInstanceType)."""
    return sorted(service_model().shape_for("ClusterInstanceType").enum)


def _page(member: str, entries: list[Json], request: Json) -> Json:
    start, size = int(request.get("NextToken", 0)), request.get("MaxResults", _PAGE)
    more = {"NextToken": str(start + size)} if start + size < len(entries) else {}
    return {member: entries[start : start + size], **more}


def _products(request: Json) -> Json:
    """GetProducts, with the given filters."""
    filters = {each["Field"]: each["Value"] for each in request.get("Filters", ())}
    region = filters.get("regionCode", "us-west-2")
    found = [
        json.dumps(_product(attributes, unit, price))
        for service, attributes, unit, price in _price_list(region)
        if service == request["ServiceCode"] and all(attributes.get(key) == value for key, value in filters.items())
    ]
    return _page("PriceList", found, request)


def _price_list(region: str) -> list[tuple[str, dict[str, str], str, float]]:
    """Service, attributes, unit and price. The prices are invented round numbers."""
    prefix = "".join(part[0] for part in region.split("-")[1:-1]).upper() + region[-1]
    where = {"regionCode": region}
    listed = []
    for name in _types():
        price = float((re.findall(r"(\d+)xlarge", name) or [1])[0])
        for use, share in (("Cluster", 1.0), ("ReservedCluster", 0.5)):
            usage = {"component": "Cluster", "usagetype": f"{prefix}-{use}:{name}", "instanceType": f"{name}-Cluster"}
            listed.append(("AmazonSageMaker", {**where, **usage}, "Hrs", price * share))
    return [
        *listed,
        ("AmazonEKS", {**where, "usagetype": f"{prefix}-AmazonEKS-Hours:perCluster"}, "Hrs", 0.1),
        (
            "AmazonEC2",
            {**where, "usagetype": f"{prefix}-NatGateway-Hours", "productFamily": "NAT Gateway"},
            "Hrs",
            0.05,
        ),
        ("AmazonVPC", {**where, "usagetype": f"{prefix}-VpcEndpoint-Hours"}, "Hrs", 0.01),
        *(
            (
                "AmazonFSx",
                {**where, "usagetype": f"{prefix}-Storage.SSD.{speed}", "operation": "CreateFileSystem:Lustre"},
                "GB-Mo",
                speed / 1000,
            )
            for speed in (125, 250, 500, 1000)
        ),
        (
            "AmazonCloudWatch",
            {**where, "usagetype": f"{prefix}-CW:AlarmMonitorUsage", "productFamily": "Alarm"},
            "Alarms",
            0.1,
        ),
        (
            "AmazonCloudWatch",
            {**where, "usagetype": f"{prefix}-CW:MetricMonitorUsage", "productFamily": "Metric"},
            "Metrics",
            0.25,
        ),
        # Of no region.
        (
            "AmazonCloudWatch",
            {"regionCode": "", "usagetype": "DashboardsUsageHour", "productFamily": "Dashboard"},
            "Dashboards",
            2.5,
        ),
    ]


def _product(attributes: dict[str, str], unit: str, price: float) -> Json:
    dimension = {"unit": unit, "pricePerUnit": {"USD": f"{price:.10f}"}, "beginRange": "0", "endRange": "Inf"}
    return {
        "product": {"attributes": attributes},
        "terms": {"OnDemand": {"term": {"priceDimensions": {"rate": dimension}}}},
    }
