"""The app's two stacks: what ties them together, what tells two clusters apart, and what an organisation adds."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod import (
    ClusterConfig,
    DataRepository,
    EbsVolume,
    HyperPodError,
    InstanceGroup,
    SubnetConfig,
    Team,
    load_config,
)
from cdk_hyperpod.config import (
    AccountingDatabase,
    AddOn,
    AutoscalingConfig,
    EksConfig,
    ExistingEksCluster,
    Group,
    LifecycleConfig,
    LifecycleSteps,
    NetworkConfig,
    OpenZfsConfig,
    PriorityClass,
    ScaleDownConfig,
    ScaleDownDrain,
    SlurmAccount,
    SlurmConfig,
    SlurmFiles,
    SlurmPartition,
    SlurmQos,
    StorageConfig,
    TaskClass,
    TaskGovernance,
    TieredStorageConfig,
    User,
)
from helpers.synthesis import CONFIGS, EXAMPLES, ROOT, Json, Template, flat, new_app, of_example, of_file, of_text, walk
from stacks import add_stacks
from stacks.foundation_stack import foundation_digest

DEFAULT = (ROOT / "cluster.yaml").read_text("utf-8")
EVERYTHING = CONFIGS / "everything.yaml"
FILES = [ROOT / "cluster.yaml", *sorted(CONFIGS.glob("*.yaml"))]


def changed(**changes: Any) -> str:
    """The default cluster's text with some settings changed; None: removed."""
    data = {**yaml.safe_load(DEFAULT), **changes}
    return yaml.safe_dump({key: value for key, value in data.items() if value is not None}, sort_keys=False)


@pytest.fixture(scope="module")
def default() -> dict[str, Template]:
    return of_file(ROOT / "cluster.yaml")


@pytest.fixture(scope="module")
def foundation(default: dict[str, Template]) -> Template:
    return default["hyperpod-llm-train-foundation"]


@pytest.fixture(scope="module")
def cluster(default: dict[str, Template]) -> Template:
    return default["hyperpod-llm-train-cluster"]


# -- what ties the two stacks together --------------------------------------------------------------------------------


def test_data_and_what_can_be_replaced_are_in_different_stacks(foundation: Template, cluster: Template) -> None:
    data = {"AWS::FSx::FileSystem", "AWS::S3::Bucket", "AWS::KMS::Key", "AWS::EC2::VPC", "AWS::EC2::Subnet"}
    assert {resource["Type"] for resource in foundation.resources.values()} >= data
    assert not {resource["Type"] for resource in cluster.resources.values()} & data
    assert cluster.of("AWS::SageMaker::Cluster")
    assert not foundation.of("AWS::SageMaker::Cluster")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_stack_exports_anything(path: Path) -> None:
    for template in of_file(path).values():
        assert not [output for output in template.body.get("Outputs", {}).values() if "Export" in output]
        assert "Fn::ImportValue" not in str(template.body)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_value_that_the_cluster_reads_is_an_output_of_the_foundation(path: Path) -> None:
    templates = of_file(path)
    (foundation_name,) = (name for name in templates if name.endswith("-foundation"))
    read = [
        value["Fn::GetStackOutput"]
        for value in walk(templates[foundation_name.replace("-foundation", "-cluster")].body)
        if isinstance(value, dict) and "Fn::GetStackOutput" in value
    ]
    assert read
    for reference in read:
        assert reference["StackName"] == foundation_name
        assert reference["OutputName"] in templates[foundation_name].body["Outputs"]


def test_the_foundation_is_deployed_first() -> None:
    app = new_app()
    stack = add_stacks(app, load_config(ROOT / "cluster.yaml"))
    assert [dependency.stack_name for dependency in stack.dependencies] == ["hyperpod-llm-train-foundation"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"storage": {"capacity_gib": 19_200, "efa": True}}, id="file system"),
        pytest.param({"network": {"availability_zones": ["us-west-2c"], "cidr": "10.64.0.0/16"}}, id="network"),
    ],
)
def test_the_clusters_template_changes_with_settings_that_may_change_what_it_reads_of_the_foundation(
    changes: dict[str, Any], tmp_path: Path, cluster: Template
) -> None:
    # The CLI skips a stack whose template is the same, though Fn::GetStackOutput would read something else now.
    after = of_text(changed(**changes), tmp_path)["hyperpod-llm-train-cluster"].body
    assert foundation_tag(after) != foundation_tag(cluster.body)
    same = of_text(changed(termination_protection=False), tmp_path)["hyperpod-llm-train-cluster"]
    unrecorded = [{**each.resources, "Settings": None} for each in (same, cluster)]
    assert unrecorded[0] == unrecorded[1]


DIGEST_OF = {
    NetworkConfig: {"availability_zones", "cidr", "vpc_id", "subnets"},
    SubnetConfig: {"subnet_id"},
    StorageConfig: {"efa", "file_system_id", "mount_name", "openzfs"},
    OpenZfsConfig: {"file_system_id"},
}
"""The settings that give the nodes another subnet or file system: all that the foundation's digest is made of."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaterNetwork(NetworkConfig):
    added: str = "by a later release"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaterStorage(StorageConfig):
    added: str = "by a later release"


def with_digest_of(values: Mapping[type, Any]) -> str:
    """The digest of a configuration with an item of each of these classes."""
    network = dataclasses.replace(values[NetworkConfig], subnets=(values[SubnetConfig],))
    storage = dataclasses.replace(values[StorageConfig], openzfs=values[OpenZfsConfig])
    loaded = load_config(ROOT / "cluster.yaml").config
    return foundation_digest(dataclasses.replace(loaded, network=network, storage=storage))


def items() -> dict[type, Any]:
    return {
        NetworkConfig: NetworkConfig(),
        SubnetConfig: SubnetConfig(subnet_id="subnet-1", availability_zone="us-west-2b"),
        StorageConfig: StorageConfig(capacity_gib=1200),
        OpenZfsConfig: OpenZfsConfig(file_system_id="fs-1"),
    }


def test_a_field_that_a_release_adds_does_not_change_the_foundations_digest() -> None:
    later = items() | {NetworkConfig: LaterNetwork(), StorageConfig: LaterStorage(capacity_gib=1200)}
    assert with_digest_of(later) == with_digest_of(items())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, field.name, id=f"{kind.__name__}.{field.name}")
        for kind in DIGEST_OF
        for field in dataclasses.fields(kind)
        if field.name not in ("subnets", "openzfs")
    ],
)
def test_the_foundations_digest_changes_with_what_it_names_and_with_nothing_else(kind: type, name: str) -> None:
    other = dataclasses.replace(items()[kind], **{name: "another"})
    changes = with_digest_of(items() | {kind: other}) != with_digest_of(items())
    assert changes == (name in DIGEST_OF[kind])


def test_the_foundations_digest_changes_with_storage_under_slurm_only() -> None:
    config = load_config(ROOT / "cluster.yaml").config
    assert config.storage is not None
    assert config.storage.openzfs is None
    without = dataclasses.replace(config, storage=None)
    homes = dataclasses.replace(config.storage, openzfs=OpenZfsConfig(file_system_id="fs-1"))
    digests = {foundation_digest(each) for each in (config, without, dataclasses.replace(config, storage=homes))}
    assert len(digests) == 3
    under_eks = [dataclasses.replace(each, orchestrator="eks") for each in (config, without)]
    assert len({foundation_digest(each) for each in under_eks}) == 1


def foundation_tag(body: Json) -> str:
    (resource,) = (item for item in body["Resources"].values() if item["Type"] == "AWS::SageMaker::Cluster")
    (value,) = (tag["Value"] for tag in resource["Properties"]["Tags"] if tag["Key"] == "cdk-hyperpod:foundation")
    return str(value)


def test_a_group_more_in_the_same_zone_leaves_the_foundation_alone(
    tmp_path: Path, foundation: Template, cluster: Template
) -> None:
    groups = yaml.safe_load(DEFAULT)["instance_groups"]
    more = of_text(changed(instance_groups=[*groups, {**groups[-1], "name": "more"}]), tmp_path)
    assert more["hyperpod-llm-train-foundation"].body == foundation.body
    after = more["hyperpod-llm-train-cluster"].groups()
    assert {name: group for name, group in after.items() if name != "more"} == cluster.groups()


def test_a_group_in_another_zone_gets_a_subnet_there_and_moves_no_other(tmp_path: Path, foundation: Template) -> None:
    groups = yaml.safe_load(DEFAULT)["instance_groups"]
    more = of_text(
        changed(instance_groups=[*groups, {**groups[-1], "name": "more", "availability_zone": "us-west-2d"}]), tmp_path
    )["hyperpod-llm-train-foundation"]
    before = foundation.of("AWS::EC2::Subnet")
    assert {name: more.resources[name] for name in before} == before
    assert [
        subnet["Properties"]["AvailabilityZone"]
        for name, subnet in more.of("AWS::EC2::Subnet").items()
        if name not in before
    ] == ["us-west-2d"]


def source_uris(template: Template) -> set[str]:
    return {flat(group["LifeCycleConfig"]["SourceS3Uri"]) for group in template.groups().values()}


def test_a_changed_script_changes_the_source_uri_of_every_group_and_nothing_else(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "lifecycle", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    text = changed(lifecycle={"scripts": "scripts", "mode": "extended"})
    before = of_text(text, tmp_path)["hyperpod-llm-train-cluster"]
    assert of_text(text, tmp_path)["hyperpod-llm-train-cluster"].body == before.body
    with (tmp_path / "scripts" / "lib.sh").open("a", encoding="utf-8") as script:
        script.write("# a comment\n")
    after = of_text(text, tmp_path)["hyperpod-llm-train-cluster"]
    assert len(source_uris(after)) == len(source_uris(before)) == 1
    assert source_uris(after) != source_uris(before)
    changes = [copy.deepcopy(template.groups()) for template in (before, after)]
    for groups in changes:
        for group in groups.values():
            del group["LifeCycleConfig"]["SourceS3Uri"]
    assert changes[0] == changes[1]


def test_a_folder_that_lacks_a_script_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "controller.sh").write_text("exit 0\n", "utf-8")
    with pytest.raises(HyperPodError, match=r"lifecycle\.scripts.*compute\.sh"):
        of_text(changed(lifecycle={"scripts": "scripts"}), tmp_path)


# -- what tells two clusters apart ------------------------------------------------------------------------------------

# Properties by which CloudFormation gives a resource a name of one's own, which only one resource can have.
_PHYSICAL_NAMES = {
    "AliasName",
    "BucketName",
    "ClusterName",
    "DBClusterIdentifier",
    "FunctionName",
    "GroupName",
    "LayerName",
    "LogGroupName",
    "ManagedPolicyName",
    "Name",
    "RoleName",
    "TopicName",
}


def physical_names(templates: dict[str, Template]) -> set[str]:
    return {
        f"{resource['Type']} {flat(value)}"
        for template in templates.values()
        for resource in template.resources.values()
        if resource["Type"].startswith("AWS::")
        for key, value in resource.get("Properties", {}).items()
        if key in _PHYSICAL_NAMES
    }


@pytest.mark.parametrize("name", ["llm-train-2", "LLM-Train", "llm"])
def test_two_clusters_deploy_side_by_side(name: str, tmp_path: Path, default: dict[str, Template]) -> None:
    other = of_text(changed(name=name), tmp_path)
    assert not other.keys() & default.keys()
    assert len(physical_names(default)) >= 2, "the cluster and its bucket"
    assert not physical_names(other) & physical_names(default)


def test_names_that_begin_with_a_digit_have_legal_stack_names(tmp_path: Path) -> None:
    assert set(of_text(changed(name="4-real"), tmp_path)) == {"hyperpod-4-real-foundation", "hyperpod-4-real-cluster"}


# -- settings of the stacks themselves --------------------------------------------------------------------------------


def artifacts(text: str, folder: Path) -> dict[str, Json]:
    """What the assembly says about each stack, beside its template."""
    (folder / "cluster.yaml").write_text(text, "utf-8")
    app = new_app()
    add_stacks(app, load_config(folder / "cluster.yaml"))
    manifest = json.loads((Path(app.synth().directory) / "manifest.json").read_text("utf-8"))
    return {
        name: artifact
        for name, artifact in manifest["artifacts"].items()
        if artifact["type"] == "aws:cloudformation:stack"
    }


@pytest.mark.parametrize(("setting", "expected"), [(None, True), (True, True), (False, False)])
def test_termination_protection_is_on_unless_it_is_switched_off(
    setting: bool | None, expected: bool, tmp_path: Path
) -> None:
    stacks = artifacts(changed(termination_protection=setting), tmp_path)
    assert len(stacks) == 2
    assert {stack["properties"].get("terminationProtection", False) for stack in stacks.values()} == {expected}


@pytest.mark.parametrize(
    ("account", "environment"),
    [
        pytest.param(None, "aws://unknown-account/us-west-2", id="whichever account"),
        pytest.param("111122223333", "aws://111122223333/us-west-2", id="one account"),
    ],
)
def test_the_account_is_the_files_and_nothing_elses(
    account: str | None, environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "999999999999")
    monkeypatch.setenv("CDK_DEFAULT_REGION", "eu-west-1")
    stacks = artifacts(changed(account=account), tmp_path)
    assert {stack["environment"] for stack in stacks.values()} == {environment}


def test_tags_are_the_stacks_own_and_so_of_everything_in_them(tmp_path: Path) -> None:
    stacks = artifacts(changed(tags={"team": "research"}), tmp_path)
    assert {json.dumps(stack["properties"]["tags"]) for stack in stacks.values()} == {'{"team": "research"}'}


# -- what stays, and what goes ----------------------------------------------------------------------------------------


def kept(templates: dict[str, Template]) -> set[str]:
    return {
        resource["Type"]
        for template in templates.values()
        for resource in template.resources.values()
        if resource.get("DeletionPolicy") == "Retain"
    }


def test_retain_keeps_data_and_what_it_stands_on(default: dict[str, Template]) -> None:
    assert kept(default) == {
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::Subnet",
        "AWS::EC2::VPC",
        "AWS::FSx::FileSystem",
        "AWS::KMS::Key",
        "AWS::S3::Bucket",
        "AWS::S3::BucketPolicy",
    }


def test_retain_without_a_file_system_keeps_what_an_earlier_one_may_stand_on(tmp_path: Path) -> None:
    assert kept(of_text(changed(storage=None), tmp_path)) == {
        "AWS::EC2::Subnet",
        "AWS::EC2::VPC",
        "AWS::KMS::Key",
        "AWS::S3::Bucket",
        "AWS::S3::BucketPolicy",
    }


def test_removal_destroy_retains_no_resource(tmp_path: Path) -> None:
    assert not kept(of_text(changed(removal="destroy"), tmp_path))


# -- what an organisation adds ----------------------------------------------------------------------------------------


def roles(templates: dict[str, Template]) -> list[Json]:
    found = [properties for template in templates.values() for properties in template.properties("AWS::IAM::Role")]
    assert len(found) >= 5
    return found


def test_a_permissions_boundary_reaches_every_role(tmp_path: Path) -> None:
    text = changed(removal="destroy")
    templates = of_text(text, tmp_path, **{"@aws-cdk/core:permissionsBoundary": {"name": "our-boundary"}})
    for role in roles(templates):
        assert "policy/our-boundary" in flat(role["PermissionsBoundary"]), role
    assert not [role for role in roles(of_text(text, tmp_path)) if "PermissionsBoundary" in role]


def test_a_bootstrap_qualifier_reaches_everything_that_names_one(tmp_path: Path) -> None:
    templates = of_text(DEFAULT, tmp_path, **{"@aws-cdk/core:bootstrapQualifier": "ours1"})
    for template in templates.values():
        assert template.body["Parameters"]["BootstrapVersion"]["Default"] == "/cdk-bootstrap/ours1/version"
        assert "hnb659fds" not in json.dumps(template.body)
    assert "cdk-ours1-assets" in json.dumps(templates["hyperpod-llm-train-foundation"].body)


# -- every option, and many groups ------------------------------------------------------------------------------------


def test_the_configs_that_other_checks_run_on_use_every_setting() -> None:
    unset: set[str] = set()
    kinds = [ClusterConfig, InstanceGroup, NetworkConfig, StorageConfig, SubnetConfig, EbsVolume, DataRepository]
    people = [OpenZfsConfig, Group, User, SlurmConfig, SlurmAccount, AccountingDatabase]
    people += [SlurmQos, SlurmPartition, SlurmFiles]
    under_eks = [
        EksConfig,
        ExistingEksCluster,
        AddOn,
        AutoscalingConfig,
        TaskGovernance,
        TaskClass,
        Team,
        PriorityClass,
    ]
    for kind in [
        *kinds,
        TieredStorageConfig,
        ScaleDownConfig,
        ScaleDownDrain,
        LifecycleConfig,
        LifecycleSteps,
        *people,
        *under_eks,
    ]:
        unset |= {f"{kind.__name__}.{field.name}" for field in dataclasses.fields(kind)}

    def look(value: Any) -> None:
        if isinstance(value, tuple):
            for item in value:
                look(item)
        elif isinstance(value, Mapping):
            look(tuple(value.values()))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                item = getattr(value, field.name)
                if item not in (None, (), {}):
                    unset.discard(f"{type(value).__name__}.{field.name}")
                look(item)

    for path in FILES:
        look(load_config(path).config)
    assert unset == set()


def test_a_hundred_groups_fit_one_template(tmp_path: Path) -> None:
    templates = of_text(hundred_groups(), tmp_path)
    cluster = templates["hyperpod-llm-train-cluster"]
    assert len(cluster.groups()) == 100
    # CloudFormation takes 1 MB and 500 resources.
    assert len(json.dumps(cluster.body, indent=1)) < 1_000_000
    assert all(len(template.resources) < 100 for template in templates.values())


def hundred_groups() -> str:
    data = yaml.safe_load(DEFAULT)
    controller, _, p5, trn1 = data["instance_groups"]
    groups = [
        {
            **(p5, trn1)[index % 2],
            "name": f"group-{index:02}",
            "partition": f"partition-{index:02}",
            "instance_count": 4,
        }
        for index in range(99)
    ]
    return changed(instance_groups=[controller, *groups])


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_guard_their_cluster(name: str) -> None:
    """One example has an image's repository only."""
    kinds = {resource["Type"] for template in of_example(name).values() for resource in template.resources.values()}
    assert ("AWS::SageMaker::Cluster" in kinds) is (name != "elastic_training")
    assert ("Custom::HyperPodScaleDown" in kinds) is ("AWS::SageMaker::Cluster" in kinds)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_export_nothing_and_read_nothing_of_other_stacks(name: str) -> None:
    for template in of_example(name).values():
        assert "Export" not in str(template.body.get("Outputs", {}))
        assert "Fn::ImportValue" not in str(template.body)


def test_resources_keep_their_logical_ids_since_the_previous_release() -> None:
    """A logical id that changed would be another resource, and the old one would be deleted.

    CDK's upload of the scripts is deleted (docs/adr/0020). tests/deployments/test_upgrade.py deploys both.
    """
    previous, lost = ROOT / "tests" / "deployments" / "previous_wheel", set[str]()
    with tarfile.open(previous / "assembly.tar.xz") as archive:
        for stack, template in of_file(previous / "cluster.yaml").items():
            file = archive.extractfile(f"{stack}.template.json")
            assert file is not None
            now = {(name, each["Type"]) for name, each in template.resources.items()}
            before = {(name, each["Type"]) for name, each in json.load(file)["Resources"].items()}
            lost |= {name for name, _ in before - now}
    assert {re.match("CustomCDKBucketDeployment|LifecycleScriptsUpload", name) is not None for name in lost} == {True}
