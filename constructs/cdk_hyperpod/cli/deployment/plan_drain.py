"""What `plan` knows of draining: the jobs and pods on the nodes, and why a deployment could not drain them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...config.cluster import ClusterConfig
from ...names import drain_bucket_name
from .. import aws
from ..aws import Clients
from .plan_inputs import NodeWorkload, PlanInputs

if TYPE_CHECKING:
    from ..._lambda.hyperpod.scale_down.model.actions import Plan
    from ..._lambda.hyperpod.scale_down.model.cluster import Cluster

_NO_BUCKET = "has not written a status yet, because its bucket does not exist"
_JOBS_UNREAD = "Which jobs run on them was not read"
_NEXT_DEPLOYMENT_RELEASES = "The next deployment that changes the cluster releases those that it does not delete (another scale_down.retry is a change)."
_RELEASE_BY_HAND = (
    "The deployment deletes the drainer with scale_down.drain, so release them first, each by `kubectl uncordon NODE && "
    "kubectl annotate node NODE cdk-hyperpod.dev/drain-`."
)


def read_workload(inputs: PlanInputs, client: Clients, *, pods: bool) -> NodeWorkload:
    """What runs on the nodes. `pods`: ask kubectl; otherwise the drain agent, if the file has one."""
    if pods and inputs.live is not None and inputs.live.eks_cluster:
        return _read_pods(inputs.live.eks_cluster, keeps_drainer=inputs.desired.drain is not None)
    return _read_agent_status(inputs.config, inputs.live, client)


def _read_agent_status(config: ClusterConfig, live: Cluster | None, client: Clients) -> NodeWorkload:
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.scale_down.drain.channels import BucketChannel, NoStatusError, UnansweredError
    from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus, is_silent

    if live is None or config.slurm is None or config.slurm.drain is None:
        return NodeWorkload()
    try:
        bucket = drain_bucket_name(config.name, live.arn.split(":")[4], config.region)
        status = BucketChannel(bucket, config.name, lambda: client("s3"), lambda: client("sagemaker")).read()
    except NoStatusError as error:
        status = AgentStatus(unreachable=str(error))
    except UnansweredError as error:
        return NodeWorkload(unread=(f"{_JOBS_UNREAD}: the drain agent {error}.",))
    except api.CALL_ERRORS as error:
        if aws.code(error) != "NoSuchBucket":
            return NodeWorkload(unread=(f"{_JOBS_UNREAD}: {aws.sentence(error)}",))
        status = AgentStatus(unreachable=_NO_BUCKET)
    if is_silent(status):
        return NodeWorkload(status=status, unread=(f"{_JOBS_UNREAD}: the drain agent on the controller is silent.",))
    return NodeWorkload(status=status)


def _read_pods(eks_cluster: str, *, keeps_drainer: bool) -> NodeWorkload:
    """What kubectl reports of the nodes. `keeps_drainer`: the file has scale_down.drain, so the next deployment has a drainer."""
    from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus
    from .. import kubernetes

    try:
        pods = kubernetes.read_pods(eks_cluster)
    except kubernetes.UnreadError as error:
        held = "" if keeps_drainer else ", nor whether a drainer still holds nodes"
        return NodeWorkload(unread=(f"Which pods run on them was not read{held}: {error}.",))
    return NodeWorkload(
        status=AgentStatus(silent=timedelta(), saves=True, busy=pods.busy),
        held=_held_nodes(pods.held, keeps_drainer=keeps_drainer),
        unmanaged=pods.unmanaged,
    )


def _held_nodes(names: Sequence[str], *, keeps_drainer: bool) -> tuple[str, ...]:
    """Which nodes are held, and how they are released."""
    if not names:
        return ()
    remedy = _NEXT_DEPLOYMENT_RELEASES if keeps_drainer else _RELEASE_BY_HAND
    return (f"Held by a deployment that is running, or that failed: {', '.join(names)}. {remedy}",)


def refuse_undrainable(found: Plan, inputs: PlanInputs, workload: NodeWorkload, now: datetime) -> Plan:
    """The plan, refused if the deployment's first look would find that it can drain nothing."""
    from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus, DrainRequest, decide_first_look
    from ..._lambda.hyperpod.scale_down.model.actions import Plan

    if inputs.desired.drain is None or found.refusals:
        return found
    # If the status or the template could not be read, assume that draining works: the deployment decides.
    status = workload.status or AgentStatus(silent=timedelta(), saves=True)
    is_new = inputs.template.is_known and not inputs.template.has_drainer
    why = decide_first_look(
        found, inputs.live, status, DrainRequest(drain=inputs.desired.drain, began=now, now=now), new=is_new
    )
    return found if why is None else Plan(refusals=(why,))


def refuse_unevictable(found: Plan, inputs: PlanInputs, workload: NodeWorkload) -> Plan:
    """The plan, refused if the deployment would find pods that no controller owns, and may not evict them."""
    from ..._lambda.hyperpod.kernel.refuse import Refuse
    from ..._lambda.hyperpod.scale_down.drain.readiness import nodes_to_drain
    from ..._lambda.hyperpod.scale_down.model.actions import Plan

    drain = inputs.desired.drain
    if drain is None or drain.evict_unmanaged or found.refusals:
        return found
    refusals = tuple(
        Refuse(
            code="pods-unmanaged",
            path="scale_down.drain.unmanaged_pods",
            why=f"{node.name} has pods that no controller owns, so nothing would create them again: "
            + ", ".join(workload.unmanaged[node.name]),
            fix="delete these pods, or set it to evict",
        )
        for node in nodes_to_drain(found, inputs.live)
        if node.name in workload.unmanaged
    )
    return Plan(refusals=refusals) if refusals else found
