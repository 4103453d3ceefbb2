"""Random patches, judged by what HyperPod, Slurm and Kubernetes did: `make patches` runs many."""

from __future__ import annotations

import pytest

from simulations.patches.run import report, run


@pytest.mark.parametrize("eks", [False, True], ids=["slurm", "eks"])
def test_no_random_patch_has_a_fault(eks: bool) -> None:
    outcomes = run(range(60), eks=eks, processes=1)
    assert not any(each.faults for each in outcomes), report(outcomes)
