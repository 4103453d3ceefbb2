"""The engine refuses the properties that CloudFormation's own schemas refuse."""

from __future__ import annotations

from typing import Any

import pytest

from cdk_hyperpod_local import installation
from cdk_hyperpod_local.engine.schemas import Schemas, converted, problems
from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates

Json = Any
SCHEMAS = Schemas(installation.current().schemas)


def cluster(**properties: Json) -> Json:
    group = {
        "InstanceGroupName": "workers",
        "InstanceType": "ml.p5.48xlarge",
        "InstanceCount": 1,
        "ExecutionRole": "arn:aws:iam::000000000000:role/nodes",
    }
    return {"ClusterName": "train", "InstanceGroups": [group], **properties}


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        (cluster(), []),
        (cluster(Tags=[{"Key": "aws:cloudformation:stack-name", "Value": "s"}]), []),
        (cluster(Colour="red"), ["#: extraneous key [Colour] is not permitted"]),
        (cluster(ClusterStatus="InService"), ["#/ClusterStatus: property is read-only and may not be set"]),
        (
            cluster(InstanceGroups=[{"InstanceGroupName": "w", "InstanceCount": 1}]),
            ["#/InstanceGroups/0: required key [ExecutionRole] not found"],
        ),
        (
            cluster(ClusterName="no_underscores"),
            ["#/ClusterName: string [no_underscores] does not match pattern ^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$"],
        ),
        (cluster(NodeRecovery="Never"), ["#/NodeRecovery: 'Never' is not one of ['Automatic', 'None']"]),
    ],
    ids=["good", "CloudFormation's own tags", "unknown", "read-only", "missing", "pattern", "enum"],
)
def test_problems_of_a_cluster(properties: Json, found: list[str]) -> None:
    schema = SCHEMAS.of("AWS::SageMaker::Cluster", "us-west-2")
    assert schema is not None
    assert problems(properties, schema) == found


def test_scalars_get_the_types_of_the_schema() -> None:
    schema = SCHEMAS.of("AWS::FSx::FileSystem", "us-west-2")
    assert schema is not None
    given = {"StorageCapacity": "1200", "LustreConfiguration": {"EfaEnabled": "true", "PerUnitStorageThroughput": "x"}}
    assert converted(given, schema, schema) == {
        "StorageCapacity": 1200,
        "LustreConfiguration": {"EfaEnabled": True, "PerUnitStorageThroughput": "x"},
    }


def test_alternatives_are_converted_too() -> None:
    schema = SCHEMAS.of("AWS::SageMaker::Cluster", "us-west-2")
    assert schema is not None
    group = {
        **cluster()["InstanceGroups"][0],
        "InstanceStorageConfigs": [{"EbsVolumeConfig": {"VolumeSizeInGB": "500"}}],
    }
    assert problems(converted(cluster(InstanceGroups=[group]), schema, schema), schema) == []


def test_a_region_without_the_type_is_given_another_ones() -> None:
    assert SCHEMAS.of("AWS::SageMaker::Cluster", "ca-west-1") is not None
    assert SCHEMAS.of("AWS::No::Such", "us-west-2") is None


def test_only_cluster_name_and_vpc_config_replace_a_cluster() -> None:
    assert SCHEMAS.create_only("AWS::SageMaker::Cluster", "us-west-2") == ("ClusterName", "VpcConfig")


def test_refusal_reaches_the_stack(engine: LocalAws) -> None:
    resources = {
        "Group": {"Type": "AWS::Logs::LogGroup", "Properties": {"RetentionInDays": 4, "Retention": 1}},
    }
    outcome = templates.deploy(engine, "wrong-properties", resources)
    assert outcome.status == "ROLLBACK_COMPLETE"
    assert outcome.reasons[0].startswith("Properties validation failed for resource Group with message: ")
    assert "#: extraneous key [Retention] is not permitted" in outcome.reasons[0]
    assert "#/RetentionInDays: 4 is not one of" in outcome.reasons[0]


def test_conditions_see_functions_and_the_region(engine: LocalAws) -> None:
    conditions = {
        "Here": {"Fn::Equals": [{"Ref": "AWS::Region"}, "us-west-2"]},
        "Joined": {"Fn::Equals": [{"Fn::Join": ["-", ["a", {"Ref": "AWS::Region"}]]}, "a-us-west-2"]},
        "Elsewhere": {"Fn::Not": [{"Condition": "Here"}]},
    }
    parameter = {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "x"}}
    resources = {f"If{name}": {**parameter, "Condition": name} for name in conditions}
    assert templates.deploy(engine, "conditions", resources, Conditions=conditions).status == "CREATE_COMPLETE"
    listed = engine.client("cloudformation").list_stack_resources(StackName="conditions")["StackResourceSummaries"]
    assert {item["LogicalResourceId"] for item in listed} == {"IfHere", "IfJoined"}


@pytest.mark.parametrize(
    ("bucket", "address"),
    [
        ("nested-a", "nested-a.s3.us-west-2.amazonaws.com"),
        ("nested-b", "nested-b.s3.amazonaws.com"),
        ("nested-c", "s3.amazonaws.com/nested-c"),
    ],
)
def test_a_nested_template_is_found_by_its_address(engine: LocalAws, bucket: str, address: str) -> None:
    s3 = engine.client("s3")
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    inner = {"Parameter": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "x"}}}
    s3.put_object(Bucket=bucket, Key="inner.json", Body=templates.template(inner).encode())
    stack = {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": f"https://{address}/inner.json"}}
    assert templates.deploy(engine, bucket, {"Inner": stack}).status == "CREATE_COMPLETE"
    assert templates.delete(engine, bucket).status == "DELETE_COMPLETE"
