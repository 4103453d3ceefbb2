"""Random patches, judged by what HyperPod, Slurm and Kubernetes did: `make patches` runs many."""

from __future__ import annotations

import pytest

from simulations.patches.run import report, run

KNOWN = ("drain lost", "two operators")
"""Faults that are left."""


@pytest.mark.parametrize("eks", [False, True], ids=["slurm", "eks"])
def test_no_random_patch_has_a_fault(eks: bool) -> None:
    outcomes = run(range(100), eks=eks, processes=1)
    faults = [fault for outcome in outcomes for fault in outcome.faults if not fault.startswith(KNOWN)]
    assert not faults, report(outcomes)
