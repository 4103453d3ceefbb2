"""S3's managed prefix list of each region, for a rule that allows nodes to reach S3 only.

CloudFormation cannot look a list up. For a region that is missing here, `aws ec2 describe-managed-prefix-lists` prints the id.
"""

from __future__ import annotations

S3_PREFIX_LISTS = {
    "ap-northeast-1": "pl-61a54008",
    "ap-northeast-2": "pl-78a54011",
    "ap-south-1": "pl-78a54011",
    "ap-southeast-1": "pl-6fa54006",
    "ap-southeast-2": "pl-6ca54005",
    "ca-central-1": "pl-7da54014",
    "eu-central-1": "pl-6ea54007",
    "eu-north-1": "pl-c3aa4faa",
    "eu-west-1": "pl-6da54004",
    "eu-west-2": "pl-7ca54015",
    "sa-east-1": "pl-6aa54003",
    "us-east-1": "pl-63a5400a",
    "us-east-2": "pl-7ba54012",
    "us-west-1": "pl-6ba54002",
    "us-west-2": "pl-68a54001",
}
