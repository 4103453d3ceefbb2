"""From the file to Slurm with real parts: the CDK CLI deploys to the local AWS, which enforces IAM. The guard's function
calls the agent through the bucket, and the agent, with the controller's role, drains a node of real Slurm.

HyperPod itself is simulated: its nodes represent those of the test's cluster (local_aws.py).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod.cli.main import main
from cdk_hyperpod.cli.nodes import drain as drain_command
from cdk_hyperpod.names import drain_bucket_name
from cdk_hyperpod_local import environment
from cdk_hyperpod_local.cdk import Cdk
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.permissions import may
from helpers.local_aws.fixtures import running_engine
from helpers.local_aws.rehearsal import Rehearsal, resized
from helpers.slurm import drains as asking
from helpers.slurm.cluster import Cluster, Node, Result
from helpers.slurm.drains import Drains
from helpers.slurm.hyperpod import CLUSTER_NAME, SLURM_ETC
from helpers.slurm.local_aws import reached_from, stand_for, take_on
from helpers.slurm.metadata import ADDRESS, metadata_of
from helpers.slurm.scripts import CONFIG

pytestmark = [pytest.mark.usefixtures("provisioned"), pytest.mark.setups("24.11-extended")]
Json = Any

WORK = "/opt/dlami/nvme/work"
DEPLOYED: Json = {**deepcopy(CONFIG), "scale_down": {"drain": {"timeout_minutes": 30}}, "removal": "destroy"}
BUCKET = drain_bucket_name(CLUSTER_NAME, CONFIG["account"], CONFIG["region"])
STATUS, BY_OPERATOR, BY_DEPLOYMENT = (
    f"{CLUSTER_NAME}/{name}.json" for name in ("status", "requests/operator", "requests/deployment")
)
SPEED = 25.0
"""The guard's half hour passes in 72 seconds, which is longer than everything that is awaited here."""
AT_ONCE = {"create_cluster": 0.1, "launch": 0.1, "boot": 0.1, "shut_down": 1, "count_lag": 0.2, "update_settle": 0.1}
SETTINGS = "/usr/local/lib/cdk-hyperpod/drain.json"
"""The agent's unit, on the controller (lifecycle/steps/45_drain.py)."""
OPERATOR = "operator"


class OverAws(Drains):
    """The agent's status in S3."""

    def __init__(self, cluster: Cluster, life: Rehearsal) -> None:
        super().__init__(cluster)
        self.life = life
        self.s3 = life.aws.client("s3")

    def status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.s3.get_object(Bucket=BUCKET, Key=STATUS)["Body"].read())
        except ClientError as error:
            assert error.response["Error"]["Code"] == "NoSuchKey"
            return {}
        return found

    def write(self, writer: str, content: str) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=f"{CLUSTER_NAME}/requests/{writer}.json", Body=content.encode())


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with running_engine(speed=SPEED, bootstrap=False) as engine:
        aws = LocalAws(place=engine.place, region=CONFIG["region"], account=CONFIG["account"])
        made = Cdk(place=aws.place, region=aws.region, account=aws.account).bootstrap()
        assert made.ok, made.reason
        aws.change_hyperpod(timings=AT_ONCE)
        yield aws


@pytest.fixture(scope="module")
def life(aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """The cluster's stacks are deployed, and its nodes are running."""
    life = Rehearsal(aws, tmp_path_factory.mktemp("chain"), DEPLOYED)
    made = life.deploy()
    assert made.ok, made.reason
    life.wait_for(lambda: len(life.nodes()) == 6 and set(life.nodes().values()) == {"Running"})
    return life


@pytest.fixture(scope="module")
def roles(life: Rehearsal) -> dict[str, str]:
    """The ARN of each group's execution role."""
    groups = life.aws.client("sagemaker").describe_cluster(ClusterName=CLUSTER_NAME)["InstanceGroups"]
    return {group["InstanceGroupName"]: group["ExecutionRole"] for group in groups}


@pytest.fixture(scope="module")
def drains(cluster: Cluster, provisioned: object, life: Rehearsal, roles: dict[str, str]) -> Iterator[OverAws]:
    """The agent, with the permissions of the controller's role."""
    controller, place = cluster.controller, life.aws.place
    drains = OverAws(cluster, life)
    with asking.agent(cluster), reached_from(controller, place.port), stand_for(life.aws, cluster):
        controller.write("/srv/authority.pem", place.authority.read_text())
        role = take_on(life.aws, roles["controller"])
        before = controller.read(SETTINGS)
        controller.write(SETTINGS, json.dumps({"cluster": CLUSTER_NAME, **uploaded(life)["drain"]}))
        there = {"AWS_ENDPOINT_URL_S3": place.url, "SSL_CERT_FILE": "/srv/authority.pem"}
        asking.set_up(cluster, {**there, **role})
        try:
            drains.await_heard()
        except AssertionError as error:
            raise AssertionError(f"{error}; IAM said {life.aws.checks(role=name_of(roles['controller']))}") from error
        yield drains
        for writer in ("operator", "deployment"):
            drains.ask(writer=writer)
        drains.await_given_back(*cluster.compute)
        controller.write(SETTINGS, before)


def uploaded(life: Rehearsal) -> Json:
    """cluster.json as the deployment has uploaded it, with the account in the bucket's name."""
    groups = life.aws.client("sagemaker").describe_cluster(ClusterName=CLUSTER_NAME)["InstanceGroups"]
    bucket, _, prefix = groups[0]["LifeCycleConfig"]["SourceS3Uri"].removeprefix("s3://").partition("/")
    found = life.aws.client("s3").get_object(Bucket=bucket, Key=f"{prefix.rstrip('/')}/cluster.json")
    return json.loads(found["Body"].read())


def name_of(arn: str) -> str:
    return arn.rpartition("/")[2]


def test_a_count_falls_under_a_running_job(cluster: Cluster, drains: OverAws) -> None:
    life, nodes = drains.life, [node for node in cluster.compute if node.instance.group == "p5"]
    for node in nodes:
        node.run(f"rm -rf {WORK}; mkdir -p {WORK}; head -c 3000000 /dev/urandom >{WORK}/model.bin")
    jobs = {node: drains.start_job(node) for node in nodes}
    with ThreadPoolExecutor(1) as pool:
        deploying = pool.submit(life.deploy, resized(DEPLOYED, "p5", 1), only=life.cluster)
        node = cluster.until(lambda: chosen(drains, nodes), "one is asked for") or nodes[0]
        cluster.until(lambda: drains.of(node).get("jobs"), "its job is seen")
        assert drains.of(node)["jobs"] == [{"id": jobs[node], "user": "alice"}]
        assert "s3://" not in str(drains.status()["problem"])
        assert not life.aws.journal(operation="BatchDeleteClusterNodes")
        drains.end_job(jobs[node])
        made = deploying.result()
    assert made.ok, made.reason
    (call,) = life.aws.journal(operation="BatchDeleteClusterNodes")
    assert call.request["NodeIds"] == [node.instance.instance_id]
    assert "ScaleDownRole" in call.who
    # Its data is at the target, and was there before the call.
    folder = f"/fsx/backup/{node.instance.instance_id}"
    node.run(f"cd {folder}/files && sha256sum --check --quiet --strict ../SHA256SUMS")
    node.run(f"diff -r {WORK} {folder}/files{WORK}")
    assert float(node.run(f"stat --format=%.Y {folder}/manifest.json")) < call.at
    assert drained_at(cluster, node) < call.at
    assert [end["node_id"] for end in life.ended()] == [node.instance.instance_id]
    assert drains.job_state(jobs[node]) == "COMPLETED"
    (other,) = (each for each in nodes if each is not node)
    assert drains.job_state(jobs[other]) == "RUNNING"
    drains.end_job(jobs[other])


def drained_at(cluster: Cluster, node: Node) -> float:
    """When the agent had Slurm drain it, with its data saved; from the journal."""
    said = cluster.controller.run(f"journalctl --unit={asking.UNIT} --output=short-unix --no-pager")
    (line,) = (line for line in said.splitlines() if f"{node.name}: drain it (saved)" in line)
    return float(line.split()[0])


def chosen(drains: OverAws, nodes: list[Node]) -> Node | None:
    return next((node for node in nodes if drains.of(node).get("state") == "draining"), None)


def test_the_controllers_role_uses_only_the_listed_permissions(drains: OverAws, roles: dict[str, str]) -> None:
    checks = drains.life.aws.checks(role=name_of(roles["controller"]))
    asked = {(check.action, check.allowed) for check in checks}
    rights = ("s3:GetObject", "s3:PutObject", "kms:Decrypt", "kms:GenerateDataKey")
    # S3 requires permission to list before it reports that an object does not exist.
    assert asked - {("s3:ListBucket", True)} == {(action, True) for action in rights}


def test_the_controller_s_role_asks_for_nothing_itself(drains: OverAws, roles: dict[str, str]) -> None:
    s3 = drains.life.aws.client_as(name_of(roles["controller"]), "s3")
    for key in (BY_OPERATOR, BY_DEPLOYMENT):
        denied(s3.put_object, Key=key, Body=b"{}")
    denied(s3.delete_object, Key=STATUS)


def denied(call: Any, **arguments: Json) -> None:
    assert not may(call, Bucket=BUCKET, **arguments)


# -- a Slurm user on each node type ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def metadata(cluster: Cluster, life: Rehearsal, roles: dict[str, str]) -> Iterator[None]:
    """Whoever reaches it gets the credentials of the node's role."""
    names = {
        "AccessKeyId": "AWS_ACCESS_KEY_ID",
        "SecretAccessKey": "AWS_SECRET_ACCESS_KEY",
        "Token": "AWS_SESSION_TOKEN",
    }
    given = {group: take_on(life.aws, arn) for group, arn in roles.items()}
    of_group = {group: {name: keys[key] for name, key in names.items()} for group, keys in given.items()}
    with metadata_of(cluster, {node: of_group[node.instance.group] for node in cluster.nodes}):
        yield


TAKE_ROLE = f"""
import json, urllib.request
def ask(path, method="GET", **headers):
    request = urllib.request.Request("http://{ADDRESS}/latest" + path, method=method, headers=headers)
    return urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(request, timeout=10).read().decode()
token = {{"X-aws-ec2-metadata-token": ask("/api/token", "PUT")}}
role = "/meta-data/iam/security-credentials/"
print(ask(role + ask(role, **token), **token))
"""
PYTHON = "python3 -I -"
IN_A_JOB = "srun --quiet -p p5 -w {} {}"


def s3_with(aws: LocalAws, credentials: str) -> Any:
    """A client with what the metadata answered."""
    given = json.loads(credentials)
    return environment.client(
        aws.place,
        "s3",
        region=aws.region,
        account=given["AccessKeyId"],
        secret=given["SecretAccessKey"],
        token=given["Token"],
    )


@pytest.mark.usefixtures("metadata")
def test_a_user_on_the_controller_does_not_become_the_agent(cluster: Cluster, drains: OverAws) -> None:
    controller, rules = cluster.controller, "nft list table inet cdk_hyperpod_metadata"
    table, settings = controller.run(rules), controller.read(SETTINGS)
    root = s3_with(drains.life.aws, controller.run(PYTHON, stdin=TAKE_ROLE))
    status = json.dumps(drains.status()).encode()
    assert may(root.put_object, Bucket=BUCKET, Key=STATUS, Body=status), "whoever has the role is the agent"
    for way in (PYTHON, f"unshare --user --map-root-user {PYTHON}", f"setsid --wait {PYTHON}"):
        refused = controller.try_run(way, user="alice", stdin=TAKE_ROLE)
        assert refused.returncode != 0 and "Connection refused" in refused.output, refused
    for way in (
        "nft delete table inet cdk_hyperpod_metadata",
        "systemctl stop cdk-hyperpod-metadata",
        f"systemctl stop {asking.UNIT}",
        "systemd-run --pipe true",
        "sudo -n true",
        f"echo {{}} >{SETTINGS}",
        f"cat {SLURM_ETC}/slurmdbd.conf",
        f"tr '\\0' '\\n' </proc/$(systemctl show --property MainPID --value {asking.UNIT})/environ",
        f"scontrol update nodename={cluster.compute[0].name} state=drain reason=cdk-hyperpod:deployment:1:saved",
        "scontrol create reservation reservationname=mine nodes=ALL users=alice starttime=now duration=1",
        f"srun --immediate=2 -w {controller.name} true",
    ):
        assert controller.try_run(way, user="alice").returncode != 0, way
    assert (controller.run(rules), controller.read(SETTINGS)) == (table, settings)


@pytest.mark.usefixtures("metadata")
@pytest.mark.parametrize("node_type", ["compute", "login"])
def test_a_user_on_another_node_forges_nothing_with_its_role(
    cluster: Cluster, drains: OverAws, changed: Callable[[Callable[[Any], None]], Path], node_type: str
) -> None:
    """And does not get the role if the file has `metadata_users`."""
    node = cluster.login if node_type == "login" else cluster.compute[0]

    def as_alice(command: str, stdin: str = "") -> Result:
        run = command if node is cluster.login else IN_A_JOB.format(node.name, command)
        return cluster.login.try_run(run, user="alice", stdin=stdin)

    s3 = s3_with(drains.life.aws, as_alice(PYTHON, TAKE_ROLE).output)
    for key in (STATUS, BY_OPERATOR, BY_DEPLOYMENT):
        denied(s3.put_object, Key=key, Body=b"{}")
        denied(s3.get_object, Key=key)
        denied(s3.delete_object, Key=key)
    denied(s3.list_objects_v2)
    login = as_alice(f"ssh -o BatchMode=yes -o ConnectTimeout=10 {cluster.controller.name} hostname")
    assert login.returncode == 255 and "Permission denied" in login.output, login

    def close(content: Any) -> None:
        content["metadata_users"] = []

    step = f"{node.download(changed(close))}/steps/32_metadata.py"
    node.run(f"cd $(dirname {step})/.. && python3 -B {step} cluster.json {node_type}", env={"PYTHONPATH": "."})
    try:
        refused = as_alice(PYTHON, TAKE_ROLE)
        assert refused.returncode != 0 and "Connection refused" in refused.output, refused
        assert node.run(PYTHON, stdin=TAKE_ROLE)
    finally:
        node.run("nft delete table inet cdk_hyperpod_metadata")


@pytest.fixture
def operator(drains: OverAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalAws:
    """A terminal with exactly the permissions in docs/drain-permissions.md, and the file."""
    aws = drains.life.aws
    bucket, cluster = f"arn:aws:s3:::{BUCKET}", f"arn:aws:sagemaker:{aws.region}:{aws.account}:cluster/*"
    resources = aws.client("cloudformation").describe_stack_resources(StackName=drains.life.foundation)
    (key,) = (
        each["PhysicalResourceId"] for each in resources["StackResources"] if each["ResourceType"] == "AWS::KMS::Key"
    )
    key_arn = aws.client("kms").describe_key(KeyId=key)["KeyMetadata"]["Arn"]
    rights = [
        ("s3:GetObject", f"{bucket}/{BY_OPERATOR}"),
        ("s3:PutObject", f"{bucket}/{BY_OPERATOR}"),
        ("s3:GetObject", f"{bucket}/{STATUS}"),
        ("s3:ListBucket", bucket),
        ("kms:Decrypt", key_arn),
        ("kms:GenerateDataKey", key_arn),
        ("sagemaker:DescribeClusterNode", cluster),
    ]
    statements = [{"Effect": "Allow", "Action": action, "Resource": resource} for action, resource in rights]
    iam, nobody = aws.client("iam"), {"Version": "2012-10-17", "Statement": []}
    iam.create_role(RoleName=OPERATOR, AssumeRolePolicyDocument=json.dumps(nobody))
    iam.put_role_policy(
        RoleName=OPERATOR,
        PolicyName="drain",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": statements}),
    )
    given = take_on(aws, f"arn:aws:iam::{aws.account}:role/{OPERATOR}")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    variables = environment.variables(aws.place, region=aws.region, account=aws.account)
    for name, value in {**variables, **given}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(drain_command, "POLL_S", 0.5)
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(yaml.safe_dump(drains.life.config))
    return aws


def test_an_operator_drains_a_node(
    cluster: Cluster, drains: OverAws, operator: LocalAws, capsys: pytest.CaptureFixture[str]
) -> None:
    node = next(node for node in cluster.compute if node.instance.group == "trn1")
    name = node.instance.instance_id
    node.run(f"rm -rf {WORK}; mkdir -p {WORK}; echo text >{WORK}/file")
    status = main(["drain", name, "--wait"])
    out, err = capsys.readouterr()
    assert (status, err) == (0, ""), out
    assert re.search(rf"^{name} .*ready", out, re.MULTILINE), out
    assert ":saved" in drains.slurm_of(node)
    assert main(["drain", "--status"]) == 0
    assert name in capsys.readouterr().out
    main(["undrain", name])
    drains.await_given_back(node)
    asked = {(check.action, check.allowed) for check in operator.checks(role=OPERATOR)}
    rights = ("s3:GetObject", "s3:PutObject", "kms:Decrypt", "kms:GenerateDataKey", "sagemaker:DescribeClusterNode")
    assert asked - {("s3:ListBucket", True)} == {(action, True) for action in rights}
    s3 = operator.client_as(OPERATOR, "s3")
    for key in (STATUS, BY_DEPLOYMENT):
        denied(s3.put_object, Key=key, Body=b"{}")
