"""One look of the drain agent at the largest cluster, with a request for all nodes. Prints its peak memory in MiB.

    python -m helpers.lifecycle.large

The output of Slurm and HyperPod is in files, as if it came from programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import MAX_NODES
from helpers.lifecycle.programs import load

loop, slurm = load("agent/loop.py"), load("agent/slurm.py")
RESERVED = "StartTime=2026-11-23T05:00:00 EndTime=2027-11-23T05:00:00 Duration=365-00:00:00"
NODE = (
    "NodeAddr={ip} NodeHostName={name} State=MIXED+MAINTENANCE+RESERVED Partitions=p5,dev BootTime=2026-11-23T05:00:00 "
)


def places() -> Iterator[tuple[str, str, str]]:
    """Id, name and address of each node."""
    for number in range(MAX_NODES):
        yield f"i-{number:017x}", f"ip-10-{number // 250}-{number % 250}-1", f"10.{number // 250}.{number % 250}.1"


def write(folder: Path) -> None:
    """The output of each command, by a name for it, and HyperPod's file."""
    instances = [{"InstanceId": name, "CustomerIpAddress": ip} for name, _, ip in places()]
    config = {
        "SlurmConfig": {"PrimaryControllerIp": "10.200.0.1"},
        "InstanceGroups": [{"Name": "p5", "Instances": instances}],
    }
    (folder / "config.json").write_text(json.dumps(config))
    lines = (
        f"NodeName={name} Arch=x86_64 {'CfgTRES=cpu=96 ' * 40}{NODE.format(name=name, ip=ip)}"
        for _, name, ip in places()
    )
    (folder / "node").write_text("".join(f"{line}\n" for line in lines))
    lines = (f"ReservationName=cdk-hyperpod-{i} {RESERVED} Nodes={n} Flags=MAINT Users=root" for i, n, _ in places())
    (folder / "reservation").write_text("".join(f"{line}\n" for line in lines))
    jobs = (f"{k}{n}|somebody|RUNNING|{name}||{k}_{n}\n" for k in (1, 2) for n, (_, name, _) in enumerate(places()))
    (folder / "squeue").write_text("".join(jobs))


class Bucket:
    """Both requests contain every node."""

    size = 0

    def now(self) -> float:
        return time.time()

    def get(self, key: str, etag: str, most_bytes: int) -> object:
        times = {"deadline": time.time() + 60, "expires": time.time() + 120}
        nodes = [
            {"id": i, "ip": ip, "request": "20261123T050000", **times, "on_timeout": "fail", "backup": True}
            for i, _, ip in places()
        ]
        return load("agent/s3.py").Object(json.dumps({"schema": 1, "id": "q", "nodes": nodes}).encode(), "e")

    def put(self, key: str, content: bytes) -> None:
        self.size = len(content)


def look() -> None:
    """Print the larger of two looks: first all nodes are idle, so that each gets a backup, and then all have jobs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-c", f"{HEAD}large.write(Path({name!r}))"], check=True)
        os.environ["SAGEMAKER_RESOURCE_CONFIG_PATH"] = str(folder / "config.json")

        idle = True

        def run(*command: str, **_: object) -> subprocess.CompletedProcess[str]:
            file = command[-1] if command[0] == "scontrol" else "squeue"
            nothing = command[0] == "sbatch" or "--users=root" in command or (file == "squeue" and idle)
            return subprocess.CompletedProcess(command, 0, "" if nothing else (folder / file).read_text())

        loop.run = slurm.run = run  # type: ignore[attr-defined]
        bucket = Bucket()
        looks = loop.Agent({"cluster": "c", "backup": {"paths": ["/a"], "to": "/b", "on_failure": "fail"}}, bucket)
        looks.look()
        idle = False
        looks.look()
        assert bucket.size > MAX_NODES * 100
        # Not getrusage, whose maximum includes that of the parent process.
        (most,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
        print(int(most) // 1024)


HEAD = "from pathlib import Path; from helpers.lifecycle import large; "

if __name__ == "__main__":
    look()
