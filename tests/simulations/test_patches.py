"""Random patches, judged by what HyperPod, Slurm and Kubernetes did: `make patches` runs many."""

from __future__ import annotations

import pytest

from simulations.patches.run import report, run

KNOWN = ("drain lost", "two operators")
"""Faults that are left."""


@pytest.mark.parametrize("eks", [False, True], ids=["slurm", "eks"])
def test_no_random_patch_has_a_fault(eks: bool) -> None:
    outcomes = run(range(60), eks=eks, processes=1)
    faulty = [each for each in outcomes if each.faults and not any(fault.startswith(KNOWN) for fault in each.faults)]
    assert not faulty, report(faulty)
