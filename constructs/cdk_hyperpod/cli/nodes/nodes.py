"""`cdk-hyperpod nodes`: list the nodes of the cluster, and name them in the file's `scale_down.nodes_to_delete`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import rich_click as click

from .. import live, tables
from ..live import Column, LiveError, Node, Target
from ..options import AnyCase, json_option, permissions

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
_STATUS_UNREAD = "the drain agent's status is not shown"
_MOST = 40
"""Characters of a node's state in Slurm or Kubernetes."""


@click.command(
    epilog=permissions(
        *("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes"),
        *("ec2:DescribeSubnets", "s3:GetObject", "s3:ListBucket", "kms:Decrypt"),
        besides="ec2:DescribeSubnets is needed only for zones that the file does not name. Those of S3 and KMS read the drain "
        "agent's status. Without them, the column stays empty and a note says why. --kubernetes needs a kubectl that may list "
        "nodes.\n\nExit code 0: listed, even if there is no node. 1: the cluster could not be read, or a NODE or group is unknown.",
    )
)
@click.argument("names", nargs=-1, metavar="[NODE]…")
@click.option(
    "--group", "only_groups", multiple=True, metavar="NAME", help="Only nodes of this group. Can be repeated."
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=AnyCase(STATUSES),
    metavar="STATUS",
    help=f"Only nodes in this status: {', '.join(STATUSES)}. Can be repeated.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    type=AnyCase([*IMAGES, OUTDATED]),
    metavar="IMAGE",
    help=f"Only nodes with this image status: {', '.join(IMAGES)}, or {OUTDATED}, which means all but UpToDate. Can be "
    "repeated.",
)
@click.option(
    "--kubernetes",
    is_flag=True,
    help="Add the state in Kubernetes, by your kubectl: Ready, NotReady, SchedulingDisabled, and HyperPod's health label.",
)
@click.option("--ids", is_flag=True, help="Print only instance ids, one per line, as input for `drain` and `replace`.")
@click.option(
    "--write",
    is_flag=True,
    help="Add the nodes to scale_down.nodes_to_delete of the cluster file, and lower instance_count of their groups. Keeps "
    "comments. Needs a NODE or a filter.",
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
    """List the cluster's nodes with Slurm's name, group, status, image, age and zone. Add the state that the drain agent or Kubernetes reports.

    Examples:
        cdk-hyperpod nodes --status Failure
        cdk-hyperpod nodes i-0123456789abcdef0 --write && cdk-hyperpod plan

    NODE is an instance id or a name such as ip-10-1-2-3. Without NODE, all nodes are listed.
    """
    which = _Filter(names=names, groups=only_groups, statuses=statuses, images=images)
    _check_options(which, write=write, ids=ids, as_json=as_json, cluster=cluster)
    target = live.find(config=config, cluster=cluster, region=region, profile=profile)
    described = live.describe(target)
    _refuse_unknown(only_groups, described)
    every = live.nodes(target, described)
    found = which.apply(every)
    if write:
        from ..cluster_file.edit import name_nodes

        tables.say(*name_nodes(config, found).split("\n"))
        return
    if ids:
        tables.say(*(node.instance_id for node in found if node.instance_id))
        return
    found, notes = _with_columns(found, target, described, kubernetes=kubernetes)
    if as_json:
        tables.say_json("nodes", SCHEMA, content(target, described, found, notes))
        return
    tables.say(
        *lines(
            found,
            total=len(every),
            cluster=target.name,
            now=tables.now(),
            columns=tables.width(),
            colour=tables.colour_wanted(),
        )
    )
    for note in [*notes, *_next_steps(found)]:
        tables.say(f"note: {note}")


def _next_steps(found: Sequence[Node]) -> list[str]:
    """The page for whoever finds a node in Failure."""
    is_failed = any(node.status == "Failure" for node in found)
    return ["docs/at-3-am.md says what to do about a node in Failure"] if is_failed else []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filter:
    """Which nodes the options select."""

    names: Sequence[str]
    groups: Sequence[str]
    statuses: Sequence[str]
    images: Sequence[str]

    @property
    def selects_all(self) -> bool:
        """Whether no option narrows the list."""
        return not any((self.names, self.groups, self.statuses, self.images))

    def apply(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes, in the order of the names if there are some. Raises LiveError for names that are not nodes."""
        named = live.chosen(nodes, self.names) if self.names else nodes
        return [node for node in named if self._matches(node)]

    def _matches(self, node: Node) -> bool:
        if self.groups and node.group not in self.groups:
            return False
        if self.statuses and node.status not in self.statuses:
            return False
        return not self.images or self._matches_image(node)

    def _matches_image(self, node: Node) -> bool:
        if node.image_status in self.images:
            return True
        is_outdated = node.image_status not in (None, "UpToDate")
        return is_outdated and OUTDATED in self.images


def _check_options(which: _Filter, *, write: bool, ids: bool, as_json: bool, cluster: str | None) -> None:
    """Raises UsageError for the first rule that the options break."""
    rules = (
        (write and which.selects_all, "--write: name the nodes that a deployment will delete, by NODE or a filter"),
        (
            write and cluster is not None,
            "--write: cannot be combined with --cluster. Name the cluster file by --config",
        ),
        (write and (ids or as_json), "--write: cannot be combined with --ids or --json"),
        (ids and as_json, "--ids: cannot be combined with --json, which has each node's instance_id"),
    )
    for is_broken, message in rules:
        if is_broken:
            raise click.UsageError(message)


def _with_columns(
    found: Sequence[Node], target: Target, cluster: live.Reply, *, kubernetes: bool
) -> tuple[list[Node], list[str]]:
    """The nodes with what other services know of them, and a note for each that could not be read."""
    zones = live.zones(target, cluster)
    is_slurm = live.is_slurm(cluster)
    drains = _read_drain_states(target, cluster)
    states = _read_kubernetes(cluster) if kubernetes else Column()
    nodes = [
        replace(
            node,
            zone=zones.cells.get(node.group),
            slurm_name=node.host if is_slurm else None,
            drain=drains.cells.get(node.name),
            kubernetes=states.cells.get(node.name),
        )
        for node in found
    ]
    return nodes, [column.unread for column in (zones, drains, states) if column.unread]


def lines(
    found: Sequence[Node], *, total: int, cluster: str, now: datetime, columns: int | None = 80, colour: bool = False
) -> list[str]:
    """The table, and a last line with the counts, and with what the table has no room for."""
    if not found:
        return [f"{cluster}: {_count(0, total)}" if total else f"{cluster}: no nodes"]
    every = [column for column in _COLUMNS if _is_useful(column, found, now)]
    cells = {column.heading: [column.cell(node, now) or "-" for node in found] for column in every}
    shown = _shown_columns(every, cells, columns)
    headings = [column.heading for column in shown]
    table = tables.table(
        headings,
        _rows(shown, cells),
        columns=columns,
        cut=_cut(shown, _SHORTEN_LAST),
        right=[number for number, heading in enumerate(headings) if heading == "age"],
        paint=_PAINT if colour else None,
    )
    last = f"{cluster}: {_count(len(found), total)} ({_statuses(found)})"
    left_out = [_left_out(column.heading, cells[column.heading]) for column in every if column not in shown]
    return [*table, "; ".join([last, *left_out])]


def _is_useful(column: _TableColumn, found: Sequence[Node], now: datetime) -> bool:
    return column.always or any(column.cell(node, now) for node in found)


def _statuses(found: Sequence[Node]) -> str:
    counts = Counter(node.status for node in found)
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))


def _shown_columns(
    every: Sequence[_TableColumn], cells: Mapping[str, Sequence[str]], columns: int | None
) -> list[_TableColumn]:
    """The columns for which the terminal has room. First those are left out that have the same value for every node."""
    shown = [*every]
    same = [column for column in _LEAVE_OUT if len({*cells.get(column, ())}) == 1]
    for heading in [*same, *_LEAVE_OUT]:
        headings = [column.heading for column in shown]
        if tables.fits(headings, _rows(shown, cells), columns=columns, cut=_cut(shown, _SHORTEN)):
            break
        shown = [column for column in shown if column.heading != heading]
    return shown


def _rows(shown: Sequence[_TableColumn], cells: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    return [*zip(*(cells[column.heading] for column in shown), strict=True)]


def _cut(shown: Sequence[_TableColumn], names: Sequence[str]) -> list[int]:
    """The places of these columns."""
    headings = [column.heading for column in shown]
    return [headings.index(heading) for heading in names if heading in headings]


def _left_out(heading: str, cells: Sequence[str]) -> str:
    values = {*cells}
    return f"{heading} of all: {values.pop()}" if len(values) == 1 else f"no room for {heading}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableColumn:
    heading: str
    cell: Callable[[Node, datetime], str | None]
    """Of a node, now."""
    always: bool = True
    """False: shown only if some node has a value."""


_COLUMNS = (
    _TableColumn(heading="node", cell=lambda node, _: node.name),
    _TableColumn(heading="slurm node", cell=lambda node, _: node.slurm_name, always=False),
    _TableColumn(heading="group", cell=lambda node, _: node.group),
    _TableColumn(heading="status", cell=lambda node, _: node.status),
    _TableColumn(heading="image", cell=lambda node, _: node.image_status),
    _TableColumn(heading="age", cell=lambda node, now: tables.age(node.launched, now)),
    _TableColumn(heading="zone", cell=lambda node, _: node.zone),
    _TableColumn(heading="drain", cell=lambda node, _: _short(node.drain), always=False),
    _TableColumn(heading="kubernetes", cell=lambda node, _: _short(node.kubernetes), always=False),
)

_SHORTEN = ("image", "group", "status")
"""Columns that a narrow terminal cuts, in this order. Ids and names of nodes are never cut."""
_SHORTEN_LAST = (*_SHORTEN, "kubernetes", "drain")
"""The same if no more columns can be left out."""
_LEAVE_OUT = ("zone", "image", "age")
"""Columns that a narrower terminal leaves out, in this order."""


def _short(state: str | None) -> str | None:
    return None if state is None else tables.shown(state, _MOST)


def _count(found: int, total: int) -> str:
    if found != total:
        return f"{found} of {total} nodes"
    return "1 node" if total == 1 else f"{total} nodes"


def content(target: Target, cluster: live.Reply, found: Sequence[Node], notes: Sequence[str]) -> dict[str, Any]:
    """What --json prints. Unknown members are null."""
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
                "slurm_name": node.slurm_name,
                "drain_state": node.drain,
                "kubernetes_state": node.kubernetes,
            }
            for node in found
        ],
        "notes": [*notes],
    }


def _refuse_unknown(names: Sequence[str], cluster: live.Reply) -> None:
    known = [str(group["InstanceGroupName"]) for group in live.groups(cluster)]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise LiveError(
            f"--group {', '.join(unknown)}: is not a group of this cluster. Its groups are {', '.join(known) or 'none'}"
        )


def _read_kubernetes(cluster: live.Reply) -> Column:
    from ..kubernetes import states

    return states(cluster)


def _read_drain_states(target: Target, cluster: live.Reply) -> Column:
    """The drain state of each node that a drain request names, by the drain agent."""
    file = target.config
    if file is None or file.slurm is None or file.slurm.drain is None:
        return Column()
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    from ..._lambda.hyperpod.kernel.drain_protocol import StatusError, parse_status, status_key
    from ..._lambda.hyperpod.kernel.text import one_line
    from ...names import drain_bucket_name
    from .. import aws

    bucket = drain_bucket_name(file.name, str(cluster["ClusterArn"]).split(":")[4], target.region)
    try:
        body = target.client("s3").get_object(Bucket=bucket, Key=status_key(file.name))["Body"].read()
        status = parse_status(body, one_line)
    except (ClientError, BotoCoreError) as error:
        if aws.code(error) == "NoSuchKey":
            return Column()
        return Column(unread=f"{_STATUS_UNREAD}: {aws.sentence(error)}")
    except StatusError as error:
        return Column(unread=f"{_STATUS_UNREAD}: the agent {error}")
    return Column(cells={node: one.state for node, one in status.nodes.items()})
