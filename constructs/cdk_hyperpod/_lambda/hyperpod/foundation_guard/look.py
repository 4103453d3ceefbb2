"""Finds what exists: the cluster by its name, the file system among the stack's own resources, and the subnet of either."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..common import api
from ..kernel.owner import OWNER_TAGS
from .decision import Live, Subnet
from .settings import ImmutableSettings, Orchestrator

FILE_SYSTEM = "AWS::FSx::FileSystem"


class Stack(Protocol):
    """Exactly the CloudFormation calls of this package."""

    def describe_stacks(self, *, StackName: str) -> api.Reply: ...

    def list_stack_resources(self, *, StackName: str, NextToken: str = ...) -> api.Reply: ...


class Network(Protocol):
    """Exactly the EC2 calls of this package."""

    def describe_subnets(self, *, SubnetIds: Sequence[str]) -> api.Reply: ...


class Storage(Protocol):
    """Exactly the FSx calls of this package."""

    def describe_file_systems(self, *, FileSystemIds: Sequence[str]) -> api.Reply: ...


Clients = Callable[[str], Any]
"""Makes the client of a service when it is needed."""


_NOT_FOUND = ("FileSystemNotFound", "InvalidSubnetID.NotFound")


def look(settings: ImmutableSettings, stack: str, client: Clients) -> Live:
    """What exists of the immutable settings. Raises api.CALL_ERRORS. `stack`: the foundation's name or id. A stack that does not
    exist (yet) has no resources."""
    made = dict(_resources(client("cloudformation"), stack))
    cluster = _cluster(client("sagemaker"), settings)
    file_system = _file_system(client, made)
    of_cluster = _subnet(client, cluster.subnet, made)
    same = file_system.subnet == cluster.subnet
    return Live(
        orchestrator=cluster.orchestrator,
        cluster_subnet=of_cluster,
        efa=file_system.efa,
        file_system_subnet=of_cluster if same else _subnet(client, file_system.subnet, made),
    )


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The cluster's own facts. None: there is no cluster of this app."""

    orchestrator: Orchestrator | None = None
    subnet: str | None = None


@dataclass(frozen=True, slots=True)
class _FileSystem:
    """The facts of the stack's file system. None: it has none."""

    efa: bool | None = None
    subnet: str | None = None


def _resources(cloudformation: Stack, stack: str) -> Iterator[tuple[str, str]]:
    """Physical id and type of each resource of the stack."""
    try:
        for resource in api.pages(cloudformation.list_stack_resources, "StackResourceSummaries", {"StackName": stack}):
            if resource.get("PhysicalResourceId") and not resource["ResourceStatus"].startswith("DELETE_"):
                yield resource["PhysicalResourceId"], resource["ResourceType"]
    except api.CALL_ERRORS as error:
        if "does not exist" not in api.reason(error):
            raise


def _cluster(sagemaker: api.Reads, settings: ImmutableSettings) -> _Cluster:
    """Empty for a cluster that this app's stack did not create: the cluster's own guard refuses that."""
    try:
        cluster = sagemaker.describe_cluster(ClusterName=settings.cluster)
        tags = api.read_tags(sagemaker, cluster["ClusterArn"])
    except api.CALL_ERRORS as error:
        if api.is_not_found(error):
            return _Cluster()
        raise
    if not _is_owned(tags, settings.cluster_stack):
        return _Cluster()
    eks = (cluster.get("Orchestrator") or {}).get("Eks")
    subnets = (cluster.get("VpcConfig") or {}).get("Subnets") or [None]
    return _Cluster("eks" if eks else "slurm", subnets[0])


def _is_owned(tags: Mapping[str, str], stack: str) -> bool:
    return any(f":stack/{stack}/" in tags.get(tag, "") for tag in OWNER_TAGS)


def _file_system(client: Clients, made: Mapping[str, str]) -> _FileSystem:
    ids = [id for id, kind in made.items() if kind == FILE_SYSTEM]
    found = _describe_file_system(client("fsx"), ids[0]) if ids else None
    if found is None:
        return _FileSystem()
    subnets = found.get("SubnetIds") or [None]
    return _FileSystem(bool(found.get("LustreConfiguration", {}).get("EfaEnabled")), subnets[0])


def _describe_file_system(fsx: Storage, id: str) -> api.Reply | None:
    try:
        (found,) = fsx.describe_file_systems(FileSystemIds=[id])["FileSystems"]
    except api.CALL_ERRORS as error:
        if api.code(error) in _NOT_FOUND:
            return None
        raise
    return None if found.get("Lifecycle") == "DELETING" else found


def _subnet(client: Clients, id: str | None, made: Mapping[str, str]) -> Subnet | None:
    if id is None:
        return None
    network: Network = client("ec2")
    try:
        (found,) = network.describe_subnets(SubnetIds=[id])["Subnets"]
    except api.CALL_ERRORS as error:
        if api.code(error) in _NOT_FOUND:
            return None
        raise
    return Subnet(
        id=id,
        zone=found["AvailabilityZone"],
        zone_id=found.get("AvailabilityZoneId", ""),
        cidr=found["CidrBlock"],
        vpc=found["VpcId"],
        made_here=id in made,
    )
