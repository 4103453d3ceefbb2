"""What `from_config` makes of a cluster file: what the stacks make of it, every warning once."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import Environment, RemovalPolicy, Stack
from aws_cdk.assertions import Annotations, Match

from cdk_hyperpod import (
    ConfigError,
    DrainChannel,
    HyperPodCluster,
    HyperPodNetwork,
    InstanceGroup,
    LifecycleScripts,
    LoadedConfig,
    LustreFileSystem,
    encryption_key,
    load_config,
)
from cdk_hyperpod.rules import check_cluster
from helpers.findings import refused
from helpers.synthesis import CONFIGS, ROOT, new_app
from stacks import add_stacks


def cluster_of(loaded: LoadedConfig, eks_cluster_arn: str | None = None) -> HyperPodCluster:
    stack = Stack(new_app(), "Stack", env=Environment(region=loaded.config.region))
    key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
    return HyperPodCluster.from_config(
        stack,
        "Cluster",
        loaded,
        network=HyperPodNetwork.from_config(stack, "Network", loaded),
        lifecycle_scripts=LifecycleScripts.from_config(stack, "Scripts", loaded, encryption_key=key),
        eks_cluster_arn=eks_cluster_arn,
    )


@pytest.mark.parametrize("path", [ROOT / "cluster.yaml", *sorted(CONFIGS.glob("*.yaml"))], ids=lambda path: path.stem)
def test_each_warning_of_a_file_appears_once(path: Path) -> None:
    loaded = load_config(path)
    app = new_app()
    add_stacks(app, loaded)

    told = [
        str(message.entry.data).partition(" [ack: ")[0]
        for stack in app.node.children
        if isinstance(stack, Stack)
        for message in Annotations.from_stack(stack).find_warning("*", Match.any_value())
    ]
    # Beside the file's own, the guard warns of what it takes.
    assert sorted(text for text in told if "does not drain" not in text) == sorted(
        warning.text for warning in loaded.warnings
    )


def test_a_warning_of_the_network_appears_once(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "name: a\nregion: us-west-2\n"
        "network: {vpc_id: vpc-0123456789abcdef0, subnets: [{subnet_id: subnet-0123456789abcdef0, availability_zone: us-west-2a}]}\n"
        "instance_groups: [{name: a, instance_type: ml.m5.large, instance_count: 1, node_type: controller}]\n",
        "utf-8",
    )
    cluster = cluster_of(load_config(file))

    found = Annotations.from_stack(Stack.of(cluster)).find_warning(
        "*", Match.string_like_regexp("S3's gateway endpoint")
    )
    assert [message.id for message in found] == ["/Stack/Cluster"]


def test_arguments_that_contradict_the_file_are_refused() -> None:
    loaded = load_config(ROOT / "cluster.yaml")

    with refused(("eks-cluster-under-slurm", "eks_cluster_arn")):
        cluster_of(loaded, "arn:aws:eks:us-west-2:111122223333:cluster/train")


def test_a_file_without_storage_has_no_file_system(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    groups = "[{name: a, instance_type: ml.m5.large, instance_count: 1, node_type: controller}]"
    file.write_text(f"name: a\nregion: us-west-2\ninstance_groups: {groups}\n", "utf-8")
    loaded = load_config(file)
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    network = HyperPodNetwork.from_config(stack, "Network", loaded)
    key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)

    with refused(("storage-missing", "storage")):
        LustreFileSystem.from_config(stack, "FileSystem", loaded, network=network, encryption_key=key)


def test_a_file_without_an_agent_has_no_drain_channel() -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
    loaded = load_config(CONFIGS / "existing.yaml")

    with refused(("slurm-drain-missing", "slurm.drain")):
        DrainChannel.from_config(stack, "Drain", loaded, encryption_key=key)


def test_a_group_that_comes_later_is_judged_too() -> None:
    loaded = load_config(ROOT / "cluster.yaml")
    cluster = cluster_of(loaded)

    with pytest.raises(ConfigError, match="instance_groups"):
        cluster.add_instance_group(InstanceGroup(name="p5", instance_type="ml.p5.48xlarge", instance_count=1))
    assert not [finding for finding in check_cluster(loaded.config) if finding.level == "error"]
