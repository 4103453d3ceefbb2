"""An agent whose looks a test makes, one by one."""

from __future__ import annotations

import pytest

from helpers.lifecycle.agent import Loop


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)
