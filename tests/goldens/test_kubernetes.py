"""What is rendered, kept as files and read in review: `GOLDEN=write pytest tests/goldens/test_kubernetes.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.kubernetes.manifests import to_yaml
from helpers.kubernetes.samples import SAMPLES

GOLDEN = Path(__file__).parent / "kubernetes"


@pytest.mark.parametrize("name", SAMPLES)
def test_yaml_is_the_one_that_was_reviewed(name: str) -> None:
    made = to_yaml(SAMPLES[name])
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(made, "utf-8")
    assert made == file.read_text("utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == SAMPLES.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_yaml_says_what_the_manifests_say(name: str) -> None:
    assert tuple(yaml.safe_load_all(to_yaml(SAMPLES[name]))) == SAMPLES[name]
