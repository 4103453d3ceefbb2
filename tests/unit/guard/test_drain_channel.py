"""The drain channel: who may write what in it, and that nothing of it is there where the file does not ask for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Environment, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Annotations, Match

from cdk_hyperpod import (
    DrainChannel,
    HyperPodCluster,
    HyperPodError,
    HyperPodNetwork,
    InstanceGroup,
    LifecycleScripts,
    encryption_key,
)
from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import request_key, status_key
from cdk_hyperpod.config import (
    DrainAgentConfig,
    DrainBackup,
    ScaleDownConfig,
    ScaleDownDrain,
    SlurmConfig,
)
from cdk_hyperpod.names import drain_bucket_name
from helpers.synthesis import (
    CONFIGS,
    ROOT,
    Json,
    Template,
    filled,
    flat,
    folder_of,
    new_app,
    of_file,
    of_stack,
    templates_in,
)

BUCKET = "arn:<AWS::Partition>:s3:::hyperpod-drain-train-<AWS::AccountId>-us-west-2"
GROUPS = [
    InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1),
    InstanceGroup(name="login", node_type="login", instance_type="ml.m5.large", instance_count=1),
    InstanceGroup(name="p5", node_type="compute", partition="p5", instance_type="ml.p5.48xlarge", instance_count=2),
]


def cluster(stack: Stack, drain: DrainChannel | DrainAgentConfig | None = None, **more: Any) -> HyperPodCluster:
    key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
    drain = drain or DrainChannel(stack, "Drain", cluster_name="train", encryption_key=key)
    given = {"drain": drain} if isinstance(drain, DrainChannel) else {"slurm": SlurmConfig(drain=drain)}
    return HyperPodCluster(
        stack,
        "Cluster",
        cluster_name="train",
        instance_groups=GROUPS,
        encryption_key=key,
        network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"], log_encryption_key=key),
        lifecycle_scripts=LifecycleScripts(stack, "Scripts", cluster_name="train", encryption_key=key, **given),
        **more,
    )


@pytest.fixture(scope="module")
def template() -> Template:
    return of_stack(cluster)


def statements(template: Template, node_type: str) -> list[tuple[list[str], list[str]]]:
    """Actions and resources of a node type's policy that are about the channel."""
    (found,) = (
        properties["PolicyDocument"]["Statement"]
        for properties in template.properties("AWS::IAM::ManagedPolicy")
        if properties.get("Description") == f"What the {node_type} nodes of HyperPod cluster train may do"
    )
    allowed = [(statement["Action"], [flat(arn) for arn in statement["Resource"]]) for statement in found]
    return [each for each in allowed if any("hyperpod-drain" in arn for arn in each[1])]


def test_the_controller_reads_requests_and_writes_the_status_and_nothing_else(template: Template) -> None:
    assert statements(template, "controller") == [
        (["s3:ListBucket"], [BUCKET]),
        (["s3:GetObject"], [f"{BUCKET}/train/requests/deployment.json", f"{BUCKET}/train/requests/operator.json"]),
        (["s3:PutObject"], [f"{BUCKET}/train/status.json"]),
    ]


@pytest.mark.parametrize("node_type", ["login", "compute"])
def test_login_and_compute_nodes_cannot_write_a_drain_request(template: Template, node_type: str) -> None:
    assert statements(template, node_type) == []


def channel_bucket(template: Template) -> Json:
    (found,) = (
        properties
        for properties in template.properties("AWS::S3::Bucket")
        if "hyperpod-drain" in flat(properties.get("BucketName", ""))
    )
    return found


def test_the_bucket_is_private_encrypted_and_empty_after_a_day(template: Template) -> None:
    bucket = channel_bucket(template)
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert rule["BucketKeyEnabled"] is True
    (expires,) = (rule for rule in bucket["LifecycleConfiguration"]["Rules"] if rule["Id"] == "NothingStays")
    assert (expires["ExpirationInDays"], expires["NoncurrentVersionExpiration"]["NoncurrentDays"]) == (1, 1)
    policies = json.dumps(template.properties("AWS::S3::BucketPolicy"))
    assert policies.count('"aws:SecureTransport": "false"') == len(template.of("AWS::S3::Bucket"))


def test_a_file_that_asks_for_no_agent_has_nothing_of_it() -> None:
    for name, template in of_file(ROOT / "cluster.yaml").items():
        assert "hyperpod-drain" not in json.dumps(template.body), name


def test_the_file_s_stacks_agree_on_the_bucket() -> None:
    stacks = of_file(CONFIGS / "closed.yaml")
    name = drain_bucket_name("closed", "<AWS::AccountId>", "ap-southeast-3")
    assert flat(channel_bucket(stacks["hyperpod-closed-cluster"])["BucketName"]) == name
    cluster_text = json.dumps([flat(each) for each in strings(stacks["hyperpod-closed-cluster"].body)])
    assert f"{name}/{status_key('closed')}" in cluster_text
    assert f"{name}/{request_key('closed', 'operator')}" in cluster_text


def strings(value: Any) -> list[Any]:
    """Every ARN of a template, joined or not."""
    if isinstance(value, dict):
        return [value] if set(value) == {"Fn::Join"} else [found for each in value.values() for found in strings(each)]
    return [found for each in value for found in strings(each)] if isinstance(value, list) else []


@pytest.mark.parametrize("region", ["us-west-2", "ap-southeast-3", "us-gov-west-1"])
@pytest.mark.parametrize("name", ["a", "llm-train", "A-Cluster-With-63-Characters-" + "x" * 34])
def test_the_bucket_s_name_is_one_that_s3_takes(name: str, region: str) -> None:
    found = drain_bucket_name(name, "111122223333", region)
    assert 3 <= len(found) <= 63
    assert found == found.lower()


@pytest.mark.parametrize(
    ("more", "backup", "says"),
    [
        (
            {},
            DrainBackup(paths=("/data",), to="/fsx/backup"),
            r"drain\.backup\.to: .* \[backup-target-without-storage\]",
        ),
        ({"orchestrator": "eks"}, None, r"drain: .* \[drain-channel-under-eks\]"),
    ],
)
def test_an_agent_that_could_not_work_is_refused(more: dict[str, Any], backup: DrainBackup | None, says: str) -> None:
    def build(stack: Stack) -> None:
        key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        channel = DrainChannel(
            stack, "Drain", cluster_name="train", encryption_key=key, drain=DrainAgentConfig(backup=backup)
        )
        LifecycleScripts(stack, "Scripts", cluster_name="train", encryption_key=key, drain=channel, **more)

    with pytest.raises(HyperPodError, match=says):
        of_stack(build)


OPERATOR = (
    "arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/us-west-2/AWSReservedSSO_Operators_0123456789abcdef"
)
ASKS = ScaleDownConfig(drain=ScaleDownDrain())
ANY_ROLE = "arn:<AWS::Partition>:iam::<AWS::AccountId>:role/*"


def walls(template: Template) -> dict[str, list[str]]:
    """The statements that keep an object of the drain bucket for its writers, and the writers."""
    (policy,) = (
        properties["PolicyDocument"]["Statement"]
        for properties in template.properties("AWS::S3::BucketPolicy")
        if any(statement.get("Sid") == "NoOtherObject" for statement in properties["PolicyDocument"]["Statement"])
    )
    found = {}
    for statement in policy:
        if statement.get("Sid") in ("AgentsStatus", "DeploymentsRequest", "OperatorsRequest"):
            assert len(statement["Action"]) == 5
            given = statement["Condition"]["ArnNotEquals"]["aws:PrincipalArn"]
            exempt = [flat(arn) for arn in (given if isinstance(given, list) else [given])]
            # What empties the bucket comes first.
            assert "CustomS3AutoDelete" in exempt[0]
            found[statement["Sid"]] = exempt[1:]
    return found


def built(build: Callable[..., object], stacks: int = 1) -> tuple[Template, list[str]]:
    """The template of the first stack, and the warnings about the channel."""
    app = new_app()
    made = [Stack(app, f"Stack{number}", env=Environment(region="us-west-2")) for number in range(stacks)]
    build(*made)
    folder = folder_of(app)
    found = Annotations.from_stack(made[0]).find_warning("*", Match.any_value())
    said = [str(message.entry.data) for message in found]
    return templates_in(folder)["Stack0"], [text for text in said if "ack: cdk-hyperpod:drain-" in text]


def test_the_wall_names_the_controller_the_guard_and_operators() -> None:
    drain = DrainAgentConfig(operators=(OPERATOR,))
    template, warnings = built(lambda stack: cluster(stack, drain, scale_down=ASKS))
    found = walls(template)
    assert sorted(found) == ["AgentsStatus", "DeploymentsRequest", "OperatorsRequest"]
    assert ["ControllerRole" in found["AgentsStatus"][0], "ScaleDownRole" in found["DeploymentsRequest"][0]] == [
        True
    ] * 2
    assert {name: len(roles) for name, roles in found.items()} == dict.fromkeys(found, 1)
    assert found["OperatorsRequest"] == [OPERATOR]
    assert warnings == []


def test_without_a_guard_that_drains_no_role_can_write_the_deployments_request() -> None:
    template, _ = built(lambda stack: cluster(stack, DrainAgentConfig()))
    assert walls(template)["DeploymentsRequest"] == []


def test_without_operators_anybody_may_ask_whom_s3_lets_and_a_warning_says_so() -> None:
    template, warnings = built(lambda stack: cluster(stack, DrainAgentConfig()))
    assert "OperatorsRequest" not in walls(template)
    (warning,) = warnings
    assert warning.endswith(" [ack: cdk-hyperpod:drain-operators-missing]")


def test_a_cluster_role_of_the_users_own_writes_the_status() -> None:
    def build(stack: Stack) -> None:
        head = iam.Role.from_role_arn(stack, "Head", "arn:aws:iam::111122223333:role/nodes/head")
        cluster(stack, DrainAgentConfig(), roles={"controller": head})

    template, _ = built(build)
    assert walls(template)["AgentsStatus"] == ["arn:aws:iam::111122223333:role/nodes/head"]


@pytest.mark.parametrize(
    ("shared", "warns"), [(("controller", "login", "compute"), True), (("login", "compute"), False)]
)
def test_a_role_that_other_nodes_share_with_the_controller_is_a_warning(shared: tuple[str, ...], warns: bool) -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    role = "arn:aws:iam::111122223333:role/nodes/all"
    cluster(stack, DrainAgentConfig(), roles={name: iam.Role.from_role_arn(stack, name, role) for name in shared})
    said = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("shared-role"))
    assert [str(each.entry.data).partition(":")[0] for each in said] == ["roles[compute], roles[login]"] * warns


def test_a_cluster_role_of_another_stack_writes_the_status() -> None:
    def build(stack: Stack, other: Stack) -> None:
        head = iam.Role(other, "Head", role_name="head", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
        cluster(stack, DrainAgentConfig(), roles={"controller": head})

    template, _ = built(build, stacks=2)
    assert len(walls(template)["AgentsStatus"]) == 1


def test_the_role_of_an_imported_cluster_writes_the_status() -> None:
    def build(stack: Stack) -> None:
        key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        drain = DrainAgentConfig(operators=(OPERATOR,))
        channel = DrainChannel(stack, "Drain", cluster_name="known", encryption_key=key, drain=drain)
        known = HyperPodCluster.from_cluster_attributes(
            stack,
            "Known",
            cluster_name="known",
            cluster_arn="arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab",
            roles={"controller": iam.Role.from_role_name(stack, "Head", "head")},
        )
        channel.add_agent_role(known.roles["controller"])

    template, warnings = built(build)
    assert walls(template)["AgentsStatus"] == ["arn:aws:iam::<AWS::AccountId>:role/head"]
    assert warnings == []


def test_a_channel_in_another_stack_than_its_roles_says_what_it_cannot_prevent() -> None:
    def build(first: Stack, second: Stack) -> None:
        key = encryption_key(first, "Key", removal_policy=RemovalPolicy.DESTROY)
        channel = DrainChannel(
            first, "Drain", cluster_name="train", encryption_key=key, drain=DrainAgentConfig(operators=(OPERATOR,))
        )
        cluster(second, channel, scale_down=ASKS)

    template, warnings = built(build, stacks=2)
    assert walls(template) == {"DeploymentsRequest": [ANY_ROLE], "OperatorsRequest": [OPERATOR]}
    assert [text.rpartition(" ")[2] for text in sorted(warnings)] == [
        "cdk-hyperpod:drain-guard]",
        "cdk-hyperpod:drain-agent]",
    ]


def test_the_buckets_policy_has_room_for_the_most_operators() -> None:
    """S3 takes 20 KB; the longest ARNs are made by long paths."""
    start = "arn:aws:iam::111122223333:role/"
    operators = tuple(f"{start}{'p' * (150 - len(start) - 5)}/{number:04}" for number in range(100))
    template, _ = built(lambda stack: cluster(stack, DrainAgentConfig(operators=operators), scale_down=ASKS))
    (policy,) = (each for each in template.properties("AWS::S3::BucketPolicy") if "NoOtherObject" in json.dumps(each))
    assert len(json.dumps(filled(policy["PolicyDocument"]), separators=(",", ":"))) < 20_480
    with pytest.raises(HyperPodError, match="operators: there are 101 roles"):
        built(lambda stack: cluster(stack, DrainAgentConfig(operators=(*operators, OPERATOR))))
