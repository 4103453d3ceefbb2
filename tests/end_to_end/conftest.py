from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdk_hyperpod_local.session import LocalAws
from end_to_end.configs import STANDING
from end_to_end.steps import settle, turn
from local_aws.fixtures import engine
from local_aws.rehearsal import Rehearsal

__all__ = ["engine"]


@pytest.fixture(scope="session")
def standing(engine: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """One cluster for all tests that leave it as they found it."""
    rehearsal = Rehearsal(engine, tmp_path_factory.mktemp("standing"), STANDING)
    made = rehearsal.deploy()
    assert made.ok, made.reason
    settle(rehearsal)
    return rehearsal


@pytest.fixture
def life(standing: Rehearsal) -> Iterator[Rehearsal]:
    """The standing cluster for one test, which it may change as it likes; no node of it may end at random."""
    with turn(standing, STANDING):
        yield standing
