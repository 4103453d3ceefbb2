"""`cdk-hyperpod cost`: what the cluster of a file costs per hour and per month, by AWS's Price List."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import rich_click as click

from ...errors import HyperPodError
from ...loader import load_config
from .. import aws
from ..aws import Clients
from ..options import config_option, json_option, permissions, profile_option
from ..tables import WIDTH, say, say_json, table, wrapped
from .prices import HOURS, Cost, Prices, cached, costs, hourly, keep, today, usage_end, wanted_usage

_HELP = """\
Show what the cluster of the file costs per hour and per month, at list prices in US
dollars, without discounts and taxes. Counts each group at its full count, the file
system, endpoints, NAT gateway, EKS control plane, and the alarms, metrics and
dashboard of monitoring. Names what has no list price.

Example:
    cdk-hyperpod cost --refresh

Prices are kept in your cache folder with their date; --refresh reads them again. With
prices in the cache, `check` shows the total. Prices of an endpoint that you have set
(--endpoint-url, AWS_ENDPOINT_URL, endpoint_url in your configuration) are not kept.
Those of the local AWS are made up, and the output says so.
"""
_REGION = "us-east-1"
"""Price List exists in three regions, and has the prices of all regions."""
_PRODUCTS: tuple[tuple[str, dict[str, str | None]], ...] = (
    ("AmazonSageMaker", {"component": "Cluster"}),
    ("AmazonEKS", {}),
    ("AmazonEC2", {"productFamily": "NAT Gateway"}),
    ("AmazonVPC", {}),
    ("AmazonFSx", {"operation": "CreateFileSystem:Lustre"}),
    ("AmazonCloudWatch", {"productFamily": "Alarm"}),
    ("AmazonCloudWatch", {"productFamily": "Metric"}),
    ("AmazonCloudWatch", {"productFamily": "Dashboard", "regionCode": None}),
)
"""Services, and attributes of their products beside the region's code. A code of None: the product is of no region."""
_UNITS = {
    "hourly": ("Hrs", "Hours", "hours"),
    "gb_month": ("GB-Mo",),
    "monthly": ("Alarms", "Metrics", "Dashboards"),
}


class CostError(HyperPodError):
    """The price list has no prices of the region."""


@click.command(
    help=_HELP,
    epilog=permissions(
        "pricing:GetProducts",
        besides="With prices in the cache, AWS is not called.\n\nExit code 0: printed. 1: there are no prices.",
    ),
)
@config_option
@profile_option
@click.option("--refresh", is_flag=True, help="Read the prices from AWS again.")
@click.option("--endpoint-url", metavar="URL", help="AWS endpoint of Price List; default: AWS's own.")
@json_option
def cost(config: str, profile: str | None, endpoint_url: str | None, *, refresh: bool, as_json: bool) -> None:
    """Read the cache or AWS, and print."""
    cluster = load_config(config).config
    # Prices of another endpoint, such as the local AWS, may be invented.
    of_aws = endpoint_url is None and aws.endpoint("pricing", profile) is None
    made_up_by = aws.local_endpoint("pricing", profile, endpoint_url)
    prices = cached(cluster.region) if of_aws and not refresh else None
    if prices is None:
        prices = read_prices(cluster.region, aws.clients(_REGION, profile, endpoint_url))
        if of_aws:
            keep(prices)
    found = costs(cluster, prices)
    if as_json:
        lines = [
            {"what": each.what, "count": each.count, "usd_hour": each.hour, "usd_month": _month(each.hour), "note": each.note}
            for each in found
        ]  # fmt: skip
        total = {"usd_hour": hourly(found), "usd_month": _month(hourly(found))}
        content = {
            "cluster": cluster.name,
            "region": cluster.region,
            "prices_of": prices.when,
            "made_up_by": made_up_by,
        }
        say_json("cost", 1, {**content, "lines": lines, "total": total})
        return
    say(*cost_lines(found, prices, made_up_by=made_up_by))


def cost_lines(found: Sequence[Cost], prices: Prices, *, made_up_by: str | None = None) -> Iterator[str]:
    """The costs as a table of 80 columns, and what the total does not include. `made_up_by`: the local AWS's endpoint; None:
    the prices are AWS's."""
    known = [each for each in found if each.each_hour is not None]
    unknown = [each for each in found if each.each_hour is None]
    yield from _table(known)
    yield ""
    yield from _origin(prices, made_up_by)
    yield from _section(
        "Not in the total:", {each.what: each.note or "the price list has no price" for each in unknown}
    )
    yield from _section("Notes:", {each.what: each.note for each in known if each.note})


def _origin(prices: Prices, made_up_by: str | None) -> list[str]:
    if made_up_by is None:
        return [f"US dollars, list prices of {prices.when} in {prices.region}; a month has {HOURS} hours."]
    return wrapped(
        f"US dollars; a month has {HOURS} hours. These prices are made up, and AWS's differ: they are those of the local "
        f"AWS on {made_up_by}."
    )


def _section(heading: str, notes: Mapping[str, str]) -> Iterator[str]:
    if notes:
        yield heading
    for what, note in notes.items():
        yield f"  {what}: {note}"


def _table(known: Sequence[Cost]) -> Iterator[str]:
    cells = [
        (each.what, str(each.count), _usd(each.each_hour), _usd(each.hour), _usd(_month(each.hour), 0))
        for each in known
    ]
    total = hourly(known)
    cells.append(("total", "", "", _usd(total), _usd(_month(total), 0)))
    yield from table(
        ("what", "count", "each", "per hour", "per month"), cells, columns=WIDTH, cut=(0,), right=(1, 2, 3, 4)
    )


def figure(config: Any) -> str | None:
    """One line for `check`; None: no prices are in the cache."""
    prices = cached(config.region)
    if prices is None:
        return None
    found = costs(config, prices)
    total = hourly(found)
    unknown = any(each.each_hour is None for each in found)
    more = ", without what has no list price" if unknown else ""
    return (
        f"${total:,.2f} per hour, ${total * HOURS:,.0f} per month, at list prices of {prices.when}{more}. "
        "Details: cdk-hyperpod cost"
    )


def read_prices(region: str, client: Clients) -> Prices:
    """Read a region's prices. Raises CostError if the list has no HyperPod node there: missing prices do not mean free nodes."""
    found: dict[str, dict[str, float]] = {kind: {} for kind in _UNITS}
    for service, attributes in _PRODUCTS:
        filters = {"regionCode": region, **attributes}
        matches = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in filters.items() if value]
        products = client("pricing").get_products
        for text in aws.pages(products, "PriceList", ServiceCode=service, Filters=matches, MaxResults=100):
            for kind, prices in found.items():
                prices.update(_price(text, _UNITS[kind]))
    if not any(name.startswith("Cluster:") for name in found["hourly"]):
        raise CostError(f"AWS's price list has no HyperPod node in {region}. Check the region")
    kinds = {kind: dict(sorted(prices.items())) for kind, prices in found.items()}
    return Prices(region=region, when=today(), **kinds)


def _price(text: Any, units: Sequence[str]) -> dict[str, float]:
    """The on-demand price of one product, JSON as text, in one of these units; empty for products that no cluster uses."""
    try:
        product = json.loads(text) if isinstance(text, str) else text
        ends = usage_end(str(product["product"]["attributes"]["usagetype"]))
        if not wanted_usage(ends):
            return {}
        for term in product["terms"]["OnDemand"].values():
            for rate in term["priceDimensions"].values():
                if rate["unit"] in units and float(rate.get("beginRange") or 0) == 0:
                    return {ends: float(rate["pricePerUnit"]["USD"])}
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return {}


def _month(hour: float | None) -> float | None:
    return None if hour is None else hour * HOURS


def _usd(amount: float | None, digits: int = 2) -> str:
    return "" if amount is None else f"{amount:,.{digits}f}"
