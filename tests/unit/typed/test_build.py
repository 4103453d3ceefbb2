"""From plain data to typed values: every shape that a setting can wrongly have, in the user's words."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cdk_hyperpod import (
    ClusterConfig,
    DataRepository,
    EbsVolume,
    InstanceGroup,
)
from cdk_hyperpod.config import NetworkConfig, StorageConfig
from cdk_hyperpod.errors import Finding
from cdk_hyperpod.rules import check_cluster, check_network, check_storage
from cdk_hyperpod.typed.build import structure
from cdk_hyperpod.typed.known import UNKNOWN, is_known
from cdk_hyperpod.typed.validation import check_config
from cdk_hyperpod.typed.words import item_paths, show
from helpers.findings import found
from helpers.validating import REMOVED, SMALL, Changes, changed_findings, findings_of, validate


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # A key that is no setting, or is not there
        pytest.param({"regoin": 1}, ("setting-misspelled", "regoin"), id="misspelt key"),
        pytest.param({"zzz": 1}, ("setting-unknown", "zzz"), id="unknown key"),
        pytest.param({"instance_groups.1.count": 2}, ("setting-misspelled", "instance_groups[work].count"), id="unknown key of a group"),
        pytest.param({"instance_groups.1.min_count": 2}, ("setting-misspelled", "instance_groups[work].min_count"), id="a key that lacks a word"),
        pytest.param({"min_count": 2}, ("setting-misspelled", "min_count"), id="a key that lacks a word, at another level"),
        pytest.param({"capacity_gib": 1200}, ("setting-misspelled", "capacity_gib"), id="a key at another level"),
        pytest.param({"instance_groups.1.removal": "retain"}, ("setting-misspelled", "instance_groups[work].removal"), id="a key of the file's in a group"),
        pytest.param({"accounts": []}, ("setting-misspelled", "accounts"), id="a key that is near, and one at another level"),
        pytest.param({"count": 2}, ("setting-unknown", "count"), id="a key that only looks like account"),
        pytest.param({"instance_groups.1.instance_count": REMOVED, "instance_groups.1.instance_cuont": 2}, ("setting-misspelled", "instance_groups[work].instance_cuont"), id="one mistake: the misspelt key is not missing too"),
        pytest.param({"name": REMOVED}, ("setting-missing", "name"), id="missing"),
        pytest.param({"instance_groups.1.instance_count": REMOVED}, ("setting-missing", "instance_groups[work].instance_count"), id="missing in a group"),
        # Text
        pytest.param({"name": 5}, ("value-of-wrong-type", "name"), id="number for text"),
        pytest.param({"name": True}, ("value-of-wrong-type", "name"), id="truth value for text"),
        pytest.param({"name": None}, ("value-missing", "name"), id="nothing for text"),
        pytest.param({"name": ["a"]}, ("value-not-plain", "name"), id="list for text"),
        pytest.param({"name": {"a": None}}, ("value-not-plain", "name"), id="mapping for text"),
        pytest.param({"account": 111122223333}, ("value-of-wrong-type", "account"), id="account without quotes"),
        pytest.param({"region": "us-west-2\n"}, ("text-not-printable", "region"), id="line break"),
        # Whole numbers
        pytest.param({"instance_groups.1.instance_count": "8"}, ("value-of-wrong-type", "instance_groups[work].instance_count"), id="text for number"),
        pytest.param({"instance_groups.1.instance_count": 8.0}, ("value-of-wrong-type", "instance_groups[work].instance_count"), id="fraction for number"),
        pytest.param({"instance_groups.1.instance_count": True}, ("value-of-wrong-type", "instance_groups[work].instance_count"), id="truth value for number"),
        pytest.param({"instance_groups.1.instance_count": None}, ("value-missing", "instance_groups[work].instance_count"), id="nothing for number"),
        pytest.param({"instance_groups.1.instance_count": 10**18}, ("number-too-long", "instance_groups[work].instance_count"), id="enormous number"),
        pytest.param({"instance_groups.1.instance_count": -1}, ("value-out-of-range", "instance_groups[work].instance_count"), id="number below its range"),
        # True or false
        pytest.param({"termination_protection": "no"}, ("value-of-wrong-type", "termination_protection"), id="text for truth value"),
        pytest.param({"termination_protection": 0}, ("value-of-wrong-type", "termination_protection"), id="number for truth value"),
        # One of several
        pytest.param({"removal": "retian"}, ("value-misspelled", "removal"), id="misspelt option"),
        pytest.param({"removal": True}, ("value-not-a-choice", "removal"), id="truth value for option"),
        pytest.param({"removal": 5}, ("value-not-a-choice", "removal"), id="number for option"),
        pytest.param({"removal": ["retain"]}, ("value-misspelled", "removal"), id="list for option"),
        pytest.param({"storage": {"capacity_gib": 1200, "throughput_mbps_per_tib": "250"}}, ("value-misspelled", "storage.throughput_mbps_per_tib"), id="text for a numeric option"),
        # Lists and settings
        pytest.param({"instance_groups": {}}, ("value-not-a-list", "instance_groups"), id="mapping for list"),
        pytest.param({"instance_groups": "p5"}, ("value-not-a-list", "instance_groups"), id="text for list"),
        pytest.param({"instance_groups": None}, ("value-missing", "instance_groups"), id="nothing for list"),
        pytest.param({"instance_groups.2": "p5"}, ("value-not-settings", "instance_groups[2]"), id="text for a group"),
        pytest.param({"storage": 4800}, ("value-not-settings", "storage"), id="number for settings"),
        pytest.param({"storage": None}, ("value-missing", "storage"), id="settings that were commented out"),
        # Names and texts
        pytest.param({"tags": ["a"]}, ("value-not-a-mapping", "tags"), id="list for names and texts"),
        pytest.param({"tags": {"CostCenter": 42}}, ("value-of-wrong-type", "tags.CostCenter"), id="number for a tag"),
        pytest.param({"tags": {"Owner": None}}, ("value-missing", "tags.Owner"), id="nothing for a tag"),
        pytest.param({"tags": {"Owner": []}}, ("value-not-plain", "tags.Owner"), id="list for a tag"),
        pytest.param({"tags": {42: "a"}}, ("value-of-wrong-type", "tags.42"), id="number for a tag's name"),
    ],
)  # fmt: skip
def test_a_setting_of_the_wrong_shape(changes: Changes, message: tuple[str, str]) -> None:
    assert validate(changes) == [message]


@pytest.mark.parametrize(
    ("changes", "meant"),
    [
        pytest.param({"regoin": 1}, "region", id="misspelled"),
        pytest.param({"instance_groups.1.count": 2}, "instance_count", id="in a group"),
        pytest.param({"instance_groups.1.min_count": 2}, "min_instance_count", id="a word is missing"),
        pytest.param(
            {"min_count": 2}, "instance_groups[…].min_instance_count", id="a word is missing, at another level"
        ),
        pytest.param({"capacity_gib": 1200}, "storage.capacity_gib", id="at another level"),
        pytest.param({"instance_groups.1.removal": "retain"}, "removal at the top of the file", id="at the top"),
        pytest.param({"accounts": []}, "account, or slurm.accounts", id="at two levels"),
        pytest.param({"instance_groups.1.MinInstanceCount": 2}, "min_instance_count", id="as CloudFormation writes it"),
        pytest.param({"node-recovery": "none"}, "node_recovery", id="with hyphens"),
    ],
)
def test_the_setting_that_was_probably_meant_is_named(changes: Changes, meant: str) -> None:
    (finding,) = changed_findings(changes)
    assert finding.remedy == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        pytest.param({"name": None}, "nothing", id="nothing"),
        pytest.param({"name": ["a"]}, "['a']", id="list"),
        pytest.param({"name": {"a": None}}, "{'a': null}", id="mapping"),
        pytest.param({"name": True}, "true", id="truth value"),
    ],
)
def test_the_value_is_shown_as_yaml_has_it(changes: Changes, shown: str) -> None:
    (finding,) = changed_findings(changes)
    assert finding.problem == f"must be text, got {shown}"


def test_of_two_settings_that_have_the_word_the_missing_one_is_meant() -> None:
    """`type` for instance_type, where node_type is the nearer one by its letters."""
    assert validate({"instance_groups.1.instance_type": REMOVED, "instance_groups.1.type": "ml.m5.large"}) == [
        ("instance-type-missing", "instance_groups[work]"),
        ("setting-misspelled", "instance_groups[work].type"),
    ]
    assert validate({"instance_groups.1.node_type": REMOVED, "instance_groups.1.type": "compute"})[-1] == (
        ("setting-misspelled", "instance_groups[work].type")
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("name: 2024-01-01", ("value-of-wrong-type", "name"), id="date"),
        pytest.param("name: 2024-01-01T10:20:30Z", ("value-of-wrong-type", "name"), id="time"),
        pytest.param("name: 1:30", ("value-of-wrong-type", "name"), id="minutes"),
        pytest.param("name: 0b11", ("value-of-wrong-type", "name"), id="binary"),
        pytest.param("name: off", ("value-of-wrong-type", "name"), id="off"),
        pytest.param("name: .nan", ("value-of-wrong-type", "name"), id="no number"),
        pytest.param("name: !!binary aGk=", ("value-of-wrong-type", "name"), id="bytes"),
        pytest.param("name: !!set {a}", ("value-of-wrong-type", "name"), id="set"),
        pytest.param("name: !!omap [a: 1]", ("value-not-plain", "name"), id="ordered pairs"),
        pytest.param(f"name: 0x{'f' * 10_000}", ("value-of-wrong-type", "name"), id="number that cannot be printed"),
        pytest.param('name: "a\\ud800"', ("text-not-printable", "name"), id="half a character"),
        pytest.param('name: "\\e[31m"', ("text-not-printable", "name"), id="terminal code"),
    ],
)  # fmt: skip
def test_yaml_that_is_no_text_where_text_is_wanted(line: str, message: tuple[str, str]) -> None:
    text = yaml.safe_dump(dict(SMALL), sort_keys=False).replace("name: small", line)

    assert found(findings_of(text)) == [message]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        pytest.param("7", "7", id="number"),
        pytest.param("2024-01-01", "2024-01-01", id="date"),
        pytest.param("~", "null", id="nothing"),
        pytest.param("yes", "true", id="truth value"),
        pytest.param('"a\\nb"', "'a\\nb'", id="line break"),
        pytest.param("k" * 90, f"'{'k' * 37}...{'k' * 38}'", id="long"),
    ],
)
def test_a_key_that_is_no_setting_stays_on_one_short_line(key: str, path: str) -> None:
    text = yaml.safe_dump(dict(SMALL)) + f"{key}: 1\n"

    assert found(findings_of(text)) == [("setting-unknown", path)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("it's", '"it\'s"', id="quote"),
        pytest.param("x" * 200, f"'{'x' * 37}...{'x' * 38}'", id="long text"),
        pytest.param([1, [2, [3]]], "[1, [2, [...]]]", id="deep"),
        pytest.param(list(range(9)), "[0, 1, 2, ...]", id="long list"),
        pytest.param({"x" * 200: "y" * 200}, f"{{'{'x' * 37}...{'x' * 38}': '{'y' * 33}...", id="never beyond 120 characters"),
        pytest.param(None, "null", id="nothing"),
    ],
)  # fmt: skip
def test_values_in_messages_are_short_and_on_one_line(value: object, text: str) -> None:
    assert show(value) == text
    assert len(show(value)) <= 120


@pytest.mark.parametrize(
    ("items", "labels"),
    [
        pytest.param([{"name": "a"}, InstanceGroup(name="b", instance_count=1)], ["a", "b"], id="data and values"),
        pytest.param([{"name": "a"}, {"name": "b"}, {"name": "a"}], ["0", "b", "2"], id="a name that two have"),
        pytest.param([{"name": "7"}, {"name": ""}, {"name": 7}, {}, "x", UNKNOWN], list("012345"), id="no names"),
        pytest.param([{"name": "a\nb"}, {"name": "a]"}, {"name": "x" * 81}], list("012"), id="names that break a path"),
        pytest.param([{"name": "${Token[A.1]}"}], ["0"], id="token"),
    ],
)
def test_items_are_named_in_paths_where_that_is_clear(items: list[Any], labels: list[str]) -> None:
    assert item_paths("groups", items) == [f"groups[{label}]" for label in labels]


def test_a_wrong_leaf_is_unknown_and_the_rest_is_built() -> None:
    findings: list[Finding] = []

    config = structure(ClusterConfig, {"name": "a", "region": 5, "instance_groups": [1, {"name": "b"}]}, findings)

    assert config.name == "a"
    assert config.region is UNKNOWN
    assert config.instance_groups[0] is UNKNOWN
    assert config.instance_groups[1].name == "b"
    assert config.instance_groups[1].instance_count is UNKNOWN
    assert config.removal == "retain"
    assert [finding.path for finding in findings] == [
        "region",
        "instance_groups[0]",
        "instance_groups[b].instance_count",
    ]


def test_cdk_tokens_are_never_taken_for_values() -> None:
    from aws_cdk import App, Aws, CfnParameter, Fn, Lazy, Stack

    stack = Stack(App(), "Stack")
    parameter = CfnParameter(stack, "Count", type="Number")
    tokens: list[object] = [
        Aws.REGION,
        stack.region,
        f"prefix-{stack.account}",
        Fn.select(0, Fn.get_azs()),
        Fn.get_azs(),
        parameter.value_as_string,
        parameter.value_as_number,
        Lazy.string(_producer()),
        Fn.split(",", parameter.value_as_string),
        {"key": stack.region},
        {stack.region: "value"},
        ("us-west-2a", stack.region),
        stack.resolve,
        parameter,
    ]
    values: list[object] = [
        "us-west-2",
        "$Token[",
        0,
        -1,
        2.5,
        -1e9,
        True,
        None,
        (),
        ["a"],
        {"a": "b"},
        NetworkConfig(),
    ]

    assert [value for value in tokens if is_known(value)] == []
    assert [value for value in values if not is_known(value)] == []


def test_a_cluster_of_tokens_is_not_judged() -> None:
    token: Any = "${Token[TOKEN.7]}"
    number: Any = -1.8881545897087626e289
    group = InstanceGroup(
        name=token,
        instance_count=number,
        min_instance_count=number,
        instance_type=token,
        node_type="controller",
        availability_zone=token,
        training_plan_arn=token,
        threads_per_core=number,
        ebs_volumes=(EbsVolume(volume_size_gib=number, volume_kms_key_arn=token),),
    )
    config = ClusterConfig(
        name=token,
        region=token,
        account=token,
        instance_groups=(group,),
        network=NetworkConfig(availability_zones=(token,), cidr=token),
        storage=StorageConfig(capacity_gib=number, metadata_iops=number),
        tags={token: token},
    )

    assert list(check_cluster(config)) == []


class TestLibraryArguments:
    """Python does not check types when it runs, so the rules do: a wrong one is a message and never goes unjudged."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            pytest.param({"instance_count": "8"}, ("value-of-wrong-type", "instance_count"), id="text for number"),
            pytest.param({"name": 5}, ("value-of-wrong-type", "name"), id="number for text"),
            pytest.param({"node_type": "worker"}, ("value-not-a-choice", "node_type"), id="no such option"),
            pytest.param({"instance_types": ["ml.p5.48xlarge"]}, ("value-not-a-tuple", "instance_types"), id="list for tuple"),
            pytest.param({"ebs_volumes": (EbsVolume(volume_size_gib=0),)}, ("value-out-of-range", "ebs_volumes[0].volume_size_gib"), id="deep inside"),
            pytest.param({"ebs_volumes": (100,)}, ("argument-of-wrong-class", "ebs_volumes[0]"), id="number for a value"),
            pytest.param({"labels": {"a": 1}}, ("argument-not-a-mapping", "labels"), id="mapping to numbers"),
        ],
    )  # fmt: skip
    def test_are_checked_like_a_file(self, arguments: dict[str, Any], message: tuple[str, str]) -> None:
        group = InstanceGroup(**{"name": "a", "instance_count": 1, **arguments})

        assert found(check_config(group)) == [message]
        assert list(check_config(InstanceGroup(name="a", instance_count=1))) == []

    def test_of_the_wrong_type_crash_no_rule(self) -> None:
        odd: Any = object()
        wrong: Any = ["x"]

        storage = StorageConfig(capacity_gib=wrong, data_repositories=wrong)
        network = NetworkConfig(cidr=wrong, availability_zones=(odd,))
        assert {finding.path for finding in check_config(storage, "storage", check_storage)} == {
            "storage.capacity_gib",
            "storage.data_repositories",
        }
        assert {
            finding.path
            for finding in check_config(network, "network", lambda known: check_network(known, region="us-west-2"))
        } == {"network.cidr", "network.availability_zones[0]"}
        group = InstanceGroup(name=wrong, instance_count=wrong, instance_types=wrong, availability_zone="odd-az")
        config = ClusterConfig(name="a", region="us-west-2", instance_groups=(group, odd), tags=wrong)
        assert {finding.path for finding in check_cluster(config)} >= {
            "instance_groups[0].name",
            "instance_groups[0].instance_count",
            "instance_groups[0].instance_types",
            "instance_groups[0].availability_zone",
            "tags",
        }

    def test_with_a_repository_that_is_wrong_keep_their_other_findings(self) -> None:
        links = (DataRepository(file_system_path="data"), *[DataRepository(file_system_path="/a")] * 2)

        storage = StorageConfig(capacity_gib=1200, data_repositories=links)
        findings = [*check_config(storage, "storage", check_storage)]

        assert found(findings) == [
            ("value-malformed", "storage.data_repositories[0].file_system_path"),
            ("data-repositories-overlap", "storage.data_repositories[2].file_system_path"),
        ]


def _producer() -> Any:
    import jsii
    from aws_cdk import IStableStringProducer

    @jsii.implements(IStableStringProducer)
    class Producer:
        def produce(self) -> str:
            return "late"

    return Producer()
