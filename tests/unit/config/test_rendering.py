"""Template and plan say the same of the groups: what the guard reads of the one is what it reads of the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod import InstanceGroup, load_config
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import Desired, DesiredGroup
from cdk_hyperpod._lambda.hyperpod.scale_down.model.properties import PREPARE, read_properties
from cdk_hyperpod.cli.deployment.desired import desired
from cdk_hyperpod.config.rendering import ClusterContext, in_words_of_cdk, render_group
from cdk_hyperpod.names import cluster_stack_name
from helpers.synthesis import CONFIGS, ROOT, of_file

LATE = "arn:of-the-template"
# What a file does not tell: ARNs, subnets, and where scripts and file systems are.
NOT_IN_THE_FILE = {"ExecutionRole", "OverrideVpcConfig", "InstanceStorageConfigs"}


def deployed(value: Any) -> Any:
    """A template's value as a deployment has it, with one text for everything that is made."""
    match value:
        case {"Fn::Join": [str(between), [*parts]]}:
            return between.join(map(deployed, parts))
        case {"Ref": "AWS::AccountId"}:
            return "111122223333"
        case {"Ref": "AWS::Partition"}:
            return "aws"
        case {"Ref": _} | {"Fn::GetAtt": _} | {"Fn::GetStackOutput": _}:
            return LATE
        case list():
            return [deployed(item) for item in value]
        case dict():
            return {key: deployed(item) for key, item in value.items()}
        case _:
            return value


def known(wanted: Desired) -> Iterator[DesiredGroup]:
    for group in wanted.groups:
        spec = {key: value for key, value in group.spec.items() if key not in NOT_IN_THE_FILE}
        spec.get("LifeCycleConfig", {}).pop("SourceS3Uri", None)
        fixed = dataclasses.replace(group.fixed, execution_role=None, network=None)
        yield dataclasses.replace(group, fixed=fixed, spec=spec)


@pytest.mark.parametrize("path", [ROOT / "cluster.yaml", *sorted(CONFIGS.glob("*.yaml"))], ids=lambda path: path.stem)
def test_plan_reads_what_the_guard_reads(path: Path) -> None:
    config = load_config(path).config
    stack = cluster_stack_name(config.name)
    properties = deployed(of_file(path)[stack].only(PREPARE))
    sent = read_properties(properties, kind=PREPARE)

    planned = desired(config, None, stack)

    assert list(known(planned)) == list(known(sent))
    for field in ("cluster", "nodes_to_delete", "groups_to_delete", "max_nodes"):
        assert getattr(planned, field) == getattr(sent, field)


def test_a_group_says_what_it_has_and_no_more() -> None:
    cluster = ClusterContext(
        continuous=False, encrypts_root_volumes=False, lifecycle_mode="bootstrap", scripts_uri="s3://bucket/prefix"
    )
    group = InstanceGroup(name="a", instance_type="ml.m5.large", instance_count=0)

    assert render_group(group, cluster, role_arn="arn:role", network=None) == {
        "InstanceGroupName": "a",
        "InstanceType": "ml.m5.large",
        "InstanceCount": 0,
        "ExecutionRole": "arn:role",
    }


def test_names_as_cdk_has_them() -> None:
    spec = {"VolumeSizeInGB": 1, "SourceS3Uri": "s3://b", "FsxOpenZfsConfig": {"DnsName": "d"}, "Labels": {"Team": "A"}}

    assert in_words_of_cdk({"Each": [spec]}) == {
        "each": [
            {
                "volumeSizeInGb": 1,
                "sourceS3Uri": "s3://b",
                "fsxOpenZfsConfig": {"dnsName": "d"},
                "labels": {"Team": "A"},
            }
        ]
    }
