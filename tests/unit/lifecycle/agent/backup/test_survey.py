"""What cannot be saved for want of time or room is refused before anything is copied."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from helpers.lifecycle.backup import ROOT, Place
from helpers.lifecycle.programs import load

survey = load("agent/backup/survey.py")


@ROOT
def test_a_backup_that_cannot_finish_in_time_is_refused_before_any_copy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MOST_BYTES_S", 1)
    assert place.run() == 1
    assert "which takes" in place.said[-1]
    assert "there are 10; " in place.said[-1] and "`cdk-hyperpod drain --hold 12h`; most is of root" in place.said[-1]
    assert not (place.folder / "files").exists()


@ROOT
def test_a_target_without_room_is_refused_before_anything_is_copied(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=99_999))
    assert place.run() == 1
    assert "has room for 0.00 GB, and 0.00 GB are to be saved" in place.said[-1]
    assert not place.copy.exists()


@ROOT
def test_the_number_of_files_counts_for_the_time(place: Place) -> None:
    for i in range(100):
        (place.source / str(i)).write_text("")
    assert place.run(seconds=0.005) == 1
    assert "100.0 kB in 101 files are to be saved, which takes 0 minutes at the very least" in place.said[-1]
    assert not (place.folder / "files").exists()
    assert place.run(seconds=600) == 0
    assert place.run(seconds=0.005) == 0
