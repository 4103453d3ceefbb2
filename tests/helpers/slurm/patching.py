"""`cdk-hyperpod patch` on a test's cluster: HyperPod's model re-images the real nodes, and S3 is the agent's own bucket."""

from __future__ import annotations

import email.utils
import hashlib
import io
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod.names import cluster_stack_name
from cdk_hyperpod_local.hyperpod import HyperPod, Outside, SystemClock, Timings
from cdk_hyperpod_local.hyperpod.samples import group, slurm
from helpers.slurm.cluster import Cluster, Node
from helpers.slurm.drains import OBJECTS, Drains
from helpers.slurm.hyperpod import CLUSTER_NAME

Json = Any
NEW = "1.5.0"
"""The image that is released before the patch."""
_AT_ONCE = Timings(
    create_cluster=0, launch=0, boot=0, software_update=0.1, software_update_pending=0.1, requested_second=0.2
)
_BROKEN = "broken"


class Machines(Outside):
    """The root volumes of the test's nodes, and their lifecycle scripts."""

    __slots__ = ("_ended", "_threads", "cluster", "ended_by_it", "scripts")

    def __init__(self, cluster: Cluster, scripts: Path) -> None:
        super().__init__()
        self.cluster, self.scripts = cluster, scripts
        self.ended_by_it: list[str] = []
        """Jobs that ran on a node when its root volume was replaced."""
        self._threads = ThreadPoolExecutor(4)
        self._ended: dict[str, Future[bool]] = {}

    def replace_root(self, cluster: Any, node: Any) -> None:
        machine = next(each for each in self.cluster.nodes if each.instance.instance_id == node.instance_id)
        running = self.cluster.controller.run(f"squeue --noheader --states=R,CG,S -w {machine.name} --format=%i")
        self.ended_by_it += running.split()
        self._ended[node.instance_id] = self._threads.submit(self._start, machine)

    def _start(self, machine: Node) -> bool:
        machine.re_image()
        with ThreadPoolExecutor(1) as hyperpod:
            extended = self.cluster.mode == "extended"
            started = hyperpod.submit(self.cluster.start_slurmd, machine) if extended else None
            ended = machine.provision(self.scripts)
            if started is not None:
                started.result()
        return ended.returncode == 0

    def scripts_ended(self, cluster: Any, node: Any) -> bool | None:
        found = self._ended[node.instance_id]
        return found.result() if found.done() else None


class Aws:
    """What the command calls."""

    def __init__(self, cluster: Cluster, drains: Drains, scripts: Path) -> None:
        self.drains = drains
        self.machines = Machines(cluster, scripts)
        self.model = HyperPod(clock=SystemClock(), timings=_AT_ONCE, outside=self.machines)
        login = group("login", 1, node_type="Login", instance_type="ml.m5.2xlarge")
        trn1 = group("trn1", 2, instance_type="ml.trn1.32xlarge")
        self.model.call("CreateCluster", slurm(login, group("p5", 2), trn1, name=CLUSTER_NAME))
        left = list(cluster.nodes)
        known = self.model.cluster(CLUSTER_NAME).nodes
        for name, each in list(known.items()):
            mine = next(node for node in left if node.instance.group == each.group)
            left.remove(mine)
            known[name] = replace(each, instance_id=mine.instance.instance_id, address=mine.instance.address)
        self.model.release_image(NEW)

    def client(self, service: str) -> Any:
        """In place of boto3's."""
        return self.model.client() if service == "sagemaker" else self

    # -- STS

    def get_caller_identity(self) -> Json:
        return {"Account": "111122223333"}

    # -- S3

    def get_object(self, *, Bucket: str, Key: str) -> Json:
        said = self.drains.controller.try_run(f"cat {OBJECTS}/{Key}")
        if said.returncode != 0:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "not there"}}, "GetObject")
        content = said.output.encode()
        headers = {"HTTPHeaders": {"date": email.utils.formatdate(time.time(), usegmt=True)}}
        etag = hashlib.sha256(content).hexdigest()
        reply = {"ContentLength": len(content), "ETag": etag, "ResponseMetadata": headers}
        return {"Body": io.BytesIO(content), **reply}

    def put_object(self, *, Key: str, Body: bytes, **_: object) -> Json:
        path = f"{OBJECTS}/{Key}"
        self.drains.controller.run(
            f"mkdir -p $(dirname {path}); cat >{path}.new && mv {path}.new {path}", stdin=Body.decode()
        )
        return {}

    # -- CloudFormation

    def describe_stacks(self, *, StackName: str) -> Json:
        assert StackName == cluster_stack_name(CLUSTER_NAME)
        return {"Stacks": [{"StackName": StackName, "StackStatus": "UPDATE_COMPLETE"}]}

    def images(self, name: str) -> set[str]:
        """The images of a group's nodes."""
        return {node.image for node in self.model.nodes(CLUSTER_NAME, name)}


class Load:
    """Jobs of alice's that come all the time, and mark their begin and their end."""

    MARKS = "/fsx/home/alice/marks"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: list[str] = []
        cluster.login.run(f"rm -rf {self.MARKS}; mkdir -p {self.MARKS}", user="alice")

    def submit(self, options: str, seconds: float) -> str:
        """A batch job; its id."""
        name = "$SLURM_JOB_ID.$SLURM_RESTART_COUNT"
        wrap = f"touch {self.MARKS}/{name}.begun; srun sleep {seconds}; touch {self.MARKS}/{name}.ended"
        command = f"sbatch --parsable --chdir=/tmp --output=/dev/null {options} --wrap '{wrap}'"
        job = self.cluster.login.run(command, user="alice")
        self.jobs.append(job)
        return job

    def goes_on(self, is_over: Callable[[], bool]) -> None:
        """More jobs, until it is over."""
        number = 0
        while not is_over():
            number += 1
            self.submit(["-p p5", "-p p5 -N 2", "-p p5 --no-requeue", "-p trn1"][number % 4], 0.5)
            time.sleep(1)

    def of_all(self) -> dict[str, dict[str, str]]:
        """Each job as Slurm shows it."""
        lines = self.cluster.controller.run("scontrol --oneliner show job").splitlines()
        found = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
        return {each["JobId"]: each for each in found if each.get("JobId") in self.jobs}

    def await_end(self) -> dict[str, dict[str, str]]:
        """Wait until no job runs or waits."""

        def ended() -> bool:
            return all(each["JobState"] not in ("PENDING", "RUNNING", "COMPLETING") for each in self.of_all().values())

        self.cluster.until(ended, f"all jobs end: {self.cluster.controller.try_run('squeue -a; sinfo -R').output}", 60)
        return self.of_all()

    def marks(self) -> set[str]:
        """What the jobs have marked."""
        return set(self.cluster.login.run(f"ls {self.MARKS}", user="alice").split())
