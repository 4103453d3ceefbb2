"""The network: what nodes may reach, where they live, and what is made or left alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import CfnParameter, Stack

from cdk_hyperpod import ConfigError, HyperPodNetwork, SubnetConfig
from helpers.findings import found
from helpers.synthesis import CONFIGS, EXAMPLES, Json, Template, filled, flat, of_example, of_file, of_stack, of_text

EVERYTHING = "-1"
EXISTING: dict[str, Any] = {
    "vpc_id": "vpc-0123456789abcdef0",
    "subnets": [SubnetConfig(subnet_id="subnet-0123456789abcdef0", availability_zone="us-west-2a")],
    "endpoint_security_group_id": "sg-0123456789abcdef0",
}


def network(*, region: str | None = "us-west-2", **arguments: Any) -> Template:
    return of_stack(lambda stack: HyperPodNetwork(stack, "Network", **arguments), region=region)


@pytest.fixture(scope="module")
def closed() -> Template:
    return network(availability_zones=["us-west-2c", "us-west-2a"])


@pytest.fixture(scope="module")
def open_to_internet() -> Template:
    return network(availability_zones=["us-west-2c", "us-west-2a"], internet_egress=True)


@pytest.fixture(scope="module")
def existing() -> Template:
    return network(**EXISTING)


def node_group(template: Template) -> str:
    (name,) = (
        name
        for name, group in template.of("AWS::EC2::SecurityGroup").items()
        if group["Properties"]["GroupDescription"] == "Nodes of a HyperPod cluster"
    )
    return name


def inline_egress(template: Template) -> list[Json]:
    rules: list[Json] = template.resources[node_group(template)]["Properties"]["SecurityGroupEgress"]
    return rules


@pytest.mark.parametrize("name", ["closed", "open_to_internet", "existing"])
def test_nodes_reach_each_other_by_explicit_rules_in_and_out(name: str, request: pytest.FixtureRequest) -> None:
    template: Template = request.getfixturevalue(name)
    nodes = f"<{node_group(template)}.GroupId>"
    assert [
        rule
        for rule in template.properties("AWS::EC2::SecurityGroupIngress")
        if rule["IpProtocol"] == EVERYTHING and flat(rule["GroupId"]) == flat(rule["SourceSecurityGroupId"]) == nodes
    ]
    assert [
        rule
        for rule in template.properties("AWS::EC2::SecurityGroupEgress")
        if rule["IpProtocol"] == EVERYTHING
        and flat(rule["GroupId"]) == flat(rule["DestinationSecurityGroupId"]) == nodes
    ]


@pytest.mark.parametrize("name", ["closed", "existing"])
def test_a_closed_network_lets_nodes_out_to_s3_only(name: str, request: pytest.FixtureRequest) -> None:
    assert inline_egress(request.getfixturevalue(name)) == [
        {
            "Description": "S3 through its gateway endpoint",
            "DestinationPrefixListId": "pl-68a54001",
            "FromPort": 443,
            "IpProtocol": "tcp",
            "ToPort": 443,
        }
    ]


def test_no_security_group_lets_everything_out_by_default(closed: Template) -> None:
    groups = closed.properties("AWS::EC2::SecurityGroup")
    assert len(groups) == 2
    for group in groups:
        # A group without a rule would get CloudFormation's own, which allows everything.
        assert group["SecurityGroupEgress"]
        assert "0.0.0.0/0" not in str(group)
    assert "AWS::EC2::NatGateway" not in str(closed.body)
    assert not closed.of("AWS::EC2::InternetGateway")


def test_internet_egress_adds_one_rule_and_one_nat_gateway_in_the_clusters_own_zone(open_to_internet: Template) -> None:
    assert inline_egress(open_to_internet) == [
        {"CidrIp": "0.0.0.0/0", "Description": "Internet egress", "IpProtocol": "-1"}
    ]
    nat = open_to_internet.only("AWS::EC2::NatGateway")
    subnet = open_to_internet.resources[nat["SubnetId"]["Fn::GetAtt"][0]]["Properties"]
    assert subnet["AvailabilityZone"] == "us-west-2c"
    default_routes = {
        next(key for key in route if key in ("GatewayId", "NatGatewayId"))
        for route in open_to_internet.properties("AWS::EC2::Route")
    }
    assert default_routes == {"GatewayId", "NatGatewayId"}


def test_no_subnet_hands_out_public_addresses(open_to_internet: Template) -> None:
    subnets = open_to_internet.properties("AWS::EC2::Subnet")
    assert len(subnets) == 3
    assert not any(subnet["MapPublicIpOnLaunch"] for subnet in subnets)


def test_a_new_vpc_whose_prefix_list_is_not_known_gets_https_and_no_more() -> None:
    template = network(region="ap-southeast-3")
    (rule,) = inline_egress(template)
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 443, 443)


@pytest.mark.parametrize("region", ["ap-southeast-3", "me-south-1", None])
def test_an_existing_vpc_reaches_s3_by_a_prefix_list_or_is_refused(region: str | None) -> None:
    zone = f"{region or 'us-west-2'}a"
    subnets = [SubnetConfig(subnet_id="subnet-0123456789abcdef0", availability_zone=zone)]
    with pytest.raises(ConfigError, match=r"network\.s3_prefix_list_id: .* \[prefix-list-unknown\]"):
        network(region=region, **{**EXISTING, "subnets": subnets})
    for kind in (EXISTING, {}):
        arguments = {**kind, "subnets": subnets} if kind else {}
        (rule,) = inline_egress(network(region=region, **arguments, s3_prefix_list_id="pl-0123456789abcdef0"))
        assert rule["DestinationPrefixListId"] == "pl-0123456789abcdef0"
        assert "0.0.0.0/0" not in str(rule)


def endpoints(template: Template, kind: str) -> set[str]:
    return {
        flat(endpoint["ServiceName"]).rpartition(".us-west-2.")[2]
        for endpoint in template.properties("AWS::EC2::VPCEndpoint")
        if endpoint["VpcEndpointType"] == kind
    }


def test_a_closed_network_has_the_endpoints_that_nodes_call(closed: Template) -> None:
    assert endpoints(closed, "Gateway") == {"s3"}
    assert endpoints(closed, "Interface") == {
        "ec2",
        "ec2messages",
        "ecr.api",
        "ecr.dkr",
        "logs",
        "monitoring",
        "sagemaker.api",
        "ssm",
        "ssmmessages",
        "sts",
    }
    for endpoint in closed.properties("AWS::EC2::VPCEndpoint"):
        if endpoint["VpcEndpointType"] == "Interface":
            assert endpoint["PrivateDnsEnabled"] is True
            assert len(endpoint["SubnetIds"]) == 1


def assert_nodes_may_call(endpoint_group: str, template: Template) -> None:
    nodes = f"<{node_group(template)}.GroupId>"
    assert [
        (rule["IpProtocol"], rule["FromPort"], rule["ToPort"])
        for rule in template.properties("AWS::EC2::SecurityGroupIngress")
        if (flat(rule["SourceSecurityGroupId"]), flat(rule["GroupId"])) == (nodes, endpoint_group)
    ] == [("tcp", 443, 443)]
    assert [
        (rule["IpProtocol"], rule["FromPort"], rule["ToPort"])
        for rule in template.properties("AWS::EC2::SecurityGroupEgress")
        if (flat(rule["GroupId"]), flat(rule["DestinationSecurityGroupId"])) == (nodes, endpoint_group)
    ] == [("tcp", 443, 443)]


def test_nodes_may_call_the_endpoints(closed: Template) -> None:
    (endpoint_group,) = {
        flat(group)
        for endpoint in closed.properties("AWS::EC2::VPCEndpoint")
        for group in endpoint.get("SecurityGroupIds", [])
    }
    assert_nodes_may_call(endpoint_group, closed)


def test_nodes_may_call_the_endpoints_of_an_existing_vpc(existing: Template) -> None:
    assert_nodes_may_call("sg-0123456789abcdef0", existing)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({"internet_egress": True}, False, id="off where nodes have the internet"),
        pytest.param({"interface_endpoints": False}, False, id="switched off"),
        pytest.param({"internet_egress": True, "interface_endpoints": True}, True, id="switched on"),
    ],
)
def test_interface_endpoints_can_be_chosen(arguments: dict[str, bool], expected: bool) -> None:
    template = network(**arguments)  # type: ignore[arg-type]
    assert bool(endpoints(template, "Interface")) is expected
    assert endpoints(template, "Gateway") == {"s3"}


def test_all_traffic_of_a_new_vpc_is_logged_for_a_year(closed: Template) -> None:
    flow_log = closed.only("AWS::EC2::FlowLog")
    assert flow_log["TrafficType"] == "ALL"
    assert flow_log["ResourceId"] == {"Fn::GetAtt": [closed.only_id("AWS::EC2::VPC"), "VpcId"]}
    assert closed.only("AWS::Logs::LogGroup")["RetentionInDays"] == 365


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_encrypts_its_flow_log(name: str) -> None:
    for template in of_example(name).values():
        for flow_log in template.properties("AWS::EC2::FlowLog"):
            log_group = template.resources[flow_log["LogDestination"]["Fn::GetAtt"][0]]
            assert "KmsKeyId" in log_group["Properties"]


def cidrs(template: Template) -> dict[str, str]:
    return {
        subnet["AvailabilityZone"]: subnet["CidrBlock"]
        for subnet in template.properties("AWS::EC2::Subnet")
        if subnet["Tags"][0]["Value"].endswith("/private")
    }


def test_a_zones_subnet_keeps_its_place_whatever_other_zones_are_named(closed: Template) -> None:
    alone = cidrs(network(availability_zones=["us-west-2c"]))
    assert alone == {"us-west-2c": "10.0.64.0/19"}
    assert cidrs(closed) == {"us-west-2c": "10.0.64.0/19", "us-west-2a": "10.0.0.0/19"}


def test_zone_ids_become_the_property_for_ids() -> None:
    subnet = network(availability_zones=["usw2-az3"]).only("AWS::EC2::Subnet")
    assert subnet["AvailabilityZoneId"] == "usw2-az3"
    assert "AvailabilityZone" not in subnet


def test_without_a_zone_the_accounts_first_one_is_taken_at_deployment() -> None:
    subnet = network().only("AWS::EC2::Subnet")
    assert subnet["AvailabilityZone"] == {"Fn::Select": [0, {"Fn::GetAZs": ""}]}


def test_an_existing_vpc_gets_the_nodes_group_and_nothing_else(existing: Template) -> None:
    assert {resource["Type"] for resource in existing.resources.values()} == {
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
    }
    assert existing.only("AWS::EC2::SecurityGroup")["VpcId"] == "vpc-0123456789abcdef0"


def test_retain_keeps_the_vpc_and_the_clusters_own_subnet_only() -> None:
    template = of_stack(
        lambda stack: HyperPodNetwork(
            stack, "Network", availability_zones=["us-west-2c", "us-west-2a"], internet_egress=True
        ).retain()
    )
    kept = {name for name, resource in template.resources.items() if resource.get("DeletionPolicy") == "Retain"}
    (subnet,) = kept - {template.only_id("AWS::EC2::VPC")}
    assert len(template.of("AWS::EC2::Subnet")) == 3
    assert template.resources[subnet]["Properties"]["CidrBlock"] == "10.0.64.0/19"
    assert template.resources[subnet]["Properties"]["AvailabilityZone"] == "us-west-2c"
    assert {template.resources[name]["UpdateReplacePolicy"] for name in kept} == {"Retain"}


def test_a_stack_without_a_region_names_none() -> None:
    template = network(region=None)
    names = {flat(endpoint["ServiceName"]) for endpoint in template.properties("AWS::EC2::VPCEndpoint")}
    assert "com.amazonaws.<AWS::Region>.s3" in names
    assert "us-west-2" not in str(template.body)


def test_other_constructs_can_live_in_the_vpc_however_often_they_ask() -> None:
    def build(stack: Stack) -> None:
        made = HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"])
        assert made.vpc.vpc_id == made.vpc.vpc_id == made.vpc_id
        assert made.security_group.security_group_id == made.security_group.security_group_id == made.security_group_id
        assert len(made.vpc.private_subnets) == 1

    of_stack(build)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"cidr": "10.0.0.0/24"},
            ("vpc-size-not-supported", "network.cidr"),
            id="range",
        ),
        pytest.param(
            {"availability_zones": ["eu-west-1a"]},
            ("zone-in-another-region", "network.availability_zones[0]"),
            id="zone",
        ),
        pytest.param(
            {"vpc_id": "vpc-0123456789abcdef0"},
            ("subnets-missing", "network.subnets"),
            id="VPC without subnets",
        ),
        pytest.param(
            {"endpoint_security_group_id": "sg-0123456789abcdef0"},
            ("endpoint-group-in-new-vpc", "network.endpoint_security_group_id"),
            id="endpoints' group in a new VPC",
        ),
    ],
)
def test_settings_that_ec2_would_refuse_fail_at_synth(arguments: dict[str, Any], message: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        network(**arguments)
    assert message in found(caught.value.findings)
    assert str(caught.value).startswith("Stack/Network: 1 error\n  network.")


def test_all_findings_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        network(availability_zones=["eu-west-1a", "us-west-2a", "us-west-2a"], cidr="8.8.0.0/16")
    assert len(caught.value.findings) == 3


def test_tokens_are_passed_on_and_never_judged() -> None:
    def build(stack: Stack) -> None:
        vpc = CfnParameter(stack, "VpcId")
        subnet = CfnParameter(stack, "SubnetId")
        HyperPodNetwork(
            stack,
            "Network",
            vpc_id=vpc.value_as_string,
            subnets=[SubnetConfig(subnet_id=subnet.value_as_string, availability_zone=stack.availability_zones[0])],
            endpoint_security_group_id=CfnParameter(stack, "Endpoints").value_as_string,
            s3_prefix_list_id=CfnParameter(stack, "PrefixList").value_as_string,
        )

    template = of_stack(build, region=None)
    assert template.only("AWS::EC2::SecurityGroup")["VpcId"] == {"Ref": "VpcId"}
    assert_nodes_may_call("<Endpoints>", template)


def test_zones_that_are_known_at_deployment_only_get_subnets_that_do_not_overlap() -> None:
    template = of_stack(
        lambda stack: HyperPodNetwork(stack, "Network", availability_zones=stack.availability_zones), region=None
    )
    assert [subnet["CidrBlock"] for subnet in template.properties("AWS::EC2::Subnet")] == [
        "10.0.0.0/19",
        "10.0.32.0/19",
    ]


def test_a_range_that_is_known_at_deployment_only_is_refused_in_words() -> None:
    def build(stack: Stack) -> None:
        HyperPodNetwork(stack, "Network", cidr=CfnParameter(stack, "Range").value_as_string)

    with pytest.raises(ConfigError, match=r"network\.cidr: .* \[argument-known-at-deployment-only\]"):
        of_stack(build)


@pytest.mark.parametrize("region", ["us-west-2", None])
@pytest.mark.parametrize("organization", [{}, {"organization_id": "o-" + "a" * 32}], ids=["account", "organization"])
def test_as_many_trusted_accounts_as_there_may_be_fit_every_endpoints_policy(
    region: str | None, organization: dict[str, str]
) -> None:
    accounts = [f"{number:012}" for number in range(200)]
    kind = "organization" if organization else "account"
    arguments: Json = {"endpoint_policies": kind, **organization, "s3_prefix_list_id": "pl-0123456789abcdef0"}
    made = network(region=region, trusted_accounts=accounts, **arguments)
    policies = [endpoint["PolicyDocument"] for endpoint in made.properties("AWS::EC2::VPCEndpoint")]
    assert len(policies) > 10
    texts = [json.dumps(filled(policy)) for policy in policies]
    for name, longest in (("Region", "ap-southeast-3"), ("Partition", "aws"), ("AccountId", "1" * 12)):
        texts = [text.replace(f"<AWS::{name}>", longest) for text in texts]
    sizes = [*map(len, texts)]
    assert 200 * len(accounts[0]) < min(sizes) and max(sizes) <= 20_480
    with pytest.raises(ConfigError, match=r"trusted_accounts: there are 201 accounts"):
        network(region=region, trusted_accounts=[*accounts, "9" * 12], **arguments)


def answers_of_functions(templates: Iterable[Template]) -> list[Any]:
    return [
        statement["Resource"]
        for template in templates
        for endpoint in template.properties("AWS::EC2::VPCEndpoint")
        for statement in endpoint.get("PolicyDocument", {}).get("Statement", [])
        if statement["Sid"] == "CustomResources"
    ]


def test_functions_of_custom_resources_answer_through_the_endpoint_only_where_they_are_in_the_vpc(
    tmp_path: Path,
) -> None:
    """kubectl's are, under EKS; under Slurm nobody writes to CloudFormation's buckets from the VPC."""
    assert answers_of_functions(of_file(CONFIGS / "closed.yaml").values()) == []
    shutil.copytree(CONFIGS.parent / "chart", tmp_path / "chart")
    text = (CONFIGS / "eks.yaml").read_text("utf-8").replace("../chart", "chart")
    text = text.replace("network:\n", "network:\n  endpoint_policies: account\n", 1)
    (found,) = answers_of_functions(of_text(text, tmp_path).values())
    assert "cloudformation-custom-resource-response-uswest2" in flat(found[0])
