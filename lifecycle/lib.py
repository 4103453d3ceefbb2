"""Shared by the steps in Python: the log, commands, files that are written only if they differ, waiting.

Only the standard library, and nothing newer than Python 3.8: that is what nodes with Ubuntu 20.04 have.

    PROVISION_ROOT      the folder that stands for / in tests; default /
    PROVISION_ATTEMPTS  how often a step checks what it waits for; default 60
    PROVISION_DELAY_S   seconds between two checks; default 5
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

NAME = os.path.basename(sys.argv[0])
OWN_MARK = "Written by cdk-hyperpod's lifecycle scripts, which write it again when they run."
"""The first line of every file that is ours as a whole."""

RUN_AGAIN = "run this step again when they have ended"
"""The end of a step's message if jobs kept it from a part of its work. `cdk-hyperpod lifecycle run` searches for it."""


KILLED_S = 5
"""A killed process ends within this time, or it hangs in a device or file system."""


class StepError(Exception):
    """A step cannot do its work. The message is one sentence: why, and what to do."""


def log(level: str, message: str) -> None:
    """One line of the log: INFO, WARNING or ERROR."""
    print(
        f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {level} {NAME}: {one_line(message)}",
        file=sys.stderr,
        flush=True,
    )


def run_step(step: Callable[[], None]) -> int:
    """Run a step. Returns its exit code: 0, or 1 after one line with the reason."""
    # With the umask of the caller, users might be unable to enter the folders that are made here.
    os.umask(0o022)
    try:
        step()
    except StepError as error:
        log("ERROR", str(error))
        return 1
    except OSError as error:
        # The disk is full, or a file system does not respond: no step expects that.
        log("ERROR", f"{error}; look at the disk (df) and at what is mounted (findmnt), then run the step again")
        return 1
    return 0


def on_node(path: str) -> Path:
    """A path of the node. In tests, a path in the folder that stands for /."""
    return Path(os.environ.get("PROVISION_ROOT", "/")) / path.lstrip("/")


def run(*command: str, timeout_s: float = 120, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command, whatever its exit code. `stdout` has both its outputs.

    Exit code 127: there is no such command. 124: it did not end in time, and was killed. A command that hangs in a device or a file
    system, such as `nvidia-smi` for a GPU that fell off its bus, survives even that, and is left running.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, f"command {command[0]} not found")
    try:
        said, _ = process.communicate(stdin, timeout=timeout_s)
        return subprocess.CompletedProcess(command, process.returncode, said)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, f"it did not end within {timeout_s:.0f} s")
    finally:
        if process.returncode is None:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_S)
    for pipe in filter(None, (process.stdin, process.stdout)):
        with contextlib.suppress(OSError):
            pipe.close()


def begin_process(work: Callable[[], None]) -> tuple[int, int]:
    """Begin to do `work` in a process of its own. Returns its pid, and a pipe that has the reason if it fails, and closes when it ends."""
    reading, writing = os.pipe()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _work_and_exit(work, writing)
    os.close(writing)
    return pid, reading


def _work_and_exit(work: Callable[[], None], pipe: int) -> None:
    """Never returns: what follows in this program is the other process's."""
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:  # noqa: BLE001
        why = str(error) if isinstance(error, (StepError, OSError)) else repr(error)
        os.write(pipe, why.encode("utf-8", "replace")[:4000])
    finally:
        sys.stderr.flush()
        os._exit(code)


def must_run(*command: str, timeout_s: float = 120, stdin: str = "") -> str:
    """A command's output. Raises StepError, with the command and the end of its output, when it fails."""
    done = run(*command, timeout_s=timeout_s, stdin=stdin)
    if done.returncode != 0:
        raise StepError(f"`{shlex.join(command)}` failed with exit code {done.returncode}: {last_line(done.stdout)}")
    return done.stdout


def last_line(text: str) -> str:
    """The last line that is not empty, at most 300 characters of it."""
    lines = [line for line in map(one_line, text.splitlines()) if line]
    return lines[-1][:300] if lines else "no output"


def what_failed(text: str) -> str:
    """The last line of a failed command of Slurm's. If munge failed, the last line does not show it, so munge's own line is returned."""
    if "Munge encode failed" in text or "Munge decode failed" in text:
        cause = next(line for line in text.splitlines() if "Munge" in line and "failed" in line)
        return f"{last_line(cause)}; look at `systemctl status munge`, and start it again"
    return last_line(text)


def one_line(text: object) -> str:
    """Foreign text as one line without control characters."""
    whole = str(text)
    return " ".join((whole if whole.isprintable() else "".join(map(_shown, whole))).split())


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if letter.isspace() else "?"


def write_file(path: str, content: str, mode: int = 0o644, owes: Sequence[str] = ()) -> bool:
    """Write a file if its content differs. Returns True if it was written. If that fails, the old content stays.

    `owes`: the actions that have to follow a change, for `settle`.
    """
    target = on_node(path)
    if target.is_file() and target.read_text("utf-8", "replace") == content:
        return False
    for action in owes:
        owe(action)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.cdk-hyperpod")
    try:
        temporary.write_text(content, "utf-8")
        temporary.chmod(mode)
        temporary.replace(target)
    finally:
        if temporary.exists():
            temporary.unlink()
    log("INFO", f"wrote {path}")
    return True


OWED = "/var/lib/cdk-hyperpod/owed"
"""Has a file for each action that must follow a written file, from before the writing until the action succeeded.

A file that needs no writing does not prove that the action was done: a run may have been killed between the two."""


def owe(action: str) -> None:
    """Note an action, before the file is written that requires it."""
    file = on_node(f"{OWED}/{action}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def is_owed(action: str) -> bool:
    """True: a written file requires the action, and it was not done yet."""
    return on_node(f"{OWED}/{action}").exists()


def settle(action: str, act: Callable[[], None]) -> bool:
    """Do the action if it is owed, by this run or by an earlier one that was killed. Returns True if it was."""
    if not is_owed(action):
        return False
    act()
    on_node(f"{OWED}/{action}").unlink()
    return True


def attempts() -> int:
    """How often to check what is waited for."""
    return max(1, int(os.environ.get("PROVISION_ATTEMPTS", "60")))


def delay_s() -> float:
    """Seconds between two checks."""
    return float(os.environ.get("PROVISION_DELAY_S", "5"))


def wait_until(what: str, look: Callable[[int], str | None]) -> None:
    """Check until nothing is missing. `look` gets the number of the check, from 1, and returns what is missing, or None.

    Raises StepError with what was missing last.
    """
    count = attempts()
    for attempt in range(1, count + 1):
        missing = look(attempt)
        if missing is None:
            return
        if attempt == 1:
            log("INFO", f"waiting until {what}: {missing}")
        if attempt < count:
            time.sleep(delay_s())
    raise StepError(f"{missing} (looked {count} times, every {delay_s():g} s)")


def ask_slurm(*command: str, timeout_s: float = 120) -> str:
    """The output of a command that calls slurmctld or slurmdbd, and that may run more than once.

    A daemon may be restarting: HyperPod restarts slurmctld while nodes join, and so does slurm_conf.py. So a command that fails runs
    again, as in wait_until. Raises StepError with its last output.
    """
    said = ""

    def look(_: int) -> str | None:
        nonlocal said
        try:
            said = must_run(*command, timeout_s=timeout_s)
        except StepError as error:
            return str(error)
        return None

    wait_until(f"`{shlex.join(command)}` is answered", look)
    return said


def read_cluster(file: str) -> dict[str, Any]:
    """The content of cluster.json. Raises StepError if it cannot be read."""
    try:
        content = json.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise StepError(f"{file} cannot be read: {error}; deploy the scripts again") from error
    if not isinstance(content, dict):
        raise StepError(f"{file} is not a JSON object; deploy the scripts again")
    return content


def mounts() -> dict[str, str]:
    """Mount point -> type of its file system, by the kernel (proc_pid_mountinfo(5)).

    Of several mounts at one path the last hides the others.
    """
    table = Path(os.environ.get("PROVISION_MOUNTINFO", "/proc/self/mountinfo")).read_text("utf-8")
    rows = (line.partition(" - ") for line in table.splitlines() if line)
    return {before.split()[4]: after.split()[0] for before, _, after in rows}


def mounted_type(path: str) -> str:
    """The type of the file system that a path is on. Empty: the kernel does not list it."""
    found = mounts()
    places = (path, *(str(parent) for parent in Path(path).parents))
    return next((found[place] for place in places if place in found), "")


PROGRAMS = "/usr/local/lib/cdk-hyperpod"
"""The folder of programs that run again later, or as another user. The folder of the downloaded scripts may be deleted by then, and
root alone may enter it."""


def install_program(name: str, content: str, owes: Sequence[str] = ()) -> bool:
    """Install a program of ours, and this file, where systemd units and users find it. Returns True if anything changed.

    `owes`: as in write_file.
    """
    own = write_file(f"{PROGRAMS}/lib.py", Path(__file__).read_text("utf-8"), owes=owes)
    changed = write_file(f"{PROGRAMS}/{name}", content, owes=owes) or own
    on_node(PROGRAMS).chmod(0o755)
    return changed


def install_unit(name: str, content: str, owes: Sequence[str] = ()) -> None:
    """Write a systemd unit of ours, and reload systemd if it changed. `owes`: as in write_file."""
    write_file(f"/etc/systemd/system/{name}", f"# {OWN_MARK}\n{content}", owes=("daemon-reload", *owes))
    settle("daemon-reload", lambda: _done("systemctl", "daemon-reload"))


def _done(*command: str) -> None:
    must_run(*command)


def first_mounted(paths: Sequence[str]) -> str | None:
    """The first of the paths that is a mount point."""
    mounted = mounts()
    return next((path for path in paths if path in mounted), None)
