"""A model per test, on a clock that only the test moves."""

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
    """A model with this test's clock; keyword arguments are fields of Behaviour."""

    def build(**behaviour: Any) -> HyperPod:
        return HyperPod(clock=clock, seed=7, behaviour=Behaviour(**behaviour))

    return build


@pytest.fixture
def ready(make: Callable[..., HyperPod]) -> Callable[..., HyperPod]:
    """A model with one cluster in service: CreateCluster's parameters, then fields of Behaviour."""

    def build(request: dict[str, Any], **behaviour: Any) -> HyperPod:
        model = make(**behaviour)
        model.call("CreateCluster", request)
        run_until_quiet(model)
        assert model.call("DescribeCluster", {"ClusterName": request["ClusterName"]})["ClusterStatus"] == "InService"
        return model

    return build
