"""Names of buckets, and of the objects in the drain channel's: free of CDK, for the command-line tool needs them too."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from .errors import Finding
from .typed.known import is_known

WRITERS = ("deployment", "operator")
"""Who may ask. Each has one request, which nobody else writes."""


def drain_bucket_name(cluster_name: str, account: str, region: str) -> str:
    """At most 63 characters: 15 + label + 1 + 12 + 1 + 14 for the longest region leave 20 for the label."""
    return f"hyperpod-drain-{bucket_label(cluster_name, 20)}-{account}-{region}"


def request_key(cluster_name: str, writer: str) -> str:
    """Where a writer's request is."""
    return f"{cluster_name}/requests/{writer}.json"


def status_key(cluster_name: str) -> str:
    """Where the agent's answer is."""
    return f"{cluster_name}/status.json"


def bucket_label(name: str, length: int) -> str:
    """A name as bucket names allow it; a name that had to change gets a few digits of its hash, to stay unique."""
    if len(name) <= length and re.fullmatch(r"[a-z0-9-]+", name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{name.lower()[: length - 7].strip('-')}-{digest}"


def check_name_known(cluster_name: object) -> Iterator[Finding]:
    """A name that only a deployment knows, where a bucket's derives from it."""
    if isinstance(cluster_name, str) and not is_known(cluster_name):
        yield Finding(
            path="cluster_name",
            problem="its value is known at deployment only",
            remedy="write it out: the bucket's name derives from it",
        )
