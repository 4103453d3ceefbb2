"""A HyperPod per test, with a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdk_hyperpod_local.hyperpod import Behaviour, HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import run_until_quiet


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(clock: ManualClock) -> Callable[..., HyperPod]:
    """A HyperPod with this test's clock; keyword arguments are fields of Behaviour."""

    def build(**behaviour: Any) -> HyperPod:
        return HyperPod(clock=clock, seed=7, behaviour=Behaviour(**behaviour))

    return build


@pytest.fixture
def ready(make: Callable[..., HyperPod]) -> Callable[..., HyperPod]:
    """A HyperPod with one cluster in service: CreateCluster's parameters, then fields of Behaviour."""

    def build(request: dict[str, Any], **behaviour: Any) -> HyperPod:
        hyperpod = make(**behaviour)
        hyperpod.call("CreateCluster", request)
        run_until_quiet(hyperpod)
        assert hyperpod.call("DescribeCluster", {"ClusterName": request["ClusterName"]})["ClusterStatus"] == "InService"
        return hyperpod

    return build
