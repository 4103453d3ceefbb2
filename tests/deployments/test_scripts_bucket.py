"""Who writes the lifecycle scripts, which run as root on every node: each statement of their bucket, and each exception.

One foundation, by the CLI. Its bucket takes a user's own upload, and goes with `cdk destroy`, whatever was uploaded.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod_local import assemblies
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.configs import small
from helpers.deployments.permissions import Edit, add_almighty_role, may
from helpers.lifecycle.node_folder import RESOURCE_CONFIG, Node
from helpers.local_aws import templates
from helpers.local_aws.rehearsal import Rehearsal
from helpers.synthesis import ROOT

Json = Any

WRITER, SOMEBODY = "bucket-writer", "bucket-somebody"
OUR_WRITERS, OUR_KEY = "ScriptsAreWrittenByTheirDeployment", "NoOtherKey"
NO_CALLS = {"s3:ReplicateDelete", "s3:ReplicateObject"}
"""S3 makes them itself for a replication rule of another bucket."""


def agent_scripts(folder: Path) -> Path:
    """The scripts of examples/monitoring_agent, with the program that its README downloads."""
    scripts = Path(shutil.copytree(ROOT / "examples/monitoring_agent/scripts", folder / "agent"))
    (scripts / "files/node_exporter").write_text("the program")
    return scripts


@pytest.fixture(scope="module")
def life(engine: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    config = small("bucket") | {"removal": "destroy", "termination_protection": False}
    folder = tmp_path_factory.mktemp("bucket")
    config["lifecycle"] = {
        "writers": [f"arn:aws:iam::{engine.account}:role/{WRITER}"],
        "scripts_after": str(agent_scripts(folder)),
    }
    del config["storage"]
    rehearsal = Rehearsal(engine, folder, config)
    made = rehearsal.deploy(only=rehearsal.foundation)
    assert made.ok, made.reason
    return rehearsal


@pytest.fixture(scope="module")
def bucket(life: Rehearsal) -> str:
    return f"sagemaker-bucket-{life.aws.account}-{life.aws.region}"


@pytest.fixture(scope="module")
def clients(engine: LocalAws, life: Rehearsal) -> dict[str, Any]:
    """S3 clients of two roles that may do everything, by their own policies."""
    for name in (WRITER, SOMEBODY):
        add_almighty_role(engine, name)
    return {name: engine.client_as(name, "s3") for name in (WRITER, SOMEBODY)}


CALLS: dict[str, Callable[[Any, str, str], bool]] = {
    "s3:PutObject": lambda s3, bucket, version: may(s3.put_object, Bucket=bucket, Key="lifecycle/0/on_create.sh"),
    "s3:DeleteObject": lambda s3, bucket, version: may(s3.delete_object, Bucket=bucket, Key="lifecycle/0/on_create.sh"),
    "s3:DeleteObjectVersion": lambda s3, bucket, version: may(
        s3.delete_object, Bucket=bucket, Key="lifecycle/0/on_create.sh", VersionId=version
    ),
}


def test_a_node_runs_the_scripts_of_the_example_that_were_deployed(
    engine: LocalAws, life: Rehearsal, bucket: str, tmp_path: Path
) -> None:
    """As HyperPod downloads them: without modes, with the sums of all scripts."""
    node = Node(tmp_path)
    shutil.rmtree(node.scripts)
    s3 = engine.client("s3")
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket, Prefix="lifecycle/")["Contents"]]
    (prefix,) = {key.split("/")[1] for key in keys}
    for key in keys:
        file = node.scripts / key.removeprefix(f"lifecycle/{prefix}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    node.write("resource_config.json", json.dumps({**RESOURCE_CONFIG, "ClusterConfig": {"ClusterName": "bucket"}}))
    node.command("systemctl", f'echo "$*" >>{tmp_path}/systemctl')

    done = node.provision("compute.sh", "scripts_after", ROOT=str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "10-node-exporter.sh: node_exporter runs: port 9100" in done.stdout
    assert (tmp_path / "usr/local/bin/node_exporter").read_text() == "the program"
    assert (tmp_path / "systemctl").read_text().split("\n")[1] == "enable --now node-exporter.service"
    metric = (tmp_path / "var/lib/node-exporter/node.prom").read_text()
    assert metric.startswith('hyperpod_node_info{cluster="bucket",group="p5",instance_type="ml.p5.48xlarge"')
    assert engine.region in (node.scripts / "cluster.json").read_text()

    (node.scripts / "own/scripts_after/1/10-node-exporter.sh").write_text("#!/bin/bash\n")
    assert (
        "the upload of the scripts is incomplete (own/scripts_after/1/10-node-exporter.sh: FAILED)"
        in node.provision().stdout
    )


@pytest.fixture
def version(engine: LocalAws, bucket: str) -> str:
    made = engine.client("s3").put_object(Bucket=bucket, Key="lifecycle/0/on_create.sh", Body=b"#!/bin/bash\n")
    return str(made["VersionId"])


@pytest.mark.parametrize("action", CALLS)
def test_scripts_are_changed_by_named_writers_alone(
    clients: dict[str, Any],
    bucket: str,
    version: str,
    without: Edit,
    action: str,
) -> None:
    assert CALLS[action](clients[WRITER], bucket, version)
    assert not CALLS[action](clients[SOMEBODY], bucket, version)
    without(OUR_WRITERS, lambda statement: statement["Action"].remove(action))
    assert CALLS[action](clients[SOMEBODY], bucket, version), "the statement is what refuses it"


def test_every_action_that_is_denied_is_tried(engine: LocalAws, bucket: str) -> None:
    policy = json.loads(engine.client("s3").get_bucket_policy(Bucket=bucket)["Policy"])
    (statement,) = (item for item in policy["Statement"] if item.get("Sid") == OUR_WRITERS)
    assert {*statement["Action"]} == {*CALLS, *NO_CALLS}


def test_a_writer_needs_the_exception(clients: dict[str, Any], bucket: str, without: Edit) -> None:
    def edit(statement: Json) -> None:
        writers = statement["Condition"]["ArnNotEquals"]["aws:PrincipalArn"]
        assert len(writers) == 3
        writers[:] = [arn for arn in writers if not arn.endswith(WRITER)]

    without(OUR_WRITERS, edit)
    assert not CALLS["s3:PutObject"](clients[WRITER], bucket, "")


def test_scripts_are_encrypted_with_our_key_or_the_buckets_own_default(
    engine: LocalAws,
    clients: dict[str, Any],
    bucket: str,
    without: Edit,
) -> None:
    rules = engine.client("s3").get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    ours = rules[0]["ApplyServerSideEncryptionByDefault"]["KMSMasterKeyID"]
    other = engine.client("kms").create_key()["KeyMetadata"]["Arn"]

    def put(**how: str) -> bool:
        return may(clients[WRITER].put_object, Bucket=bucket, Key="lifecycle/1/a", Body=b"", **how)

    def with_key(arn: str) -> bool:
        return put(ServerSideEncryption="aws:kms", SSEKMSKeyId=arn)

    assert put() and with_key(ours)
    assert not with_key(other)
    without(OUR_KEY, lambda statement: statement.update(Action="s3:Nothing"))
    assert with_key(other), "the statement is what refuses it"
    without(OUR_KEY, lambda statement: statement["Condition"].pop("Null"))
    assert not put(), "without the exception, an upload that names no key is refused"


@pytest.mark.parametrize("who", ["upload", "emptying"])
def test_functions_need_their_exceptions(life: Rehearsal, who: str) -> None:
    whole = assemblies.template(life.synth(), life.foundation)
    for resource in whole["Resources"].values():
        # A part of the foundation stands in a stack of its own, so nothing waits for the guard of the whole.
        guarded = [name for name in resource.get("DependsOn", []) if not is_guard(whole["Resources"][name])]
        resource["DependsOn"] = guarded
    part = deepcopy(templates.part(whole, "Custom::HyperPodLifecycleScripts", "Custom::S3AutoDeleteObjects"))
    for resource in part["Resources"].values():
        if resource["Type"] == "AWS::S3::Bucket":
            resource["Properties"].pop("BucketName", None)
        if resource["Type"] == "AWS::S3::BucketPolicy":
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                if statement.get("Sid") == OUR_WRITERS:
                    upload, emptying, _ = statement["Condition"]["ArnNotEquals"]["aws:PrincipalArn"]
                    left = [arn for arn in (upload, emptying) if arn is not (upload if who == "upload" else emptying)]
                    statement["Condition"]["ArnNotEquals"]["aws:PrincipalArn"] = left
    stack = f"bucket-without-{who}"
    made = templates.deploy_whole(life.aws, stack, part)
    if who == "upload":
        assert made.status == "ROLLBACK_COMPLETE", made
        assert "[scripts-not-uploaded]" in made.reasons[0]
    else:
        assert made.status == "CREATE_COMPLETE", made.reasons
        gone = templates.delete(life.aws, stack)
        assert gone.status == "DELETE_FAILED", gone


def is_guard(resource: Json) -> bool:
    return str(resource["Type"]) == "Custom::HyperPodFoundationGuard"


def test_a_users_upload_works_and_destroy_takes_it(life: Rehearsal, clients: dict[str, Any], bucket: str) -> None:
    """The last test: nothing is left of the foundation."""
    s3 = clients[WRITER]
    for body in (b"old", b"new"):
        s3.put_object(Bucket=bucket, Key="lifecycle/mine/on_create.sh", Body=body)
    assert s3.get_object(Bucket=bucket, Key="lifecycle/mine/on_create.sh")["Body"].read() == b"new"
    gone = life.cdk.destroy(life.synth())
    assert gone.ok, gone.reason
    assert bucket not in {item["Name"] for item in life.aws.client("s3").list_buckets()["Buckets"]}
