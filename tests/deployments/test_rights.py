"""The functions of a deployment may do what they do, and everything that they may do is needed.

IAM stands in front of every request, over TLS, with the very roles that are synthesized. What IAM was asked is compared
with the tables below, and each of their rights is left out once.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from cdk_hyperpod_local import assemblies
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.configs import TRN1, small
from helpers.deployments.permissions import add_almighty_role, may
from helpers.local_aws import rights, templates
from helpers.local_aws.rehearsal import Rehearsal, broken, resized, taking, with_group, without_group

Json = Any

UPLOADING = ("kms:GenerateDataKey", "s3:GetObject", "s3:PutObject")
EMPTYING = (
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:GetBucketPolicy",
    "s3:GetBucketTagging",
    "s3:ListBucketVersions",
)
NOT_MISSED = ("s3:PutBucketPolicy",)
"""CDK's function keeps others from writing while it empties a bucket, and goes on without where it may not."""
READING = (
    "cloudformation:DescribeStacks",
    "sagemaker:DescribeCluster",
    "sagemaker:ListClusterNodes",
    "sagemaker:ListTags",
)
OPTIONAL = ("sagemaker:ListClusterOperations",)
"""HyperPod's record of operations is a second witness: tests/unit/scale_down/test_cluster_operations.py goes on without."""
CONFIRMING = ("cloudformation:DescribeStackEvents",)
"""The guard asks the stack whether it wants a change. A rollback without nodes to delete goes on without."""
WRITING = ("iam:PassRole", "sagemaker:BatchDeleteClusterNodes", "sagemaker:UpdateCluster")
FRAMEWORK = ("lambda:InvokeFunction", "states:StartExecution")
LOOKING = (
    "cloudformation:ListStackResources",
    "ec2:DescribeSubnets",
    "fsx:DescribeFileSystems",
    "sagemaker:DescribeCluster",
    "sagemaker:ListTags",
)
GUARD = "Custom::HyperPodFoundationGuard"
SCRIPTS = "Custom::HyperPodLifecycleScripts"


WRITER, SOMEBODY = "scripts-writer", "scripts-somebody"


@pytest.fixture(scope="module")
def life(engine: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """A cluster of a controller, three P5 nodes and a group more."""
    config = with_group(resized(small("rights"), "p5", 3, minimum=3), TRN1)
    config["lifecycle"] = {"writers": [f"arn:aws:iam::{engine.account}:role/{WRITER}"]}
    rehearsal = Rehearsal(engine, tmp_path_factory.mktemp("rights"), config)
    made = rehearsal.deploy()
    assert made.ok, made.reason
    return rehearsal


@pytest.fixture
def minds_its_minimum(engine: LocalAws) -> Iterator[None]:
    """No node goes below its group's minimum, so that the minimum has to be lowered first, in a call of its own."""
    engine.change_hyperpod(behaviour={"below_minimum": "refuse"})
    yield
    engine.change_hyperpod(defaults=True)


@pytest.fixture(scope="module")
def scripts(life: Rehearsal) -> Json:
    """The part of the foundation that fills and empties the bucket of the lifecycle scripts."""
    foundation = without_guard(assemblies.template(life.synth(), life.foundation))
    part = templates.part(foundation, SCRIPTS, "Custom::S3AutoDeleteObjects")
    for resource in part["Resources"].values():
        if resource["Type"] == "AWS::S3::Bucket":
            resource["Properties"].pop("BucketName", None)  # the whole foundation stands beside it
    return part


@pytest.fixture(scope="module")
def filled(engine: LocalAws, scripts: Json) -> Json:
    made = templates.deploy_whole(engine, "rights-upload", scripts)
    assert made.status == "CREATE_COMPLETE", made.reasons
    return scripts


def without_guard(template: Json) -> Json:
    """The foundation's template, as if nothing waited for its guard: a part of it may stand in another stack."""
    (guard,) = (name for name, item in template["Resources"].items() if item["Type"] == GUARD)
    for resource in template["Resources"].values():
        resource["DependsOn"] = [name for name in resource.get("DependsOn", []) if name != guard]
    return template


def after_the_cluster(template: Json) -> None:
    """An edit: something fails once the cluster is as the template says."""
    (cluster,) = (name for name, item in template["Resources"].items() if item["Type"] == "AWS::SageMaker::Cluster")
    broken({"Type": "AWS::CloudFormation::WaitCondition", "Properties": {}}, after=[cluster])(template)


def used(aws: LocalAws, since: int, *, stack: str) -> set[str]:
    """What the functions of a stack asked for and got."""
    checks = aws.checks(since=since)
    return {check.action for check in checks if check.allowed and f":assumed-role/{stack}-" in check.who}


def refused(aws: LocalAws, since: int) -> set[str]:
    return {check.action for check in aws.checks(since=since) if not check.allowed}


def test_uploading_and_emptying_a_bucket_use_exactly_the_listed_permissions(engine: LocalAws, scripts: Json) -> None:
    since = len(engine.checks())
    made = templates.deploy_whole(engine, "rights-used", scripts)
    assert made.status == "CREATE_COMPLETE", made.reasons
    assert used(engine, since, stack="rights-used") == set(UPLOADING)
    since = len(engine.checks())
    leave_an_older_version(engine, "rights-used", scripts)
    gone = templates.delete(engine, "rights-used")
    assert gone.status == "DELETE_COMPLETE", gone.reasons
    assert used(engine, since, stack="rights-used") == {*EMPTYING, *NOT_MISSED}


@pytest.mark.parametrize("action", UPLOADING)
def test_uploading_fails_without_any_one_of_its_permissions(engine: LocalAws, filled: Json, action: str) -> None:
    since, changed = len(engine.checks()), deepcopy(filled)
    for resource in changed["Resources"].values():
        if resource["Type"] == SCRIPTS:
            resource["Properties"]["Values"] = {"another": action}
    rights.without(action)(changed)
    failed = templates.deploy_whole(engine, "rights-upload", changed)
    assert failed.status == "UPDATE_ROLLBACK_COMPLETE", failed.reasons
    assert refused(engine, since) == {action}


@pytest.mark.parametrize("action", EMPTYING)
def test_emptying_a_bucket_fails_without_any_one_of_its_permissions(
    engine: LocalAws, scripts: Json, action: str
) -> None:
    name = f"rights-empty-{EMPTYING.index(action)}"
    part = templates.part(scripts, "Custom::S3AutoDeleteObjects")
    rights.without(action)(part)
    made = templates.deploy_whole(engine, name, part)
    assert made.status == "CREATE_COMPLETE", made.reasons
    leave_an_older_version(engine, name, part)
    since = len(engine.checks())
    failed = templates.delete(engine, name)
    assert failed.status == "DELETE_FAILED"
    assert "is not authorized to perform: s3:" in failed.reasons[0]
    # Rights are granted by pattern here, so a right may go together with its neighbours.
    assert refused(engine, since) <= {*EMPTYING, *NOT_MISSED} and refused(engine, since)


def leave_an_older_version(aws: LocalAws, stack: str, template: Json) -> None:
    """One object that was overwritten, and one that was deleted."""
    policy = template["Resources"]
    (bucket,) = (
        resource["Properties"]["BucketName"]["Ref"]
        for resource in policy.values()
        if resource["Type"] == "Custom::S3AutoDeleteObjects"
    )
    name, s3 = templates.physical_id(aws, stack, bucket), aws.client("s3")
    for body in (b"old", b"new"):
        s3.put_object(Bucket=name, Key="key", Body=body)
    s3.put_object(Bucket=name, Key="deleted", Body=b"")
    s3.delete_object(Bucket=name, Key="deleted")


@pytest.mark.usefixtures("minds_its_minimum")
def test_scaling_down_uses_exactly_the_listed_permissions(life: Rehearsal) -> None:
    since = len(life.aws.checks())
    smaller = life.change(resized(life.config, "p5", 2, minimum=2))
    assert smaller.status == "UPDATE_COMPLETE", smaller.reasons
    grown = life.change(resized(life.config, "p5", 3, minimum=3))
    assert grown.status == "UPDATE_COMPLETE", grown.reasons
    assert used(life.aws, since, stack=life.cluster) == {*READING, *OPTIONAL, *CONFIRMING, *WRITING, *FRAMEWORK}
    config = deepcopy(life.config)
    failed = life.change(resized(config, "p5", 4), edit=after_the_cluster)
    life.config = config
    assert failed.status == "UPDATE_ROLLBACK_COMPLETE", failed.reasons
    assert used(life.aws, since, stack=life.cluster) == {*READING, *OPTIONAL, *CONFIRMING, *WRITING, *FRAMEWORK}
    assert refused(life.aws, since) == set()


@pytest.mark.parametrize("action", [*READING, *CONFIRMING, *WRITING, *FRAMEWORK])
@pytest.mark.usefixtures("minds_its_minimum")
def test_scaling_down_without_one_of_its_permissions_fails_and_deletes_no_node(life: Rehearsal, action: str) -> None:
    config = deepcopy(life.config)
    if action in WRITING:
        # The right to change goes with the cluster, so after the nodes: it must be missing before.
        first = life.change(edit=rights.without(action))
        assert first.status == "UPDATE_COMPLETE", first.reasons
    since, ended = len(life.aws.checks()), len(life.ended())
    failed = life.change(resized(config, "p5", 2, minimum=2), edit=rights.without(action))
    life.config = config
    assert failed.status == "UPDATE_ROLLBACK_COMPLETE", failed.reasons
    assert f"is not authorized to perform: {action}" in failed.reasons[0]
    assert refused(life.aws, since) == {action}
    assert len(life.ended()) == ended, "a refusal ends no node"


@pytest.mark.parametrize("action", CONFIRMING)
def test_a_rollback_without_nodes_to_delete_succeeds_without_optional_permissions(life: Rehearsal, action: str) -> None:
    """Where there is nothing to take; where there is, it fails (tests/unit/scale_down)."""
    config = deepcopy(life.config)
    first = life.change(edit=rights.without(action))
    assert first.status == "UPDATE_COMPLETE", first.reasons
    since, before = len(life.aws.checks()), life.nodes()

    def edit(template: Json) -> None:
        rights.without(action)(template)
        after_the_cluster(template)

    failed = life.change({**config, "tags": {"team": "another"}}, edit=edit)
    assert failed.status == "UPDATE_ROLLBACK_COMPLETE", failed.reasons
    assert refused(life.aws, since) == {action}
    assert life.nodes() == before
    restored = life.change(config)
    assert restored.status == "UPDATE_COMPLETE", restored.reasons


def test_deleting_a_group_needs_the_right_to_update(life: Rehearsal) -> None:
    """CloudFormation's own handler leaves the group alone, so the function deletes it."""
    life.aws.change_hyperpod(handler={"vanished_groups": "leave"})
    config = deepcopy(life.config)
    failed = life.change(
        taking(without_group(config, "trn1"), groups=["trn1"]), edit=rights.without("sagemaker:UpdateCluster")
    )
    assert failed.status == "UPDATE_ROLLBACK_COMPLETE", failed.reasons
    assert "is not authorized to perform: sagemaker:UpdateCluster" in failed.reasons[0]
    since = life.mark()
    gone = life.change(taking(without_group(config, "trn1"), groups=["trn1"]))
    life.aws.change_hyperpod(defaults=True)
    assert gone.status == "UPDATE_COMPLETE", gone.reasons
    life.wait_for(lambda: "trn1" not in life.groups())
    assert any("ScaleDownRole" in who for who in life.callers(since, "UpdateCluster"))


# -- the foundation's guard -------------------------------------------------------------------------------------------


def elsewhere(life: Rehearsal) -> Json:
    """The foundation's template, with a setting that its guard refuses."""
    template = assemblies.template(life.synth(), life.foundation)
    (guard,) = (item for item in template["Resources"].values() if item["Type"] == GUARD)
    guard["Properties"]["AvailabilityZone"] = "us-west-2a"
    return template


def test_reading_the_foundation_uses_exactly_the_listed_permissions(life: Rehearsal) -> None:
    since = len(life.aws.checks())
    failed = templates.deploy_whole(life.aws, life.foundation, elsewhere(life))
    assert failed.status == "UPDATE_ROLLBACK_COMPLETE", failed.reasons
    assert "Changing the foundation of rights was refused" in failed.reasons[0]
    assert used(life.aws, since, stack=life.foundation) == {"cloudformation:DescribeStacks", *LOOKING}


@pytest.mark.parametrize("action", LOOKING)
def test_reading_the_foundation_fails_without_any_one_of_its_permissions(life: Rehearsal, action: str) -> None:
    changed = elsewhere(life)
    rights.without(action)(changed)
    since = len(life.aws.checks())
    failed = templates.deploy_whole(life.aws, life.foundation, changed)
    assert failed.status == "UPDATE_ROLLBACK_COMPLETE", failed.reasons
    assert "[foundation-unreadable]" in failed.reasons[0]
    assert f"is not authorized to perform: {action}" in failed.reasons[0]
    assert refused(life.aws, since) == {action}


# -- who writes the scripts, which run as root on every node ----------------------------------------------------------


@pytest.fixture(scope="module")
def roles(engine: LocalAws) -> dict[str, Json]:
    """S3 clients of two roles that may do everything, by their own policies, by name."""
    for name in (WRITER, SOMEBODY):
        add_almighty_role(engine, name)
    return {name: engine.client_as(name, "s3") for name in (WRITER, SOMEBODY)}


@pytest.fixture(scope="module")
def bucket(engine: LocalAws, filled: Json) -> str:
    (name,) = (
        name for name, item in filled["Resources"].items() if item["Type"] == "AWS::S3::Bucket" and "Life" in name
    )
    return templates.physical_id(engine, "rights-upload", name)


def test_only_writers_that_the_file_names_change_scripts(roles: dict[str, Json], bucket: str) -> None:
    for name, client in roles.items():
        writes = name == WRITER
        assert may(client.put_object, Bucket=bucket, Key="lifecycle/0/on_create.sh", Body=b"") is writes
        assert may(client.put_object, Bucket=bucket, Key="elsewhere", Body=b"")
        assert may(client.delete_object, Bucket=bucket, Key="lifecycle/0/on_create.sh") is writes
        assert may(client.delete_object, Bucket=bucket, Key="elsewhere")
