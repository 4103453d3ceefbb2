"""EKS in the engine: its stack, IAM, HyperPod on it, and task governance, all with a Kubernetes API."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod_local import daemon
from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates
from helpers.local_aws.fixtures import SPEED, running_engine

Json = Any
NAME, BUCKET = "orchestra", "sagemaker-orchestra"


def role(*services: str) -> Json:
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": list(services)}}
    document = {"Version": "2012-10-17", "Statement": [statement]}
    return {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": document}}


def arn(name: str) -> Json:
    return {"Fn::GetAtt": [name, "Arn"]}


def network(**resources: Json) -> Json:
    def subnet(third: int, zone: str) -> Json:
        properties = {
            "VpcId": {"Ref": "Vpc"},
            "CidrBlock": f"10.1.{third}.0/24",
            "AvailabilityZone": f"us-west-2{zone}",
        }
        return {"Type": "AWS::EC2::Subnet", "Properties": properties}

    return {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.1.0.0/16"}},
        "A": subnet(0, "a"),
        "B": subnet(1, "b"),
        "Group": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "GroupDescription": "control plane"},
        },
        "EksRole": role("eks.amazonaws.com"),
        **resources,
    }


def control_plane(name: str, **properties: Json) -> Json:
    return {
        "Type": "AWS::EKS::Cluster",
        "Properties": {
            "Name": name,
            "RoleArn": arn("EksRole"),
            "Version": "1.34",
            "AccessConfig": {"AuthenticationMode": "API", "BootstrapClusterCreatorAdminPermissions": False},
            "ResourcesVpcConfig": {
                "SubnetIds": [{"Ref": "A"}, {"Ref": "B"}],
                "SecurityGroupIds": [{"Ref": "Group"}],
            },
            **properties,
        },
    }


def of_cluster(kind: str, **properties: Json) -> Json:
    return {"Type": f"AWS::EKS::{kind}", "Properties": {"ClusterName": {"Ref": "Eks"}, **properties}}


OUTPUTS = {
    "Eks": {"Value": arn("Eks")},
    "Subnet": {"Value": {"Ref": "A"}},
    "Group": {"Value": {"Ref": "Group"}},
    "Nodes": {"Value": arn("NodeRole")},
    "Team": {"Value": arn("TeamRole")},
    "Endpoint": {"Value": {"Fn::GetAtt": ["Eks", "Endpoint"]}},
}


def standing(**more: Json) -> Json:
    return network(
        Eks=control_plane(NAME),
        NodeRole=role("sagemaker.amazonaws.com"),
        TeamRole=role("ec2.amazonaws.com"),
        Proxy=of_cluster("Addon", AddonName="kube-proxy"),
        Team=of_cluster("AccessEntry", PrincipalArn=arn("TeamRole"), KubernetesGroups=["team"]),
        **more,
    )


@pytest.fixture(scope="module")
def eks(engine: LocalAws) -> Iterator[templates.Outcome]:
    """A cluster with one add-on and one access entry, in its own stack, whose deletion leaves nothing."""
    engine.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": engine.region})
    made = templates.deploy(engine, NAME, standing(), Outputs=OUTPUTS)
    assert made.status == "CREATE_COMPLETE", made.reasons
    yield made
    gone = templates.delete(engine, NAME)
    assert gone.status == "DELETE_COMPLETE", gone.reasons
    assert engine.client("eks").list_clusters()["clusters"] == []
    assert not (engine.place.folder / "kubernetes" / NAME).exists()


@pytest.fixture(scope="module")
def nodes(engine: LocalAws, eks: templates.Outcome) -> Iterator[str]:
    """ARN of a HyperPod cluster with two nodes on it."""
    made = engine.client("sagemaker").create_cluster(**hyperpod(eks))
    until(lambda: status(engine) == "InService")
    yield str(made["ClusterArn"])
    sagemaker = engine.client("sagemaker")
    sagemaker.delete_cluster(ClusterName=NAME)
    until(lambda: NAME not in {item["ClusterName"] for item in sagemaker.list_clusters()["ClusterSummaries"]})


def hyperpod(eks: templates.Outcome, **changes: Json) -> Json:
    group = {
        "InstanceGroupName": "workers",
        "InstanceType": "ml.g5.8xlarge",
        "InstanceCount": 2,
        "MinInstanceCount": 2,
        "ExecutionRole": eks.outputs["Nodes"],
        "LifeCycleConfig": {"SourceS3Uri": f"s3://{BUCKET}", "OnCreate": "on_create.sh"},
        "KubernetesConfig": {
            "Labels": {"accelerator": "a10g"},
            "Taints": [{"Key": "gpu", "Value": "yes", "Effect": "NoSchedule"}],
        },
    }
    return {
        "ClusterName": NAME,
        "InstanceGroups": [group],
        "NodeProvisioningMode": "Continuous",
        "Orchestrator": {"Eks": {"ClusterArn": eks.outputs["Eks"]}},
        "VpcConfig": {"Subnets": [eks.outputs["Subnet"]], "SecurityGroupIds": [eks.outputs["Group"]]},
        **changes,
    }


def status(engine: LocalAws) -> str:
    return str(engine.client("sagemaker").describe_cluster(ClusterName=NAME)["ClusterStatus"])


def until(done: Callable[[], bool], *, seconds: float = 20) -> None:
    limit = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < limit, f"not so after {seconds:.0f} s"
        time.sleep(0.1)


def kubernetes(engine: LocalAws, path: str, body: Json = None) -> Json:
    """Read from the cluster's API as an administrator, or create an object. None if the object does not exist."""
    config = json.loads((engine.place.folder / "kubernetes" / NAME / "kubeconfig").read_text())
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server["server"] + path, content, headers)
    context = ssl.create_default_context(cafile=server["certificate-authority"])
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=10) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


# -- EKS --------------------------------------------------------------------------------------------------------------


def test_cluster_as_the_api_shows_it(engine: LocalAws, eks: templates.Outcome) -> None:
    client = engine.client("eks")
    cluster = client.describe_cluster(name=NAME)["cluster"]
    assert (cluster["status"], cluster["arn"]) == ("ACTIVE", eks.outputs["Eks"])
    assert cluster["endpoint"] == eks.outputs["Endpoint"]
    assert client.list_clusters()["clusters"] == [NAME]
    entry = client.describe_access_entry(clusterName=NAME, principalArn=eks.outputs["Team"])["accessEntry"]
    assert entry["kubernetesGroups"] == ["team"]
    assert client.list_associated_access_policies(clusterName=NAME, principalArn=eks.outputs["Team"]) is not None
    assert client.describe_addon(clusterName=NAME, addonName="kube-proxy")["addon"]["status"] == "ACTIVE"
    with pytest.raises(client.exceptions.ResourceNotFoundException, match="No addon: coredns"):
        client.describe_addon(clusterName=NAME, addonName="coredns")
    client.tag_resource(resourceArn=eks.outputs["Eks"], tags={"a": "b"})
    assert client.list_tags_for_resource(resourceArn=eks.outputs["Eks"])["tags"]["a"] == "b"


def test_iam_checks_each_request(engine: LocalAws, eks: templates.Outcome) -> None:
    iam = engine.client("iam")
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": engine.account}}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName="reader", AssumeRolePolicyDocument=document)
    client = engine.client_as("reader", "eks")

    def denied(call: Callable[..., Json], **request: str) -> bool:
        try:
            call(**request)
        except ClientError as error:
            return bool(error.response["Error"]["Code"] == "AccessDeniedException")
        return False

    team = {"clusterName": NAME, "principalArn": eks.outputs["Team"]}
    assert denied(client.describe_cluster, name=NAME)
    assert denied(client.describe_access_entry, **team)
    allowed = {"Effect": "Allow", "Action": "eks:DescribeCluster", "Resource": eks.outputs["Eks"]}
    entries = eks.outputs["Eks"].replace(":cluster/", ":access-entry/") + "/role/*"
    more = {"Effect": "Allow", "Action": "eks:DescribeAccessEntry", "Resource": entries}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allowed, more]})
    iam.put_role_policy(RoleName="reader", PolicyName="may", PolicyDocument=document)
    assert not denied(client.describe_cluster, name=NAME)
    assert not denied(client.describe_access_entry, **team)
    assert denied(client.describe_cluster, name="another")
    assert denied(client.delete_access_entry, **team)


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        pytest.param(
            {"Eks": control_plane("narrow", ResourcesVpcConfig={"SubnetIds": [{"Ref": "A"}]})},
            "at least two different AZs",
            id="one zone",
        ),
        pytest.param({"Eks": control_plane("odd", Version="1.19")}, "unsupported Kubernetes version", id="version"),
        pytest.param(
            {"Addon": {"Type": "AWS::EKS::Addon", "Properties": {"ClusterName": "none", "AddonName": "coredns"}}},
            "No cluster found for name: none",
            id="add-on of no cluster",
        ),
        pytest.param(
            {"Eks": control_plane("odd", Versions="1.34")}, "extraneous key [Versions]", id="property that nobody knows"
        ),
    ],
)
def test_a_resource_that_eks_refuses_rolls_back_the_stack(engine: LocalAws, resources: Json, reason: str) -> None:
    outcome = templates.deploy(engine, f"refused-{time.time_ns()}", network(**resources))
    assert outcome.status == "ROLLBACK_COMPLETE"
    assert any(reason in item for item in outcome.reasons), outcome.reasons


def test_stack_changes_what_may_change(engine: LocalAws, eks: templates.Outcome) -> None:
    resources = standing(Pods=role("pods.eks.amazonaws.com"))
    resources["Eks"] = control_plane(NAME, Logging={"ClusterLogging": {"EnabledTypes": [{"Type": "audit"}]}})
    resources["Team"]["Properties"]["KubernetesGroups"] = ["team", "more"]
    resources["Proxy"]["Properties"]["AddonVersion"] = "v1.34.0-eksbuild.2"
    resources["Identity"] = of_cluster("PodIdentityAssociation", Namespace="a", ServiceAccount="b", RoleArn=arn("Pods"))
    changed = templates.deploy(engine, NAME, resources, Outputs=OUTPUTS)
    assert changed.status == "UPDATE_COMPLETE", changed.reasons
    client = engine.client("eks")
    logging = client.describe_cluster(name=NAME)["cluster"]["logging"]["clusterLogging"]
    assert {"types": ["audit"], "enabled": True} in logging
    entry = client.describe_access_entry(clusterName=NAME, principalArn=eks.outputs["Team"])["accessEntry"]
    assert entry["kubernetesGroups"] == ["team", "more"]
    addon = client.describe_addon(clusterName=NAME, addonName="kube-proxy")["addon"]
    assert addon["addonVersion"] == "v1.34.0-eksbuild.2"
    assert len(client.list_pod_identity_associations(clusterName=NAME)["associations"]) == 1
    assert templates.deploy(engine, NAME, standing(), Outputs=OUTPUTS).status == "UPDATE_COMPLETE"
    assert client.list_pod_identity_associations(clusterName=NAME)["associations"] == []


def test_function_holds_its_network(engine: LocalAws) -> None:
    function: Json = {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "Runtime": "python3.13",
            "Handler": "index.handler",
            "Role": arn("FunctionRole"),
            "Code": {"ZipFile": "def handler(event, context): pass"},
            "VpcConfig": {"SubnetIds": [{"Ref": "A"}], "SecurityGroupIds": [{"Ref": "Group"}]},
        },
    }
    resources = network(Function=function, FunctionRole=role("lambda.amazonaws.com"))
    made = templates.deploy(engine, "inside", resources)
    assert made.status == "CREATE_COMPLETE", made.reasons
    group = templates.physical_id(engine, "inside", "Group")
    with pytest.raises(ClientError, match="DependencyViolation"):
        engine.client("ec2").delete_security_group(GroupId=group)
    elsewhere = {**function["Properties"], "VpcConfig": {"SubnetIds": ["subnet-0"], "SecurityGroupIds": [group]}}
    resources["Other"] = {"Type": "AWS::Lambda::Function", "Properties": elsewhere}
    refused = templates.deploy(engine, "inside", resources)
    assert any("subnet-0' does not exist" in reason for reason in refused.reasons)
    assert templates.delete(engine, "inside").status == "DELETE_COMPLETE"


def test_cluster_outlives_the_engine() -> None:
    with running_engine(bootstrap=False, keeps_state=True) as aws:
        made = templates.deploy(aws, NAME, standing(), Outputs=OUTPUTS)
        assert made.status == "CREATE_COMPLETE", made.reasons
        assert kubernetes(aws, "/api/v1/namespaces/kept") is None
        kubernetes(aws, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})
        before = aws.client("eks").describe_cluster(name=NAME)["cluster"]
        daemon.stop(aws.place)
        assert daemon.start(aws.place, speed=SPEED)
        after = aws.client("eks").describe_cluster(name=NAME)["cluster"]
        assert after == before
        until(lambda: answers(aws))
        assert kubernetes(aws, "/api/v1/namespaces/kept") is not None
        assert templates.delete(aws, NAME).status == "DELETE_COMPLETE"


def answers(aws: LocalAws) -> bool:
    try:
        return kubernetes(aws, "/api/v1/namespaces/default") is not None
    except OSError:  # it is starting
        return False


# -- HyperPod on EKS --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"Orchestrator": {"Eks": {"ClusterArn": "arn:aws:eks:us-west-2:000000000000:cluster/none"}}},
            "does not exist",
        ),
        ({"VpcConfig": None}, "must be in the VPC of EKS cluster"),
        ({"AutoScaling": {"Mode": "Enable"}}, "ClusterRole is required"),
    ],
    ids=["no such EKS cluster", "another VPC", "Karpenter without a role"],
)
def test_an_invalid_hyperpod_cluster_on_eks_is_refused(
    engine: LocalAws, eks: templates.Outcome, changes: Json, reason: str
) -> None:
    if "VpcConfig" in changes:
        ec2 = engine.client("ec2")
        vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"]
        group = ec2.create_security_group(VpcId=vpc, GroupName="else", Description="else")["GroupId"]
        changes = {"VpcConfig": {"Subnets": [subnet], "SecurityGroupIds": [group]}}
    with pytest.raises(ClientError, match=reason):
        engine.client("sagemaker").create_cluster(**hyperpod(eks, **{"ClusterName": "refused", **changes}))


def test_cluster_role_has_to_trust_hyperpod(engine: LocalAws, eks: templates.Outcome) -> None:
    wanted = hyperpod(eks, ClusterName="refused", ClusterRole=eks.outputs["Nodes"])
    with pytest.raises(ClientError, match=r"allows principal hyperpod\.sagemaker\.amazonaws\.com"):
        engine.client("sagemaker").create_cluster(**wanted)


def test_nodes_join_and_leave(engine: LocalAws, eks: templates.Outcome, nodes: str) -> None:
    def joined() -> dict[str, Json]:
        items = kubernetes(engine, "/api/v1/nodes")["items"]
        return {item["metadata"]["name"]: item for item in items}

    sagemaker = engine.client("sagemaker")
    running = [node["InstanceId"] for node in sagemaker.list_cluster_nodes(ClusterName=NAME)["ClusterNodeSummaries"]]
    until(lambda: set(joined()) == {f"hyperpod-{node}" for node in running})
    node = joined()[f"hyperpod-{running[0]}"]
    labels = node["metadata"]["labels"]
    assert (labels["accelerator"], labels["node.kubernetes.io/instance-type"]) == ("a10g", "ml.g5.8xlarge")
    assert {"key": "gpu", "value": "yes", "effect": "NoSchedule"} in node["spec"]["taints"]
    entry = engine.client("eks").describe_access_entry(clusterName=NAME, principalArn=eks.outputs["Nodes"])
    assert entry["accessEntry"]["type"] == "HYPERPOD_LINUX"
    group = {**hyperpod(eks)["InstanceGroups"][0], "MinInstanceCount": 0, "InstanceCount": 1}
    sagemaker.update_cluster(ClusterName=NAME, InstanceGroups=[group])
    until(lambda: len(joined()) == 1)


def test_control_plane_stays_under_its_nodes(engine: LocalAws, nodes: str) -> None:
    client = engine.client("eks")
    with pytest.raises(client.exceptions.ResourceInUseException, match="HyperPod clusters attached"):
        client.delete_cluster(name=NAME)


# -- task governance --------------------------------------------------------------------------------------------------


def governed(kind: str, nodes: str, **properties: Json) -> Json:
    return {"Type": f"AWS::SageMaker::{kind}", "Properties": {"ClusterArn": nodes, **properties}}


def scheduler(nodes: str, name: str, **more: Json) -> Json:
    config = {"FairShare": "Enabled", "PriorityClasses": [{"Name": "training", "Weight": 50}]}
    return {**governed("ClusterSchedulerConfig", nodes, Name=name, SchedulerConfig=config), **more}


def quota(nodes: str, team: str, *, kind: str = "ml.g5.8xlarge", count: int = 1) -> Json:
    return governed(
        "ComputeQuota",
        nodes,
        Name=f"{NAME}-{team}",
        ComputeQuotaConfig={
            "ComputeQuotaResources": [{"InstanceType": kind, "Count": count}],
            "ResourceSharingConfig": {"Strategy": "Lend"},
        },
        ComputeQuotaTarget={"TeamName": team, "FairShareWeight": 10},
    )


def test_a_compute_quota_creates_the_namespace_of_its_team(
    engine: LocalAws, eks: templates.Outcome, nodes: str
) -> None:
    refused = templates.deploy(engine, "early", {"Scheduler": scheduler(nodes, "early")})
    assert "task governance add-on is not installed" in refused.reasons[0]
    addon = {"ClusterName": NAME, "AddonName": "amazon-sagemaker-hyperpod-taskgovernance"}
    resources = {
        "Addon": {"Type": "AWS::EKS::Addon", "Properties": addon},
        "Scheduler": scheduler(nodes, "policy", DependsOn="Addon"),
        "Red": {**quota(nodes, "red"), "DependsOn": "Scheduler"},
    }
    made = templates.deploy(engine, "governed", resources)
    assert made.status == "CREATE_COMPLETE", made.reasons
    namespace = kubernetes(engine, "/api/v1/namespaces/hyperpod-ns-red")
    labels = namespace["metadata"]["labels"]
    assert labels["sagemaker.amazonaws.com/sagemaker-managed-queue"] == "true"

    # Another policy, a share of instances that the cluster lacks, and a team's second share.
    again = quota(nodes, "red")
    again["Properties"]["Name"] = "again"
    for resource, reason in (
        (scheduler(nodes, "second"), "has a ClusterSchedulerConfig already"),
        (quota(nodes, "blue", kind="ml.p5.48xlarge"), "no instance group of ml.p5.48xlarge"),
        (again, "Team red has a compute quota"),
    ):
        refused = templates.deploy(engine, "governed", {**resources, "Refused": resource})
        assert (refused.status, reason in refused.reasons[0]) == ("UPDATE_ROLLBACK_COMPLETE", True), refused.reasons

    resources["Red"] = {**quota(nodes, "red", count=2), "DependsOn": "Scheduler"}
    assert templates.deploy(engine, "governed", resources).status == "UPDATE_COMPLETE"
    client = engine.client("sagemaker")
    (summary,) = client.list_compute_quotas(ClusterArn=nodes)["ComputeQuotaSummaries"]
    shown = client.describe_compute_quota(ComputeQuotaId=summary["ComputeQuotaId"])
    assert (shown["Status"], shown["ComputeQuotaVersion"]) == ("Updated", 2)
    assert shown["ComputeQuotaConfig"]["ComputeQuotaResources"] == [{"InstanceType": "ml.g5.8xlarge", "Count": 2}]

    assert templates.delete(engine, "governed").status == "DELETE_COMPLETE"
    assert client.list_compute_quotas(ClusterArn=nodes)["ComputeQuotaSummaries"] == []
    assert kubernetes(engine, "/api/v1/namespaces/hyperpod-ns-red") is not None
