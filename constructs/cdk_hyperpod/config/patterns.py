"""Names that several parts of the model know: a namespace, a CronJob, an IAM role, a bucket, a key."""

from __future__ import annotations

from typing import Annotated

from .._lambda.hyperpod.kernel.drain_protocol import NODE_ID
from ..typed.bounds import PATH_SEGMENT, Pattern

Namespace = Annotated[
    str,
    Pattern(
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        "1 to 63 lower-case letters, digits and hyphens, no hyphen at either end",
        length=63,
    ),
]
CronJobName = Annotated[
    str,
    Pattern(
        # A name of at most 52 characters: its Jobs' have 63 (Kubernetes, "CronJob").
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,50}[a-z0-9])?",
        "NAMESPACE/NAME of a CronJob, such as research/backup",
        length=116,
    ),
]
ROLE_ARN = Pattern(
    # A name has at most 64 characters, a path 512 with its slashes; nobody takes on the role of a service (IAM API
    # reference, CreateRole).
    r"arn:aws:iam::[0-9]{12}:role/(?!aws-service-role/)([A-Za-z0-9+=,.@_-]+/)*[A-Za-z0-9+=,.@_-]{1,64}",
    "an IAM role's ARN such as arn:aws:iam::111122223333:role/research, and no service's own role",
    length=605,
)
RoleArn = Annotated[str, ROLE_ARN]
BucketName = Annotated[
    str,
    # The S3 user guide, "General purpose bucket naming rules".
    Pattern(
        r"(?!xn--|sthree-|amzn-s3-demo-)(?!.*\.\.)(?![0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$)"
        r"(?!.*(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
        "an S3 bucket name, 3 to 63 characters",
    ),
]
KmsKeyArn = Annotated[
    str,
    Pattern(
        r"arn:aws:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+",
        "a KMS key's ARN such as arn:aws:kms:us-west-2:111122223333:key/…",
    ),
]
ZONE = Pattern(
    r"[a-z]{2}(-[a-z]+)+-[0-9][a-f]|[a-z]+[0-9]-az[1-6]",
    "an availability zone's name or id, such as us-west-2c or usw2-az3",
)
Zone = Annotated[str, ZONE]
SecurityGroupId = Annotated[str, Pattern(r"sg-[0-9a-f]{8,17}", "a security group id such as sg-0123456789abcdef0")]
ClusterName = Annotated[
    str,
    Pattern(
        r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", "1 to 63 letters, digits and hyphens, no hyphen at either end", length=63
    ),
]
NodeId = Annotated[str, Pattern(NODE_ID, "an instance id such as i-0123456789abcdef0")]
GroupName = ClusterName
MountPath = Annotated[str, Pattern(rf"(/{PATH_SEGMENT})+", "an absolute path without a slash at its end")]
