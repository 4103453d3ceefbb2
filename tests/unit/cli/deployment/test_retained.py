"""What `cdk destroy` leaves, and what it costs: the list that a user reads before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod.cli import live
from cdk_hyperpod.cli.aws import AwsError
from cdk_hyperpod.cli.deployment.retained import retained_table, what_stays
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.loader import load_config
from helpers.validating import ROOT, changed, load_text

KEY = "KMS key"
LOGS = "Access log bucket"
GROUP = "Security group of the file system"
VPC = "VPC and the cluster's subnet"
EXISTING = {
    "vpc_id": "vpc-01234567",
    "subnets": [{"subnet_id": "subnet-01234567", "availability_zone": "us-west-2c"}],
}


def stays(changes: dict[str, Any]) -> list[str]:
    return [item.what for item in what_stays(load_text(yaml.safe_dump(changed(changes))).config)]


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        pytest.param({"removal": "destroy", "storage.capacity_gib": 1200}, [], id="destroy"),
        pytest.param({}, [KEY, LOGS, VPC], id="no file system"),
        pytest.param({"storage.capacity_gib": 1200}, ["FSx for Lustre file system, 1,200 GiB", KEY, LOGS, GROUP, VPC], id="file system"),
        pytest.param({"storage.capacity_gib": 1200, "network": EXISTING}, ["FSx for Lustre file system, 1,200 GiB", KEY, LOGS, GROUP], id="in an existing VPC"),
        pytest.param({"storage": {"capacity_gib": 1200, "data_repositories": [{"file_system_path": "/a"}]}}, ["FSx for Lustre file system, 1,200 GiB", "Data bucket", KEY, LOGS, GROUP, VPC], id="linked to a new bucket"),
        pytest.param({"storage": {"capacity_gib": 1200, "data_repositories": [{"file_system_path": "/a", "bucket_name": "mine"}]}}, ["FSx for Lustre file system, 1,200 GiB", KEY, LOGS, GROUP, VPC], id="linked to an existing bucket"),
        pytest.param({"storage": {"file_system_id": "fs-01234567", "mount_name": "abc"}}, [KEY, LOGS, VPC], id="existing file system"),
    ],
)  # fmt: skip
def test_retained_resources_follow_from_removal_and_the_other_settings(
    changes: dict[str, Any], kept: list[str]
) -> None:
    assert stays(changes) == kept


@pytest.mark.parametrize(
    ("throughput", "dollars"), [(125, 174.0), (250, 252.0), (500, 408.0), (1000, 720.0)], ids=lambda value: str(value)
)
def test_the_price_of_1200_gib(throughput: int, dollars: float) -> None:
    storage = {"storage": {"capacity_gib": 1200, "throughput_mbps_per_tib": throughput}}
    file_system = what_stays(load_text(yaml.safe_dump(changed(storage))).config)[0]

    assert file_system.monthly_usd == pytest.approx(dollars)


def test_the_table_of_the_default_cluster() -> None:
    table = retained_table(load_config(ROOT / "cluster.yaml").config)

    assert "  FSx for Lustre file system, 4,800 GiB  about $1,008  your data\n" in table
    assert "aws:cloudformation:stack-name = hyperpod-llm-train-foundation;" in table
    for kept in ("KMS key", "Access log bucket", "Security group of the file system", "VPC and the cluster's subnet"):
        assert f"\n  {kept} " in table


def test_the_retained_table_names_the_given_stack() -> None:
    table = retained_table(load_config(ROOT / "cluster.yaml").config, "Training")
    assert "Find them by the tag aws:cloudformation:stack-name = Training;" in table


def test_the_table_where_nothing_stays() -> None:
    config = load_text(yaml.safe_dump(changed({"removal": "destroy"}))).config

    table = retained_table(config)
    assert table.startswith("After cdk destroy, no data of small remains (removal: destroy).\n")
    assert "KMS key" in table and "/aws/lambda/" in table


def test_without_a_file_system_the_network_does_not_claim_one() -> None:
    table = retained_table(load_text(yaml.safe_dump(changed({}))).config)
    assert "an earlier file system may be in it" in table and "a kept file system" not in table


ARN = "arn:aws:cloudformation:us-west-2:111122223333:stack/{}/0a1b2c3d"


class Account:
    """An AWS account where the stack has the cluster; None: there is no cluster. `denied`: nobody may read its tags."""

    def __init__(self, stack: str | None, *, denied: bool = False) -> None:
        self._stack, self._denied = stack, denied

    def describe_cluster(self, *, ClusterName: str) -> dict[str, Any]:
        if self._stack is None:
            raise ClientError({"Error": {"Code": "ResourceNotFound", "Message": "no"}}, "DescribeCluster")
        return {"ClusterArn": "arn:aws:sagemaker:us-west-2:111122223333:cluster/0a1b2c3d4e5f"}

    def list_tags(self, **_: object) -> dict[str, Any]:
        if self._denied:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "ListTags")
        return {"Tags": [{"Key": "aws:cloudformation:stack-id", "Value": ARN.format(self._stack)}]}


OWN = "hyperpod-small-foundation"


@pytest.mark.parametrize(
    ("account", "options", "stack", "why"),
    [
        pytest.param(Account("Training"), [], "Training", None, id="another app's, by its tag"),
        pytest.param(Account("hyperpod-small-cluster"), [], OWN, None, id="this app's, by its tag"),
        pytest.param(Account("Training"), ["--stack", "Network"], "Network", None, id="named"),
        pytest.param(Account(None), [], OWN, "your credentials find no cluster small", id="gone"),
        pytest.param(Account("Training", denied=True), [], OWN, "lack the permission ListTags", id="denied"),
        pytest.param(None, [], OWN, "no AWS credentials found", id="no credentials"),
    ],
)
def test_the_stack_is_the_one_of_the_tag_or_is_called_supposed(
    account: Account | None,
    options: list[str],
    stack: str,
    why: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def clients(*_: object) -> Any:
        if account is None:
            raise AwsError("no AWS credentials found")
        return lambda _service: account

    monkeypatch.setattr(live, "clients", clients)
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(yaml.safe_dump(changed({})), "utf-8")
    assert main(["retained", *options]) == 0
    said = capsys.readouterr().out
    assert f"aws:cloudformation:stack-name = {stack};" in said
    assert ("This stack's name is assumed: " in said) == (why is not None) == ("--stack NAME" in said)
    assert why is None or why in " ".join(said.split())
    assert main(["retained", "--json", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["stack"] == stack and (why in told["supposed"] if why else told["supposed"] is None)


def test_a_profile_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(changed({})), "utf-8")
    assert main(["retained", "--config", str(tmp_path / "a.yaml"), "--profile", "nobody"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "nobody" in err and err.count("\n") == 1
