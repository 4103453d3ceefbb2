"""docs/api.md: it leaves nothing unsaid, and all of its code works. That it is up to date, tests/unit/config/test_schema.py says."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path

import pytest
from aws_cdk import Environment, Stack, aws_sagemaker

import cdk_hyperpod
from cdk_hyperpod import config
from helpers.synthesis import ROOT, folder_of, new_app
from project.test_library_guide import CDK
from tools import api_page

Parts = Mapping[str, list[api_page.Name]]


@pytest.fixture(scope="module")
def parts() -> Parts:
    return api_page.parts()


@pytest.fixture(scope="module")
def examples(parts: Parts) -> Mapping[str, str]:
    return {
        each.path: code
        for names in parts.values()
        for name in names
        for each in [name, *(name.methods if name.is_class else ())]
        for code in each.examples
    }


def test_every_public_name_is_on_the_page(parts: Parts) -> None:
    assert sorted(name.path for names in parts.values() for name in names) == sorted(
        [*cdk_hyperpod.__all__, *config.__all__]
    )


def test_nothing_is_without_a_text_and_a_type() -> None:
    assert api_page.undocumented() == []


def test_every_construct_and_whatever_makes_one_has_an_example(parts: Parts, examples: Mapping[str, str]) -> None:
    making = {name.path for names in parts.values() for name in names if name.is_made_in_a_scope}
    assert making - {name.path for name in parts["Interfaces"]} <= set(examples)


def test_each_example_synthesizes(
    examples: Mapping[str, str], subtests: pytest.Subtests, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for path, code in examples.items():
        with subtests.test(path):
            synthesizes(path, code, tmp_path_factory.mktemp("example"))


def synthesizes(path: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(code, "utf-8")
    (tmp_path / "cluster.yaml").write_bytes((ROOT / "cluster.yaml").read_bytes())
    app = new_app()
    stack = Stack(app, "Stack", env=Environment(account="111122223333", region="us-west-2"))
    ours = {name: getattr(home, name) for home in (cdk_hyperpod, config) for name in home.__all__}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        made = runpy.run_path(str(tmp_path / "example.py"), {**ours, **CDK, "sagemaker": aws_sagemaker, "self": stack})
    folder_of(app)
    assert any(ours[path.partition(".")[0]] is made[name] for name in ours), path
