"""What `plan` knows of draining: the jobs and pods on the nodes, and why a deployment could not drain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...config.cluster import ClusterConfig
from ...names import drain_bucket_name
from .. import aws
from ..aws import Clients
from .deployed_stack import deployed_guard

if TYPE_CHECKING:
    from ..._lambda.hyperpod.scale_down.actions import Plan
    from ..._lambda.hyperpod.scale_down.cluster import Cluster, Desired
    from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus


def agent_status(
    config: ClusterConfig, live: Cluster | None, client: Clients
) -> tuple[AgentStatus | None, tuple[str, ...]]:
    """What the agent that drains nodes says; absent: there is none, or it cannot be read, or is silent, with a note."""
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.scale_down.drain.channels import BucketChannel, NoStatusError, UnansweredError
    from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus, is_silent

    if live is None or config.slurm is None or config.slurm.drain is None:
        return None, ()
    try:
        bucket = drain_bucket_name(config.name, live.arn.split(":")[4], config.region)
        said = BucketChannel(bucket, config.name, lambda: client("s3"), lambda: client("sagemaker")).read()
    except api.CALL_ERRORS as error:
        unread = "Which jobs run on them was not read"
        if not isinstance(error, NoStatusError) and aws.code(error) != "NoSuchBucket":
            unanswered = isinstance(error, UnansweredError)
            return None, (f"{unread}: {f'the drain agent {error}.' if unanswered else aws.sentence(error)}",)
        said = AgentStatus(unreachable="has never been heard of")
    if is_silent(said):
        return said, ("It is not known which jobs run on them: the drain agent on the controller is silent.",)
    return said, ()


def pods_on_nodes(
    eks_cluster: str, *, stays: bool
) -> tuple[AgentStatus | None, tuple[str, ...], tuple[str, ...], Mapping[str, Sequence[str]]]:
    """What kubectl says of the nodes, as the drainer would; a note where it does not; what is still held, in one; and the pods
    that no controller owns, by node.

    `stays`: the file has scale_down.drain, so the next deployment has a drainer.
    """
    from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus
    from .. import kubernetes

    seen, why = kubernetes.look(eks_cluster)
    if seen is None:
        whether = "" if stays else ", nor whether a drainer still holds nodes"
        return None, (f"Which pods run on them was not read{whether}: {why}.",), (), {}
    said = AgentStatus(silent=timedelta(), saves=True, busy=seen.busy)
    if not seen.held:
        return said, (), (), seen.unmanaged
    names = ", ".join(seen.held)
    if stays:
        way = "A deployment that changes the cluster gives back what it does not take (another scale_down.retry is a change)."
    else:
        way = (
            "Its drainer goes with scale_down.drain, so give them back first, each by `kubectl uncordon NODE && "
            "kubectl annotate node NODE cdk-hyperpod.dev/drain-`."
        )
    return said, (), (f"Held for a deployment, one that runs or one that died: {names}. {way}",), seen.unmanaged


def refuse_undrainable(
    found: Plan, live: Cluster | None, wanted: Desired, said: AgentStatus | None, resources: Mapping[str, Any] | None
) -> Plan:
    """The plan, refused where a deployment would find at its first look that it can drain nothing."""
    from ..._lambda.hyperpod.scale_down.actions import Plan
    from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus, DrainRequest, decide_first_look

    if wanted.drain is None or found.refusals:
        return found
    now = datetime.now(UTC)
    # Of a status or a template that could not be read, the deployment tells.
    said = said or AgentStatus(silent=timedelta(), saves=True)
    new = resources is not None and "Drain" not in deployed_guard(resources)
    why = decide_first_look(found, live, said, DrainRequest(drain=wanted.drain, began=now, now=now), new=new)
    return found if why is None else Plan(refusals=(why,))


def refuse_unevictable(
    found: Plan, live: Cluster | None, wanted: Desired, unmanaged: Mapping[str, Sequence[str]]
) -> Plan:
    """The plan, refused where a deployment would find pods that no controller owns."""
    from ..._lambda.hyperpod.common.refuse import Refuse
    from ..._lambda.hyperpod.scale_down.actions import Plan
    from ..._lambda.hyperpod.scale_down.drain.readiness import nodes_to_drain

    if wanted.drain is None or wanted.drain.evict_unmanaged or found.refusals:
        return found
    refusals = tuple(
        Refuse(
            path="scale_down.drain.unmanaged_pods",
            why=f"{node.name} has pods that no controller owns, so nothing would create them again: "
            + ", ".join(unmanaged[node.name]),
            fix="end them, or set it to evict",
        )
        for node in nodes_to_drain(found, live)
        if node.name in unmanaged
    )
    return Plan(refusals=refusals) if refusals else found
