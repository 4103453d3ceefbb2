"""preflight and cost with the local AWS, which serves quotas, training plans, offers and prices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod.cli.deployment.account_state import NotRead
from cdk_hyperpod.cli.deployment.cost import read_prices
from cdk_hyperpod.cli.deployment.preflight import read_account_state
from cdk_hyperpod.cli.deployment.preflight_checks import exit_code, rows
from cdk_hyperpod.loader import load_config
from cdk_hyperpod_local.session import LocalAws
from helpers.validating import ROOT, changed

DENY = {"Effect": "Deny", "Action": "servicequotas:*", "Resource": "*"}
ALLOW = {"Effect": "Allow", "Action": "*", "Resource": "*"}


def preflight(aws: LocalAws, client: Any = None, file: Path = ROOT / "cluster.yaml") -> tuple[int, dict[str, str]]:
    config = load_config(file).config
    found = rows(config, read_account_state(config, client or aws.client))
    return exit_code(found), {row.check: row.verdict for row in found}


def test_quotas_offers_and_plans_are_hyperpods(engine: LocalAws, tmp_path: Path) -> None:
    code, verdicts = preflight(engine)
    assert code == 0, verdicts

    kind = load_config(ROOT / "cluster.yaml").config.instance_groups[-1].all_instance_types[0]
    engine.change_hyperpod(quotas={f"{kind} for cluster usage": 0})
    try:
        code, verdicts = preflight(engine)
        assert (code, verdicts[f"{kind} for cluster usage"]) == (1, "impossible")
    finally:
        engine.change_hyperpod(quotas={f"{kind} for cluster usage": None})


@pytest.mark.parametrize("zone", ["us-west-2d", "usw2-az4"])
def test_a_zone_in_which_the_engine_deploys_offers_the_types(engine: LocalAws, tmp_path: Path, zone: str) -> None:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(changed({"network.availability_zones": [zone]})), "utf-8")
    code, verdicts = preflight(engine, file=tmp_path / "cluster.yaml")
    assert {check: verdict for check, verdict in verdicts.items() if f" in {zone}" in check} != {}
    assert code == 0, verdicts


def test_a_right_that_lacks_is_not_checked(engine: LocalAws) -> None:
    iam = engine.client("iam")
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": f"arn:aws:iam::{engine.account}:root"}}
    iam.create_role(
        RoleName="asks", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    )
    document = {"Version": "2012-10-17", "Statement": [ALLOW, DENY]}
    iam.put_role_policy(RoleName="asks", PolicyName="may", PolicyDocument=json.dumps(document))

    code, verdicts = preflight(engine, lambda service: engine.client_as("asks", service))

    assert code == 2
    assert verdicts["nodes per cluster"] == "not checked"
    state = read_account_state(
        load_config(ROOT / "cluster.yaml").config, lambda service: engine.client_as("asks", service)
    )
    assert isinstance(state.quotas, NotRead)
    assert "lack the permission servicequotas:List" in state.quotas.why


def test_prices_of_a_region(engine: LocalAws) -> None:
    prices = read_prices("us-west-2", engine.client)

    assert prices.hourly["Cluster:ml.p5.48xlarge"] == 2 * prices.hourly["ReservedCluster:ml.p5.48xlarge"]
    assert {"AmazonEKS-Hours:perCluster", "NatGateway-Hours", "VpcEndpoint-Hours"} <= prices.hourly.keys()
    assert {"CW:AlarmMonitorUsage", "CW:MetricMonitorUsage", "DashboardsUsageHour"} == prices.monthly.keys()
