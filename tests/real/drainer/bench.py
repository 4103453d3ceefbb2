"""Measure the drainer on a real API server: `make bench-eks`.

Prints, for 3 and for 16 nodes with eight pods each: the seconds from the first call of the drainer until every node is
ready, the drainer's calls and its requests to the API, without a backup and with one; and the cost of a call without a
request. Pods and backups end at once, so this is the drainer's own share. It is called again as soon as it has
answered; the guard calls it at every poll.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from cdk_hyperpod.kubernetes.manifests import Manifest
from helpers.drainer.rig import TOKEN, Rig, control_plane

COUNTS = (3, 16)
PODS = 8


def end_backups(rig: Rig) -> None:
    """Acts as the kubelets and the Jobs' controller, as soon as the scheduler has placed the pods."""

    def pods() -> list[Manifest]:
        found: list[Manifest] = rig.admin.get("/api/v1/namespaces/ops/pods").body["items"]
        return found

    rig.until(lambda: all(pod["spec"].get("nodeName") for pod in pods()) and len(pods()) == len(rig.jobs()), "they run")
    for pod in pods():
        rig.runs({"apiVersion": "v1", "kind": "Pod", **pod}, "Succeeded")
    rig.until(lambda: all(job["status"].get("conditions") for job in rig.jobs()), "they have ended", 60)


def drain(rig: Rig, count: int, *, backup: bool) -> tuple[float, int, int]:
    """Seconds, calls and requests until all of this many nodes are ready."""
    nodes = [rig.node(labels={"disk": "nvme"}) for _ in range(count)]
    for node in nodes:
        for number in range(PODS):
            rig.pod(node, f"{node[-4:]}-{number}")
    sent: list[str] = []
    rig.watch(sent)
    requests = [rig.node_request(node, backup=backup) for node in nodes]
    spent, calls = 0.0, 0
    while True:
        began = time.monotonic()
        answer = rig.ask(*requests)
        spent, calls = spent + time.monotonic() - began, calls + 1
        if all(answer["nodes"][node]["state"] == "ready" for node in nodes):
            break
        rig.end_pods()
        if backup:
            end_backups(rig)
    rig.ask(request="none")
    rig.clear_nodes()
    return spent, calls, len(sent)


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder, control_plane(Path(folder)) as admin:
        rig = Rig(admin, TOKEN)
        rig.cron_job()
        for count in COUNTS:
            for backup in (False, True):
                seconds, calls, requests = drain(rig, count, backup=backup)
                saved = " and saved" if backup else ""
                print(
                    f"{count} nodes drained{saved}: {seconds:.2f} s in {calls} calls, {requests} requests", flush=True
                )
        nodes = [rig.node() for _ in range(COUNTS[-1])]
        sent: list[str] = []
        rig.watch(sent)
        began = time.monotonic()
        rig.tell()
        print(
            f"a question about {len(nodes)} nodes: {time.monotonic() - began:.2f} s, {len(sent)} requests", flush=True
        )
        rig.clear()


if __name__ == "__main__":
    main()
