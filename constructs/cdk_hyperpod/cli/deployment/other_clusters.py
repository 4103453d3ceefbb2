"""The other clusters of this library in the region. One may be the old cluster of a file whose name was changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._lambda.hyperpod.kernel.cluster_reading import all_groups, counts
from ..._lambda.hyperpod.kernel.sentences import several, some
from ...config.cluster import ClusterConfig
from ...names import cluster_stack_name, foundation_stack_name
from .. import aws
from ..aws import Clients
from .deployed_stack import tagged_stack


def note_of_other_clusters(config: ClusterConfig, client: Clients) -> tuple[str, ...]:
    """What stays if the file was renamed. Empty: there is no other cluster of this library. Call it if the file's cluster does
    not exist, so that a deployment would create it."""
    from ..._lambda.hyperpod.common import api

    try:
        found = sorted(_other_clusters(config.name, client))
    except api.CALL_ERRORS as error:
        return (
            f"Whether another cluster exists, which a renamed file would leave, was not read: {aws.sentence(error)}",
        )
    return (_note(config, found),) if found else ()


def _note(config: ClusterConfig, found: Sequence[tuple[str, int]]) -> str:
    name, _ = found[0]
    shown = some(f"{each} ({several(nodes, 'node')})" for each, nodes in found)
    stacks = f"{foundation_stack_name(name)} and {cluster_stack_name(name)}"
    return (
        f"{config.region} has {several(len(found), 'other cluster')}: {shown}. If you have changed the name in the file, the old cluster stays: a "
        f"deployment creates {config.name} beside it, and you pay for both, nodes and stacks (such as {stacks}). To keep the old "
        "cluster, write its name in the file again. To delete it, write its name in a copy of the file, and run `cdk destroy "
        "--all -c config=COPY` (docs/removal.md)."
    )


def _other_clusters(name: str, client: Clients) -> Iterator[tuple[str, int]]:
    """Name and number of nodes of each cluster that a cluster file of this library created."""
    from ..._lambda.hyperpod.common import api

    sagemaker = client("sagemaker")
    for summary in aws.pages(sagemaker.list_clusters, "ClusterSummaries", MaxResults=100):
        other = str(summary["ClusterName"])
        if other == name or tagged_stack(api.read_tags(sagemaker, summary["ClusterArn"])) != cluster_stack_name(other):
            continue
        yield other, _count(sagemaker.describe_cluster(ClusterName=other))


def _count(cluster: Mapping[str, Any]) -> int:
    return sum(counts(group)[0] for group in all_groups(cluster))
