"""The real CDK CLI against the engine. Every run has a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cdk_hyperpod_local import environment, installation
from cdk_hyperpod_local.places import Place

SYNTH_SECONDS = 300.0
BOOTSTRAP_SECONDS = 180.0
DEPLOY_SECONDS = 900.0
COMPANION = Path(__file__).with_name("companion.cjs")


@dataclass(frozen=True, kw_only=True)
class Result:
    code: int
    output: str
    """Empty if the output went to the terminal."""
    seconds: float

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def reason(self) -> str:
        """The CLI's report of a failure, without the stack events before it."""
        _, found, after = self.output.partition("Failed resources:")
        return after.strip() if found else "\n".join(self.output.strip().splitlines()[-20:])


@dataclass(frozen=True, kw_only=True)
class Cdk:
    """`show`: print the CLI's output to the terminal as it comes. Otherwise it is in the result. `log`: a file that gets it too, as it
    comes; absent: none."""

    place: Place
    region: str
    account: str = environment.ACCOUNT
    show: bool = False
    log: Path | None = None

    def bootstrap(self, *options: str) -> Result:
        self.place.empty.mkdir(parents=True, exist_ok=True)
        return self._run(
            ["bootstrap", f"aws://{self.account}/{self.region}", *options],
            cwd=self.place.empty,
            seconds=BOOTSTRAP_SECONDS,
        )

    def deploy(self, assembly: Path, *options: str, only: str | None = None, seconds: float = DEPLOY_SECONDS) -> Result:
        """`only`: the name of one stack, without its dependencies. Absent: all stacks."""
        which = ("--all",) if only is None else (only, "--exclusively")
        return self._on(assembly, "deploy", *which, "--require-approval", "never", *options, seconds=seconds)

    def diff(self, assembly: Path, *options: str) -> Result:
        return self._on(assembly, "diff", *options, seconds=SYNTH_SECONDS)

    def drift(self, assembly: Path, *options: str) -> Result:
        return self._on(assembly, "drift", *options, seconds=SYNTH_SECONDS)

    def destroy(self, assembly: Path, *options: str, seconds: float = DEPLOY_SECONDS) -> Result:
        return self._on(assembly, "destroy", "--all", "--force", *options, seconds=seconds)

    def synth(self, assembly: Path, *options: str, app: Path, validate: bool = True) -> Result:
        """`app`: its folder. `validate`: also run CDK's checks of the templates, which take longer than the
        synthesis."""
        command = ["synth", "--quiet", "--output", str(assembly), *options]
        return self._run(command, cwd=app, seconds=SYNTH_SECONDS, more={} if validate else {"CDK_VALIDATION": "false"})

    def _on(self, assembly: Path, command: str, *options: str, seconds: float) -> Result:
        return self._run([command, "--app", str(assembly), *options], cwd=self.place.empty, seconds=seconds)

    def _own_environment(self) -> dict[str, str]:
        # Node.js splits the options at blanks, and reads a quoted one as JSON.
        companion = json.dumps(str(COMPANION), ensure_ascii=False)
        return {
            "TMPDIR": str(self.place.temporary),
            "NODE_OPTIONS": f"--require {companion}",
            # Compiling its own source is a quarter of the CLI's start.
            "NODE_COMPILE_CACHE": str(installation.current().compiled),
        }

    @contextlib.contextmanager
    def _output(self) -> Iterator[IO[str] | int | None]:
        """Where the CLI writes: the terminal, the log, or a pipe."""
        if self.log is None or self.show:
            yield None if self.show else subprocess.PIPE
            return
        with self.log.open("w", encoding="utf-8") as file:
            yield file

    def _run(
        self, arguments: Sequence[str], *, cwd: Path, seconds: float, more: Mapping[str, str] | None = None
    ) -> Result:
        self.place.empty.mkdir(parents=True, exist_ok=True)
        command = [str(installation.current().cdk), *arguments, "--no-notices"]
        if not (self.show and environment.is_styled()):
            command += ["--ci", "--no-color"]
            if arguments[0] in ("bootstrap", "deploy"):
                command += ["--progress", "events"]
        settings = environment.complete(self.place, region=self.region, account=self.account)
        began = time.monotonic()
        self.place.temporary.mkdir(parents=True, exist_ok=True)
        # The companion ends the CLI when this end of the pipe closes, which happens however this process ends.
        reading, writing = os.pipe()
        with self._output() as written_to:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=settings | self._own_environment() | dict(more or {}),
                stdin=reading,
                stdout=written_to,
                stderr=None if self.show else subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return Result(code=124, output=f"{self._printed(output)}\nended after {seconds:.0f} s", seconds=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            os.close(reading)
            os.close(writing)
        return Result(code=process.returncode, output=self._printed(output), seconds=time.monotonic() - began)

    def _printed(self, output: str | None) -> str:
        """What the CLI has printed, unless it went to the terminal."""
        if self.log is not None and not self.show:
            return self.log.read_text("utf-8", errors="replace")
        return output or ""
