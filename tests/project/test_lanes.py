"""The lanes of `make test`: each test file is in one of them, and a change touches those that stand on what it changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import lanes

FUNCTIONS = lanes.FUNCTIONS


def test_every_test_file_is_in_one_lane() -> None:
    files = [str(path.relative_to(lanes.ROOT)) for path in lanes.TESTS.rglob("test_*.py")]
    assert [path for path in files if lanes.lane_of(path) is None] == []
    running = {path: [lane for lane in lanes.LANES if lanes.is_in(path, *lanes.tests_of(lane))] for path in files}
    assert {path: found for path, found in running.items() if len(found) != 1 and not lanes.is_apart(path)} == {}
    assert all(lanes.tests_of(lane) for lane in lanes.LANES)


@pytest.mark.parametrize(
    ("changed", "touches"),
    [
        ("tests/unit/alerts/test_decide.py", {"functions"}),
        ("tests/deployments/test_alerts.py", {"local"}),
        ("lifecycle/steps/30_users.py", {"nodes"}),
        (f"{lanes.LIBRARY}/cli/main.py", {"cli", "local"}),
        (f"{lanes.LIBRARY}/storage/lustre.py", {"library", "local"}),
        # The commands read it, though they import no construct.
        (f"{lanes.LIBRARY}/config/slurm.py", {"library", "cli", "local"}),
        (f"{FUNCTIONS}/scale_down/decide/planner.py", {"functions", "library", "cli", "local"}),
        (f"{lanes.LOCAL_AWS}/hyperpod/api.py", {"local"}),
    ],
)
def test_a_change_touches_the_lanes_of_the_rooms_that_may_import_it(changed: str, touches: set[str]) -> None:
    assert lanes.touched([changed])[0] == touches


@pytest.mark.parametrize(
    ("changed", "file"),
    [
        # By way of a helper, of a conftest.py, and of a package of the simulations.
        (f"{lanes.LOCAL_AWS}/hyperpod/api.py", "tests/unit/scale_down/test_draining.py"),
        (f"{lanes.LOCAL_AWS}/hyperpod/api.py", "tests/unit/cli/nodes/test_nodes.py"),
        (f"{FUNCTIONS}/scale_down/decide/planner.py", "tests/simulations/test_soak.py"),
        (f"{FUNCTIONS}/kernel/drain_protocol.py", "tests/unit/lifecycle/agent/test_loop.py"),
        # By way of other rooms.
        (f"{lanes.LIBRARY}/config/slurm.py", "tests/simulations/test_fuzz.py"),
        (f"{lanes.LIBRARY}/storage/lustre.py", "tests/unit/cli/deployment/preflight/test_cost.py"),
    ],
)
def test_it_touches_the_files_of_other_lanes_that_import_it(changed: str, file: str) -> None:
    touched, files = lanes.touched([changed])
    assert file in files
    assert not {lanes.lane_of(each) for each in files} & touched


def test_the_tests_of_the_project_read_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "changed_since", lambda ref: ["lifecycle/lib.py"])
    assert {"tests/project", "tests/test_layers.py", "tests/unit/lifecycle"} <= {*lanes.chosen("", "main")[0]}


@pytest.mark.parametrize("path", ["pyproject.toml", "requirements/dev.lock", "Makefile", "tests/helpers/findings.py", "tests/conftest.py"])  # fmt: skip
def test_a_change_of_a_shared_file_selects_all_tests(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "changed_since", lambda ref: ["lifecycle/lib.py", path])
    assert lanes.chosen("", "main") == (
        ["tests"],
        f"all tests: {path} has changed since main, and is part of every lane",
    )


def test_changed_files_include_committed_and_uncommitted_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(lanes, "ROOT", tmp_path)
    git("init", "--initial-branch=main")
    for name in ("kept", "moved", "edited"):
        (tmp_path / name).write_text(name)
    git("add", ".")
    git("commit", "--message=a")
    assert lanes.chosen("", "main") == ([], "no test: nothing has changed since main")
    git("switch", "--create=branch")
    git("mv", "moved", "there")
    git("commit", "--message=b")
    (tmp_path / "edited").write_text("more")
    (tmp_path / "new").touch()
    assert lanes.changed_since("main") == ["edited", "moved", "there", "new"]
    for ref in ("mian", "--output=kept"):
        with pytest.raises(SystemExit, match=rf"^CHANGED={ref}: git finds no such commit; give one, or branch, main$"):
            lanes.changed_since(ref)


@pytest.mark.parametrize(("lane", "ref"), [("clu", ""), ("cli", "main")])
def test_another_lane_is_refused_with_those_that_there_are(lane: str, ref: str) -> None:
    with pytest.raises(
        SystemExit, match=rf"^LANE={lane}: give one of library, functions, nodes, cli, local, simulations,"
    ):
        lanes.chosen(lane, ref)
