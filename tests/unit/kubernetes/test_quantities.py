"""Amounts in Kubernetes' notation: nothing is lost on the way into text."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod.kubernetes.quantities import cpu_quantity, memory_quantity, parse_quantity

AMOUNTS = st.integers(min_value=0, max_value=10**12)


@given(AMOUNTS)
def test_cpu_text_is_the_amount(millicpus: int) -> None:
    assert parse_quantity(cpu_quantity(millicpus)) == Fraction(millicpus, 1000)


@given(AMOUNTS)
def test_memory_text_is_the_amount(mib: int) -> None:
    assert parse_quantity(memory_quantity(mib)) == mib * 1024**2


@given(AMOUNTS, AMOUNTS)
def test_larger_amounts_are_larger_in_text(one: int, other: int) -> None:
    first, second = parse_quantity(memory_quantity(one)), parse_quantity(memory_quantity(other))
    assert first is not None
    assert second is not None
    assert (first < second) == (one < other)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("64", 64),
        ("500m", Fraction(1, 2)),
        ("0.5", Fraction(1, 2)),
        ("1k", 1000),
        ("5120Gi", 5120 * 1024**3),
        ("1.5Mi", 3 * 2**19),
        ("2E", 2 * 10**18),
    ],
)
def test_kubernetes_quantities_are_parsed(text: str, amount: Fraction) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    "text", ["", "eight!", "-1", "1e3", "5 Gi", "5gi", "5GB", "Gi", "1.", ".5", "٣", "1\n", "9" * 19]
)
def test_an_invalid_quantity_is_not_parsed(text: str) -> None:
    assert parse_quantity(text) is None
