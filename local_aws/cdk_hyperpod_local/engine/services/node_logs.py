"""HyperPod's log of a cluster's nodes in CloudWatch Logs: a stream for each node's lifecycle scripts.

No script runs here, so a stream contains the node's own events, in HyperPod's words. They are written when the log is
read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdk_hyperpod_local.engine.seam import services as requests
from cdk_hyperpod_local.engine.seam import stores
from cdk_hyperpod_local.hyperpod import HyperPod

Json = Any
PREFIX = "/aws/sagemaker/Clusters/"
_READS = frozenset({"DescribeLogStreams", "FilterLogEvents", "GetLogEvents"})


def install(hyperpod: Callable[[], HyperPod]) -> None:
    """`hyperpod`: returns the current one, because a reset creates another."""
    requests.before_operations("logs", _READS, lambda request: _write(hyperpod(), str(request.get("logGroupName"))))


def _write(hyperpod: HyperPod, group: str) -> None:
    if not group.startswith(PREFIX):
        return
    hyperpod.tick()
    for cluster in hyperpod._state.clusters.values():
        if group != f"{PREFIX}{cluster.name}/{cluster.arn.rpartition('/')[2]}":
            continue
        for event in cluster.events:
            if event.resource == "Instance" and event.instance_id:
                stream = f"LifecycleConfig/{event.group}/{event.instance_id}"
                stores.write_log(group, stream, int(event.at * 1000), f"{event.level}: {event.description}")
