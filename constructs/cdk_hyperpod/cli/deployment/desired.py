"""The desired cluster of a deployment, as the file alone defines it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...config.cluster import ClusterConfig, InstanceGroup
from ...config.rendering import ClusterContext, guard_properties, network_spec, patching_off, render_group
from ...config.scale_down import ScaleDownConfig
from .deployed_stack import stack_id_of

if TYPE_CHECKING:
    from ..._lambda.hyperpod.scale_down.model.cluster import Cluster, Desired, DrainSettings, Group

_LATE = "arn:known-at-deployment-only"
"""In place of values that only a deployment knows. No plan depends on them."""


def desired(config: ClusterConfig, live: Cluster | None, stack: str) -> Desired:
    """The desired cluster, as the guard would read it from the template. `stack`: the name of the stack that has the cluster."""
    from ..._lambda.hyperpod.scale_down.model.properties import PREPARE, read_properties

    scale_down = config.scale_down or ScaleDownConfig()
    cluster_context = ClusterContext(
        continuous=config.node_provisioning_mode == "continuous",
        encrypts_root_volumes=config.encrypts_root_volumes,
        lifecycle_mode=config.lifecycle_mode,
        scripts_uri=_LATE,
    )
    live_groups = {group.name: group for group in live.groups} if live else {}
    groups = [
        json.dumps(_rendered(group, cluster_context, live_groups.get(group.name))) for group in config.instance_groups
    ]
    autoscaled = () if config.eks is None else config.eks.autoscaled_groups
    properties = guard_properties(config.name, groups, scale_down, autoscaled_groups=autoscaled, digest="")
    if off := patching_off(config.instance_groups):
        properties["PatchingOff"] = json.dumps(off)
    read = read_properties(properties, kind=PREPARE, owner=stack_id_of(stack, live))
    return replace(read, drain=_drain(config, scale_down))


def _drain(config: ClusterConfig, scale_down: ScaleDownConfig) -> DrainSettings | None:
    from ..._lambda.hyperpod.scale_down.model.cluster import DrainSettings

    if (drain := scale_down.drain) is None:
        return None
    agent = config.slurm.drain if config.slurm else None
    return DrainSettings(
        minutes=drain.timeout_minutes,
        force=drain.on_timeout == "force",
        undrained=drain.on_silent == "undrained",
        must_be_saved=agent is not None and agent.backup is not None and agent.backup.on_failure == "fail",
        evict_unmanaged=drain.unmanaged_pods == "evict",
    )


def _rendered(group: InstanceGroup, cluster: ClusterContext, live: Group | None) -> dict[str, Any]:
    """The group as in the template. Only a deployment knows the ids of roles and subnets, so it uses the live ones."""
    network = None if live is None else live.fixed.network
    return render_group(
        group,
        cluster,
        role_arn=_LATE if live is None else live.fixed.execution_role or _LATE,
        network=None
        if network is None
        else network_spec(subnets=sorted(network.subnets), security_groups=sorted(network.security_groups)),
    )
