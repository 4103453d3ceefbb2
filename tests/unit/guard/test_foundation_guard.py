"""The foundation's guard in the templates: it comes before everything, and is told what the file says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from helpers.synthesis import CONFIGS, ROOT, Json, Template, needs, of_file, of_text

FILES = [ROOT / "cluster.yaml", *sorted(CONFIGS.glob("*.yaml"))]
GUARD = "Custom::HyperPodFoundationGuard"
ABSENT = {"SubnetId": "", "AvailabilityZone": "", "SubnetCidr": "", "Efa": ""}


def foundation(templates: dict[str, Template]) -> Template:
    (found,) = (template for name, template in templates.items() if name.endswith("-foundation"))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_everything_but_its_own_parts_waits_for_it(path: Path) -> None:
    template = foundation(of_file(path))
    guard = template.only_id(GUARD)
    own = needs(template, guard)
    assert sorted(template.resources[name]["Type"] for name in own) == [
        "AWS::IAM::ManagedPolicy",
        "AWS::IAM::Role",
        "AWS::Lambda::Function",
        "AWS::Logs::LogGroup",
    ]
    assert {name for name in template.resources if guard not in needs(template, name)} == {guard, *own}


def told(path: Path) -> Json:
    left_out = ("ServiceToken", "ServiceTimeout", "ClusterStack")
    properties = foundation(of_file(path)).only(GUARD)
    return {key: value for key, value in properties.items() if key not in left_out}


def test_the_foundation_guard_gets_the_immutable_settings_of_the_file() -> None:
    train = {"ClusterName": "llm-train", "Orchestrator": "slurm"}
    made = {"AvailabilityZone": "us-west-2c", "SubnetCidr": "10.0.64.0/19", "Efa": "false"}
    assert told(ROOT / "cluster.yaml") == {**ABSENT, **train, **made}
    config = yaml.safe_load((CONFIGS / "existing.yaml").read_text("utf-8"))
    first = config["network"]["subnets"][0]["subnet_id"]
    named = {"ClusterName": config["name"], "Orchestrator": "slurm"}
    assert told(CONFIGS / "existing.yaml") == {**ABSENT, **named, "SubnetId": first}, (
        "an existing file system is no setting"
    )
    assert told(CONFIGS / "eks.yaml")["Orchestrator"] == "eks"


def test_an_accounts_first_zone_is_looked_up_when_it_is_deployed(tmp_path: Path) -> None:
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8"))
    del config["network"]["availability_zones"]
    template = foundation(of_text(yaml.safe_dump(config), tmp_path))
    properties = template.only(GUARD)
    assert properties["AvailabilityZone"] == template.only("AWS::EC2::Subnet")["AvailabilityZone"]
    assert properties["SubnetCidr"] == template.only("AWS::EC2::Subnet")["CidrBlock"]


def test_it_may_read_and_do_nothing_else() -> None:
    template = foundation(of_file(ROOT / "cluster.yaml"))
    (policy,) = (
        item
        for item in template.properties("AWS::IAM::ManagedPolicy")
        if "guard of a foundation" in item.get("Description", "")
    )
    actions = [action for statement in policy["PolicyDocument"]["Statement"] for action in statement["Action"]]
    assert sorted(actions) == [
        "cloudformation:DescribeStacks",
        "cloudformation:ListStackResources",
        "ec2:DescribeSubnets",
        "fsx:DescribeFileSystems",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "sagemaker:DescribeCluster",
        "sagemaker:ListTags",
    ]
