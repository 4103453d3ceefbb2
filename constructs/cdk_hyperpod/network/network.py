"""The network of a cluster: a VPC of its own or an existing one, private subnets, and the nodes' security group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from aws_cdk import Annotations, CfnTag, Fn, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct, IConstruct

from .._common import reasons
from .._common.acknowledge import acknowledge, without_traces
from .._common.dependencies import AtSynth
from .._common.removal import check_removal
from ..config.cluster import NetworkConfig, SubnetConfig
from ..config.zones import (
    INTERFACE_ENDPOINTS,
    ZoneSubnet,
    control_plane_subnet,
    control_plane_zone,
    control_plane_zones,
    has_interface_endpoints,
    is_zone_id,
    more_endpoints,
    plan_subnets,
    zones_of_all,
)
from ..errors import Finding, raise_errors
from ..facts.s3_prefix_lists import S3_PREFIX_LISTS
from ..loader import LoadedConfig
from ..rules import check_network, what_closed_means
from ..typed.annotations import arguments_of, field_types
from ..typed.validation import as_tuple, check_at_synth, check_call, check_config, require_arguments
from .endpoint_policies import endpoint_policy
from .flow_log import add_flow_log
from .given_vpc import VpcChoice, check_one_vpc, choose_vpc
from .security_groups import allow_all, allow_tcp, closed_security_group

_ANYWHERE = "0.0.0.0/0"

_WRITE_CIDR = "write the range out, such as 10.0.0.0/16"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateSubnet:
    """A private subnet and its zone."""

    subnet_id: str
    """The subnet's id."""
    availability_zone: str | None
    """None: the account's first zone."""
    cidr: str | None
    """None: unknown, so its free addresses are not checked."""
    endpoints: int = 0
    """The number of interface endpoints with an address in it."""


class HyperPodNetwork(Construct):
    """Private subnets, one in each zone, and the security group of all nodes of a cluster.

    Explicit rules of the group allow all traffic between its members, in and out, as EFA requires. Nodes reach only the VPC's
    endpoints, unless `internet_egress` is set.

    Cost: interface endpoints are billed by the hour (a closed network has ten), a NAT gateway by hour and by data.
    Running nodes: a change of the first zone, of `cidr` or of `vpc_id` would create another subnet. An existing cluster cannot
    move there, because CloudFormation refuses to replace a cluster that has a name. Create a new cluster instead.

    Example::

        network = HyperPodNetwork(
            self,
            "Network",
            vpc=ec2.Vpc.from_lookup(self, "Vpc", tags={"Name": "shared"}),
            vpc_subnets=ec2.SubnetSelection(availability_zones=["us-west-2b"]),
            internet_egress=True,
        )
    """

    config: NetworkConfig
    """The arguments as the `network` of a cluster file."""
    warnings: Sequence[Finding]
    """Warnings about the network. The cluster shows them."""
    vpc_id: str
    """The VPC's id."""
    subnets: tuple[PrivateSubnet, ...]
    """The nodes' subnets: the cluster's own first, then one in each other zone."""
    control_plane_subnet: PrivateSubnet | None
    """The second subnet of an EKS cluster's control plane. None: it uses the nodes' subnets."""
    resource: ec2.CfnSecurityGroup
    """The security group of all nodes."""
    security_group_id: str
    """The id of that security group."""
    more_endpoints: tuple[str, ...]
    """Services with an interface endpoint, besides those that every cluster needs."""
    endpoint_security_group_id: str | None
    """The security group of the interface endpoints, new or existing. None: there are no interface endpoints."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        availability_zones: Sequence[str] = (),
        internet_egress: bool = False,
        cidr: str = "10.0.0.0/16",
        interface_endpoints: bool | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        vpc_id: str | None = None,
        subnets: Sequence[SubnetConfig] = (),
        endpoint_security_group_id: str | None = None,
        s3_prefix_list_id: str | None = None,
        endpoint_policies: Literal["none", "account", "organization"] = "none",
        trusted_accounts: Sequence[str] = (),
        organization_id: str | None = None,
        more_endpoints: Sequence[str] = (),
        control_plane_zone: str | None = None,
        log_encryption_key: kms.IKey | None = None,
        flow_log_group: logs.ILogGroup | None = None,
        removal_policy: RemovalPolicy | None = None,
    ) -> None:
        """Make a network, or use an existing VPC.

        Arguments that are not described here are fields of `NetworkConfig`, and described there.

        :param availability_zones: the cluster's own zone first, then the zones of groups that are elsewhere. Default: - the
            account's first zone.
        :param vpc: an existing VPC, or one of this app, instead of `vpc_id` and `subnets`. `Vpc.from_lookup` works. CDK's first
            pass does not know that VPC yet, so nothing is validated in it. Default: - a new VPC.
        :param vpc_subnets: the nodes' subnets in that VPC, one in each zone, never public ones. The first zone is the cluster's
            own. Default: - its private subnets.
        :param more_endpoints: services that need an interface endpoint, besides those that every cluster needs. An EKS cluster
            needs eks, eks-auth and lambda. Default: - none.
        :param control_plane_zone: the second zone that a new EKS cluster requires, if `availability_zones` has only one. Only the
            control plane uses its subnet. Immutable. Default: - none.
        :param log_encryption_key: encrypts the flow log of a new VPC. The policy of an imported key must allow CloudWatch Logs to use
            it. Default: - CloudWatch's own key.
        :param flow_log_group: the log group for the flow log of a new VPC. Default: - one is made, which keeps events for a year.
        :param removal_policy: of that log group, when it leaves the stack: RETAIN or DESTROY. Default: - RemovalPolicy.DESTROY.
        :raises ConfigError: with everything that AWS would refuse.
        """
        super().__init__(scope, construct_id)
        argument_findings = [
            *check_call(HyperPodNetwork.__init__, locals(), apart=field_types(NetworkConfig)),
            *check_removal(removal_policy),
            *check_one_vpc(vpc, vpc_subnets, vpc_id, subnets),
        ]
        choice = VpcChoice() if argument_findings else choose_vpc(vpc, vpc_subnets)
        self._given = choice.given
        if choice.given is not None:
            vpc_id, subnets = choice.given.vpc_id, choice.given.subnet_configs()
        self.config = NetworkConfig(
            availability_zones=as_tuple(availability_zones),
            internet_egress=internet_egress,
            cidr=cidr,
            interface_endpoints=interface_endpoints,
            vpc_id=vpc_id,
            subnets=as_tuple(subnets),
            endpoint_security_group_id=endpoint_security_group_id,
            s3_prefix_list_id=s3_prefix_list_id,
            endpoint_policies=endpoint_policies,
            trusted_accounts=as_tuple(trusted_accounts),
            organization_id=organization_id,
        )
        self._region, self._stack_name = Stack.of(self).region, Stack.of(self).stack_name
        self.warnings = self._validate(self.config, [*argument_findings, *choice.findings])
        without_traces(self)
        self._removal_policy = removal_policy or RemovalPolicy.DESTROY
        self._retainable: list[ec2.CfnVPC | ec2.CfnSubnet] = []
        self._s3_endpoint: ec2.CfnVPCEndpoint | None = None
        self.more_endpoints = tuple(more_endpoints)
        self.control_plane_subnet = None
        self._explain_closed_network()
        plans = plan_subnets(self.config, services=more_endpoints)
        if self.config.vpc_id is not None:
            self.vpc_id = self.config.vpc_id
            self.subnets = tuple(_existing(plan) for plan in plans)
        else:
            self._add_vpc(self.config, log_encryption_key, flow_log_group)
            self._add_subnets(self.config, plans, control_plane_zone)
        self.resource = self._add_node_security_group()
        # A node calls AWS as soon as it starts. The cluster waits for the group, so the group waits for the routes.
        self.resource.node.add_dependency(AtSynth(self._given_ways_out))
        self.endpoint_security_group_id = self._add_endpoints(self.config)

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        log_encryption_key: kms.IKey | None = None,
        flow_log_group: logs.ILogGroup | None = None,
    ) -> HyperPodNetwork:
        """The network of a cluster file, with a subnet in each zone that a group of the file names.

        :param loaded: the file.
        :param log_encryption_key: as in the constructor.
        :param flow_log_group: as in the constructor.
        """
        require_arguments(HyperPodNetwork.from_config, lambda: f"{scope.node.path}/{construct_id}", loaded=loaded)
        config = loaded.config
        settings = arguments_of(config.network)
        if not config.network.subnets:
            settings["availability_zones"] = zones_of_all(config)
        return cls(
            scope,
            construct_id,
            **settings,
            more_endpoints=more_endpoints(config),
            control_plane_zone=control_plane_zone(config),
            log_encryption_key=log_encryption_key,
            flow_log_group=flow_log_group,
        )

    @cached_property
    def control_plane_subnets(self) -> list[ec2.ISubnet]:
        """The subnets of a new EKS control plane: of the first two zones, or of the first and `control_plane_zone`."""
        if self.control_plane_subnet is None:
            zones = control_plane_zones([subnet.availability_zone for subnet in self.subnets], None)
            both = zip(self.vpc.private_subnets, self.subnets, strict=True)
            return [reference for reference, subnet in both if subnet.availability_zone in zones]
        second = ec2.Subnet.from_subnet_attributes(
            self,
            "SecondReference",
            subnet_id=self.control_plane_subnet.subnet_id,
            availability_zone=self.control_plane_subnet.availability_zone,
        )
        Annotations.of(second).acknowledge_warning(
            "@aws-cdk/aws-ec2:noSubnetRouteTableId", "Nothing here asks a subnet for its routes."
        )
        return [self.vpc.private_subnets[0], second]

    @cached_property
    def vpc(self) -> ec2.IVpc:
        """The VPC, for other constructs."""
        if self._given is not None:
            return self._given.vpc
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "VpcReference",
            vpc_id=self.vpc_id,
            availability_zones=[subnet.availability_zone or Fn.select(0, Fn.get_azs()) for subnet in self.subnets],
            private_subnet_ids=[subnet.subnet_id for subnet in self.subnets],
        )
        for subnet in vpc.private_subnets:
            Annotations.of(subnet).acknowledge_warning(
                "@aws-cdk/aws-ec2:noSubnetRouteTableId", "Nothing here asks a subnet for its routes."
            )
        return vpc

    @cached_property
    def security_group(self) -> ec2.ISecurityGroup:
        """The nodes' security group, for rules of other constructs."""
        return ec2.SecurityGroup.from_security_group_id(
            self,
            "NodesReference",
            self.security_group_id,
            # CDK adds no egress rules to a group that allows all outbound traffic.
            allow_all_outbound=self.config.internet_egress,
        )

    def subnet_in(self, availability_zone: str | None) -> PrivateSubnet:
        """The subnet of a zone.

        :param availability_zone: the zone. None: the cluster's own zone.
        :raises KeyError: if the zone has no subnet.
        """
        if availability_zone is None:
            return self.subnets[0]
        for subnet in self.subnets:
            if subnet.availability_zone == availability_zone:
                return subnet
        if self._given is not None and not self._given.is_looked_up:
            return self.subnets[0]
        raise KeyError(availability_zone)

    def retain(self) -> None:
        """Keep the VPC and the cluster's own subnet when the stack is deleted, because retained resources use them."""
        for resource in self._retainable:
            resource.apply_removal_policy(RemovalPolicy.RETAIN)

    def allow_custom_resources(self) -> None:
        """Allow custom resources' functions in the VPC to answer CloudFormation through the S3 endpoint.

        It has an effect only if `endpoint_policies` limits that endpoint. `EksControlPlane` calls it for kubectl's functions. Running
        nodes: not affected.
        """
        if self._s3_endpoint is not None:
            self._s3_endpoint.policy_document = endpoint_policy(self.config, "s3", self._region, functions=True)

    def _validate(self, config: NetworkConfig, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Raise ConfigError with everything that is wrong. Returns the warnings."""
        region = self._region
        all_findings = [*findings, *check_config(config, "network", lambda known: check_network(known, region=region))]
        if config.vpc_id is None:
            # The subnets of a new VPC are ranges of its own, computed at synthesis.
            all_findings += check_at_synth(config.cidr, "network.cidr", _WRITE_CIDR)
        return raise_errors(all_findings, lambda: self.node.path)

    def _explain_closed_network(self) -> None:
        note = what_closed_means(self.config)
        if note is not None:
            Annotations.of(self).add_info_v2("cdk-hyperpod:what-closed-means", note)

    def _add_endpoints(self, config: NetworkConfig) -> str | None:
        """Add interface endpoints, or let the nodes reach existing ones. Returns their security group. None: there are none."""
        if has_interface_endpoints(config):
            return self._add_interface_endpoints([*INTERFACE_ENDPOINTS, *self.more_endpoints])
        if config.endpoint_security_group_id is not None:
            self._allow_endpoints(config.endpoint_security_group_id)
        return config.endpoint_security_group_id

    def _add_vpc(self, config: NetworkConfig, key: kms.IKey | None, flow_log_group: logs.ILogGroup | None) -> None:
        vpc = ec2.CfnVPC(
            self,
            "Vpc",
            cidr_block=config.cidr,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=self._named(),
        )
        acknowledge(vpc, reasons.VPC)
        self._retainable.append(vpc)
        self.vpc_id = vpc.attr_vpc_id
        add_flow_log(self, self.vpc_id, key, flow_log_group, removal_policy=self._removal_policy)

    def _add_subnets(self, config: NetworkConfig, plans: Sequence[ZoneSubnet], control_plane_zone: str | None) -> None:
        """Add the subnets of a new VPC, and their routes."""
        routes = ec2.CfnRouteTable(self, "PrivateRoutes", vpc_id=self.vpc_id, tags=self._named("private"))
        self.subnets = tuple(self._add_private_subnet(plan, routes) for plan in plans)
        if control_plane_zone is not None:
            self._add_control_plane_subnet(config, control_plane_zone, routes)
        self._s3_endpoint = ec2.CfnVPCEndpoint(
            self,
            "S3Endpoint",
            vpc_id=self.vpc_id,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{self._region}.s3",
            route_table_ids=[routes.ref],
            policy_document=endpoint_policy(config, "s3", self._region),
        )
        if config.internet_egress:
            self._add_internet_egress(plans[0], routes)

    def _add_subnet(
        self, kind: Literal["Private", "Public"], plan: ZoneSubnet, routes: ec2.CfnRouteTable
    ) -> ec2.CfnSubnet:
        zone, zone_id = _zone_properties(plan.availability_zone)
        subnet = ec2.CfnSubnet(
            self,
            f"{kind}{plan.key}",
            vpc_id=self.vpc_id,
            cidr_block=plan.cidr if kind == "Private" else plan.public_cidr,
            map_public_ip_on_launch=False,
            availability_zone=zone,
            availability_zone_id=zone_id,
            tags=self._named(kind.lower()),
        )
        acknowledge(subnet, reasons.SUBNET)
        ec2.CfnSubnetRouteTableAssociation(
            self, f"{kind}{plan.key}Routes", subnet_id=subnet.attr_subnet_id, route_table_id=routes.ref
        )
        return subnet

    def _add_private_subnet(self, plan: ZoneSubnet, routes: ec2.CfnRouteTable) -> PrivateSubnet:
        subnet = self._add_subnet("Private", plan, routes)
        # Only the cluster's own subnet is retained: another zone that is added again would find its range in use.
        if len(self._retainable) == 1:
            self._retainable.append(subnet)
        return PrivateSubnet(
            subnet_id=subnet.attr_subnet_id,
            availability_zone=plan.availability_zone,
            cidr=plan.cidr,
            endpoints=plan.endpoints,
        )

    def _add_control_plane_subnet(self, config: NetworkConfig, zone: str, routes: ec2.CfnRouteTable) -> None:
        """Use the nodes' subnet of that zone, or add one."""
        there = [subnet for subnet in self.subnets if subnet.availability_zone == zone]
        plan = control_plane_subnet(config, zone)
        self.control_plane_subnet = there[0] if there else self._add_private_subnet(plan, routes)

    def _add_internet_egress(self, plan: ZoneSubnet, routes: ec2.CfnRouteTable) -> None:
        """Add one NAT gateway in the cluster's own zone. Nodes of other zones use it too."""
        gateway = ec2.CfnInternetGateway(self, "InternetGateway", tags=self._named())
        attachment = ec2.CfnVPCGatewayAttachment(
            self, "InternetGatewayAttachment", vpc_id=self.vpc_id, internet_gateway_id=gateway.ref
        )
        public_routes = ec2.CfnRouteTable(self, "PublicRoutes", vpc_id=self.vpc_id, tags=self._named("public"))
        to_internet = ec2.CfnRoute(
            self,
            "PublicDefaultRoute",
            route_table_id=public_routes.ref,
            destination_cidr_block=_ANYWHERE,
            gateway_id=gateway.ref,
        )
        to_internet.add_resource_dependency(attachment)
        acknowledge(to_internet, reasons.ROUTE_TO_INTERNET)
        subnet = self._add_subnet("Public", plan, public_routes)
        address = ec2.CfnEIP(self, "NatAddress", domain="vpc", tags=self._named("nat"))
        address.add_resource_dependency(attachment)
        nat = ec2.CfnNatGateway(
            self,
            "NatGateway",
            subnet_id=subnet.attr_subnet_id,
            allocation_id=address.attr_allocation_id,
            tags=self._named(),
        )
        nat.add_resource_dependency(to_internet)
        ec2.CfnRoute(
            self,
            "PrivateDefaultRoute",
            route_table_id=routes.ref,
            destination_cidr_block=_ANYWHERE,
            nat_gateway_id=nat.attr_nat_gateway_id,
        )

    def _add_node_security_group(self) -> ec2.CfnSecurityGroup:
        group = ec2.CfnSecurityGroup(
            self,
            "Nodes",
            group_description="Nodes of a HyperPod cluster",
            vpc_id=self.vpc_id,
            security_group_egress=[self.outward_rule()],
            tags=self._named("nodes"),
        )
        self.security_group_id = group.attr_group_id
        # EFA traffic matches only rules that name the group itself, never a range of addresses.
        allow_all(
            self, "NodesToNodes", self.security_group_id, self.security_group_id, "All between nodes, EFA included"
        )
        return group

    def _given_ways_out(self) -> list[IConstruct]:
        """The given subnets' routes and the VPC's gateway endpoints, as far as this app makes them."""
        if self._given is None:
            return []
        endpoints = [child for child in self._given.vpc.node.find_all() if isinstance(child, ec2.GatewayVpcEndpoint)]
        return [*self._given.subnets, *endpoints]

    def outward_rule(self) -> ec2.CfnSecurityGroup.EgressProperty:
        """The egress rule of a security group: all traffic with internet egress, otherwise only to S3."""
        if self.config.internet_egress:
            return ec2.CfnSecurityGroup.EgressProperty(
                ip_protocol="-1", cidr_ip=_ANYWHERE, description="Internet egress"
            )
        prefix_list = self.config.s3_prefix_list_id or S3_PREFIX_LISTS.get(self._region)
        if prefix_list is not None:
            return ec2.CfnSecurityGroup.EgressProperty(
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                destination_prefix_list_id=prefix_list,
                description="S3 through its gateway endpoint",
            )
        # The closed subnets of a new VPC reach nothing but the endpoints. Those of an existing VPC may reach more, so there the
        # rules require the prefix list.
        return ec2.CfnSecurityGroup.EgressProperty(
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            cidr_ip=_ANYWHERE,
            description="S3 through its gateway endpoint",
        )

    def _add_interface_endpoints(self, services: Sequence[str]) -> str:
        """Add endpoints in the cluster's own zone. Nodes of other zones use them too."""
        group = closed_security_group(self, "Endpoints", self, "Interface endpoints that the nodes call", "endpoints")
        group_id = group.attr_group_id
        self._allow_endpoints(group_id)
        for service in services:
            ec2.CfnVPCEndpoint(
                self,
                "Endpoint" + "".join(part.capitalize() for part in re.split("[.-]", service)),
                vpc_id=self.vpc_id,
                vpc_endpoint_type="Interface",
                service_name=f"com.amazonaws.{self._region}.{service}",
                private_dns_enabled=True,
                security_group_ids=[group_id],
                subnet_ids=[self.subnets[0].subnet_id],
                policy_document=endpoint_policy(self.config, service, self._region),
            )
        return group_id

    def _allow_endpoints(self, group_id: str) -> None:
        allow_tcp(self, "NodesToEndpoints", self.security_group_id, group_id, 443, 443, "AWS services")

    def _named(self, part: str = "") -> list[CfnTag]:
        """A Name tag, which the console shows."""
        return [CfnTag(key="Name", value="/".join(filter(None, [self._stack_name, part])))]


def _zone_properties(zone: str | None) -> tuple[str | None, str | None]:
    """A subnet's AvailabilityZone and AvailabilityZoneId. Exactly one of them is set."""
    if zone is None:
        return Fn.select(0, Fn.get_azs()), None
    return (None, zone) if is_zone_id(zone) else (zone, None)


def _existing(plan: ZoneSubnet) -> PrivateSubnet:
    return PrivateSubnet(subnet_id=plan.key, availability_zone=plan.availability_zone, cidr=plan.cidr)
