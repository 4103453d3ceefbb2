"""Whole lifetimes with the function, over every profile. `make soak` runs any number."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulations.lifetimes.lifetime import live
from simulations.lifetimes.profiles import CYCLE, FIRST_SEEDS, PROFILES, profile_of
from simulations.lifetimes.soak import main, seeds_of, soak

SHARES = {"drains": 10, "evictions": 40, "patches": 20}
"""Of the profiles with seeds of their own, one lifetime in so many: one with EKS takes three times as long."""


@pytest.mark.parametrize(
    ("first", "lifetimes"), [(0, 300), pytest.param(300, 1700, marks=pytest.mark.ci)], ids=["first 300", "to 2,000"]
)
def test_lifetimes_keep_the_contract(first: int, lifetimes: int) -> None:
    later = [
        seed
        for profile, share in SHARES.items()
        for seed in seeds_of(lifetimes // share, first=first // share, profile=profile)
    ]
    tally = soak([*seeds_of(lifetimes - len(later), first=first), *later])
    broken = [f"SEED={outcome.seed} ({outcome.profile}): {'; '.join(outcome.faults)}" for outcome in tally.failing]
    assert not broken, "\n".join(broken[:20]) + "\n\nmake soak SEED=… tells the story."
    assert set(tally.by_profile) == set(PROFILES)
    # Enough happened: a soak in which nothing succeeds, rolls back or deletes nodes proves nothing.
    assert tally.deployments["succeeded"] > lifetimes / 2
    assert tally.deployments["rolled back"] > lifetimes / 4
    assert tally.taken > lifetimes / 2


@pytest.mark.parametrize("seed", [*range(len(CYCLE)), *FIRST_SEEDS.values()])
def test_a_seed_alone_says_everything(seed: int) -> None:
    told, silent = live(seed, story=True), live(seed)
    assert told.story == live(seed, story=True).story
    assert (told.faults, told.unavoidable, told.deployments) == (silent.faults, silent.unavoidable, silent.deployments)


FOUND = {
    1478: "CloudFormation's event of the cluster had no physical id, so a rollback left the counts to it, and nodes ended at random",
    10_004_058: "a node to take was replaced by HyperPod, and the newcomer's job ended under on_timeout: fail",
    30_000_046: "nodes that were still starting when prepare looked got another image",
    30_006_992: "prepare accepted the live image while an operator's update to another one was in progress",
    800_059: "events without properties kept the guard from lowering a minimum that HyperPod enforces",
    808_323: "the judge took an event that is the real one for a forged one",
    10_000_203: "the judge took nodes for ready that an agent without a backup could not save",
    20_000_660: "a drainer failed for minutes, an autoscaler launched a node meanwhile, and CloudFormation ended one at random",
}
"""Seeds of lifetimes that found a fault of the function, and the fault."""


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_once_found_a_fault_find_none_now(seed: int) -> None:
    assert not live(seed).faults, FOUND[seed]


def test_a_single_seed_prints_its_events(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seed", "2"])
    told = capsys.readouterr().out
    assert "seed 2, profile rollbacks" in told
    assert "stack: UPDATE_IN_PROGRESS" in told


def test_the_table_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- soak: written by make soak -->\nthe last run\n<!-- /soak -->\nAfter.\n")
    main(["--lifetimes", "9", "--processes", "1", "--record", str(page)])
    text = page.read_text()
    assert text.startswith("Before.\n<!-- soak")
    assert text.endswith("<!-- /soak -->\nAfter.\n")
    assert "the last run" not in text
    assert "| races | 1 |" in text
    assert "| all together | 9 |" in text
    page.write_text("No place.")
    with pytest.raises(SystemExit, match="has no place for the table"):
        main(["--lifetimes", "1", "--processes", "1", "--record", str(page)])


def test_seeds_of_one_profile_are_seeds_of_all() -> None:
    assert seeds_of(3, profile="drift") == [3, 12, 21]
    assert seeds_of(2, first=4, profile="drift") == [12, 21]
    assert [profile_of(seed) for seed in seeds_of(2, first=4, profile="drains")] == ["drains", "drains"]
    assert [profile_of(seed) for seed in seeds_of(2, first=4, profile="patches")] == ["patches", "patches"]
