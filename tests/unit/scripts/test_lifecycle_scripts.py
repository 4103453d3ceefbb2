"""The lifecycle scripts: a bucket that HyperPod may read, and a prefix that changes with its content and only then."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import typing
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Aws, Fn, RemovalPolicy, Stack, Stage, Token
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Annotations, Match

from cdk_hyperpod import (
    HyperPodCluster,
    HyperPodError,
    HyperPodNetwork,
    InstanceGroup,
    LifecycleScripts,
    LoadedConfig,
    LustreMount,
    OpenZfsMount,
    encryption_key,
)
from cdk_hyperpod._lambda.hyperpod.uploader.content import KIND, fill_in
from cdk_hyperpod.config import AccountingDatabase, LifecycleConfig, SlurmConfig, SlurmFiles, SlurmQos
from cdk_hyperpod.config.cluster import ClusterConfig, Orchestrator
from cdk_hyperpod.config.storage import StorageConfig
from cdk_hyperpod.scripts.script_folder import checksums, contents
from helpers.findings import refused
from helpers.synthesis import ROOT, Template, filled, flat, new_app, of_stack

CONTROLLER = InstanceGroup(name="controller", node_type="controller", instance_type="ml.m5.large", instance_count=1)


def scripts(
    *,
    cluster_name: str = "train",
    source: Path | None = None,
    mount_path: str | None = None,
    nfs_mount_path: str | None = None,
    region: str = "us-west-2",
    orchestrator: Orchestrator = "slurm",
) -> tuple[Template, LifecycleScripts]:
    made: list[LifecycleScripts] = []

    def build(stack: Stack) -> None:
        made.append(
            LifecycleScripts(
                stack,
                "Scripts",
                cluster_name=cluster_name,
                encryption_key=encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY),
                lifecycle=None if source is None else LifecycleConfig(scripts=str(source)),
                file_system=None
                if mount_path is None
                else LustreMount(dns_name="a", mount_name="b", mount_path=mount_path),
                openzfs=None if nfs_mount_path is None else OpenZfsMount(dns_name="a", mount_path=nfs_mount_path),
                orchestrator=orchestrator,
            )
        )

    template = of_stack(build, region=region)
    return template, made[0]


@pytest.fixture(scope="module")
def template() -> Template:
    return scripts()[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the scripts, to change."""
    return Path(shutil.copytree(ROOT / "lifecycle", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__")))


def test_the_buckets_name_has_the_prefix_that_hyperpod_reads_and_is_unique(template: Template) -> None:
    assert flat(template.only("AWS::S3::Bucket")["BucketName"]) == "sagemaker-train-<AWS::AccountId>-us-west-2"


@pytest.mark.parametrize(
    ("cluster_name", "label"),
    [
        pytest.param("a" * 25, "a" * 25, id="longest name that fits"),
        pytest.param("a" * 26, "a" * 18 + "-", id="too long"),
        pytest.param("Train", "train-", id="capitals, which buckets cannot have"),
        pytest.param("a" * 17 + "-" + "b" * 20, "a" * 17 + "-", id="cut at a hyphen"),
    ],
)
def test_the_buckets_name_is_legal_for_every_cluster_name(cluster_name: str, label: str) -> None:
    (bucket,) = scripts(cluster_name=cluster_name, region="ap-southeast-3")[0].properties("AWS::S3::Bucket")
    name = flat(bucket["BucketName"]).replace("<AWS::AccountId>", "111122223333")
    assert name.startswith(f"sagemaker-{label}")
    assert len(name) <= 63
    assert name == name.lower()
    assert "--" not in name


def test_names_that_differ_by_capitals_have_different_buckets() -> None:
    names = {scripts(cluster_name=name)[1].bucket_name for name in ("train", "Train", "TRAIN")}
    assert len(names) == 3


def test_the_bucket_is_private_encrypted_versioned_and_deleted_with_its_stack(template: Template) -> None:
    bucket = template.only("AWS::S3::Bucket")
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {
        "KMSMasterKeyID": {"Fn::GetAtt": [template.only_id("AWS::KMS::Key"), "Arn"]},
        "SSEAlgorithm": "aws:kms",
    }
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    (resource,) = template.of("AWS::S3::Bucket").values()
    assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Delete", "Delete")
    assert template.only("Custom::S3AutoDeleteObjects")


def test_the_bucket_answers_over_tls_only(template: Template) -> None:
    statements = template.only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    denied = next(statement for statement in statements if "aws:SecureTransport" in str(statement))
    assert denied["Effect"] == "Deny"
    assert denied["Action"] == "s3:*"
    assert denied["Principal"] == {"AWS": "*"}
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert len(denied["Resource"]) == 2


def test_only_the_deployment_and_named_writers_can_write_scripts() -> None:
    def build(stack: Stack) -> None:
        key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        writers = ("arn:aws:iam::111122223333:role/scripts",)
        LifecycleScripts(
            stack, "Scripts", cluster_name="train", encryption_key=key, lifecycle=LifecycleConfig(writers=writers)
        )

    template = of_stack(build)
    statements = template.only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    by_sid = {statement["Sid"]: statement for statement in statements if "Sid" in statement}
    written = by_sid["ScriptsAreWrittenByTheirDeployment"]
    assert written["Effect"] == "Deny"
    assert written["Action"] == [
        "s3:DeleteObject",
        "s3:DeleteObjectVersion",
        "s3:PutObject",
        "s3:ReplicateDelete",
        "s3:ReplicateObject",
    ]
    assert flat(written["Resource"]).endswith("/lifecycle/*")
    upload, emptying, writer = written["Condition"]["ArnNotEquals"]["aws:PrincipalArn"]
    assert flat(upload).startswith("<ScriptsUploadsRole")
    assert flat(emptying).startswith("<CustomS3AutoDeleteObjects")
    assert writer == "arn:aws:iam::111122223333:role/scripts"
    given = "s3:x-amz-server-side-encryption-aws-kms-key-id"
    assert by_sid["NoOtherKey"]["Condition"] == {
        "StringNotEquals": {given: {"Fn::GetAtt": [template.only_id("AWS::KMS::Key"), "Arn"]}},
        "Null": {given: "false"},
    }


def test_as_many_writers_as_there_may_be_fit_the_buckets_policy() -> None:
    writers = tuple(f"arn:aws:iam::111122223333:role/{'p' * 114}/{number:04}" for number in range(100))
    assert sum(map(len, writers)) == 15_000

    def build(stack: Stack, writers: tuple[str, ...]) -> None:
        key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        LifecycleScripts(
            stack, "Scripts", cluster_name="t" * 63, encryption_key=key, lifecycle=LifecycleConfig(writers=writers)
        )

    policy = of_stack(lambda stack: build(stack, writers)).only("AWS::S3::BucketPolicy")["PolicyDocument"]
    # What is filled in at deployment is an ARN mostly, and no shorter than its place in the template.
    resolved = re.sub(r"<[^>]*>", "x" * 128, json.dumps(filled(policy)))
    assert 15_000 < len(resolved) <= 20 * 1024
    with pytest.raises(HyperPodError, match=r"writers: there are 101 roles"):
        of_stack(lambda stack: build(stack, (*writers, "arn:aws:iam::111122223333:role/x")))


def test_the_scripts_lie_where_the_construct_says() -> None:
    template, made = scripts()
    assert made.prefix == f"lifecycle/{template.only(KIND)['Hash']}"
    assert made.s3_uri == f"s3://{made.bucket_name}/{made.prefix}"


def test_a_changed_script_is_another_prefix(folder: Path) -> None:
    before = scripts(source=folder)[1].prefix
    (folder / "steps" / "10_verify_mounts.sh").write_text("exit 0\n", "utf-8")
    assert scripts(source=folder)[1].prefix != before


def test_a_renamed_script_is_another_prefix(folder: Path) -> None:
    before = scripts(source=folder)[1].prefix
    (folder / "lib.sh").rename(folder / "library.sh")
    assert scripts(source=folder)[1].prefix != before


def test_cluster_settings_that_scripts_read_are_part_of_the_prefix() -> None:
    assert scripts()[1].prefix != scripts(mount_path="/fsx")[1].prefix


def test_an_unchanged_folder_changes_nothing(folder: Path) -> None:
    before, _ = scripts(source=folder)
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    (folder / "steps" / "__pycache__").mkdir()
    (folder / "steps" / "__pycache__" / "provision.cpython-311.pyc").write_bytes(b"\0")
    (folder / "provision.pyc").write_bytes(b"\0")
    (folder / ".DS_Store").write_bytes(b"\0")
    after, _ = scripts(source=folder)
    assert after.body == before.body


def test_a_copy_of_the_scripts_is_another_prefix_since_its_nodes_ask_for_no_sums(folder: Path) -> None:
    assert scripts(source=folder)[1].prefix != scripts()[1].prefix
    assert scripts(source=folder)[1].prefix == scripts(source=ROOT / "lifecycle")[1].prefix


def test_sums_lie_beside_the_librarys_own_scripts_and_beside_no_others(folder: Path) -> None:
    def has_sums(**given: Any) -> bool:
        _, made = scripts(**given)
        uploaded = Path(typing.cast(Stage, Stage.of(made)).asset_outdir, "cdk-hyperpod-scripts", Path(made.prefix).name)
        assert (uploaded / "cluster.json").is_file()
        return (uploaded / "scripts.sha256").is_file()

    assert has_sums()
    assert has_sums(orchestrator="eks")
    assert not has_sums(source=folder)
    assert not has_sums(orchestrator="eks", source=ROOT / "lifecycle" / "eks")


def test_sums_are_of_every_file_that_is_uploaded(folder: Path) -> None:
    (folder / ".DS_Store").write_bytes(b"\0")
    lines = checksums(contents(folder, "eks")).splitlines()
    names = [line.split("  ")[1] for line in lines]
    assert {"on_create.sh", "provision.py", "steps/20_slurm.py"} <= set(names)
    assert not [name for name in names if name.startswith((".", "eks/"))]
    done = subprocess.run(
        ["sha256sum", "--check", "--strict"],
        cwd=folder,
        input="\n".join(lines),
        text=True,
        capture_output=True,
        check=True,
    )
    assert done.stdout.splitlines() == [f"{name}: OK" for name in names]


def test_a_folder_that_is_not_there_is_not_one_that_lacks_a_script(folder: Path) -> None:
    with refused(("scripts-not-found", "lifecycle.scripts")):
        scripts(source=folder / "nope")


def test_a_folder_without_an_entry_script_is_refused(folder: Path) -> None:
    (folder / "login.sh").unlink()
    with refused(("scripts-incomplete", "lifecycle.scripts")):
        scripts(source=folder)


def test_a_name_that_is_known_at_deployment_only_is_refused() -> None:
    with pytest.raises(HyperPodError, match=r"cluster_name: .* \[argument-known-at-deployment-only\]"):
        scripts(cluster_name=Fn.ref("Name"))


def test_a_mount_path_that_is_known_at_deployment_only_has_a_steady_prefix() -> None:
    first = scripts(mount_path=Fn.ref("Path"))[1].prefix
    Fn.ref("Something else")  # the next token has another number
    assert scripts(mount_path=Fn.ref("Path"))[1].prefix == first
    assert scripts(mount_path=Fn.ref("Other"))[1].prefix != first


def test_the_content_of_a_prefix_does_not_depend_on_the_event() -> None:
    """Values that are known at deployment only are in the function's environment, and marked in the settings."""
    template, made = scripts(mount_path=Fn.ref("Path"), nfs_mount_path="/fsx")
    (variables,) = (
        each["Environment"]["Variables"]
        for each in template.properties("AWS::Lambda::Function")
        if "Environment" in each
    )
    assert set(variables) == {"ASSETS", "BUCKET", "FOLDER", "VALUES"}
    assert '"<Path>"' in flat(variables["VALUES"])
    event = template.only(KIND)
    assert set(event) == {"ServiceToken", "ServiceTimeout", "Hash", "Asset", "Values"}
    ((mark, _),) = event["Values"].items()
    uploaded = Path(typing.cast(Stage, Stage.of(made)).asset_outdir, "cdk-hyperpod-scripts", event["Hash"])
    settings = (uploaded / "cluster.json").read_text()
    assert [each["path"] for each in json.loads(settings)["mounts"]] == [mark, "/fsx"]
    assert fill_in(settings, {mark: '/a"b'}) == settings.replace(mark, '/a\\"b')


def test_the_function_may_read_assets_and_write_scripts_and_nothing_else(template: Template) -> None:
    (policy,) = (
        each["PolicyDocument"]["Statement"]
        for each in template.properties("AWS::IAM::ManagedPolicy")
        if each["Description"].startswith("Uploads")
    )
    key = template.only_id("AWS::KMS::Key")
    assert [(each["Action"], flat(each["Resource"])) for each in policy[:2]] == [
        (
            "s3:GetObject",
            "arn:<AWS::Partition>:s3:::{'Fn::Sub': 'cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2'}/*.zip",
        ),
        (["s3:GetObject", "s3:PutObject"], f"<{template.only_id('AWS::S3::Bucket')}.Arn>/lifecycle/*"),
    ]
    assert policy[3:] == [
        {"Effect": "Allow", "Action": "kms:GenerateDataKey", "Resource": {"Fn::GetAtt": [key, "Arn"]}}
    ]


def test_an_upload_waits_for_the_policy_that_names_its_role(template: Template) -> None:
    """That of a bucket that an earlier version made names the role of CDK's function."""
    (upload,) = template.of(KIND).values()
    assert template.only_id("AWS::S3::BucketPolicy") in upload["DependsOn"]


def test_a_folder_that_is_too_large_for_the_upload_is_refused(folder: Path) -> None:
    for number in range(2_000):
        (folder / f"file-{number}").touch()
    with refused(("scripts-too-large", "lifecycle")):
        scripts(source=folder)


def two_clusters(stack: Stack) -> None:
    for name in ("one", "two"):
        HyperPodCluster(
            stack, name, cluster_name=name, network=HyperPodNetwork(stack, f"Net-{name}"), instance_groups=[CONTROLLER]
        )


def test_two_clusters_share_a_stack() -> None:
    template = of_stack(two_clusters)
    assert len(template.of("AWS::SageMaker::Cluster")) == 2
    assert len(template.of(KIND)) == 2
    names = [flat(bucket["BucketName"]) for bucket in template.properties("AWS::S3::Bucket") if "BucketName" in bucket]
    assert len(set(names)) == 2


def test_a_plain_cluster_warns_only_that_its_controller_s_state_is_copied_nowhere() -> None:
    app = new_app()
    stack = Stack(app, "Stack")
    HyperPodCluster(
        stack, "one", cluster_name="one", network=HyperPodNetwork(stack, "Network"), instance_groups=[CONTROLLER]
    )
    (warning,) = Annotations.from_stack(stack).find_warning("*", Match.any_value())
    assert "keep-state-without-storage" in str(warning.entry.data)
    assert not Annotations.from_stack(stack).find_error("*", Match.any_value())


def test_nodes_start_after_their_scripts_are_uploaded() -> None:
    def build(stack: Stack) -> None:
        network = HyperPodNetwork(stack, "Network")
        HyperPodCluster(stack, "Cluster", cluster_name="train", network=network, instance_groups=[CONTROLLER])

    template = of_stack(build)
    (cluster,) = template.of("AWS::SageMaker::Cluster").values()
    assert template.only_id(KIND) in cluster["DependsOn"]


def cluster_with_scripts_in(stack: Stack, bucket: s3.IBucket, name: str = "train") -> HyperPodCluster:
    key = encryption_key(stack, f"{name}Key", removal_policy=RemovalPolicy.DESTROY)
    return HyperPodCluster(
        stack,
        name,
        cluster_name=name,
        network=HyperPodNetwork(stack, f"{name}Network", availability_zones=["us-west-2b"]),
        instance_groups=[CONTROLLER],
        encryption_key=key,
        lifecycle_scripts=LifecycleScripts(
            stack, f"{name}Scripts", cluster_name=name, encryption_key=key, bucket=bucket
        ),
        unguarded=True,
    )


def test_two_clusters_keep_their_scripts_in_a_bucket_of_the_apps_own() -> None:
    def build(stack: Stack) -> None:
        bucket = s3.Bucket(
            stack, "Shared", bucket_name="sagemaker-shared", encryption_key=kms.Key(stack, "SharedKey"), auto_delete_objects=True,
            removal_policy=RemovalPolicy.DESTROY,
        )  # fmt: skip
        for name in ("train", "research"):
            cluster_with_scripts_in(stack, bucket, name)

    template = of_stack(build)
    (bucket,) = template.of("AWS::S3::Bucket")
    variables = [
        each["Environment"]["Variables"]
        for each in template.properties("AWS::Lambda::Function")
        if "Environment" in each
    ]
    folders = {each["FOLDER"]: flat(each["BUCKET"]) for each in variables if "FOLDER" in each}
    assert folders == {f"{name}/lifecycle": f"<{bucket}>" for name in ("train", "research")}
    hashes = {upload["Hash"] for upload in template.properties(KIND)}
    for cluster in template.properties("AWS::SageMaker::Cluster"):
        name, (group,) = cluster["ClusterName"], cluster["InstanceGroups"]
        prefix, _, digest = flat(group["LifeCycleConfig"]["SourceS3Uri"]).rpartition("/")
        assert prefix == f"s3://<{bucket}>/{name}/lifecycle"
        assert digest in hashes
        (policy,) = (
            each
            for each in template.properties("AWS::IAM::ManagedPolicy")
            if f"cluster {name} may" in each.get("Description", "")
        )
        read, decrypted = (
            next(
                flat(each["Resource"][0]) for each in policy["PolicyDocument"]["Statement"] if action in each["Action"]
            )
            for action in ("s3:GetObject", "kms:Decrypt")
        )
        assert read == f"<{bucket}.Arn>/{name}/lifecycle/*"
        assert decrypted.startswith("<SharedKey"), "the bucket's key, and not the cluster's"
    statements = template.only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    for name in ("train", "research"):
        (denied,) = (each for each in statements if flat(each["Resource"]) == f"<{bucket}.Arn>/{name}/lifecycle/*")
        assert denied["Effect"] == "Deny"
        upload, emptying = denied["Condition"]["ArnNotEquals"]["aws:PrincipalArn"]
        assert flat(upload).startswith(f"<{name}ScriptsUploadsRole"), "not that of the other cluster"
        assert flat(emptying).startswith("<CustomS3AutoDelete")


def test_a_bucket_whose_policy_cdk_may_not_change_is_a_warning() -> None:
    stack = Stack(new_app(), "Stack")
    cluster_with_scripts_in(stack, s3.Bucket.from_bucket_name(stack, "Given", "sagemaker-given"))
    Annotations.from_stack(stack).has_warning(
        "/Stack/trainScripts", Match.string_like_regexp(".*root on every new node.*")
    )


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("ours", {}, ("scripts-bucket-unreadable", "bucket")),
        ("sagemaker-ours", {"access_logs": True}, ("access-logs-of-given-bucket", "access_logs")),
        (
            "sagemaker-ours",
            {"removal_policy": RemovalPolicy.SNAPSHOT},
            ("removal-policy-unsupported", "removal_policy"),
        ),
    ],
)
def test_a_bucket_that_nodes_could_not_read_is_refused(
    name: str, more: dict[str, Any], expected: tuple[str, str]
) -> None:
    stack = Stack(new_app(), "Stack")
    bucket = s3.Bucket.from_bucket_name(stack, "Given", name)
    if "access_logs" in more:
        more = {"access_logs": bucket}
    with refused(expected):
        LifecycleScripts(
            stack, "Scripts", cluster_name="a", encryption_key=kms.Key(stack, "Key"), bucket=bucket, **more
        )


# -- files for Slurm


def test_files_for_slurm_are_uploaded_with_the_scripts_by_content(tmp_path: Path) -> None:
    program = tmp_path / "prolog.d" / "10-gpus"
    program.parent.mkdir()
    (tmp_path / "extra.conf").write_text("MessageTimeout=60\n")

    def prefix(**settings: Any) -> str:
        made: list[LifecycleScripts] = []

        def build(stack: Stack) -> None:
            key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
            slurm = SlurmConfig(**settings)
            made.append(LifecycleScripts(stack, "Scripts", cluster_name="train", encryption_key=key, slurm=slurm))

        of_stack(build)
        return made[0].prefix

    settings: dict[str, Any] = {"prolog": str(program.parent), "conf": SlurmFiles(slurm=str(tmp_path / "extra.conf"))}
    program.write_text("#!/bin/bash\nexit 0\n")
    first = prefix(**settings)
    assert first == prefix(**settings) != prefix()
    assert first != prefix(**settings, hook_seconds=5)
    program.write_text("#!/bin/bash\nexit 1\n")
    assert prefix(**settings) != first


def test_files_for_slurm_need_the_library_s_scripts_under_slurm(tmp_path: Path) -> None:
    slurm = SlurmConfig(qos=(SlurmQos(name="low"),))

    def build(stack: Stack, slurm: SlurmConfig, **more: Any) -> None:
        key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        LifecycleScripts(stack, "Scripts", cluster_name="train", encryption_key=key, slurm=slurm, **more)

    own = LifecycleConfig(scripts=str(ROOT / "lifecycle"))
    with refused(("slurm-setting-without-scripts", "slurm.qos")):
        of_stack(lambda stack: build(stack, slurm, lifecycle=own))
    with refused(("setting-for-slurm-only", "slurm")):
        of_stack(lambda stack: build(stack, slurm, orchestrator="eks"))
    with refused(("hooks-wrong-number", "slurm.prolog")):
        of_stack(lambda stack: build(stack, dataclasses.replace(slurm, prolog=str(tmp_path))))


@pytest.mark.parametrize("orchestrator", ["slurm", "eks"])
def test_nodes_know_whether_their_file_system_is_made_for_efa(orchestrator: Orchestrator) -> None:
    """Under EKS too, where they mount nothing themselves. Nothing else of the upload depends on it."""

    def prefix(*, efa: bool) -> str:
        config = ClusterConfig(
            name="train",
            region="us-west-2",
            instance_groups=(CONTROLLER,),
            orchestrator=orchestrator,
            storage=StorageConfig(capacity_gib=4800, throughput_mbps_per_tib=1000, efa=efa),
        )
        made: list[str] = []

        def build(stack: Stack) -> None:
            loaded = LoadedConfig(config=config, warnings=(), folder=ROOT)
            key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
            made.append(LifecycleScripts.from_config(stack, "Scripts", loaded, encryption_key=key).prefix)

        of_stack(build)
        return made[0]

    assert prefix(efa=True) != prefix(efa=False)


def test_a_cluster_gets_the_mode_and_the_database_that_its_scripts_name() -> None:
    database = AccountingDatabase(
        endpoint="db.example.com", secret_arn="arn:aws:secretsmanager:us-west-2:111122223333:secret:accounting-AbCdEf"
    )

    def build(stack: Stack) -> None:
        key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        HyperPodCluster(
            stack,
            "Cluster",
            cluster_name="train",
            network=HyperPodNetwork(stack, "Network"),
            instance_groups=[CONTROLLER],
            lifecycle_scripts=LifecycleScripts(
                stack,
                "Scripts",
                cluster_name="train",
                encryption_key=key,
                lifecycle=LifecycleConfig(mode="customer_managed"),
                slurm=SlurmConfig(accounting_database=database),
            ),
            unguarded=True,
        )

    template = of_stack(build)
    assert "OnCreate" in template.groups()["controller"]["LifeCycleConfig"]
    orchestrator = template.only("AWS::SageMaker::Cluster")["Orchestrator"]
    assert orchestrator["Slurm"]["AccountingDatabase"]["Endpoint"] == "db.example.com"


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"lifecycle": LifecycleConfig(scripts=Aws.REGION)}, "lifecycle.scripts"),
        ({"lifecycle": LifecycleConfig(scripts_after=Aws.REGION)}, "lifecycle.scripts_after"),
        ({"lifecycle": LifecycleConfig(script_minutes=Token.as_number({"Ref": "A"}))}, "lifecycle.script_minutes"),  # type: ignore[arg-type]
        ({"slurm": SlurmConfig(epilog=Aws.REGION)}, "slurm.epilog"),
        ({"slurm": SlurmConfig(conf=SlurmFiles(gres=Aws.REGION))}, "slurm.conf.gres"),
    ],
)
def test_what_decides_at_synthesis_what_is_uploaded_is_known_there(settings: dict[str, Any], path: str) -> None:
    stack = Stack(new_app(), "Stack")
    with refused(("argument-known-at-deployment-only", path)):
        LifecycleScripts(stack, "Scripts", cluster_name="a", encryption_key=kms.Key(stack, "Key"), **settings)
