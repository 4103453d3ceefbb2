"""Random patches, judged by what HyperPod, Slurm and Kubernetes did: `make patches` runs many."""

from __future__ import annotations

import pytest

from simulations.patches.judge import JOINED_DURING_THE_UPDATE, LOOK_S, Judge
from simulations.patches.run import patch, report, run
from simulations.patches.world import Job, Switches, Update, World


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 60), marks=pytest.mark.ci)], ids=str)
@pytest.mark.parametrize("eks", [False, True], ids=["slurm", "eks"])
def test_no_random_patch_has_a_fault(eks: bool, seeds: range) -> None:
    outcomes = run(seeds, eks=eks, processes=1)
    assert not any(each.faults for each in outcomes), report(outcomes)


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        (3152, "only nodes show an update, an hour apart: after `not confirmed` they stay held"),
        (2247, "nodes that have the image get it again, an hour apart"),
        (1568, "the first list has no nodes"),
        (2204, "AutoPatch installs an older image while the command is dead: it is not this command's update"),
    ],
)
def test_a_seed_that_had_a_fault(seed: int, why: str) -> None:
    assert not patch(seed, eks=False).faults, why


@pytest.mark.parametrize(
    ("eks", "protected", "after_s", "spared"),
    [(True, True, 60, True), (True, True, LOOK_S + 60, False), (True, False, 60, False), (False, False, 60, True)],
)
def test_a_job_on_a_node_that_joined_during_the_update_is_exempt(
    eks: bool, protected: bool, after_s: float, spared: bool
) -> None:
    world = World(Switches(eks=eks), seed=0)
    judge = world.judge = Judge(world)
    judge.calls.append(Update("work", "patch 1", "2.0.0", accepted=world.now))
    node = world.launch("work", boot_s=300)
    judge.job_ended(Job(node, node.joins + after_s, node.joins + 9e3, protected), "image of patch 1")
    assert (judge.exempt == [JOINED_DURING_THE_UPDATE]) is spared
    assert bool(judge.faults) is not spared
