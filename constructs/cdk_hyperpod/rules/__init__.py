"""What makes a cluster one that HyperPod accepts: pure checks over the values of `config.py`.

The loader runs them over a file and the constructs over their arguments, so that both refuse the same things in the
same words. A value that is not known (a CDK token, or a leaf that was wrong already) is never judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from .._structure import is_known, show
from ..config import ClusterConfig
from ..errors import Finding
from .constraints import check_constraints
from .groups import check_groups
from .network import check_file_system_zone, check_network, check_region, check_room, check_zones, file_system_zone
from .scale_down import check_scale_down
from .storage import check_storage

__all__ = [
    "check_cluster",
    "check_constraints",
    "check_file_system_zone",
    "check_groups",
    "check_network",
    "check_region",
    "check_room",
    "check_scale_down",
    "check_storage",
    "check_zones",
]


def check_cluster(config: ClusterConfig) -> Iterator[Finding]:
    """Everything that is wrong with a cluster, and what somebody should read before making it."""
    yield from check_constraints(config)
    yield from check_region(config.region)
    yield from _check_orchestrator(config.orchestrator)
    yield from check_groups(
        config.instance_groups,
        orchestrator=config.orchestrator,
        node_provisioning_mode=config.node_provisioning_mode,
        region=config.region,
    )
    yield from check_network(config.network, region=config.region)
    yield from check_zones(config)
    yield from check_room(config)
    yield from check_file_system_zone(config.instance_groups, file_system_zone(config))
    if config.storage is not None and is_known(config.storage):
        yield from check_storage(config.storage)
    if config.scale_down is not None and is_known(config.scale_down):
        yield from check_scale_down(config.scale_down, config.instance_groups)
    yield from _check_tags(config)


def _check_orchestrator(orchestrator: object) -> Iterator[Finding]:
    if orchestrator == "eks":
        yield Finding(
            path="orchestrator",
            problem="eks is not supported yet",
            remedy="use slurm",
        )


def _check_tags(config: ClusterConfig) -> Iterator[Finding]:
    """AWS: at most 50 tags, of which CloudFormation and this library add some; keys to 128, values to 256 characters."""
    if not is_known(config.tags):
        return
    if len(config.tags) > 40:
        yield Finding(path="tags", problem=f"there are {len(config.tags)} tags", remedy="use at most 40")
    for key, value in config.tags.items():
        if not 1 <= len(key) <= 128 or key.lower().startswith("aws:") or len(value) > 256:
            yield Finding(
                path=f"tags.{key[:80]}",
                problem=f"AWS refuses the tag {show(key)}",
                remedy="use a key of 1 to 128 characters that does not begin with aws:, and a value of at most 256",
            )
