"""The engine's process: one per port. Later commands find it, and everything that it started ends with it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path

from cdk_hyperpod_local import environment, installation
from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import LAUNCHER, Place

START_SECONDS = 60.0
STOP_SECONDS = 20.0
_PROC = Path("/proc/self")  # Linux; on other systems, `ps` is called


def running(place: Place) -> int | None:
    """The process id of the port's engine; None if no engine is running."""
    pid = _noted(place)
    # After a reboot another process may have this id. Only a process with our launcher and port is the engine.
    return pid if pid is not None and _is_engine(pid, place) else None


def start(place: Place, *, speed: float, seed: int = 0, owner: int | None = None) -> bool:
    """Start the engine. False if it was running already. Raises EngineError.

    `owner`: a process with which the engine ends, however that process ends; the engine then ignores the state of an
    earlier one. Absent: the engine keeps running, and continues with its state after a stop.
    """
    if running(place) is not None:
        wait_until_up(place)
        return False
    _end_left_over(place)
    installed = installation.current()
    if not installed.is_ready:
        raise EngineError(
            "the local AWS is not installed. Run `cdk-hyperpod local setup` (in a clone: make local-aws-setup)"
        )
    if _is_in_use(place.port):
        raise EngineError(
            f"port {place.port} is in use by another program. Use another port: --port, or LOCAL_PORT with make"
        )
    place.folder.mkdir(parents=True, exist_ok=True)
    place.folder.chmod(0o700)
    _write_secret(place)
    command = [
        str(installed.python), str(LAUNCHER), "--port", str(place.port), "--state", str(place.folder),
        "--schemas", str(installed.schemas), "--kubernetes-schemas", str(installed.kubernetes_schemas),
        "--node-modules", str(installed.node_modules), "--speed", str(speed), "--seed", str(seed),
    ]  # fmt: skip
    if owner is not None:
        command += ["--owner", str(owner)]
    with place.log.open("ab") as log:
        # In a session of its own, so that Ctrl-C ends the command that the user waits for, and not the engine.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PATH": environment.path(os.environ)},
        )
    place.process.write_text(json.dumps({"pid": process.pid, "speed": speed}), "utf-8")
    try:
        wait_until_up(place, process)
    except EngineError:
        stop(place)
        raise
    return True


def stop(place: Place) -> None:
    """End the engine and its Lambda functions. The engine saves its state first."""
    pid = running(place)
    if pid is not None:
        _end(pid)
    _end_left_over(place)
    place.process.unlink(missing_ok=True)
    place.secret.unlink(missing_ok=True)
    shutil.rmtree(place.temporary, ignore_errors=True)


def remove(place: Place) -> None:
    """End the engine and delete its folder."""
    pid = running(place)
    if pid is not None:
        _end(pid, seconds=0)
    _end_left_over(place)
    shutil.rmtree(place.folder, ignore_errors=True)
    place.lock.unlink(missing_ok=True)


def wait_until_up(place: Place, process: subprocess.Popen[bytes] | None = None) -> None:
    limit = time.monotonic() + START_SECONDS
    while time.monotonic() < limit:
        if process is not None and process.poll() is not None:
            raise EngineError(
                f"the engine ended during its start, with exit code {process.returncode}: {_last_line(place.log)}. See {place.log}"
            )
        if place.authority.exists() and _answers(place):
            return
        time.sleep(0.1)
    raise EngineError(f"the engine does not answer on {place.url} after {START_SECONDS:.0f} s. See {place.log}")


def _write_secret(place: Place) -> None:
    """A new secret for each start. Other users can never read the file, not even while it is written."""
    place.secret.unlink(missing_ok=True)
    with os.fdopen(os.open(place.secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(secrets.token_urlsafe(30))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(place: Place) -> bool:
    try:
        # The engine may still be writing its authority: an empty file is an SSLError, which is an OSError.
        context = ssl.create_default_context(cafile=str(place.authority))
        https = urllib.request.HTTPSHandler(context=context)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
        with opener.open(f"{place.url}/_local_aws/status", timeout=5) as reply:
            return int(reply.status) == 200
    except OSError:
        return False


def _is_in_use(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _noted(place: Place) -> int | None:
    """The process id in the engine's file, whichever process has it now. None if the file is missing or invalid."""
    try:
        pid = json.loads(place.process.read_text("utf-8"))["pid"]
    except (OSError, ValueError, TypeError, LookupError):
        return None
    return pid if isinstance(pid, int) and pid > 1 else None


def _is_engine(pid: int, place: Place) -> bool:
    command = _command(pid)
    # Another installation of ours may have started it. The folder identifies an engine, not the program.
    return "/".join(LAUNCHER.parts[-3:]) in command and str(place.folder) in command


def _command(pid: int) -> str:
    """The process's command line. Empty if the process has ended, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return "" if _PROC.exists() else _ps("-o", "command=", "-p", str(pid))


def _ps(*options: str) -> str:
    return subprocess.run(["ps", *options], capture_output=True, text=True, check=False).stdout


def _end_left_over(place: Place) -> None:
    """The Lambda functions of an engine that was killed: they are still in its process group.

    Group ids are reused too, so only processes that name the engine's folder are ended. A function has the folder in
    TMPDIR.
    """
    group = _noted(place)
    if group is None:
        return
    for pid in _group(group):
        if f"{place.folder}{os.sep}" in _command(pid) + _environment(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _group(group: int) -> list[int]:
    if _PROC.exists():
        pids = [int(entry.name) for entry in _PROC.parent.iterdir() if entry.name.isdigit()]
    else:
        pids = [int(line) for line in _ps("-A", "-o", "pid=").split()]
    found = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == group:
                found.append(pid)
    return found


def _environment(pid: int) -> str:
    """The process's environment.

    Empty if we may not read it. Without /proc, the command that started the process contains the folder too.
    """
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _end(pid: int, *, seconds: float = STOP_SECONDS) -> None:
    """Send SIGTERM to the engine, which saves its state, then end its process group, which contains its Lambda
    functions."""
    if seconds:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        _wait_until_ended(pid, seconds)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _wait_until_ended(pid, 5.0)


def _wait_until_ended(pid: int, seconds: float) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if not _command(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)  # a zombie, if this process started the engine
            return
        time.sleep(0.05)


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "its log is empty"
