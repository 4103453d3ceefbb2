"""Asking the drain agent of a test's controller, through a bucket that the test has beside it (bucket.py)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from helpers.slurm.cluster import Cluster, Node
from helpers.slurm.hyperpod import CLUSTER_NAME

UNIT = "cdk-hyperpod-drain.service"
PORT = 9000
OBJECTS = "/srv/bucket"
WORK = "/opt/dlami/nvme/work"
"""What is saved of a node (scripts.py)."""
DROP_IN = f"/etc/systemd/system/{UNIT}.d/test.conf"
BucketTrouble = Literal["away", "refuses"]
OWN_BUCKET = {
    "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{PORT}",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
}


class Drains:
    """The agent of a cluster, and its bucket."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.controller = cluster.controller
        self._ends: dict[str, str] = {}

    # -- the bucket

    def write(self, writer: str, content: str) -> None:
        """A request, whatever it is."""
        self.controller.write(f"{OBJECTS}/{CLUSTER_NAME}/requests/{writer}.json", content)

    def ask(self, *nodes: Node, writer: str = "operator", **more: Any) -> str:
        """Ask for these nodes and for no other; the request's id."""
        # Of no earlier test: a backup that was made for a request of that name would count.
        request = f"{writer[0]}-{uuid.uuid4().hex[:8]}"
        self.write(
            writer,
            json.dumps(
                {"schema": 1, "id": request, "nodes": [self.node_request(node, request, **more) for node in nodes]}
            ),
        )
        return request

    @staticmethod
    def node_request(node: Node, request: str, **more: Any) -> dict[str, Any]:
        now = time.time()
        usual = {"deadline": now + 600, "expires": now + 900, "on_timeout": "fail", "backup": True}
        return {"id": node.instance.instance_id, "ip": node.instance.address, "request": request, **usual, **more}

    def status(self) -> dict[str, Any]:
        """What the agent says; nothing before it has said anything."""
        said = self.controller.try_run(f"cat {OBJECTS}/{CLUSTER_NAME}/status.json")
        return json.loads(said.output) if said.returncode == 0 else {}

    def of(self, node: Node, request: str | None = None) -> dict[str, Any]:
        """What it says of a node; nothing where it says nothing, or nothing yet of this request."""
        found: dict[str, Any] = self.status().get("nodes", {}).get(node.instance.instance_id, {})
        return found if request is None or request in found.get("requests", {}).values() else {}

    def await_state(self, node: Node, state: str, request: str | None = None, limit_s: float = 60) -> dict[str, Any]:
        """Wait until it says so."""

        def look() -> dict[str, Any] | None:
            found = self.of(node, request)
            return found if found.get("state") == state else None

        try:
            return self.cluster.until(look, f"{node.name} is {state}", limit_s) or {}
        except Exception as error:
            raise AssertionError(f"{error}; it says {json.dumps(self.status())}; {self._log()}") from error

    def await_heard(self) -> None:
        """Wait until it has said something."""
        try:
            self.cluster.until(self.status, "the agent says something", 30)
        except Exception as error:
            raise AssertionError(f"{error}; {self._log()}") from error

    @contextmanager
    def bucket_fails(self, how: BucketTrouble) -> Iterator[None]:
        """While the block runs, it answers nobody (`away`), or nobody has a right (`refuses`)."""
        if how == "away":
            self.controller.run("systemctl stop bucket")
        else:
            self.controller.run(f"touch {OBJECTS}.refuses")
        try:
            yield
        finally:
            if how == "away":
                start_bucket(self.controller)
            else:
                self.controller.run(f"rm {OBJECTS}.refuses")

    def await_missing_the_bucket(self) -> None:
        """Wait until the agent has said so."""

        def missed() -> bool:
            self.controller.run("journalctl --sync")
            return "GET s3://" in self.controller.run(f"journalctl -u {UNIT} -n 3 --no-pager -o cat")

        self.cluster.until(missed, "it misses the bucket")

    def _log(self) -> str:
        return self.controller.try_run(f"journalctl -u {UNIT} -n 60 --no-pager; squeue -a; scontrol show res").output

    # -- Slurm

    def slurm_of(self, node: Node) -> str:
        """Slurm's line of a node."""
        return self.controller.run(f"scontrol --oneliner show node {node.name}")

    def reservations(self) -> str:
        """All of them, by name."""
        said = self.controller.run("scontrol --oneliner show reservation")
        return " ".join(word.partition("=")[2] for word in said.split() if word.startswith("ReservationName="))

    def await_given_back(self, *nodes: Node, limit_s: float = 60) -> None:
        """Wait until nothing of the agent's is on them, and they take work."""
        self.cluster.await_idle(nodes, limit_s)
        ids = [node.instance.instance_id for node in nodes]
        self.cluster.until(
            lambda: not any(instance in self.reservations() for instance in ids),
            f"no reservation: {self.reservations()}",
        )
        assert not any("DRAIN" in self.slurm_of(node).split(" State=")[1].split()[0] for node in nodes)

    def start_job(self, node: Node, *options: str) -> str:
        """A batch job of alice's on this node that runs until it is cancelled, or `end_job` says so."""
        # Not by the job's number: a Slurm that begins anew counts from 1, and what ended an earlier job is still there.
        end = f"/fsx/home/alice/end-{uuid.uuid4().hex}"
        wrap = f"'while [ ! -e {end} ]; do sleep 0.2; done'"
        command = f"sbatch --parsable --chdir=/tmp --output=/dev/null -p {node.instance.group} -w {node.name}"
        job = self.cluster.login.run(f"{command} {' '.join(options)} --wrap {wrap}", user="alice")
        self._ends[job] = end
        self.cluster.until(lambda: self.job_state(job) == "RUNNING", f"job {job} runs")
        return job

    def end_job(self, job: str) -> None:
        self.cluster.login.run(f"touch {self._ends[job]}", user="alice")

    def job_state(self, job: str) -> str:
        return self.controller.run(f"squeue --noheader --states=all --jobs={job} --format=%T")


def start_bucket(controller: Node, *, clock_offset_s: float = 0) -> None:
    """Which stays until `systemctl stop bucket`. `clock_offset_s`: how far its clock is ahead."""
    controller.run(
        f"systemd-run --quiet --unit=bucket --property=Restart=always --property=RestartSec=0.1 "
        f"python3 /srv/bucket.py {PORT} {OBJECTS} {clock_offset_s}"
    )


def set_up(cluster: Cluster, environment: Mapping[str, str], *, poll_s: float = 0.5) -> None:
    """Start the agent anew with these variables, and so many seconds between two looks."""
    variables = {
        **environment,
        "DRAIN_POLL_S": str(poll_s),
        # Tests lay programs there that stand before Slurm's own.
        "PATH": "/srv/before:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    lines = [f"Environment={name}={value}" for name, value in variables.items()]
    service = ["[Service]", *lines, "RestartSec=0.1", "ReadWritePaths=/run/killed"]
    cluster.controller.write(DROP_IN, "\n".join(service) + "\n")
    cluster.controller.run(f"systemctl daemon-reload && systemctl restart {UNIT}")


def start(cluster: Cluster, *, poll_s: float = 0.5) -> None:
    """Give the agent a bucket. A replaced controller has neither."""
    controller = cluster.controller
    controller.write("/srv/bucket.py", (Path(__file__).parent / "bucket.py").read_text())
    controller.run(f"mkdir -p {OBJECTS} /srv/before /run/killed")
    start_bucket(controller)
    set_up(cluster, OWN_BUCKET, poll_s=poll_s)


@contextmanager
def agent(cluster: Cluster, *, poll_s: float = 0.5) -> Iterator[Drains]:
    """The agent that the scripts have installed, with a bucket that answers."""
    controller = cluster.controller
    start(cluster, poll_s=poll_s)
    try:
        yield Drains(cluster)
    finally:
        controller.run(f"systemctl stop bucket; rm -rf {DROP_IN} {OBJECTS} /srv/before; systemctl daemon-reload")
        controller.run(f"systemctl restart {UNIT}")
