from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.configs import STANDING
from helpers.deployments.permissions import Edit
from helpers.deployments.recipe import make_policies
from helpers.deployments.steps import settle, turn
from helpers.local_aws.fixtures import engine
from helpers.local_aws.rehearsal import Rehearsal

__all__ = ["engine"]

Json = Any


@pytest.fixture(scope="session")
def standing(engine: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """One cluster for all tests that leave it as they found it."""
    rehearsal = Rehearsal(engine, tmp_path_factory.mktemp("standing"), STANDING)
    made = rehearsal.deploy()
    assert made.ok, made.reason
    settle(rehearsal)
    return rehearsal


@pytest.fixture(scope="session")
def policies(engine: LocalAws) -> dict[str, str]:
    """The least-privilege policies and those of the boundary: name -> ARN."""
    return make_policies(engine)


@pytest.fixture
def life(standing: Rehearsal) -> Iterator[Rehearsal]:
    """The standing cluster for one test, which it may change as it likes; no node of it may end at random."""
    with turn(standing, STANDING):
        yield standing


@pytest.fixture
def without(engine: LocalAws, bucket: str) -> Iterator[Edit]:
    """Change one statement of the policy of the module's `bucket`, for one test."""
    s3 = engine.client("s3")
    whole = s3.get_bucket_policy(Bucket=bucket)["Policy"]

    def change(sid: str, edit: Callable[[Json], None]) -> None:
        policy = json.loads(whole)
        (statement,) = (item for item in policy["Statement"] if item.get("Sid") == sid)
        edit(statement)
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))

    yield change
    s3.put_bucket_policy(Bucket=bucket, Policy=whole)
