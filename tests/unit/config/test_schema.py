"""The schema and the reference page are what the typed model says, and never let less through than the loader."""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from cdk_hyperpod.config import cluster, eks, governance, lifecycle, monitoring, scale_down, slurm, storage, teams
from cdk_hyperpod.config.cluster import ClusterConfig
from cdk_hyperpod.config.schema import json_schema, reference
from cdk_hyperpod.facts.instance_types import catalogue, regions
from cdk_hyperpod.typed.build import structure
from cdk_hyperpod.typed.known import UNKNOWN
from helpers.validating import REMOVED, ROOT, SMALL, Changes, changed, validate
from tools.make_docs import generated

SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
MODEL: list[type[Any]] = [
    kind
    for module in (cluster, eks, governance, lifecycle, monitoring, scale_down, slurm, storage, teams)
    for kind in vars(module).values()
    if isinstance(kind, type) and kind.__module__ == module.__name__
]


def test_the_committed_files_are_what_make_docs_writes() -> None:
    stale = [path.name for path, text in generated().items() if path.read_text("utf-8") != text]
    assert stale == [], "run `make docs`"


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("value", [yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8")), SMALL], ids=["default", "small"])  # fmt: skip
def test_a_valid_cluster_is_valid_under_the_schema(value: dict[str, Any]) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(value)] == []


def test_the_default_cluster_names_its_schema_for_editors() -> None:
    assert (
        (ROOT / "cluster.yaml").read_text("utf-8").startswith("# yaml-language-server: $schema=cluster.schema.json\n")
    )


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"unknown": 1}, id="unknown key"),
        pytest.param({"instance_groups.1.unknown": 1}, id="unknown key of a group"),
        pytest.param({"name": REMOVED}, id="missing"),
        pytest.param({"instance_groups.0.instance_count": REMOVED}, id="missing in a group"),
        pytest.param({"name": 5}, id="number for text"),
        pytest.param({"account": 111122223333}, id="account without quotes"),
        pytest.param({"instance_groups.1.instance_count": "2"}, id="text for number"),
        pytest.param({"instance_groups.1.instance_count": 6759}, id="out of range"),
        pytest.param({"termination_protection": "yes"}, id="text for truth value"),
        pytest.param({"removal": "keep"}, id="no such option"),
        pytest.param({"storage": None}, id="nothing for settings"),
        pytest.param({"instance_groups.1.partition": None}, id="nothing for an optional text"),
        pytest.param({"instance_groups": {}}, id="mapping for list"),
        pytest.param({"instance_groups.2": "x"}, id="text for a group"),
        pytest.param({"region": "us-west-3"}, id="no such region"),
        pytest.param({"region": "eu-west-3"}, id="a region without HyperPod"),
        pytest.param({"instance_groups.1.instance_type": "ml.p3.2xlarge"}, id="no such type"),
        pytest.param({"network.availability_zones": ["us-west-2g"]}, id="no such zone"),
        pytest.param({"name": "a_b"}, id="a name that AWS refuses"),
        pytest.param({"scale_down.nodes_to_delete": ["i-1"]}, id="malformed node id"),
        pytest.param({"tags": {"a": 1}}, id="number for a tag"),
    ],
)  # fmt: skip
def test_the_loader_refuses_everything_that_the_schema_refuses(changes: Changes) -> None:
    assert not VALIDATOR.is_valid(changed(changes))
    assert validate(changes) != []


def test_the_schema_offers_the_types_and_regions_that_there_are() -> None:
    group = SCHEMA["$defs"]["InstanceGroup"]["properties"]

    assert group["instance_type"]["enum"] == group["instance_types"]["items"]["enum"] == [*catalogue()]
    assert SCHEMA["properties"]["region"]["enum"] == sorted(regions().available)


def test_the_schema_requires_what_the_loader_requires() -> None:
    for kind in MODEL:
        body = SCHEMA if kind is ClusterConfig else SCHEMA["$defs"][kind.__name__]
        findings: list[Any] = []
        structure(kind, {}, findings)

        assert body["required"] == [finding.path for finding in findings]
        assert body["additionalProperties"] is False
        assert [*body["properties"]] == [field.name for field in dataclasses.fields(kind)]


def test_a_default_in_the_schema_is_the_one_of_the_library() -> None:
    for kind in MODEL:
        body = SCHEMA if kind is ClusterConfig else SCHEMA["$defs"][kind.__name__]
        value = kind(**{field.name: UNKNOWN for field in dataclasses.fields(kind) if field.name in body["required"]})
        for name, schema in body["properties"].items():
            if "default" in schema:
                default = getattr(value, name)
                assert schema["default"] == (list(default) if isinstance(default, tuple) else default), (kind, name)


@pytest.mark.parametrize("kind", MODEL, ids=lambda kind: typing.cast(type, kind).__name__)
def test_every_setting_is_described(kind: type) -> None:
    body = SCHEMA if kind is ClusterConfig else SCHEMA["$defs"][kind.__name__]

    for name, schema in body["properties"].items():
        assert re.fullmatch(r"[^ ].{10,}[.]\)?", schema["description"]), name


def test_the_reference_has_every_setting_once_with_type_and_default() -> None:
    sections = re.split(r"^## ", reference(), flags=re.MULTILINE)[1:]
    settings = {
        section.splitlines()[0].strip("`"): re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|", section, re.MULTILINE)
        for section in sections
    }

    assert {len(names) for names in settings.values()} == {len(dataclasses.fields(kind)) for kind in MODEL}
    assert sum(map(len, settings.values())) == sum(len(dataclasses.fields(kind)) for kind in MODEL)
    assert ("name", "1 to 63 letters, digits and hyphens, no hyphen at either end", "**required**") in settings[
        "The file"
    ]
    assert ("instance_count", "whole number, 0 to 6758", "**required**") in settings["instance_groups[]"]
    assert ("throughput_mbps_per_tib", "`125`, `250`, `500`, `1000`", "`250`") in settings["storage"]
    assert ("internet_egress", "true or false", "`false`") in settings["network"]
    assert ("auto_import", "list of `new`, `changed`, `deleted`", "`new`, `changed`, `deleted`") in settings[
        "storage.data_repositories[]"
    ]
    assert ("effect", "`no_schedule`, `prefer_no_schedule`, `no_execute`", "**required**") in settings[
        "instance_groups[].taints[]"
    ]
    assert ("tags", "names and texts", "") in settings["The file"]
    assert ("storage", "settings", "") in settings["The file"]
