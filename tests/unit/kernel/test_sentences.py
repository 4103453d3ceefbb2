"""Reasons of several sentences: they fit into CloudFormation's event, and no code is cut off."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.kernel.refuse import Failure, Refuse
from cdk_hyperpod._lambda.hyperpod.kernel.sentences import LIMIT, cut, fit
from helpers.findings import codes


def refusals(count: int, length: int) -> list[str]:
    return [str(Refuse(code=f"code-{n}", path="a.b", why="x" * length, fix="undo it")) for n in range(count)]


def test_a_refusal_and_a_failure_show_their_code() -> None:
    failure = Failure(code="a-b", problem="It failed", remedy="try again")
    assert str(Refuse(code="a-b", path="name", why="is odd", fix="change it")) == "name: is odd; change it [a-b]"
    assert (failure.head, str(failure)) == ("It failed [a-b].", "It failed; try again [a-b]")


def test_reasons_that_fit_are_shown_as_sentences() -> None:
    assert fit("Head.", ["name: is odd [a-b]", "wait for it"]) == "Head. name: is odd [a-b]. Wait for it."


@pytest.mark.parametrize(("count", "length"), [(1, 2_000), (3, 900), (10, 90), (30, 10), (12, 2_000)])
def test_every_code_is_shown_however_many_and_long_the_refusals_are(count: int, length: int) -> None:
    text = fit("Head.", refusals(count, length))
    assert len(text) <= LIMIT
    assert codes(text) == [f"code-{n}" for n in range(count)]


def test_a_code_that_the_rest_has_several_times_is_shown_once() -> None:
    text = fit("Head.", [f"a: {'x' * 300} [a-b]"] * 5)
    assert text.endswith(" And 2 more, in the log [a-b].")


@given(lengths=st.lists(st.integers(0, 700), min_size=1, max_size=8), limit=st.integers(300, 1_000))
def test_a_text_that_is_cut_keeps_its_codes(lengths: Sequence[int], limit: int) -> None:
    text = " ".join(f"{'x' * length} [code-{n}]." for n, length in enumerate(lengths))
    short = cut(text, limit)
    assert len(short) <= limit
    assert codes(short) == codes(text)


def test_the_mark_of_a_cut_counts() -> None:
    assert cut("abcdefgh", 6, "...") == "abc..."
    assert cut("abcdef", 6, "...") == "abcdef"
