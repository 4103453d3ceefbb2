#!/usr/bin/env python3
"""Run the programs of slurm.prolog or slurm.epilog, in the order of their names. slurmd runs this as root around each job.

The folder of this file says which: FOLDER/prolog/run runs those in FOLDER/prolog.d. FOLDER/prolog-after/run begins with the
Prolog that slurm.conf itself names, for versions of Slurm in which our line replaces it. The same for epilog.

The programs do not run around the library's own jobs, which save a node and try new programs: a program that fails would keep a
node from being saved, and the next one from being tried.

Each program has the seconds that the file FOLDER/seconds says, and its output is bounded. A Prolog ends at the first program that
fails, an Epilog runs all of them. Exit code 1: one has failed, so Slurm drains the node.

Only the standard library, and nothing newer than Python 3.8: that is what nodes with Ubuntu 20.04 have.
"""

from __future__ import annotations

import collections
import contextlib
import glob
import os
import re
import signal
import subprocess
import sys
import syslog
import threading
from pathlib import Path
from typing import IO, Iterator

KILL_AFTER_S = 5
"""Between the request to end and the kill."""
KEPT = 40
"""Blocks of output that are kept, the last ones."""
TRIAL = "CDK_HYPERPOD_TRIAL"
"""Set while the controller tries the programs in a job of its own. The node is then not drained."""
OUR_JOBS = b"cdk-hyperpod-"
"""The beginning of the names of the library's jobs."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"


def main(here: Path) -> int:
    """Run all programs of this folder. The exit code."""
    kind, _, after = here.name.partition("-")
    seconds = float((here.parent / "seconds").read_text("utf-8"))
    own = () if _is_for_our_job() else _own(here.parent / f"{kind}.d", seconds)
    failures: list[str] = []
    for program, limit in [*_earlier(kind, bool(after)), *own]:
        failure = run(program, limit)
        if failure is None:
            continue
        failures.append(f"{kind} {os.path.basename(program)} {failure}")
        _report(failures[-1])
        if kind == "prolog":
            break
    if failures:
        # It begins with Slurm's own words, by which the drain agent knows that no person drained the node.
        _drain(f"{kind.capitalize()} error: {failures[0]}")
    return 1 if failures else 0


def _is_for_our_job() -> bool:
    """Users may name their jobs as they like, so only root's count."""
    if os.environ.get(TRIAL) or os.environ.get("SLURM_JOB_UID") != "0":
        return False
    job = os.environ.get("SLURM_JOB_ID", "")
    command = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%j"]
    try:
        done = subprocess.run(
            command,
            env={"PATH": PATH, **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _report(f"the name of the job is unknown: {error}")
        return False
    return done.stdout.startswith(OUR_JOBS)


def _own(folder: Path, seconds: float) -> Iterator[tuple[str, float | None]]:
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return ((str(folder / name), seconds) for name in names)


def _earlier(kind: str, wanted: bool) -> Iterator[tuple[str, float | None]]:
    """What slurm.conf itself names. Slurm's own PrologEpilogTimeout limits it."""
    if not wanted:
        return
    try:
        text = Path(os.environ.get("SLURM_CONF", "")).read_text("utf-8", "replace")
    except OSError as error:
        _report(f"{kind} of slurm.conf is unknown: {error}")
        return
    found = re.findall(rf"^\s*{kind}\s*=\s*([^\s#]+)", text, re.IGNORECASE | re.MULTILINE)
    for program in sorted(glob.glob(found[-1])) if found else ():
        yield program, None


def run(program: str, seconds: float | None) -> str | None:
    """Run one program. Returns how it failed, with the end of its output, or None."""
    environment = {"PATH": PATH, **os.environ}
    try:
        process = subprocess.Popen(
            [program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            # Of its own, so that what it has started ends with it.
            start_new_session=True,
        )
    except OSError as error:
        return f"cannot run: {error.strerror}"
    assert process.stdout is not None
    kept: collections.deque[bytes] = collections.deque(maxlen=KEPT)
    # What it leaves running may keep the pipe open, so the end of the output is not waited for.
    reader = threading.Thread(target=_read, args=(process.stdout, kept), daemon=True)
    reader.start()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return _with_output(f"did not end within {seconds:g} s", kept)
    if code == 0:
        return None
    reader.join(1)
    how = f"failed with exit code {code}" if code > 0 else f"was ended by signal {-code}"
    return _with_output(how, kept)


def _read(pipe: IO[bytes], kept: collections.deque[bytes]) -> None:
    while True:
        block = os.read(pipe.fileno(), 4096)
        if not block:
            return
        kept.append(block)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it has started, which may outlive it or ignore SIGTERM."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_AFTER_S)


def _with_output(how: str, kept: collections.deque[bytes]) -> str:
    text = b"".join(kept).decode("utf-8", "replace").strip()
    last = text.splitlines()[-1] if text else ""
    # The drain agent puts the reason into the name of a job, and squeue separates columns by |.
    shown = "".join(letter if letter.isprintable() and letter != "|" else "?" for letter in last)[:200]
    return f"{how}: {shown}" if shown else how


def _report(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
    syslog.openlog("cdk-hyperpod", syslog.LOG_PID)
    syslog.syslog(syslog.LOG_ERR, f"{message} (job {os.environ.get('SLURM_JOB_ID', 'unknown')})")


def _drain(reason: str) -> None:
    """Drain the node with the reason that names the program. Slurm's own says only that the Prolog failed.

    A node that is drained keeps its reason: of the program itself, the drain agent, or HyperPod, which replaces a node by its reason.
    """
    node = os.environ.get("SLURMD_NODENAME")
    if not node or os.environ.get(TRIAL):
        return
    try:
        shown = _scontrol("--oneliner", "show", "node", node)
        if not re.search(r" State=\S*DRAIN", shown.partition(" Reason=")[0]):
            _scontrol("update", f"nodename={node}", "state=drain", f"reason={reason[:200]}")
    except (OSError, subprocess.TimeoutExpired) as error:
        _report(f"the reason is not set: {error}")


def _scontrol(*words: str) -> str:
    done = subprocess.run(["scontrol", *words], env={"PATH": PATH, **os.environ}, timeout=30, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # fmt: skip
    return done.stdout.decode("utf-8", "replace")


if __name__ == "__main__":
    code = main(Path(__file__).absolute().parent)
    sys.stderr.flush()
    # Without waiting for the output of what a program left running.
    os._exit(code)
