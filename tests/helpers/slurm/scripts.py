"""The lifecycle scripts as a deployment uploads them: this app's own templates say what is in the bucket.

Under S3 they are a folder with cluster.json beside them, which tells them of the cluster. One thing is changed in it:
the file systems' type, since a test's nodes have none of Lustre (cluster.py).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from cdk_hyperpod._lambda.hyperpod.uploader.content import KIND

ROOT = Path(__file__).resolve().parents[3]
FSX_TYPE = "tmpfs"
"""What the kernel calls that which the nodes have at /fsx."""

CONFIG: dict[str, Any] = {
    "name": "llm-train",
    "region": "us-west-2",
    "account": "111122223333",
    "instance_groups": [
        {"name": "controller", "instance_type": "ml.m5.4xlarge", "instance_count": 1, "node_type": "controller"},
        {"name": "login", "instance_type": "ml.m5.2xlarge", "instance_count": 1, "node_type": "login"},
        {
            "name": "p5",
            "instance_type": "ml.p5.48xlarge",
            "instance_count": 2,
            "node_type": "compute",
            "partition": "p5",
        },
        {
            "name": "trn1",
            "instance_type": "ml.trn1.32xlarge",
            "instance_count": 2,
            "node_type": "compute",
            "partition": "trn1",
        },
    ],
    "storage": {"capacity_gib": 4800, "throughput_mbps_per_tib": 250},
    "network": {"availability_zones": ["us-west-2c"]},
    "groups": [{"name": "research", "gid": 2001}, {"name": "neuron", "gid": 2002}],
    "users": [
        {"name": "alice", "uid": 3001, "group": "research"},
        {"name": "bob", "uid": 3002, "group": "neuron", "groups": ["research"]},
    ],
    "slurm": {
        "accounts": [
            {"name": "research", "users": ["alice"], "grp_gpus": 8},
            {"name": "neuron", "users": ["bob"], "max_submit_jobs": 1},
        ],
        "drain": {"backup": {"paths": ["/opt/dlami/nvme/work", "/srv/absent"], "to": "/fsx/backup"}},
    },
}
"""The cluster file of the cluster that the tests bring up."""


def packed(folder: Path, **config: Any) -> Path:
    """The folder that HyperPod downloads, for the cluster file CONFIG with these keys set. Named like its S3 prefix.

    Synthesizes the app: what is uploaded is read from the templates, not from lifecycle/.
    """
    file, out = folder / "cluster.yaml", folder / "cdk.out"
    file.write_text(yaml.safe_dump({**CONFIG, **config}))
    environment = {
        **os.environ,
        "CDK_CONTEXT_JSON": json.dumps({"config": str(file)}),
        "CDK_OUTDIR": str(out),
        "CDK_VALIDATION": "false",
    }
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"the cluster file of the tests does not synthesize: {done.stdout}")
    (upload,) = _uploads(out)
    target = Path(shutil.copytree(_asset(out, upload["Asset"]), folder / str(upload["Hash"])))
    cluster = json.loads((target / "cluster.json").read_text())
    for mount in cluster.get("mounts", []):
        mount["type"] = FSX_TYPE
    (target / "cluster.json").write_text(json.dumps(cluster))
    return target


def _uploads(out: Path) -> list[dict[str, Any]]:
    """Every upload of scripts."""
    return [
        resource["Properties"]
        for template in out.glob("*.template.json")
        for resource in json.loads(template.read_text())["Resources"].values()
        if resource["Type"] == KIND
    ]


def _asset(out: Path, key: str) -> Path:
    """The folder that is uploaded as this zip."""
    for manifest in out.glob("*.assets.json"):
        for asset, entry in json.loads(manifest.read_text())["files"].items():
            if f"{asset}.zip" == key:
                return out / str(entry["source"]["path"])
    raise AssertionError(f"no asset is uploaded as {key}")
