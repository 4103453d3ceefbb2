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
from cdk_hyperpod.typed.judge import check_config
from cdk_hyperpod.typed.known import UNKNOWN, is_known
from cdk_hyperpod.typed.words import item_paths, show
from helpers.judging import REMOVED, SMALL, Changes, findings_of, judge, told

SETTINGS = (
    "name, region, instance_groups, account, orchestrator, node_provisioning_mode, node_recovery, network, eks, teams, storage, "
    "tiered_storage, lifecycle, groups, users, slurm, encrypt_root_volumes, scale_down, removal, log_retention_days, termination_protection, tags"
)
TEXT = "put it in quotes"
NUMBER = "write digits without quotes"
NO_VALUE = "give it a value, or remove the line"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # A key that is no setting, or is not there
        pytest.param({"regoin": 1}, "regoin: is not a setting; did you mean region?", id="misspelt key"),
        pytest.param({"zzz": 1}, f"zzz: is not a setting; remove it, or use one of {SETTINGS}", id="unknown key"),
        pytest.param({"instance_groups.1.count": 2}, "instance_groups[work].count: is not a setting; did you mean instance_count?", id="unknown key of a group"),
        pytest.param({"instance_groups.1.min_count": 2}, "instance_groups[work].min_count: is not a setting; did you mean min_instance_count?", id="a key that lacks a word"),
        pytest.param({"slurm": {"drain": {}}, "scale_down.drain": {"backup": {}}}, "scale_down.drain.backup: what is saved stands in slurm.drain.backup, for deployments and `cdk-hyperpod drain` alike; move it there", id="a key that stands elsewhere"),
        pytest.param({"min_count": 2}, "min_count: is not a setting; did you mean instance_groups[…].min_instance_count?", id="a key that lacks a word, at another level"),
        pytest.param({"capacity_gib": 1200}, "capacity_gib: is not a setting; did you mean storage.capacity_gib?", id="a key at another level"),
        pytest.param({"instance_groups.1.removal": "retain"}, "instance_groups[work].removal: is not a setting; did you mean removal at the top of the file?", id="a key of the file's in a group"),
        pytest.param({"accounts": []}, "accounts: is not a setting; did you mean account, or slurm.accounts?", id="a key that is near, and one at another level"),
        pytest.param({"count": 2}, f"count: is not a setting; remove it, or use one of {SETTINGS}", id="a key that only looks like account"),
        pytest.param({"name": REMOVED}, "name: is missing; add `name:`", id="missing"),
        pytest.param({"instance_groups.1.instance_count": REMOVED}, "instance_groups[work].instance_count: is missing; add `instance_count:`", id="missing in a group"),
        # Text
        pytest.param({"name": 5}, f"name: must be text, got 5; {TEXT}", id="number for text"),
        pytest.param({"name": True}, f"name: must be text, got true; {TEXT}", id="truth value for text"),
        pytest.param({"name": None}, f"name: must be text, got nothing; {NO_VALUE}", id="nothing for text"),
        pytest.param({"name": ["a"]}, "name: must be text, got ['a']; give it one plain value", id="list for text"),
        pytest.param({"name": {"a": None}}, "name: must be text, got {'a': null}; give it one plain value", id="mapping for text"),
        pytest.param({"account": 111122223333}, f"account: must be text, got 111122223333; {TEXT}", id="account without quotes"),
        pytest.param({"region": "us-west-2\n"}, "region: must be printable text on one line, got 'us-west-2\\n'; remove the characters that are not", id="line break"),
        # Whole numbers
        pytest.param({"instance_groups.1.instance_count": "8"}, f"instance_groups[work].instance_count: must be a whole number, got '8'; {NUMBER}", id="text for number"),
        pytest.param({"instance_groups.1.instance_count": 8.0}, f"instance_groups[work].instance_count: must be a whole number, got 8.0; {NUMBER}", id="fraction for number"),
        pytest.param({"instance_groups.1.instance_count": True}, f"instance_groups[work].instance_count: must be a whole number, got true; {NUMBER}", id="truth value for number"),
        pytest.param({"instance_groups.1.instance_count": None}, f"instance_groups[work].instance_count: must be a whole number, got nothing; {NO_VALUE}", id="nothing for number"),
        pytest.param({"instance_groups.1.instance_count": 10**18}, "instance_groups[work].instance_count: must have at most 18 digits, got a number of 60 bits; use a smaller number", id="enormous number"),
        pytest.param({"instance_groups.1.instance_count": -1}, "instance_groups[work].instance_count: must be 0 to 6758, got -1; change it", id="number below its range"),
        # True or false
        pytest.param({"termination_protection": "no"}, "termination_protection: must be true or false, got 'no'; write true or false without quotes", id="text for truth value"),
        pytest.param({"termination_protection": 0}, "termination_protection: must be true or false, got 0; write true or false without quotes", id="number for truth value"),
        # One of several
        pytest.param({"removal": "retian"}, "removal: must be one of retain, destroy, got 'retian'; did you mean retain?", id="misspelt option"),
        pytest.param({"removal": True}, "removal: must be one of retain, destroy, got true; use one of these", id="truth value for option"),
        pytest.param({"removal": 5}, "removal: must be one of retain, destroy, got 5; use one of these", id="number for option"),
        pytest.param({"removal": ["retain"]}, "removal: must be one of retain, destroy, got ['retain']; did you mean retain?", id="list for option"),
        pytest.param({"storage": {"capacity_gib": 1200, "throughput_mbps_per_tib": "250"}}, "storage.throughput_mbps_per_tib: must be one of 125, 250, 500, 1000, got '250'; did you mean 250?", id="text for a numeric option"),
        # Lists and settings
        pytest.param({"instance_groups": {}}, "instance_groups: must be a list, got {}; write it as [a, b] or as lines that begin with a dash", id="mapping for list"),
        pytest.param({"instance_groups": "p5"}, "instance_groups: must be a list, got 'p5'; write it as [a, b] or as lines that begin with a dash", id="text for list"),
        pytest.param({"instance_groups": None}, f"instance_groups: must be a list, got nothing; {NO_VALUE}", id="nothing for list"),
        pytest.param({"instance_groups.2": "p5"}, "instance_groups[2]: must hold settings, got 'p5'; write it as key: value lines", id="text for a group"),
        pytest.param({"storage": 4800}, "storage: must hold settings, got 4800; write it as key: value lines", id="number for settings"),
        pytest.param({"storage": None}, f"storage: must hold settings, got nothing; {NO_VALUE}", id="settings that were commented out"),
        # Names and texts
        pytest.param({"tags": ["a"]}, "tags: must hold names and texts, got ['a']; write it as name: text lines", id="list for names and texts"),
        pytest.param({"tags": {"CostCenter": 42}}, f"tags.CostCenter: must be text, got 42; {TEXT}", id="number for a tag"),
        pytest.param({"tags": {"Owner": None}}, f"tags.Owner: must be text, got nothing; {NO_VALUE}", id="nothing for a tag"),
        pytest.param({"tags": {"Owner": []}}, "tags.Owner: must be text, got []; give it one plain value", id="list for a tag"),
        pytest.param({"tags": {42: "a"}}, f"tags.42: the name must be text, got 42; {TEXT}", id="number for a tag's name"),
    ],
)  # fmt: skip
def test_a_setting_of_the_wrong_shape(changes: Changes, message: str) -> None:
    assert judge(changes) == [message]


def test_of_two_settings_that_have_the_word_the_missing_one_is_meant() -> None:
    """`type` for instance_type, where node_type is the nearer one by its letters."""
    assert judge({"instance_groups.1.instance_type": REMOVED, "instance_groups.1.type": "ml.m5.large"}) == [
        "instance_groups[work]: has no instance_type; give it one of instance_type and instance_types",
        "instance_groups[work].type: is not a setting; did you mean instance_type?",
    ]
    assert judge({"instance_groups.1.node_type": REMOVED, "instance_groups.1.type": "compute"})[-1] == (
        "instance_groups[work].type: is not a setting; did you mean node_type?"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("name: 2024-01-01", f"name: must be text, got 2024-01-01; {TEXT}", id="date"),
        pytest.param("name: 2024-01-01T10:20:30Z", f"name: must be text, got 2024-01-01 10:20:30+00:00; {TEXT}", id="time"),
        pytest.param("name: 1:30", f"name: must be text, got 90; {TEXT}", id="minutes"),
        pytest.param("name: 0b11", f"name: must be text, got 3; {TEXT}", id="binary"),
        pytest.param("name: off", f"name: must be text, got false; {TEXT}", id="off"),
        pytest.param("name: .nan", f"name: must be text, got nan; {TEXT}", id="no number"),
        pytest.param("name: !!binary aGk=", f"name: must be text, got b'hi'; {TEXT}", id="bytes"),
        pytest.param("name: !!set {a}", f"name: must be text, got {{'a'}}; {TEXT}", id="set"),
        pytest.param("name: !!omap [a: 1]", "name: must be text, got [('a', 1)]; give it one plain value", id="ordered pairs"),
        pytest.param(f"name: 0x{'f' * 10_000}", f"name: must be text, got a number of 40,000 bits; {TEXT}", id="number that cannot be printed"),
        pytest.param('name: "a\\ud800"', "name: must be printable text on one line, got 'a\\ud800'; remove the characters that are not", id="half a character"),
        pytest.param('name: "\\e[31m"', "name: must be printable text on one line, got '\\x1b[31m'; remove the characters that are not", id="terminal code"),
    ],
)  # fmt: skip
def test_yaml_that_is_no_text_where_text_is_wanted(line: str, message: str) -> None:
    text = yaml.safe_dump(dict(SMALL), sort_keys=False).replace("name: small", line)

    assert told(findings_of(text)) == [message]


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

    assert told(findings_of(text)) == [f"{path}: is not a setting; remove it, or use one of {SETTINGS}"]


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
            pytest.param({"instance_count": "8"}, f"instance_count: must be a whole number, got '8'; {NUMBER}", id="text for number"),
            pytest.param({"name": 5}, f"name: must be text, got 5; {TEXT}", id="number for text"),
            pytest.param({"node_type": "worker"}, "node_type: must be one of controller, login, compute, got 'worker'; use one of these", id="no such option"),
            pytest.param({"instance_types": ["ml.p5.48xlarge"]}, "instance_types: must be a tuple, got ['ml.p5.48xlarge']; write it as (a, b) or (a,)", id="list for tuple"),
            pytest.param({"ebs_volumes": (EbsVolume(volume_size_gib=0),)}, "ebs_volumes[0].volume_size_gib: must be 1 to 16384, got 0; change it", id="deep inside"),
            pytest.param({"ebs_volumes": (100,)}, "ebs_volumes[0]: must be of the class EbsVolume, got 100; make one", id="number for a value"),
            pytest.param({"labels": {"a": 1}}, "labels: must be a mapping of text to text, got {'a': 1}; make one", id="mapping to numbers"),
        ],
    )  # fmt: skip
    def test_are_checked_like_a_file(self, arguments: dict[str, Any], message: str) -> None:
        group = InstanceGroup(**{"name": "a", "instance_count": 1, **arguments})

        assert [str(finding) for finding in check_config(group)] == [message]
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

        assert [str(finding) for finding in findings] == [
            (
                "storage.data_repositories[0].file_system_path: must be a path that begins with a slash, such as /data, "
                "got 'data'; change it"
            ),
            "storage.data_repositories[2].file_system_path: /a overlaps /a; link folders that lie beside each other",
        ]


def _producer() -> Any:
    import jsii
    from aws_cdk import IStableStringProducer

    @jsii.implements(IStableStringProducer)
    class Producer:
        def produce(self) -> str:
            return "late"

    return Producer()
