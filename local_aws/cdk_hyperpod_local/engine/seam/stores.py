"""The state of ministack's CloudWatch Logs, EC2, IAM, KMS, Lambda, S3 and SNS."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ministack.services import cloudwatch_logs, ec2, iam, kms, lambda_svc, s3  # type: ignore[import-not-found]
from ministack.services.cloudformation import provisioners  # type: ignore[import-not-found]

from cdk_hyperpod_local.engine.seam.services import Reply

Json = Any


def ec2_store(name: str) -> Any:
    """One of ec2's dictionaries: vpcs, subnets, security_groups, network_interfaces, nat_gateways, addresses, …"""
    ec2._ensure_defaults_initialized()
    return getattr(ec2, f"_{name}")


def ec2_actions() -> dict[str, Callable[[Json], Reply]]:
    actions: dict[str, Callable[[Json], Reply]] = ec2._ACTION_MAP
    return actions


def ec2_error(code: str, message: str) -> Reply:
    reply: Reply = ec2._error(code, message, 400)
    return reply


def ec2_parameter(params: Json, name: str) -> str:
    return str(ec2._p(params, name))


def ec2_call(action: str, **parameters: str) -> None:
    """Run an EC2 action with its query parameters. Raises ValueError with EC2's message."""
    status, _, body = ec2_actions()[action]({name: [value] for name, value in parameters.items()})
    if status >= 400:
        raise ValueError(body.decode())


def ec2_tag(resource_id: str, properties: Json, old: Json | None = None) -> None:
    provisioners._ec2_apply_tags(resource_id, properties, old)


def zone_id(zone: str) -> str:
    """The id of the zone with this name: usw2-az1 for us-west-2a."""
    return str(ec2._az_id_for_zone_name(zone))


def find_zones_by_id(names: Callable[[], Sequence[str]]) -> None:
    """Let a subnet that names its zone by an id be in the zone of `names` with this id. ministack knows three zones."""
    ec2._zone_name_for_az_id = lambda wanted: next((name for name in names() if zone_id(name) == wanted), None)


def security_group_rule(properties: Json) -> Json:
    """A rule's properties in the form that ec2 stores in its security groups."""
    return provisioners._ec2_sg_permissions([properties])[0]


def security_group_rule_id(group_id: str, egress: bool, rule: Json) -> str:
    return str(ec2._sg_rule_id(group_id, egress, rule))


def role(arn: str) -> Json | None:
    return iam._roles.get(arn.rsplit("/", 1)[-1])


def trusts(role_arn: str, service: str) -> bool | None:
    """Whether the role's trust policy admits the service; None if the role does not exist."""
    found = role(role_arn)
    if found is None:
        return None
    document = found.get("AssumeRolePolicyDocument")
    return f'"{service}"' in (document if isinstance(document, str) else json.dumps(document))


def policy_exists(arn: str) -> bool:
    """Whether this account can use this managed policy: its own, or one of AWS."""
    return bool(iam._policy_exists(arn))


def principal_exists(arn: str) -> bool:
    """Whether this account has this role or user."""
    store = iam._roles if ":role/" in arn else iam._users
    return arn.rsplit("/", 1)[-1] in store


def key_exists(key: str) -> bool:
    """Whether the key exists: by id or ARN, of the key or of an alias."""
    return key.rpartition("/")[2] in kms._keys or key in kms._aliases


def key_policy(arn: str) -> str | None:
    """None if the key does not exist."""
    found = kms.key_policy_for_arn(arn)
    return None if found is None else str(found[0])


def log_group(name: str) -> Json | None:
    found: Json | None = cloudwatch_logs._log_groups.get(name)
    return found


def write_log(group: str, stream: str, at_ms: int, message: str) -> None:
    """Write one line to a log, once. Creates the group and the stream if they are missing."""
    if group not in cloudwatch_logs._log_groups:
        cloudwatch_logs._create_log_group({"logGroupName": group})
    streams = cloudwatch_logs._log_groups[group]["streams"]
    if stream not in streams:
        cloudwatch_logs._create_log_stream({"logGroupName": group, "logStreamName": stream})
    if not any((each["timestamp"], each["message"]) == (at_ms, message) for each in streams[stream]["events"]):
        line = {"timestamp": at_ms, "message": message}
        cloudwatch_logs._put_log_events({"logGroupName": group, "logStreamName": stream, "logEvents": [line]})


def function_networks() -> dict[str, Json]:
    """Name of a Lambda function -> its VpcConfig."""
    return {name: record["config"].get("VpcConfig") or {} for name, record in lambda_svc._functions.items()}


def bucket_exists(bucket: str) -> bool:
    return bucket in s3._buckets


def bucket_objects(bucket: str) -> int:
    return len(s3._buckets.get(bucket, {}).get("objects", {}))


def bucket_key(bucket: str) -> str | None:
    """The KMS key of the bucket's objects, if it is not S3's own."""
    headers: dict[str, str] = s3._bucket_default_sse_headers(bucket)
    return headers.get("x-amz-server-side-encryption-aws-kms-key-id")


def s3_error(code: str, message: str, status: int, path: str) -> Reply:
    reply: Reply = s3._error(code, message, status, path)
    return reply
