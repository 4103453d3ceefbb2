"""Which targets and folders are refused."""

from __future__ import annotations

import os

import pytest

from helpers.lifecycle.backup import ROOT, Place
from helpers.lifecycle.programs import load

manifest = load("agent/backup/manifest.py")


@ROOT
@pytest.mark.parametrize("trap", ["link", "file", "open", "another's"])
def test_a_backup_target_that_others_can_change_is_refused(place: Place, trap: str) -> None:
    target = place.target / "backup"
    elsewhere = place.target / "elsewhere"
    elsewhere.mkdir()
    if trap == "link":
        target.symlink_to(elsewhere)
    elif trap == "file":
        target.write_text("")
    else:
        target.mkdir()
        target.chmod(0o777 if trap == "open" else 0o755)
        os.chown(target, 0 if trap == "open" else 65534, 0)
    assert place.run() == 1
    assert f"{target} is not a folder that root alone may write" in place.said[-1]
    assert list(elsewhere.iterdir()) == []


@ROOT
def test_a_missing_target_file_system_is_reported(place: Place) -> None:
    assert place.run(to="/nowhere/backup") == 1
    assert "/nowhere does not exist" in place.said[0]
    assert place.run(to="/backup") == 1
    assert "deleted with the node" in place.said[0] or "root alone" in place.said[0]


@ROOT
def test_a_folder_that_is_reached_by_a_link_is_refused(place: Place) -> None:
    """A link would be saved, and every file be compared with itself."""
    link = place.source.parent / "link"
    link.symlink_to(place.source)
    for path in (link, link / "below"):
        (place.source / "below").mkdir(exist_ok=True)
        assert place.run(paths=[str(path)]) == 1
        assert f'leads by a link to "{os.path.realpath(path)}"' in place.said[0]
    assert place.run(paths=[str(place.source / "model.bin")]) == 1
    assert "is not a folder" in place.said[-1]
    assert not (place.folder / "manifest.json").exists()
