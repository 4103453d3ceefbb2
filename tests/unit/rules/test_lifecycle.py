"""Rules of what runs on a new node, and what an absent setting means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod.loader import load_config
from helpers.findings import Found
from helpers.validating import changed, validate

ALL_SCRIPTS = ("controller.sh", "login.sh", "compute.sh", "node.sh")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    for name in ALL_SCRIPTS:
        (tmp_path / "own" / name).touch()
    return tmp_path


def mode_of(folder: Path, settings: dict[str, Any]) -> tuple[str, str | None]:
    (folder / "cluster.yaml").write_text(yaml.safe_dump(changed(settings)))
    loaded = load_config(folder / "cluster.yaml")
    scripts = loaded.lifecycle_scripts
    return loaded.config.lifecycle_mode, None if scripts is None else scripts.name


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("extended", None)),
        ({"lifecycle": {}}, ("extended", None)),
        ({"lifecycle": {"mode": "extended"}}, ("extended", None)),
        ({"lifecycle": {"mode": "customer_managed"}}, ("customer_managed", None)),
        ({"lifecycle": {"mode": "bootstrap"}}, ("bootstrap", None)),
        ({"lifecycle": {"scripts": "own", "steps": {"slurm": False}}}, ("customer_managed", "own")),
        ({"lifecycle": {"scripts": "own"}}, ("customer_managed", "own")),
        ({"lifecycle": {"scripts": "own", "mode": "extended"}}, ("extended", "own")),
    ],
)
def test_mode(folder: Path, settings: dict[str, Any], expected: tuple[str, str | None]) -> None:
    assert mode_of(folder, settings) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"lifecycle": {"mode": "no-lcs"}}, [("value-not-a-choice", "lifecycle.mode")]),
        ({"lifecycle": {"steps": {"munge": False}}}, [("setting-unknown", "lifecycle.steps.munge")]),
        ({"lifecycle": {"steps": {"slurm": "off "}}}, [("value-of-wrong-type", "lifecycle.steps.slurm")]),
        ({"lifecycle": {"scripts": "gone"}}, [("scripts-not-found", "lifecycle.scripts")]),
        ({"lifecycle": {"mode": "bootstrap", "scripts": "gone"}}, [("scripts-in-bootstrap-mode", "lifecycle.scripts"), ("scripts-not-found", "lifecycle.scripts")]),
        ({"lifecycle": "own"}, [("value-not-settings", "lifecycle")]),
    ],
)  # fmt: skip
def test_lifecycle_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], expected: Found) -> None:
    assert validate(settings) == expected


@pytest.mark.parametrize(
    ("count", "length", "accepted"),
    [
        (100, 150, True),
        (101, 40, False),
        (30, 505, False),
    ],
)
def test_a_buckets_policy_has_room_for_so_many_writers(count: int, length: int, accepted: bool) -> None:
    # The longest names are made by long paths.
    start = "arn:aws:iam::111122223333:role/"
    writers = [f"{start}{'p' * (length - len(start) - 5)}/{number:04}" for number in range(count)]
    assert {len(arn) for arn in writers} == {length}
    refused = [("writers-too-many", "lifecycle.writers")]
    assert validate({"lifecycle": {"writers": writers}}) == ([] if accepted else refused)
