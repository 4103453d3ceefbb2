"""Whatever a file holds, the loader returns a cluster or refuses it in readable words, and the same way each time."""

from __future__ import annotations

import copy
import json
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cdk_hyperpod.config.schema import json_schema
from cdk_hyperpod.errors import ConfigError, Finding
from cdk_hyperpod.loader import LoadedConfig
from helpers.validating import ROOT, SMALL, changed, load_text

DEFAULT: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8"))
# Every setting that there is, so that mutations reach all of them.
FULL: dict[str, Any] = changed(
    {
        "account": "111122223333",
        "node_recovery": "none",
        "network": {
            "vpc_id": "vpc-01234567",
            "subnets": [{"subnet_id": "subnet-01234567", "availability_zone": "us-west-2c", "cidr": "10.0.0.0/20"}],
            "interface_endpoints": False,
            "endpoint_security_group_id": "sg-01234567",
        },
        "instance_groups.1.ebs_volumes": [{"root_volume": True}, {"volume_size_gib": 100}],
        "instance_groups.1.on_start_deep_health_checks": ["instance_stress"],
        "instance_groups.1.training_plan_arn": "arn:aws:sagemaker:us-west-2:111122223333:training-plan/x",
        "instance_groups.1.threads_per_core": 1,
        "instance_groups.1.availability_zone": "us-west-2c",
        "instance_groups.2": {
            "name": "mixed",
            "instance_types": ["ml.g5.xlarge", "ml.g6.xlarge"],
            "instance_count": 0,
            "node_type": "compute",
            "partition": "p5",
            "spot": True,
        },
        "storage": {
            "capacity_gib": 1200,
            "metadata_iops": 1500,
            "data_repositories": [{"file_system_path": "/a", "bucket_name": "abc", "auto_export": ["new"]}],
        },
        "tiered_storage": {"instance_memory_allocation_percentage": 50},
        "scale_down": {"nodes_to_delete": [], "max_nodes": 3},
        "tags": {"Team": "ml"},
    }
)
SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
WORDS = sorted({word for text in (json.dumps(SCHEMA), json.dumps(FULL)) for word in text.split('"') if len(word) < 40})

texts = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=20),
    st.builds(str.__mul__, st.characters(), st.integers(1, 3000)),
    st.sampled_from(["odd-az", "us-west-2", "usw2-az9", "10.0.0.0/8", "0.0.0.0/0", "arn:aws", "/..", "${Token[TOKEN.1]}", "%s{}"]),
)  # fmt: skip
scalars = st.one_of(
    texts, st.integers(), st.sampled_from([10**4000, -(10**18)]), st.booleans(), st.none(), st.floats(), st.dates()
)
keys = st.one_of(texts, st.integers(), st.booleans(), st.none(), st.dates())
data = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6), max_leaves=20
)


def outcome(text: str) -> LoadedConfig | tuple[Finding, ...]:
    try:
        return load_text(text)
    except ConfigError as error:
        return tuple(error.findings)


def dump(value: object) -> str:
    """YAML of a value; numbers in base 16, which has no limit."""

    def number(dumper: yaml.SafeDumper, value: int) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:int", hex(value))

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(int, number)
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def assert_answered(text: str) -> None:
    answer = outcome(text)
    findings = answer.warnings if isinstance(answer, LoadedConfig) else answer
    assert isinstance(answer, LoadedConfig) or findings, "refused without a reason"
    assert len(findings) == len(set(findings))
    for finding in findings:
        assert finding.problem and finding.remedy
        assert str(finding).isprintable(), repr(str(finding))
        assert len(str(finding)) <= 1000


@given(data)
@settings(max_examples=100)
def test_any_data_is_loaded_or_refused_with_findings(value: object) -> None:
    assert_answered(dump(value))


@given(st.text(alphabet="ab:-?[]{},&*!|>'\"%@`#<\n\t 0.~", max_size=60) | st.text(max_size=60))
@example("a: !!int ''")
@example("? !!timestamp x\n: b")
@example("<<: 1")
@example("=: 1")
@example("? =\n")
@example("%YAML 9.9\n--- a")
@settings(max_examples=300)
def test_any_text_is_loaded_or_refused_with_findings(text: str) -> None:
    assert_answered(text.encode("utf-8", "ignore").decode())


@given(st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])), data, min_size=1))
@settings(max_examples=150)
def test_settings_that_hold_anything(value: dict[str, Any]) -> None:
    assert_answered(dump({**SMALL, **value}))


@st.composite
def mutations(draw: st.DrawFn) -> Any:
    """A valid cluster with one to four mistakes in it, at any depth."""
    cluster = copy.deepcopy(draw(st.sampled_from([DEFAULT, FULL])))
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(cluster))
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "remove", "rename", "double", "swap"])):
            case "replace":
                holder[key] = draw(data)
            case "remove":
                del holder[key]
            case "rename" if isinstance(holder, dict):
                holder[draw(keys)] = holder.pop(key)
            case "double" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case _:
                other, other_key = draw(st.sampled_from(places))
                holder[key] = copy.deepcopy(other[other_key])
        if not cluster:
            break
    return cluster


def _places(value: Any) -> Any:
    """Every container of the data with each of its keys."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


@given(mutations())
@settings(max_examples=300)
def test_a_valid_cluster_with_mistakes(value: Any) -> None:
    assert_answered(dump(value))


@given(mutations())
@settings(max_examples=50)
def test_the_answer_is_the_same_each_time(value: Any) -> None:
    first, second = outcome(dump(value)), outcome(dump(value))

    if isinstance(first, LoadedConfig) and isinstance(second, LoadedConfig):
        assert (first.config, first.warnings) == (second.config, second.warnings)
    else:
        assert first == second


@given(mutations())
@settings(max_examples=150)
def test_the_loader_refuses_everything_that_the_schema_refuses(value: Any) -> None:
    # A mapping with keys that are no text has no counterpart in JSON.
    value = yaml.safe_load(dump(value))
    if any(not isinstance(key, str) for holder, key in _places(value) if isinstance(holder, dict)):
        return
    if not VALIDATOR.is_valid(value):
        assert not isinstance(outcome(dump(value)), LoadedConfig)


def test_the_clusters_that_are_mutated_are_valid() -> None:
    assert all(isinstance(outcome(dump(value)), LoadedConfig) for value in (DEFAULT, FULL))
