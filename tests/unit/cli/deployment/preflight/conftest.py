from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_price_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No price that whoever runs the tests has once asked for. Elsewhere this folder holds what tests are made of, such as the
    root folder of Slurm's nodes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
