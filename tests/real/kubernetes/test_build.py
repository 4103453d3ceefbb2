"""The build's guarantees, with simulated tools: no broken build remains, and nothing is built twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdk_hyperpod_local.engine.kubernetes import control_plane
from helpers.kubernetes.apiserver import build

TESTS = Path(build.__file__).parents[3]
TOOLS = {
    "apt-get": """
        case "$*" in
          indextargets*) echo http://127.0.0.1:9/debian/ ;;
          update*) echo $$ >> "$STATE/updates"; if [ -e "$STATE/hang" ]; then exec sleep 60; fi ;;
          source*) touch kubernetes.dsc ;;
          download*) touch etcd.deb ;;
        esac""",
    "dpkg-deb": 'mkdir -p "$3/usr/bin"; printf etcd > "$3/usr/bin/etcd"',
    "dpkg-source": """
        mkdir -p "$3/vendor/github.com/modern-go/reflect2" "$3/hack/make-rules"
        cp "$(dirname "$0")/compile" "$3/hack/make-rules/build.sh"
    """,
    "compile": """
        if [ -e "$STATE/fail" ]; then echo out of luck; exit 2; fi
        mkdir -p _output/local/go/bin
        for package in "$@"; do
          printf '#!/bin/sh\\necho Kubernetes v1.20.2\\n' > _output/local/go/bin/$(basename $package)
          chmod +x _output/local/go/bin/$(basename $package)
        done""",
}

LONGEST_SECONDS = 120
"""Of a build with these tools, on a machine that does much else."""


class Machine:
    """A machine with simulated tools."""

    def __init__(self, folder: Path) -> None:
        self.state, self.tools, cache = folder / "state", folder / "tools", folder / "cache"
        self.state.mkdir()
        self.tools.mkdir()
        self.cache = cache / "cdk-hyperpod" / f"kubernetes-{control_plane.VERSION}"
        for name, script in TOOLS.items():
            (self.tools / name).write_text(f"#!/bin/sh\nset -e\nSTATE='{self.state}'\n{script}\n")
            (self.tools / name).chmod(0o755)
        self.environment = {
            "PATH": f"{self.tools}:/usr/bin:/bin",
            "XDG_CACHE_HOME": str(cache),
            "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'local_aws'}",
        }
        self.started: list[subprocess.Popen[str]] = []

    def tell(self, what: str) -> None:
        (self.state / what).touch()

    def untell(self, what: str) -> None:
        (self.state / what).unlink()

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, build.__file__],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self) -> tuple[int, str, str]:
        process = self.start()
        out, err = process.communicate(timeout=LONGEST_SECONDS)
        return process.returncode, out, err

    def updates(self) -> list[int]:
        """The processes of apt-get update, one for each build that began."""
        file = self.state / "updates"
        return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if not build.KEYRING.is_file():
        pytest.skip("not a Debian")
    machine = Machine(tmp_path)
    yield machine
    for process in machine.started:
        if process.poll() is None:
            process.kill()
            process.wait()


def await_(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_the_kubernetes_binaries_are_built_once(machine: Machine) -> None:
    status, out, err = machine.run()
    assert (status, out) == (0, f"{machine.cache}/bin\n"), err
    assert sorted(file.name for file in (machine.cache / "bin").iterdir()) == sorted(
        [*control_plane.BINARIES, "build.json"]
    )
    assert sorted(file.name for file in machine.cache.iterdir()) == ["bin", "lock"]
    assert machine.run()[0] == 0
    assert len(machine.updates()) == 1


def test_two_at_once_build_once(machine: Machine) -> None:
    first, second = machine.start(), machine.start()
    assert [process.wait(timeout=LONGEST_SECONDS) for process in (first, second)] == [0, 0]
    assert len(machine.updates()) == 1


def test_a_build_of_another_version_does_not_count(machine: Machine) -> None:
    machine.run()
    record = machine.cache / "bin" / "build.json"
    record.write_text(json.dumps({"package": "kubernetes=1.19"}))
    assert machine.run()[0] == 0
    assert json.loads(record.read_text())["package"] == control_plane.PACKAGE


def test_a_failed_command_is_named_with_its_words(machine: Machine) -> None:
    machine.tell("fail")
    status, out, err = machine.run()
    assert (status, out) == (1, "")
    assert err.endswith("openapi-gen ended with 2:\nout of luck\n\n")
    assert [file.name for file in machine.cache.iterdir()] == ["lock"]
    machine.untell("fail")
    assert machine.run()[0] == 0


def test_a_missing_tool_is_named(machine: Machine) -> None:
    machine.environment["PATH"] = str(machine.tools)
    assert machine.run() == (1, "", "building kube-apiserver needs nice (any Debian has them)\n")


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_a_build_that_gets_a_signal_ends_its_processes(machine: Machine, told: signal.Signals) -> None:
    machine.tell("hang")
    process = machine.start()
    await_(machine.updates)
    process.send_signal(told)
    assert process.wait(timeout=20) == 128 + told
    assert not is_running(*machine.updates())
    assert [file.name for file in machine.cache.iterdir()] == ["lock"]


def test_killed_it_leaves_nothing_that_the_next_one_trips_over(machine: Machine) -> None:
    machine.tell("hang")
    killed = machine.start()
    await_(machine.updates)
    killed.kill()
    killed.wait()
    machine.untell("hang")
    (orphan,) = machine.updates()
    waiting = machine.start()
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == f"· waiting for another build in {machine.cache}\n"
    assert is_running(orphan)
    os.kill(orphan, signal.SIGKILL)
    assert waiting.wait(timeout=LONGEST_SECONDS) == 0
    assert sorted(file.name for file in machine.cache.iterdir()) == ["bin", "lock"]
