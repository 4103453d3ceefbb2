"""The record of an unfinished run: who may go on with it, and what others may have written there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdk_hyperpod.cli.patch.model import LEASE_S, Progress, Run
from cdk_hyperpod.cli.patch.run_record import (
    KEPT_S,
    AnotherRunError,
    choose_run,
    from_json,
    is_lost,
    local_record,
    to_json,
)

NOW = 1_800_000_000.0
ONE, TWO = "i-0123456789abcdef0", "i-0fedcba9876543210"


def run(name: str, *, until: float = NOW + 60, wanted: str = "", **groups: Progress) -> Run:
    return Run(id=name, by="alice@one", owner=f"{name}0", wanted=wanted, until=until, groups=groups)


FRESH = run("fresh", until=NOW + LEASE_S)


def test_without_a_record_it_is_a_new_run() -> None:
    assert choose_run(None, None, FRESH, NOW) == FRESH


def test_the_run_of_this_machine_goes_on_at_once() -> None:
    done = Progress(done=True)
    found = choose_run(run("old", work=done), run("old"), FRESH, NOW)
    assert (found.id, found.groups, found.until) == ("old", {"work": done}, FRESH.until)
    assert found.owner == FRESH.owner, "the process that was killed, or only slept, has lost it"
    assert is_lost(found, run("old")) and not is_lost(found, found) and is_lost(None, found)
    assert choose_run(None, run("old", work=done), FRESH, NOW).groups == {"work": done}, "it has no bucket"


def test_another_machines_run_goes_on_when_its_lease_is_over() -> None:
    with pytest.raises(AnotherRunError, match=r"is running, by alice@one. If it was killed, try again in 1 minute, or"):
        choose_run(run("old"), run("other"), FRESH, NOW)
    assert choose_run(run("old", until=NOW), None, FRESH, NOW).id == "old"


def test_a_run_of_yesterday_or_for_another_image_is_not_gone_on_with() -> None:
    assert choose_run(run("old", until=NOW - KEPT_S - 1), None, FRESH, NOW) == FRESH
    assert choose_run(run("old", until=NOW, wanted="1.3.0"), None, FRESH, NOW) == FRESH
    updating = run("old", until=NOW, wanted="1.3.0", work=Progress(sent=NOW, until=NOW + 9))
    assert choose_run(updating, None, FRESH, NOW).groups == {"work": Progress(until=NOW + 9)}, "it may be at work"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda of: st.lists(of) | st.dictionaries(st.sampled_from([*to_json(FRESH), "work", "until", "sent"]), of),
        max_leaves=8,
    )
)
@example({"id": "a", "owner": "a", "until": 10**400, "groups": {}})
@example({"id": "a\n", "owner": "a", "until": 1, "groups": {}})
@example({"id": "a", "owner": "a", "until": 1, "groups": {"work": {"sent": True}}, "by": "\x1b[2J" * 99})
def test_any_content_of_the_record_is_a_valid_run_or_ignored(found: Any) -> None:
    parsed = from_json(found)
    if parsed is not None:
        assert from_json(json.loads(json.dumps(to_json(parsed)))) == parsed
        assert parsed.by.isprintable() and len(parsed.by) <= 100


def test_a_written_run_is_read_back_unchanged() -> None:
    progress = Progress(sent=NOW, before="Succeeded", accepted=True, seen=True, until=NOW + 9, done=True)
    found = replace(run("a", wanted="1.3.0", work=progress), typed=("work",))
    assert from_json(json.loads(json.dumps(to_json(found)))) == found


def test_the_local_record_is_locked_and_survives(tmp_path: Any) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    with local_record("1", "us-west-2", "small", environment) as record:
        assert record.read() is None
        record.write(run("a"))
        with (
            pytest.raises(AnotherRunError, match="is running on this machine"),
            local_record("1", "us-west-2", "small", environment),
        ):
            pass
        with local_record("1", "us-west-2", "another", environment):
            pass
    with local_record("1", "us-west-2", "small", environment) as record:
        assert record.read() == run("a")
        record.write(None)
        assert record.read() is None
    (tmp_path / "file").touch()
    with (
        pytest.raises(AnotherRunError, match="cannot be written"),
        local_record("1", "us-west-2", "small", {"XDG_CACHE_HOME": str(tmp_path / "file")}),
    ):
        pass
