"""What a run of the tests leaves out: what has a command of its own, and what runs in CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOAK, PATCHES = ROOT / "tests" / "simulations" / "test_soak.py", ROOT / "tests" / "simulations" / "test_patches.py"


class Item(NamedTuple):
    """A test, as the hook sees it."""

    path: Path
    marker: str = ""

    def get_closest_marker(self, name: str) -> bool:
        return name == self.marker


def configured(*named: str) -> Any:
    """pytest with these arguments; without one it has the folder of the settings."""
    return SimpleNamespace(
        args=named or ("tests",),
        invocation_params=SimpleNamespace(dir=ROOT),
        stash=pytest.Stash(),
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )


@pytest.fixture
def plugin(request: pytest.FixtureRequest) -> Any:
    """tests/conftest.py."""
    (found,) = (plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "APART"))
    return found


def named_by(target: str) -> list[str]:
    """What a target of the Makefile gives to pytest."""
    told = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [word for line in told.splitlines() if "pytest" in line for word in line.split() if word.startswith("tests")]


def test_alone_it_leaves_out_what_has_a_command_of_its_own(plugin: Any) -> None:
    for path in (path for paths in plugin.APART.values() for path in paths):
        assert (ROOT / path).exists()
        assert plugin.pytest_ignore_collect(ROOT / path, configured())
        for named in (path, f"{path}/test_some.py::test_it"):
            assert not plugin.pytest_ignore_collect(ROOT / path, configured(named))
    assert not plugin.pytest_ignore_collect(Path(__file__), configured())


def test_each_command_names_what_it_runs(plugin: Any) -> None:
    assert {target: tuple(named_by(target)) for target in plugin.APART} == plugin.APART
    assert named_by("test") == []


@pytest.mark.parametrize(
    ("ci", "named", "left_out"),
    [
        ("", (), 2),
        ("", ("tests/simulations",), 2),
        ("", ("tests/simulations/test_patches.py",), 1),
        ("", ("tests/simulations/test_patches.py::test_it[1]", "tests/simulations/test_soak.py"), 0),
        ("true", (), 0),
    ],
)
def test_tests_for_ci_run_elsewhere_if_their_file_is_named(
    ci: str, named: tuple[str, ...], left_out: int, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    config, lines = configured(*named), list[str]()
    items = [Item(PATCHES), Item(PATCHES, "ci"), Item(SOAK, "ci"), Item(SOAK, "setups")]
    plugin.pytest_collection_modifyitems(config, items)
    assert len(items) == 4 - left_out
    assert {Item(SOAK, "setups"), Item(PATCHES)} <= {*items}
    assert items[0].path == SOAK, "the longest first"

    # A worker of pytest-xdist tells it to the process that prints the summary.
    config.workeroutput = {}
    plugin.pytest_sessionfinish(SimpleNamespace(config=config))
    printing = configured(*named)
    plugin.pytest_testnodedown(SimpleNamespace(config=printing, workeroutput=config.workeroutput))
    for each in (config, printing):
        plugin.pytest_terminal_summary(SimpleNamespace(write_line=lines.append), each)
    assert lines == [f"left out {left_out} tests that run in CI: CI=true make test"] * 2 * bool(left_out)


def test_each_named_test_file_is_collected() -> None:
    """Tests that have a `cluster` of another kind, too, which is none of real Slurm's."""
    named = {"tests/real/slurm/test_jobs.py", "tests/unit/local_aws/engine/test_hyperpod_service.py"}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *named]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line} == named
