"""What a cluster costs, by a price list that the test knows: nothing is added that has no price."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod.cli import aws
from cdk_hyperpod.cli.deployment.cost import CostError, cost_lines, read_prices
from cdk_hyperpod.cli.deployment.prices import Prices, cache_file, cached, costs, hourly, keep, usage_end
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.config import MonitoringConfig
from cdk_hyperpod.loader import load_config
from helpers.synthesis import CONFIGS, folder_of, new_app, templates_in
from helpers.validating import ROOT
from stacks import add_stacks

HOURLY = {
    "Cluster:ml.m5.4xlarge": 1.0, "Cluster:ml.p5.48xlarge": 60.0, "ReservedCluster:ml.p5.48xlarge": 30.0,
    "Cluster:ml.trn1.32xlarge": 25.0, "Cluster:ml.c5.9xlarge": 2.0, "Cluster:ml.p5e.48xlarge": 70.0, "Cluster:ml.m5.2xlarge": 0.5,
    "NatGateway-Hours": 0.05, "VpcEndpoint-Hours": 0.01, "AmazonEKS-Hours:perCluster": 0.1,
}  # fmt: skip
GB_MONTH = {"Storage.SSD.125": 0.1, "Storage.SSD.250": 0.2, "Storage.SSD.500": 0.3, "Storage.SSD.1000": 0.6}
MONTHLY = {"CW:AlarmMonitorUsage": 0.1, "CW:MetricMonitorUsage": 0.3, "DashboardsUsageHour": 3.0}
PRICES = Prices(region="us-west-2", when="2026-11-22", hourly=HOURLY, gb_month=GB_MONTH, monthly=MONTHLY)
EVERYTHING = load_config(ROOT / "tests" / "helpers" / "configs" / "everything.yaml").config
TIER = EVERYTHING.storage.throughput_mbps_per_tib if EVERYTHING.storage else 0


def product(usage: str, price: float, unit: str = "Hrs") -> str:
    rate = {"unit": unit, "beginRange": "0", "pricePerUnit": {"USD": str(price)}}
    terms = {"OnDemand": {"a": {"priceDimensions": {"b": rate}}}}
    return json.dumps({"product": {"attributes": {"usagetype": usage}}, "terms": terms})


class PriceList:
    """The Price List API, two products to a page."""

    def __init__(self, products: list[str]) -> None:
        self.products = products
        self.calls = 0

    def get_products(self, *, ServiceCode: str, NextToken: str = "0", **_: Any) -> Any:
        self.calls += 1
        found = self.products if ServiceCode == "AmazonSageMaker" else []
        start = int(NextToken)
        more = {"NextToken": str(start + 2)} if start + 2 < len(found) else {}
        return {"PriceList": found[start : start + 2], **more}


def test_every_group_and_what_stands_beside_the_nodes() -> None:
    found = {each.what: each for each in costs(EVERYTHING, PRICES)}

    assert found["p5 (ml.p5.48xlarge)"].hour == 8 * 30.0, "a training plan's nodes have a price of their own"
    assert found["trn1 (ml.trn1.32xlarge)"].hour == 4 * 25.0
    assert found["mixed (ml.c5.9xlarge)"].hour is None, "nobody lists a Spot price"
    assert found["NAT gateway"].hour == 0.05
    assert "public IPv4 address" in found["NAT gateway"].note, "which has a price of its own"
    assert found["FSx for Lustre, 19200 GiB"].hour == pytest.approx(19200 * GB_MONTH[f"Storage.SSD.{TIER}"] / 730)
    assert found["FSx for Lustre, 19200 GiB"].note.endswith(": not counted"), (
        "metadata and backups have prices of their own"
    )
    assert hourly(found.values()) == pytest.approx(sum(each.hour for each in found.values() if each.hour is not None))


def test_the_parts_of_monitoring_have_prices_of_a_month() -> None:
    found = {each.what: each for each in costs(EVERYTHING, PRICES)}
    groups = len(EVERYTHING.instance_groups)

    # Missing, below the minimum, and of one group with a plan the days left, each for the cluster too; and the heartbeat.
    assert found["CloudWatch metrics"].count == 2 * (groups + 1) + 2 + 1
    assert found["CloudWatch metrics"].hour == pytest.approx(found["CloudWatch metrics"].count * 0.3 / 730)
    assert found["CloudWatch dashboard"].hour == pytest.approx(3.0 / 730)
    assert found["alerts by SNS, SQS, Lambda"].hour is None, "by use"
    without = dataclasses.replace(EVERYTHING, monitoring=None)
    assert not [each for each in costs(without, PRICES) if "CloudWatch" in each.what or "alerts" in each.what]


@pytest.mark.parametrize("name", ["everything", "eks", "existing"])
def test_as_many_metrics_of_alarms_are_billed_as_the_template_has(name: str) -> None:
    loaded = load_config(CONFIGS / f"{name}.yaml")
    config = dataclasses.replace(loaded.config, monitoring=MonitoringConfig())
    app = new_app()
    stack = add_stacks(app, dataclasses.replace(loaded, config=config))
    template = templates_in(folder_of(app))[stack.stack_name]

    alarms = template.properties("AWS::CloudWatch::Alarm")
    metrics = [
        [each for each in alarm.get("Metrics", [{"MetricStat": {}}]) if "MetricStat" in each] for alarm in alarms
    ]
    assert {each.what: each.count for each in costs(config, PRICES)}["CloudWatch alarms"] == sum(map(len, metrics))


def test_resources_without_a_price_are_listed_and_not_added_to_the_sum() -> None:
    hours = {k: v for k, v in HOURLY.items() if "p5e" not in k}
    without = Prices(region="us-west-2", when="2026-11-22", hourly=hours, monthly=MONTHLY)
    found = costs(EVERYTHING, without)
    text = "\n".join(cost_lines(found, without))

    of_storage = 19200 * GB_MONTH[f"Storage.SSD.{TIER}"] / 730
    assert hourly(costs(EVERYTHING, PRICES)) - hourly(found) == pytest.approx(2 * 70.0 + of_storage)
    assert "  FSx for Lustre, 19200 GiB: the price list has no price" in text
    assert "  p5e (ml.p5e.48xlarge): the price list has no price" in text
    assert "  mixed (ml.c5.9xlarge): Spot prices change, and the list has none" in text
    assert all(len(line) <= 80 for line in text.splitlines()), text


@pytest.mark.parametrize(
    ("usage", "end"),
    [
        ("USW2-Cluster:ml.p5.48xlarge", "Cluster:ml.p5.48xlarge"),
        ("Cluster:ml.p5.48xlarge", "Cluster:ml.p5.48xlarge"),
        ("NatGateway-Hours", "NatGateway-Hours"),
        ("EUC1-AmazonEKS-Hours:perCluster", "AmazonEKS-Hours:perCluster"),
    ],
)
def test_usage_types_of_every_region_end_alike(usage: str, end: str) -> None:
    assert usage_end(usage) == end


def test_prices_are_read_page_by_page_and_only_hours() -> None:
    products = [
        product("USW2-Cluster:ml.p5.48xlarge", 60.0),
        product("USW2-Studio:ml.p5.48xlarge", 99.0),
        product("USW2-Cluster:ml.m5.4xlarge", 5.0, unit="Quantity"),
        product("USW2-ReservedCluster:ml.p5.48xlarge", 30.0),
        product("USW2-Storage.SSD.250", 0.2, unit="GB-Mo"),
        product("USW2-CW:AlarmMonitorUsage", 0.1, unit="Alarms"),
        product("USW2-CW:HighResAlarmMonitorUsage", 0.3, unit="Alarms"),
        product("DashboardsUsageHour", 3.0, unit="Dashboards"),
        "no JSON",
        json.dumps({"product": {}}),
    ]
    found = read_prices("us-west-2", lambda _: PriceList(products))

    assert found.hourly == {"Cluster:ml.p5.48xlarge": 60.0, "ReservedCluster:ml.p5.48xlarge": 30.0}
    assert found.gb_month == {"Storage.SSD.250": 0.2}, "a GB and a month is no hour"
    assert found.monthly == {"CW:AlarmMonitorUsage": 0.1, "DashboardsUsageHour": 3.0}
    with pytest.raises(CostError, match="no HyperPod node in us-west-2"):
        read_prices("us-west-2", lambda _: PriceList([]))


def test_the_command_asks_once_and_check_ends_with_the_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = PriceList([product(f"USW2-{name}", price) for name, price in HOURLY.items() if name.startswith("Cluster")])
    monkeypatch.setattr(aws, "clients", lambda *_: lambda _: asked)
    config = str(ROOT / "cluster.yaml")
    assert main(["check", config]) == 0
    assert "per hour" not in capsys.readouterr().out, "no price, no figure"

    assert main(["cost", "--config", config]) == 0
    first, calls = capsys.readouterr().out, asked.calls
    assert main(["cost", "--config", config]) == 0
    assert (capsys.readouterr().out, asked.calls) == (first, calls), "the cache has them"
    assert main(["cost", "--config", config, "--refresh"]) == 0
    assert asked.calls > calls
    capsys.readouterr()

    assert main(["check", config]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("Details: cdk-hyperpod cost")
    assert main(["cost", "--config", config, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["command"], told["schema"], told["made_up_by"]) == ("cost", 1, None)
    assert told["total"]["usd_hour"] == pytest.approx(sum(line["usd_hour"] or 0 for line in told["lines"]))


@pytest.mark.parametrize("how", ["option", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_PRICING", "profile", "services"])
def test_prices_of_another_endpoint_are_neither_kept_nor_is_the_cache_read(
    how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The local AWS makes them up."""
    asked = PriceList([product("USW2-Cluster:ml.p5.48xlarge", 1.0)])
    monkeypatch.setattr(aws, "clients", lambda *_: lambda _: asked)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_PRICING", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    url, settings, options = "http://127.0.0.1:4566", "", []
    if how == "option":
        options = ["--endpoint-url", url]
    elif how.startswith("AWS"):
        monkeypatch.setenv(how, url)
    else:
        own = f"endpoint_url = {url}" if how == "profile" else "services = local"
        settings = f"[profile mine]\n{own}\n[services local]\npricing =\n  endpoint_url = {url}\n"
        options = ["--profile", "mine"]
    (tmp_path / "config").write_text(settings, "utf-8")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    command = ["cost", "--config", str(ROOT / "cluster.yaml")]

    assert main([*command, *options]) == 0
    assert cached("us-west-2") is None and asked.calls
    printed = capsys.readouterr().out
    assert "These prices are made up" in printed and url in printed and "list prices" not in printed
    assert all(len(line) <= 80 for line in printed.splitlines()), printed
    assert main([*command, *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["made_up_by"] == url
    keep(PRICES)
    calls = asked.calls
    assert main([*command, *options]) == 0
    assert asked.calls > calls and cached("us-west-2") == PRICES
    if how in ("profile", "services"):
        calls = asked.calls
        assert main(command) == 0
        assert asked.calls == calls, "the default profile has no endpoint"


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("https://127.0.0.1:4566", True),
        ("http://localhost", True),
        ("http://[::1]:4566", True),
        ("https://api.pricing.us-east-1.amazonaws.com", False),
        ("https://127.example.com", False),
        ("http://[", False),
        ("no address", False),
    ],
)
def test_only_an_endpoint_on_this_machine_makes_prices_up(url: str, is_local: bool) -> None:
    assert aws.local_endpoint("pricing", None, url) == (url if is_local else None)


@pytest.mark.parametrize("text", ["", "no JSON", "{}", '{"format": 9}', "[]", '{"format": 1, "region": "us-west-2"}'])
def test_an_invalid_price_cache_is_ignored(text: str) -> None:
    keep(PRICES)
    assert cached("us-west-2") == PRICES
    cache_file("us-west-2", {"XDG_CACHE_HOME": str(cache_file("us-west-2").parents[1])}).write_text(text, "utf-8")
    assert cached("us-west-2") is None
    assert cached("us-east-1") is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep(PRICES)
    assert cached("us-west-2") is None
