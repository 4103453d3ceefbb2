"""The settings of add-ons: what is refused, at which place, and that no message repeats a secret."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_cdk import App, Stack

from cdk_hyperpod import ConfigError, load_config
from cdk_hyperpod.config.eks import (
    AddOn,
    AddOnsConfig,
    EbsCsiDriverAddOn,
    EksConfig,
    ExistingEksCluster,
    FsxCsiDriverAddOn,
    ObservabilityAddOn,
    S3CsiDriverAddOn,
)
from cdk_hyperpod.eks.add_on_roles import ebs_role, fsx_role, s3_role
from cdk_hyperpod.eks.add_ons import workspace_endpoint
from cdk_hyperpod.eks.control_plane import merged
from cdk_hyperpod.errors import Finding
from cdk_hyperpod.rules.add_ons import MAX_CONFIGURATION, OWN_SETTINGS, check_add_ons, check_workspace
from cdk_hyperpod.typed.validation import check_config
from helpers.findings import found
from helpers.synthesis import CONFIGS

EXISTING = ExistingEksCluster(name="shared", security_group_id="sg-0123456789abcdef0")


def findings(existing: ExistingEksCluster | None = None, /, **add_ons: Any) -> list[Finding]:
    config = EksConfig(dependencies_chart="installed", add_ons=AddOnsConfig(**add_ons), existing_cluster=existing)
    return [*check_config(config, "eks", lambda eks: check_add_ons(eks, has_file_system=False))]


def configured(**configuration: Any) -> AddOn:
    return AddOn(configuration=configuration)


def test_settings_of_an_add_on_that_is_on() -> None:
    prefixes = configured(
        enableNetworkPolicy="true", env={"ENABLE_PREFIX_DELEGATION": "true", "WARM_PREFIX_TARGET": "1"}
    )
    taints = configured(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "tolerationSeconds": None}])
    assert findings(vpc_cni=prefixes, coredns=taints) == []


@pytest.mark.parametrize(
    ("value", "code", "place"),
    [
        (datetime.date(2026, 1, 1), "value-not-json", ".since"),
        ({"deep": [1, float("nan")]}, "value-not-json", ".since.deep[1]"),
        ({1: "one"}, "value-not-json", ".since"),
        ({"a", "b"}, "value-not-json", ".since"),
        (10**30, "value-not-json", ".since"),
        ("x" * MAX_CONFIGURATION, "add-on-configuration-too-long", ""),
        ("x" * 1_000_000, "add-on-configuration-too-long", ""),
    ],
    ids=["date", "nan", "number as a key", "set", "huge number", "long", "1 MB"],
)
def test_an_add_on_value_that_is_not_json_is_refused_with_its_path(value: object, code: str, place: str) -> None:
    assert found(findings(vpc_cni=configured(since=value))) == [(code, f"eks.add_ons.vpc_cni.configuration{place}")]


def test_settings_nested_without_end_are_refused() -> None:
    nested: dict[str, Any] = {}
    nested["again"] = nested
    (finding,) = findings(vpc_cni=configured(**nested))
    assert finding.code == "value-not-json"


@pytest.mark.parametrize(
    ("configuration", "place"),
    [
        ({"ampWorkspace": {"arn": "arn:aws:aps:us-west-2:111122223333:workspace/ws-1"}}, "ampWorkspace"),
        ({"logging": {"enabled": True}}, "logging.enabled"),
        ({"logging": None}, "logging.enabled"),
    ],
)
def test_a_setting_of_the_library_cannot_be_changed(configuration: dict[str, Any], place: str) -> None:
    add_on = ObservabilityAddOn(enabled=True, configuration=configuration)
    path = f"eks.add_ons.observability.configuration.{place}"
    assert found(findings(observability=add_on)) == [("add-on-configuration-of-library", path)]


def test_add_on_settings_of_the_user_are_merged_with_those_of_the_library() -> None:
    own = {"ampWorkspace": {"arn": "a"}, "logging": {"enabled": False}}
    assert merged(own, {"logging": {"level": "info"}, "a": 1}) == {
        "ampWorkspace": {"arn": "a"},
        "logging": {"enabled": False, "level": "info"},
        "a": 1,
    }
    assert {path[0] for path in OWN_SETTINGS["observability"]} == own.keys()


@pytest.mark.parametrize(
    ("configuration", "place"),
    [
        ({"env": {"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI"}}, "env.AWS_SECRET_ACCESS_KEY"),
        ({"env": [{"name": "API_TOKEN", "value": "wJalrXUtnFEMI"}]}, "env[0].value"),
        ({"auth": {"password": "wJalrXUtnFEMI"}}, "auth.password"),
        ({"args": ["--key=AKIAIOSFODNN7EXAMPLE"]}, "args[0]"),
        ({"tls": "-----BEGIN RSA PRIVATE KEY-----\nwJalrXUtnFEMI"}, "tls"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(configuration: dict[str, Any], place: str) -> None:
    (finding,) = findings(coredns=AddOn(configuration=configuration))
    assert (finding.code, finding.path) == (
        "add-on-configuration-secret",
        f"eks.add_ons.coredns.configuration.{place}",
    )
    assert "wJalr" not in str(finding) and "AKIA" not in str(finding)


@pytest.mark.parametrize(
    "configuration",
    [
        {"imagePullSecrets": [{"name": "registry"}], "secretName": "webhook-cert", "tokenExpirationSeconds": 3600},
        {"serviceAccount": {"automountServiceAccountToken": True}, "password": ""},
    ],
)
def test_a_reference_to_a_secret_is_accepted(configuration: dict[str, Any]) -> None:
    assert findings(coredns=AddOn(configuration=configuration)) == []


@pytest.mark.parametrize("setting", ["version", "configuration", "resolve_conflicts"])
def test_a_setting_of_an_add_on_that_is_off(setting: str) -> None:
    values: dict[str, Any] = {
        "version": "v1.0.0",
        "configuration": {"replicaCount": 2},
        "resolve_conflicts": "overwrite",
    }
    one = AddOn(**{setting: values[setting]})
    assert found(findings(metrics_server=one)) == [("add-on-off", f"eks.add_ons.metrics_server.{setting}")]
    assert found(findings(EXISTING, vpc_cni=one)) == [("add-on-off", f"eks.add_ons.vpc_cni.{setting}")]
    assert findings(coredns=one) == []


def test_task_governance_has_no_settings() -> None:
    assert found(findings(task_governance=configured(a=1))) == [
        ("add-on-without-configuration", "eks.add_ons.task_governance.configuration")
    ]


# -- single add-ons ---------------------------------------------------------------------------------------------------

WORKSPACE = "arn:aws:aps:{}:{}:workspace/ws-0a1b2c3d"


@pytest.mark.parametrize(
    ("region", "account", "codes"),
    [
        ("us-west-2", "111122223333", []),
        ("us-east-1", "111122223333", ["workspace-of-another-region"]),
        ("us-west-2", "444455556666", ["workspace-of-another-account"]),
        ("us-east-1", "444455556666", ["workspace-of-another-region", "workspace-of-another-account"]),
    ],
)
def test_an_existing_workspace_is_of_the_clusters_region_and_account(
    region: str, account: str, codes: list[str]
) -> None:
    add_on = ObservabilityAddOn(enabled=True, workspace_arn=WORKSPACE.format(region, account))
    config = EksConfig(dependencies_chart="installed", add_ons=AddOnsConfig(observability=add_on))
    refused = check_workspace(config, region="us-west-2", account="111122223333")
    assert found(refused) == [(code, "eks.add_ons.observability.workspace_arn") for code in codes]
    assert workspace_endpoint(WORKSPACE.format("eu-west-1", "1")).startswith("https://aps-workspaces.eu-west-1.")


def test_buckets_and_keys_are_named_once_and_are_few() -> None:
    driver = S3CsiDriverAddOn(enabled=True, buckets=("data", "data", *(f"data-{number}" for number in range(20))))
    path = "eks.add_ons.s3_csi_driver.buckets"
    assert found(findings(s3_csi_driver=driver)) == [("value-duplicated", path), ("add-on-list-too-long", path)]
    wrong = S3CsiDriverAddOn(enabled=True, buckets=("*", "arn:aws:s3:::data"))
    assert {finding.path for finding in findings(s3_csi_driver=wrong)} == {f"{path}[0]", f"{path}[1]"}


def test_a_role_needs_the_agent() -> None:
    drivers: dict[str, Any] = {
        "s3_csi_driver": S3CsiDriverAddOn(enabled=True, buckets=("data",)),
        "ebs_csi_driver": EbsCsiDriverAddOn(enabled=True),
        "fsx_csi_driver": FsxCsiDriverAddOn(enabled=True, storage_class=True),
    }
    warned = [finding.path for finding in findings(EXISTING, **drivers) if finding.code == "add-on-role-without-agent"]
    assert sorted(warned) == sorted(f"eks.add_ons.{name}" for name in drivers)
    assert findings(EXISTING, **drivers, eks_pod_identity_agent=AddOn(enabled=True)) == []
    assert findings(**drivers) == []


def test_the_tag_that_bounds_the_ebs_drivers_role_cannot_be_changed() -> None:
    driver = EbsCsiDriverAddOn(enabled=True, configuration={"controller": {"k8sTagClusterId": "other"}})
    assert found(findings(ebs_csi_driver=driver)) == [
        ("add-on-configuration-of-library", "eks.add_ons.ebs_csi_driver.configuration.controller.k8sTagClusterId")
    ]


def test_csi_drivers_can_change_only_named_resources_or_those_with_the_clusters_tag() -> None:
    """Except lists of what there is, nothing is allowed on everything; other clusters' volumes stay out of reach."""
    stack = Stack(App(), "Stack")
    roles = [
        s3_role(stack, ["data"], ["arn:aws:kms:us-west-2:111122223333:key/a"]),
        ebs_role(stack, "train", "arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab", []),
        fsx_role(stack, "train", "arn:aws:kms:us-west-2:111122223333:key/a"),
    ]
    for statement in (each for role in roles for each in role.statements):
        actions, resources = (
            [value] if isinstance(value, str) else value for value in (statement["Action"], statement["Resource"])
        )
        only_lists = all(action.split(":")[1].startswith("Describe") for action in actions)
        is_named = all("*" not in resource.replace("data/*", "") for resource in resources)
        assert only_lists or is_named or statement["Condition"], statement
        assert "*" not in "".join(actions)
        if any(action.startswith("kms:") for action in actions):
            assert "kms:ViaService" in statement["Condition"]["StringEquals"], statement
        if any(action.startswith("s3:") for action in actions):
            assert "aws:ResourceAccount" in statement["Condition"]["StringEquals"], statement
    conditions = [each["Condition"] for each in roles[1].statements if "DeleteVolume" in str(each["Action"])]
    assert conditions == [{"StringEquals": {"aws:ResourceTag/kubernetes.io/cluster/train": "owned"}}]


def test_a_file_with_wrong_settings_is_refused_with_every_place(tmp_path: Path) -> None:
    data = yaml.safe_load((CONFIGS / "eks.yaml").read_text("utf-8"))
    data["eks"] = {
        "dependencies_chart": "installed",
        "add_ons": {
            "vpc_cni": {"configuration": [], "resolve_conflicts": "OVERWRITE"},
            "coredns": {"configuration": {"since": datetime.date(2026, 1, 1)}},
        },
    }
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(data), "utf-8")
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    assert [(finding.code, finding.path) for finding in refused.value.findings] == [
        ("value-not-json", "eks.add_ons.coredns.configuration.since"),
        ("value-not-a-json-object", "eks.add_ons.vpc_cni.configuration"),
        ("value-not-a-choice", "eks.add_ons.vpc_cni.resolve_conflicts"),
    ]
