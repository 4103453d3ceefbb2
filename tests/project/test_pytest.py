"""`pytest` alone, as an editor calls it to find the tests: it runs what `make test` runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def collected(*named: str) -> list[str]:
    """The tests that pytest finds."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *named]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


def named_by(target: str) -> list[str]:
    """What a target of the Makefile gives to pytest."""
    told = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [word for line in told.splitlines() if "pytest" in line for word in line.split() if word.startswith("tests")]


@pytest.fixture
def apart(request: pytest.FixtureRequest) -> dict[str, tuple[str, ...]]:
    plugins = request.config.pluginmanager
    (found,) = (plugin.APART for plugin in plugins.get_plugins() if hasattr(plugin, "APART"))
    return dict(found)


@pytest.mark.slow
def test_alone_it_leaves_out_what_has_a_command_of_its_own(apart: dict[str, tuple[str, ...]]) -> None:
    files = {test.partition("::")[0] for test in collected()}
    assert "tests/project/test_pytest.py" in files
    others = [path for paths in apart.values() for path in paths]
    assert not [file for file in files if any(file == path or file.startswith(f"{path}/") for path in others)]


def test_each_command_names_what_it_runs(apart: dict[str, tuple[str, ...]]) -> None:
    assert {target: tuple(named_by(target)) for target in apart} == apart
    assert named_by("test") == []


@pytest.mark.slow
def test_what_is_named_is_found_beside_all_else() -> None:
    """Tests that have a `cluster` of another kind, too, which is none of real Slurm's."""
    files = {
        test.partition("::")[0]
        for test in collected("tests/real/slurm/test_jobs.py", "tests/unit/local_aws/engine/test_hyperpod_service.py")
    }
    assert files == {"tests/real/slurm/test_jobs.py", "tests/unit/local_aws/engine/test_hyperpod_service.py"}
