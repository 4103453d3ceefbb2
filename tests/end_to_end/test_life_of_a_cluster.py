"""The life of a cluster with the real CDK CLI, on an AWS of this machine: every step that a user takes, in order.

One test, because each step stands on the one before; what a step proves is in the name of its function.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_cdk import App

from cdk_hyperpod.loader import load_config
from local_aws.cdk import Cdk, stacks
from local_aws.commands import run
from local_aws.environment import ACCOUNT
from local_aws.session import LocalAws
from stacks import add_stacks

pytestmark = pytest.mark.slow
Json = Any

NAME = "e2e"
FOUNDATION, CLUSTER = f"hyperpod-{NAME}-foundation", f"hyperpod-{NAME}-cluster"
CLOUDFORMATION = "cloudformation.amazonaws.com"
BASE: Json = {
    "name": NAME,
    "region": "us-west-2",
    "account": ACCOUNT,
    "network": {"availability_zones": ["us-west-2c"]},
    "instance_groups": [
        {"name": "controller", "instance_type": "ml.m5.4xlarge", "instance_count": 1, "node_type": "controller"},
        {
            "name": "p5",
            "instance_type": "ml.p5.48xlarge",
            "instance_count": 2,
            "min_instance_count": 1,
            "node_type": "compute",
            "partition": "p5",
        },
    ],
    "storage": {"capacity_gib": 4800, "throughput_mbps_per_tib": 250},
    "removal": "retain",
}
TRN1: Json = {
    "name": "trn1",
    "instance_type": "ml.trn1.32xlarge",
    "instance_count": 2,
    "min_instance_count": 2,
    "node_type": "compute",
    "partition": "trn1",
}
BROKEN: Json = {**TRN1, "name": "broken", "instance_type": "ml.g5.48xlarge", "partition": "broken"}


class Life:
    """The cluster so far, and what a step may ask of it."""

    def __init__(self, aws: LocalAws, folder: Path) -> None:
        self.aws = aws
        self.cdk = Cdk(place=aws.place, region=aws.region)
        self._folder = folder
        self._made = 0

    def synth(self, config: Json) -> Path:
        self._made += 1
        file = self._folder / f"cluster-{self._made}.yaml"
        file.write_text(yaml.safe_dump(config), "utf-8")
        app = App(outdir=str(self._folder / f"assembly-{self._made}"), analytics_reporting=False)
        add_stacks(app, load_config(file))
        return Path(app.synth().directory)

    def groups(self) -> dict[str, tuple[int, int, int]]:
        """Name -> current, minimum, target."""
        cluster = self.aws.client("sagemaker").describe_cluster(ClusterName=NAME)
        return {
            group["InstanceGroupName"]: (group["CurrentCount"], group["MinCount"], group["TargetCount"])
            for group in cluster["InstanceGroups"]
        }

    def status(self, stack: str = CLUSTER) -> str:
        (found,) = self.aws.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        return str(found["StackStatus"])

    def mark(self) -> int:
        return len(self.aws.journal())

    def changes(self, since: int) -> Counter[str]:
        """Calls since the mark that changed something, by operation."""
        reading = ("Describe", "List")
        entries = (entry for entry in self.aws.journal(since=since) if entry.outcome == "ok")
        return Counter(entry.operation for entry in entries if not entry.operation.startswith(reading))


def grown(config: Json, name: str, count: int) -> Json:
    changed = deepcopy(config)
    (group,) = (group for group in changed["instance_groups"] if group["name"] == name)
    group["instance_count"] = count
    return changed


def with_group(config: Json, group: Json) -> Json:
    return {**deepcopy(config), "instance_groups": [*deepcopy(config["instance_groups"]), group]}


def test_life_of_a_cluster(engine: LocalAws, tmp_path: Path) -> None:
    life = Life(engine, tmp_path)
    first_deployment(life)
    nothing_changed(life)
    config = scale_up(life)
    config = add_a_group(life, config)
    failing_update_rolls_back(life, config)
    group_that_fails_to_come_up_is_rolled_back(life, config)
    drift_is_seen(life, config)
    destroy_leaves_what_the_config_retains(life, config)


def first_deployment(life: Life) -> None:
    since = life.mark()
    made = life.cdk.deploy(life.synth(BASE))
    assert made.ok, made.reason
    assert (life.status(FOUNDATION), life.status(CLUSTER)) == ("CREATE_COMPLETE", "CREATE_COMPLETE")
    assert life.groups() == {"controller": (1, 0, 1), "p5": (2, 1, 2)}
    assert life.changes(since) == {"CreateFileSystem": 1, "CreateCluster": 1}
    (created,) = life.aws.journal(since=since, operation="CreateCluster")
    assert created.who == CLOUDFORMATION
    # The lifecycle scripts are where every group's configuration says they are.
    source = created.request["InstanceGroups"][0]["LifeCycleConfig"]["SourceS3Uri"]
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    stored = life.aws.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    assert {group["LifeCycleConfig"]["OnCreate"] for group in created.request["InstanceGroups"]} <= {
        item["Key"].removeprefix(prefix).lstrip("/") for item in stored
    }


def nothing_changed(life: Life) -> None:
    since = life.mark()
    again = life.cdk.deploy(life.synth(BASE))
    assert again.ok, again.reason
    assert again.output.count("(no changes)") == 2
    assert life.changes(since) == {}


def scale_up(life: Life) -> Json:
    since, config = life.mark(), grown(BASE, "p5", 3)
    made = life.cdk.deploy(life.synth(config))
    assert made.ok, made.reason
    assert life.changes(since) == {"UpdateCluster": 1}
    assert life.groups()["p5"] == (3, 1, 3)
    assert life.aws.hyperpod()["terminations"] == []
    return config


def add_a_group(life: Life, config: Json) -> Json:
    config = with_group(config, TRN1)
    made = life.cdk.deploy(life.synth(config))
    assert made.ok, made.reason
    assert life.groups() == {"controller": (1, 0, 1), "p5": (3, 1, 3), "trn1": (2, 2, 2)}
    return config


def failing_update_rolls_back(life: Life, config: Json) -> None:
    """HyperPod refuses the growth, and nothing of the cluster is touched."""
    before = life.groups()
    life.aws.change_hyperpod(quota={"ml.p5.48xlarge": 3})
    failed = life.cdk.deploy(life.synth(grown(config, "p5", 5)))
    life.aws.change_hyperpod(quota={"ml.p5.48xlarge": None})
    assert not failed.ok
    assert "(HandlerErrorCode: ServiceLimitExceeded)" in failed.reason
    assert life.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert life.groups() == before
    assert life.aws.hyperpod()["terminations"] == []


def group_that_fails_to_come_up_is_rolled_back(life: Life, config: Json) -> None:
    """No capacity for its minimum: three hours later HyperPod gives up, and CloudFormation takes the group away again."""
    before = life.groups()
    life.aws.change_hyperpod(capacity={BROKEN["instance_type"]: 0})
    failed = life.cdk.deploy(life.synth(with_group(config, BROKEN)), seconds=120)
    assert not failed.ok
    assert "did not stabilize" in failed.reason
    assert life.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert life.groups() == before
    assert [end for end in life.aws.hyperpod()["terminations"] if end["group"] != "broken"] == []


def drift_is_seen(life: Life, config: Json) -> None:
    """Somebody changes a count by hand: `cdk drift` tells, and deploying the same file again changes nothing."""
    assembly = life.synth(config)
    clean = life.cdk.drift(assembly, "--fail")
    assert clean.ok, clean.reason
    sagemaker = life.aws.client("sagemaker")
    (role,) = {
        group["ExecutionRole"]
        for group in sagemaker.describe_cluster(ClusterName=NAME)["InstanceGroups"]
        if group["InstanceGroupName"] == "trn1"
    }
    (trn1,) = (
        group
        for group in life.aws.journal(operation="UpdateCluster")[-1].request["InstanceGroups"]
        if group["InstanceGroupName"] == "trn1"
    )
    assert trn1["ExecutionRole"] == role
    sagemaker.update_cluster(ClusterName=NAME, InstanceGroups=[{**trn1, "InstanceCount": 3}])
    drifted = life.cdk.drift(assembly, "--fail")
    assert drifted.code == 1
    assert "InstanceCount" in drifted.output
    since = life.mark()
    again = life.cdk.deploy(assembly)
    assert again.output.count("(no changes)") == 2
    assert life.changes(since) == {}


def destroy_leaves_what_the_config_retains(life: Life, config: Json) -> None:
    assembly = life.synth(config)
    protected = life.cdk.destroy(assembly)
    assert not protected.ok
    assert "TerminationProtection is enabled" in protected.output
    run.destroy_assembly(life.aws.place, assembly)
    cloudformation = life.aws.client("cloudformation")
    names = {stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]}
    assert names & {stack.name for stack in stacks(assembly)} == set()
    assert life.aws.client("sagemaker").list_clusters()["ClusterSummaries"] == []
    roles = {role["RoleName"] for role in life.aws.client("iam").list_roles()["Roles"]}
    assert {role for role in roles if not role.startswith("cdk-")} == set()
    assert life.aws.client("lambda").list_functions()["Functions"] == []
    # The file system, and what it stands on, which cannot be deleted by hand either.
    (file_system,) = life.aws.client("fsx").describe_file_systems()["FileSystems"]
    assert file_system["Lifecycle"] == "AVAILABLE"
    ec2 = life.aws.client("ec2")
    (interface,) = ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert interface["NetworkInterfaceId"] in file_system["NetworkInterfaceIds"]
    with pytest.raises(ec2.exceptions.ClientError, match="DependencyViolation"):
        ec2.delete_subnet(SubnetId=interface["SubnetId"])
    for group in interface["Groups"]:
        with pytest.raises(ec2.exceptions.ClientError, match="DependencyViolation"):
            ec2.delete_security_group(GroupId=group["GroupId"])
