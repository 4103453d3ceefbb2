"""A part of `make fuzz`, with the same cases each time, and a check that it notices failures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simulations.fuzz import run as fuzzing
from simulations.fuzz.cases import KINDS, ROOT, case
from simulations.fuzz.run import MAX_MEMORY_BYTES, run

Json = Any
CASES = 400
PROGRAM = """
import json, pathlib, sys
from simulations.fuzz.run import run
print(json.dumps(vars(run(range(int(sys.argv[2])), pathlib.Path(sys.argv[1]).resolve()))))
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """In a separate process, so that its memory is the loader's."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("fuzz")), str(CASES)],
        cwd=ROOT / "tests",
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def test_no_case_ends_in_a_traceback_or_writes_outside_or_takes_much_memory(outcome: Json) -> None:
    assert outcome["bad"] == []
    assert outcome["memory_bytes"] < MAX_MEMORY_BYTES
    kinds = {line.partition(":")[0] for line in outcome["count"]}
    assert kinds == {kind for kind, _ in KINDS}
    assert 5 < len(outcome["accepted"]) < CASES - 100


@pytest.mark.ci
def test_templates_of_accepted_files_pass_cfn_lint(outcome: Json) -> None:
    from simulations.fuzz.sample import chosen, lint

    accepted = chosen(outcome["accepted"], 2)

    assert len(accepted) == 2
    assert lint(accepted) == []


def test_a_case_is_the_same_each_time(tmp_path: Path) -> None:
    assert all(case(number, tmp_path) == case(number, tmp_path) for number in range(60))


def test_the_fuzzer_notices_a_traceback_and_a_write_outside_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(path: Path) -> None:
        (path.parents[1] / "escaped").touch()
        raise KeyError(path.name)

    monkeypatch.setattr(fuzzing, "load_config", load)
    outcome = run([1], tmp_path.resolve())

    assert ["traceback" in line for line in outcome.bad] == [True, False] and "wrote escaped" in outcome.bad[1]
