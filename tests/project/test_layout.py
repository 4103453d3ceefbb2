"""Guards of the folder layout: what must resolve where, what must never be imported, and what must stay cheap."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import constructs
import pytest

import cdk_hyperpod
import stacks
from cdk_hyperpod import config

ROOT = Path(__file__).resolve().parents[2]


def test_constructs_is_the_package_of_pypi() -> None:
    assert "site-packages" in str(constructs.__file__)


def test_the_constructs_folder_is_not_a_package() -> None:
    assert not (ROOT / "constructs" / "__init__.py").exists()


def test_the_library_is_imported_under_one_name() -> None:
    # PyPI's constructs extends its path to our folder: the second name would load a second copy of every class.
    assert "constructs.cdk_hyperpod" not in sys.modules
    assert cdk_hyperpod.__name__ == "cdk_hyperpod"
    assert Path(str(cdk_hyperpod.__file__)).parent == ROOT / "constructs" / "cdk_hyperpod"


def test_every_public_name_loads_when_it_is_used() -> None:
    for name in cdk_hyperpod.__all__:
        assert getattr(cdk_hyperpod, name).__module__.startswith("cdk_hyperpod."), name
    assert set(cdk_hyperpod.__all__) <= set(dir(cdk_hyperpod))


def test_a_name_that_does_not_exist_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'cdk_hyperpod' has no attribute 'HyperPodClutser'"):
        _ = cdk_hyperpod.HyperPodClutser


def test_a_name_that_is_elsewhere_is_an_error_that_names_the_place() -> None:
    with pytest.raises(ImportError, match=r"write `from cdk_hyperpod.config import NetworkConfig`"):
        _ = cdk_hyperpod.NetworkConfig
    with pytest.raises(ImportError, match="use DrainAgentConfig"):
        _ = config.DrainConfig


def test_a_public_name_is_in_one_place() -> None:
    assert len(cdk_hyperpod.__all__) <= 32
    assert not {*cdk_hyperpod.__all__} & {*config.__all__}


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import cdk_hyperpod", id="the package"),
        pytest.param("import cdk_hyperpod.cli.main", id="the command-line tool"),
        pytest.param("from cdk_hyperpod import load_config; load_config('cluster.yaml')", id="load_config"),
        pytest.param("from cdk_hyperpod import ConfigError, InstanceGroup, catalogue; catalogue()", id="values"),
        pytest.param("from cdk_hyperpod.config.schema import json_schema; json_schema()", id="the schema"),
    ],
)
def test_loading_a_cluster_file_imports_neither_cdk_nor_jsii(code: str) -> None:
    check = "import sys; print([name for name in ('aws_cdk', 'jsii', 'constructs') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {check}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "name",
    [
        "app.py",
        "cdk.json",
        "pyproject.toml",
        "cluster.yaml",
        "cluster.schema.json",
        "README.md",
        "LICENSE",
        "Makefile",
        "constructs/cdk_hyperpod/__init__.py",
        "constructs/cdk_hyperpod/py.typed",
        "stacks/__init__.py",
        "lifecycle/on_create.sh",
        "docs/adr",
        "examples/smallest_slurm_cluster/app.py",
        "examples/ci/app.py",
    ],
)
def test_files_that_others_rely_on_keep_their_paths(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in (ROOT / "examples").glob("*/app.py")), ids=lambda path: path.name
)
def test_examples_are_whole_and_use_the_library_as_it_is_installed(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} >= {"app.py", "cdk.json", "README.md", "requirements.txt"}
    imports = [line for line in (folder / "app.py").read_text("utf-8").splitlines() if "import" in line.split()]
    public = (
        "from aws_cdk",
        "from cdk_hyperpod import",
        "from cdk_hyperpod.config import",
        "from cdk_hyperpod.stacks import",
        "from pathlib",
        "import sys",
    )
    assert all(line.startswith(public) for line in imports), imports


def test_the_smallest_example_is_under_twenty_lines() -> None:
    assert len((ROOT / "examples/smallest_slurm_cluster/app.py").read_text("utf-8").splitlines()) < 20


def test_no_test_folder_is_a_package_by_accident() -> None:
    assert not (ROOT / "tests" / "__init__.py").exists()


def test_the_files_that_tests_begin_with_are_there(pytestconfig: pytest.Config) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    assert conftest is not None
    assert [file for file in conftest.LONGEST if not (ROOT / "tests" / file).exists()] == []


def test_the_stacks_of_the_top_level_folder_are_the_librarys_too() -> None:
    """As in the wheel, where the folder itself has this name; and an app's own package `stacks` is not touched."""
    code = """
import inspect, sys
import cdk_hyperpod.stacks as ours
for name in ours.__all__:
    print(name, getattr(ours, name).__module__, inspect.getfile(getattr(ours, name)), "stacks" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "docs", capture_output=True, text=True, check=True)
    places = [(name, getattr(stacks, name).__module__.removeprefix("stacks.")) for name in stacks.__all__]
    assert done.stdout.splitlines() == [
        f"{name} cdk_hyperpod.stacks.{module} {ROOT / 'stacks' / module}.py False" for name, module in places
    ]


def test_the_map_of_changes_leads_to_what_it_names() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = text.partition("## To change X, go to Y")[2].partition("## Rules")[0]
    rows = re.findall(r"\| `(\S+)` \| `(\w+)` \|$", table, re.MULTILINE)

    assert len(rows) >= 20
    missing = [file for file, _ in rows if not (ROOT / file).is_file()]
    assert missing == []
    defined = r"^\s*(?:def|class) {0}\b|^{0}\b.*="
    unknown = [
        f"{file} defines no {name}"
        for file, name in rows
        if not re.search(defined.format(name), (ROOT / file).read_text("utf-8"), re.MULTILINE)
    ]
    assert unknown == []
