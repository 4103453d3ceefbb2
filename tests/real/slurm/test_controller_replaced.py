"""A controller is replaced under load: the table of docs/controller-replaced.md holds, while copy and restore are killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.repository import ROOT
from helpers.slurm.cluster import Cluster
from helpers.slurm.drains import Drains
from helpers.slurm.replacing import COPIES, ROWS, Replacing, once


def test_every_row_of_the_page_has_a_check() -> None:
    table = (ROOT / "docs" / "controller-replaced.md").read_text().split("## What is left")[1].split("\n\n")[1]
    rows = [re.sub(r", with `mode: \w+`", "", line.split("|")[1].strip()) for line in table.splitlines()[2:]]
    assert set(rows) == set(ROWS)


@pytest.mark.setups("22.05-extended", "24.11-extended")
def test_what_is_left_of_a_controller_that_was_replaced_under_load(
    cluster: Cluster, provisioned: object, drains: Drains, scripts: Path
) -> None:
    replacing = Replacing(cluster, drains, scripts, seed=1)
    assert once(replacing, kills=1) == []
    if cluster.slurm == "24.11":
        # Without any copy that can be used.
        before = replacing.before.jobs["new"]
        cluster.controller.run(f"for each in {COPIES}/state-*/archive; do echo >>$each; done")
        cluster.controller.replace()
        cluster.lay_slurm_conf()
        cluster.start_controller()
        result = cluster.controller.provision(scripts)
        assert result.returncode == 0 and [line for line in result.lines if "new job ids begin" in line], result
        replacing.submit("new", "-p dev --hold")
        assert int(replacing.before.jobs["new"]) > int(before) + 9_000
