#!/usr/bin/env python3
"""Run the user's own scripts. Usage: 05_own_scripts.py SETTING FACTS CLUSTER_FILE.

SETTING: scripts_before or scripts_after. FACTS: a JSON object of environment variables. The scripts are beside these in
own/SETTING/NUMBER/: the files of each folder run in order of name, those of the cluster (1) before those of the group (2).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from lib import KILLED_S, StepError, log, one_line, read_cluster, run_step

OWN = Path(__file__).resolve().parent.parent / "own"
MARK = "HYPERPOD_SCRIPT_RUN"
"""The environment variable by which the processes of a script are found, also those that left its session."""
FOR_STEPS = ("PYTHONPATH", "PROVISION_ALONE")
"""What provision.py adds to the environment of the library's steps."""
MAX_LOGGED_BYTES = 200_000
"""What a script prints beyond this is not logged, except for the end."""
MAX_LINE = 500
TAIL_BYTES = 2_000
DRAIN_S = 1.0
"""How long output is read after a script has ended. Processes that it leaves running may hold its output open for ever."""


class Output:
    """Logs what a script prints: its beginning at once, and at the end its last lines."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._line = b""
        self._logged = 0
        self._dropped = 0
        self._tail = b""
        self.last = ""
        """The last line that is not empty."""

    def add(self, data: bytes) -> None:
        """Take what was read."""
        room = MAX_LOGGED_BYTES - self._logged
        if room > 0:
            self._logged += len(data[:room])
            self._add_lines(data[:room])
        rest = data[max(room, 0) :]
        self._dropped += len(rest)
        self._tail = (self._tail + rest)[-TAIL_BYTES:]

    def end(self) -> None:
        """Log the last line that has no end, and the tail of what was dropped."""
        self._log(self._line)
        self._line = b""
        if self._dropped:
            unlogged = self._dropped - len(self._tail)
            log("WARNING", f"{self._name}: {unlogged:,} bytes of its output were not logged; the last lines are")
            for line in self._tail.split(b"\n"):
                self._log(line)

    def _add_lines(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._log(line)

    def _log(self, line: bytes) -> None:
        text = one_line(line[: 4 * MAX_LINE].decode("utf-8", "replace"))
        if text:
            self.last = text[:MAX_LINE]
            log("INFO", f"{self._name}: {self.last}")


def scripts_of(setting: str) -> Iterator[tuple[str, Path]]:
    """The scripts of this node and their names in the log, in the order in which they run."""
    for folder in sorted((OWN / setting).glob("*")):
        for script in sorted(folder.iterdir()):
            if script.is_file():
                yield script.name, script


def run_script(name: str, script: Path, environment: Mapping[str, str], minutes: int) -> str | None:
    """Run a script and log its output. Returns None if it ended well, or how it ended."""
    # In tests a minute is shorter.
    limit_s = minutes * float(os.environ.get("PROVISION_MINUTE_S", "60"))
    mark = uuid.uuid4().hex
    # S3 keeps no modes.
    script.chmod(0o755)
    try:
        process = subprocess.Popen(
            [str(script)],
            cwd=script.parent,
            env={**inherited(), **environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return f"cannot be started: {error.strerror} ({one_line(_first_line(script))})"
    output = Output(name)
    try:
        in_time = _read_until_end(process, output, limit_s)
        output.end()
    finally:
        if process.poll() is None:
            kill_all(process, mark)
        assert process.stdout is not None
        process.stdout.close()
    if not in_time:
        return f"did not end within {minutes} min (script_minutes), and was killed with all its processes"
    if process.returncode == 0:
        return None
    how = f"exit code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
    return f"ended with {how}: {output.last or 'it printed nothing'}"


def inherited() -> dict[str, str]:
    """This process's environment, without what is for the library's steps: a script would import our modules in place of its own."""
    return {name: value for name, value in os.environ.items() if name not in FOR_STEPS}


def _first_line(script: Path) -> str:
    with script.open("rb") as file:
        return file.readline(80).decode("utf-8", "replace")


def _read_until_end(process: subprocess.Popen[bytes], output: Output, limit_s: float) -> bool:
    """Read what the script prints until it has ended. Returns False if its time is over before."""
    assert process.stdout is not None
    stdout = process.stdout.fileno()
    os.set_blocking(stdout, False)
    deadline = time.monotonic() + limit_s
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        while process.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            _read_some(selector, stdout, output, min(left, 0.2))
    drained = time.monotonic() + DRAIN_S
    while time.monotonic() < drained and _read(stdout, output):
        pass
    return True


def _read_some(selector: selectors.BaseSelector, stdout: int, output: Output, wait_s: float) -> None:
    if not selector.get_map():
        # The script has closed its output, and still runs.
        time.sleep(wait_s)
    elif selector.select(wait_s) and not _read(stdout, output):
        selector.unregister(stdout)


def _read(stdout: int, output: Output) -> bool:
    """Read once. Returns False if there is nothing to read."""
    try:
        data = os.read(stdout, 65_536)
    except BlockingIOError:
        return False
    output.add(data)
    return bool(data)


def kill_all(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a script and all its processes: first by SIGTERM, then by SIGKILL."""
    term_s = float(os.environ.get("PROVISION_TERM_S", KILLED_S))
    for number, wait_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, KILLED_S)):
        deadline = time.monotonic() + wait_s
        while found := processes_of(process.pid, mark):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            process.poll()
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_S)
    left = processes_of(process.pid, mark)
    if left:
        log("WARNING", f"processes that hang in a device or file system were left running: {sorted(left)}")


def processes_of(session: int, mark: str) -> set[int]:
    """The processes of a script: those of its session, and those with its mark in their environment."""
    own = f"{MARK}={mark}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            state, of_session = fields[0], int(fields[3])
            if state != "Z" and (of_session == session or own in (folder / "environ").read_bytes().split(b"\0")):
                found.add(int(folder.name))
    return found


def run_scripts(setting: str, facts: Mapping[str, str], settings: Mapping[str, object]) -> None:
    """Run all scripts of this node. Raises StepError at the first one that fails, unless the file says continue."""
    minutes, goes_on = settings["minutes"], settings["on_failure"] == "continue"
    assert isinstance(minutes, int)
    for name, script in scripts_of(setting):
        log("INFO", f"{name}: started, for at most {minutes} min")
        began = time.monotonic()
        wrong = run_script(name, script, facts, minutes)
        if wrong is None:
            log("INFO", f"{name}: ended well after {time.monotonic() - began:.0f} s")
        elif goes_on:
            log("WARNING", f"your script {name} of {setting} {wrong}; the node goes on (on_script_failure: continue)")
        else:
            raise StepError(f"your script {name} of {setting} {wrong}; correct it, and deploy")


def main(setting: str, facts: str, cluster_file: str) -> None:
    """Read the settings, and run the scripts."""
    settings = read_cluster(cluster_file).get("own_scripts")
    if not isinstance(settings, dict):
        raise StepError(f"{cluster_file} has no own_scripts; deploy the scripts again")
    run_scripts(setting, json.loads(facts), settings)


if __name__ == "__main__":
    sys.exit(run_step(lambda: main(*sys.argv[1:])))
