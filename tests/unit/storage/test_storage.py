"""The file system: how it is made, who reaches it, and what stays when its stack goes."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import CfnParameter, Fn, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms

from cdk_hyperpod import (
    ConfigError,
    DataRepository,
    HyperPodNetwork,
    LustreFileSystem,
    LustreMount,
    SubnetConfig,
    encryption_key,
)
from cdk_hyperpod.config import OpenZfsConfig, StorageConfig
from helpers.findings import found, refused
from helpers.synthesis import Json, Template, flat, of_stack

FILE_SYSTEM = "AWS::FSx::FileSystem"
LINK = "AWS::FSx::DataRepositoryAssociation"
OWN_KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-0000-1111-2222-333344445555"


def file_system(
    *,
    network: dict[str, Any] | None = None,
    region: str | None = "us-west-2",
    removal_policy: RemovalPolicy | None = None,
    **settings: Any,
) -> Template:
    given: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in settings.items()}

    def build(stack: Stack) -> None:
        LustreFileSystem(
            stack,
            "FileSystem",
            network=HyperPodNetwork(stack, "Network", **(network or {"availability_zones": ["us-west-2c"]})),
            storage=StorageConfig(**{"capacity_gib": 4800, **given}),
            encryption_key=encryption_key(stack, "Key", removal_policy=removal_policy),
            removal_policy=removal_policy,
        )

    return of_stack(build, region=region)


@pytest.fixture(scope="module")
def plain() -> Template:
    return file_system()


@pytest.fixture(scope="module")
def efa() -> Template:
    return file_system(efa=True, capacity_gib=19_200)


@pytest.fixture(scope="module")
def linked() -> Template:
    return file_system(
        data_repositories=[
            DataRepository(file_system_path="/data"),
            DataRepository(
                file_system_path="/checkpoints", prefix="runs", auto_import=(), auto_export=("new", "changed")
            ),
            DataRepository(file_system_path="/shared", bucket_name="our-data"),
        ]
    )


def lustre(template: Template) -> Json:
    configuration: Json = template.only(FILE_SYSTEM)["LustreConfiguration"]
    return configuration


def test_the_file_system_is_persistent_2_compressed_encrypted_and_in_the_clusters_zone(plain: Template) -> None:
    properties = plain.only(FILE_SYSTEM)
    assert properties["FileSystemType"] == "LUSTRE"
    assert properties["FileSystemTypeVersion"] == "2.15"
    assert properties["StorageType"] == "SSD"
    assert properties["StorageCapacity"] == 4800
    assert properties["KmsKeyId"] == {"Fn::GetAtt": [plain.only_id("AWS::KMS::Key"), "Arn"]}
    assert properties["SubnetIds"] == [{"Fn::GetAtt": [plain.only_id("AWS::EC2::Subnet"), "SubnetId"]}]
    assert lustre(plain) == {
        "AutomaticBackupRetentionDays": 0,
        "DataCompressionType": "LZ4",
        "DeploymentType": "PERSISTENT_2",
        "MetadataConfiguration": {"Mode": "AUTOMATIC"},
        "PerUnitStorageThroughput": 250,
    }


def test_options_of_the_file_system_reach_fsx() -> None:
    template = file_system(throughput_mbps_per_tib=1000, metadata_iops=12_000, automatic_backup_retention_days=7)
    assert lustre(template) == {
        "AutomaticBackupRetentionDays": 7,
        "CopyTagsToBackups": True,
        "DataCompressionType": "LZ4",
        "DeploymentType": "PERSISTENT_2",
        "MetadataConfiguration": {"Iops": 12_000, "Mode": "USER_PROVISIONED"},
        "PerUnitStorageThroughput": 1000,
    }


def group_named(template: Template, description: str) -> str:
    (name,) = (
        name
        for name, group in template.of("AWS::EC2::SecurityGroup").items()
        if group["Properties"]["GroupDescription"] == description
    )
    return f"<{name}.GroupId>"


def servers(template: Template) -> str:
    return group_named(template, "Servers of an FSx for Lustre file system")


def nodes(template: Template) -> str:
    return group_named(template, "Nodes of a HyperPod cluster")


def openings(template: Template, from_group: str, to_group: str) -> tuple[set[str], set[str]]:
    """The ports by which one group may leave for another, and those by which the other lets it in."""

    def ports(rule: Json) -> str:
        return "all" if rule["IpProtocol"] == "-1" else f"{rule['IpProtocol']} {rule['FromPort']}-{rule['ToPort']}"

    out = {
        ports(rule)
        for rule in template.properties("AWS::EC2::SecurityGroupEgress")
        if (flat(rule["GroupId"]), flat(rule["DestinationSecurityGroupId"])) == (from_group, to_group)
    }
    into = {
        ports(rule)
        for rule in template.properties("AWS::EC2::SecurityGroupIngress")
        if (flat(rule["SourceSecurityGroupId"]), flat(rule["GroupId"])) == (from_group, to_group)
    }
    return out, into


def test_lustre_has_its_own_ports_between_nodes_and_servers_and_all_between_servers(plain: Template) -> None:
    ports = {"tcp 988-988", "tcp 1018-1023"}
    assert openings(plain, nodes(plain), servers(plain)) == (ports, ports)
    assert openings(plain, servers(plain), nodes(plain)) == (ports, ports)
    assert openings(plain, servers(plain), servers(plain)) == ({"all"}, {"all"})


def test_efa_has_everything_between_nodes_and_servers(efa: Template) -> None:
    assert lustre(efa)["EfaEnabled"] is True
    assert lustre(efa)["MetadataConfiguration"] == {"Mode": "AUTOMATIC"}
    for one, other in ((nodes, servers), (servers, nodes), (servers, servers), (nodes, nodes)):
        assert openings(efa, one(efa), other(efa)) == ({"all"}, {"all"})


@pytest.mark.parametrize("name", ["plain", "efa"])
def test_fsx_finds_the_servers_rules_when_it_looks(name: str, request: pytest.FixtureRequest) -> None:
    template: Template = request.getfixturevalue(name)
    between_servers = {
        rule
        for kind in ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")
        for rule, resource in template.of(kind).items()
        if flat(resource["Properties"]["GroupId"]) == servers(template)
        and nodes(template) not in map(flat, resource["Properties"].values())
    }
    assert between_servers
    (resource,) = template.of(FILE_SYSTEM).values()
    assert set(resource["DependsOn"]) == between_servers


def test_links_go_to_one_new_bucket_or_an_existing_one(linked: Template) -> None:
    links = {link["FileSystemPath"]: link for link in linked.properties(LINK)}
    new_bucket = linked.only_id("AWS::S3::Bucket")
    assert {path: flat(link["DataRepositoryPath"]) for path, link in links.items()} == {
        "/data": f"s3://<{new_bucket}>/data",
        "/checkpoints": f"s3://<{new_bucket}>/runs",
        "/shared": "s3://our-data/shared",
    }
    assert links["/data"]["S3"] == {"AutoImportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]}}
    assert links["/checkpoints"]["S3"] == {"AutoExportPolicy": {"Events": ["NEW", "CHANGED"]}}
    assert {link["FileSystemId"]["Ref"] for link in links.values()} == {linked.only_id(FILE_SYSTEM)}


def test_links_of_folders_that_differ_by_a_dot_are_two() -> None:
    paths = ["/a.b", "/a-b", "/a", "/A"]
    template = file_system(data_repositories=[DataRepository(file_system_path=path) for path in paths])
    assert sorted(link["FileSystemPath"] for link in template.properties(LINK)) == sorted(paths)


def test_a_link_keeps_its_name_when_links_change_places(linked: Template) -> None:
    def names(template: Template) -> dict[str, str]:
        return {link["Properties"]["FileSystemPath"]: name for name, link in template.of(LINK).items()}

    alone = file_system(data_repositories=[DataRepository(file_system_path="/shared", bucket_name="our-data")])
    assert names(alone)["/shared"] == names(linked)["/shared"]


def test_a_new_data_bucket_is_private_encrypted_and_versioned(linked: Template) -> None:
    bucket = linked.only("AWS::S3::Bucket")
    encryption = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]["ServerSideEncryptionByDefault"]
    assert encryption == {
        "KMSMasterKeyID": {"Fn::GetAtt": [linked.only_id("AWS::KMS::Key"), "Arn"]},
        "SSEAlgorithm": "aws:kms",
    }
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}


def key_statements(template: Template) -> dict[str, Json]:
    """The statements of the key's policy that have an id."""
    return {
        statement["Sid"]: statement
        for statement in template.only("AWS::KMS::Key")["KeyPolicy"]["Statement"]
        if "Sid" in statement
    }


def test_the_key_lets_the_service_linked_role_of_a_file_system_use_it_through_s3(linked: Template) -> None:
    statement = key_statements(linked)["DataRepositories"]
    conditions = statement["Condition"]
    # The account as principal would leave the decision to the role's own policy, which nobody can change.
    assert statement["Principal"] == {"AWS": "*"}
    assert set(statement["Action"]) == {
        "kms:Decrypt",
        "kms:DescribeKey",
        "kms:Encrypt",
        "kms:GenerateDataKey*",
        "kms:ReEncrypt*",
    }
    assert {test: {key: flat(value) for key, value in by.items()} for test, by in conditions.items()} == {
        "StringEquals": {
            "kms:CallerAccount": "<AWS::AccountId>",
            "kms:ViaService": "s3.us-west-2.<AWS::URLSuffix>",
        },
        "ArnLike": {
            "aws:PrincipalArn": (
                "arn:<AWS::Partition>:iam::<AWS::AccountId>:role/aws-service-role/"
                "s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_fs-*"
            )
        },
    }


@pytest.mark.parametrize(
    "repositories",
    [
        pytest.param([], id="no links"),
        pytest.param([DataRepository(file_system_path="/shared", bucket_name="our-data")], id="an existing bucket"),
    ],
)
def test_the_key_policy_allows_only_logs_unless_a_new_bucket_is_linked(repositories: list[DataRepository]) -> None:
    template = file_system(data_repositories=repositories)
    assert set(key_statements(template)) == {"Logs"}
    for statement in template.only("AWS::KMS::Key")["KeyPolicy"]["Statement"]:
        assert statement["Principal"] not in ("*", {"AWS": "*"})


def test_an_imported_key_keeps_its_own_policy() -> None:
    def build(stack: Stack) -> None:
        LustreFileSystem(
            stack,
            "FileSystem",
            network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"]),
            encryption_key=kms.Key.from_key_arn(stack, "Key", OWN_KEY),
            storage=StorageConfig(capacity_gib=1200, data_repositories=(DataRepository(file_system_path="/data"),)),
        )

    template = of_stack(build)
    assert not template.of("AWS::KMS::Key")
    assert template.only(FILE_SYSTEM)["KmsKeyId"] == OWN_KEY


def policies(template: Template) -> dict[str, set[tuple[str | None, str | None]]]:
    """DeletionPolicy and UpdateReplacePolicy of what has any, by type."""
    found: dict[str, set[tuple[str | None, str | None]]] = {}
    for resource in template.resources.values():
        pair = (resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy"))
        if pair != (None, None) and not resource["Type"].startswith(("Custom::", "AWS::Logs::")):
            found.setdefault(resource["Type"], set()).add(pair)
    return found


def test_retain_keeps_the_data_and_exactly_what_it_stands_on(linked: Template) -> None:
    keep = {("Retain", "Retain")}
    assert policies(linked) == {
        "AWS::FSx::FileSystem": keep,
        "AWS::KMS::Key": keep,
        "AWS::S3::Bucket": keep,
        "AWS::S3::BucketPolicy": keep,
        "AWS::EC2::VPC": keep,
        "AWS::EC2::Subnet": keep,
        "AWS::EC2::SecurityGroup": keep,
        "AWS::EC2::SecurityGroupIngress": keep,
        "AWS::EC2::SecurityGroupEgress": keep,
    }
    kept = {name for name, resource in linked.resources.items() if resource.get("DeletionPolicy") == "Retain"}
    # What is deleted with the stack cannot be named by what stays, and the stack could not delete it.
    for name in kept:
        for other in linked.resources.keys() - kept:
            assert f"'{other}'" not in str(linked.resources[name].get("Properties")), (name, other)


@pytest.mark.parametrize("name", ["plain", "efa"])
def test_retain_lets_go_of_the_rules_between_nodes_and_servers(name: str, request: pytest.FixtureRequest) -> None:
    template: Template = request.getfixturevalue(name)
    for kind in ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"):
        for resource in template.of(kind).values():
            groups = {
                flat(value)
                for key, value in resource["Properties"].items()
                if key in ("GroupId", "SourceSecurityGroupId", "DestinationSecurityGroupId")
            }
            assert (resource.get("DeletionPolicy") == "Retain") is (groups == {servers(template)})


def test_switching_efa_on_or_off_changes_no_rule_that_is_kept(plain: Template, efa: Template) -> None:
    def kept_rules(template: Template) -> dict[str, Json]:
        return {
            name: resource
            for kind in ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")
            for name, resource in template.of(kind).items()
            if resource.get("DeletionPolicy") == "Retain"
        }

    # A kept rule that came back under another name would be refused as a double.
    assert len(kept_rules(plain)) == 2
    assert kept_rules(efa) == kept_rules(plain)


def test_retain_keeps_no_subnet_of_another_zone_and_destroy_keeps_none() -> None:
    zones = {"availability_zones": ["us-west-2c", "us-west-2a"]}

    def kept_zones(template: Template) -> list[str]:
        return [
            subnet["Properties"]["AvailabilityZone"]
            for subnet in template.of("AWS::EC2::Subnet").values()
            if subnet.get("DeletionPolicy") == "Retain"
        ]

    assert kept_zones(file_system(network=zones)) == ["us-west-2c"]
    assert kept_zones(file_system(network=zones, removal_policy=RemovalPolicy.DESTROY)) == []


def test_destroy_deletes_everything_also_where_a_change_replaces_it() -> None:
    template = file_system(
        removal_policy=RemovalPolicy.DESTROY, data_repositories=[DataRepository(file_system_path="/data")]
    )
    assert policies(template) == {
        "AWS::FSx::FileSystem": {("Delete", "Delete")},
        "AWS::KMS::Key": {("Delete", "Delete")},
        "AWS::S3::Bucket": {("Delete", "Delete")},
    }
    # CloudFormation deletes no bucket that holds something.
    assert template.only("Custom::S3AutoDeleteObjects")["BucketName"] == {"Ref": template.only_id("AWS::S3::Bucket")}


def test_a_removal_policy_is_retain_or_destroy() -> None:
    with refused(("removal-policy-unsupported", "removal_policy")):
        file_system(removal_policy=RemovalPolicy.SNAPSHOT)


def test_a_metric_is_about_the_file_system() -> None:
    def build(stack: Stack) -> None:
        made = LustreFileSystem(
            stack,
            "FileSystem",
            network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"]),
            storage=StorageConfig(capacity_gib=4800),
        )
        busy = made.metric("NetworkThroughputUtilization", statistic="max", dimensions={"FileServer": "OSS0000"})
        for metric in (made.metric_free_data_storage_capacity(), busy):
            metric.create_alarm(stack, metric.metric_name, threshold=5, evaluation_periods=1)

    template = of_stack(build)
    free, busy = sorted(template.properties("AWS::CloudWatch::Alarm"), key=lambda alarm: str(alarm["MetricName"]))
    assert (free["Namespace"], free["MetricName"], free["Statistic"]) == ("AWS/FSx", "FreeDataStorageCapacity", "Sum")
    assert free["Period"] == 60, "a sum over five minutes would be five times the free bytes"
    assert free["Dimensions"] == [{"Name": "FileSystemId", "Value": {"Ref": template.only_id(FILE_SYSTEM)}}]
    assert [each["Name"] for each in busy["Dimensions"]] == ["FileServer", "FileSystemId"]


def test_an_existing_vpc_stays_whatever_the_removal_is() -> None:
    template = file_system(
        network={
            "vpc_id": "vpc-0123456789abcdef0",
            "subnets": [SubnetConfig(subnet_id="subnet-0123456789abcdef0", availability_zone="us-west-2a")],
        }
    )
    assert template.only(FILE_SYSTEM)["SubnetIds"] == ["subnet-0123456789abcdef0"]
    assert not template.of("AWS::EC2::VPC")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"capacity_gib": 1300},
            ("capacity-not-supported", "storage.capacity_gib"),
            id="capacity",
        ),
        pytest.param(
            {"efa": True, "capacity_gib": 4800},
            ("capacity-not-supported-with-efa", "storage.capacity_gib"),
            id="EFA step",
        ),
        pytest.param({"metadata_iops": 5}, ("metadata-iops-not-supported", "storage.metadata_iops"), id="IOPS"),
        pytest.param(
            {"throughput_mbps_per_tib": 300},
            ("value-not-a-choice", "storage.throughput_mbps_per_tib"),
            id="throughput",
        ),
        pytest.param({"mount_path": "fsx/"}, ("value-malformed", "storage.mount_path"), id="mount path"),
        pytest.param(
            {
                "data_repositories": [DataRepository(file_system_path="/data")],
                "automatic_backup_retention_days": 3,
            },
            ("backups-with-data-repositories", "storage.automatic_backup_retention_days"),
            id="backups with links",
        ),
        pytest.param(
            {"openzfs": OpenZfsConfig(file_system_id="fs-0123456789abcdef0")},
            ("file-system-exists", "storage.openzfs"),
            id="another file system",
        ),
    ],
)
def test_settings_that_fsx_would_refuse_fail_at_synth(arguments: dict[str, Any], message: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        file_system(**arguments)
    assert found(caught.value.findings) == [message]


def test_tokens_are_passed_on_and_never_judged() -> None:
    def build(stack: Stack) -> None:
        capacity = CfnParameter(stack, "Capacity", type="Number")
        folder = CfnParameter(stack, "Folder")
        LustreFileSystem(
            stack,
            "FileSystem",
            network=HyperPodNetwork(stack, "Network"),
            encryption_key=encryption_key(stack, "Key", removal_policy=RemovalPolicy.RETAIN),
            storage=StorageConfig(
                capacity_gib=capacity.value_as_number,  # type: ignore[arg-type]  # a number token is a float
                metadata_iops=capacity.value_as_number,  # type: ignore[arg-type]
                efa=True,
                data_repositories=(
                    DataRepository(file_system_path=folder.value_as_string, bucket_name=Fn.import_value("Bucket")),
                    DataRepository(file_system_path="/data", prefix=Fn.ref("Late")),
                ),
            ),
        )

    template = of_stack(build, region=None)
    assert template.only(FILE_SYSTEM)["StorageCapacity"] == {"Ref": "Capacity"}
    assert lustre(template)["MetadataConfiguration"]["Iops"] == {"Ref": "Capacity"}
    links = {flat(link["FileSystemPath"]): flat(link["DataRepositoryPath"]) for link in template.properties(LINK)}
    assert links["/data"].endswith("/<Late>")
    assert "<Folder>" in links


def existing(*, security_group_id: str | None = None, **arguments: Any) -> tuple[Template, LustreMount]:
    mounts: list[LustreMount] = []

    def build(stack: Stack) -> None:
        if security_group_id is not None:
            arguments["security_group"] = ec2.SecurityGroup.from_security_group_id(stack, "Servers", security_group_id)
        mounts.append(
            LustreFileSystem.from_attributes(
                stack,
                "FileSystem",
                network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2a"]),
                **{"file_system_id": "fs-0123456789abcdef0", "mount_name": "abcdefgh", **arguments},
            ).mount
        )

    template = of_stack(build)
    return template, mounts[0]


def test_an_existing_file_system_lets_the_nodes_in() -> None:
    template, mount = existing(security_group_id="sg-0123456789abcdef0", availability_zone="us-west-2a")
    ports = {"tcp 988-988", "tcp 1018-1023"}
    assert openings(template, nodes(template), "sg-0123456789abcdef0") == (ports, ports)
    assert openings(template, "sg-0123456789abcdef0", nodes(template)) == (ports, ports)
    assert not template.of(FILE_SYSTEM)
    assert mount.dns_name.startswith("fs-0123456789abcdef0.fsx.us-west-2.")
    assert (mount.mount_name, mount.mount_path, mount.availability_zone) == ("abcdefgh", "/fsx", "us-west-2a")


def test_an_existing_file_system_whose_group_is_not_named_gets_no_rules() -> None:
    template, _ = existing()
    without = of_stack(lambda stack: HyperPodNetwork(stack, "Network", availability_zones=["us-west-2a"]))
    assert template.body == without.body


def test_an_existing_file_system_without_its_group_lets_nothing_in_in_silence() -> None:
    stack = Stack()
    known = LustreFileSystem.from_attributes(
        stack,
        "Existing",
        network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2a"]),
        file_system_id="fs-0123456789abcdef0",
        mount_name="abcdef12",
    )
    with refused(("file-system-security-group-unknown", "security_group")):
        _ = known.connections
    with pytest.raises(
        RuntimeError, match="file-system-security-group-unknown"
    ):  # what Python raises within CDK comes back as this
        ec2.Connections(security_groups=[]).allow_to(known, ec2.Port.tcp(988))


def test_a_wrong_existing_file_system_is_refused_at_synth() -> None:
    with refused(("value-malformed", "storage.file_system_id"), ("value-malformed", "storage.mount_name")) as caught:
        existing(file_system_id="fsx-1", mount_name="a/b")
    assert caught.value.source == "Stack/FileSystem"
