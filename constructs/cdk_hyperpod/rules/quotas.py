"""Rules of quotas: nodes that the cluster does not have, shares above the cluster's nodes, keys that Kubernetes does not enforce."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterator, Mapping
from fractions import Fraction

from .._lambda.hyperpod.kernel.drain_protocol import MAX_NODES
from ..config.teams import MigProfile, Share
from ..errors import Finding
from ..facts.instance_types import catalogue, suggestion
from ..facts.mig import MIG_PROFILES
from ..kubernetes.allocatable import DEVICE_KEYS, GPU
from ..kubernetes.quantities import parse_quantity
from ..kubernetes.quotas import amounts, bounds, disk, hard
from ..kubernetes.shares import CPU, MEMORY, parts_of
from ..kubernetes.work import COUNTABLE
from ..typed.known import is_known
from ..typed.validation import field_findings
from ..typed.words import join, show


def check_nodes(
    nodes: Mapping[str, int | Share], path: str, *, cluster: Mapping[str, int | None] | None = None
) -> Iterator[Finding]:
    """What is wrong with nodes, or parts of them, by instance type. `cluster`: the cluster's nodes by type. None: they are not known."""
    for name, count in nodes.items():
        place = join(path, name)
        if not is_known(name) or not is_known(count):
            continue
        if name not in catalogue():
            yield Finding(
                code="instance-type-unknown",
                path=place,
                problem=f"HyperPod has no instance type {show(name)}",
                remedy=suggestion(name),
            )
        elif cluster is not None and name not in cluster:
            some_types = " or ".join(sorted(cluster)[:5]) or "a type of the cluster"
            yield Finding(
                code="instance-type-not-in-cluster",
                path=place,
                problem=f"no instance group has the instance type {name}",
                remedy=f"use {some_types}, or add a group",
            )
        if isinstance(count, Share):
            yield from _check_part(name, count, place)
        elif isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_NODES:
            yield Finding(
                code="quota-nodes-out-of-range",
                path=place,
                problem=f"must be 1 to {MAX_NODES} nodes, got {show(count)}",
                remedy="use a value in this range",
            )


def _check_part(name: str, part: Share, path: str) -> Iterator[Finding]:
    """A part of a node that AWS or the node's devices do not allow."""
    yield from field_findings(part, path)
    if part.accelerator_partition is not None and is_known(part.accelerator_partition):
        yield from field_findings(part.accelerator_partition, f"{path}.accelerator_partition")
    yield from _check_combination(part, path)
    kind, partition = catalogue().get(name), part.accelerator_partition
    if kind is None:
        return
    if part.accelerators is not None and not kind.accelerators:
        yield Finding(
            code="quota-part-without-accelerators",
            path=f"{path}.accelerators",
            problem=f"{name} has no accelerators",
            remedy="use vcpus or memory_gib",
        )
    if partition is not None and is_known(partition) and is_known(partition.type):
        yield from _check_partition(name, partition.type, f"{path}.accelerator_partition")


def _check_combination(part: Share, path: str) -> Iterator[Finding]:
    if {part.accelerators, part.accelerator_partition, part.vcpus, part.memory_gib} == {None}:
        yield Finding(
            code="quota-part-empty",
            path=path,
            problem="names no part of a node",
            remedy="add accelerators, accelerator_partition, vcpus or memory_gib, or write a number of nodes",
        )
    if part.accelerators is not None and part.accelerator_partition is not None:
        yield Finding(
            code="quota-part-both",
            path=f"{path}.accelerator_partition",
            problem="cannot be combined with accelerators",
            remedy="use one of them: GPUs as a whole, or partitions of them",
        )


def _check_partition(name: str, partition: str, path: str) -> Iterator[Finding]:
    accepted = typing.get_args(MigProfile)
    profiles = [profile for profile in MIG_PROFILES.get(name, ()) if profile in accepted]
    if not profiles:
        yield Finding(
            code="quota-partition-unsupported",
            path=path,
            problem=f"{name} has no partitions that a share accepts",
            remedy="use accelerators, vcpus or memory_gib",
        )
    elif partition not in profiles:
        yield Finding(
            code="quota-partition-not-of-type",
            path=f"{path}.type",
            problem=f"{name} has no partitions {show(partition)}",
            remedy=f"use one of {', '.join(profiles)}",
        )


def is_known_share(share: object) -> bool:
    """Whether all of a share is known. A part of a node may lack a value that has the wrong type."""
    return is_known(dataclasses.astuple(share) if isinstance(share, Share) else share)


def check_shares(
    shares: Mapping[str, Mapping[str, int | Share]], cluster: Mapping[str, int | None], path: str = "teams"
) -> Iterator[Finding]:
    """Types of which the teams' shares add up to more nodes than the cluster has. `cluster`: None for a type: not known."""
    for name in sorted({name for quota in shares.values() for name in quota if name in cluster}):
        held = {team: parts_of(name, quota[name]) for team, quota in shares.items() if _is_share(name, quota.get(name))}
        resource, most = _most(held)
        total, there = _nodes(most), cluster[name]
        if there is not None and most > there:
            some_shares = [f"{team} {_nodes(parts[resource])}" for team, parts in [*held.items()][:5]]
            listed = ", ".join(some_shares if len(held) <= 5 else [*some_shares, "…"])
            yield Finding(
                code="shares-above-cluster",
                path=path,
                problem=f"the shares of {name} add up to {total} nodes ({listed}), but the cluster has {there}",
                remedy="lower a quota and let its team borrow (borrow_limit), or raise instance_count",
            )


def check_hard(overrides: Mapping[str, str], path: str) -> Iterator[Finding]:
    """Keys that a ResourceQuota refuses or does not enforce, and values that are not quantities."""
    for key, value in overrides.items():
        if not is_known(key) or not is_known(value):
            continue
        if not _HARD_KEY.fullmatch(key):
            yield _wrong_key(key, join(path, key))
        elif "." in key and (plural := key.replace(".", "s.", 1)) in {*bounds(0), *COUNTABLE}:
            yield Finding(
                code="quota-key-not-plural",
                path=join(path, key),
                problem=f"a quota has no key {show(key)}",
                remedy=f"did you mean {plural}?",
            )
        yield from _check_quantity(key, value, path)


def check_limits(limits: Mapping[str, str], path: str) -> Iterator[Finding]:
    """Keys of a NodePool's limits that no node has, which would limit nothing, and values that are not quantities."""
    for key, value in limits.items():
        if not is_known(key) or not is_known(value):
            continue
        if not _LIMIT_KEY.fullmatch(key):
            base = key.removeprefix("requests.").removeprefix("limits.")
            known = [CPU, MEMORY, *DEVICE_KEYS]
            close = [base] if _LIMIT_KEY.fullmatch(base) else [name for name in known if name.endswith(f"/{base}")]
            close += difflib.get_close_matches(base[:80], known, n=1)
            remedy = f"did you mean {close[0]}?" if close else f"use one such as {CPU}, {MEMORY}, {GPU}"
            yield Finding(
                code="limit-key-unknown",
                path=join(path, key),
                problem=f"nodes have no resource {show(key)}",
                remedy=remedy,
            )
        yield from _check_quantity(key, value, path)


def _check_quantity(key: str, value: object, path: str) -> Iterator[Finding]:
    amount = parse_quantity(value) if isinstance(value, str) else None
    if amount is None:
        yield Finding(
            code="quantity-invalid",
            path=join(path, key),
            problem=f"must be a quantity, got {show(value)}",
            remedy='write it as "64", "500m" or "5120Gi"',
        )
    elif amount.denominator != 1 and not _CPU_KEY.fullmatch(key):
        yield Finding(
            code="quantity-with-fraction",
            path=join(path, key),
            problem=f"must be a whole amount, got {show(value)}",
            remedy="remove the fraction",
        )


_DEVICE = r"[a-z0-9]([a-z0-9.-]{0,100}[a-z0-9])?\.[a-z]+/[A-Za-z0-9]([A-Za-z0-9._-]{0,60}[A-Za-z0-9])?"
# The kinds that Kubernetes counts by name alone, without a group. (Events, too, which expire by themselves.)
_CORE_KINDS = (
    "configmaps",
    "endpoints",
    "events",
    "limitranges",
    "persistentvolumeclaims",
    "pods",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "serviceaccounts",
    "services",
)
_CPU_KEY = re.compile(r"((requests|limits)\.)?cpu")
_LIMIT_KEY = re.compile(rf"cpu|memory|ephemeral-storage|pods|nodes|hugepages-[0-9]+[KMG]i|{_DEVICE}")
_HARD_KEY = re.compile(
    r"(requests|limits)\.(cpu|memory|ephemeral-storage)"
    rf"|requests\.(storage|hugepages-[0-9]+[KMG]i|{_DEVICE})"
    r"|pods|services(\.loadbalancers|\.nodeports)?|configmaps|secrets|persistentvolumeclaims"
    rf"|count/({'|'.join(_CORE_KINDS)}|[a-z0-9-]{{1,63}}(\.[a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?){{1,10}})"
    r"|[a-z0-9.-]{1,200}\.storageclass\.storage\.k8s\.io/(requests\.storage|persistentvolumeclaims)"
)


def _wrong_key(key: str, path: str) -> Finding:
    remedy = _instead_of(key)
    if re.fullmatch(rf"limits\.{_DEVICE}", key):
        return Finding(
            code="quota-key-limit-of-device",
            path=path,
            problem=f"a quota has no key {show(key)}: the limit of a device is always its request",
            remedy=remedy,
        )
    if re.fullmatch(_DEVICE, key):
        return Finding(
            code="quota-key-device",
            path=path,
            problem=f"a quota does not enforce {show(key)}: Kubernetes limits devices by their requests",
            remedy=remedy,
        )
    if key in (CPU, MEMORY):
        return Finding(
            code="quota-key-ambiguous",
            path=path,
            problem=f"{show(key)} is another name for requests.{key}, which the quota already has",
            remedy=remedy,
        )
    return Finding(
        code="quota-key-unknown",
        path=path,
        problem=f"a quota has no key {show(key)}",
        remedy=remedy,
    )


def _instead_of(key: str) -> str:
    base = key.removeprefix("limits.")
    known = [*hard(amounts({})), *bounds(0), *disk(0), *COUNTABLE]
    if key.startswith("count/"):
        kind = key.removeprefix("count/")
        kinds = [name.removeprefix("count/") for name in known if name.startswith("count/")] + [*_CORE_KINDS]
        # "count/jobs" is short for "count/jobs.batch".
        close = [name for name in kinds if name.startswith(f"{kind}.")]
        close += difflib.get_close_matches(kind[:80].lower(), kinds, n=1)
        return f"did you mean count/{close[0]}?" if close else "name the kind and its group, such as count/jobs.batch"
    if key in (CPU, MEMORY) or re.fullmatch(_DEVICE, base):
        return f"use requests.{base}"
    close = difflib.get_close_matches(key[:80], known, n=1)
    return f"did you mean {close[0]}?" if close else "use one such as requests.cpu, limits.memory, pods"


def _is_share(name: str, value: object) -> bool:
    """Whether it can be added up."""
    if isinstance(value, Share):
        return name in catalogue() and is_known_share(value) and not any(_check_part(name, value, ""))
    return isinstance(value, int) and not isinstance(value, bool) and is_known(value) and value > 0


def _most(held: Mapping[str, Mapping[str, Fraction]]) -> tuple[str, Fraction]:
    """The resource of which all shares together have the most, in nodes."""
    totals = {
        resource: sum((parts[resource] for parts in held.values()), Fraction())
        for resource in ("accelerators", CPU, MEMORY)
    }
    most = max(totals, key=lambda resource: totals[resource])
    return most, totals[most]


def _nodes(count: Fraction) -> str:
    return f"{float(count):g}"
