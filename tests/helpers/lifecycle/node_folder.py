"""A folder that represents a node, with the lifecycle scripts as HyperPod downloads them. bash really runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lifecycle import provision

LIFECYCLE = Path(provision.__file__).parent

RESOURCE_CONFIG: dict[str, Any] = {
    "ClusterConfig": {"ClusterName": "llm-train"},
    "ClusterType": "Slurm",
    "SlurmConfig": {"PrimaryControllerIp": "10.1.0.10"},
    "InstanceGroups": [
        {
            "Name": "head",
            "Instances": [
                {"InstanceName": "head-1", "CustomerIpAddress": "10.1.0.10", "InstanceId": "i-0aaaaaaaaaaaaaaa1"}
            ],
        },
        {
            "Name": "door",
            "Instances": [
                {"InstanceName": "door-1", "CustomerIpAddress": "10.1.0.11", "InstanceId": "i-0aaaaaaaaaaaaaaa2"}
            ],
        },
        {
            "Name": "p5",
            "InstanceType": "ml.p5.48xlarge",
            "Instances": [
                {"InstanceName": "p5-1", "CustomerIpAddress": "10.1.0.21", "InstanceId": "i-0bbbbbbbbbbbbbbb1"},
                {"InstanceName": "p5-2", "CustomerIpAddress": "10.1.0.22", "InstanceId": "i-0bbbbbbbbbbbbbbb2"},
            ],
        },
        {"Name": "trn1", "Instances": [{"InstanceName": "trn1-1", "CustomerIpAddress": "10.1.0.31"}]},
    ],
}
CLUSTER: dict[str, Any] = {
    "cluster_name": "llm-train",
    "mounts": [{"path": "/fsx", "type": "lustre"}],
    # The step has its own tests.
    "steps": {name: name == "mounts" for name in provision.STEPS},
}
ROOT_MOUNT = "23 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard\n"
FSX_MOUNT = "96 23 0:54 / /fsx rw,noatime shared:62 master:3 - lustre 10.1.0.99@tcp:/abcdefgh rw,checksum,flock\n"
AUTOMOUNT = "95 23 0:53 / /fsx rw,relatime shared:61 - autofs systemd-1 rw,fd=51,timeout=0,direct\n"


@dataclass
class Node:
    """A folder with the scripts as HyperPod downloads them, and the files that they read."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shutil.copytree(LIFECYCLE, self.scripts, ignore=shutil.ignore_patterns("__pycache__"))
        for script in self.scripts.rglob("*.*"):
            script.chmod(0o644)  # S3 turns mode 0755 into this
        self.write("resource_config.json", json.dumps(RESOURCE_CONFIG))
        self.write("mountinfo", ROOT_MOUNT + FSX_MOUNT)
        self.write("scripts/cluster.json", json.dumps(CLUSTER))
        self.addresses("127.0.0.1", "10.1.0.22")
        # So that a waiting test takes no time: the sleeps are only counted.
        self.command("sleep", f'echo "$1" >>{self.root}/sleeps')

    @property
    def scripts(self) -> Path:
        return self.root / "scripts"

    @property
    def log(self) -> Path:
        return self.root / "log" / "provision" / "provisioning.log"

    @property
    def sleeps(self) -> list[str]:
        file = self.root / "sleeps"
        return file.read_text().split() if file.exists() else []

    def write(self, name: str, content: str) -> None:
        (self.root / name).write_text(content, "utf-8")

    def command(self, name: str, body: str) -> None:
        """Put a command with this name before all others on the PATH."""
        file = self.root / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/bash\n{body}\n", "utf-8")
        file.chmod(0o755)

    def switch_on(self, *steps: str) -> None:
        """Run only these steps."""
        self.write(
            "scripts/cluster.json", json.dumps({**CLUSTER, "steps": {name: name in steps for name in provision.STEPS}})
        )

    def addresses(self, *addresses: str) -> None:
        interfaces = [{"ifname": f"eth{i}", "addr_info": [{"local": a}]} for i, a in enumerate(addresses)]
        self.command("ip", f"[[ $* == '-json address show' ]] || exit 9\necho '{json.dumps(interfaces)}'")

    def provision(
        self, script: str = "compute.sh", *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the script that OnCreate names."""
        return subprocess.run(
            ["bash", str(self.scripts / script), *arguments],
            env={
                "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                "SAGEMAKER_RESOURCE_CONFIG_PATH": str(self.root / "resource_config.json"),
                "PROVISION_LOG": str(self.log),
                "PROVISION_MOUNTINFO": str(self.root / "mountinfo"),
                "PROVISION_DELAY_S": "0",
                "PROVISION_ATTEMPTS": "3",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )


def messages(output: str) -> list[str]:
    """The lines without their time, which every line must have."""
    lines = output.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (INFO|WARNING|ERROR) [\w.]+: ", line) for line in lines), (
        output
    )
    return [line.split(" ", 1)[1] for line in lines]


def the_error(result: subprocess.CompletedProcess[str]) -> str:
    """The last line, which is the reason, of a run that failed as it should."""
    lines = messages(result.stdout)
    assert lines[-1].startswith("ERROR "), result.stdout
    assert result.returncode != 0
    return lines[-1]
