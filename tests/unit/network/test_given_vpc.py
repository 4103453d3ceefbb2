"""A VPC that CDK knows as IVpc: made by the app, named by attributes, or looked up."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from aws_cdk import Environment, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs

from cdk_hyperpod import ConfigError, HyperPodCluster, HyperPodNetwork, InstanceGroup, LustreFileSystem
from helpers.findings import refused
from helpers.synthesis import Template, flat, folder_of, needs, new_app, of_stack, templates_in

HEAD = InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1)
WORK = InstanceGroup(
    name="work",
    node_type="compute",
    partition="work",
    instance_type="ml.p5.48xlarge",
    instance_count=2,
    availability_zone="us-west-2b",
)
SUBNETS = ["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"]


def by_attributes(stack: Stack, **more: Any) -> ec2.IVpc:
    return ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["us-west-2a", "us-west-2b"],
        private_subnet_ids=SUBNETS,
        **more,
    )


def cluster_in(stack: Stack, **network: Any) -> HyperPodNetwork:
    made = HyperPodNetwork(stack, "Network", internet_egress=True, **network)
    HyperPodCluster(stack, "Cluster", cluster_name="train", network=made, instance_groups=[HEAD, WORK])
    return made


def test_a_vpc_by_its_attributes() -> None:
    def build(stack: Stack) -> None:
        vpc = by_attributes(stack)
        assert cluster_in(stack, vpc=vpc).vpc is vpc

    template = of_stack(build)
    assert not template.of("AWS::EC2::VPC") and not template.of("AWS::EC2::Subnet")
    assert template.only("AWS::SageMaker::Cluster")["VpcConfig"]["Subnets"] == SUBNETS[:1]
    assert template.groups()["work"]["OverrideVpcConfig"]["Subnets"] == SUBNETS[1:]


def test_its_ranges_are_judged_where_they_are_known() -> None:
    def build(stack: Stack) -> None:
        cluster_in(stack, vpc=by_attributes(stack, private_subnet_ipv4_cidr_blocks=["10.0.0.0/24", "10.0.1.0/26"]))

    with pytest.raises(ConfigError, match=r"the subnet 10\.0\.1\.0/26 has 59 addresses"):
        of_stack(build)


def test_a_new_vpc_of_the_same_stack() -> None:
    def build(stack: Stack) -> None:
        vpc = ec2.Vpc(stack, "Vpc", availability_zones=["us-west-2a", "us-west-2b"], nat_gateways=1)
        cluster_in(stack, vpc=vpc)

    template = of_stack(build)
    (subnet,) = template.only("AWS::SageMaker::Cluster")["VpcConfig"]["Subnets"]
    assert flat(subnet).startswith("<VpcPrivateSubnet1")


def test_nodes_wait_for_the_ways_out_of_a_vpc_of_the_same_app() -> None:
    def build(stack: Stack) -> None:
        vpc = ec2.Vpc(stack, "Vpc", availability_zones=["us-west-2a", "us-west-2b"], nat_gateways=1)
        cluster_in(stack, vpc=vpc)
        vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)

    template = of_stack(build)
    before = needs(template, template.only_id("AWS::SageMaker::Cluster"))
    ways = [name for name in template.of("AWS::EC2::Route") if "Private" in name]
    assert len(ways) == 2
    associations = [name for name in template.of("AWS::EC2::SubnetRouteTableAssociation") if "Private" in name]
    assert {*ways, *associations, template.only_id("AWS::EC2::VPCEndpoint")} <= before


def test_an_endpoint_of_a_vpc_of_the_same_app_lets_the_nodes_in() -> None:
    """Its group names the nodes' group, which therefore cannot wait for it."""

    def build(stack: Stack) -> None:
        vpc = ec2.Vpc(stack, "Vpc", availability_zones=["us-west-2a", "us-west-2b"], nat_gateways=1)
        endpoint = vpc.add_interface_endpoint("Sts", service=ec2.InterfaceVpcEndpointAwsService.STS)
        network = cluster_in(stack, vpc=vpc)
        network.security_group.connections.allow_to(endpoint, ec2.Port.tcp(443))

    template = of_stack(build)
    assert not [name for name in template.resources if name in needs(template, name)]


def test_one_subnet_of_each_zone_and_no_public_one() -> None:
    def vpc_with(stack: Stack, *kinds: ec2.SubnetType) -> ec2.IVpc:
        layout = [
            ec2.SubnetConfiguration(name=f"{kind.name}{i}".replace("_", ""), subnet_type=kind)
            for i, kind in enumerate(kinds)
        ]
        zones = ["us-west-2a", "us-west-2b"]
        return ec2.Vpc(stack, "Vpc", availability_zones=zones, subnet_configuration=layout, nat_gateways=0)

    isolated = ec2.SubnetType.PRIVATE_ISOLATED
    stack = Stack(new_app(), "Two", env=Environment(region="us-west-2"))
    made = cluster_in(
        stack, vpc=vpc_with(stack, isolated, isolated), vpc_subnets=ec2.SubnetSelection(subnet_type=isolated)
    )
    assert [subnet.availability_zone for subnet in made.subnets] == ["us-west-2a", "us-west-2b"]
    public = Stack(new_app(), "Public", env=Environment(region="us-west-2"))
    with refused(("vpc-subnets-public", "vpc_subnets")):
        cluster_in(public, vpc=vpc_with(public, ec2.SubnetType.PUBLIC))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, ("vpc-without-subnets", "vpc")),
        (ec2.SubnetSelection(subnet_group_name="Nodes"), ("vpc-subnets-match-none", "vpc_subnets")),
        (ec2.SubnetSelection(availability_zones=["us-west-2b"]), ("vpc-subnets-match-none", "vpc_subnets")),
    ],
)
def test_a_vpc_without_a_subnet_for_nodes_is_an_error(
    chosen: ec2.SubnetSelection | None, expected: tuple[str, str]
) -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-0123456789abcdef0", availability_zones=["us-west-2a"], vpc_cidr_block="10.0.0.0/16"
    )
    with refused(expected):
        HyperPodNetwork(stack, "Network", vpc=vpc, vpc_subnets=chosen)


def with_subnets(stack: Stack, subnets: list[str], zones: list[str]) -> None:
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id=Fn.import_value("Vpc"), availability_zones=zones, private_subnet_ids=subnets
    )
    cluster_in(stack, vpc=vpc)


def test_a_list_of_subnets_with_an_unknown_length_is_an_error() -> None:
    with refused(("vpc-subnets-count-unknown", "vpc")):
        of_stack(lambda stack: with_subnets(stack, Fn.split(",", Fn.import_value("Subnets")), ["us-west-2a"]))


def test_a_list_of_subnets_whose_length_is_said_may_be_imported() -> None:
    zones = ["us-west-2a", "us-west-2b"]
    template = of_stack(lambda stack: with_subnets(stack, Fn.import_list_value("Subnets", 2), zones))
    subnets = {"Fn::Split": [",", {"Fn::ImportValue": "Subnets"}]}
    assert template.only("AWS::SageMaker::Cluster")["VpcConfig"]["Subnets"] == [{"Fn::Select": [0, subnets]}]


def test_a_note_has_no_line_of_cdk_s_own_code_above_it() -> None:
    app = new_app()
    stack = Stack(app, "Stack", env=Environment(region="us-west-2"))
    network = HyperPodNetwork(stack, "Network", availability_zones=["us-west-2a"])
    HyperPodCluster(stack, "Cluster", cluster_name="train", network=network, instance_groups=[HEAD], unguarded=True)
    metadata = json.loads((folder_of(app) / "Stack.metadata.json").read_text("utf-8"))
    said = [
        each for entries in metadata.values() for each in entries if each["type"] in ("aws:cdk:info", "aws:cdk:warning")
    ]
    assert len(said) >= 2
    assert not [each for each in said if "trace" in each]


def looked_up(context: dict[str, Any], chosen: ec2.SubnetSelection) -> tuple[Template, list[Any]]:
    app = new_app(**context)
    stack = Stack(app, "Stack", env=Environment(account="111122223333", region="us-west-2"))
    vpc = ec2.Vpc.from_lookup(stack, "Vpc", vpc_name="shared")
    cluster_in(stack, vpc=vpc, vpc_subnets=chosen)
    folder = folder_of(app)
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    return templates_in(folder)["Stack"], [missing["key"] for missing in manifest.get("missing", [])]


@pytest.mark.parametrize(
    "chosen",
    [
        ec2.SubnetSelection(subnet_group_name="Nodes"),
        ec2.SubnetSelection(availability_zones=["us-west-2a", "us-west-2b"]),
    ],
    ids=["by group", "by zones"],
)
def test_a_vpc_that_is_looked_up_is_judged_only_once_it_is_known(chosen: ec2.SubnetSelection) -> None:
    """CDK's first pass has stand-ins, whose ids no rule would take, and which nothing that an app selects by is about."""
    _, missing = looked_up({}, chosen)
    (key,) = missing
    found = {
        "vpcId": "vpc-0123456789abcdef0",
        "vpcCidrBlock": "10.0.0.0/16",
        "ownerAccountId": "111122223333",
        "availabilityZones": [],
        "subnetGroups": [
            {
                "name": "Nodes",
                "type": "Private",
                "subnets": [
                    {"subnetId": subnet, "availabilityZone": zone, "routeTableId": "rtb-1", "cidr": cidr}
                    for subnet, zone, cidr in zip(
                        SUBNETS, ["us-west-2a", "us-west-2b"], ["10.0.0.0/18", "10.0.64.0/18"], strict=True
                    )
                ],
            }
        ],
    }
    template, missing = looked_up({key: found}, chosen)
    assert not missing
    assert template.groups()["work"]["OverrideVpcConfig"]["Subnets"] == SUBNETS[1:]


def test_one_way_to_say_which_vpc() -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    vpc = by_attributes(stack)
    with pytest.raises(ConfigError, match="vpc-given-twice"):
        HyperPodNetwork(stack, "Both", vpc=vpc, vpc_id="vpc-0123456789abcdef0")
    with refused(("vpc-subnets-without-vpc", "vpc_subnets")):
        HyperPodNetwork(stack, "None", vpc_subnets=ec2.SubnetSelection(subnet_group_name="Nodes"))


def test_a_flow_log_uses_the_given_log_group() -> None:
    def build(stack: Stack) -> None:
        group = logs.LogGroup.from_log_group_arn(stack, "Flow", "arn:aws:logs:us-west-2:111122223333:log-group:flow:*")
        HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"], flow_log_group=group)

    template = of_stack(build)
    assert not template.of("AWS::Logs::LogGroup")
    assert template.only("AWS::EC2::FlowLog")["LogDestination"].endswith(":log-group:flow:*")


def test_a_file_system_that_exists_lets_the_nodes_in() -> None:
    def build(stack: Stack) -> None:
        network = HyperPodNetwork(stack, "Network", vpc=by_attributes(stack), internet_egress=True)
        file_system = LustreFileSystem.from_attributes(
            stack,
            "FileSystem",
            network=network,
            file_system_id="fs-0123456789abcdef0",
            mount_name="abcdefgh",
            security_group=ec2.SecurityGroup.from_security_group_id(stack, "Servers", "sg-0123456789abcdef0"),
        )
        assert file_system.file_system_id == "fs-0123456789abcdef0"
        file_system.connections.allow_default_port_from(ec2.Peer.ipv4("10.0.0.0/16"), "Desktops")
        groups = [HEAD, dataclasses.replace(WORK, availability_zone=None)]
        HyperPodCluster(
            stack,
            "Cluster",
            cluster_name="train",
            network=network,
            instance_groups=groups,
            file_system=file_system,
        )

    template = of_stack(build)
    rules = [
        rule
        for rule in template.properties("AWS::EC2::SecurityGroupIngress")
        if rule["GroupId"] == "sg-0123456789abcdef0"
    ]
    assert {(rule["FromPort"], rule["ToPort"]) for rule in rules} == {(988, 988), (1018, 1023)}
    assert [rule["CidrIp"] for rule in rules if "CidrIp" in rule] == ["10.0.0.0/16"]
    storage = template.groups()["work"]["InstanceStorageConfigs"][-1]["FsxLustreConfig"]
    assert storage["MountName"] == "abcdefgh"


def test_a_vpc_whose_zones_are_not_looked_up_yet_is_not_judged() -> None:
    """CDK's first pass of a VPC that the app makes, in a stack with an account: the CLI looks its zones up after it."""

    def synthesized(context: dict[str, Any]) -> list[Any]:
        app = new_app(**context)
        stack = Stack(app, "Stack", env=Environment(account="111122223333", region="us-west-2"))
        cluster_in(stack, vpc=ec2.Vpc(stack, "Vpc"))
        manifest = json.loads((folder_of(app) / "manifest.json").read_text("utf-8"))
        return [missing["key"] for missing in manifest.get("missing", [])]

    (key,) = synthesized({})
    assert synthesized({key: ["us-west-2a", "us-west-2b", "us-west-2c"]}) == []
