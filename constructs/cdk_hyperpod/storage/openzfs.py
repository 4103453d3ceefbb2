"""FSx for OpenZFS: the mount of an existing file system, and the rules that allow nodes to reach it."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IConstruct

from ..config.storage import OpenZfsConfig
from ..errors import raise_errors
from ..network.network import HyperPodNetwork
from ..network.security_groups import allow_tcp
from ..typed.validation import check_arguments, check_config
from .dns_name import file_system_dns_name

# The portmapper, NFS, and mount, status and lock (FSx for OpenZFS user guide, "File system access control with VPC").
_NFS_PORTS = ((111, 111), (2049, 2049), (20001, 20003))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenZfsMount:
    """How nodes mount an FSx for OpenZFS file system."""

    dns_name: str
    """The file system's DNS name."""
    mount_path: str = "/home"
    """The path where nodes mount it."""
    access: IConstruct | None = None
    """The rules that allow nodes to reach it. A cluster in the same stack is created after them. None: not of this app."""

    @classmethod
    def from_attributes(
        cls,
        scope: Construct,
        construct_id: str,
        *,
        network: HyperPodNetwork,
        file_system_id: str,
        mount_path: str = "/home",
        security_group: ec2.ISecurityGroup | None = None,
    ) -> OpenZfsMount:
        """The mount of an existing file system: its root volume, over NFS.

        Example::

            homes = OpenZfsMount.from_attributes(
                self,
                "Homes",
                network=HyperPodNetwork(self, "Network", availability_zones=["us-west-2b"]),
                file_system_id="fs-0123456789abcdef0",
                security_group=ec2.SecurityGroup.from_security_group_id(self, "Servers", "sg-0123456789abcdef0"),
            )

        :param network: the network of the nodes that mount it.
        :param file_system_id: such as fs-0123456789abcdef0.
        :param mount_path: the path where nodes mount it.
        :param security_group: the file system's security group. Rules then allow the nodes of `network` to reach it. Default: - you
            allow that yourself.
        :raises ConfigError: for arguments that FSx would refuse.
        """
        child = Construct(scope, construct_id)
        raise_errors(
            check_arguments(OpenZfsMount.from_attributes, network=network, security_group=security_group),
            lambda: child.node.path,
        )
        config = OpenZfsConfig(
            file_system_id=file_system_id,
            mount_path=mount_path,
            security_group_id=None if security_group is None else security_group.security_group_id,
        )
        raise_errors(check_config(config, "storage.openzfs"), lambda: child.node.path)
        return openzfs_mount(child, config, network)


def openzfs_mount(child: Construct, config: OpenZfsConfig, network: HyperPodNetwork) -> OpenZfsMount:
    """The mount of a valid configuration. `child`: the construct for the rules that allow access."""
    group = config.security_group_id
    if group is not None:
        for low, high in _NFS_PORTS:
            allow_tcp(child, f"NodesToServers{low}", network.security_group_id, group, low, high, "NFS")
    return OpenZfsMount(
        dns_name=file_system_dns_name(child, config.file_system_id), mount_path=config.mount_path, access=child
    )
