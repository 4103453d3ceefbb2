"""Names that derive from the cluster's: of stacks, buckets and the drainer. Free of CDK."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from .errors import Finding
from .typed.validation import check_at_synth


def foundation_stack_name(cluster_name: str) -> str:
    """The stack that outlives the cluster. The prefix keeps the name valid for a cluster whose name begins with a digit."""
    return f"hyperpod-{cluster_name}-foundation"


def eks_stack_name(cluster_name: str) -> str:
    """The stack of the EKS cluster, and of what must be in it before the first node."""
    return f"hyperpod-{cluster_name}-eks"


def cluster_stack_name(cluster_name: str) -> str:
    """The stack of the cluster and its roles."""
    return f"hyperpod-{cluster_name}-cluster"


def teams_stack_name(cluster_name: str) -> str:
    """The stack of what teams use: add-ons, queues, quotas and access."""
    return f"hyperpod-{cluster_name}-teams"


def stack_names(cluster_name: str) -> tuple[str, ...]:
    """All stacks that a cluster file may have, in the order in which they are deployed."""
    names = (foundation_stack_name, eks_stack_name, cluster_stack_name, teams_stack_name)
    return tuple(name(cluster_name) for name in names)


def drain_bucket_name(cluster_name: str, account: str, region: str) -> str:
    """At most 63 characters: 15 + label + 1 + 12 + 1 + 14 for the longest region leave 20 for the label."""
    return f"hyperpod-drain-{bucket_label(cluster_name, 20)}-{account}-{region}"


def drainer_name(cluster_name: str) -> str:
    """The function that drains nodes of an EKS cluster. At most 64 characters."""
    return f"hyperpod-{bucket_label(cluster_name, 40)}-drainer"


def bucket_label(name: str, length: int) -> str:
    """A name that is valid in bucket names. If it had to change, it gets digits of its hash, to stay unique."""
    if len(name) <= length and re.fullmatch(r"[a-z0-9-]+", name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{name.lower()[: length - 7].strip('-')}-{digest}"


def check_name_known(cluster_name: object) -> Iterator[Finding]:
    """The cluster's name must be known at synthesis, because bucket names derive from it."""
    yield from check_at_synth(cluster_name, "cluster_name", "write it out: the bucket's name derives from it")
