"""The settings of add-ons: what is refused, at which place, and that no message repeats a secret."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod import ConfigError, load_config
from cdk_hyperpod.config.eks import AddOn, AddOnsConfig, EksConfig, ExistingEksCluster
from cdk_hyperpod.eks.control_plane import merged
from cdk_hyperpod.errors import Finding
from cdk_hyperpod.rules.add_ons import MAX_CONFIGURATION, OWN_SETTINGS, check_add_ons
from cdk_hyperpod.typed.validation import check_config
from helpers.findings import found
from helpers.synthesis import CONFIGS

EXISTING = ExistingEksCluster(name="shared", security_group_id="sg-0123456789abcdef0")


def findings(existing: ExistingEksCluster | None = None, **add_ons: Any) -> list[Finding]:
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
def test_what_eks_could_not_read_is_refused_at_its_place(value: object, code: str, place: str) -> None:
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
    add_on = AddOn(enabled=True, configuration=configuration)
    path = f"eks.add_ons.observability.configuration.{place}"
    assert found(findings(observability=add_on)) == [("add-on-configuration-of-library", path)]


def test_what_the_library_does_not_set_is_added_to_what_it_sets() -> None:
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
def test_a_reference_to_a_secret_is_none(configuration: dict[str, Any]) -> None:
    assert findings(coredns=AddOn(configuration=configuration)) == []


@pytest.mark.parametrize("setting", ["version", "configuration", "resolve_conflicts"])
def test_a_setting_of_an_add_on_that_is_off(setting: str) -> None:
    values: dict[str, Any] = {
        "version": "v1.0.0",
        "configuration": {"replicaCount": 2},
        "resolve_conflicts": "overwrite",
    }
    one = AddOn(**{setting: values[setting]})
    assert found(findings(fsx_csi_driver=one)) == [("add-on-off", f"eks.add_ons.fsx_csi_driver.{setting}")]
    assert found(findings(EXISTING, vpc_cni=one)) == [("add-on-off", f"eks.add_ons.vpc_cni.{setting}")]
    assert findings(coredns=one) == []


def test_task_governance_has_no_settings() -> None:
    assert found(findings(task_governance=configured(a=1))) == [
        ("add-on-without-configuration", "eks.add_ons.task_governance.configuration")
    ]


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
