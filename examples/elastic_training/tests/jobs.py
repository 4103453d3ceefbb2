"""Training jobs as processes of their own: started, watched, signalled, and never left behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil  # type: ignore[import-untyped]

EXAMPLE = Path(__file__).resolve().parents[1]
HELD_TRAINING = EXAMPLE / "tests" / "held_training.py"
AGENT = Path(sys.prefix).parent / "agent"
"""Where elastic.mk puts the elastic agent."""
MARK = "ELASTIC_TRAINING_TEST"
LIMIT_S = 90
"""A job that is not over by then is killed and its test fails."""

SAMPLES, GLOBAL_BATCH, EPOCHS, STEPS = 498, 32, 2, 32
"""498 leaves a last batch of 18: an epoch that neither the global batch nor 4 ranks divide."""
SETTINGS = (
    f"--samples={SAMPLES}",
    f"--epochs={EPOCHS}",
    f"--global-batch-size={GLOBAL_BATCH}",
    "--checkpoint-every=5",
    "--log-samples",
    f"--scale-config={EXAMPLE / 'tests' / 'scale_config.json'}",
)


def torchrun(processes: int, script: Path, *, restarts: int = 0) -> list[str]:
    """The launcher's command on this machine: loopback only, a free port."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    return [*run, f"--nproc-per-node={processes}", f"--max-restarts={restarts}", str(script)]


def environment(**more: str) -> dict[str, str]:
    """The environment of a job: one thread per rank, gloo on loopback, events counted as in the image."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HYPERPOD_SIGNAL_COORDINATION": "distributed",
        # Or torchrun keeps one store for all restarts, and gloo finds the addresses of ranks that are gone. (The elastic agent
        # gives each start a store of its own.)
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # As in the image: events come when they happen, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(EXAMPLE),
        **more,
    }


def until(what: str, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s} s for {what}"
        time.sleep(0.02)


@dataclass
class Process:
    """A launcher and its workers."""

    command: Sequence[str]
    env: dict[str, str]
    events: list[dict[str, Any]] = field(default_factory=list)
    """The JSON lines, as they came."""
    output: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        # Inherited by all that the launcher starts: each worker is in a session of its own, and may outlive it.
        self._mark = uuid.uuid4().hex
        # The launchers leave sockets and folders of logs in it.
        self._temporary = tempfile.TemporaryDirectory(prefix="elastic-")
        self._launcher = subprocess.Popen(
            self.command,
            env=self.env | {MARK: self._mark, "TMPDIR": self._temporary.name},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The launcher first, for it might start another worker.
        self._launcher.kill()
        self._launcher.wait(10)
        self.kill_workers()
        self._reader.join(10)
        self._temporary.cleanup()
        if kind is not None:
            print("".join(self.output[-60:]))

    def _read(self) -> None:
        assert self._launcher.stdout is not None
        for line in self._launcher.stdout:
            self.output.append(line)
            # A launcher may put the rank before the line.
            start = line.find('{"event": ')
            if start >= 0:
                self.events.append(json.loads(line[start:]))

    def named(self, event: str) -> list[dict[str, Any]]:
        """The lines of one kind."""
        return [line for line in self.events if line["event"] == event]

    def started(self, ranks: int) -> None:
        """Wait until that many ranks have said that they train."""
        until(f"{ranks} ranks", lambda: len(self.named("started")) == ranks or self._launcher.poll() is not None)
        assert len(self.named("started")) == ranks, "".join(self.output)

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send one rank a signal."""
        (pid,) = (line["pid"] for line in self.named("started") if line["rank"] == rank)
        os.kill(pid, number)

    def workers(self) -> Iterator[psutil.Process]:
        """Every process that the launcher started and that is still there."""
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self._mark and process.pid != self._launcher.pid:
                    yield process
            except psutil.Error:  # gone, or somebody else's
                pass

    def terminate(self) -> None:
        """SIGTERM to the launcher."""
        self._launcher.terminate()

    def kill_workers(self) -> None:
        """SIGKILL to every worker."""
        workers = list(self.workers())
        for worker in workers:
            worker.kill()
        psutil.wait_procs(workers, timeout=10)

    def wait(self) -> int:
        """The launcher's exit status, when all its output has been read; it leaves no worker behind."""
        status = self._launcher.wait(LIMIT_S)
        self._reader.join(10)
        assert not list(self.workers())
        return status


@dataclass(frozen=True)
class Hold:
    """The other side of held_training.py."""

    folder: Path

    def env(self, *, steps: str = "", saving: str = "") -> dict[str, str]:
        """What makes a job wait there."""
        self.folder.mkdir(exist_ok=True)
        return environment(HOLD=str(self.folder), HOLD_BEFORE_STEPS=steps, HOLD_SAVING_STEPS=saving)

    def reached(self, place: str) -> None:
        """Wait until rank 0 waits at the place."""
        until(place, (self.folder / f"at-{place}").exists)

    def release(self, place: str) -> None:
        """Let it go on."""
        (self.folder / f"go-{place}").touch()
