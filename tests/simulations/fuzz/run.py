"""Passes cases to the loader, as a user would, and reports the results."""

from __future__ import annotations

import resource
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cdk_hyperpod.errors import ConfigError
from cdk_hyperpod.kubernetes.helm_chart import HelmChart, InvalidChart
from cdk_hyperpod.loader import load_config
from simulations.fuzz.cases import DIGEST, Case, case

MAX_MEMORY_BYTES = 300_000_000
MAX_SECONDS = 20.0
"""Processor time for one case. Wall-clock time would depend on the machine's load."""
LONGEST_LINE = 5_000


@dataclass
class Outcome:
    """The results of all cases. `bad`: forbidden results, each with the case's number."""

    count: Counter[str] = field(default_factory=Counter)
    accepted: list[int] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    slowest: float = 0.0
    memory_bytes: int = 0


def run(numbers: Iterable[int], sandbox: Path) -> Outcome:
    """Try the cases with these numbers, each in its own folder below the sandbox."""
    outcome = Outcome()
    for number in numbers:
        made = case(number, sandbox)
        folder = write(made, sandbox / "case")
        began = time.process_time()
        try:
            what = _try(made, folder)
        except Exception:  # noqa: BLE001 - whatever it is, it must not be
            outcome.bad.append(f"case {number} ({made.kind}) ended in a traceback:\n{traceback.format_exc()}")
            what = "traceback"
        took = time.process_time() - began
        if took > MAX_SECONDS:
            outcome.bad.append(f"case {number} ({made.kind}) took {took:.1f} s")
        if outside := sorted(path.name for path in sandbox.iterdir() if path != folder):
            outcome.bad.append(f"case {number} ({made.kind}) wrote {', '.join(outside)}")
        if what == "accepted":
            outcome.accepted.append(number)
        outcome.count[f"{made.kind}: {what}"] += 1
        outcome.slowest = max(outcome.slowest, took)
        shutil.rmtree(folder)
    outcome.memory_bytes = _peak_memory()
    return outcome


def _peak_memory() -> int:
    """Peak memory of this process in bytes.

    On Linux, getrusage includes the parent process, because a process inherits the peak.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text("ascii", "replace").splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def write(made: Case, folder: Path) -> Path:
    """Put a case's files into a new folder. A readable chart gets its real digest."""
    folder.mkdir()
    for name, content in made.files.items():
        (folder / name).write_bytes(content)
    if "chart.tgz" in made.files:
        try:
            digest = HelmChart(folder / "chart.tgz").digest
        except (OSError, InvalidChart):
            return folder
        file = folder / "cluster.yaml"
        file.write_bytes(file.read_bytes().replace(DIGEST.encode(), digest.encode()))
    return folder


def _try(made: Case, folder: Path) -> str:
    """ "accepted" or "refused" (with messages). A chart is unpacked, as in a synthesis."""
    if "chart.tgz" in made.files:
        try:
            HelmChart(folder / "chart.tgz").write(folder / "out" / "chart")
        except InvalidChart as error:
            assert str(error), "says nothing"
    try:
        load_config(folder / "cluster.yaml")
    except ConfigError as error:
        head, *lines = str(error).split("\n")
        assert head.endswith(("error", "errors")) and lines, head
        for line in lines:
            assert line.isprintable() and len(line) <= LONGEST_LINE and "; " in line, f"no message: {line[:300]!r}"
        return "refused"
    return "accepted"
