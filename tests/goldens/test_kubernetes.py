"""Kubernetes objects, kept as files and read in review: `make golden` writes them again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.kubernetes.manifests import to_yaml
from helpers import review
from helpers.kubernetes.samples import JOBS, SAMPLES

GOLDEN = Path(__file__).parent / "kubernetes"


@pytest.mark.parametrize("name", SAMPLES)
def test_yaml_is_the_one_that_was_reviewed(name: str) -> None:
    # A job is kept as `cdk-hyperpod job` prints it.
    made = to_yaml(SAMPLES[name]) if name in JOBS else "---\n".join(map(review.written, SAMPLES[name]))
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(made, "utf-8")
    assert made == file.read_text("utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == SAMPLES.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_yaml_says_what_the_manifests_say(name: str) -> None:
    assert tuple(yaml.safe_load_all(to_yaml(SAMPLES[name]))) == SAMPLES[name]
