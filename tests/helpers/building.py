"""Common parts of the builds that tests need beside the locked packages. Each is built once, into a cache.

The machine's own Debian mirror, and commands with a time limit that report progress and end with the process that
started them. The standard library only, because it runs before anything is installed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PROGRESS_S = 30


class CannotBuildError(Exception):
    """Why this machine cannot build it."""


def debian_mirror() -> str:
    """The Debian mirror that this machine already uses; every mirror has every release. Raises CannotBuildError."""
    told = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main"],
        capture_output=True,
        text=True,
        check=False,
    )
    for address in told.stdout.split():
        if address.rstrip("/").endswith("/debian"):
            return address
    raise CannotBuildError("it needs a Debian mirror, and apt's sources name none")


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"· {text}", file=sys.stderr, flush=True)


class _Told:
    """Whether this process got a signal to end. Checked between steps, so that no command is left without a parent."""

    signal = 0

    def end(self, number: int, _: object) -> None:
        self.signal = number


_told = _Told()


def heed_signals() -> None:
    """From here on, Ctrl-C and SIGTERM take effect between steps."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _told.end)


def end_if_told() -> None:
    """End the process if it got a signal to end."""
    if _told.signal:
        sys.exit(128 + _told.signal)


def run_command(
    command: list[str],
    log: Path,
    *,
    limit_s: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    progress: Callable[[], str] | None = None,
    keep_open: tuple[int, ...] = (),
) -> str:
    """Run a command and return its output, which is also in `log`. Raises CannotBuildError with the end of the output if
    it fails.

    It ends, with everything that it started, at its limit and when this process gets a signal to end. `progress`
    returns a text that is printed every half minute. `keep_open`: files that it inherits, such as a lock for its
    lifetime.
    """
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
            pass_fds=keep_open,
        )
    try:
        status = _wait(process, limit_s, progress)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = log.read_text(errors="replace")
    if status:
        raise CannotBuildError(f"{' '.join(command)} ended with {status}:\n{said[-3000:]}")
    return said


def _wait(process: subprocess.Popen[bytes], limit_s: float, progress: Callable[[], str] | None) -> int:
    started = told = time.monotonic()
    while (now := time.monotonic()) < started + limit_s:
        end_if_told()
        try:
            return process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            if progress is not None and now - told >= PROGRESS_S:
                told = now
                say(f"{(now - started) / 60:.1f} minutes: {progress()}")
    raise CannotBuildError(f"{process.args!r} did not finish within {limit_s / 60:.0f} minutes")
