"""What `cdk destroy` leaves, and what it costs: the list that a user reads before and after."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cdk_hyperpod.cli.retained import retained_table, what_stays
from cdk_hyperpod.loader import load_config
from config.judging import ROOT, changed, load_text

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
def test_what_stays(changes: dict[str, Any], kept: list[str]) -> None:
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

    assert (
        table
        == """\
After cdk destroy, this stays of llm-train (removal: retain),
at us-east-1 list prices:
  what                                        a month  why
  FSx for Lustre file system, 4,800 GiB  about $1,008  your data
  KMS key                                    about $1  what it encrypted can be read
  Access log bucket                            by use  who read what, for a year
  Security group of the file system              free  the file system uses it
  VPC and the cluster's subnet                   free  a kept file system stands there
Find them by the tag aws:cloudformation:stack-name = hyperpod-llm-train-foundation;
so is what an earlier version of the file had and kept.
Log groups that AWS services made stay (/aws/sagemaker/Clusters/, /aws/lambda/).
The file counts as it was last deployed: deploy a changed removal before destroying.
docs/removal.md says how to use them again or delete them."""
    )


def test_the_table_names_the_stack_that_it_is_told() -> None:
    table = retained_table(load_config(ROOT / "cluster.yaml").config, "Training")
    assert "Find them by the tag aws:cloudformation:stack-name = Training;" in table


def test_the_table_where_nothing_stays() -> None:
    config = load_text(yaml.safe_dump(changed({"removal": "destroy"}))).config

    assert retained_table(config) == (
        "After cdk destroy, no data of small stays (removal: destroy).\n"
        "The KMS key goes after AWS's waiting period.\n"
        "Log groups that AWS services made stay (/aws/sagemaker/Clusters/, /aws/lambda/).\n"
        "The file counts as it was last deployed: deploy a changed removal before destroying."
    )


def test_without_a_file_system_the_network_does_not_claim_one() -> None:
    table = retained_table(load_text(yaml.safe_dump(changed({}))).config)
    assert "a file system of before may stand there" in table and "a kept file system" not in table
