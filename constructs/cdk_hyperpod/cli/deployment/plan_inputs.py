"""What `plan` reads before it decides: the live cluster and the deployed template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...config.cluster import ClusterConfig
from ...names import cluster_stack_name, foundation_stack_name
from .. import aws
from ..aws import Clients
from .deployed_stack import (
    DeployedTemplate,
    PlanError,
    deployed_template,
    refuse_another_account,
    tagged_stack,
    tags_of,
)
from .desired import desired

if TYPE_CHECKING:
    from ..._lambda.hyperpod.kernel.refuse import Refuse
    from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus
    from ..._lambda.hyperpod.scale_down.model.cluster import Cluster, Desired


@dataclass(frozen=True, slots=True, kw_only=True)
class ImmutableDifferences:
    """How the file differs from the live cluster in what cannot change after creation."""

    refusals: tuple[Refuse, ...] = ()
    unread: tuple[str, ...] = ()
    """Why the settings were not compared; empty: they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """The file, and what it is compared with."""

    config: ClusterConfig
    stack: str
    """The name of the stack that has the cluster."""
    live: Cluster | None
    """None: there is no cluster yet."""
    desired: Desired
    template: DeployedTemplate
    immutable: ImmutableDifferences

    @property
    def is_own_stack(self) -> bool:
        """Whether this app deploys the stack; otherwise another app has the cluster."""
        return self.stack == cluster_stack_name(self.config.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWorkload:
    """The jobs or pods on the nodes, as the drain agent or kubectl reports them."""

    status: AgentStatus | None = None
    """None: nothing drains nodes, or its status could not be read."""
    unread: tuple[str, ...] = ()
    """Why the jobs or pods are unknown; worth saying only if nodes would be deleted."""
    held: tuple[str, ...] = ()
    """Which nodes a deployment's drainer still holds, in one sentence."""
    unmanaged: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Instance id -> its pods that no controller owns."""


def read_inputs(config: ClusterConfig, client: Clients, *, stack: str | None, own_stack: bool) -> PlanInputs:
    """Read all that `plan` compares. Raises PlanError if the cluster cannot be read, or is of another account.

    `stack`: the stack that the user named. `own_stack`: without one, take this app's own stack, whatever the cluster's tags name.
    """
    live = _read_cluster(config, client)
    name = stack or _stack_name(config, live, own_stack=own_stack)
    is_own = name == cluster_stack_name(config.name)
    return PlanInputs(
        config=config,
        stack=name,
        live=live,
        desired=desired(config, live, name),
        template=deployed_template(live, name, client),
        immutable=_compare_immutable(config, client) if is_own else ImmutableDifferences(),
    )


def _stack_name(config: ClusterConfig, live: Cluster | None, *, own_stack: bool) -> str:
    own = cluster_stack_name(config.name)
    if own_stack:
        return own
    return tagged_stack(tags_of(live)) or own


def _read_cluster(config: ClusterConfig, client: Clients) -> Cluster | None:
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.scale_down.aws import clients

    try:
        live = clients.read_live(client("sagemaker"), config.name, tags=True)
    except api.CALL_ERRORS as error:
        raise PlanError(f"cannot read cluster {config.name} in {config.region}: {aws.sentence(error)}") from None
    # Without a cluster, a deployment would create everything in the account of the credentials.
    refuse_another_account(config, client, None if live is None else live.arn.split(":")[4])
    return live


def _compare_immutable(config: ClusterConfig, client: Clients) -> ImmutableDifferences:
    """What the foundation's guard would refuse, in its words."""
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.foundation_guard.decision import differences
    from ..._lambda.hyperpod.foundation_guard.look import look
    from ...guard.immutable import immutable_settings

    settings = immutable_settings(config, cluster_stack_name(config.name))
    try:
        found = look(settings, foundation_stack_name(config.name), client)
    except api.CALL_ERRORS as error:
        # The user may lack the permission; the deployment's own guard has it.
        return ImmutableDifferences(unread=(f"Immutable settings were not compared: {aws.sentence(error)}",))
    return ImmutableDifferences(refusals=tuple(differences(settings, found)))
