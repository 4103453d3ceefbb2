"""HyperPod's own log group: encrypted and limited by a deployment, with the function's own rights, and never deleted."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod.cluster.cluster_log import KIND
from cdk_hyperpod_local import assemblies
from helpers.deployments.configs import STANDING
from helpers.local_aws.rehearsal import Rehearsal

Json = Any
RIGHTS = {"logs:AssociateKmsKey", "logs:CreateLogGroup", "logs:PutRetentionPolicy"}


def group(life: Rehearsal) -> Json:
    arn = life.aws.client("sagemaker").describe_cluster(ClusterName=life.name)["ClusterArn"]
    name = f"/aws/sagemaker/Clusters/{life.name}/{arn.rpartition('/')[2]}"
    (found,) = life.aws.client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return found


def key_of(life: Rehearsal) -> str:
    resources = life.aws.client("cloudformation").describe_stack_resources(StackName=life.foundation)["StackResources"]
    (key,) = (item["PhysicalResourceId"] for item in resources if item["ResourceType"] == "AWS::KMS::Key")
    return str(life.aws.client("kms").describe_key(KeyId=key)["KeyMetadata"]["Arn"])


def told(life: Rehearsal) -> str:
    (stack,) = life.aws.client("cloudformation").describe_stacks(StackName=life.cluster)["Stacks"]
    return str({item["OutputKey"]: item["OutputValue"] for item in stack["Outputs"]}["ClusterLog"])


def test_a_deployment_encrypts_the_group_and_limits_it(life: Rehearsal) -> None:
    made, key = group(life), key_of(life)
    assert (made["retentionInDays"], made["kmsKeyId"]) == (365, key)
    assert told(life) == f"{made['logGroupName']}: Kept for 365 days. Encrypted with {key}."

    since, checks = life.mark(), len(life.aws.checks())
    changed = life.change({**STANDING, "log_retention_days": 30})
    assert changed.status == "UPDATE_COMPLETE", changed.reasons
    assert group(life)["retentionInDays"] == 30
    assert life.calls(since) == {}, "nothing of the cluster was asked for"
    asked = [check for check in life.aws.checks(since=checks) if f"/{life.cluster}-ClusterLog" in check.who]
    assert {(check.action, check.allowed) for check in asked} == {(action, True) for action in RIGHTS}
    assert {check.resource for check in asked} == {made["arn"].removesuffix(":*")}


def test_an_older_stack_gets_it_without_harm_and_logs_stay_when_it_goes(life: Rehearsal) -> None:
    """As the stack was before: HyperPod made the group itself, and wrote into it."""

    def before(template: Json) -> None:
        del template["Outputs"]["ClusterLog"]
        ours = [name for name in template["Resources"] if name.startswith("ClusterLog") and "Login" not in name]
        for name in ours:
            del template["Resources"][name]
        for resource in template["Resources"].values():
            resource["DependsOn"] = [name for name in resource.get("DependsOn", []) if name not in ours]

    nodes, name = life.nodes(), group(life)["logGroupName"]
    older = life.change(edit=before)
    assert older.status == "UPDATE_COMPLETE", older.reasons
    assert group(life)["logGroupName"] == name, "what goes with the stack is no log"

    logs = life.aws.client("logs")
    logs.delete_log_group(logGroupName=name)
    logs.create_log_group(logGroupName=name)
    logs.create_log_stream(logGroupName=name, logStreamName="LifecycleConfig/p5/i-before")
    since = life.mark()
    newer = life.change()
    assert newer.status == "UPDATE_COMPLETE", newer.reasons
    assert (group(life)["retentionInDays"], group(life)["kmsKeyId"]) == (365, key_of(life))
    streams = logs.describe_log_streams(logGroupName=name, logStreamNamePrefix="LifecycleConfig/p5/i-before")
    assert [item["logStreamName"] for item in streams["logStreams"]] == ["LifecycleConfig/p5/i-before"]
    assert life.calls(since) == {} and life.nodes() == nodes


def test_a_key_that_cloudwatch_may_not_use_fails_no_deployment(life: Rehearsal) -> None:
    other = str(life.aws.client("kms").create_key()["KeyMetadata"]["Arn"])

    def with_another_key(template: Json) -> None:
        (resource,) = (item for item in template["Resources"].values() if item["Type"] == KIND)
        resource["Properties"]["KmsKeyId"] = other
        for item in template["Resources"].values():
            variables = item.get("Properties", {}).get("Environment", {}).get("Variables", {})
            variables |= {"KMS_KEY_ID": other} if "KMS_KEY_ID" in variables else {}

    before = group(life)
    changed = life.change(edit=with_another_key)
    assert changed.status == "UPDATE_COMPLETE", changed.reasons
    assert group(life) == before
    assert f"Kept for 365 days. NOT encrypted with {other}: InvalidParameterException: " in told(life)


def test_the_cluster_log_function_has_only_the_listed_permissions(life: Rehearsal) -> None:
    template = assemblies.template(life.synth(), life.cluster)
    (policy,) = (
        item["Properties"]["PolicyDocument"]["Statement"]
        for name, item in template["Resources"].items()
        if name.startswith("ClusterLogPolicy")
    )
    assert {action for statement in policy for action in statement["Action"]} == {
        *RIGHTS,
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    }
