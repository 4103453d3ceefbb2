"""Values that have the right type and that AWS, or the node, could do nothing with."""

from __future__ import annotations

import pytest
import yaml

from cdk_hyperpod.errors import Finding
from helpers.findings import Found, found
from helpers.validating import ROOT, changed, findings_of, validate

EKS = yaml.safe_load((ROOT / "tests/helpers/configs/eks.yaml").read_text("utf-8"))
STORAGE = {"capacity_gib": 1200}
PLAN = "arn:aws:sagemaker:us-west-2:111122223333:training-plan/x"
KEY = "arn:aws:kms:us-west-2:111122223333:key/1"
ROLE = "arn:aws:iam::111122223333:role"


def of_eks(**settings: object) -> Found:
    """What is said of the EKS file with settings of `eks` changed, but for its chart, which lies elsewhere."""
    eks = {**EKS["eks"], "dependencies_chart": "installed", **settings}
    eks.pop("dependencies_chart_digest", None)
    every = found(findings_of(yaml.safe_dump({**EKS, "eks": eks})))
    return [each for each in every if each[0] not in ("chart-on-a-new-cluster", "installed-chart-setting")]


@pytest.mark.parametrize(
    "path",
    [
        *("/..", "/.", "/../etc", "/fsx/..", "/fsx/../etc", "/a/./b"),
        *("/etc", "/etc/x", "/dev/shm", "/proc", "/root", "/tmp", "/usr/local", "/var", "/var/lib/x"),
        *("/opt", "/opt/sagemaker", "/opt/sagemaker/x", "/opt/ml", "/opt/slurm", "/home", "/mnt"),
        *("/opt/dlami", "/opt/dlami/nvme", "/opt/dlami/nvme/docker"),
    ],
)
def test_no_file_system_is_mounted_over_what_a_node_needs(path: str) -> None:
    (message,) = validate({"storage": {**STORAGE, "mount_path": path}})

    assert message[1] == "storage.mount_path"


@pytest.mark.parametrize(
    "path", ["/fsx", "/mnt/data", "/home/shared", "/opt/data", "/...", "/.fsx", "/etcetera", "/data/etc"]
)
def test_a_mount_path_of_its_own_is_accepted(path: str) -> None:
    assert validate({"storage": {**STORAGE, "mount_path": path}}) == []


@pytest.mark.parametrize(
    "name",
    [
        *("a..b", "192.168.0.1", "xn--mine", "sthree-mine", "amzn-s3-demo-mine"),
        *("mine-s3alias", "mine--ol-s3", "mine.mrap", "mine--x-s3", "mine--table-s3"),
    ],
)
def test_a_bucket_name_that_s3_cannot_have_is_refused(name: str) -> None:
    link = {"file_system_path": "/a", "bucket_name": name}
    (message,) = validate({"storage": {**STORAGE, "data_repositories": [link]}})

    assert message == ("value-malformed", "storage.data_repositories[0].bucket_name")


@pytest.mark.parametrize("name", ["a.b", "192.168.0.1a", "my-s3alias-2", "1.2.3"])
def test_an_unusual_but_valid_bucket_name_is_accepted(name: str) -> None:
    assert (
        validate({"storage": {**STORAGE, "data_repositories": [{"file_system_path": "/a", "bucket_name": name}]}}) == []
    )


@pytest.mark.parametrize("path", ["/..", "/.", "/a/..", "/a/../b", "/./a"])
def test_a_link_lies_below_the_file_systems_root(path: str) -> None:
    (message,) = validate({"storage": {**STORAGE, "data_repositories": [{"file_system_path": path}]}})

    assert message == ("value-malformed", "storage.data_repositories[0].file_system_path")


@pytest.mark.parametrize("prefix", ["..", "../x", "a/..", "a/../b", "a//b", "./a"])
def test_a_prefix_leads_nowhere_else(prefix: str) -> None:
    (message,) = validate({"storage": {**STORAGE, "data_repositories": [{"file_system_path": "/a", "prefix": prefix}]}})

    assert message == ("value-malformed", "storage.data_repositories[0].prefix")


def test_a_file_system_of_240_pib_is_a_slip() -> None:
    gib = 240 * 1024**2 // 2400 * 2400

    assert validate({"storage": {"capacity_gib": gib}}) == [("capacity-too-large", "storage.capacity_gib")]
    assert validate({"storage": {"capacity_gib": 2400 * 1000}}) == []


@pytest.mark.parametrize(
    "arn",
    [
        pytest.param(f"{ROLE}/{'x' * 2000}", id="long name"),
        pytest.param(f"{ROLE}/{'x' * 65}", id="name of 65"),
        pytest.param(f"{ROLE}/{'p' * 600}/x", id="long path"),
        pytest.param(f"{ROLE}/", id="no name"),
        pytest.param(f"{ROLE}//x", id="empty part"),
        pytest.param(f"{ROLE}/aws-service-role/eks.amazonaws.com/AWSServiceRoleForAmazonEKS", id="service-linked"),
        pytest.param("arn:aws-cn:iam::111122223333:role/x", id="China"),
        pytest.param("arn:aws-us-gov:iam::111122223333:role/x", id="GovCloud"),
    ],
)
def test_an_administrator_arn_that_is_not_a_usable_role_is_refused(arn: str) -> None:
    (message,) = of_eks(admin_role_arns=[arn])

    assert message == ("value-malformed", "eks.admin_role_arns[0]")


@pytest.mark.parametrize(
    "name", ["x" * 64, "service-role/x", "aws-reserved/sso.amazonaws.com/us-west-2/AWSReservedSSO_a_0"]
)
def test_an_administrator_role_with_a_long_name_or_a_path_is_accepted(name: str) -> None:
    assert of_eks(admin_role_arns=[f"{ROLE}/{name}"]) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"training_plan_arn": PLAN.replace("aws:", "aws-cn:")}, id="plan of another partition"),
        pytest.param({"training_plan_arn": PLAN + "/x" * 9}, id="plan with a path"),
        pytest.param({"ebs_volumes": [{"root_volume": True, "volume_kms_key_arn": KEY.replace("aws:", "aws-us-gov:")}]}, id="key"),
    ],
)  # fmt: skip
def test_no_plan_or_key_is_of_another_partition(change: dict[str, object]) -> None:
    (message,) = validate({f"instance_groups.1.{name}": value for name, value in change.items()})

    assert message[0] == "value-malformed" and message[1].endswith("_arn")


def test_a_registry_has_no_two_dots() -> None:
    (message,) = of_eks(image_registry="a..b")

    assert message == ("value-malformed", "eks.image_registry")


def test_an_arn_of_another_account_is_a_warning_in_every_setting() -> None:
    """And nothing is said where the file names no account."""
    data = changed(
        {
            "account": "444455556666",
            "eks.dependencies_chart": "installed",
            "eks.admin_role_arns": [f"{ROLE}/a", "arn:aws:iam::444455556666:role/b"],
            "teams": [{"name": "t", "quota": {"ml.p5.48xlarge": 1}, "role_arns": [f"{ROLE}/c"]}],
            "instance_groups.0.ebs_volumes": [{"root_volume": True, "volume_kms_key_arn": KEY}],
        },
        EKS,
    )
    for key in ("dependencies_chart_digest", "image_registry"):
        del data["eks"][key]
    group = data["instance_groups"][0]["name"]

    def warned() -> list[Finding]:
        findings = findings_of(yaml.safe_dump(data, sort_keys=False))
        return [finding for finding in findings if finding.code == "arn-in-another-account"]

    assert [warning.path for warning in warned()] == [
        "eks.admin_role_arns[0]",
        "teams[t].role_arns[0]",
        f"instance_groups[{group}].ebs_volumes[0].volume_kms_key_arn",
    ]
    assert "is in account 111122223333, but the cluster is in 444455556666" in warned()[0].problem
    assert {warning.level for warning in warned()} == {"warning"}
    del data["account"]
    assert warned() == []
