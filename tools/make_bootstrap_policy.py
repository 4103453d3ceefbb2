"""Writes docs/bootstrap/*.json: the permissions that CloudFormation needs to deploy our templates, and few others.

    make docs

The templates are those of cluster.yaml, tests/helpers/configs and examples. The permissions are those that the handlers
of their resource types declare in the CloudFormation registry, as cfn-lint ships it. For the few types that declare
none, they are in a table here. IAM limits a managed policy to 6,144 characters, so there are several; `cdk bootstrap
--cloudformation-execution-policies` accepts up to ten ARNs (docs/deploy-permissions.md).

There are two sets. Every app without parts of an EKS cluster needs only deploy-hyperpod-N.json, which has no action of
EKS. The other apps also need deploy-hyperpod-eks-N.json.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from cdk_hyperpod._common.tags import KEY_TAG

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "bootstrap"
# Regions in which a resource type is looked up, in this order: not every region's list has all types
# (ClusterSchedulerConfig).
REGIONS = ("us-west-2", "us-east-1")
LIMIT = 6144
MAX_POLICIES = 10

# Resource types whose schema declares no permissions, and the sources of ours.
UNDECLARED: Mapping[str, Iterable[str]] = {
    # The actions of the service authorization reference for a file system, and of AmazonFSxFullAccess for its network.
    # Its key is used through a grant. Deleting a Lustre file system makes no backup by default (API_DeleteFileSystem).
    # https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonfsx.html
    # https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonFSxFullAccess.html
    "AWS::FSx::FileSystem": (
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
        "ec2:DescribeVpcs",
        "ec2:GetSecurityGroupsForVpc",
        "fsx:CreateFileSystem",
        "fsx:DeleteFileSystem",
        "fsx:DescribeFileSystems",
        "fsx:ListTagsForResource",
        "fsx:TagResource",
        "fsx:UntagResource",
        "fsx:UpdateFileSystem",
        "iam:CreateServiceLinkedRole",
        "kms:CreateGrant",
        "kms:DescribeKey",
    ),
    # CDK's own note of its version: no resource is created.
    "AWS::CDK::Metadata": (),
    # CloudFormation signs an address of its own bucket. Our handle waits for nothing: its metadata is the record of the
    # file.
    # https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-cloudformation-waitconditionhandle.html
    "AWS::CloudFormation::WaitConditionHandle": (),
    # A custom resource is a function that CloudFormation invokes with this role.
    # https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/template-custom-resources-lambda.html
    "Custom::*": ("lambda:InvokeFunction",),
}
# The permissions of a deployment besides those of its resource types.
ALWAYS = {
    "cloudformation:DescribeStacks",  # Fn::GetStackOutput reads the other stack with this role
    "s3:GetObject",  # the functions' code, from the bootstrap's bucket
    "ssm:GetParameter",  # the bootstrap's version
    "ssm:GetParameters",
}
# Permissions that handlers declare for features that our templates do not use, and that would give access to other
# resources.
# An EKS cluster creates instance profiles for its own nodes ("auto mode"). Our nodes are HyperPod's.
# Removing the permissions boundary of a role would disable the boundary (docs/deploy-permissions.md). No template of ours
# removes one.
# Sharing an image or a snapshot of the account is for custom AMIs, which the file names (docs/deploy-permissions.md).
NEVER = (
    *("ec2:ModifyImageAttribute", "ec2:ModifySnapshotAttribute"),
    *("iam:*Group*", "iam:*InstanceProfile*", "iam:*User*", "iam:DeleteRolePermissionsBoundary"),
)
# AWS::SageMaker::Cluster declares the permissions for EKS too. A cluster with Slurm must not have them.
NEVER_WITHOUT_EKS = (*NEVER, "eks:*")

# CloudFormation's names for our resources begin with the stack's name, which begins with hyperpod-.
SCOPES = {
    "cloudformation": ["arn:*:cloudformation:*:*:stack/hyperpod-*"],
    "cloudwatch": ["arn:*:cloudwatch:*:*:alarm:hyperpod-*", "arn:*:cloudwatch::*:dashboard/hyperpod-*"],
    "ecr": ["arn:*:ecr:*:*:repository/elastic-training"],
    "events": ["arn:*:events:*:*:rule/hyperpod-*"],
    "iam": ["arn:*:iam::*:role/hyperpod-*", "arn:*:iam::*:policy/hyperpod-*", "arn:*:iam::*:role/aws-service-role/*"],
    "lambda": [
        "arn:*:lambda:*:*:function:hyperpod-*",
        "arn:*:lambda:*:*:layer:*",
        # Lambda chooses the id of a mapping.
        "arn:*:lambda:*:*:event-source-mapping:*",
    ],
    "logs": ["arn:*:logs:*:*:log-group:hyperpod-*"],
    "s3": [
        "arn:*:s3:::hyperpod-*",
        # sagemaker-NAME-ACCOUNT-REGION. Not sagemaker-REGION-ACCOUNT, which is SageMaker's own bucket with other data.
        "arn:*:s3:::sagemaker-*-${aws:PrincipalAccount}-*",
    ],
    "sns": ["arn:*:sns:*:*:hyperpod-*"],
    "sqs": ["arn:*:sqs:*:*:hyperpod-*"],
    "ssm": ["arn:*:ssm:*:*:parameter/cdk-bootstrap/*"],
    # Names without the stack's name, after the guard and the resource that contains it.
    "states": ["arn:*:states:*:*:stateMachine:*ScaleDownProviderwaiter*"],
}
# An EKS cluster has the name in its file, so EKS itself is not limited (docs/deploy-permissions.md shows how to limit it).
EKS_SCOPES = SCOPES | {
    "logs": [
        *SCOPES["logs"],
        "arn:*:logs:*:*:log-group:/aws/eks/*",
        "arn:*:logs:*:*:log-group:/aws/lambda/hyperpod-*",
    ],
    # CDK gives its parameter no name. CloudFormation then uses CFN-, the logical id and a random end. The type's
    # documentation does not say so, but CDK's own recorded deployments (CFN-ListAutogenC5DA1CAE-QmGaUkqhh6Au) and
    # quoted error messages have such names.
    "ssm": ["arn:*:ssm:*:*:parameter/CFN-*KubectlReadyBarrier*"],
}
ROLES = "arn:*:iam::*:role/hyperpod-*"
# The bootstrap's bucket contains the code of every CDK app of the account. Our policies allow only reading it.
ASSETS = "arn:*:s3:::cdk-*-assets-*"
READING_ASSETS = ("s3:GetObject", "s3:GetObjectVersion")

Json = dict[str, Any]
# Keys have no names. Our keys are identified by their tag. Others can be used only through AWS's services, as the
# deploying role. The service authorization reference has both condition keys for these actions.
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_awskeymanagementservice.html
OUR_KEYS: Json = {"StringLike": {f"aws:ResourceTag/{KEY_TAG}": "hyperpod-*"}}
THROUGH_A_SERVICE: Json = {"StringLike": {"kms:ViaService": "*"}}
# A mapping has an id that Lambda chooses. Ours are identified by their function.
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_awslambda.html
# CloudFormation tags every cluster that it creates, by the type's schema (cloudFormationSystemTags). A cluster that was made by
# hand and is imported has no such tag, so a missing one passes.
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsagemaker.html
OUR_CLUSTERS: Json = {"StringLikeIfExists": {"aws:ResourceTag/aws:cloudformation:stack-name": "hyperpod-*"}}
OUR_MAPPINGS: Json = {"ArnLike": {"lambda:FunctionArn": "arn:*:lambda:*:*:function:hyperpod-*"}}
CONDITIONS: Mapping[str, Sequence[Json]] = {
    **dict.fromkeys(
        (
            "sagemaker:BatchDeleteClusterNodes",
            "sagemaker:DeleteCluster",
            "sagemaker:UpdateCluster",
            "sagemaker:UpdateClusterSoftware",
        ),
        (OUR_CLUSTERS,),
    ),
    **dict.fromkeys(
        (
            "lambda:CreateEventSourceMapping",
            "lambda:DeleteEventSourceMapping",
            "lambda:GetEventSourceMapping",
            "lambda:UpdateEventSourceMapping",
        ),
        (OUR_MAPPINGS,),
    ),
    **dict.fromkeys(
        (
            "kms:DisableKey",
            "kms:DisableKeyRotation",
            "kms:EnableKey",
            "kms:PutKeyPolicy",
            "kms:ScheduleKeyDeletion",
            "kms:UntagResource",
            "kms:UpdateKeyDescription",
        ),
        (OUR_KEYS,),
    ),
    **dict.fromkeys(
        ("kms:CreateGrant", "kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey", "kms:RetireGrant"),
        (OUR_KEYS, THROUGH_A_SERVICE),
    ),
}
"""The conditions under which an action is allowed: one of them is enough. Absent: no condition."""

Grants = dict[str, list[str]]  # the resources that each action may access


@functools.cache
def load(path: str) -> Json:
    """One of cfn-lint's data files. They are large and cached, so callers must not change the result."""
    import cfnlint  # type: ignore[import-untyped]

    content: Json = json.loads((Path(cfnlint.__file__).parent / "data" / path).read_text("utf-8"))
    return content


def synthesized() -> Iterator[list[Json]]:
    """The templates of the app for each of our cluster files, and of each example."""
    files = [ROOT / "cluster.yaml", *sorted((ROOT / "tests" / "helpers" / "configs").glob("*.yaml"))]
    yield from (templates_of(ROOT / "app.py", config=str(file)) for file in files)
    yield from map(templates_of, sorted((ROOT / "examples").glob("*/app.py")))


def templates_of(program: Path, **more: str) -> list[Json]:
    """The templates of a CDK program."""
    with tempfile.TemporaryDirectory() as folder:
        return [json.loads(path.read_text("utf-8")) for path in synthesize(program, Path(folder), **more)]


def synthesize(program: Path, folder: Path, **more: str) -> list[Path]:
    """Run a CDK program with additional context, and return the templates that it writes into the folder."""
    context = json.loads((program.parent / "cdk.json").read_text("utf-8"))["context"] | more
    context["aws:cdk:disable-asset-staging"] = True
    settings = {"CDK_OUTDIR": str(folder), "CDK_CONTEXT_JSON": json.dumps(context), "CDK_VALIDATION": "false"}
    done = subprocess.run(
        [sys.executable, program.name],
        cwd=program.parent,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{program} failed:\n{done.stderr}")
    return sorted(folder.glob("*.template.json"))


def permissions_of(kind: str) -> set[str]:
    """The permissions to create, change and delete resources of a type."""
    listed = (load(f"schemas/providers/{region}.json").get(kind) for region in REGIONS)
    schema = next(filter(None, listed), None)
    handlers: Json = load(f"schemas/resources/{schema}.json").get("handlers", {}) if schema else {}
    # Only the resource scanner calls `list`, and its calls cannot be limited to our names.
    declared = [handler.get("permissions", []) for name, handler in handlers.items() if name != "list"]
    by_hand = [actions for pattern, actions in UNDECLARED.items() if fnmatch(kind, pattern)]
    if not declared and not by_hand:
        raise SystemExit(
            f"{kind} declares no permissions. Find out which ones it needs, and add it to UNDECLARED in {__file__}"
        )
    return {action for actions in [*declared, *by_hand] for action in actions}


def is_limited(action: str) -> bool:
    """Whether IAM can limit an action to some resources.

    An action that cfn-lint does not know counts as one that can be limited.
    """
    service, name = action.split(":")
    actions = load("AdditionalSpecs/Policies.json").get(service, {}).get("Actions", {})
    return bool(actions.get(name.lower(), {"Resources": True}).get("Resources"))


def resources_for(action: str, scopes: Mapping[str, list[str]]) -> list[str]:
    """Our names if we choose the names of such resources, otherwise all resources."""
    if action == "iam:PassRole":
        return [ROLES]
    scope = scopes.get(action.split(":")[0])
    if action in READING_ASSETS:
        return [*scopes["s3"], ASSETS]
    return scope if scope and is_limited(action) else ["*"]


def grants(permissions: Iterable[str], never: Collection[str], scopes: Mapping[str, list[str]]) -> Grants:
    """The permissions of these types, without the excluded ones."""
    # Registry schemas write some services in capitals, and one contains the name of a log record as an action.
    actions = {service.lower() + ":" + name for service, name in (action.split(":") for action in permissions)}
    return {
        action: resources_for(action, scopes)
        for action in actions
        if re.fullmatch(r"[a-z0-9-]+:[A-Za-z0-9]+", action) and not any(fnmatch(action, one) for one in never)
    }


def beyond(given: Grants, wanted: Grants) -> Grants:
    """The required permissions that are not yet granted."""
    missing = {
        action: [one for one in resources if one not in given.get(action, [])] for action, resources in wanted.items()
    }
    return {action: resources for action, resources in missing.items() if resources}


def passed_to(templates: Iterable[Json]) -> Json:
    """The condition that a role is given to a service that one of the templates' roles trusts."""
    roles = (
        resource["Properties"]["AssumeRolePolicyDocument"]
        for template in templates
        for resource in template.get("Resources", {}).values()
        if resource["Type"] == "AWS::IAM::Role"
    )
    services = {
        str(item["Principal"]["Service"])
        for trust in roles
        for item in trust["Statement"]
        if "Service" in item["Principal"]
    }
    return {"StringEquals": {"iam:PassedToService": sorted(services)}}


def statements(granted: Grants, conditions: Mapping[str, Sequence[Json]]) -> list[Json]:
    """The actions by service, by resources and by condition."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for action, resources in sorted(granted.items()):
        reach = resources[0] if resources == ["*"] else resources
        for condition in conditions.get(action, [{}]):
            limits = {"Resource": reach, **({"Condition": condition} if condition else {})}
            grouped.setdefault((action.split(":")[0], json.dumps(limits)), []).append(action)
    return [
        {"Effect": "Allow", "Action": actions, **json.loads(limits)} for (_, limits), actions in sorted(grouped.items())
    ]


def policies(parts: Iterable[Json]) -> list[Json]:
    """As few policies as possible for these statements, in their order. IAM counts characters without white space."""
    made: list[Json] = []
    for part in parts:
        if made and size({**made[-1], "Statement": [*made[-1]["Statement"], part]}) <= LIMIT:
            made[-1]["Statement"].append(part)
        else:
            made.append({"Version": "2012-10-17", "Statement": [part]})
    if any(size(policy) > LIMIT for policy in made):
        raise SystemExit(
            f"A statement is longer than {LIMIT:,} characters, IAM's limit for a policy. Split the statement of its service"
        )
    return made


def size(policy: Json) -> int:
    """The length of a policy as IAM counts it."""
    return len(json.dumps(policy, separators=(",", ":")))


def has_eks(templates: Iterable[Json]) -> bool:
    """Whether an app with these templates creates parts of an EKS cluster."""
    return any(kind.startswith("AWS::EKS::") for kind in kinds_in(templates))


def kinds_in(templates: Iterable[Json]) -> set[str]:
    """The resource types in some templates."""
    return {str(resource["Type"]) for template in templates for resource in template.get("Resources", {}).values()}


def generated(apps: Iterable[Collection[Json]]) -> dict[Path, str]:
    """Each file and its content, for apps as lists of their templates.

    A policy has its file's name, which must not be a name that the policies may change.
    """
    kinds: dict[bool, set[str]] = {False: set(), True: set()}
    apps = list(apps)
    for templates in apps:
        kinds[has_eks(templates)] |= kinds_in(templates)
    first = grants(ALWAYS.union(*map(permissions_of, kinds[False])), NEVER_WITHOUT_EKS, SCOPES)
    under_eks = grants({action for kind in kinds[True] for action in permissions_of(kind)}, NEVER, EKS_SCOPES)
    conditions = {**CONDITIONS, "iam:PassRole": [passed_to(itertools.chain.from_iterable(apps))]}
    made = {
        TARGET / f"{name}-{number}.json": json.dumps(policy, indent=1) + "\n"
        for name, granted in (("deploy-hyperpod", first), ("deploy-hyperpod-eks", beyond(first, under_eks)))
        for number, policy in enumerate(policies(statements(granted, conditions)), 1)
    }
    if len(made) > MAX_POLICIES:
        raise SystemExit(f"There are {len(made)} policies, and a role can have {MAX_POLICIES}. Merge statements")
    return made


if __name__ == "__main__":
    written = generated(synthesized())
    for stale in TARGET.glob("*.json"):
        stale.unlink()
    for path, text in written.items():
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
