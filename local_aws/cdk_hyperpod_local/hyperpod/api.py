"""The simulated HyperPod control plane: one object with one entry point for all calls."""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from . import (
    api_shapes,
    automatic_updates,
    batch,
    cluster_operations,
    clusters,
    limits,
    nodes,
    notices,
    provisioning,
    saved_state,
    software_update,
    tagging,
    update,
)
from .behaviour import Behaviour, Timings
from .clock import Clock, ManualClock
from .context import Context, find_node
from .errors import ApiError, CallerKilled, LostReplyError
from .faults import Faults
from .journal import MUTATING, Call, count_changes
from .notices import BusEvent, LogRecord
from .outside import Outside
from .state import CapacityChange, Cluster, Fault, HyperPodState, Json, Node, Place, Plan, ReImage, Termination

if TYPE_CHECKING:
    from .client import Client

Operation = Callable[[Context, Json], Json]

OPERATIONS: Mapping[str, Operation] = {
    "AddTags": tagging.add_tags,
    "BatchAddClusterNodes": batch.batch_add_cluster_nodes,
    "BatchDeleteClusterNodes": batch.batch_delete_cluster_nodes,
    "BatchRebootClusterNodes": batch.batch_reboot_cluster_nodes,
    "BatchReplaceClusterNodes": batch.batch_replace_cluster_nodes,
    "CreateCluster": clusters.create_cluster,
    "DeleteCluster": clusters.delete_cluster,
    "DeleteTags": tagging.delete_tags,
    "DescribeCluster": clusters.describe_cluster,
    "DescribeClusterEvent": nodes.describe_cluster_event,
    "DescribeClusterNode": nodes.describe_cluster_node,
    "DescribeClusterOperation": cluster_operations.describe_cluster_operation,
    "DescribeTrainingPlan": clusters.describe_training_plan,
    "ListClusterEvents": nodes.list_cluster_events,
    "ListClusterNodes": nodes.list_cluster_nodes,
    "ListClusterOperations": cluster_operations.list_cluster_operations,
    "ListClusters": clusters.list_clusters,
    "ListTags": tagging.list_tags,
    "ListTrainingPlans": clusters.list_training_plans,
    "StartClusterHealthCheck": clusters.start_cluster_health_check,
    "UpdateCluster": update.update_cluster,
    "UpdateClusterSoftware": software_update.update_cluster_software,
}
"""Every operation that is served."""

ACCOUNT = "000000000000"
REGION = "us-west-2"


class HyperPod:
    """A control plane with documented behaviour, a clock that is passed to it, and a journal of its calls.

    Time passes only when it is used: every call first performs what became due since the last call.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        seed: int = 0,
        behaviour: Behaviour | None = None,
        faults: Faults | None = None,
        timings: Timings | None = None,
        outside: Outside | None = None,
        on_call: Callable[[Call], None] | None = None,
    ) -> None:
        """Absent: a ManualClock, the likely behaviour, no faults, durations as reported, no alarms and pods, and no
        `on_call`.

        `seed` determines every id and every random choice. `on_call` gets every finished call, in order, before its
        reply is sent. If it raises an exception, the caller gets that instead of the reply.
        """
        self.clock: Clock = clock or ManualClock()
        self.on_call = on_call
        self.journal: list[Call] = []
        self._lock = threading.RLock()
        self._state = HyperPodState(
            behaviour=behaviour or Behaviour(), timings=timings or Timings(), faults=faults or Faults(), seed=seed,
            now=self.clock.now(), outside=outside or Outside(),
        )  # fmt: skip

    # --- calls ---

    def call(
        self,
        operation: str,
        params: Mapping[str, Any],
        *,
        principal: str = "arn:aws:iam::000000000000:root",
        account: str = ACCOUNT,
        region: str = REGION,
    ) -> Json:
        """Serve one API call. The response has boto3's types (datetimes in UTC, no absent members).

        Raises ApiError. If faults require it, raises LostReplyError or CallerKilled after the call took effect.
        """
        with self._lock:
            self.tick()
            state = self._state
            request: Json = {"operation": operation, "principal": principal, "params": _plain(params)}
            try:
                response = self._serve(
                    operation, params, Context(state=state, principal=principal, account=account, region=region)
                )
            except ApiError as error:
                self._record(request, outcome=error.code, message=error.message)
                self._finish(request, changed=False)
                raise
            self._record(request, outcome="ok", message="")
            self._finish(request, changed=operation in MUTATING)
            return response

    def _serve(self, operation: str, params: Mapping[str, Any], context: Context) -> Json:
        state = self._state
        serve = OPERATIONS.get(operation)
        if serve is None:
            raise ApiError("UnknownOperationException", f"The operation {operation} is not served by this simulation")
        resource = params.get("ClusterName") or params.get("ResourceArn") or "*"
        state.faults.before(operation, context.principal, str(resource), state.now, self._luck())
        state.call = len(self.journal) + 1
        try:
            answer = serve(context, api_shapes.request(operation, params))
            if operation in MUTATING:
                provisioning.settle(state)
        finally:
            state.call = None
        return api_shapes.response(operation, answer)

    def _luck(self) -> Random:
        """Randomness for faults, separate from the state's: a fault's chance must not change which nodes are
        terminated."""
        return Random(f"{self._state.seed}:fault:{len(self.journal)}")

    def _record(self, request: Json, *, outcome: str, message: str) -> None:
        number = len(self.journal) + 1
        self.journal.append(Call(number=number, at=self._state.now, outcome=outcome, message=message, **request))

    def _finish(self, request: Json, *, changed: bool) -> None:
        """Record the call and report it to `on_call`, or lose its reply."""
        try:
            self._state.faults.after(changed=changed, random=self._luck())
        except LostReplyError:
            self.journal[-1] = replace(self.journal[-1], reply="lost")
            raise
        except CallerKilled:
            self.journal[-1] = replace(self.journal[-1], reply="killed")
            raise
        finally:
            if self.on_call:
                self.on_call(self.journal[-1])

    def client(
        self, *, principal: str = "arn:aws:iam::000000000000:root", account: str = ACCOUNT, region: str = REGION
    ) -> Client:
        """A replacement of boto3.client("sagemaker") in this process. It never retries and has no paginators."""
        from .client import Client

        return Client(self, principal=principal, account=account, region=region)

    # --- time, capacity, and other things that come from outside ---

    def tick(self) -> None:
        """Perform everything that is due by now. Every call does so by itself."""
        with self._lock:
            provisioning.advance(self._state, self.clock.now())

    def set_capacity(self, instance_type: str, limit: int | None, *, at: float | None = None) -> None:
        """Set how many instances of the type are available in all, from `at` on (seconds since 1970; absent: now). None:
        no limit.

        Running instances count, and are never terminated by this. If two values are set for the same time, the later
        one wins.
        """
        with self._lock:
            self.tick()
            state = self._state
            state.capacity.append(
                CapacityChange(at=state.now if at is None else at, instance_type=instance_type, limit=limit)
            )
            provisioning.settle(state)

    def set_quota(self, instance_type: str, limit: int | None) -> None:
        """The quota "<type> for cluster usage"; None: no quota. Exceeding it is ResourceLimitExceeded."""
        self.set_named_quota(limits.usage_name(instance_type, spot=False), limit)

    def set_named_quota(self, name: str, limit: int | None) -> None:
        """Set a quota by its name in Service Quotas (`limits`); None: no quota."""
        if limit is None:
            self._state.quotas.pop(name, None)
        else:
            self._state.quotas[name] = limit

    @property
    def quotas(self) -> Mapping[str, int]:
        """The quotas that are set, by name."""
        return dict(self._state.quotas)

    def set_plan(self, plan: Plan) -> None:
        """Add a training plan of the account. After the first one, plans that were not added are unknown."""
        self._state.plans[plan.arn] = plan

    def set_subnet(self, subnet_id: str, place: Place) -> None:
        """Set a subnet's zone, types and free addresses. Subnets that were not set are not checked."""
        self._state.subnets[subnet_id] = place

    def release_image(self, version: str, *, older: str = "UpdateAvailable") -> None:
        """Publish a newer platform image. New groups and UpdateClusterSoftware use it.

        `older`: the ImageVersionStatus of all older ones.
        """
        with self._lock:
            self.tick()
            self._state.image, self._state.older_images = version, older
            automatic_updates.note_release(self._state)
            provisioning.settle(self._state)

    def change_node(self, node_id: str, **changes: Any) -> None:
        """Change a node, by the field names of `Node`: status="Failure" makes it a failed one.

        KeyError if the node does not exist (instance id or logical id).
        """
        with self._lock:
            self.tick()
            for cluster in self._state.clusters.values():
                for node in list(cluster.nodes.values()):
                    if node_id in (node.instance_id, node.logical_id):
                        cluster.nodes[node.logical_id] = replace(node, **{"due": None, **changes})
                        provisioning.settle(self._state)
                        return
            raise KeyError(node_id)

    def report_fault(self, node_id: str, fault: Fault) -> None:
        """Let the health monitoring agent find a fault on a node (instance id). KeyError if the node does not exist."""
        with self._lock:
            self.tick()
            for cluster in self._state.clusters.values():
                node = find_node(cluster, node_id)
                if node is not None:
                    cluster.nodes[node.logical_id] = notices.report_fault(self._state, cluster, node, fault)
                    provisioning.settle(self._state)
                    return
            raise KeyError(node_id)

    def take_notices(self) -> list[BusEvent | LogRecord]:
        """What HyperPod has sent to EventBridge and CloudWatch Logs since the last call, oldest first."""
        with self._lock:
            self.tick()
            taken = list(self._state.notices)
            self._state.notices.clear()
            return [item for notice in taken for item in notices.written_out(self._state, notice)]

    # --- what tests look at ---

    @property
    def behaviour(self) -> Behaviour:
        """The switches. They can be replaced at any time."""
        return self._state.behaviour

    @behaviour.setter
    def behaviour(self, value: Behaviour) -> None:
        self._state.behaviour = value

    @property
    def faults(self) -> Faults:
        """The faults. Change their fields, or replace the object."""
        return self._state.faults

    @faults.setter
    def faults(self, value: Faults) -> None:
        self._state.faults = value

    @property
    def timings(self) -> Timings:
        """Durations of operations that begin from now on. They can be replaced."""
        return self._state.timings

    @timings.setter
    def timings(self, value: Timings) -> None:
        self._state.timings = value

    @property
    def terminations(self) -> tuple[Termination, ...]:
        """Every termination of a node, and every cancelled request, in order, with its cause."""
        return tuple(self._state.terminations)

    @property
    def re_images(self) -> tuple[ReImage, ...]:
        """Every replacement of a node's root volume by a software update, in order."""
        return tuple(self._state.re_images)

    @property
    def outside(self) -> Outside:
        """CloudWatch's alarms, pods, and the nodes' own scripts. It can be replaced."""
        return self._state.outside

    @outside.setter
    def outside(self, value: Outside) -> None:
        self._state.outside = value

    @property
    def next_event(self) -> float | None:
        """When the next event happens by itself, in seconds since 1970. None: nothing happens before the next call."""
        return self._state.wake

    @property
    def random_terminations(self) -> tuple[Termination, ...]:
        """Nodes with an instance that UpdateCluster terminated at random. Cancelled requests are not among them."""
        return tuple(t for t in self._state.terminations if t.cause == "random" and t.node_id)

    def cluster(self, name_or_arn: str, *, account: str = ACCOUNT, region: str = REGION) -> Cluster:
        """The cluster's current state, read-only. Raises ApiError ResourceNotFound."""
        self.tick()
        return Context(state=self._state, principal="", account=account, region=region).cluster(name_or_arn)

    def nodes(self, name_or_arn: str, group: str | None = None) -> tuple[Node, ...]:
        """The cluster's nodes, including those that no list shows; of one group (absent: of all)."""
        return tuple(node for node in self.cluster(name_or_arn).nodes.values() if group in (None, node.group))

    def changes(self, *, since: int = 0, principal: str | None = None) -> Counter[str]:
        """Mutating calls that took effect, by operation: after call number `since`, of `principal` (absent: of all)."""
        return count_changes(self.journal, since=since, principal=principal)

    # --- state that outlives the process ---

    def to_json(self) -> str:
        """Everything but the clock and `on_call`, as one line of JSON."""
        with self._lock:
            self.tick()
            return saved_state.dump(self._state, self.journal)

    @classmethod
    def from_json(
        cls, text: str, *, clock: Clock | None = None, on_call: Callable[[Call], None] | None = None
    ) -> HyperPod:
        """The control plane that `to_json` wrote. Absent clock: a ManualClock with the time of the saved one.

        What became due on another clock in the meantime happens at the next call. ValueError for any other text.
        """
        state, journal = saved_state.load(text)
        hyperpod = cls(clock=clock or ManualClock(state.now), on_call=on_call)
        hyperpod._state, hyperpod.journal = state, journal
        return hyperpod


def _plain(value: Any) -> Any:
    """A copy of any parameters that can be written as JSON."""
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set():
            return [_plain(item) for item in value]
        case datetime.datetime():
            return value.timestamp()
        case None | bool() | int() | float() | str():
            return value
        case _:
            return repr(value)
