"""Reasons for acknowledging findings of cdk-nag and of CDK's template checks, for reviewers of an app's security.

Each constant is for the resource of its name. A mapping has rules and their reasons. A text is the reason for a policy's wildcards.
`acknowledge.py` adds them to constructs, and tests/project/test_rule_packs.py checks that every finding has one.
"""

from __future__ import annotations

from collections.abc import Mapping

from .acknowledge import managed_policy_finding

Reasons = Mapping[str, str]

# -- network ----------------------------------------------------------------------------------------------------------

VPC: Reasons = {
    "NIST.800.53.R5-VPCDefaultSecurityGroupClosed": (
        "CloudFormation cannot change the default security group's rules, and nothing is in that group: every interface in "
        "this VPC names a group of its own."
    )
}
SUBNET: Reasons = {
    "CloudFormation-Validate::W3010": "The zone is where the capacity is, which only the cluster's owner knows."
}
ROUTE_TO_INTERNET: Reasons = {
    "NIST.800.53.R5-VPCNoUnrestrictedRouteToIGW": (
        "Internet egress was asked for; only the NAT gateway is in this subnet, and no node."
    )
}
ALL_TRAFFIC: Reasons = {
    "NIST.800.53.R5-EC2RestrictedCommonPorts": (
        "EFA needs all traffic between members of the groups; the rule names a group and no address range."
    )
}
WEBHOOKS: Reasons = {
    "NIST.800.53.R5-EC2RestrictedCommonPorts": (
        "Add-ons choose the ports of their webhooks; the rule names the control plane's own security group."
    )
}

# -- logs and buckets -------------------------------------------------------------------------------------------------

FLOW_LOG_WITHOUT_KEY: Reasons = {
    "NIST.800.53.R5-CloudWatchLogGroupEncrypted": (
        "CloudWatch Logs encrypts it with a key of its own; log_encryption_key names another."
    )
}
FOUNDATION_GUARD_LOG: Reasons = {
    "NIST.800.53.R5-CloudWatchLogGroupEncrypted": (
        "CloudWatch encrypts it with a key of its own: the foundation's key is made after this function has run, and the log "
        "holds names, ranges and ids alone."
    )
}
ACCESS_LOGS: Reasons = {
    "AwsSolutions-S1": "This is the bucket that access logs go to; logging it into itself would never end.",
    "NIST.800.53.R5-S3BucketLoggingEnabled": "This is the bucket that access logs go to.",
    "NIST.800.53.R5-S3DefaultEncryptionKMS": "S3 delivers access logs to buckets with SSE-S3 only.",
    "NIST.800.53.R5-S3BucketReplicationEnabled": "Access logs of one region's buckets; kept there for a year.",
}


def _no_copy(reason: str) -> Reasons:
    return {"NIST.800.53.R5-S3BucketReplicationEnabled": reason}


DATA_BUCKET = _no_copy("The file system holds the working copy; a second region's is its owner's choice.")
SCRIPTS_BUCKET = _no_copy("The scripts are in the source repository, and are uploaded again by any deployment.")
DRAIN_BUCKET = _no_copy("Requests and answers of a few minutes, which mean something to this one cluster.")

# -- functions --------------------------------------------------------------------------------------------------------

_RARELY = "CloudFormation alone invokes it, a few times in a deployment that changes something it looks at; "
_OF_CDK = "CDK's own construct decides this; "


def _function(in_a_vpc: str) -> Reasons:
    return {
        "NIST.800.53.R5-LambdaConcurrency": _RARELY + "reserved concurrency would fail in accounts with small limits.",
        "NIST.800.53.R5-LambdaDLQ": _RARELY + "CloudFormation itself reports and rolls back a failure.",
        "NIST.800.53.R5-LambdaInsideVPC": _RARELY + in_a_vpc,
    }


FUNCTION = _function("a closed VPC would cut it off from the APIs that it calls.")
DRAINER: Reasons = {
    "NIST.800.53.R5-LambdaConcurrency": (
        "The guard alone invokes it, twice in half a minute of a deployment that takes nodes; reserved concurrency would fail in "
        "accounts with small limits."
    ),
    "NIST.800.53.R5-LambdaDLQ": "The guard waits for its answer, and judges one that does not come.",
}
"""The function that drains nodes of an EKS cluster."""
ALERTS: Reasons = {
    "NIST.800.53.R5-LambdaConcurrency": (
        "Its queue starts two of it at most, and a schedule one; reserved concurrency would fail in accounts with small limits."
    ),
    "NIST.800.53.R5-LambdaDLQ": "Its queue has a dead-letter queue, and an alarm reports a schedule that has stopped.",
    "NIST.800.53.R5-LambdaInsideVPC": "A closed VPC would cut it off from the APIs that it calls.",
}
"""The function that sends alerts."""
_PART_OF_CDK: Reasons = {
    **_function("a closed VPC would cut it off from CloudFormation."),
    "AwsSolutions-L1": _OF_CDK + "the runtime follows the pinned version of CDK.",
    "NIST.800.53.R5-IAMNoInlinePolicy": _OF_CDK + "each policy belongs to one role.",
    managed_policy_finding("AWSLambdaBasicExecutionRole"): _OF_CDK + "the policy lets it write its own log.",
}
PROVIDER: Reasons = {
    **_PART_OF_CDK,
    "AwsSolutions-SF1": "The waiter's events hold the pre-signed address that answers CloudFormation; whoever reads it could "
    "answer in its place, so it is not logged.",
    "AwsSolutions-SF2": "The waiter calls one function every half a minute; there is nothing to trace.",
}
"""CDK's framework around the guard's functions."""
KUBECTL: Reasons = {
    **_PART_OF_CDK,
    **_function("this one is in no VPC where CDK makes it without one."),
    managed_policy_finding("AWSLambdaVPCAccessExecutionRole"): _OF_CDK + "the policy lets it live in the VPC.",
}
"""CDK's functions that run kubectl and Helm."""

# -- types and values that the checks do not know ---------------------------------------------------------------------

NEW_INSTANCE_TYPES: Reasons = {
    "CloudFormation-Validate::E3644": (
        "The CreateCluster API has the type; the schema that checks templates does not have it yet."
    )
}
LATEST_IMAGE: Reasons = {
    "CloudFormation-Validate::E1152": "CreateCluster takes the word default for HyperPod's latest image; the check expects an AMI."
}
IMAGE_RELEASE: Reasons = {
    "CloudFormation-Validate::F3002": (
        "CloudFormation has ImageReleaseVersion; the schema that CDK checks templates with does not have it yet."
    )
}
GOVERNANCE: Reasons = {
    "CloudFormation-Validate::F3006": "CloudFormation has the type; the list that CDK checks with does not have it yet."
}

# -- EKS --------------------------------------------------------------------------------------------------------------

CONTROL_PLANE: Reasons = {
    "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AmazonEKSClusterPolicy]": (
        "EKS asks for this policy of AWS's own, and changes it with what a control plane does."
    )
}
PUBLIC_API: Reasons = {
    "AwsSolutions-EKS1": "The API is open to the addresses that the configuration names alone.",
}

# -- wildcards of policies: of the functions --------------------------------------------------------------------------

ANY_CLUSTER_TO_READ = (
    "It is read whether or not the cluster exists, and a cluster's ARN holds an id that HyperPod chooses."
)
DRAINER_INTERFACES = (
    "Lambda plugs the function into the VPC with these: EC2 gives an interface its id when it is made, and two of them can be "
    "limited to no resource. The second statement takes them from the function's own code."
)
FUNCTION_LOGS = "A log group's ARN ends in a wildcard for its streams, and the functions write to their own group only."
CLUSTER_LOG = "A log group's ARN ends in a wildcard for its streams, and the function reaches the cluster's group and its own only."
METRICS = (
    "CloudWatch has no resource for metrics (service authorization reference): a condition names the namespace that is written, and "
    "the other call only reads."
)
TRAINING_PLANS = "Groups get other plans without a deployment of this policy, and the call only reads."
TOPIC_KEY = (
    "The SNS guide asks for kms:GenerateDataKey* of who publishes to an encrypted topic; the key is used through SNS only, and a "
    "given topic does not say which key it has."
)
CAPACITY = "A training plan's reserved capacity has an id that SageMaker chooses, and nothing tells it beforehand."
READ_ONLY = "Neither call can be limited to a resource (service authorization reference), and both only read."
PROVIDER_INVOKES = _OF_CDK + "it invokes every version of the two functions, and nothing else."
UPLOAD = (
    "A changed script is another asset and another prefix: the function reads the zips of CDK's asset bucket, compares each with "
    "the hash of its content, and writes below one prefix of the scripts' bucket."
)
KUBECTL_INVOKES = _OF_CDK + "it invokes every version of one function, and reads assets from one bucket."

# -- wildcards of policies: of the nodes ------------------------------------------------------------------------------

NODE_LOGS = "HyperPod names the log group by an id that it gives the cluster, and a stream by group and instance."
NO_RESOURCE = (
    "IAM has no resource for these actions: metrics (limited to HyperPod's namespace), SSM session channels, and the "
    "descriptions of network parts that HyperPod reads before it plugs a node in."
)
SCRIPTS = "Nodes read every file of the scripts' bucket below one prefix."
INTERFACES = "EC2 gives an interface its id when it is made; its VPC, subnets or security group are named."
INSTANCES = "EC2 gives an interface and an instance their ids when they are made."
IMAGES = "Add-ons' images are in repositories of AWS's own accounts, jobs' in those that teams choose."
AUTOSCALED_CLUSTER = "The cluster names this role, so the role is there before the cluster has an ARN."
