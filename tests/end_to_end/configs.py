"""The cluster files of these tests."""

from __future__ import annotations

from typing import Any

from local_aws.environment import ACCOUNT

Json = Any


def small(name: str) -> Json:
    """A controller and two P5 nodes, one of which is enough, with a file system; what a deletion must not lose stays."""
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
