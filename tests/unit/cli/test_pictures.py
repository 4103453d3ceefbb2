"""The pictures of the pages on commands: what commands print on a terminal of 80 columns, in colour, about HyperPod's model.

`make docs` writes them again; a picture of an older output fails here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod.cli import aws, tables
from cdk_hyperpod.cli.deployment import preflight
from cdk_hyperpod.cli.deployment.account_state import AccountState, LiveCluster, LiveGroup, NotRead
from cdk_hyperpod.cli.deployment.preflight_checks import PER_CLUSTER, TOTAL, usage_quota
from cdk_hyperpod_local.hyperpod.samples import VPC, group, slurm
from helpers.cli.drawing import picture
from helpers.validating import ROOT
from simulations.lifetimes.agent import status as agent_status
from unit.cli.conftest import FakeAws, Run, deployed, refused, write

Json = Any
FOLDER = ROOT / "docs" / "pictures"
SUBNET = {"subnet_id": VPC["Subnets"][0], "availability_zone": "us-west-2b"}
SMALL = {
    "network": {"vpc_id": "vpc-0123456789abcdef0", "subnets": [SUBNET]},
    "slurm": {"drain": {}},
    "instance_groups__1__partition": "work",
    "instance_groups__1__instance_count": 3,
}
STACK = "arn:aws:cloudformation:us-west-2:000000000000:stack/hyperpod-small-cluster/0a1b2c3d"


def three_workers(fake_aws: FakeAws) -> None:
    """A cluster with a node that failed, one with an old image, and one that is drained."""
    write(**SMALL)
    head = group("head", 1, instance_type="ml.m5.xlarge", node_type="Controller")
    made = slurm(name="small", Tags=[{"Key": "cdk-hyperpod:stack-id", "Value": STACK}])
    fake_aws.model.call("CreateCluster", {**made, "InstanceGroups": [head, group("work", 3)]})
    fake_aws.quiet()
    fake_aws.model.clock.advance(3 * 86_400)  # type: ignore[attr-defined]
    first, second, third = fake_aws.nodes("work")
    fake_aws.model.change_node(first, status="Failure")
    fake_aws.model.change_node(second, image="1.0")
    busy = {node: [{"id": "4711", "user": "alice"}] for node in (second, third)}
    fake_aws.status = agent_status(fake_aws.model.clock.now(), nodes={third: {"state": "draining"}}, busy=busy)


def nodes(fake_aws: FakeAws, run: Run, patch: pytest.MonkeyPatch) -> Json:
    del patch
    three_workers(fake_aws)
    return run("nodes")


def _plan(fake_aws: FakeAws, run: Run, patch: pytest.MonkeyPatch) -> Json:
    """A lower count, and a node by name."""
    three_workers(fake_aws)
    first = fake_aws.nodes("work")[0]
    # From a file with one node more.
    deployed(fake_aws, patch)
    write(**SMALL | {"instance_groups__1__instance_count": 1, "scale_down": {"nodes_to_delete": [first]}})
    return run("plan")


def _preflight(fake_aws: FakeAws, run: Run, patch: pytest.MonkeyPatch) -> Json:
    """Too few P5 nodes allowed, another cluster with some, and a right that is missing."""
    file = yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8"))
    Path("cluster.yaml").write_text(yaml.safe_dump(file))
    types = {each["instance_type"] for each in file["instance_groups"]}
    quotas = {usage_quota(kind, spot=False): 20.0 for kind in types} | {PER_CLUSTER: 20.0, TOTAL: 60.0}
    zones = {f"us-west-2{letter}": f"usw2-az{number}" for number, letter in enumerate("abc", 1)}
    account = AccountState(
        now=tables.now(),
        quotas=quotas | {usage_quota("ml.p5.48xlarge", spot=False): 16.0},
        interfaces=NotRead(why=aws.sentence(refused("UnauthorizedOperation", "", "ec2:DescribeNetworkInterfaces"))),
        clusters=(LiveCluster(name="other", groups=(LiveGroup(name="p5", instance_type="ml.p5.48xlarge", count=12),)),),
        zones=zones,
        offered={kind: frozenset(zones) - {"us-west-2a"} for kind in types},
        bootstrap=27,
    )
    patch.setattr(preflight, "read_account_state", lambda *_: account)
    patch.setattr(aws, "clients", lambda *_: None)
    return run("preflight")


def _watch(fake_aws: FakeAws, run: Run, patch: pytest.MonkeyPatch) -> Json:
    """A cluster comes up, and one of its nodes fails first."""
    patch.setattr("time.sleep", fake_aws.model.clock.advance)  # type: ignore[attr-defined]
    fake_aws.cluster(group("work", 2, minimum=1))
    return run("watch")


SCENES = {"nodes": nodes, "plan": _plan, "preflight": _preflight, "watch": _watch}


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("command", SCENES)
def test_the_picture_is_what_the_command_prints(
    command: str, fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    _, out, err = SCENES[command](fake_aws, run, monkeypatch)
    assert err == "" and "\033[" in out
    made = picture(f"cdk-hyperpod {command}", out)
    file = FOLDER / f"{command}.svg"
    if os.environ.get("GOLDEN") == "write":
        FOLDER.mkdir(exist_ok=True)
        file.write_text(made, "utf-8")
    assert file.read_text("utf-8") == made, "write the pictures again: make docs"


def test_no_picture_is_left_of_a_command_that_is_gone() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(SCENES)
