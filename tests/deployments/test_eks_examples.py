"""The two examples under EKS as their READMEs have them: stack by stack, and the elastic job on what the library made."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from cdk_hyperpod_local import kubectl
from cdk_hyperpod_local.cdk import Cdk
from cdk_hyperpod_local.session import LocalAws
from helpers.synthesis import ROOT

EXAMPLES = ROOT / "examples"


def test_the_examples_can_be_followed(engine: LocalAws, tmp_path: Path) -> None:
    cdk = Cdk(place=engine.place, region=engine.region, account=engine.account)
    assembly = tmp_path / "cdk.out"
    assert cdk.synth(assembly, app=EXAMPLES / "eks_cluster").ok
    alone = cdk.deploy(assembly, only="eks-cluster-control-plane")
    assert alone.ok, alone.reason
    # HyperPod's Helm chart would be installed here, while there is no node.
    assert engine.client("sagemaker").list_clusters(NameContains="eks-example")["ClusterSummaries"] == []
    assert engine.client("eks").describe_cluster(name="eks-example")["cluster"]["status"] == "ACTIVE"
    everything = cdk.deploy(assembly)
    assert everything.ok, everything.reason

    environment = {**os.environ, **kubectl.variables(engine.place, os.environ)}
    job = str(EXAMPLES / "elastic_training" / "job.yaml")
    folder = str(EXAMPLES / "elastic_training" / "checkpoints_folder.yaml")
    for file in (folder, job):
        command = ["kubectl", "--context=eks-example", "apply", "--filename", file]
        # Kubernetes looks for new kinds every half a minute, and this one then counts all quotas again within seconds.
        for _ in range(60):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
            if "status unknown for quota" not in done.stderr:
                break
            time.sleep(3)
        assert done.returncode == 0, done.stderr

    gone = cdk.destroy(assembly)
    assert gone.ok, gone.reason
