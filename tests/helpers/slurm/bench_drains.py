"""Measure the drain agent on a real cluster of 16 compute nodes: `make bench-slurm`.

Prints what it asks of S3 in a minute without a request, and its memory; the time from a request until all of 3 and of 16
idle nodes are drained, without a backup and with one of a small file each; how much later than its job's end a node is
ready; and a backup's speed beside that of `rsync -a`. The agent looks every ten seconds, as on a cluster of HyperPod's.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from helpers.lifecycle.programs import load
from helpers.slurm import drains as asking
from helpers.slurm.cluster import Cluster, Node, slurm_cluster
from helpers.slurm.drains import UNIT, Drains
from helpers.slurm.scripts import packed

NODES = 16
IDLE_MINUTES = 2
ROUNDS = 3
WORK = "/opt/dlami/nvme/work"
BYTES = 100_000_000
SMALL_FILES = 2_000
POLL_S = 10.0


def requests(drains: Drains) -> int:
    """How many the bucket has had."""
    return int(drains.controller.run(f"python3 -c '{_COUNT}'"))


_COUNT = f'import urllib.request as u; print(u.urlopen("http://127.0.0.1:{asking.PORT}/-/asked").read().decode())'


def memory_mb(drains: Drains) -> tuple[float, float]:
    """What the agent has resident, and the most that it ever had."""
    status = drains.controller.read(
        f"/proc/{drains.controller.run(f'systemctl show --property=MainPID --value {UNIT}')}/status"
    )
    found = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))}
    return int(found["VmRSS"]) * 1024 / 1e6, int(found["VmHWM"]) * 1024 / 1e6


def until_drained(drains: Drains, nodes: Sequence[Node], *, backup: bool) -> float:
    """Seconds from the request until every node is drained in Slurm and ready by the status."""
    began = time.monotonic()
    request = drains.ask(*nodes, backup=backup)
    for node in nodes:
        drains.await_state(node, "ready", request, limit_s=300)
    took = time.monotonic() - began
    drains.ask()
    drains.cluster.until(lambda: not drains.reservations(), "all are given back", 120)
    drains.cluster.await_idle(nodes)
    return took


def after_the_job(drains: Drains, node: Node, wait_s: float) -> float:
    """Seconds from the end of a node's only job until the node is ready. `wait_s`: how long after the agent's look it ends."""
    job = drains.start_job(node)
    request = drains.ask(node, backup=False)
    drains.await_state(node, "draining", request)
    time.sleep(wait_s)
    drains.end_job(job)
    drains.cluster.until(lambda: drains.job_state(job) == "COMPLETED", "the job ends")
    ended = time.monotonic()
    drains.await_state(node, "ready", request)
    took = time.monotonic() - ended
    drains.ask()
    drains.cluster.until(lambda: not drains.reservations(), "it is given back", 120)
    drains.cluster.await_idle([node])
    return took


def speeds(node: Node) -> tuple[float, float, float]:
    """Bytes a second of a backup; of `rsync -a`; and of that with a second one that compares by checksums."""
    order = {
        "to": "/fsx/backup",
        "paths": [WORK],
        "instance": node.instance.instance_id,
        "request": "r",
        "seconds": 900,
    }
    program = load("agent/script.py").PROGRAM
    node.write("/tmp/back_up.py", f"{program}\nraise SystemExit(main(json.loads({json.dumps(order)!r}), print))\n")
    rsync = "rsync --archive"
    whole = BYTES + SMALL_FILES * 20_000
    taken = []
    for command in (
        "python3 /tmp/back_up.py",
        f"{rsync} {WORK} /fsx/plain",
        f"{rsync} {WORK} /fsx/plain && {rsync} --checksum {WORK} /fsx/plain",
    ):
        node.run("rm -rf /fsx/backup /fsx/plain; mkdir /fsx/plain")
        began = time.monotonic()
        node.run(f"{command} >/tmp/said 2>&1 || {{ cat /tmp/said; false; }}")
        taken.append(whole / (time.monotonic() - began))
    node.run("rm -rf /fsx/backup /fsx/plain")
    return taken[0], taken[1], taken[2]


def measure(cluster: Cluster, drains: Drains) -> None:
    nodes, first = cluster.compute, cluster.compute[0]
    cluster.on_each(
        lambda node: node.run(f"mkdir -p {WORK}; head -c 3000000 /dev/urandom >{WORK}/model.bin"), list(nodes)
    )
    drains.await_heard()
    before = requests(drains)
    time.sleep(60 * IDLE_MINUTES)
    asked = (requests(drains) - before) / IDLE_MINUTES
    print(f"without a request: {asked:.1f} requests to S3 a minute, {memory_mb(drains)[0]:.0f} MB", flush=True)
    for count in (3, NODES):
        plain, saved = (until_drained(drains, nodes[:count], backup=backup) for backup in (False, True))
        print(f"{count} idle nodes drained: {plain:.1f} s; saved and drained: {saved:.1f} s", flush=True)
    late = [after_the_job(drains, first, wait_s) for wait_s in (2, 5, 8)]
    print(f"ready after its job's end: {', '.join(f'{each / POLL_S:.1f}' for each in late)} polls", flush=True)
    print(f"the most that the agent had: {memory_mb(drains)[1]:.0f} MB", flush=True)
    first.run(
        f"mkdir -p {WORK}/small; cd {WORK}; head -c {BYTES} /dev/urandom >model.bin; "
        f"for i in $(seq {SMALL_FILES}); do head -c 20000 model.bin >small/$i; done"
    )
    rounds = [speeds(first) for _ in range(ROUNDS)]
    ours, rsync, compared = (statistics.median(each) / 1e6 for each in zip(*rounds, strict=True))
    print(f"backup {ours:.0f} MB/s, rsync {rsync:.0f} MB/s, rsync and compared {compared:.0f} MB/s", flush=True)


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        scripts = packed(Path(folder))
        with slurm_cluster("24.11", "extended", Path(folder), compute=NODES) as cluster:
            cluster.hyperpod_starts_slurm()
            cluster.on_each(lambda node: node.provision(scripts), [cluster.controller, cluster.login])
            cluster.await_idle()
            with asking.agent(cluster, poll_s=POLL_S) as drains:
                measure(cluster, drains)


if __name__ == "__main__":
    main()
