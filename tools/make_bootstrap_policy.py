"""Writes docs/bootstrap/*.json: what CloudFormation needs to deploy our templates, and little more.

    make docs

The templates are those of cluster.yaml, tests/helpers/configs and examples. The permissions are those that the handlers of
their resource types declare in the CloudFormation registry, as cfn-lint ships it, and for the few types that declare
none, those in a table here. IAM limits a managed policy to 6,144 characters, so there are several;
`cdk bootstrap --cloudformation-execution-policies` takes their ARNs, up to ten (docs/deploy-permissions.md).

There are two sets. deploy-hyperpod-N.json is what every app needs that makes no part of an EKS cluster, and holds no
action of EKS. deploy-hyperpod-eks-N.json is what the others need beyond it.
"""

from __future__ import annotations

import functools
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

import cfnlint  # type: ignore[import-untyped]

from cdk_hyperpod._common.tags import KEY_TAG

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "bootstrap"
DATA = Path(cfnlint.__file__).parent / "data"
# Where a resource type is looked up, in this order: not every region's list has all (ClusterSchedulerConfig).
REGIONS = ("us-west-2", "us-east-1")
LIMIT = 6144
MAX_POLICIES = 10

# Resource types whose schema declares no permissions, and where ours come from.
UNDECLARED: Mapping[str, Iterable[str]] = {
    # What the service authorization reference names for a file system, and AmazonFSxFullAccess for its network. Its key
    # takes part through a grant. Deleting one of Lustre makes no backup unless somebody asks (API_DeleteFileSystem).
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
    # CDK's own note of its version: nothing is made.
    "AWS::CDK::Metadata": (),
    # CloudFormation signs an address of a bucket of its own. Ours waits for nothing: its metadata is the file's record.
    # https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-cloudformation-waitconditionhandle.html
    "AWS::CloudFormation::WaitConditionHandle": (),
    # A custom resource is a function that CloudFormation invokes with this role.
    # https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/template-custom-resources-lambda.html
    "Custom::*": ("lambda:InvokeFunction",),
}
# What a deployment needs beyond its resource types.
ALWAYS = {
    "cloudformation:DescribeStacks",  # Fn::GetStackOutput reads the other stack with this role
    "s3:GetObject",  # the functions' code, from the bootstrap's bucket
    "ssm:GetParameter",  # the bootstrap's version
    "ssm:GetParameters",
}
# What handlers declare for things that none of our templates holds, and that would hand out other people's rights.
# An EKS cluster makes instance profiles for nodes of its own ("auto mode"), and ours are HyperPod's.
# Whoever may take a permissions boundary off a role undoes the boundary (docs/permissions-boundary.md): no template of ours does.
NEVER = ("iam:*Group*", "iam:*InstanceProfile*", "iam:*User*", "iam:DeleteRolePermissionsBoundary")
# AWS::SageMaker::Cluster declares what it needs under EKS, and a cluster under Slurm must not have it.
NEVER_WITHOUT_EKS = (*NEVER, "eks:*")

# Names that CloudFormation gives our resources begin with the stack's, and the stacks' with hyperpod-.
SCOPES = {
    "cloudformation": ["arn:*:cloudformation:*:*:stack/hyperpod-*"],
    "ecr": ["arn:*:ecr:*:*:repository/elastic-training"],
    "iam": ["arn:*:iam::*:role/hyperpod-*", "arn:*:iam::*:policy/hyperpod-*", "arn:*:iam::*:role/aws-service-role/*"],
    "lambda": ["arn:*:lambda:*:*:function:hyperpod-*", "arn:*:lambda:*:*:layer:*"],
    "logs": ["arn:*:logs:*:*:log-group:hyperpod-*"],
    "s3": [
        "arn:*:s3:::hyperpod-*",
        # sagemaker-NAME-ACCOUNT-REGION, and not sagemaker-REGION-ACCOUNT: that one is SageMaker's own, and others' data.
        "arn:*:s3:::sagemaker-*-${aws:PrincipalAccount}-*",
    ],
    "ssm": ["arn:*:ssm:*:*:parameter/cdk-bootstrap/*"],
    # Named without the stack, after the guard and what it stands in.
    "states": ["arn:*:states:*:*:stateMachine:*ScaleDownProviderwaiter*"],
}
# An EKS cluster has the name that its file says, so EKS itself is not limited (docs/deploy-permissions.md says how to).
EKS_SCOPES = SCOPES | {
    "logs": [
        *SCOPES["logs"],
        "arn:*:logs:*:*:log-group:/aws/eks/*",
        "arn:*:logs:*:*:log-group:/aws/lambda/hyperpod-*",
    ],
    # CDK gives its parameter no name, and CloudFormation then makes one of CFN-, the logical id and a random end. That is
    # not in the type's documentation; it is how such names look in CDK's own recorded deployments
    # (CFN-ListAutogenC5DA1CAE-QmGaUkqhh6Au) and in error messages that people quote.
    "ssm": ["arn:*:ssm:*:*:parameter/CFN-*KubectlReadyBarrier*"],
}
ROLES = "arn:*:iam::*:role/hyperpod-*"
# The bootstrap's bucket holds the code of every CDK app of the account: ours is read there, and nothing is written.
ASSETS = "arn:*:s3:::cdk-*-assets-*"
READING_ASSETS = ("s3:GetObject", "s3:GetObjectVersion")

Json = dict[str, Any]
# Keys have no names: ours are known by their tag, and others are used through AWS's services alone, in the name of the role
# that deploys. The service authorization reference has both condition keys for these actions.
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_awskeymanagementservice.html
OUR_KEYS: Json = {"StringLike": {f"aws:ResourceTag/{KEY_TAG}": "hyperpod-*"}}
THROUGH_A_SERVICE: Json = {"StringLike": {"kms:ViaService": "*"}}
CONDITIONS: Mapping[str, Sequence[Json]] = {
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
"""Under which conditions an action is allowed: any one of them is enough. Absent: under none."""

Grants = dict[str, list[str]]  # the resources that each action may reach


@functools.cache
def load(path: str) -> Json:
    """One of cfn-lint's data files, which are large; nobody changes what this returns."""
    content: Json = json.loads((DATA / path).read_text("utf-8"))
    return content


def synthesized() -> Iterator[list[Json]]:
    """The templates of the app, for each cluster file of ours, and of each example."""
    files = [ROOT / "cluster.yaml", *sorted((ROOT / "tests" / "helpers" / "configs").glob("*.yaml"))]
    yield from (templates_of(ROOT / "app.py", config=str(file)) for file in files)
    yield from map(templates_of, sorted((ROOT / "examples").glob("*/app.py")))


def templates_of(program: Path, **more: str) -> list[Json]:
    """The templates that a CDK program makes."""
    with tempfile.TemporaryDirectory() as folder:
        return [json.loads(path.read_text("utf-8")) for path in synthesize(program, Path(folder), **more)]


def synthesize(program: Path, folder: Path, **more: str) -> list[Path]:
    """Run a CDK program, with more context; the templates that it writes into the folder."""
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
    """What it takes to make, change and delete resources of a type."""
    listed = (load(f"schemas/providers/{region}.json").get(kind) for region in REGIONS)
    schema = next(filter(None, listed), None)
    handlers: Json = load(f"schemas/resources/{schema}.json").get("handlers", {}) if schema else {}
    # Only the resource scanner calls `list`, and what it calls cannot be limited to our names.
    declared = [handler.get("permissions", []) for name, handler in handlers.items() if name != "list"]
    by_hand = [actions for pattern, actions in UNDECLARED.items() if fnmatch(kind, pattern)]
    if not declared and not by_hand:
        raise SystemExit(
            f"{kind} declares no permissions: find out what it needs, and add it to UNDECLARED in {__file__}"
        )
    return {action for actions in [*declared, *by_hand] for action in actions}


def is_limited(action: str) -> bool:
    """Whether IAM can limit an action to some resources. One that cfn-lint does not know counts as one of the many."""
    service, name = action.split(":")
    actions = load("AdditionalSpecs/Policies.json").get(service, {}).get("Actions", {})
    return bool(actions.get(name.lower(), {"Resources": True}).get("Resources"))


def resources_for(action: str, scopes: Mapping[str, list[str]]) -> list[str]:
    """Our names where the names are ours to give, else everything."""
    if action == "iam:PassRole":
        return [ROLES]
    scope = scopes.get(action.split(":")[0])
    if action in READING_ASSETS:
        return [*scopes["s3"], ASSETS]
    return scope if scope and is_limited(action) else ["*"]


def grants(permissions: Iterable[str], never: Collection[str], scopes: Mapping[str, list[str]]) -> Grants:
    """What the permissions may reach, without those that nobody gets."""
    # Registry schemas write some services in capitals, and one has the name of a log record among its actions.
    actions = {service.lower() + ":" + name for service, name in (action.split(":") for action in permissions)}
    return {
        action: resources_for(action, scopes)
        for action in actions
        if re.fullmatch(r"[a-z0-9-]+:[A-Za-z0-9]+", action) and not any(fnmatch(action, one) for one in never)
    }


def beyond(given: Grants, wanted: Grants) -> Grants:
    """What is wanted and not given yet."""
    missing = {
        action: [one for one in resources if one not in given.get(action, [])] for action, resources in wanted.items()
    }
    return {action: resources for action, resources in missing.items() if resources}


def statements(granted: Grants) -> list[Json]:
    """The actions by service, by what they reach and under which condition."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for action, resources in sorted(granted.items()):
        reach = resources[0] if resources == ["*"] else resources
        for condition in CONDITIONS.get(action, [{}]):
            limits = {"Resource": reach, **({"Condition": condition} if condition else {})}
            grouped.setdefault((action.split(":")[0], json.dumps(limits)), []).append(action)
    return [
        {"Effect": "Allow", "Action": actions, **json.loads(limits)} for (_, limits), actions in sorted(grouped.items())
    ]


def policies(parts: Iterable[Json]) -> list[Json]:
    """As few policies as hold the statements in their order; IAM counts characters without white space."""
    made: list[Json] = []
    for part in parts:
        if made and size({**made[-1], "Statement": [*made[-1]["Statement"], part]}) <= LIMIT:
            made[-1]["Statement"].append(part)
        else:
            made.append({"Version": "2012-10-17", "Statement": [part]})
    if any(size(policy) > LIMIT for policy in made):
        raise SystemExit(f"IAM takes policies of {LIMIT:,} characters: split a service's statement")
    return made


def size(policy: Json) -> int:
    """A policy's characters as IAM counts them."""
    return len(json.dumps(policy, separators=(",", ":")))


def has_eks(templates: Iterable[Json]) -> bool:
    """Whether an app with these templates makes something of an EKS cluster."""
    return any(kind.startswith("AWS::EKS::") for kind in kinds_in(templates))


def kinds_in(templates: Iterable[Json]) -> set[str]:
    """The resource types of some templates."""
    return {str(resource["Type"]) for template in templates for resource in template.get("Resources", {}).values()}


def generated(apps: Iterable[Collection[Json]]) -> dict[Path, str]:
    """Each file and its content, for apps as lists of their templates.

    A policy has its file's name, which must not be one that the policies may change.
    """
    kinds: dict[bool, set[str]] = {False: set(), True: set()}
    for templates in apps:
        kinds[has_eks(templates)] |= kinds_in(templates)
    first = grants(ALWAYS.union(*map(permissions_of, kinds[False])), NEVER_WITHOUT_EKS, SCOPES)
    under_eks = grants({action for kind in kinds[True] for action in permissions_of(kind)}, NEVER, EKS_SCOPES)
    made = {
        TARGET / f"{name}-{number}.json": json.dumps(policy, indent=1) + "\n"
        for name, granted in (("deploy-hyperpod", first), ("deploy-hyperpod-eks", beyond(first, under_eks)))
        for number, policy in enumerate(policies(statements(granted)), 1)
    }
    if len(made) > MAX_POLICIES:
        raise SystemExit(f"a role takes {MAX_POLICIES} policies, and these are {len(made)}")
    return made


if __name__ == "__main__":
    written = generated(synthesized())
    for stale in TARGET.glob("*.json"):
        stale.unlink()
    for path, text in written.items():
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
