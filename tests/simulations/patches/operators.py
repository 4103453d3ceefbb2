"""Processes that run `cdk-hyperpod patch` on machines, and what happens to them."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from cdk_hyperpod.cli import live, tables
from cdk_hyperpod.cli.patch import patch as command
from cdk_hyperpod.cli.patch.model import Options
from cdk_hyperpod.cli.patch.patcher import Patcher
from cdk_hyperpod.cli.patch.run_record import AnotherRunError, LocalRecord
from cdk_hyperpod.config.cluster import ClusterConfig
from cdk_hyperpod.errors import HyperPodError

from .clock import Killed
from .world import NAME, REGION, Credentials, World, refused

_current = threading.local()


@dataclass
class Machine:
    """Where records of unfinished runs are."""

    record: io.StringIO = field(default_factory=io.StringIO)
    user: Process | None = None


@dataclass(eq=False)
class Process:
    """One call of the command."""

    world: World
    machine: Machine
    config: ClusterConfig
    options: Options
    name: str
    ahead_s: float = 0.0
    """How far its machine's clock is ahead."""
    dies: float | None = None
    interrupted: float | None = None
    expires: float | None = None
    sleeps: tuple[float, float] | None = None
    """From when on it sleeps, at its next step, and for how long."""
    prompt_s: float = 0.0
    """How long the user reads before confirming."""
    began: float | None = None
    ended: float | None = None
    code: int | None = None
    killed: bool = False
    error: Exception | None = None
    is_awake: bool = True
    awake_since: float = 0.0
    asleep_since: float = 0.0
    output: list[str] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.began is not None and self.ended is None

    @property
    def force_s(self) -> float | None:
        return None if self.options.force_s is None else float(self.options.force_s)

    @property
    def drain_for_s(self) -> float:
        return float(self.options.drain_for_s)

    @property
    def groups(self) -> int:
        return len(self.world.groups) + 1

    def start(self) -> None:
        self.world.time.start(self._main)

    def _main(self) -> None:
        _current.process = self
        self.began = self.awake_since = self.world.now
        self.world.note(f"{self.name} begins")
        credentials = Credentials(self.world, self._before_call, self.name)
        target = live.Target(name=NAME, region=REGION, client=credentials.client, config=self.config)
        try:
            self.code = command._Command(target, self.options, command._Printer(as_json=False), yes=True).run()
        except Killed:
            self.killed = True
        except KeyboardInterrupt:
            self.code = 130
        except (HyperPodError, ClientError, BotoCoreError) as error:
            self.say(str(error))
            self.code = 1
        finally:
            self._ends()

    def _ends(self) -> None:
        error = sys.exc_info()[1]
        self.error = error if isinstance(error, Exception) else None
        self.ended = self.world.now
        if self.machine.user is self:
            self.machine.user = None
        self.world.note(f"{self.name} ends: {'killed' if self.killed else self.code}")
        self.world.judge.ended(self)

    def say(self, *lines: object, **_: object) -> None:
        if self.killed:
            return
        for line in lines:
            self.output.append(str(line))
            self.world.note(f"  {self.name}| {line}")

    # -- what happens to it -----------------------------------------------------------------------------------------

    def _before_call(self, service: str) -> None:
        self.wait(self.world.random.uniform(0.05, 1.5))
        if self.expires is not None and self.world.now >= self.expires:
            raise refused("ExpiredTokenException", "The security token included in the request is expired", service)

    def wait(self, seconds: float) -> None:
        if self.killed:
            raise Killed
        self.world.time.wait(seconds)
        now = self.world.now
        if self.sleeps is not None and now >= self.sleeps[0]:
            span, self.sleeps, self.is_awake = self.sleeps[1], None, False
            self.asleep_since = now
            self.world.note(f"{self.name} sleeps for {span / 60:.0f} minutes")
            self.world.time.wait(span)
            self.is_awake, self.awake_since = True, self.world.now
        if self.dies is not None and now >= self.dies:
            self.killed = True
            raise Killed
        if self.interrupted is not None and now >= self.interrupted:
            self.interrupted = None
            self.world.note(f"{self.name}: Ctrl-C")
            raise KeyboardInterrupt

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.world.now + self.ahead_s, UTC)


class _Record(LocalRecord):
    def __init__(self, process: Process) -> None:
        super().__init__(process.machine.record)
        self._process = process

    def write(self, run: Any) -> None:
        if not self._process.killed:
            super().write(run)


@contextmanager
def _local_record(*_: object) -> Iterator[LocalRecord]:
    process: Process = _current.process
    if process.machine.user is not None:
        raise AnotherRunError("another patch is running on this machine")
    process.machine.user = process
    yield _Record(process)


@contextmanager
def virtual() -> Iterator[None]:
    """`patch` waits, prints and keeps its record in the simulation."""

    def of_process(name: str) -> Callable[..., Any]:
        return lambda *given, **more: getattr(_current.process, name)(*given, **more)

    replaced = (
        (tables, "now", of_process("now")),
        (tables, "say", of_process("say")),
        (tables, "complain", of_process("say")),
        (tables, "width", lambda: None),
        (Patcher, "wait", staticmethod(of_process("wait"))),
        (command, "local_record", _local_record),
    )
    before = [(where, name, where.__dict__[name]) for where, name, _ in replaced]
    for where, name, value in replaced:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)
