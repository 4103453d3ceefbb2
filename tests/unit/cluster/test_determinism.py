"""The same file makes the same bytes, whoever runs it, wherever and whenever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.synthesis import ROOT, assembly_of_file, run_app, template_files


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_app(tmp_path_factory.mktemp("plain") / "cdk.out", ROOT)


def test_where_and_when_it_runs_changes_no_byte(plain: Path, tmp_path: Path) -> None:
    elsewhere = run_app(
        tmp_path / "cdk.out",
        tmp_path,
        AWS_PROFILE="somebody-else",
        AWS_REGION="eu-west-1",
        CDK_DEFAULT_ACCOUNT="999999999999",
        CDK_DEFAULT_REGION="eu-west-1",
        LC_ALL="C",
        PYTHONHASHSEED="4711",
        PYTHONUTF8="0",
        TMPDIR=str(tmp_path),
        TZ="Pacific/Kiritimati",
        USER="somebody-else",
    )
    assert template_files(elsewhere) == template_files(plain)
    for name in (
        "manifest.json",
        "hyperpod-llm-train-foundation.assets.json",
        "hyperpod-llm-train-cluster.assets.json",
    ):
        assert json.loads((elsewhere / name).read_text("utf-8")) == json.loads((plain / name).read_text("utf-8")), name


def test_this_process_makes_what_the_app_makes(plain: Path) -> None:
    assert template_files(assembly_of_file(ROOT / "cluster.yaml")) == template_files(plain)
