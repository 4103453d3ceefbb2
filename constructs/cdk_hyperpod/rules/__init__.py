"""Validates a cluster: pure checks of the values of `config/` for everything that HyperPod would refuse.

The loader validates a file, and the constructs validate their arguments, by the same rules. A rule skips values that are not
known: CDK tokens, and UNKNOWN, which replaces a value that its type refuses.

May import: config, errors, facts, kubernetes, names, typed, _lambda.hyperpod.kernel.drain_protocol.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ..config.cluster import ClusterConfig
from ..errors import Finding
from ..facts.instance_types import regions
from ..typed.known import UNKNOWN, is_known
from ..typed.validation import check_config
from ..typed.words import join, show
from .accounts import check_accounts
from .drain_agent import check_backup, check_drain_agent
from .eks import check_control_plane, check_eks, check_installed_chart
from .eks_teams import check_eks_teams
from .groups import check_groups, has_neuron
from .lifecycle import check_lifecycle, check_writers
from .monitoring import check_monitoring
from .network import (
    check_file_system_zone,
    check_network,
    check_region,
    check_room,
    check_zones,
    file_system_zone,
    what_closed_means,
)
from .scale_down import check_scale_down
from .scale_down_drain import check_scale_down_drain
from .slurm_queues import check_slurm_queues
from .storage import check_efa, check_storage
from .users import check_open_metadata, check_users

__all__ = [
    "check_backup",
    "check_cluster",
    "check_config",
    "check_control_plane",
    "check_drain_agent",
    "check_eks_teams",
    "check_file_system_zone",
    "check_groups",
    "check_installed_chart",
    "check_lifecycle",
    "check_network",
    "check_region",
    "check_room",
    "check_rules",
    "check_scale_down",
    "check_scale_down_drain",
    "check_slurm_queues",
    "check_storage",
    "check_users",
    "check_writers",
    "check_zones",
    "has_neuron",
    "what_closed_means",
]


def check_cluster(config: ClusterConfig) -> Iterator[Finding]:
    """Everything that is wrong with a cluster, and warnings to read before it is created."""
    yield from check_config(config, "", check_rules)


def check_rules(config: ClusterConfig, of_network: Sequence[Finding] | None = None) -> Iterator[Finding]:
    """Validate a cluster with UNKNOWN in place of what its types refuse.

    `of_network`: the findings about its network, if the network was validated before. None: validate it here.
    """
    yield from check_region(config.region)
    if is_known(config.region) and config.region not in regions().known:
        config = dataclasses.replace(config, region=UNKNOWN)
    yield from check_groups(
        config.instance_groups,
        orchestrator=config.orchestrator,
        node_provisioning_mode=config.node_provisioning_mode,
        region=config.region,
    )
    yield from check_eks(config)
    of_network = [*check_network(config.network, region=config.region)] if of_network is None else of_network
    of_zones = [*check_zones(config)]
    yield from of_network
    yield from of_zones
    if not any(finding.level == "error" for finding in (*of_network, *of_zones)):
        yield from check_room(config)
    yield from check_file_system_zone(config.instance_groups, file_system_zone(config))
    if config.storage is not None and is_known(config.storage):
        yield from check_storage(config.storage)
    yield from check_efa(config)
    yield from check_lifecycle(config)
    yield from check_users(config)
    yield from check_slurm_queues(config)
    yield from check_scale_down_drain(config)
    yield from check_drain_agent(config)
    if config.scale_down is not None and is_known(config.scale_down):
        yield from check_scale_down(config.scale_down, config.instance_groups)
    yield from check_monitoring(config)
    yield from check_open_metadata(config)
    if config.encrypt_root_volumes is True and config.node_provisioning_mode == "standard":
        # https://docs.aws.amazon.com/sagemaker/latest/dg/smcluster-cmk.html
        yield Finding(
            code="continuous-provisioning-required",
            path="encrypt_root_volumes",
            problem="requires continuous provisioning",
            remedy="set node_provisioning_mode to continuous, or remove it",
        )
    if config.orchestrator == "slurm" and config.tiered_storage is not None:
        yield Finding(
            code="tiered-storage-under-slurm",
            path="tiered_storage",
            problem="is announced by AWS for EKS clusters, and a Slurm cluster may refuse it",
            remedy="remove it if the first deployment fails",
            level="warning",
        )
    yield from _check_tags(config)
    yield from check_accounts(config)


def _check_tags(config: ClusterConfig) -> Iterator[Finding]:
    """AWS allows 50 tags, some of which CloudFormation and this library add. Keys have up to 128, values up to 256 characters."""
    if not isinstance(config.tags, Mapping):
        return
    if len(config.tags) > 40:
        yield Finding(
            code="tags-too-many",
            path="tags",
            problem=f"there are {len(config.tags)} tags",
            remedy="use at most 40",
        )
    for key, value in config.tags.items():
        if not is_known(key):
            continue
        if not 1 <= len(key) <= 128 or key.lower().startswith(("aws:", "cdk-hyperpod:")) or not _is_tag_text(key):
            yield Finding(
                code="tag-key-invalid",
                path=join("tags", key),
                problem=f"{show(key)} is not a valid key of a tag",
                remedy=f"use 1 to 128 {_TAG_TEXT}, and begin neither with aws: nor with cdk-hyperpod:",
            )
        if is_known(value) and (len(value) > 256 or not _is_tag_text(value)):
            yield Finding(
                code="tag-value-invalid",
                path=join("tags", key),
                problem=f"{show(value)} is not a valid value of a tag",
                remedy=f"use at most 256 {_TAG_TEXT}",
            )
    # IAM ignores case: Team and team are the same key.
    for key, count in Counter(key.lower() for key in config.tags).items():
        if count > 1:
            yield Finding(
                code="tags-differ-in-case-only",
                path="tags",
                problem=f"{count} keys are {show(key)} if case is ignored, as IAM does",
                remedy="keep one of them",
            )


_TAG_TEXT = "letters, digits, spaces and _.:/=+-@"


def _is_tag_text(text: str) -> bool:
    return all(character.isalnum() or character in " _.:/=+-@" for character in text)
