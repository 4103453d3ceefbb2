"""The drain protocol: what one side writes, the other understands."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod_provider.drain_protocol import (
    DRAINER,
    INSTANCE_ID,
    MAX_AHEAD_S,
    REQUEST_ID,
    WRITERS,
    Request,
    Wish,
    check_request,
    make_request,
    make_wish,
    parse_request,
)

NOW = 1_800_000_000.0
TIMES = st.floats(0, NOW + MAX_AHEAD_S)


def wishes(eks: bool) -> st.SearchStrategy[Wish]:
    return st.builds(
        Wish,
        writer=st.sampled_from(WRITERS),
        request=st.from_regex(REQUEST_ID, fullmatch=True, alphabet=st.characters(codec="ascii")),
        instance=st.from_regex(INSTANCE_ID, fullmatch=True),
        address=st.just("") if eks else st.ip_addresses(v=4).map(str),
        deadline=TIMES,
        expires=TIMES,
        force=st.booleans(),
        backup=st.booleans(),
        limit=st.none() if eks else st.none() | TIMES,
        evict_unmanaged=st.booleans() if eks else st.none(),
    )


@given(wishes(eks=False))
def test_the_agent_reads_the_wish_that_was_written(wish: Wish) -> None:
    content = json.dumps(make_request("r-1", [make_wish(wish)])).encode()
    assert parse_request(wish.writer, content, NOW) == Request("r-1", (wish,))


@given(wishes(eks=True))
def test_the_drainer_reads_the_wish_that_was_written(wish: Wish) -> None:
    found = json.loads(json.dumps(make_request("r-1", [make_wish(wish)])))
    assert check_request(DRAINER, wish.writer, found, NOW) == Request("r-1", (wish,))
