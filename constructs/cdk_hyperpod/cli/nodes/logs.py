"""`cdk-hyperpod logs`: the log lines of a node's lifecycle scripts and health agent in CloudWatch Logs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import rich_click as click

from .. import aws, live, tables
from ..live import LiveError, Node, Target
from ..options import json_option, permissions

SCHEMA = 1
POLL_S = 5.0
SOURCES = {"lifecycle": "LifecycleConfig", "health": "SagemakerHealthMonitoringAgent"}
"""Source -> how the names of its streams begin. The group and the instance id follow (AWS documents both)."""

Line = tuple[datetime, str, str]
"""Time, source and message."""


@click.command(
    epilog=permissions(
        *("sagemaker:DescribeCluster", "sagemaker:DescribeClusterNode", "sagemaker:ListClusterNodes"),
        *("logs:DescribeLogStreams", "logs:GetLogEvents"),
        besides="sagemaker:ListClusterNodes is needed only for a name such as ip-10-1-2-3.\n\nExit code 0: printed, even if "
        "nothing was logged yet. 1: the log cannot be read, or no node ever had this id. 130: Ctrl-C, which ends --follow.",
    )
)
@click.argument("name", metavar="NODE")
@click.option(
    "--source", type=click.Choice([*SOURCES, "all"]), default="all", help="Source of the lines; default: all."
)
@click.option(
    "--lines",
    "most",
    type=click.IntRange(1, 10_000),
    default=200,
    metavar="N",
    help="Number of lines, the last ones; default: 200.",
)
@click.option("--follow", is_flag=True, help="Print new lines as they are logged, until Ctrl-C.")
@json_option
@live.target_options
def logs(
    name: str,
    source: str,
    most: int,
    config: str,
    cluster: str | None,
    region: str | None,
    profile: str | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Print what a node's lifecycle scripts and health agent logged.

    Example:
        cdk-hyperpod logs i-0123456789abcdef0 --source lifecycle --follow

    NODE is an instance id or a name such as ip-10-1-2-3. For a deleted node it must be the instance id.
    """
    if follow and as_json:
        raise click.UsageError("--follow: cannot be combined with --json, which prints one document")
    target = live.find(config=config, cluster=cluster, region=region, profile=profile)
    described = live.describe(target)
    group, instance = _of(target, described, name)
    reader = Reader(target, described, instance, group, list(SOURCES) if source == "all" else [source])
    found = reader.last(most)
    if group is None and not reader.has_streams:
        raise LiveError(
            f"{instance}: is not a node of {target.name}, and no log stream of the cluster has this id, so it never was one or "
            "its log has expired. `cdk-hyperpod nodes` lists the nodes"
        )
    if as_json:
        rows = [{"time": when, "source": of, "message": text} for when, of, text in found]
        content = {"cluster": target.name, "instance_id": instance, "log_group": reader.log_group, "lines": rows}
        tables.say_json("logs", SCHEMA, content)
        return
    tables.say(*map(shown, found))
    if not found and not follow:
        tables.say(f"{instance}: nothing was logged yet in {reader.log_group}")
    while follow:
        time.sleep(POLL_S)
        tables.say(*map(shown, reader.more()))


def shown(line: Line) -> str:
    """One line for a terminal."""
    when, source, text = line
    return f"{when:%Y-%m-%d %H:%M:%S} {source:<9} {tables.shown(text, 10_000)}"


def _of(target: Target, cluster: live.Reply, name: str) -> tuple[str | None, str]:
    """The node's group and its instance id. None: the node was deleted, so its group is unknown."""
    try:
        node: Node = live.one_node(target, cluster, name)
    except LiveError:
        if not live.is_node_id(name):
            raise
        return None, name
    if node.instance_id is None:
        raise LiveError(f"{node.name}: is {node.status} and has no instance yet, so it has no log")
    return node.group, node.instance_id


def log_group(cluster: live.Reply) -> str:
    """The log group of a cluster's nodes."""
    return f"/aws/sagemaker/Clusters/{cluster['ClusterName']}/{live.cluster_id(cluster)}"


@dataclass
class Reader:
    """Reads a node's streams, each time from where it stopped."""

    target: Target
    cluster: live.Reply
    instance: str
    group: str | None
    """None: the node was deleted, so all streams of the cluster are searched."""
    sources: Sequence[str]
    _tokens: dict[str, str] = field(default_factory=dict)
    _streams: dict[str, str] = field(default_factory=dict)

    @property
    def log_group(self) -> str:
        """Its name."""
        return log_group(self.cluster)

    @property
    def has_streams(self) -> bool:
        """Whether the node has logged anything, by the last read."""
        return bool(self._streams)

    def last(self, most: int) -> list[Line]:
        """The last lines of all streams together, oldest first."""
        found = [line for stream in self._find() for line in self._read(stream, most)]
        return sorted(found, key=lambda line: line[0])[-most:]

    def more(self) -> list[Line]:
        """Lines logged since the last read, also of new streams, of which a deleted node gets none."""
        if self.group is not None:
            self._find()
        found = [line for stream in self._streams for line in self._read(stream, 10_000)]
        return sorted(found, key=lambda line: line[0])

    def _find(self) -> dict[str, str]:
        if len(self._streams) < len(self.sources):
            for source in self.sources:
                for stream in self._streams_of(source):
                    self._streams.setdefault(stream, source)
        return self._streams

    def _streams_of(self, source: str) -> Iterator[str]:
        """The node's streams. A deleted node may have been in any group, also in one that was deleted with it."""
        if self.group is not None:
            yield from self._listed(f"{SOURCES[source]}/{self.group}/{self.instance}")
            return
        in_groups_that_exist = [
            stream
            for group in live.groups(self.cluster)
            for stream in self._listed(f"{SOURCES[source]}/{group['InstanceGroupName']}/{self.instance}")
        ]
        every = in_groups_that_exist or self._listed(f"{SOURCES[source]}/")
        yield from (stream for stream in every if stream.endswith(f"/{self.instance}"))

    def _listed(self, prefix: str) -> Iterator[str]:
        from botocore.exceptions import ClientError  # type: ignore[import-untyped]

        request = {"logGroupName": self.log_group, "logStreamNamePrefix": prefix}
        try:
            while True:
                reply = self.target.client("logs").describe_log_streams(**request)
                yield from (stream["logStreamName"] for stream in reply.get("logStreams", []))
                if "nextToken" not in reply:
                    return
                request["nextToken"] = reply["nextToken"]
        except ClientError as error:
            if not aws.is_gone(error):
                raise

    def _read(self, stream: str, most: int) -> list[Line]:
        request: dict[str, Any] = {"logGroupName": self.log_group, "logStreamName": stream, "limit": most}
        token = self._tokens.get(stream)
        request |= {"nextToken": token, "startFromHead": True} if token else {"startFromHead": False}
        reply = self.target.client("logs").get_log_events(**request)
        self._tokens[stream] = reply["nextForwardToken"]
        source = self._streams[stream]
        return [
            (datetime.fromtimestamp(event["timestamp"] / 1000, UTC), source, str(event["message"]))
            for event in reply.get("events", [])
        ]
