"""The live cluster as the node commands see it: its groups and its nodes. Reads only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from .._lambda.hyperpod.kernel.cluster_reading import all_groups, instance_id, node_status, node_type, once
from .._lambda.hyperpod.kernel.drain_protocol import NODE_ID
from ..config.cluster import ClusterConfig
from ..errors import HyperPodError
from ..loader import load_config
from . import aws, options
from .aws import Clients, clients

PAGE_SIZE = 100
"""Most that the List calls give at once (botocore: MaxResults)."""

Reply = Mapping[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])


class LiveError(HyperPodError):
    """The command cannot work with this cluster or node."""


class NoClusterError(LiveError):
    """There is no cluster of that name."""


def target_options(command: Command) -> Command:
    """`--config`, `--cluster`, `--region` and `--profile`: what `find` takes."""
    for option in (options.profile_option, options.region_option, options.cluster_option, options.config_option):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster that a command is about."""

    name: str
    region: str
    client: Clients
    config: ClusterConfig | None
    """None: `--cluster` named it, and no file was read."""
    profile: str | None = None

    def node_type(self, group: str) -> str | None:
        """Controller, Login or Compute, as the file has it; None: no file, or the file has no such group."""
        if self.config is None:
            return None
        found = next((each for each in self.config.instance_groups if each.name == group), None)
        return found.node_type.capitalize() if found and found.node_type else None


def find(*, config: str, cluster: str | None, region: str | None, profile: str | None) -> Target:
    """The cluster of the file, or the one that `--cluster` names. Raises HyperPodError. Does not call AWS yet."""
    if cluster is None:
        file = load_config(config).config
        where = region or file.region
        return Target(name=file.name, region=where, client=clients(where, profile), config=file, profile=profile)
    found = region or aws.user_session(profile).get_config_variable("region")
    if not found:
        raise LiveError("--cluster: the region is unknown. Add --region, or set one in your AWS configuration")
    return Target(name=cluster, region=found, client=clients(found, profile), config=None, profile=profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node, by ListClusterNodes and its group."""

    group: str
    instance_id: str | None
    """None: not launched yet."""
    logical_id: str | None
    instance_type: str
    status: str
    message: str
    launched: datetime | None
    image: str | None
    """Release version of its image. None: not reported."""
    image_status: str | None
    """UpToDate, UpdateAvailable, SecurityUpdateRequired or EndOfLife. None: not reported."""
    host: str | None
    """Its host name in the VPC, such as ip-10-1-2-3."""
    node_type: str | None = None
    """Controller, Login or Compute. None: not Slurm, or set up by files on the nodes."""
    zone: str | None = None
    slurm_name: str | None = None
    """Its NodeName in Slurm, which HyperPod makes of the host name. None: not under Slurm, or not reported."""
    drain: str | None = None
    """Its drain state, by the drain agent. None: no drain request names it, or there is no agent."""
    kubernetes: str | None = None
    """Its state in Kubernetes. None: not read, or unknown to Kubernetes."""
    updated: datetime | None = None
    """When HyperPod updated its software last. None: never, or not reported."""

    @property
    def name(self) -> str:
        """The id by which AWS knows it."""
        return self.instance_id or self.logical_id or "?"


def describe(target: Target) -> Reply:
    """DescribeCluster. Raises NoClusterError if there is none, LiveError if the file names another account."""
    from botocore.exceptions import ClientError  # type: ignore[import-untyped]

    try:
        reply: Reply = target.client("sagemaker").describe_cluster(ClusterName=target.name)
    except ClientError as error:
        if aws.is_gone(error):
            raise NoClusterError(
                f"your credentials find no cluster {target.name} in {target.region}. Deploy the file, or name another "
                "--profile or --region"
            ) from None
        raise
    expected = None if target.config is None else target.config.account
    if (why := aws.another_account(expected, str(reply["ClusterArn"]).split(":")[4])) is not None:
        raise LiveError(why)
    return reply


def cluster_id(cluster: Reply) -> str:
    """The random end of its ARN, which log groups and session targets have."""
    return str(cluster["ClusterArn"]).rpartition("/")[2]


def is_continuous(cluster: Reply) -> bool:
    """Whether HyperPod provisions node by node, and keeps events."""
    return cluster.get("NodeProvisioningMode") == "Continuous"


def is_slurm(cluster: Reply) -> bool:
    """Whether Slurm is the orchestrator, also if files on the nodes set it up."""
    return "Eks" not in (cluster.get("Orchestrator") or {})


def groups(cluster: Reply) -> list[Reply]:
    """Its instance groups, restricted ones last."""
    return all_groups(cluster)


def nodes(target: Target, cluster: Reply, group: str | None = None) -> list[Node]:
    """Every node, by group and then by id; one call for each 100. `group`: only nodes of this group; None: of all."""
    request: dict[str, Any] = {"ClusterName": target.name, "MaxResults": PAGE_SIZE}
    if group is not None:
        request["InstanceGroupNameContains"] = group
    if is_continuous(cluster):
        request["IncludeNodeLogicalIds"] = True
    order = {str(group["InstanceGroupName"]): number for number, group in enumerate(groups(cluster))}
    kinds = node_types(target, cluster)
    listed = aws.pages(target.client("sagemaker").list_cluster_nodes, "ClusterNodeSummaries", **request)
    found = [_node(reply, kinds) for reply in once(listed) if group in (None, reply["InstanceGroupName"])]
    return sorted(found, key=lambda node: (order.get(node.group, len(order)), node.instance_id is None, node.name))


def node_types(target: Target, cluster: Reply) -> dict[str, str | None]:
    """Controller, Login or Compute of each group: as the cluster reports it, or else the file."""
    of_file = target.config.instance_groups if target.config else ()
    found = {group.name: target.node_type(group.name) for group in of_file}
    reported = {str(group["InstanceGroupName"]): node_type(group) for group in groups(cluster)}
    return {**found, **{name: kind for name, kind in reported.items() if kind}}


def _node(reply: Reply, node_types: Mapping[str, str | None]) -> Node:
    host = reply.get("PrivateDnsHostname")
    launched = instance_id(reply)
    return Node(
        group=reply["InstanceGroupName"],
        instance_id=launched,
        logical_id=reply.get("NodeLogicalId"),
        instance_type=reply.get("InstanceType") or "-",
        status=node_status(reply),
        message=(reply.get("InstanceStatus") or {}).get("Message") or "",
        launched=_utc(reply.get("LaunchTime")) if launched else None,
        image=reply.get("CurrentImageReleaseVersion"),
        image_status=reply.get("ImageVersionStatus"),
        host=host.split(".")[0] if host else None,
        node_type=node_types.get(reply["InstanceGroupName"]),
        updated=_utc(reply.get("LastSoftwareUpdateTime")),
    )


def _utc(time: datetime | None) -> datetime | None:
    return time.astimezone(UTC) if time else None


def is_node_id(name: str) -> bool:
    """Whether it is a node's id. Otherwise it may be a name in the VPC."""
    return re.fullmatch(NODE_ID, name) is not None


def one_node(target: Target, cluster: Reply, name: str) -> Node:
    """The node with this instance id, or this name in the VPC. Raises LiveError."""
    if not is_node_id(name):
        return _of_host(nodes(target, cluster), name)
    from botocore.exceptions import ClientError

    try:
        reply = target.client("sagemaker").describe_cluster_node(ClusterName=target.name, NodeId=name)["NodeDetails"]
    except ClientError as error:
        if aws.is_gone(error):
            raise LiveError(_no_node(name, target.name)) from None
        raise
    found = _node(reply, node_types(target, cluster))
    return replace(found, zone=(reply.get("Placement") or {}).get("AvailabilityZone"))


def _of_host(found: Sequence[Node], name: str) -> Node:
    for node in found:
        if name in (node.host, node.logical_id) and node.instance_id:
            return node
    raise LiveError(_no_node(name))


def _no_node(name: str, cluster: str = "the cluster") -> str:
    return (
        f"{ascii(name)[1:-1]}: is not a node of {cluster}. Write an instance id, or a name such as ip-10-1-2-3. "
        "`cdk-hyperpod nodes` lists them"
    )


def chosen(found: Sequence[Node], names: Sequence[str]) -> list[Node]:
    """The nodes with these ids or names, in the order of the names. Raises LiveError with every name that is not a node."""
    known: dict[str, Node] = {}
    for node in found:
        known |= dict.fromkeys(filter(None, (node.instance_id, node.host, node.logical_id)), node)
    wrong = [name for name in names if name not in known]
    if wrong:
        raise LiveError("\n".join(_no_node(name) for name in wrong))
    return list(dict.fromkeys(known[name] for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A fact about nodes that another service knows."""

    cells: Mapping[str, str] = field(default_factory=dict)
    """By node or by group, as the reader says. Missing: unknown."""
    unread: str | None = None
    """Why the fact could not be read; None: it was."""


def zones(target: Target, cluster: Reply) -> Column:
    """Each group's zone. A group in several zones has none here.

    The file's zones for its groups, and one DescribeSubnets for all groups of which the file names no zone.
    """
    from botocore.exceptions import ClientError

    from_file = _zones_of_file(target.config)
    subnets = {name: of_group for name, of_group in _subnets_by_group(cluster).items() if name not in from_file}
    every_subnet = sorted({subnet for of_group in subnets.values() for subnet in of_group})
    if not every_subnet:
        return Column(cells=from_file)
    try:
        reply = target.client("ec2").describe_subnets(SubnetIds=every_subnet)
    except ClientError as error:
        missing = ", ".join(subnets)
        return Column(cells=from_file, unread=f"the zones of {missing} are not shown: {aws.sentence(error)}")
    zone_of = {subnet["SubnetId"]: str(subnet["AvailabilityZone"]) for subnet in reply.get("Subnets", [])}
    found = {group: _only_zone(of_group, zone_of) for group, of_group in subnets.items()}
    return Column(cells=from_file | {group: zone for group, zone in found.items() if zone is not None})


def _subnets_by_group(cluster: Reply) -> dict[str, list[str]]:
    """The subnets of each group: its own, or else the cluster's."""
    of_cluster = (cluster.get("VpcConfig") or {}).get("Subnets") or []
    return {
        str(group["InstanceGroupName"]): (group.get("OverrideVpcConfig") or {}).get("Subnets") or of_cluster
        for group in groups(cluster)
    }


def _only_zone(subnets: Sequence[str], zone_of: Mapping[str, str]) -> str | None:
    """The zone that all of these subnets are in; None: several, or unknown."""
    found = {zone_of.get(subnet) for subnet in subnets}
    return found.pop() if len(found) == 1 else None


def _zones_of_file(config: ClusterConfig | None) -> dict[str, str]:
    """The zone of each group of which the file names it, itself or by the network's first zone."""
    from ..rules.network import own_zones

    if config is None:
        return {}
    own = own_zones(config.network)
    first = own[0] if own else None
    found: dict[str, str] = {}
    for group in config.instance_groups:
        zone = group.availability_zone or first
        if zone is not None:
            found[group.name] = zone
    return found
