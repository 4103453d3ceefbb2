"""The least-privilege policies: they are what the templates need, IAM takes them, and the guide's commands use them."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from cdk_hyperpod._common.tags import KEY_TAG
from helpers.synthesis import CONFIGS, EXAMPLES, ROOT, Json, Template, flat, of_example, of_file
from tools import make_bootstrap_policy as tool

FILES = sorted((ROOT / "docs" / "bootstrap").glob("*.json"))
UNDER_EKS = [file for file in FILES if file.name.startswith("deploy-hyperpod-eks-")]
FIRST = [file for file in FILES if file not in UNDER_EKS]  # these alone under Slurm
BOUNDARY = ROOT / "docs" / "boundary" / "cluster-boundary.json"
KEEPER = BOUNDARY.with_name("keep-the-boundary.json")
GUIDE = "".join((ROOT / "docs" / page).read_text("utf-8") for page in ("deploying.md", "deploy-permissions.md"))


@cache
def apps() -> list[dict[str, Template]]:
    """The templates by stack name of each app: one for every cluster file of ours, and one for every example."""
    files = [ROOT / "cluster.yaml", *CONFIGS.glob("*.yaml")]
    return [*map(of_file, files), *map(of_example, EXAMPLES)]


def bodies(app: dict[str, Template]) -> list[Json]:
    return [template.body for template in app.values()]


def statements(files: list[Path]) -> Iterator[Json]:
    for file in files:
        yield from json.loads(file.read_text("utf-8"))["Statement"]


def allowed(action: str, files: list[Path]) -> list[str]:
    """The resources on which the policies allow an action."""
    lists = [statement["Resource"] for statement in statements(files) if action in statement["Action"]]
    return [resource for item in lists for resource in ([item] if isinstance(item, str) else item)]


def reaches(action: str, arn: str, files: list[Path]) -> bool:
    """Whether an action reaches a resource of the account 1."""
    patterns = [resource.replace("${aws:PrincipalAccount}", "1") for resource in allowed(action, files)]
    return any(fnmatchcase(arn, pattern) for pattern in patterns)


def commands(containing: str) -> str:
    """The block of shell commands in the guide that has a word."""
    (block,) = [block for block in re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL) if containing in block]
    return str(block)


def test_the_files_are_what_the_templates_need() -> None:
    made = tool.generated(map(bodies, apps()))
    assert {path: path.read_text("utf-8") for path in FILES} == made, "run `make docs`"


def test_the_policies_fit_the_size_limit_of_iam() -> None:
    assert 0 < len(FILES) <= 10
    for file in FILES:
        assert len("".join(json.dumps(json.loads(file.read_text("utf-8"))).split())) <= 6144, file.name


@pytest.mark.parametrize(
    ("action", "arn"),
    [
        ("cloudformation:DescribeStacks", "arn:aws:cloudformation:us-west-2:1:stack/hyperpod-a-foundation/0-1"),
        ("cloudwatch:PutDashboard", "arn:aws:cloudwatch::1:dashboard/hyperpod-a-us-west-2"),
        ("cloudwatch:PutMetricAlarm", "arn:aws:cloudwatch:us-west-2:1:alarm:hyperpod-a-cluster-MonitoringNodesMissing-0A"),
        ("ec2:CreateNatGateway", "arn:aws:ec2:us-west-2:1:natgateway/*"),
        ("events:PutTargets", "arn:aws:events:us-west-2:1:rule/hyperpod-a-cluster-MonitoringSchedule-0A"),
        ("fsx:CreateFileSystem", "arn:aws:fsx:us-west-2:1:file-system/*"),
        ("fsx:DeleteFileSystem", "arn:aws:fsx:us-west-2:1:file-system/fs-0"),
        ("fsx:CreateDataRepositoryAssociation", "arn:aws:fsx:us-west-2:1:association/fs-0/dra-0"),
        ("iam:CreateServiceLinkedRole", "arn:aws:iam::1:role/aws-service-role/fsx.amazonaws.com/AWSServiceRoleForAmazonFSx"),
        ("iam:PassRole", "arn:aws:iam::1:role/hyperpod-a-cluster-ClusterComputeRole-0A"),
        ("lambda:InvokeFunction", "arn:aws:lambda:us-west-2:1:function:hyperpod-a-provider"),
        ("lambda:UpdateEventSourceMapping", "arn:aws:lambda:us-west-2:1:event-source-mapping:0-1"),
        ("logs:DescribeLogGroups", "arn:aws:logs:us-west-2:1:log-group::log-stream:*"),
        ("s3:GetObject", "arn:aws:s3:::cdk-hnb659fds-assets-1-us-west-2/0.zip"),
        ("s3:PutBucketPolicy", "arn:aws:s3:::sagemaker-a-1-us-west-2"),
        ("sagemaker:CreateCluster", "arn:aws:sagemaker:us-west-2:1:cluster/*"),
        ("sns:Subscribe", "arn:aws:sns:us-west-2:1:hyperpod-a-cluster-MonitoringTopic-0A"),
        ("sqs:SetQueueAttributes", "arn:aws:sqs:us-west-2:1:hyperpod-a-cluster-MonitoringEventQueue-0A"),
        ("ssm:GetParameters", "arn:aws:ssm:us-west-2:1:parameter/cdk-bootstrap/hnb659fds/version"),
        ("states:CreateStateMachine", "arn:aws:states:us-west-2:1:stateMachine:ScaleDownProviderwaiterstatemachine-0A"),
    ],
)  # fmt: skip
def test_a_deployment_may_do_what_it_does(action: str, arn: str) -> None:
    assert reaches(action, arn, FIRST)


@pytest.mark.parametrize(
    ("action", "arn"),
    [
        ("aps:CreateWorkspace", "arn:aws:aps:us-west-2:1:workspace/*"),
        ("eks:AssociateAccessPolicy", "arn:aws:eks:us-west-2:1:access-entry/a/role/1/hyperpod-a-eks-KubectlRole-0A/0"),
        ("eks:CreateAccessEntry", "arn:aws:eks:us-west-2:1:cluster/a"),
        ("eks:CreateAddon", "arn:aws:eks:us-west-2:1:cluster/a"),
        ("eks:CreateCluster", "arn:aws:eks:us-west-2:1:cluster/a"),
        ("eks:CreatePodIdentityAssociation", "arn:aws:eks:us-west-2:1:cluster/a"),
        ("logs:CreateLogGroup", "arn:aws:logs:us-west-2:1:log-group:/aws/eks/a/cluster"),
        ("logs:PutRetentionPolicy", "arn:aws:logs:us-west-2:1:log-group:/aws/lambda/hyperpod-a-eks-Handler-0A:*"),
        ("sagemaker:CreateClusterSchedulerConfig", "arn:aws:sagemaker:us-west-2:1:cluster-scheduler-config/*"),
        ("sagemaker:DeleteComputeQuota", "arn:aws:sagemaker:us-west-2:1:compute-quota/0"),
        ("ssm:GetParameters", "arn:aws:ssm:us-west-2:1:parameter/CFN-EksClusterKubectlReadyBarrier0A-QmGaUkqhh6Au"),
        ("ssm:PutParameter", "arn:aws:ssm:us-west-2:1:parameter/CFN-EksClusterKubectlReadyBarrier0A-QmGaUkqhh6Au"),
    ],
)
def test_under_eks_a_deployment_may_do_more_and_no_other_may(action: str, arn: str) -> None:
    assert reaches(action, arn, UNDER_EKS)
    assert not reaches(action, arn, FIRST)


def test_nothing_of_eks_is_in_the_policies_for_all() -> None:
    actions = [action for statement in statements(FIRST) for action in statement["Action"]]
    assert [action for action in actions if action.startswith("eks:")] == []


def test_the_policies_for_eks_repeat_nothing() -> None:
    actions = {action for statement in statements(UNDER_EKS) for action in statement["Action"]}
    assert actions
    for action in sorted(actions):
        assert set(allowed(action, UNDER_EKS)).isdisjoint(allowed(action, FIRST)), action


@pytest.mark.parametrize(
    ("action", "arn"),
    [
        *[("iam:CreatePolicyVersion", f"arn:aws:iam::1:policy/{file.stem}") for file in FILES],
        ("iam:AttachRolePolicy", "arn:aws:iam::1:role/cdk-hnb659fds-cfn-exec-role-1-us-west-2"),
        ("iam:PutRolePolicy", "arn:aws:iam::1:role/cdk-hnb659fds-cfn-exec-role-1-us-west-2"),
        ("iam:PassRole", "arn:aws:iam::1:role/Admin"),
        ("iam:DeleteRolePermissionsBoundary", "arn:aws:iam::1:role/hyperpod-a-cluster-ClusterComputeRole-0A"),
        ("lambda:UpdateFunctionCode", "arn:aws:lambda:us-west-2:1:function:somebody-elses"),
        ("cloudwatch:DeleteAlarms", "arn:aws:cloudwatch:us-west-2:1:alarm:somebody-elses"),
        ("events:RemoveTargets", "arn:aws:events:us-west-2:1:rule/somebody-elses"),
        ("logs:DeleteLogGroup", "arn:aws:logs:us-west-2:1:log-group:somebody-elses"),
        ("sns:SetTopicAttributes", "arn:aws:sns:us-west-2:1:somebody-elses"),
        ("sqs:DeleteQueue", "arn:aws:sqs:us-west-2:1:somebody-elses"),
        ("s3:DeleteBucket", "arn:aws:s3:::somebody-elses"),
        ("s3:DeleteObject", "arn:aws:s3:::somebody-elses/data"),
        ("s3:DeleteBucket", "arn:aws:s3:::sagemaker-us-west-2-1"),
        ("s3:DeleteObject", "arn:aws:s3:::sagemaker-us-west-2-1/model-0a-1b/data"),
        ("s3:GetObject", "arn:aws:s3:::sagemaker-eu-west-2-1/model-0a-1b/data"),
        ("s3:PutBucketPolicy", "arn:aws:s3:::sagemaker-us-west-2-1"),
        ("s3:PutBucketPolicy", "arn:aws:s3:::sagemaker-a-2-us-west-2"),
        ("s3:DeleteBucket", "arn:aws:s3:::cdk-hnb659fds-assets-1-us-west-2"),
        ("s3:DeleteObject", "arn:aws:s3:::cdk-hnb659fds-assets-1-us-west-2/0.zip"),
        ("s3:PutBucketPolicy", "arn:aws:s3:::cdk-hnb659fds-assets-1-us-west-2"),
        ("s3:PutObject", "arn:aws:s3:::cdk-hnb659fds-assets-1-us-west-2/0.zip"),
        ("logs:DeleteLogGroup", "arn:aws:logs:us-west-2:1:log-group:/aws/lambda/somebody-elses"),
        ("ssm:DeleteParameter", "arn:aws:ssm:us-west-2:1:parameter/CFN-SomebodyElses-QmGaUkqhh6Au"),
        ("ssm:PutParameter", "arn:aws:ssm:us-west-2:1:parameter/cdk-bootstrap/hnb659fds/version"),
    ],
)
def test_a_deployment_may_not_touch_what_is_not_ours_nor_its_own_rights(action: str, arn: str) -> None:
    assert not reaches(action, arn, FILES)


def test_names_in_the_templates_are_within_the_policies_reach() -> None:
    files = [ROOT / "cluster.yaml", *CONFIGS.glob("*.yaml")]
    assert all(name.startswith("hyperpod-") for file in files for name in of_file(file))
    named = [
        ("lambda:CreateFunction", "AWS::Lambda::Function", "FunctionName", "arn:aws:lambda:us-west-2:1:function:"),
        ("logs:CreateLogGroup", "AWS::Logs::LogGroup", "LogGroupName", "arn:aws:logs:us-west-2:1:log-group:"),
        ("s3:CreateBucket", "AWS::S3::Bucket", "BucketName", "arn:aws:s3:::"),
        ("cloudwatch:PutDashboard", "AWS::CloudWatch::Dashboard", "DashboardName", "arn:aws:cloudwatch::1:dashboard/"),
        ("ecr:CreateRepository", "AWS::ECR::Repository", "RepositoryName", "arn:aws:ecr:us-west-2:1:repository/"),
        ("ssm:PutParameter", "AWS::SSM::Parameter", None, "arn:aws:ssm:us-west-2:1:parameter/CFN-"),
        ("states:CreateStateMachine", "AWS::StepFunctions::StateMachine", None, "arn:aws:states:us-west-2:1:stateMachine:"),
    ]  # fmt: skip
    for app in apps():
        policies = FILES if tool.has_eks(bodies(app)) else FIRST
        for template, (action, kind, key, arn) in itertools.product(app.values(), named):
            for logical_id, resource in template.of(kind).items():
                name = logical_id if key is None else resource.get("Properties", {}).get(key, "hyperpod-")
                # What a name refers to has one that begins like all of ours.
                own = re.sub("<.*?>", "hyperpod-", flat(name).replace("<AWS::AccountId>", "1"))
                assert reaches(action, arn + own, policies), logical_id


def test_actions_that_iam_cannot_scope_are_allowed_on_all_resources_only() -> None:
    for statement in statements(FILES):
        if statement["Resource"] != "*":
            assert [action for action in statement["Action"] if not tool.is_limited(action)] == []


def test_a_resource_type_without_declared_permissions_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"AWS::New::Thing declares no permissions"):
        tool.generated([[{"Resources": {"Thing": {"Type": "AWS::New::Thing"}}}]])


def test_a_type_that_one_region_lacks_is_looked_up_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = "AWS::SageMaker::ClusterSchedulerConfig"
    assert {"sagemaker:CreateClusterSchedulerConfig", "eks:AssociateAccessPolicy"} <= tool.permissions_of(kind)
    monkeypatch.setattr(tool, "REGIONS", ())
    with pytest.raises(SystemExit, match=kind):
        tool.permissions_of(kind)


@pytest.mark.parametrize("kind", [kind for kind in tool.UNDECLARED if "*" not in kind])
def test_the_table_is_not_needed_for_a_type_that_declares_its_permissions(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "UNDECLARED", {})
    with pytest.raises(SystemExit, match=kind):
        tool.permissions_of(kind)


# -- conditions -------------------------------------------------------------------------------------------------------

CHANGES_OF_KEYS = ("kms:DisableKey", "kms:PutKeyPolicy", "kms:ScheduleKeyDeletion")
USES_OF_KEYS = ("kms:CreateGrant", "kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey")


@pytest.mark.parametrize("action", [*CHANGES_OF_KEYS, *USES_OF_KEYS])
def test_no_key_is_changed_or_read_but_ours_or_through_a_service(action: str) -> None:
    conditions = [item.get("Condition") for item in statements(FILES) if action in item["Action"]]
    through = [tool.THROUGH_A_SERVICE] if action in USES_OF_KEYS else []
    assert conditions == [tool.OUR_KEYS, *through]


@pytest.mark.parametrize("action", ["CreateEventSourceMapping", "DeleteEventSourceMapping", "UpdateEventSourceMapping"])
def test_no_mapping_is_changed_but_those_of_our_functions(action: str) -> None:
    conditions = [item.get("Condition") for item in statements(FILES) if f"lambda:{action}" in item["Action"]]
    assert conditions == [tool.OUR_MAPPINGS]


def test_roles_are_given_to_the_services_of_our_roles_only() -> None:
    (condition,) = [item["Condition"] for item in statements(FILES) if "iam:PassRole" in item["Action"]]
    services = condition["StringEquals"]["iam:PassedToService"]
    assert {"lambda.amazonaws.com", "sagemaker.amazonaws.com", "eks.amazonaws.com", "pods.eks.amazonaws.com"} <= {
        *services
    }
    assert {"ec2.amazonaws.com", "codebuild.amazonaws.com"}.isdisjoint(services)


@pytest.mark.parametrize(
    "action", ["BatchDeleteClusterNodes", "DeleteCluster", "UpdateCluster", "UpdateClusterSoftware"]
)
def test_no_cluster_of_another_stack_is_changed(action: str) -> None:
    """A new cluster and an imported one have no tag, which the condition lets pass."""
    conditions = [item.get("Condition") for item in statements(FILES) if f"sagemaker:{action}" in item["Action"]]
    assert conditions == [tool.OUR_CLUSTERS]
    assert [*tool.OUR_CLUSTERS] == ["StringLikeIfExists"]


def test_no_image_of_the_account_is_shared() -> None:
    actions = {action for item in statements(FILES) for action in item["Action"]}
    assert actions.isdisjoint({"ec2:ModifyImageAttribute", "ec2:ModifySnapshotAttribute"})


def test_every_key_of_the_templates_says_that_it_is_ours() -> None:
    keys = [
        (name, key) for app in apps() for name, template in app.items() for key in template.of("AWS::KMS::Key").values()
    ]
    assert keys
    for stack, key in keys:
        # An example's stack may have another name; the policies are for this app's.
        assert {"Key": KEY_TAG, "Value": stack} in key["Properties"]["Tags"]


# -- the boundary -----------------------------------------------------------------------------------------------------


def test_our_roles_can_live_within_the_boundary() -> None:
    actions = {action for app in apps() for template in app.values() for action in actions_of_roles(template)}
    assert {"iam:PassRole", "sagemaker:UpdateCluster", "lambda:InvokeFunction"} <= actions
    assert {action for action in actions if not within_boundary(action)} == set()
    assert not within_boundary("iam:CreateRole") and not within_boundary("sts:AssumeRole")


def actions_of_roles(template: Template) -> Iterator[str]:
    documents = [
        *(
            policy["Properties"]["PolicyDocument"]
            for kind in ("AWS::IAM::ManagedPolicy", "AWS::IAM::Policy")
            for policy in template.of(kind).values()
        ),
        *(
            policy["PolicyDocument"]
            for role in template.of("AWS::IAM::Role").values()
            for policy in role["Properties"].get("Policies", [])
        ),
    ]
    for statement in (item for document in documents for item in document["Statement"]):
        yield from [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]


def within_boundary(action: str) -> bool:
    """Whether the boundary allows an action on something of ours."""
    for statement in statements([BOUNDARY]):
        listed = statement["NotAction"] if "NotAction" in statement else statement["Action"]
        named = any(fnmatchcase(action, pattern) for pattern in ([listed] if isinstance(listed, str) else listed))
        if named is not ("NotAction" in statement):
            return True
    return False


def test_the_boundary_is_one_that_a_deployment_may_not_change() -> None:
    for name in (BOUNDARY.stem, KEEPER.stem):
        assert not reaches("iam:CreatePolicyVersion", f"arn:aws:iam::1:policy/{name}", FILES)
    assert f"policy/{BOUNDARY.stem}" in json.dumps([item.get("Condition") for item in statements([KEEPER])])
    assert GUIDE.count(f'"@aws-cdk/core:permissionsBoundary": {{"name": "{BOUNDARY.stem}"}}') == 1


# -- the guide --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("orchestrator", "files"), [("slurm", FIRST), ("eks", FILES)])
def test_the_guides_commands_make_the_policies_and_hand_them_to_cdk(
    orchestrator: str, files: list[Path], tmp_path: Path
) -> None:
    for name in ("aws", "cdk"):
        script = tmp_path / name
        script.write_text(f'#!/bin/bash\necho {name} "$@" >>"$LOG"\necho arn:aws:iam::1:policy/"$4"\n', "utf-8")
        script.chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)}
    block = commands("basename")
    if orchestrator == "eks":
        # The guide says which pattern to write instead of which.
        ((all_of_them, first),) = re.findall(r"write\s`(\S+)` for `(docs\S+)`", GUIDE)
        assert block.count(first) == 1
        block = block.replace(first, all_of_them)
    subprocess.run(["bash", "-euc", block], cwd=ROOT, env=environment, check=True)

    *made, bootstrap = log.read_text("utf-8").splitlines()
    assert made == [
        f"aws iam create-policy --policy-name {file.stem} --policy-document file://docs/bootstrap/{file.name} "
        "--query Policy.Arn --output text"
        for file in files
    ]
    arns = ",".join(f"arn:aws:iam::1:policy/{file.stem}" for file in files)
    assert bootstrap == f"cdk bootstrap aws://ACCOUNT/REGION --cloudformation-execution-policies {arns}"


def test_the_guides_commands_for_the_boundary(tmp_path: Path) -> None:
    for name in ("aws", "cdk"):
        script = tmp_path / name
        script.write_text(f'#!/bin/bash\necho {name} "$@" >>"$LOG"\necho arn:aws:iam::1:policy/"$4"\n', "utf-8")
        script.chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log), "policies": "ours"}
    subprocess.run(["bash", "-euc", commands("$keeps")], cwd=ROOT, env=environment, check=True)
    *made, bootstrap = log.read_text("utf-8").splitlines()
    for line, file in zip(made, (BOUNDARY, KEEPER), strict=True):
        assert line.startswith(f"aws iam create-policy --policy-name {file.stem} ")
        assert f"file://{file.relative_to(ROOT)}" in line
    assert bootstrap.endswith(f"--cloudformation-execution-policies ours,arn:aws:iam::1:policy/{KEEPER.stem}")


def test_the_guide_puts_the_commands_on_the_path() -> None:
    (line,) = re.findall(r"`make setup && (source \S+)`", GUIDE)
    script = f"{line} && cdk --version && cdk-hyperpod check"
    done = subprocess.run(
        ["bash", "-euc", script], cwd=ROOT, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "llm-train: a slurm cluster" in done.stdout
