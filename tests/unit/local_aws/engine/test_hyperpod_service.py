"""HyperPod in the engine: IAM, its checks in other services, and faults on request."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod_local.session import LocalAws

Json = Any
NAME, BUCKET = "service", "sagemaker-scripts"


@dataclass(frozen=True)
class Caller:
    """A role, and a SageMaker client with its session."""

    name: str
    aws: LocalAws

    def may(self, *statements: Json) -> None:
        document = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **s} for s in statements]})
        self.aws.client("iam").put_role_policy(RoleName=self.name, PolicyName="may", PolicyDocument=document)

    def client(self) -> Any:
        return self.aws.client_as(self.name, "sagemaker")


def trust(**principal: str) -> str:
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": principal}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@pytest.fixture(scope="module")
def nodes_role(engine: LocalAws) -> str:
    made = engine.client("iam").create_role(
        RoleName="nodes", AssumeRolePolicyDocument=trust(Service="sagemaker.amazonaws.com")
    )
    return str(made["Role"]["Arn"])


@pytest.fixture(scope="module")
def caller(engine: LocalAws) -> Caller:
    engine.client("iam").create_role(RoleName="caller", AssumeRolePolicyDocument=trust(AWS=engine.account))
    return Caller("caller", engine)


def groups(role: str) -> list[Json]:
    controller = {
        "InstanceGroupName": "controller",
        "InstanceType": "ml.m5.xlarge",
        "InstanceCount": 1,
        "ExecutionRole": role,
        "LifeCycleConfig": {"SourceS3Uri": f"s3://{BUCKET}", "OnCreate": "on_create.sh"},
        "SlurmConfig": {"NodeType": "Controller"},
    }
    return [controller]


@pytest.fixture(scope="module")
def cluster(engine: LocalAws, nodes_role: str) -> Iterator[str]:
    sagemaker = engine.client("sagemaker")
    with pytest.raises(ClientError, match=f"bucket {BUCKET} of group controller does not exist"):
        sagemaker.create_cluster(ClusterName=NAME, InstanceGroups=groups(nodes_role))
    engine.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": engine.region})
    arn = sagemaker.create_cluster(
        ClusterName=NAME,
        NodeProvisioningMode="Continuous",
        Orchestrator={"Slurm": {}},
        InstanceGroups=groups(nodes_role),
        Tags=[{"Key": "owner", "Value": "me"}],
    )["ClusterArn"]
    while sagemaker.describe_cluster(ClusterName=NAME)["ClusterStatus"] != "InService":
        time.sleep(0.1)
    yield str(arn)
    sagemaker.delete_cluster(ClusterName=arn)


def test_rights_on_the_very_cluster_count(caller: Caller, cluster: str) -> None:
    caller.may({"Action": "sagemaker:DescribeCluster", "Resource": cluster})
    assert caller.client().describe_cluster(ClusterName=NAME)["ClusterArn"] == cluster
    caller.may({"Action": "sagemaker:DescribeCluster", "Resource": f"{cluster[:-1]}x"})
    since = len(caller.aws.journal())
    with pytest.raises(ClientError, match="not authorized to perform: sagemaker:DescribeCluster"):
        caller.client().describe_cluster(ClusterName=NAME)
    (entry,) = caller.aws.journal(since=since)
    assert (entry.outcome, entry.who) == (
        "AccessDeniedException",
        f"arn:aws:sts::{caller.aws.account}:assumed-role/caller/test",
    )


def test_rights_by_the_clusters_tag_count(caller: Caller, cluster: str) -> None:
    def owned_by(owner: str) -> Json:
        condition = {"StringEquals": {"aws:ResourceTag/owner": owner}}
        return {"Action": "sagemaker:ListTags", "Resource": "*", "Condition": condition}

    caller.may(owned_by("me"))
    assert caller.client().list_tags(ResourceArn=cluster)["Tags"] == [{"Key": "owner", "Value": "me"}]
    caller.may(owned_by("you"))
    with pytest.raises(ClientError, match="AccessDenied"):
        caller.client().list_tags(ResourceArn=cluster)


def test_passing_a_role_needs_the_right_to_pass_it(caller: Caller, cluster: str, nodes_role: str) -> None:
    update = {"Action": "sagemaker:UpdateCluster", "Resource": cluster}
    passing = {
        "Action": "iam:PassRole",
        "Resource": nodes_role,
        "Condition": {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
    }
    caller.may(update)
    with pytest.raises(ClientError, match=f"not authorized to perform: iam:PassRole on resource: {nodes_role}"):
        caller.client().update_cluster(ClusterName=NAME, InstanceGroups=groups(nodes_role))
    caller.may(update, passing)
    caller.client().update_cluster(ClusterName=NAME, InstanceGroups=groups(nodes_role))


def test_a_role_that_cannot_be_assumed_is_refused(engine: LocalAws, cluster: str) -> None:
    wrong = groups(f"arn:aws:iam::{engine.account}:role/caller")
    with pytest.raises(ClientError, match="Could not assume role"):
        engine.client("sagemaker").update_cluster(ClusterName=NAME, InstanceGroups=wrong)
    with pytest.raises(ClientError, match="does not exist"):
        engine.client("sagemaker").update_cluster(ClusterName=NAME, InstanceGroups=groups(f"{wrong[0]}"))


def test_lost_reply_takes_effect(engine: LocalAws, cluster: str) -> None:
    since = len(engine.journal())
    engine.change_hyperpod(faults={"lose_reply_next": 1})
    sagemaker = engine.client("sagemaker")
    with pytest.raises(ClientError):
        sagemaker.add_tags(ResourceArn=cluster, Tags=[{"Key": "lost", "Value": "1"}])
    assert {"Key": "lost", "Value": "1"} in sagemaker.list_tags(ResourceArn=cluster)["Tags"]
    entries = [(entry.operation, entry.outcome, entry.reply) for entry in engine.journal(since=since)]
    assert entries == [("AddTags", "ok", "lost"), ("ListTags", "ok", "delivered")]


def test_a_requested_throttling_error_happens_once(engine: LocalAws, cluster: str) -> None:
    engine.change_hyperpod(faults={"throttle_next": 1})
    with pytest.raises(ClientError, match="ThrottlingException"):
        engine.client("sagemaker").list_clusters()
    engine.client("sagemaker").list_clusters()


def test_switches_are_set_back_together(engine: LocalAws, cluster: str) -> None:
    engine.change_hyperpod(faults={"throttle_next": 1}, handler={"vanished_groups": "leave"}, quota={"ml.g5.xlarge": 0})
    engine.change_hyperpod(defaults=True)
    engine.client("sagemaker").list_clusters()


def test_an_unknown_switch_is_refused(engine: LocalAws) -> None:
    with pytest.raises(ValueError, match="colour"):
        engine.change_hyperpod(behaviour={"colour": "red"})
    for no_time in (0, -1, "an hour"):
        with pytest.raises(ValueError, match="cannot be skipped"):
            engine._control("POST", "clock", no_time)
    with pytest.raises(ValueError, match="unknown fields: weather"):
        engine.change_hyperpod(weather={})
