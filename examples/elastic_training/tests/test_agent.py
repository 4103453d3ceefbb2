"""train.py under the real elastic agent: hyperpodrun as the image starts it, its HTTP interface driven as the operator does.

The agent (1.1.3) excludes the torch of these tests by its metadata and runs with it all the same; what this shows holds for the
agent's signals, states and handler. The operator is played by this file.
"""

import json
import os
import socket
import sys
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from jobs import AGENT, EXAMPLE, HELD_TRAINING, SETTINGS, STEPS, Hold, Process, until

ENTRYPOINT = next(
    json.loads(line.removeprefix("ENTRYPOINT "))
    for line in (EXAMPLE / "Containerfile").read_text("utf-8").splitlines()
    if line.startswith("ENTRYPOINT ")
)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Pod(Process):
    """A replica: hyperpodrun with the image's own arguments, but for paths, ports and the number of processes."""

    def __init__(self, name: str, folder: Path, env: dict[str, str], *, processes: int) -> None:
        self.port = free_port()
        launcher, *options, script = ENTRYPOINT
        assert (launcher, script) == ("hyperpodrun", "/workspace/train.py")
        here = {
            "--nproc-per-node": str(processes),
            "--server-host": "127.0.0.1",
            "--server-port": str(self.port),
            "--log-dir": str(folder / name),
            # The agent's default is a folder of the image, /opt/ml/input/config.
            "--rdzv-conf": f"resource_config_dir={folder / name}",
            "--monitor-interval": "0.1",
        }
        (folder / name).mkdir()
        kept = [option for option in options if option.partition("=")[0] not in here]
        super().__init__(
            [
                sys.executable,
                str(EXAMPLE / "tests" / "hyperpodrun.py"),
                *kept,
                *(f"{option}={value}" for option, value in here.items()),
                str(HELD_TRAINING),
                f"--checkpoints={folder / 'checkpoints'}",
                *SETTINGS,
            ],
            env | {"PYTHONPATH": os.pathsep.join([str(AGENT), str(EXAMPLE)]), "NNODES": "1"},
        )

    def ask(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """One request to the agent."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            return json.loads(answer.read() or b"{}")  # type: ignore[no-any-return]
        finally:
            connection.close()

    def status(self) -> str:
        """The agent's state; empty while it doesn't answer yet."""
        try:
            return str(self.ask("GET", "/status")["status"])
        except ConnectionRefusedError:
            return ""

    def becomes(self, state: str) -> None:
        """Wait for a state."""
        until(f"{state}, not {self.status()}", lambda: self.status() == state)

    def says(self, text: str) -> None:
        """Wait for a line of its output."""
        until(text, lambda: any(text in line for line in self.output))

    def start(self, *, rank: int, nodes: int, master_port: int) -> None:
        """What the operator sends when all replicas are there."""
        where = {"master_addr": "127.0.0.1", "master_port": master_port}
        self.ask("POST", "/start", rank=rank, nnodes=nodes, faultCount=0, **where)


pytestmark = pytest.mark.skipif(not AGENT.exists(), reason="no elastic agent: make test-elastic brings it")


def test_two_replicas_become_one_under_the_real_agent(tmp_path: Path) -> None:
    hold = Hold(tmp_path / "hold")
    env = hold.env(steps="8")
    with ExitStack() as stack:
        pods = [stack.enter_context(Pod(name, tmp_path, env, processes=1)) for name in ("pod-0", "pod-1")]
        for pod in pods:
            pod.becomes("ready")
        port = free_port()
        for rank, pod in enumerate(pods):
            pod.start(rank=rank, nodes=2, master_port=port)
        for pod in pods:
            pod.started(1)
        hold.reached("step-8")
        # What the operator sends before it changes the number of replicas.
        for pod in pods:
            pod.ask("POST", "/stop", restart_mode="plr", is_graceful=True, timeout=60)
        # Rank 0 waits in Python and hears at once; the other is in a collective, and hears when it is over.
        for pod in pods:
            pod.says("Stopping workers")
        pods[0].says("elastic event detected")
        hold.release("step-8")
        for pod in pods:
            pod.becomes("ready")
            assert [line["step"] for line in pod.named("elastic_event")] == [8]
        assert (tmp_path / "checkpoints" / "step-000000008").is_dir()

        stays, leaves = pods
        leaves.ask("POST", "/shutdown")
        before = len(stays.events)
        stays.start(rank=0, nodes=1, master_port=free_port())
        stays.becomes("completed")
        until("the last line", lambda: bool(stays.named("finished")))
        again = stays.events[before:]
        started = [line for line in again if line["event"] == "started"]
        assert {line["resumed_from"] for line in started} == {"step-000000008"}
        assert {line["world_size"] for line in started} == {1}
        assert {line["elastic_events"] for line in started} == {"hyperpod_elastic_agent.elastic_event_handler"}
        assert [line["step"] for line in again if line["event"] == "step"] == list(range(9, STEPS + 1))
        stays.ask("POST", "/shutdown")
        for pod in pods:
            assert pod.wait() == 0


def test_an_evicted_replica_saves_before_it_goes(tmp_path: Path) -> None:
    hold = Hold(tmp_path / "hold")
    with Pod("pod-0", tmp_path, hold.env(steps="8"), processes=2) as pod:
        pod.becomes("ready")
        pod.start(rank=0, nodes=1, master_port=free_port())
        pod.started(2)
        hold.reached("step-8")
        # What Kubernetes sends to the container's first process.
        pod.terminate()
        hold.reached("sigterm")
        hold.release("step-8")
        assert pod.wait() != 0
    assert [line["step"] for line in pod.named("terminated")] == [8, 8]
    assert (tmp_path / "checkpoints" / "step-000000008").is_dir()
