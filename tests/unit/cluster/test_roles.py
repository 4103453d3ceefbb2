"""What nodes may do: each permission named, each wildcard with a reason, and all of it there before the cluster is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from aws_cdk import RemovalPolicy, Stack

from cdk_hyperpod import EbsVolume, HyperPodCluster, HyperPodNetwork, InstanceGroup, encryption_key
from helpers.synthesis import Json, Template, flat, needs, of_stack

OWN_KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-0000-1111-2222-333344445555"


def cluster(stack: Stack, *, ebs_volumes: tuple[EbsVolume, ...] = (), encrypt_root_volumes: bool = True) -> None:
    key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
    HyperPodCluster(
        stack,
        "Cluster",
        cluster_name="train",
        network=HyperPodNetwork(
            stack, "Network", availability_zones=["us-west-2c", "us-west-2d"], log_encryption_key=key
        ),
        encryption_key=key,
        encrypt_root_volumes=encrypt_root_volumes,
        instance_groups=[
            InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1),
            InstanceGroup(name="login", node_type="login", instance_type="ml.m5.large", instance_count=1),
            InstanceGroup(
                name="p5",
                node_type="compute",
                partition="p5",
                instance_type="ml.p5.48xlarge",
                instance_count=2,
                ebs_volumes=ebs_volumes,
            ),
            InstanceGroup(
                name="trn1",
                node_type="compute",
                partition="trn1",
                instance_type="ml.trn1.32xlarge",
                instance_count=2,
                availability_zone="us-west-2d",
            ),
        ],
    )


@pytest.fixture(scope="module")
def template() -> Template:
    return of_stack(cluster)


def policy(template: Template, node_type: str) -> list[Json]:
    """The statements of a node type's policy."""
    (found,) = (
        properties
        for properties in template.properties("AWS::IAM::ManagedPolicy")
        if properties.get("Description") == f"What the {node_type} nodes of HyperPod cluster train may do"
    )
    statements: list[Json] = found["PolicyDocument"]["Statement"]
    return statements


def statement_with(statements: list[Json], action: str) -> Json:
    (found,) = (statement for statement in statements if action in statement["Action"])
    return found


NODE_TYPES = ["controller", "login", "compute"]


def test_each_node_type_has_a_role_and_its_groups_share_it(template: Template) -> None:
    roles = {name: group["ExecutionRole"]["Fn::GetAtt"][0] for name, group in template.groups().items()}
    assert roles["p5"] == roles["trn1"]
    assert len(set(roles.values())) == 3
    assert {template.resources[role]["Properties"]["Description"] for role in roles.values()} == {
        f"Execution role of the {node_type} nodes of HyperPod cluster train" for node_type in NODE_TYPES
    }


def test_only_sagemaker_assumes_the_roles(template: Template) -> None:
    for group in template.groups().values():
        role = template.resources[group["ExecutionRole"]["Fn::GetAtt"][0]]["Properties"]
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        assert statement == {
            "Effect": "Allow",
            "Action": "sts:AssumeRole",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
        }


def node_policies(template: Template) -> Iterator[list[Json]]:
    for node_type in NODE_TYPES:
        yield policy(template, node_type)


def test_no_action_has_a_wildcard(template: Template) -> None:
    for statements in node_policies(template):
        assert not [action for statement in statements for action in statement["Action"] if "*" in action]


def test_only_actions_that_iam_cannot_scope_are_allowed_on_everything(template: Template) -> None:
    for statements in node_policies(template):
        assert {
            action for statement in statements if statement["Resource"] == ["*"] for action in statement["Action"]
        } == {
            "cloudwatch:PutMetricData",
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
            "ec2:DescribeDhcpOptions",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSubnets",
            "ec2:DescribeVpcs",
        }
        metrics = statement_with(statements, "cloudwatch:PutMetricData")
        assert metrics["Condition"] == {"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/Clusters"}}


def test_logs_are_those_of_the_cluster(template: Template) -> None:
    for statements in node_policies(template):
        group = "arn:<AWS::Partition>:logs:us-west-2:<AWS::AccountId>:log-group:/aws/sagemaker/Clusters/train/*"
        assert [flat(arn) for arn in statement_with(statements, "logs:CreateLogGroup")["Resource"]] == [group]
        assert [flat(arn) for arn in statement_with(statements, "logs:PutLogEvents")["Resource"]] == [
            f"{group}:log-stream:*"
        ]


def test_nodes_read_their_scripts_and_decrypt_them_through_s3_only(template: Template) -> None:
    bucket = "arn:<AWS::Partition>:s3:::sagemaker-train-<AWS::AccountId>-us-west-2"
    for statements in node_policies(template):
        assert [flat(arn) for arn in statement_with(statements, "s3:ListBucket")["Resource"]] == [bucket]
        assert [flat(arn) for arn in statement_with(statements, "s3:GetObject")["Resource"]] == [
            f"{bucket}/lifecycle/*"
        ]
        decrypt = next(statement for statement in statements if statement["Action"] == ["kms:Decrypt"])
        assert decrypt["Resource"] == [{"Fn::GetAtt": [template.only_id("AWS::KMS::Key"), "Arn"]}]
        assert flat(decrypt["Condition"]["StringEquals"]["kms:ViaService"]) == "s3.us-west-2.<AWS::URLSuffix>"


def test_network_interfaces_go_into_our_subnets_and_our_group(template: Template) -> None:
    ec2 = "arn:<AWS::Partition>:ec2:us-west-2:<AWS::AccountId>"
    subnets = {f"{ec2}:subnet/<{name}.SubnetId>" for name in template.of("AWS::EC2::Subnet")}
    (nodes,) = (name for name in template.of("AWS::EC2::SecurityGroup") if name.startswith("NetworkNodes"))
    for statements in node_policies(template):
        create = statement_with(statements, "ec2:CreateNetworkInterface")
        assert len(subnets) == 2
        assert {flat(arn) for arn in create["Resource"]} == subnets | {
            f"{ec2}:network-interface/*",
            f"{ec2}:security-group/<{nodes}.GroupId>",
        }


INTERFACES = "arn:<AWS::Partition>:ec2:us-west-2:<AWS::AccountId>:network-interface/*"
IN_VPC = {
    "ec2:DeleteNetworkInterface": "ArnEquals",
    "ec2:DeleteNetworkInterfacePermission": "ArnEquals",
    "ec2:DetachNetworkInterface": "ArnEquals",
    "ec2:CreateTags": "ArnEqualsIfExists",  # while one is made it is in no VPC yet, as far as anybody has documented
}


def on_interfaces(statements: list[Json]) -> dict[str, Any]:
    """What may be done with any network interface, and under which condition."""
    return {
        action: statement.get("Condition")
        for statement in statements
        if INTERFACES in map(flat, statement["Resource"])
        for action in statement["Action"]
    }


def test_only_network_interfaces_of_our_vpc_are_touched(template: Template) -> None:
    ec2 = "arn:<AWS::Partition>:ec2:us-west-2:<AWS::AccountId>"
    vpc = f"{ec2}:vpc/<{template.only_id('AWS::EC2::VPC')}.VpcId>"
    for statements in node_policies(template):
        conditions = on_interfaces(statements)
        # Where one is made, the subnet and the group are resources of the same statement.
        assert conditions.pop("ec2:CreateNetworkInterface") is None
        permission = conditions.pop("ec2:CreateNetworkInterfacePermission")["ArnEquals"]
        assert {flat(arn) for arn in permission["ec2:Subnet"]} == {
            f"{ec2}:subnet/<{name}.SubnetId>" for name in template.of("AWS::EC2::Subnet")
        }
        assert conditions.keys() == IN_VPC.keys()
        for action, operator in IN_VPC.items():
            assert {key: flat(arn) for key, arn in conditions[action][operator].items()} == {"ec2:Vpc": vpc}
            assert len(conditions[action]) == 1


def test_network_interfaces_are_detached_from_instances_of_aws_own_account(template: Template) -> None:
    for statements in node_policies(template):
        detach = [statement for statement in statements if "ec2:DetachNetworkInterface" in statement["Action"]]
        assert [flat(arn) for statement in detach for arn in statement["Resource"]] == [
            INTERFACES,
            "arn:<AWS::Partition>:ec2:us-west-2:*:instance/*",
        ]


def test_every_node_needs_the_key_of_its_root_volume(template: Template) -> None:
    for statements in node_policies(template):
        grant = statement_with(statements, "kms:CreateGrant")
        assert [flat(arn) for arn in grant["Resource"]] == [f"<{template.only_id('AWS::KMS::Key')}.Arn>"]


def test_without_volumes_of_our_keys_no_node_may_make_grants() -> None:
    template = of_stack(lambda stack: cluster(stack, encrypt_root_volumes=False))
    assert "kms:CreateGrant" not in str(template.of("AWS::IAM::ManagedPolicy"))


def test_volumes_need_their_keys_on_nodes_that_have_them_and_on_no_others() -> None:
    template = of_stack(
        lambda stack: cluster(
            stack,
            ebs_volumes=(
                EbsVolume(volume_size_gib=500),
                EbsVolume(root_volume=True, volume_kms_key_arn=OWN_KEY),
            ),
            encrypt_root_volumes=False,
        )
    )
    grant = statement_with(policy(template, "compute"), "kms:CreateGrant")
    assert [flat(arn) for arn in grant["Resource"]] == [f"<{template.only_id('AWS::KMS::Key')}.Arn>", OWN_KEY]
    assert grant["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    assert [flat(name) for name in grant["Condition"]["StringEquals"]["kms:ViaService"]] == [
        "ec2.us-west-2.<AWS::URLSuffix>",
        "sagemaker.us-west-2.<AWS::URLSuffix>",
    ]
    data_key = statement_with(policy(template, "compute"), "kms:GenerateDataKeyWithoutPlaintext")
    assert data_key["Resource"] == grant["Resource"]
    for node_type in ("controller", "login"):
        assert "kms:CreateGrant" not in str(policy(template, node_type))


def test_permissions_are_there_before_the_cluster_and_outlive_it(template: Template) -> None:
    before = needs(template, template.only_id("AWS::SageMaker::Cluster"))
    for group in template.groups().values():
        role = group["ExecutionRole"]["Fn::GetAtt"][0]
        assert role in before
        (policy_reference,) = template.resources[role]["Properties"]["ManagedPolicyArns"]
        assert policy_reference["Ref"] in needs(template, role)
    # An inline policy or an attachment would be a resource of its own, which nothing waits for.
    assert "Policies" not in str([template.resources[name].get("Properties") for name in before if "Role" in name])


def test_policies_fit_what_iam_takes() -> None:
    """A managed policy has at most 6,144 characters; a reference to a resource becomes one of at most 80."""
    longest = {"AWS::AccountId": 12, "AWS::Partition": len("aws-us-gov"), "AWS::URLSuffix": len("amazonaws.com.cn")}

    def resolved(value: object) -> object:
        match value:
            case {"Ref": str(name)} if name in longest:
                return "x" * longest[name]
            case {"Ref": _} | {"Fn::GetAtt": _}:
                return "x" * 80
            case {"Fn::Join": [str(separator), [*parts]]}:
                return separator.join(str(resolved(part)) for part in parts)
            case dict():
                return {key: resolved(item) for key, item in value.items()}
            case list():
                return [resolved(item) for item in value]
            case _:
                return value

    template = of_stack(lambda stack: cluster(stack, ebs_volumes=(EbsVolume(volume_size_gib=500),)))
    for statements in node_policies(template):
        assert len(json.dumps(resolved(statements), separators=(",", ":"))) < 6_144 * 0.8
