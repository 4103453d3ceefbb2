"""What pods can have of a node: the same as AWS's SDK computes, for every type that it knows."""

from __future__ import annotations

from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod.facts.instance_types import catalogue
from cdk_hyperpod.kubernetes.allocatable import allocatable, reserved_memory_mib, reserved_millicpus
from helpers.kubernetes import sdk


def test_the_sdk_knows_most_types() -> None:
    assert len(sdk.instance_resources().keys() & catalogue().keys()) > 100


def test_devices_are_those_of_the_sdk() -> None:
    for name, theirs in sdk.instance_resources().items():
        if name in catalogue():
            ours = allocatable(catalogue()[name]).devices
            assert (name, ours.get("nvidia.com/gpu", 0)) == (name, theirs["gpu"])
            assert (name, ours.get("aws.amazon.com/neuron", 0)) == (name, theirs["trainium"])
            # The SDK has none for GB200. EC2's guide has: of its 17 network cards all but the first take an EFA
            # (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html; tools/make_catalogue.py).
            if name != "ml.p6e-gb200.36xlarge":
                assert (name, ours.get("vpc.amazonaws.com/efa", 0)) == (name, theirs["efa"])


def test_cpu_and_memory_are_those_of_the_sdk() -> None:
    cpu_reservation, memory_reservation = sdk.reservations()
    for name, kind in catalogue().items():
        ours = allocatable(kind)
        cpu = kind.vcpus - cpu_reservation(kind.vcpus)
        memory = kind.memory_gib - memory_reservation(kind.memory_gib)  # type: ignore[arg-type]
        if cpu >= 1:
            assert (name, ours.millicpus) == (name, floor(round(cpu, 6)) * 1000)
        if memory >= 1:
            assert (name, ours.memory_mib) == (name, floor(round(memory, 6)) * 1024)


@given(st.integers(min_value=0, max_value=10_000))
def test_reserved_cpu_is_that_of_the_sdk(vcpus: int) -> None:
    assert reserved_millicpus(vcpus) == round(sdk.reservations()[0](vcpus) * 1000)


@given(st.integers(min_value=0, max_value=100_000))
def test_reserved_memory_is_that_of_the_sdk(gib: int) -> None:
    assert reserved_memory_mib(gib * 1024) == ceil(round(sdk.reservations()[1](gib) * 1024, 6))


@pytest.mark.parametrize("name", catalogue())
def test_no_node_gives_more_than_it_has(name: str) -> None:
    kind, node = catalogue()[name], allocatable(catalogue()[name])
    assert 0 < node.millicpus < kind.vcpus * 1000
    assert 0 < node.memory_mib < kind.memory_gib * 1024


def test_the_allocatable_resources_of_p5_and_trn1_are_known() -> None:
    p5, trn1 = (allocatable(catalogue()[name]) for name in ("ml.p5.48xlarge", "ml.trn1.32xlarge"))
    assert (p5.millicpus, p5.memory_mib) == (179_000, 1890 * 1024)
    assert p5.devices == {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}
    assert (trn1.millicpus, trn1.memory_mib) == (119_000, 461 * 1024)
    assert trn1.devices == {
        "vpc.amazonaws.com/efa": 8,
        "aws.amazon.com/neuron": 16,
        "aws.amazon.com/neuroncore": 32,
        "aws.amazon.com/neurondevice": 16,
    }
