"""A short run of chaos.py on each version of Slurm. `make chaos-slurm` makes a long one."""

from __future__ import annotations

import pytest

from slurm.chaos import Chaos
from slurm.cluster import Cluster
from slurm.drains import Drains

pytestmark = [pytest.mark.usefixtures("provisioned"), pytest.mark.worlds("extended")]


def test_no_job_ends_that_no_rule_names_and_what_is_saved_is(cluster: Cluster, drains: Drains) -> None:
    drains.await_heard()
    found = Chaos(cluster, drains, seed=1).run(jobs=60, kills=6)
    assert found.faults == []
    assert found.saved > 0
    drains.await_given_back(*cluster.compute)
