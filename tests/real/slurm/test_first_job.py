"""docs/first-job.md as its reader follows it: the blocks that Slurm can run without GPUs, by alice on the login
node."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.slurm.cluster import Cluster

pytestmark = pytest.mark.usefixtures("provisioned")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "first-job.md"
BLOCK = re.compile(r"^```bash\n# on the login node\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_s_commands_run(cluster: Cluster) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 3
    assert any("sbatch" in block for block in blocks)
    # The part of the page with `slurm.accounts` needs a database, which does not exist under customer_managed.
    told = [block for block in blocks if "sacct" not in block or cluster.mode == "extended"]
    for number, block in enumerate(told):
        # From a file, because srun would read bash's standard input.
        cluster.login.write(f"/fsx/page-{number}.sh", block)
        result = cluster.login.try_run(f"bash -e /fsx/page-{number}.sh", user="alice")
        assert result.returncode == 0, (block, result)
        assert result.output, block
