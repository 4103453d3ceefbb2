"""`cdk-hyperpod nodes`: every node of the cluster, and the way from a node to the file's `scale_down.nodes_to_delete`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import rich_click as click

from .. import live, tables
from ..live import LiveError, Node, Target
from ..options import AnyCase, json_option, rights

SCHEMA = 1
"""Version of what --json prints."""
STATUSES = ("Running", "Pending", "Failure", "ShuttingDown", "SystemUpdating", "DeepHealthCheckInProgress", "NotFound")
IMAGES = ("UpToDate", "UpdateAvailable", "SecurityUpdateRequired", "EndOfLife")
OUTDATED = "outdated"
"""Every image status but UpToDate."""
_PAINT = {
    "Failure": tables.RED,
    "NotFound": tables.RED,
    "ShuttingDown": tables.YELLOW,
    "Pending": tables.YELLOW,
    "SystemUpdating": tables.YELLOW,
    "DeepHealthCheckInProgress": tables.YELLOW,
    "UpdateAvailable": tables.YELLOW,
    "SecurityUpdateRequired": tables.RED,
    "EndOfLife": tables.RED,
}
_HEADINGS = ("node", "group", "status", "image", "age", "zone")
_MOST = 40
"""Characters of what Slurm's agent or Kubernetes says of a node."""


@click.command(
    epilog=rights(
        *("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes"),
        *("ec2:DescribeSubnets", "s3:GetObject", "s3:ListBucket", "kms:Decrypt"),
        besides="ec2:DescribeSubnets only for zones that the file does not name, those of S3 and KMS only for what the drain "
        "agent says of Slurm, in its bucket; without them, that column stays empty and a note says why. "
        "--kubernetes needs kubectl, and there to list nodes. Exit code 0, also for no node at all.",
    )
)
@click.argument("names", nargs=-1, metavar="[NODE]…")
@click.option(
    "--group", "only_groups", multiple=True, metavar="NAME", help="Only nodes of this group; may be repeated."
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=AnyCase(STATUSES),
    help="Only nodes in this status; may be repeated.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    type=AnyCase([*IMAGES, OUTDATED]),
    help="Only nodes whose image is so; outdated: all but UpToDate; may be repeated.",
)
@click.option(
    "--kubernetes",
    is_flag=True,
    help="Add what Kubernetes says, by your kubectl: Ready, NotReady, SchedulingDisabled, and HyperPod's health label.",
)
@click.option("--ids", is_flag=True, help="Print instance ids alone, one a line, as `drain` and `replace` take them.")
@click.option(
    "--write",
    is_flag=True,
    help="Add the nodes to scale_down.nodes_to_delete of the cluster file, and lower their groups' instance_count by as "
    "many; its comments stay. Needs a NODE or a filter.",
)
@json_option
@live.target_options
def nodes(
    names: Sequence[str],
    only_groups: Sequence[str],
    statuses: Sequence[str],
    images: Sequence[str],
    config: str,
    cluster: str | None,
    region: str | None,
    profile: str | None,
    *,
    kubernetes: bool,
    ids: bool,
    write: bool,
    as_json: bool,
) -> None:
    """List the cluster's nodes: group, status, image, age, zone, and what Slurm's drain agent or Kubernetes says of them.

    NODE is an instance id or a name such as ip-10-1-2-3; without any, all nodes are meant.
    """
    if write and not (names or only_groups or statuses or images):
        raise click.UsageError("--write names nodes that a deployment then deletes: say which, by NODE or a filter")
    if write and cluster is not None:
        raise click.UsageError("--write edits a cluster file: name it by --config, not the cluster by --cluster")
    if write and (ids or as_json):
        raise click.UsageError("--write prints what it did: leave --ids and --json out")
    if ids and as_json:
        raise click.UsageError("--ids prints ids alone: leave --json out; it has each node's instance_id")
    target = live.find(config=config, cluster=cluster, region=region, profile=profile)
    described = live.describe(target)
    _refuse_unknown(only_groups, described)
    every = live.nodes(target, described)
    found = live.chosen(every, names) if names else every
    found = [node for node in found if _wanted(node, only_groups, statuses, images)]
    if write:
        from ..cluster_file.edit import name_nodes

        tables.say(*name_nodes(config, found).split("\n"))
        return
    if ids:
        tables.say(*(node.instance_id for node in found if node.instance_id))
        return
    zones, note = live.zones(target, described)
    slurm, problem = _slurm(target, described)
    seen, unread = _kubernetes(described) if kubernetes else ({}, None)
    found = [
        replace(node, zone=zones.get(node.group), slurm=slurm.get(node.name), kubernetes=seen.get(node.name))
        for node in found
    ]
    notes = [each for each in (note, problem, unread) if each]
    now = tables.now()
    if as_json:
        tables.say_json("nodes", SCHEMA, content(target, described, found, notes))
        return
    tables.say(
        *lines(
            found, total=len(every), cluster=target.name, now=now, columns=tables.width(), colour=tables.colour_wanted()
        )
    )
    for text in notes:
        tables.say(f"note: {text}")


def lines(
    found: Sequence[Node], *, total: int, cluster: str, now: datetime, columns: int | None = 80, colour: bool = False
) -> list[str]:
    """The table, and a last line with the counts."""
    rows: list[tuple[str, ...]] = [
        (
            node.name,
            node.group,
            node.status,
            node.image_status or "-",
            tables.age(node.launched, now),
            node.zone or "-",
        )
        for node in found
    ]
    headings: tuple[str, ...] = _HEADINGS
    for heading, said in (
        ("slurm", [node.slurm for node in found]),
        ("kubernetes", [node.kubernetes for node in found]),
    ):
        if any(said):
            headings = (*headings, heading)
            rows = [(*row, tables.shown(cell or "-", _MOST)) for row, cell in zip(rows, said, strict=True)]
    shown = f"{len(found)} of {total} nodes" if len(found) != total else f"{total} node{'' if total == 1 else 's'}"
    if not rows:
        return [f"{cluster}: {shown}" if total else f"{cluster}: no nodes"]
    table = tables.table(headings, rows, columns=columns, cut=(3, 1, 2), right=(4,), paint=_PAINT if colour else None)
    counts: dict[str, int] = {}
    for node in found:
        counts[node.status] = counts.get(node.status, 0) + 1
    return [
        *table,
        f"{cluster}: {shown} ({', '.join(f'{count} {status}' for status, count in sorted(counts.items()))})",
    ]


def content(target: Target, cluster: live.Reply, found: Sequence[Node], notes: Sequence[str]) -> dict[str, Any]:
    """What --json prints. Members that nobody knows are null."""
    return {
        "cluster": target.name,
        "cluster_arn": cluster["ClusterArn"],
        "region": target.region,
        "nodes": [
            {
                "instance_id": node.instance_id,
                "node_logical_id": node.logical_id,
                "group": node.group,
                "instance_type": node.instance_type,
                "status": node.status,
                "message": node.message or None,
                "image_release_version": node.image,
                "image_version_status": node.image_status,
                "launch_time": node.launched,
                "availability_zone": node.zone,
                "host": node.host,
                "node_type": node.node_type,
                "drain_state": node.slurm,
                "kubernetes_state": node.kubernetes,
            }
            for node in found
        ],
        "notes": [*notes],
    }


def _refuse_unknown(wanted: Sequence[str], cluster: live.Reply) -> None:
    there = [str(group["InstanceGroupName"]) for group in live.groups(cluster)]
    wrong = [name for name in wanted if name not in there]
    if wrong:
        raise LiveError(
            f"--group {', '.join(wrong)}: the cluster has no such group; its groups are {', '.join(there) or 'none'}"
        )


def _wanted(node: Node, groups: Sequence[str], statuses: Sequence[str], images: Sequence[str]) -> bool:
    outdated = OUTDATED in images and node.image_status not in (None, "UpToDate")
    return (
        (not groups or node.group in groups)
        and (not statuses or node.status in statuses)
        and (not images or outdated or node.image_status in images)
    )


def _kubernetes(cluster: live.Reply) -> tuple[dict[str, str], str | None]:
    from ..kubernetes import states

    return states(cluster)


def _slurm(target: Target, cluster: live.Reply) -> tuple[dict[str, str], str | None]:
    """What the drain agent says of each node that somebody has asked it for, and a note where that cannot be read."""
    file = target.config
    if file is None or file.slurm is None or file.slurm.drain is None:
        return {}, None
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    from ..._lambda.hyperpod.common.drain_protocol import StatusError, parse_status, status_key
    from ..._lambda.hyperpod.common.text import one_line
    from ...names import drain_bucket_name
    from .. import aws

    bucket = drain_bucket_name(file.name, str(cluster["ClusterArn"]).split(":")[4], target.region)
    try:
        body = target.client("s3").get_object(Bucket=bucket, Key=status_key(file.name))["Body"].read()
        return {node: one.state for node, one in parse_status(body, one_line).nodes.items()}, None
    except (ClientError, BotoCoreError) as error:
        if aws.code(error) == "NoSuchKey":
            return {}, None
        return {}, f"what the drain agent says is not shown: {aws.sentence(error)}"
    except StatusError as error:
        return {}, f"what the drain agent says is not shown: it {error}"
