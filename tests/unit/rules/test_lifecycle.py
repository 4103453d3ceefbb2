"""Rules of what runs on a new node, and what an absent setting means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod.loader import load_config
from helpers.judging import changed, judge

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
    ("settings", "messages"),
    [
        ({"lifecycle": {"mode": "no-lcs"}}, ["lifecycle.mode: must be one of extended, customer_managed, bootstrap, got 'no-lcs'; use one of these"]),
        ({"lifecycle": {"steps": {"munge": False}}}, ["lifecycle.steps.munge: is not a setting; "]),
        ({"lifecycle": {"steps": {"slurm": "off "}}}, ["lifecycle.steps.slurm: must be true or false, got 'off '; "]),
        ({"lifecycle": {"scripts": "gone"}}, ["lifecycle.scripts: there is no folder 'gone'; "]),
        ({"lifecycle": {"mode": "bootstrap", "scripts": "gone"}}, ["lifecycle.scripts: no script runs in the mode bootstrap; ", "lifecycle.scripts: there is no folder 'gone'; "]),
        ({"lifecycle_scripts": "own"}, ["lifecycle_scripts: is not a setting; write the folder as `lifecycle: {scripts: FOLDER}`"]),
        ({"lifecycle": "own"}, ["lifecycle: must hold settings, got 'own'; "]),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(settings: dict[str, Any], messages: list[str]) -> None:
    found = judge(settings)
    assert len(found) == len(messages), found
    for message, beginning in zip(found, messages, strict=True):
        assert message.startswith(beginning)


@pytest.mark.parametrize(
    ("count", "length", "said"),
    [
        (100, 150, None),
        (101, 40, "there are 101 roles with 4,040 characters"),
        (30, 505, "there are 30 roles with 15,150 characters"),
    ],
)
def test_a_buckets_policy_has_room_for_so_many_writers(count: int, length: int, said: str | None) -> None:
    # The longest names are made by long paths.
    start = "arn:aws:iam::111122223333:role/"
    writers = [f"{start}{'p' * (length - len(start) - 5)}/{number:04}" for number in range(count)]
    assert {len(arn) for arn in writers} == {length}
    messages = judge({"lifecycle": {"writers": writers}})
    rest = ", and the bucket's policy holds 100, with 15,000; name fewer, such as one role that the others may take on"
    assert messages == ([] if said is None else [f"lifecycle.writers: {said}{rest}"])
