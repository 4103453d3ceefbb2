"""One kind of settings with every form: from a file, from Python, and in the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from cdk_hyperpod.errors import Finding
from cdk_hyperpod.typed.annotations import Either, Fields, Items, JsonObject, Leaf, Made, Names, field_types, shape
from cdk_hyperpod.typed.bounds import Pattern
from cdk_hyperpod.typed.build import structure
from cdk_hyperpod.typed.known import UNKNOWN
from cdk_hyperpod.typed.schema import value_schema
from cdk_hyperpod.typed.validation import check_kinds
from helpers.findings import Found, found

Name = Annotated[str, Pattern("[a-z]+", "lower-case letters")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    texts: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[Name, Part] = field(default_factory=dict)
    shares: Mapping[str, int | Part] = field(default_factory=dict)
    update: Literal["latest", "none"] | Part | None = None
    json: Mapping[str, Any] = field(default_factory=dict)


def test_each_annotation_has_its_form() -> None:
    forms = {name: shape(annotation).form for name, annotation in field_types(Settings).items()}
    assert forms == {
        "texts": Names(str, str),
        "parts": Names(Name, Part),
        "shares": Names(str, int | Part),
        "update": Either(Literal["latest", "none"], Part),
        "json": JsonObject(),
    }
    kinds = (int | Part, Part | int, Part, int, tuple[int, ...], dict | Part)
    assert [shape(kind).form for kind in kinds] == [
        Either(int, Part),
        Either(int, Part),
        Fields(Part),
        Leaf(int),
        Items(int, exact=True),
        Made((dict, Part)),
    ]


def test_valid_data_becomes_settings() -> None:
    findings: list[Finding] = []
    data = {
        "texts": {"a": "b"},
        "parts": {"a": {"size": 1}},
        "shares": {"one": 1, "part": {"size": 2}},
        "update": {"size": 3},
        "json": {"a": [1, {"b": None}]},
    }
    assert structure(Settings, data, findings) == Settings(
        texts={"a": "b"},
        parts={"a": Part(size=1)},
        shares={"one": 1, "part": Part(size=2)},
        update=Part(size=3),
        json={"a": [1, {"b": None}]},
    )
    assert structure(Settings, {"update": "latest"}, findings) == Settings(update="latest")
    assert findings == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"parts": ["a"]}, ("value-not-named-settings", "parts")),
        ({"parts": {"a": 1}}, ("value-not-settings", "parts.a")),
        ({"parts": {"a": {"sise": 1}}}, ("setting-misspelled", "parts.a.sise")),
        ({"shares": ["a"]}, ("value-not-a-mapping", "shares")),
        ({"shares": {"a": "half"}}, ("value-of-wrong-type", "shares.a")),
        ({"shares": {"a": None}}, ("value-missing", "shares.a")),
        ({"shares": {"a": [1]}}, ("value-not-plain", "shares.a")),
        ({"shares": {"a": {"size": "2"}}}, ("value-of-wrong-type", "shares.a.size")),
        ({"shares": {1: 1}}, ("value-of-wrong-type", "shares.1")),
        ({"update": "latst"}, ("value-not-settings", "update")),
        ({"update": []}, ("value-not-settings", "update")),
        ({"json": "a"}, ("value-not-a-json-object", "json")),
        ({"json": {"a": {1: 2}}}, ("value-not-json", "json.a")),
    ],
)
def test_invalid_data_has_its_finding(data: dict[str, Any], expected: tuple[str, str]) -> None:
    findings: list[Finding] = []
    structure(Settings, data, findings)
    assert found(findings) == [expected]


def test_settings_may_stand_in_place_of_a_plain_value() -> None:
    findings: list[Finding] = []
    structure(Settings, {"shares": {"a": 0.5}, "update": 1}, findings)
    assert [finding.problem for finding in findings] == [
        "must be a whole number, or settings, got 0.5",
        "must hold settings, or be latest or none, got 1",
    ]


def test_one_wrong_value_leaves_the_others_known() -> None:
    built = structure(Settings, {"shares": {"a": "half", "b": 1, "c": {"size": "2"}}}, [])
    assert built.shares == {"a": UNKNOWN, "b": 1, "c": Part(size=UNKNOWN)}


def python(**given: Any) -> Found:
    return found(check_kinds(Settings(**given), Settings, "settings"))


def test_the_same_from_python() -> None:
    assert python(parts={"a": Part(size=1)}, shares={"a": 1, "b": Part()}, update=Part(), json={"a": (1,)}) == []
    assert python(shares={"a": "half", "b": Part(size=1.5)}) == [  # type: ignore[arg-type]
        ("value-of-wrong-type", "settings.shares.a"),
        ("value-of-wrong-type", "settings.shares.b.size"),
    ]
    assert python(update="latst") == [("value-misspelled", "settings.update")]
    assert python(json={"a": {1}}) == [("value-not-json", "settings.json.a")]


def test_each_annotation_has_its_json_schema() -> None:
    part = {"$ref": "#/$defs/Part"}
    schemas = {name: value_schema(annotation) for name, annotation in field_types(Settings).items()}
    assert schemas == {
        "texts": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {
            "type": "object",
            "propertyNames": {"pattern": "^([a-z]+)$"},
            "additionalProperties": part,
        },
        "shares": {"type": "object", "additionalProperties": {"anyOf": [{"type": "integer"}, part]}},
        "update": {"anyOf": [{"enum": ["latest", "none"]}, part]},
        "json": {"type": "object"},
    }
