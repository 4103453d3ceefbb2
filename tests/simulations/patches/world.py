"""A cluster whose software is updated: HyperPod, its nodes and their jobs, and AWS's calls about them.

Written from AWS's documents and from issue reports, not from `patch`. What they leave open is a switch of `Switches`: an update that
shows late, in one place only, or nowhere; nodes that are skipped; lists that leave out nodes or show them late; statuses that
nobody knows.
"""

from __future__ import annotations

import email.utils
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError  # type: ignore[import-untyped]

from .clock import Time

Json = Any
OLD, NEW = "1.0.0", "2.0.0"
NAME, ACCOUNT, REGION = "small", "000000000000", "us-west-2"
BEGIN = 1_795_000_000.0


@dataclass(frozen=True, kw_only=True)
class Switches:
    """What AWS leaves open, and what goes wrong in this patch."""

    eks: bool
    nodes: int = 3
    controller: bool = False
    """The file has an accounting database, and the controller is patched, too."""
    versions: bool = False
    """HyperPod reports releases of nodes."""
    counts: bool = True
    """HyperPod reports TargetStateCount."""
    times: bool = True
    """HyperPod reports LastSoftwareUpdateTime."""
    shows: tuple[str, ...] = ("group", "status", "cluster", "nodes")
    """Where an update shows."""
    late_s: float = 0.0
    """How long an accepted update does not show."""
    pending_s: float = 60.0
    """From the call to the first node."""
    node_s: float = 1200.0
    apart_s: float = 0.0
    """Between the beginnings of two nodes."""
    skips: int = 0
    """How many updates skip the first node."""
    ends: str = "Succeeded"
    """SoftwareUpdateStatus at the end."""
    earlier: str | None = None
    """SoftwareUpdateStatus of the update before: it stays, where an update does not show on the group."""
    same_again: bool = False
    """A call for the image that nodes have replaces it again."""
    leaves_out: float = 0.0
    """The share of lists that leave out a node."""
    list_lag_s: float = 0.0
    """How long a list does not show a new node."""
    counts_leaving: bool = False
    """CurrentCount counts nodes that are shutting down."""
    lost_answers: float = 0.0
    """The share of updates whose answer is lost; retried: by botocore, which then gets a conflict."""
    job_s: tuple[float, float] = (600.0, 5400.0)
    gap_s: float = 120.0
    """How long a node is idle between two jobs, on average."""
    protected: float = 0.0
    """The share of pods that a budget protects until they end."""


@dataclass(eq=False)
class Job:
    node: Node
    began: float
    ends: float
    protected: bool = False


@dataclass(eq=False)
class Node:
    id: str
    group: str
    number: int
    launched: float
    joins: float
    status: str = "Pending"
    image: str = OLD
    updated: float | None = None
    job: Job | None = None
    held_by: frozenset[str] = frozenset()
    """Who holds it, as the agent or Kubernetes enforces it."""
    silent: bool = False
    """Its slurmd or kubelet answers nobody."""

    @property
    def host(self) -> str:
        return f"ip-10-1-{self.number // 200}-{self.number % 200 + 1}"

    @property
    def here(self) -> bool:
        return self.status not in ("ShuttingDown", "gone")


@dataclass(eq=False)
class Update:
    """One UpdateClusterSoftware, or an automatic patch."""

    group: str
    by: str
    image: str
    accepted: float
    began: float | None = None
    ended: float | None = None
    shown: bool = False
    nodes: list[Node] = field(default_factory=list)
    skipped: list[Node] = field(default_factory=list)
    done: set[str] = field(default_factory=set)


@dataclass
class Group:
    name: str
    kind: str
    current_image: str = OLD
    desired: str = OLD
    software: str | None = None
    status: str = "InService"
    update: Update | None = None
    target: int = 0


class World:
    """The cluster, and who writes of what happens."""

    def __init__(self, switches: Switches, seed: int) -> None:
        self.switches = switches
        self.random = Random(seed)
        self.time = Time(BEGIN)
        self.log: list[str] = []
        self.groups = {"work": Group("work", "Compute", target=switches.nodes, software=switches.earlier)}
        if not switches.eks:
            self.groups["head"] = Group("head", "Controller", target=1)
        self.nodes: list[Node] = []
        self.updates: list[Update] = []
        self.latest = NEW
        self.objects: dict[str, tuple[Any, str]] = {}
        self.stack = "UPDATE_COMPLETE"
        self.throttled: list[tuple[float, float, frozenset[str]]] = []
        self.judge: Any = None
        self.releases = True
        """False: the drain agent is dead, and releases nothing."""
        self.drainer: Callable[[Json], Json] | None = None
        self._versions = 0
        for group in self.groups.values():
            for _ in range(group.target):
                self.launch(group.name, boot_s=0.0)

    @property
    def now(self) -> float:
        return self.time.now

    def note(self, text: str) -> None:
        self.log.append(f"{datetime.fromtimestamp(self.now, UTC):%d %H:%M:%S} {text}")

    # -- nodes and jobs ---------------------------------------------------------------------------------------------

    def of(self, group: str) -> list[Node]:
        return [node for node in self.nodes if node.group == group and node.status != "gone"]

    def launch(self, group: str, boot_s: float | None = None) -> Node:
        """A new node, which joins after some minutes. It gets the image that is desired now."""
        number = len(self.nodes)
        boot = self.random.uniform(300, 900) if boot_s is None else boot_s
        node = Node(f"i-{number:017x}", group, number, self.now, self.now + boot, image=self.groups[group].desired)
        self.nodes.append(node)
        self.time.at(node.joins, lambda: self._join(node))
        return node

    def _join(self, node: Node) -> None:
        if node.status != "Pending":
            return
        node.status = "Running"
        self.note(f"{node.id} joins with {node.image}")
        self._next_job(node)

    def _next_job(self, node: Node) -> None:
        if self.groups[node.group].kind == "Compute":
            self.time.at(self.now + self.random.expovariate(1 / self.switches.gap_s), lambda: self._start_job(node))

    def _start_job(self, node: Node) -> None:
        if node.status != "Running" or node.job is not None or node.silent:
            return
        if not node.held_by:
            ends = self.now + self.random.uniform(*self.switches.job_s)
            node.job = job = Job(node, self.now, ends, self.random.random() < self.switches.protected)
            self.judge.job_began(job)
            self.time.at(ends, lambda: self.end_job(job, ""))
        else:
            self.time.at(self.now + 60, lambda: self._start_job(node))

    def end_job(self, job: Job, by: str) -> None:
        """By itself, or by somebody."""
        if job.node.job is not job:
            return
        job.node.job = None
        if by:
            self.note(f"a job on {job.node.id} is ended by {by}")
            self.judge.job_ended(job, by)
        self._next_job(job.node)

    def replace(self, node: Node) -> None:
        """HyperPod replaces a faulty node."""
        if not node.here:
            return
        self.note(f"HyperPod replaces {node.id}")
        self.terminate(node)
        self.launch(node.group)

    def terminate(self, node: Node) -> None:
        node.status, node.job = "ShuttingDown", None
        self.time.at(self.now + self.random.uniform(60, 600), lambda: setattr(node, "status", "gone"))

    # -- the update -------------------------------------------------------------------------------------------------

    def begin(self, group: Group, by: str, image: str) -> Update:
        """An accepted update."""
        group.update = update = Update(group.name, by, image, self.now)
        self.updates.append(update)
        self.note(f"an update of {group.name} to {image} by {by} is accepted")
        group.desired = image
        # Nodes that exist now, running or not, get the image; later ones have it.
        existing = [node for node in self.of(group.name) if node.here]
        needs = [node for node in existing if self.switches.same_again or node.image != image]
        skipped = sum(each.skipped != [] for each in self.updates)
        if self.switches.skips > skipped and needs:
            update.skipped = needs[:1]
        update.nodes = [node for node in needs if node not in update.skipped]
        self.time.at(self.now + self.switches.late_s, lambda: self._show(group, update))
        if not needs:
            update.ended = self.now
            group.update = None
            return update
        self.time.at(self.now + self.switches.pending_s, lambda: self._work(group, update))
        return update

    def _show(self, group: Group, update: Update) -> None:
        update.shown = True
        if update.ended is None and "group" in self.switches.shows:
            group.software = "InProgress"
        if update.ended is None and "status" in self.switches.shows:
            group.status = "SystemUpdating"
        if update.ended is not None and update.nodes and "group" in self.switches.shows:
            group.software = self.switches.ends

    def _work(self, group: Group, update: Update) -> None:
        update.began = self.now
        for number, node in enumerate(update.nodes):
            self.time.at(self.now + number * self.switches.apart_s, partial(self._re_image, group, update, node))
        if not update.nodes:
            self._finish(group, update)

    def _re_image(self, group: Group, update: Update, node: Node) -> None:
        if not node.here:
            self._check_end(group, update)
            return
        if node.status == "Pending":
            # It gets the image some minutes after it has joined.
            self.time.at(node.joins + self.random.uniform(60, 600), lambda: self._re_image(group, update, node))
            return
        self.note(f"{node.id} gets {update.image} by {update.by}")
        if node.job is not None:
            self.end_job(node.job, f"image of {update.by}")
        self.judge.re_imaged(node, update)
        node.status, node.image = "SystemUpdating", update.image
        self.time.at(self.now + self.switches.node_s, lambda: self._re_imaged(group, update, node))

    def _re_imaged(self, group: Group, update: Update, node: Node) -> None:
        if node.status == "SystemUpdating":
            node.status, node.updated = "Running", self.now
            update.done.add(node.id)
            self._next_job(node)
        self._check_end(group, update)

    def _check_end(self, group: Group, update: Update) -> None:
        if update.ended is None and all(node.id in update.done for node in update.nodes if node.here):
            self._finish(group, update)

    def _finish(self, group: Group, update: Update) -> None:
        if self.switches.ends == "RollbackComplete" and update.image == NEW and update.by != "autopatch":
            back = Update(
                group.name,
                update.by,
                OLD,
                update.accepted,
                began=self.now,
                shown=update.shown,
                nodes=list(update.nodes),
            )
            self.note(f"HyperPod puts {OLD} back")
            update.ended = self.now
            self.updates.append(back)
            group.update, group.desired, group.current_image = back, OLD, NEW
            # Nothing but this status tells a rollback from an update.
            group.software = "RollbackInProgress"
            for node in back.nodes:
                self._re_image(group, back, node)
            self._check_end(group, back)  # of no node, if the update skipped them all
            return
        update.ended = self.now
        group.update, group.current_image = None, update.image
        group.status = "InService"
        if (update.shown and "group" in self.switches.shows) or group.software == "RollbackInProgress":
            group.software = self.switches.ends if update.by != "autopatch" else "Succeeded"
        self.note(f"the update of {group.name} has ended")

    # -- others -----------------------------------------------------------------------------------------------------

    def resize(self, by: int) -> None:
        group = self.groups["work"]
        group.target += by
        for _ in range(by):
            self.launch("work")

    def delete_group(self) -> None:
        group = self.groups.pop("work", None)
        if group is not None:
            self.note("a colleague deletes group work")
            for node in self.of("work"):
                self.terminate(node)

    # -- S3 ---------------------------------------------------------------------------------------------------------

    def write(self, key: str, body: Any) -> None:
        """Bytes, or what becomes JSON as soon as somebody reads it."""
        self._versions += 1
        self.objects[key] = body, f"v{self._versions}"

    # -- DescribeCluster and its like --------------------------------------------------------------------------------

    def describe(self) -> Json:
        shows = self.switches.shows
        updates = [g.update for g in self.groups.values() if g.update and g.update.shown]
        return {
            "ClusterArn": f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:cluster/abcdefghijkl",
            "ClusterName": NAME,
            "ClusterStatus": "SystemUpdating" if updates and "cluster" in shows else "InService",
            "NodeProvisioningMode": "Continuous",
            "CreationTime": datetime(2026, 6, 1, tzinfo=UTC),
            "Orchestrator": {"Eks": {"ClusterArn": "x"}} if self.switches.eks else {"Slurm": {}},
            "InstanceGroups": [self._group(group) for group in self.groups.values()],
        }

    def _group(self, group: Group) -> Json:
        nodes = [node for node in self.of(group.name) if node.here or self.switches.counts_leaving]
        found: Json = {
            "InstanceGroupName": group.name,
            "InstanceType": "ml.p5.48xlarge",
            "CurrentCount": len(nodes),
            "TargetCount": group.target,
            "Status": group.status,
        }
        if not self.switches.eks:
            found["SlurmConfig"] = {"NodeType": group.kind}
        if group.software is not None:
            found["SoftwareUpdateStatus"] = group.software
        if self.switches.counts:
            found["TargetStateCount"] = sum(n.image == group.desired and n.status == "Running" for n in nodes)
        if self.switches.versions:
            found["CurrentImageReleaseVersion"] = group.current_image
            found["DesiredImageReleaseVersion"] = group.desired
            found["ImageVersionStatus"] = "UpToDate" if group.current_image == self.latest else "UpdateAvailable"
        return found

    def list_nodes(self, group: str | None) -> list[Json]:
        found = [n for n in self.nodes if n.status != "gone" and group in (None, n.group)]
        found = [n for n in found if n.launched + self.switches.list_lag_s <= self.now or n.launched == BEGIN]
        if len(found) > 1 and self.random.random() < self.switches.leaves_out:
            found.remove(self.random.choice(found))
        return [self._node(node) for node in found]

    def _node(self, node: Node) -> Json:
        group = self.groups.get(node.group)
        hides = "nodes" not in self.switches.shows or group is None or not (group.update and group.update.shown)
        status = "Running" if node.status == "SystemUpdating" and hides else node.status
        found: Json = {
            "InstanceGroupName": node.group,
            "InstanceId": node.id,
            "InstanceType": "ml.p5.48xlarge",
            "InstanceStatus": {"Status": "Failure" if node.silent and status == "Running" else status},
            "LaunchTime": datetime.fromtimestamp(node.launched, UTC),
        }
        if self.now > node.joins - 150:
            found["PrivateDnsHostname"] = f"{node.host}.ec2.internal"
        if self.switches.times and node.updated is not None:
            found["LastSoftwareUpdateTime"] = datetime.fromtimestamp(node.updated, UTC)
        if self.switches.versions:
            found["CurrentImageReleaseVersion"] = node.image
            found["ImageVersionStatus"] = "UpToDate" if node.image == self.latest else "UpdateAvailable"
        return found


def refused(code: str, message: str, operation: str, status: int = 400, retries: int = 0) -> ClientError:
    meta = {"HTTPStatusCode": status, "RetryAttempts": retries}
    return ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": meta}, operation)


@dataclass
class Credentials:
    """Whose calls these are: one process, which may die or lose its rights."""

    world: World
    before_call: Callable[[str], None]
    by: str = ""

    def client(self, service: str) -> Any:
        return _Client(self, service)


@dataclass
class _Client:
    of: Credentials
    service: str

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(**given: Any) -> Any:
            self.of.before_call(self.service)
            for begin, end, services in self.of.world.throttled:
                if begin <= self.of.world.now < end and self.service in services:
                    raise refused("ThrottlingException", "Rate exceeded", method)
            return getattr(self, f"_{method}")(**given)

        return call

    @property
    def _world(self) -> World:
        return self.of.world

    def _describe_cluster(self, ClusterName: str) -> Json:
        return self._world.describe()

    def _list_cluster_nodes(self, InstanceGroupNameContains: str | None = None, **_: object) -> Json:
        return {"ClusterNodeSummaries": self._world.list_nodes(InstanceGroupNameContains)}

    def _describe_cluster_node(self, NodeId: str, **_: object) -> Json:
        for node in self._world.nodes:
            if node.id == NodeId and node.status != "gone":
                address = (
                    node.host.removeprefix("ip-").replace("-", ".") if self._world.now > node.joins - 150 else None
                )
                return {"NodeDetails": {"InstanceGroupName": node.group, "PrivatePrimaryIp": address}}
        raise refused("ResourceNotFound", f"{NodeId} not found", "DescribeClusterNode")

    def _update_cluster_software(self, InstanceGroups: Json, **more: Json) -> Json:
        world, operation = self._world, "UpdateClusterSoftware"
        (asked,) = InstanceGroups
        group = world.groups.get(asked["InstanceGroupName"])
        if group is None:
            raise refused("ResourceNotFound", "no such group", operation)
        if group.update is not None:
            raise refused("ConflictException", "an update is in progress", operation)
        if world.random.random() < world.switches.lost_answers / 2:
            world.note("an update does not arrive")
            raise ReadTimeoutError(endpoint_url="https://sagemaker")
        image = asked.get("ImageReleaseVersion") or world.latest
        update = world.begin(group, self.of.by, image)
        world.judge.called(update)
        if world.random.random() < world.switches.lost_answers:
            world.note("the answer of the update is lost")
            if world.random.random() < 0.5:
                raise refused("ConflictException", "an update is in progress", operation, retries=1)
            raise ReadTimeoutError(endpoint_url="https://sagemaker")
        return {"ClusterArn": "arn"}

    def _list_cluster_events(self, **_: object) -> Json:
        return {"Events": []}

    def _list_tags(self, **_: object) -> Json:
        return {"Tags": []}

    def _describe_stacks(self, StackName: str) -> Json:
        return {"Stacks": [{"StackName": StackName, "StackStatus": self._world.stack}]}

    def _get_caller_identity(self) -> Json:
        return {"Account": ACCOUNT, "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/Operator/me"}

    def _simulate_principal_policy(self, **_: object) -> Json:
        raise refused(
            "AccessDenied", "not authorized to perform: iam:SimulatePrincipalPolicy", "SimulatePrincipalPolicy"
        )

    def _headers(self) -> Json:
        return {"HTTPHeaders": {"date": email.utils.formatdate(self._world.now, usegmt=True)}}

    def _get_object(self, Key: str, **_: object) -> Json:
        found = self._world.objects.get(Key)
        if found is None:
            error = refused("NoSuchKey", "not there", "GetObject")
            error.response["ResponseMetadata"] |= self._headers()
            raise error
        body = found[0] if isinstance(found[0], bytes) else json.dumps(found[0]).encode()
        return {
            "Body": io.BytesIO(body),
            "ContentLength": len(body),
            "ETag": found[1],
            "ResponseMetadata": self._headers(),
        }

    def _put_object(
        self, Key: str, Body: bytes, IfMatch: str | None = None, IfNoneMatch: str | None = None, **_: object
    ) -> Json:
        existing = self._world.objects.get(Key)
        if (existing and existing[1]) != IfMatch:
            raise refused("PreconditionFailed", "changed meanwhile", "PutObject", 412)
        self._world.write(Key, Body)
        return {}

    def _invoke(self, FunctionName: str, Payload: bytes) -> Json:
        if self._world.drainer is None:
            raise refused("ResourceNotFoundException", "no such function", "Invoke")
        answer = json.dumps(self._world.drainer(json.loads(Payload))).encode()
        return {"StatusCode": 200, "Payload": io.BytesIO(answer)}


def images(world: World, group: str) -> Iterator[str]:
    return (node.image for node in world.of(group) if node.here)
