"""Step drain: which of the agent's files are on a controller afterwards, and when the agent is started again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod._common.assets import pack_lifecycle
from helpers.lifecycle.programs import load

step = load("steps/45_drain.py")
lib = sys.modules["lib"]
DRAIN = {"bucket": "drains", "region": "us-west-2", "backup": None}


class Controller:
    """A folder that stands for a controller, and the scripts that it has downloaded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs = folder / "node/usr/local/lib/cdk-hyperpod"
        self.scripts = pack_lifecycle(folder / "scripts")
        self.cluster = folder / "cluster.json"
        self.cluster.write_text(json.dumps({"cluster_name": "llm-train", "drain": DRAIN}))
        self.asked: list[str] = []
        self.there: list[set[str]] = []
        """The files at each restart."""
        self.fails = ""
        monkeypatch.setenv("PROVISION_ROOT", str(folder / "node"))
        monkeypatch.setattr(step, "__file__", str(self.scripts / "steps/45_drain.py"))
        monkeypatch.setattr(lib, "__file__", str(self.scripts / "lib.py"))
        for module in (step, lib):
            monkeypatch.setattr(module, "run", self._run)

    def _run(self, *command: str, **_: Any) -> subprocess.CompletedProcess[str]:
        self.asked.append(" ".join(command))
        if command[1] == "restart":
            self.there.append(self.files())
        return subprocess.CompletedProcess(command, int(command[1] == self.fails), "")

    def start(self) -> bool:
        """Run the step. Whether it restarted the agent."""
        self.asked.clear()
        step.start_agent(str(self.cluster))
        return f"systemctl restart {step.UNIT}" in self.asked

    def files(self) -> set[str]:
        return {path.relative_to(self.programs).as_posix() for path in self.programs.rglob("*") if path.is_file()}


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    return Controller(tmp_path, monkeypatch)


def wanted(controller: Controller) -> set[str]:
    agent = {path.relative_to(controller.scripts).as_posix() for path in controller.scripts.rglob("agent/**/*.py")}
    assert len(agent) > 3
    return {*agent, "drain_agent.py", "drain_protocol.py", "lib.py", "drain.json"}


def test_the_agent_that_is_installed_can_be_started(controller: Controller) -> None:
    assert controller.start() is True
    assert controller.files() == wanted(controller)
    (started,) = [line.partition("=")[2] for line in step.SERVICE.splitlines() if line.startswith("ExecStart=")]
    command = started.replace(step.PROGRAMS, str(controller.programs)).replace("drain.json", "absent.json").split()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # It comes as far as its settings.
    assert (done.returncode, done.stdout) == (1, "")
    assert " ERROR drain_agent.py: " in done.stderr and "absent.json" in done.stderr and done.stderr.count("\n") == 1


def test_an_agent_that_is_as_it_should_be_goes_on(controller: Controller) -> None:
    controller.start()
    assert controller.start() is False
    assert controller.files() == wanted(controller)


def test_an_agent_without_a_folder_is_replaced_and_leaves_nothing(controller: Controller) -> None:
    controller.programs.mkdir(parents=True)
    before = {"backup.py", "s3.py", "drain_protocol.py", "drain_agent.py", "lib.py", "drain.json"}
    for name in {*before, "access.py"}:
        (controller.programs / name).write_text("# of before\n")
    controller.fails = "restart"
    with pytest.raises(lib.StepError):
        controller.start()
    # What runs may be the agent of before: it reads backup.py when it starts a backup.
    assert controller.files() >= before
    controller.fails = ""
    assert controller.start() is True
    assert controller.there[-1] >= before
    assert controller.files() == {*wanted(controller), "access.py"}


def test_files_that_no_longer_belong_to_the_agent_are_removed(controller: Controller) -> None:
    controller.start()
    old = controller.programs / "agent/old"
    old.mkdir()
    (old / "part.py").write_text("# of before\n")
    assert controller.start() is False
    assert not old.exists()
    assert controller.files() == wanted(controller)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("name", ["agent/s3.py", "drain_agent.py", "drain_protocol.py", "lib.py"])
def test_a_step_that_is_killed_when_it_has_written_a_file_restarts_the_agent_when_it_runs_again(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    controller.start()
    new = f"{(controller.scripts / name).read_text()}# new\n"
    (controller.scripts / name).write_text(new)
    real = Path.replace

    def replace(path: Path, target: Path) -> None:
        real(path, target)
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Path, "replace", replace)
        controller.start()
    assert (controller.programs / name).read_text() == new
    assert controller.start() is True
    assert controller.files() == wanted(controller)
