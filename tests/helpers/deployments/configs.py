"""The cluster files of these tests."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from cdk_hyperpod.kubernetes.helm_chart import HelmChart
from cdk_hyperpod_local.environment import ACCOUNT

Json = Any


def small(name: str) -> Json:
    """A controller, two P5 nodes with a minimum of one, and a file system. Data is retained on deletion."""
    return {
        "name": name,
        "region": "us-west-2",
        "account": ACCOUNT,
        "network": {"availability_zones": ["us-west-2c"]},
        "instance_groups": [
            {"name": "controller", "instance_type": "ml.m5.4xlarge", "instance_count": 1, "node_type": "controller"},
            {
                "name": "p5",
                "instance_type": "ml.p5.48xlarge",
                "instance_count": 2,
                "min_instance_count": 1,
                "node_type": "compute",
                "partition": "p5",
            },
        ],
        "storage": {"capacity_gib": 4800, "throughput_mbps_per_tib": 250},
        "removal": "retain",
    }


TRN1: Json = {
    "name": "trn1",
    "instance_type": "ml.trn1.32xlarge",
    "instance_count": 2,
    "min_instance_count": 2,
    "node_type": "compute",
    "partition": "trn1",
}

CHART = Path(__file__).resolve().parents[1] / "chart"


def under_eks(name: str, folder: Path) -> Json:
    """Five P5 nodes with a minimum of one, two nodes without GPUs, and a group that Karpenter scales; two teams with
    shares, HyperPod's chart (a copy in the folder), a closed network, and nothing that is retained."""
    role = f"arn:aws:iam::{ACCOUNT}:role/{name}"
    chart = shutil.copytree(CHART, folder / "chart")
    return {
        "name": name,
        "region": "us-west-2",
        "account": ACCOUNT,
        "orchestrator": "eks",
        # The control plane gets a second zone.
        "network": {"availability_zones": ["us-west-2c"]},
        "eks": {
            "dependencies_chart": str(chart),
            "dependencies_chart_digest": HelmChart(CHART).digest,
            "image_registry": f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/mirror",
            "admin_role_arns": [f"{role}-admin"],
            "priority_classes": [{"name": "urgent", "value": 1000}, {"name": "spare", "value": 10}],
            "autoscaling": {"instance_groups": ["auto"]},
        },
        "teams": [
            {
                "name": "research",
                "quota": {"ml.p5.48xlarge": 2},
                "role_arns": [f"{role}-research"],
                "pod_role_arn": f"{role}-pods",
            },
            {"name": "vision", "quota": {"ml.p5.48xlarge": 1}, "role_arns": [f"{role}-vision"]},
        ],
        "instance_groups": [
            {"name": "system", "instance_type": "ml.m5.4xlarge", "instance_count": 2, "min_instance_count": 2},
            {"name": "p5", "instance_type": "ml.p5.48xlarge", "instance_count": 5, "min_instance_count": 1},
            {"name": "auto", "instance_type": "ml.g5.12xlarge", "instance_count": 0},
        ],
        "storage": {"capacity_gib": 4800, "throughput_mbps_per_tib": 250},
        "scale_down": {"drain": {}},
        "removal": "destroy",
        "termination_protection": False,
    }


STANDING: Json = {
    **small("standing"),
    "instance_groups": [
        *small("standing")["instance_groups"][:1],
        {**small("standing")["instance_groups"][1], "instance_count": 6, "min_instance_count": 2},
        {**TRN1, "instance_count": 4, "min_instance_count": 4},
    ],
    "storage": {"capacity_gib": 19_200},
}
"""A controller, six P5 nodes of which two are enough, four Trn1 nodes of which each is needed, and a file system as large as
one with EFA has to be."""
