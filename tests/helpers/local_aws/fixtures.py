"""pytest fixtures: a separate, bootstrapped engine, which is always removed afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from cdk_hyperpod_local import daemon, installation
from cdk_hyperpod_local.cdk import Cdk
from cdk_hyperpod_local.places import Place
from cdk_hyperpod_local.session import LocalAws
from helpers import unbuilt

REGION = "us-west-2"
SPEED = 1200.0
"""A quarter of an hour of AWS's time is less than a second; the 3 hours for a minimum are nine seconds."""


@contextlib.contextmanager
def running_engine(
    *, region: str = REGION, speed: float = SPEED, bootstrap: bool = True, keeps_state: bool = False
) -> Iterator[LocalAws]:
    """Start an engine on a free port. It is removed when the block is left, or this process is killed.

    `keeps_state`: its state survives a stop inside the block.
    """
    if not installation.current().is_ready:
        unbuilt.skip("the local AWS engine is not installed: run `make local-aws-setup`")
    place = Place(daemon.free_port())
    try:
        daemon.start(place, speed=speed, owner=None if keeps_state else os.getpid())
        aws = LocalAws(place=place, region=region)
        if bootstrap:
            result = Cdk(place=place, region=region).bootstrap()
            assert result.ok, result.reason
        yield aws
    finally:
        daemon.remove(place)


@pytest.fixture(scope="session")
def engine() -> Iterator[LocalAws]:
    """One bootstrapped engine for the whole run. Every test uses its own stack names."""
    with running_engine() as aws:
        yield aws
