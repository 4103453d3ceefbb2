"""The bucket of a cluster's lifecycle scripts, as a party looks at it that wants to change what nodes run."""

from __future__ import annotations

import hashlib
from typing import Any

from helpers.local_aws.rehearsal import Rehearsal

Json = Any


def name_of(life: Rehearsal) -> str:
    return f"sagemaker-{life.name}-{life.aws.account}-{life.aws.region}"


def contents(life: Rehearsal) -> dict[str, str]:
    """Each object that a reader gets, and the hash of its content."""
    s3, bucket = life.aws.client("s3"), name_of(life)
    listed = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [entry["Key"] for page in listed for entry in page.get("Contents", [])]
    return {key: hashlib.sha256(s3.get_object(Bucket=bucket, Key=key)["Body"].read()).hexdigest() for key in keys}


def what_nodes_run(life: Rehearsal) -> set[str]:
    """The prefix of each group's scripts, as HyperPod has it."""
    groups = life.aws.client("sagemaker").describe_cluster(ClusterName=life.name)["InstanceGroups"]
    return {group["LifeCycleConfig"]["SourceS3Uri"].partition(f"{name_of(life)}/")[2] for group in groups}


def upload_of(template: Json) -> Json:
    """The properties of the upload in a foundation's template."""
    (found,) = (
        each["Properties"]
        for each in template["Resources"].values()
        if each["Type"] == "Custom::HyperPodLifecycleScripts"
    )
    return found
