"""How `patch` drains: by the agent on a Slurm controller (docs/adr/0014), or by the drainer of an EKS cluster (0015).

Both hold the nodes for a short lease, which each look renews.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..._lambda.hyperpod.kernel.drain_protocol import NodeRequest, Status, make_node_request, make_request
from ..._lambda.hyperpod.kernel.sentences import some
from ...config.cluster import ClusterConfig
from ...names import drainer_name
from .. import aws, tables
from ..live import Node, Target
from ..nodes.operator_channel import DrainError, OperatorChannel, StatusReading, clock, is_of_patch
from .model import LEASE_S, REQUEST_PREFIX, Hold, Report, Run
from .run_record import LOST, RENEW_S, from_json, is_lost, to_json

Record = dict[str, Any]
"""A run, or a node's request, as it is written."""
MOST_CLAIMS = 5
"""How often a claim is tried anew, if others write at the same moment."""

_HOST = re.compile(r"ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})")


class Drains:
    """What drains the nodes of a cluster: here nothing does, and only this machine has the run."""

    look_s = 60.0
    """Seconds between two looks: at most four calls a minute."""
    exists = False
    """Something drains the nodes."""

    def __init__(self, ahead: float = 0.0) -> None:
        """`ahead`: how far AWS's clock, which dates nodes and leases, is ahead of this machine's."""
        self._ahead = ahead

    def now(self) -> float:
        """The time that its requests are compared with, in seconds since 1970."""
        return tables.now().timestamp() + self._ahead

    def look(self) -> Report:
        """What it reports. Changes nothing."""
        return Report()

    def shared(self) -> Run | None:
        """The run that others can see. None: none, or nobody can see one."""
        return None

    def claim(self, choose: Callable[[Run | None, float], Run]) -> Run:
        """Write the run that `choose` makes of the one that others can see, and release what an earlier run held."""
        return choose(None, self.now())

    def save(self, run: Run) -> None:
        """Write the run, and go on holding the nodes."""

    def hold(self, run: Run, nodes: Sequence[Node], hold: Hold) -> Report:
        """Hold exactly these nodes, and return what is reported of them."""
        return Report()

    def release(self, run: Run, *, finished: bool) -> None:
        """Hold no node any more. `finished`: the run is over. Otherwise its record stays."""


def _renewed(run: Run, now: float) -> Record:
    return to_json(run) | {"until": now + LEASE_S}


def _request(run: Run, node: str, hold: Hold, now: float, **more: Any) -> Record:
    return make_node_request(
        NodeRequest(
            writer="operator",
            request_id=run.request_id,
            instance=node,
            deadline=hold.deadline,
            expires=hold.lease(now),
            force=hold.force,
            backup=True,
            **more,
        )
    )


# -- Slurm --------------------------------------------------------------------------------------------------------------


class AgentDrains(Drains):
    """The agent on the controller. Its requests are among the operators' (operator_channel)."""

    look_s = 90.0  # six calls, if it renews the lease
    exists = True

    def __init__(self, channel: OperatorChannel) -> None:
        super().__init__()
        self._channel = channel
        self._requested: dict[str, str] = {}
        """Node -> the id of the request that holds it: the run's own, or an operator's."""
        self._written: tuple[frozenset[str], Hold] | None = None
        self._lease = 0.0
        self._first_write: float | None = None
        self._silent_since: float | None = None
        self._addresses: dict[str, str] = {}

    def look(self) -> Report:
        return self._report(self._channel.read_status())

    def shared(self) -> Run | None:
        found, now = self._channel.read_run(from_json)
        self._ahead = now - tables.now().timestamp()
        return found

    def claim(self, choose: Callable[[Run | None, float], Run]) -> Run:
        chosen: list[Run] = []

        def do(existing: list[Record], found: object, now: float) -> tuple[list[Record], Record]:
            chosen[:] = [choose(from_json(found), now)]
            return existing, to_json(chosen[0])

        self._channel.change_run(do)
        return chosen[0]

    def save(self, run: Run) -> None:
        self._change(run, lambda existing, now: (existing, _renewed(run, now)))

    def hold(self, run: Run, nodes: Sequence[Node], hold: Hold) -> Report:
        wanted = (frozenset(node.name for node in nodes), hold)
        if wanted != self._written or self.now() > self._lease - RENEW_S:
            addresses = self._find_addresses(nodes)
            self._requested = self._change(
                run, lambda existing, now: (merge(existing, addresses, run, hold, now), _renewed(run, now))
            )
            # Not before: a renewal that failed is tried again.
            self._written, self._lease = wanted, self.now() + LEASE_S
            self._first_write = self._first_write or self.now()
        return self.look()

    def release(self, run: Run, *, finished: bool) -> None:
        self._change(run, lambda existing, now: (_of_others(existing), None if finished else to_json(run)))
        self._written, self._requested = None, {}

    def _change(
        self, run: Run, do: Callable[[list[Record], float], tuple[list[Record], Record | None]]
    ) -> dict[str, str]:
        """Change the request, unless another process has gone on with the run. Returns the id of the request of each node."""

        def change(existing: list[Record], found: object, now: float) -> tuple[list[Record], Record | None]:
            if is_lost(from_json(found), run):
                raise LOST
            return do(existing, now)

        return {each["id"]: each["request"] for each in self._channel.change_run(change)}

    def _find_addresses(self, nodes: Sequence[Node]) -> dict[str, str]:
        """By node. The name of a node in its VPC has its address in it; of other names HyperPod is asked."""
        for node in nodes:
            found = _HOST.fullmatch(node.host or "")
            if node.name not in self._addresses and found:
                self._addresses[node.name] = ".".join(found.groups())
        missing = [node.name for node in nodes if node.name not in self._addresses and node.status == "Running"]
        if missing:
            self._addresses |= self._channel.addresses(missing)
        # A node that is about to join is held as soon as it has an address.
        return {node.name: self._addresses[node.name] for node in nodes if node.name in self._addresses}

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
            # An old status says nothing about the queue of now.
            queue=None if reading.silence else status.queue,
            **_common(status),
        )

    def _refusal(self, status: Status) -> str:
        """An older status may be about the request before this run's."""
        is_newer = self._first_write is not None and status.beat is not None and status.beat > self._first_write + 1
        return status.refused.get("operator", "") if is_newer else ""


def _common(status: Status) -> dict[str, Any]:
    """What a report has of every status."""
    return {
        "problem": status.problem,
        "held_by_deployment": tuple(node for node, one in status.nodes.items() if "deployment" in one.requests),
        "busy": {node: tuple(job.title for job in jobs) for node, jobs in status.busy.items()},
        "saves": status.backup is not None,
        "is_read": True,
    }


def merge(existing: Sequence[Record], addresses: Mapping[str, str], run: Run, hold: Hold, now: float) -> list[Record]:
    """The operators' request with a run's nodes. Requests of `drain` stay, also of the same nodes (operator_channel.unite)."""
    # A backup gets the time of the hold, and not just the lease.
    own = [_request(run, node, hold, now, address=address, limit=hold.until) for node, address in addresses.items()]
    # A process that goes on with an update may have read a list that leaves a node out.
    is_kept = hold.updates or hold.kept is not None
    kept = [each for each in existing if is_kept and is_of_patch(each) and each["id"] not in addresses]
    return [*_of_others(existing), *kept, *own]


def _of_others(existing: Sequence[Record]) -> list[Record]:
    return [each for each in existing if not is_of_patch(each)]


# -- EKS ----------------------------------------------------------------------------------------------------------------


class DrainerDrains(Drains):
    """The drainer, which works only while it is called."""

    def __init__(self, target: Target, config: ClusterConfig, run_id: str = "") -> None:
        from ..._lambda.hyperpod.scale_down.drain.channels import FunctionChannel

        super().__init__()
        self._channel = FunctionChannel(drainer_name(target.name), target.name, lambda: target.client("lambda"))
        drain = config.scale_down.drain if config.scale_down else None
        self._evicts_unmanaged = drain is not None and drain.unmanaged_pods == "evict"
        self._own = run_id and f"{REQUEST_PREFIX}{run_id}"
        self._silent_since: float | None = None
        self._version = ""
        """Of the run that the drainer keeps, as it was read last. Empty: it keeps none."""
        self._shared: Run | None = None
        """The run that it keeps."""
        self._last = Report()
        """Of the last call."""
        self.exists = True

    def look(self) -> Report:
        return self._ask(None)

    def shared(self) -> Run | None:
        self._ask(None)
        return self._shared

    def claim(self, choose: Callable[[Run | None, float], Run]) -> Run:
        for _ in range(MOST_CLAIMS):
            self._read_kept()
            run = choose(self._shared, self.now())
            if self._write(run, to_json(run), None):
                self._own = run.request_id
                return run
        raise DrainError("nothing was changed: others change the run at the same time. Try again", is_passing=True)

    def save(self, run: Run) -> None:
        self._change(run, _renewed(run, self.now()), None)

    def hold(self, run: Run, nodes: Sequence[Node], hold: Hold) -> Report:
        self._own, now = run.request_id, self.now()
        more = {"address": "", "evict_unmanaged": self._evicts_unmanaged}
        try:
            self._change(run, _renewed(run, now), [_request(run, node.name, hold, now, **more) for node in nodes])
        except DrainError:
            if not self._last.silence:
                raise
        return self._last

    def release(self, run: Run, *, finished: bool) -> None:
        if not self._own:
            return
        if not self._version:
            self._read_kept()
        if not self._change(run, None if finished else to_json(run), []):
            raise DrainError(f"the drainer refuses the release: {self._last.refused}")
        if self._last.problem:
            raise DrainError(f"the drainer reports: {self._last.problem}")

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

    def _change(self, run: Run, record: Record | None, nodes: Sequence[Record] | None) -> bool:
        """Whether the drainer has written the record, and done what the requests ask. False: it refuses them. Raises AnotherRunError if
        the run is another process's by now, and DrainError if that is not known."""
        for _ in range(2):
            # A look may have read the version of another's record.
            if not is_lost(self._shared, run) and self._write(run, record, nodes):
                return True
            refused = self._last
            # An answer that was lost leaves this process behind its own record.
            self._read_kept()
        if is_lost(self._shared, run):
            raise LOST
        self._last = refused
        return False

    def _write(self, run: Run, record: Record | None, nodes: Sequence[Record] | None) -> bool:
        requests = None if nodes is None else {"operator": make_request(run.request_id, nodes)}
        report = self._ask(requests, {"version": self._version, "record": record})
        if report.silence:
            raise DrainError(f"the drainer {report.silence}", is_passing=True)
        return not report.refused

    def _ask(self, requests: Mapping[str, Any] | None, run: Mapping[str, Any] | None = None) -> Report:
        """Raises ClientError if AWS refuses the call for good."""
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        try:
            status = self._channel.ask(requests, run=run)
        except ClientError as error:
            self.exists = not aws.is_gone(error)
            if self.exists and not aws.is_passing(error):
                raise
            return self._silence(f"does not answer: {aws.sentence(error)}" if self.exists else "does not exist")
        except BotoCoreError as error:
            if type(error).__name__ != "UnansweredError":
                raise
            return self._silence(f"does not answer: {error}")
        self._silent_since = None
        self._version, self._shared = status.run_version, from_json(status.run)
        self._last = self._report(status)
        return self._last

    def _silence(self, why: str) -> Report:
        now = self.now()
        self._silent_since = now if self._silent_since is None else self._silent_since
        self._last = Report(silence=why, silent_s=now - self._silent_since)
        return self._last

    def _report(self, status: Status) -> Report:
        if status.beat is not None:
            self._ahead = status.beat - tables.now().timestamp()
        held_for = {name: node.requests.get("operator", "") for name, node in status.nodes.items()}
        runs = {*held_for.values()} - {self._own, ""}
        return Report(
            nodes={name: node for name, node in status.nodes.items() if held_for[name] == self._own},
            refused=status.refused.get("operator", ""),
            other_run=some(sorted(run.removeprefix(REQUEST_PREFIX) for run in runs), 1),
            **_common(status),
        )


def open_drains(target: Target, config: ClusterConfig, described: Mapping[str, Any]) -> Drains:
    """What drains the nodes of this cluster."""
    if config.orchestrator == "eks":
        return DrainerDrains(target, config)
    if config.slurm is None or config.slurm.drain is None:
        return nothing_drains(described)
    return AgentDrains(OperatorChannel(target, str(described["ClusterArn"]).split(":")[4]))


def nothing_drains(described: Mapping[str, Any]) -> Drains:
    """By HyperPod's clock, which dates nodes and their updates."""
    return Drains(clock(described) - tables.now().timestamp())
