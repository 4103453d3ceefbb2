"""The script of a backup's job: it is all that a node gets, and must run there by itself."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from helpers.lifecycle.programs import LIFECYCLE, load, pythons

script = load("agent/script.py")
ORDER = {"to": "/none/backup", "paths": ["/a'b"], "instance": "i-1", "request": "r1", "seconds": 60}


def run(python: str, text: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    """As Slurm runs it, and what squeue shows of it then."""
    (folder / "scontrol").write_text(f'#!/bin/sh\necho "$@" >>{folder}/told\n')
    (folder / "scontrol").chmod(0o755)
    (folder / "slurm_script").write_text(text)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    command = [python, "-I", str(folder / "slurm_script")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    told = folder / "told"
    return done, told.read_text() if told.exists() else ""


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).name)
def test_it_runs_where_nothing_else_of_ours_is(python: str, tmp_path: Path) -> None:
    done, told = run(python, script.make_script(ORDER), tmp_path)
    assert told == "update jobid=7 comment=/none does not exist: is the file system mounted?\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_it_is_a_script_for_slurm() -> None:
    text = script.make_script(ORDER)
    assert text.startswith("#!/usr/bin/env python3\n")
    # slurm.conf's max_script_size is 4 MiB; and what begins so is an option of sbatch's.
    assert len(text) < 200_000 and "\n#SBATCH" not in text and "\r" not in text


def test_it_holds_all_of_the_folder() -> None:
    files = {path.stem for path in (LIFECYCLE / "agent/backup").rglob("*.py")} - {"__init__"}
    assert {*script.FILES} == {"backup", *(f"backup.{name}" for name in files)}


def test_a_fault_names_its_file_and_line(tmp_path: Path) -> None:
    done, _ = run(pythons()[0], script.make_script({}), tmp_path)
    assert done.returncode == 1
    assert re.search(r'File "backup/folders\.py", line \d+, in back_up\n', done.stderr)
    assert done.stderr.endswith("KeyError: 'to'\n")
