"""What tests need beside the locked packages is built once, into a cache: what those builds have in common.

The machine's own Debian mirror, and commands that end at their limit, say how far they are, and
end with the process that started them. The standard library only: it runs before anything is set up.
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
    """The Debian mirror that this machine uses anyway; every mirror has every release. Raises CannotBuildError."""
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
    """One line for whoever waits."""
    print(f"· {text}", file=sys.stderr, flush=True)


class _Told:
    """Whether this process was told to end. Looked at between steps, so that no command is ever left without a parent."""

    signal = 0

    def end(self, number: int, _: object) -> None:
        self.signal = number


_told = _Told()


def heed_signals() -> None:
    """From here on, Ctrl-C and SIGTERM are heeded between steps."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _told.end)


def end_if_told() -> None:
    """End the process if it was told to."""
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
    """What a command says, which is in `log` afterwards. Raises CannotBuildError with the end of it where it fails.

    It ends, with all that it started, at its limit and when this process is told to end. `progress` says every half
    minute how far it is. `keep_open`: files that it inherits, such as a lock that lives as long as it does.
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
