"""What the file names and has to exist, and whether it fits. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from ..._lambda.hyperpod.kernel.images import VERSIONED, VERSIONED_SINCE
from ..._lambda.hyperpod.kernel.topic_access import problems
from ...config.cluster import ClusterConfig
from ...facts.kubernetes_versions import AS_OF, HYPERPOD, KUBECTL, minor
from .account_state import AccountState, LiveEksCluster, LiveFileSystem, LiveTopic, NotRead, Read
from .preflight_row import PASSED, Outcome, Row, all_of, impossible, left_open, not_checked, row

BOOTSTRAP_VERSION = 6
"""The oldest version that CDK's stacks accept (CheckBootstrapVersion in every template)."""

T = TypeVar("T")


def existing(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    """A row for each thing that must exist before the deployment."""
    yield _bootstrap_row(account.bootstrap)
    for name, exists in account.needed.items():
        yield _existing_row(name, exists, lambda _: PASSED)
    for name, system in account.file_systems.items():
        yield _existing_row(f"file system {name}", system, partial(_decide_file_system, config, name))
    for name, cluster in account.eks_clusters.items():
        yield _existing_row(f"EKS cluster {name}", cluster, partial(_decide_eks_cluster, config, name))
    for arn, topic in account.topics.items():
        yield _existing_row(f"topic {arn.rpartition(':')[2]}", topic, partial(_decide_topic, arn, account.account))


def _bootstrap_row(version: Read[int | None]) -> Row:
    check, needed = "CDK's bootstrap", str(BOOTSTRAP_VERSION)
    if isinstance(version, NotRead):
        return row(check, not_checked(version.why), needed=needed, allowed="?")
    if version is None or version < BOOTSTRAP_VERSION:
        outcome = impossible("run cdk bootstrap in this account and region (docs/deploying.md)")
        return row(check, outcome, needed=needed, allowed=str(version or "none"))
    return row(check, PASSED, needed=needed, allowed=str(version))


def _existing_row(check: str, found: Read[T | None], decide: Callable[[T], Outcome]) -> Row:
    """Whether something exists, and if so, whether it fits."""
    if isinstance(found, NotRead):
        return row(check, not_checked(found.why))
    if not found:
        return row(check, impossible("it does not exist, or is not yours. Create it, or name another one"))
    return row(check, decide(found))


def file_systems(config: ClusterConfig) -> tuple[str, ...]:
    """Ids of existing file systems that the file uses."""
    if config.storage is None:
        return ()
    found = (config.storage.file_system_id, config.storage.openzfs.file_system_id if config.storage.openzfs else None)
    return tuple(filter(None, found))


def eks_clusters(config: ClusterConfig) -> tuple[str, ...]:
    """Names of existing EKS clusters that the file uses: one at most."""
    existing = config.eks.existing_cluster if config.eks else None
    return () if existing is None else (existing.name,)


def _decide_file_system(config: ClusterConfig, name: str, found: LiveFileSystem) -> Outcome:
    # A file system in UPDATING can be used (FSx API Reference, FileSystem: Lifecycle).
    if found.lifecycle not in ("AVAILABLE", "UPDATING"):
        return impossible(f"it is {found.lifecycle}. Nodes can mount it when it is AVAILABLE")
    storage = config.storage
    if storage is not None and storage.file_system_id == name and found.mount_name != storage.mount_name:
        return impossible(f"its mount name is {found.mount_name}. Write that in storage.mount_name")
    if found.vpc is None:
        return not_checked("FSx does not report its VPC")
    if found.vpc != config.network.vpc_id:
        nodes = f"in {config.network.vpc_id}" if config.network.vpc_id else "in a VPC of the file's own"
        return not_checked(f"it is in {found.vpc} and the nodes are {nodes}. Make sure that a peering connects the two")
    return PASSED


def _decide_eks_cluster(config: ClusterConfig, name: str, found: LiveEksCluster) -> Outcome:
    """EKS prerequisites of HyperPod: AWS documentation "Prerequisites for using SageMaker HyperPod with Amazon EKS"."""
    if found.status not in ("ACTIVE", "UPDATING"):
        return impossible(f"it is {found.status}. HyperPod needs one that is ACTIVE")
    if found.vpc is None:
        return not_checked("EKS does not report its VPC")
    if found.authentication_mode is None:
        return not_checked("EKS does not report its authentication mode")
    if found.vpc != config.network.vpc_id:
        return impossible(f"it is in {found.vpc}. Write that in network.vpc_id")
    if found.authentication_mode == "CONFIG_MAP":
        # Existing access stays (EKS User Guide, "Change authentication mode to use access entries").
        command = (
            f"aws eks update-cluster-config --region {config.region} --name {name}"
            " --access-config authenticationMode=API_AND_CONFIG_MAP"
        )
        return impossible(
            f"its authentication mode is CONFIG_MAP, which allows no access entries. Change it by `{command}` (cannot be undone)"
        )
    return _decide_version(found.version)


def _decide_version(version: str | None) -> Outcome:
    """Whether HyperPod, and the kubectl that the deployment runs, support the version of an existing EKS cluster."""
    if version is None or not re.fullmatch(r"1\.[0-9]{2}", version):
        return not_checked("EKS does not report its Kubernetes version")
    oldest, newest = HYPERPOD[0], HYPERPOD[-1]
    if minor(version) < minor(oldest):
        return impossible(
            f"its Kubernetes version is {version}, and HyperPod supports {oldest} to {newest} ({AS_OF}). Upgrade it"
        )
    if minor(version) > minor(newest):
        return not_checked(
            f"its Kubernetes version is {version}, and HyperPod supported {oldest} to {newest} on {AS_OF}. Make sure that it "
            f"supports {version} today"
        )
    if version not in KUBECTL:
        return not_checked(
            f"its Kubernetes version is {version}, and the kubectl of this release supports {KUBECTL[0]} to {KUBECTL[-1]}. "
            "Upgrade it, or expect that a deployment may fail"
        )
    return PASSED


def versioned(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    """Whether the file's own cluster under EKS is new enough for releases of images and for automatic patching."""
    used = [
        f"instance_groups[{group.name}].{setting}"
        for group in config.instance_groups
        for setting in VERSIONED.values()
        if getattr(group, setting) not in (None, "none")
    ]
    if not used:
        return
    check = "cluster created in 2026 or later"
    if isinstance(account.clusters, NotRead):
        yield row(check, not_checked(account.clusters.why))
    for cluster in () if isinstance(account.clusters, NotRead) else account.clusters:
        if cluster.name == config.name:
            yield row(check, _decide_age(cluster.created, used))


def _decide_age(created: datetime | None, used: Sequence[str]) -> Outcome:
    if created is None:
        return not_checked("HyperPod does not report when the cluster was created")
    if created >= VERSIONED_SINCE:
        return PASSED
    return impossible(f"it was created on {created:%Y-%m-%d}, and has no releases of images. Remove {', '.join(used)}")


def topics(config: ClusterConfig) -> tuple[str, ...]:
    """ARNs of existing SNS topics that the file uses: one at most."""
    arn = None if config.monitoring is None else config.monitoring.topic_arn
    return () if arn is None else (arn,)


def _decide_topic(arn: str, account: str, found: LiveTopic) -> Outcome:
    """Whether its policy and its key let alarms publish, and whose it is."""
    policy = found.key_policy
    wrong = problems(arn, found.attributes, None if isinstance(policy, NotRead) else policy)
    if wrong:
        return impossible(". ".join(f"{each.problem}; {each.remedy}" for each in wrong))
    owner = arn.split(":")[4]
    is_ours = owner == account
    return all_of(
        not_checked(policy.why) if isinstance(policy, NotRead) else PASSED,
        PASSED if is_ours else left_open(f"it is in account {owner}, whose people read the messages"),
    )
