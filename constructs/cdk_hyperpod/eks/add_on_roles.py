"""What the pods of add-ons may do: statements of their roles, bounded to the EKS cluster, and to named buckets and keys.

Sources: the policies that the drivers document (kubernetes-sigs/aws-ebs-csi-driver, AmazonEBSCSIDriverEKSClusterScopedPolicy;
kubernetes-sigs/aws-fsx-csi-driver; "Mountpoint for Amazon S3 CSI driver" in the EKS user guide), and "Using the Amazon EBS CSI
driver on SageMaker HyperPod EKS clusters" in the SageMaker developer guide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Aws, Stack
from constructs import Construct

Statement = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRole:
    """The role of an add-on's pods."""

    construct_id: str
    namespace: str
    service_account: str
    statements: Sequence[Statement]
    wildcards: str | None = None
    """Why the statements have wildcards. None: they have none."""


def cluster_tag(cluster_name: str) -> str:
    """The tag of what a driver creates for an EKS cluster. Its value is `owned`."""
    return f"kubernetes.io/cluster/{cluster_name}"


def training_operator_role(hyperpod_cluster_arn: str) -> PodRole:
    """The training operator describes the nodes of its jobs."""
    return PodRole(
        construct_id="TrainingOperator",
        namespace="aws-hyperpod",
        service_account="hp-training-operator-controller-manager",
        statements=[_allow("sagemaker:DescribeClusterNode", hyperpod_cluster_arn)],
    )


def observability_role(workspace_arn: str) -> PodRole:
    """Observability writes metrics to one workspace."""
    return PodRole(
        construct_id="Observability",
        namespace="hyperpod-observability",
        service_account="hyperpod-observability-operator-otel-collector",
        statements=[_allow("aps:RemoteWrite", workspace_arn)],
    )


def s3_role(scope: Construct, buckets: Sequence[str], keys: Sequence[str]) -> PodRole:
    """The S3 driver reads and writes the named buckets of this account. A deleted bucket's name can be another account's."""
    arns = [f"arn:{Aws.PARTITION}:s3:::{bucket}" for bucket in buckets]
    objects = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    ours = {"StringEquals": {"aws:ResourceAccount": Aws.ACCOUNT_ID}}
    statements = [_allow("s3:ListBucket", arns, ours), _allow(objects, [f"{arn}/*" for arn in arns], ours)]
    if keys:
        by_s3 = {"StringEquals": _through(scope, "s3")}
        statements.append(_allow(["kms:Decrypt", "kms:GenerateDataKey"], [*keys], by_s3))
    return PodRole(
        construct_id="S3Driver",
        namespace="kube-system",
        service_account="s3-csi-driver-sa",
        statements=statements,
        wildcards="The objects of the buckets that the configuration names.",
    )


def ebs_role(scope: Construct, cluster_name: str, hyperpod_cluster_arn: str, keys: Sequence[str]) -> PodRole:
    """The EBS driver creates, changes and deletes what has the cluster's tag, and attaches volumes through HyperPod.

    The volumes of other clusters, and those that were created by hand without the tag, cannot be changed or deleted.
    """
    volumes, snapshots = (_ec2(scope, f"{kind}/*") for kind in ("volume", "snapshot"))
    requested, tagged = _tags(cluster_name)
    described = [
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeInstances",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeSnapshots",
        "ec2:DescribeTags",
        "ec2:DescribeVolumeStatus",
        "ec2:DescribeVolumes",
        "ec2:DescribeVolumesModifications",
    ]
    statements = [
        _allow(described, "*"),
        _allow("ec2:CreateVolume", volumes, requested),
        _allow("ec2:CreateVolume", snapshots, tagged),
        _allow("ec2:CreateSnapshot", snapshots, requested),
        _allow(["ec2:CreateSnapshot", "ec2:DeleteVolume", "ec2:ModifyVolume"], volumes, tagged),
        _allow("ec2:DeleteSnapshot", snapshots, tagged),
        _allow(
            "ec2:CreateTags",
            [volumes, snapshots],
            {"StringEquals": {"ec2:CreateAction": ["CreateVolume", "CreateSnapshot"]}},
        ),
        _allow(["sagemaker:AttachClusterNodeVolume", "sagemaker:DetachClusterNodeVolume"], hyperpod_cluster_arn),
    ]
    return PodRole(
        construct_id="EbsDriver",
        namespace="kube-system",
        service_account="ebs-csi-controller-sa",
        statements=[*statements, *_volume_keys(_through(scope, "ec2"), keys)],
        wildcards="EC2 chooses the ids of volumes and snapshots; each must have the tag of this cluster. Lists name none.",
    )


def fsx_role(scope: Construct, cluster_name: str, key_arn: str) -> PodRole:
    """The FSx driver creates and deletes file systems that have the cluster's tag."""
    file_systems = f"arn:{Aws.PARTITION}:fsx:{Stack.of(scope).region}:{Aws.ACCOUNT_ID}:file-system/*"
    requested, tagged = _tags(cluster_name)
    linked_role = f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/aws-service-role/fsx.amazonaws.com/*"
    service = {"StringEquals": {"iam:AWSServiceName": "fsx.amazonaws.com"}}
    statements = [
        _allow(["fsx:DescribeFileSystems", "ec2:DescribeSubnets", "ec2:DescribeSecurityGroups"], "*"),
        _allow(["fsx:CreateFileSystem", "fsx:TagResource"], file_systems, requested),
        _allow(["fsx:DeleteFileSystem", "fsx:UpdateFileSystem"], file_systems, tagged),
        _allow("iam:CreateServiceLinkedRole", linked_role, service),
    ]
    return PodRole(
        construct_id="FsxDriver",
        namespace="kube-system",
        service_account="fsx-csi-controller-sa",
        statements=[*statements, *_volume_keys(_through(scope, "fsx"), [key_arn])],
        wildcards="FSx chooses the ids of file systems; each must have the tag of this cluster. Lists name none.",
    )


def _through(scope: Construct, service: str) -> Statement:
    """The condition that a service of AWS uses a key for the role."""
    return {"kms:ViaService": f"{service}.{Stack.of(scope).region}.{Aws.URL_SUFFIX}"}


def _volume_keys(through: Statement, keys: Sequence[str]) -> list[Statement]:
    """The keys of volumes and file systems. AWS's service uses them by a grant."""
    if not keys:
        return []
    used = [
        "kms:Decrypt",
        "kms:DescribeKey",
        "kms:GenerateDataKeyWithoutPlaintext",
        "kms:ReEncryptFrom",
        "kms:ReEncryptTo",
    ]
    by_service = {"StringEquals": through}
    grants = {**by_service, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [_allow(used, [*keys], by_service), _allow("kms:CreateGrant", [*keys], grants)]


def _tags(cluster_name: str) -> tuple[Statement, Statement]:
    """The conditions that a request, or an existing resource, has the cluster's tag."""
    tag = cluster_tag(cluster_name)
    return (
        {"StringEquals": {f"aws:RequestTag/{tag}": "owned"}},
        {"StringEquals": {f"aws:ResourceTag/{tag}": "owned"}},
    )


def _ec2(scope: Construct, resource: str) -> str:
    # A snapshot's ARN has no account.
    account = "" if resource.startswith("snapshot") else Aws.ACCOUNT_ID
    return f"arn:{Aws.PARTITION}:ec2:{Stack.of(scope).region}:{account}:{resource}"


def _allow(action: str | list[str], resource: str | list[str], condition: Statement | None = None) -> Statement:
    statement: Statement = {"Effect": "Allow", "Action": action, "Resource": resource}
    return statement if condition is None else {**statement, "Condition": condition}
