"""Jobs as AWS's SDK submits them fit into the share of their size: whole nodes, pairs of nodes and parts of a node."""

from __future__ import annotations

from functools import cache
from typing import Any

from cdk_hyperpod.config.teams import AcceleratorPartition, Share, Team
from cdk_hyperpod.facts.instance_types import catalogue
from cdk_hyperpod.facts.mig import MIG_PROFILES
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.quantities import parse_quantity
from cdk_hyperpod.kubernetes.teams import quota_hard
from helpers.kubernetes import sdk

Flags = dict[str, Any]


def sizes(name: str) -> list[tuple[Flags, int | Share]]:
    """The flags of a job, and the share that has its size."""
    parts = range(1, catalogue()[name].accelerators)
    whole: list[tuple[Flags, int | Share]] = [({"node_count": nodes}, nodes) for nodes in range(1, 9)]
    gpus: list[tuple[Flags, int | Share]] = [({"accelerators": part}, Share(accelerators=part)) for part in parts]
    return whole + gpus + [partitions(profile, count) for profile in MIG_PROFILES.get(name, ()) for count in (2, 7)]


def partitions(profile: str, count: int) -> tuple[Flags, int | Share]:
    flags = {"accelerator_partition_type": profile, "accelerator_partition_count": count}
    partition = AcceleratorPartition(type=profile, count=count)  # type: ignore[arg-type]
    return flags, Share(accelerator_partition=partition)


def smaller(share: int | Share) -> int | Share | None:
    """One node, accelerator or partition less. None: there is no smaller share."""
    match share:
        case int() if share > 1:
            return share - 1
        case Share(accelerators=int(count)) if count > 1:
            return Share(accelerators=count - 1)
        case Share(accelerator_partition=AcceleratorPartition(type=profile, count=count)):
            return Share(accelerator_partition=AcceleratorPartition(type=profile, count=count - 1))
        case _:
            return None


TYPES = [name for name in sdk.instance_resources() if catalogue()[name].accelerators] if sdk.SDK.is_dir() else []
CASES = [(name, flags, share) for name in TYPES for flags, share in sizes(name)]


@cache
def jobs() -> list[Manifest]:
    common = {"job_name": "job", "namespace": "team", "image": "train:1"}
    return sdk.submitted_by_hyp([{**common, "instance_type": name, **flags} for name, flags, _ in CASES])


def above(job: Manifest, hard: dict[str, str]) -> list[str]:
    """The keys of a quota of which the job needs more."""
    (replica,) = job["spec"]["replicaSpecs"]
    (container,) = replica["template"]["spec"]["containers"]
    needs = {
        f"{kind}.{name}": amount
        for kind in ("requests", "limits")
        for name, amount in container["resources"].get(kind, {}).items()
    }
    return [
        key
        for key, amount in needs.items()
        if key in hard and (parse_quantity(str(amount)) or 0) * replica["replicas"] > (parse_quantity(hard[key]) or 0)
    ]


def test_every_job_fits_into_the_share_of_its_size() -> None:
    assert len(jobs()) == len(CASES) >= 500
    too_large = [
        (name, flags, keys)
        for (name, flags, share), job in zip(CASES, jobs(), strict=True)
        if (keys := above(job, quota_hard(Team(name="t", quota={name: share}), lists_extended=True)))
    ]
    assert too_large == []


def test_a_job_does_not_fit_into_a_smaller_share() -> None:
    """One accelerator less, one partition, or one node."""
    admitted = [
        (name, flags)
        for (name, flags, share), job in zip(CASES, jobs(), strict=True)
        if (less := smaller(share)) and not above(job, quota_hard(Team(name="t", quota={name: less})))
    ]
    assert admitted == []
