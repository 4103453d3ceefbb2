"""How `patch` drains: by the agent on a Slurm controller (docs/adr/0014), or by the drainer of an EKS cluster (0015).

Both hold the nodes for a short lease, which each look renews.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..._lambda.hyperpod.common.drain_protocol import NodeRequest, Status, make_node_request, make_request
from ..._lambda.hyperpod.common.sentences import some
from ...config.cluster import ClusterConfig
from ...names import drainer_name
from .. import aws, tables
from ..live import Target
from ..nodes.operator_channel import DrainError, OperatorChannel, StatusReading, clock, is_of_patch
from .model import LEASE_S, REQUEST_PREFIX, Hold, Node, Report, Run
from .run_record import LOST, RENEW_S, from_json, is_lost, to_json

Requests = Sequence[dict[str, Any]] | None
"""Requests of nodes. None: nothing is asked of any node."""
MOST_CLAIMS = 5
"""How often a claim is tried anew, if others write at the same moment."""

_HOST = re.compile(r"ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})")


class Drains(Protocol):
    """What drains the nodes of a cluster."""

    def now(self) -> float:
        """The time that its requests are compared with, in seconds since 1970."""

    def look(self) -> Report:
        """What it reports. Changes nothing."""

    def shared(self) -> Run | None:
        """The run that others can see. None: none, or nobody can see one."""

    def claim(self, choose: Callable[[Run | None, float], Run]) -> Run:
        """Write the run that `choose` makes of the one that others can see, and release what an earlier run held."""

    def save(self, run: Run) -> None:
        """Write the run, and go on holding the nodes."""

    def is_due(self) -> bool:
        """Whether the next `hold` renews a lease by calls of its own."""

    def hold(self, run: Run, nodes: Sequence[Node], hold: Hold) -> Report:
        """Hold exactly these nodes, and return what is reported of them."""

    def release(self, run: Run, *, finished: bool) -> None:
        """Hold no node any more. `finished`: the run is over. Otherwise its record stays."""


class NoDrains:
    """Nothing drains the nodes."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self._ahead = clock(described) - tables.now().timestamp()
        """How far HyperPod's clock is ahead of this machine's: it dates nodes and their updates."""

    def now(self) -> float:
        return tables.now().timestamp() + self._ahead

    def look(self) -> Report:
        return Report()

    def shared(self) -> Run | None:
        return None

    def claim(self, choose: Callable[[Run | None, float], Run]) -> Run:
        return choose(None, self.now())

    def save(self, run: Run) -> None:
        """Only this machine has the run."""

    def is_due(self) -> bool:
        return False

    def hold(self, run: Run, nodes: Sequence[Node], hold: Hold) -> Report:
        return Report()

    def release(self, run: Run, *, finished: bool) -> None:
        """Nothing is held."""


# -- Slurm --------------------------------------------------------------------------------------------------------------


class AgentDrains:
    """The agent on the controller. Its requests are among the operators' (operator_channel)."""

    def __init__(self, channel: OperatorChannel) -> None:
        self._channel = channel
        self._requested: dict[str, str] = {}
        """Node -> the id of the request that holds it: the run's own, or an operator's."""
        self._written: tuple[frozenset[str], Hold] | None = None
        self._lease = 0.0
        self._ahead = 0.0
        """How far S3's clock is ahead of this machine's."""
        self._first_write: float | None = None
        self._silent_since: float | None = None
        self._addresses: dict[str, str] = {}

    def now(self) -> float:
        return tables.now().timestamp() + self._ahead

    def look(self) -> Report:
        return self._report(self._channel.read_status())

    def shared(self) -> Run | None:
        found, now = self._channel.read_run(from_json)
        self._ahead = now - tables.now().timestamp()
        return found

    def claim(self, choose: Callable[[Run | None, float], Run]) -> Run:
        chosen: list[Run] = []

        def do(
            existing: list[dict[str, Any]], found: object, now: float
        ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
            chosen[:] = [choose(from_json(found), now)]
            return existing, to_json(chosen[0])

        self._channel.change_run(do)
        return chosen[0]

    def save(self, run: Run) -> None:
        def do(
            existing: list[dict[str, Any]], found: object, now: float
        ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
            _refuse_loss(found, run)
            return existing, to_json(run) | {"until": now + LEASE_S}

        self._channel.change_run(do)

    def is_due(self) -> bool:
        return self.now() > self._lease - RENEW_S

    def hold(self, run: Run, nodes: Sequence[Node], hold: Hold) -> Report:
        wanted = (frozenset(node.id for node in nodes), hold)
        if wanted != self._written or self.is_due():
            self._write(run, nodes, hold)
            self._written = wanted
        return self.look()

    def _write(self, run: Run, nodes: Sequence[Node], hold: Hold) -> None:
        addresses = self._find_addresses(nodes)
        written: list[float] = []

        def do(
            existing: list[dict[str, Any]], found: object, now: float
        ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
            _refuse_loss(found, run)
            written[:] = [now + LEASE_S]
            return merge(existing, addresses, run, hold, now), to_json(run) | {"until": now + LEASE_S}

        self._requested = {each["id"]: each["request"] for each in self._channel.change_run(do)}
        # Not before: a renewal that failed is tried again.
        (self._lease,) = written
        if self._first_write is None:
            self._first_write = self.now()

    def _find_addresses(self, nodes: Sequence[Node]) -> dict[str, str]:
        """By node. The name of a node in its VPC has its address in it; of other names HyperPod is asked."""
        for node in nodes:
            found = _HOST.fullmatch(node.host or "")
            if node.id not in self._addresses and found:
                self._addresses[node.id] = ".".join(found.groups())
        missing = [node.id for node in nodes if node.id not in self._addresses and node.status == "Running"]
        if missing:
            self._addresses |= self._channel.addresses(missing)
        # A node that is about to join is held as soon as it has an address.
        return {node.id: self._addresses[node.id] for node in nodes if node.id in self._addresses}

    def release(self, run: Run, *, finished: bool) -> None:
        def do(
            existing: list[dict[str, Any]], found: object, now: float
        ) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
            _refuse_loss(found, run)
            return _of_others(existing), None if finished else to_json(run)

        self._channel.change_run(do)
        self._written, self._requested = None, {}

    def _report(self, reading: StatusReading) -> Report:
        self._ahead = reading.now - tables.now().timestamp()
        if not reading.silence:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = reading.now - (reading.status.age(reading.now) or 0.0)
        status = reading.status
        return Report(
            nodes={
                node: one
                for node, one in status.nodes.items()
                if node in self._requested and one.requests.get("operator") == self._requested[node]
            },
            silence=reading.silence,
            silent_s=0.0 if self._silent_since is None else reading.now - self._silent_since,
            refused=self._refusal(status),
            problem=status.problem,
            held_by_deployment=tuple(node for node, one in status.nodes.items() if "deployment" in one.requests),
            busy={node: tuple(job.title for job in jobs) for node, jobs in status.busy.items()},
            # An old status says nothing about the queue of now.
            queue=None if reading.silence else status.queue,
            saves=status.backup is not None,
            is_read=True,
        )

    def _refusal(self, status: Status) -> str:
        """An older status may be about the request before this run's."""
        is_newer = self._first_write is not None and status.beat is not None and status.beat > self._first_write + 1
        return status.refused.get("operator", "") if is_newer else ""


def _refuse_loss(found: object, run: Run) -> None:
    if is_lost(from_json(found), run):
        raise LOST


def merge(
    existing: Sequence[dict[str, Any]], addresses: Mapping[str, str], run: Run, hold: Hold, now: float
) -> list[dict[str, Any]]:
    """The operators' request with a run's nodes. Requests of `drain` stay, also of the same nodes (operator_channel.unite)."""
    lease = hold.lease(now)
    own = [
        make_node_request(
            NodeRequest(
                writer="operator",
                request_id=run.request_id,
                instance=node,
                address=address,
                deadline=hold.deadline,
                expires=lease,
                force=hold.force,
                backup=True,
                # A backup gets this time, and not just the lease.
                limit=hold.until,
            )
        )
        for node, address in addresses.items()
    ]
    # A process that goes on with an update may have read a list that leaves a node out.
    kept = [each for each in existing if hold.updates and is_of_patch(each) and each["id"] not in addresses]
    return [*_of_others(existing), *kept, *own]


def _of_others(existing: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in existing if not is_of_patch(each)]


# -- EKS ----------------------------------------------------------------------------------------------------------------


class DrainerDrains:
    """The drainer, which works only while it is called."""

    def __init__(self, target: Target, config: ClusterConfig, run_id: str = "") -> None:
        from ..._lambda.hyperpod.scale_down.drain.channels import FunctionChannel

        self._name = drainer_name(target.name)
        self._channel = FunctionChannel(self._name, target.name, lambda: target.client("lambda"))
        drain = config.scale_down.drain if config.scale_down else None
        self._evicts_unmanaged = drain is not None and drain.unmanaged_pods == "evict"
        self._own = run_id and f"{REQUEST_PREFIX}{run_id}"
        self._ahead = 0.0
        """How far the drainer's clock is ahead of this machine's: it compares leases with its own."""
        self._silent_since: float | None = None
        self._silent_report: Report | None = None
        self._version = ""
        """Of the run that the drainer keeps, as it was read last. Empty: it keeps none."""
        self._shared: Run | None = None
        """The run that it keeps."""
        self._last = Report()
        """Of the last change."""
        self.exists = True
        """False: the last call found that there is no such function."""

    def now(self) -> float:
        return tables.now().timestamp() + self._ahead

    def look(self) -> Report:
        return self._ask(None)

    def shared(self) -> Run | None:
        self._ask(None)
        return self._shared

    def claim(self, choose: Callable[[Run | None, float], Run]) -> Run:
        for _ in range(MOST_CLAIMS):
            self._read_kept()
            run = choose(self._shared, self.now())
            if not self._write(run, to_json(run), None).refused:
                self._own = run.request_id
                return run
        raise DrainError("nothing was changed: others change the run at the same time. Try again", is_passing=True)

    def save(self, run: Run) -> None:
        if not self._change_run(run, to_json(run) | {"until": self.now() + LEASE_S}):
            raise LOST

    def _read_kept(self) -> None:
        """Raises DrainError if the drainer cannot keep a run."""
        report = self._ask(None)
        if report.silence:
            raise DrainError(f"nothing was changed: the drainer {report.silence}", is_passing=True)
        if not self._version:
            raise DrainError(
                "nothing was changed: the deployed drainer cannot keep the run, so two operators could patch at once. Deploy the "
                "file with this version first, then patch"
            )

    def _change_run(self, run: Run, record: dict[str, Any] | None, nodes: Requests = None) -> bool:
        """Whether the drainer has written the record, and done what the requests ask. False: it refuses them, or the run is another
        process's by now. Raises DrainError if that is not known."""
        for _ in range(2):
            # A look may have read the version of another's record.
            if is_lost(self._shared, run):
                return False
            if not self._write(run, record, nodes).refused:
                return True
            # An answer that was lost leaves this process behind its own record.
            self._read_kept()
        return False

    def _write(self, run: Run, record: dict[str, Any] | None, nodes: Requests) -> Report:
        requests = None if nodes is None else {"operator": make_request(run.request_id, nodes)}
        report = self._ask(requests, {"version": self._version, "record": record})
        if report.silence:
            raise DrainError(f"the drainer {report.silence}", is_passing=True)
        self._last = report
        return report

    def is_due(self) -> bool:
        """Its every look renews the lease."""
        return False

    def hold(self, run: Run, nodes: Sequence[Node], hold: Hold) -> Report:
        self._own = run.request_id
        requests = [
            make_node_request(
                NodeRequest(
                    writer="operator",
                    request_id=run.request_id,
                    instance=node.id,
                    address="",
                    deadline=hold.deadline,
                    expires=hold.lease(self.now()),
                    force=hold.force,
                    backup=True,
                    evict_unmanaged=self._evicts_unmanaged,
                )
            )
            for node in nodes
        ]
        record = to_json(run) | {"until": self.now() + LEASE_S}
        try:
            has_held = self._change_run(run, record, requests)
        except DrainError:
            # Its silence counts from the first look without an answer.
            return self._silent_report or self._ask(None)
        if not has_held:
            if is_lost(self._shared, run):
                raise LOST
            return self._last
        return self._last

    def release(self, run: Run, *, finished: bool) -> None:
        if not self._own:
            return
        if not self._version:
            self._read_kept()
        if not self._change_run(run, None if finished else to_json(run), []):
            if is_lost(self._shared, run):
                raise LOST
            raise DrainError(f"the drainer refuses the release: {self._last.refused}")
        if self._last.problem:
            raise DrainError(f"the drainer reports: {self._last.problem}")

    def _ask(self, requests: Mapping[str, Any] | None, run: Mapping[str, Any] | None = None) -> Report:
        """Raises ClientError if AWS refuses the call for good."""
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        try:
            status = self._channel.ask(requests, run=run)
        except ClientError as error:
            if aws.is_gone(error):
                self.exists = False
                return self._silence("does not exist")
            if not aws.is_passing(error):
                raise
            return self._silence(f"does not answer: {aws.sentence(error)}")
        except BotoCoreError as error:
            if not hasattr(error, "fmt") or type(error).__name__ != "UnansweredError":
                raise
            return self._silence(f"does not answer: {error}")
        self._silent_since = self._silent_report = None
        self._version, self._shared = status.run_version, from_json(status.run)
        return self._report(status)

    def _silence(self, why: str) -> Report:
        now = self.now()
        if self._silent_since is None:
            self._silent_since = now
        self._silent_report = Report(silence=why, silent_s=now - self._silent_since)
        return self._silent_report

    def _report(self, status: Status) -> Report:
        if status.beat is not None:
            self._ahead = status.beat - tables.now().timestamp()
        held_for = {name: node.requests.get("operator", "") for name, node in status.nodes.items()}
        runs = {*held_for.values()} - {self._own, ""}
        return Report(
            nodes={name: node for name, node in status.nodes.items() if held_for[name] == self._own},
            refused=status.refused.get("operator", ""),
            problem=status.problem,
            held_by_deployment=tuple(name for name, node in status.nodes.items() if "deployment" in node.requests),
            other_run=some(sorted(run.removeprefix(REQUEST_PREFIX) for run in runs), 1),
            busy={node: tuple(job.title for job in jobs) for node, jobs in status.busy.items()},
            saves=status.backup is not None,
            is_read=True,
        )


def open_drains(target: Target, config: ClusterConfig, described: Mapping[str, Any]) -> Drains:
    """What drains the nodes of this cluster."""
    if config.orchestrator == "eks":
        return DrainerDrains(target, config)
    if config.slurm is None or config.slurm.drain is None:
        return NoDrains(described)
    return AgentDrains(OperatorChannel(target, str(described["ClusterArn"]).split(":")[4]))
