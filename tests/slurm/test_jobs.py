"""What users do, on a cluster that the lifecycle scripts have provisioned."""

from __future__ import annotations

import pytest

from slurm.cluster import Cluster

pytestmark = pytest.mark.usefixtures("provisioned")


def test_a_job_runs_on_the_nodes_of_its_partition_and_has_its_gpus(cluster: Cluster) -> None:
    said = cluster.login.run(
        "srun --partition=p5 --nodes=2 --gpus-per-node=8 bash -c 'echo $(hostname) $CUDA_VISIBLE_DEVICES'",
        user="ubuntu",
    )
    names = [node.name for node in cluster.compute if node.instance.group == "p5"]
    assert sorted(said.splitlines()) == [f"{name} 0,1,2,3,4,5,6,7" for name in names]


def test_auto_resume_is_an_option_of_srun_alone(cluster: Cluster) -> None:
    assert cluster.login.run("srun --auto-resume=1 -p trn1 hostname", user="ubuntu")
    assert cluster.login.try_run("srun --auto-resume=2 -p trn1 hostname", user="ubuntu").returncode != 0
    assert cluster.login.try_run("sbatch --auto-resume=1 --wrap hostname", user="ubuntu").returncode != 0
