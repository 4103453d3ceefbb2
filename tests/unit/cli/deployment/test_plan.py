"""`cdk-hyperpod plan` against a served model: what it prints, and its exit code."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
import yaml

from cdk_hyperpod.cli.main import main
from cdk_hyperpod.config.changes import METADATA, record
from cdk_hyperpod.config.effects import Record
from cdk_hyperpod.loader import load_config
from cdk_hyperpod.names import cluster_stack_name
from cdk_hyperpod_local.hyperpod import HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import EKS_ARN, VPC, eks, group, run_until_quiet, slurm
from helpers.findings import codes, reported
from helpers.scale_down.served_hyperpod import foundation_in, serve
from helpers.validating import REMOVED, ROOT, changed
from simulations.lifetimes.agent import status as agent_status

OWNER = f"arn:aws:cloudformation:us-west-2:000000000000:stack/{cluster_stack_name('small')}/0a1b2c"
STANDS = foundation_in("us-west-2c", "10.0.64.0/19", VPC["Subnets"][0])
"""Where the file wants its cluster."""
DENIED = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
SLURM = {"instance_type": "ml.p5.48xlarge", "node_type": "compute"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of one's own, and credentials in the environment alone."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    write({})


@pytest.fixture
def model() -> HyperPod:
    """The small cluster of the file, with one group more, made by the file's stack."""
    found = HyperPod(clock=ManualClock())
    head = group("head", 1, instance_type="ml.m5.xlarge", node_type="Controller")
    groups = [head, group("work", 4), group("old", 2)]
    tags = [{"Key": "cdk-hyperpod:stack-id", "Value": OWNER}]
    found.call("CreateCluster", {**slurm(name="small"), "InstanceGroups": groups, "Tags": tags})
    run_until_quiet(found)
    return found


@pytest.fixture
def address(model: HyperPod) -> Iterator[str]:
    with serve(model, STANDS) as found:
        yield found


def write(changes: dict[str, object]) -> None:
    Path("cluster.yaml").write_text(yaml.safe_dump(changed(changes), sort_keys=False))


def keep_old(count: int = 2) -> dict[str, object]:
    return {"instance_groups.2": {"name": "old", "instance_count": count, "partition": "p5", **SLURM}}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["plan", *arguments])
    out, err = capsys.readouterr()
    assert all(len(line) <= 80 for line in out.splitlines()), out
    assert "Traceback" not in err
    return status, out, err


def nodes(model: HyperPod, name: str) -> list[str]:
    return [str(node.instance_id) for node in model.nodes("small", name)]


def test_plan_says_that_no_node_would_be_deleted(
    address: str, capsys: pytest.CaptureFixture[str], model: HyperPod
) -> None:
    write({"instance_groups.1.instance_count": 6, **keep_old()})
    assert run(capsys, "--endpoint-url", address) == (0, "small: a deployment would delete nothing.\n", "")
    assert not model.changes(principal="user")


def test_nodes_and_groups_that_would_go(address: str, capsys: pytest.CaptureFixture[str], model: HyperPod) -> None:
    work, old = nodes(model, "work"), nodes(model, "old")
    write({"scale_down": {"nodes_to_delete": [work[0]], "instance_groups_to_delete": ["old"]}})
    status, out, err = run(capsys, "--endpoint-url", address)
    assert (status, err) == (2, "")
    assert re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "(some time ago)", out) == (
        f"""\
small: a deployment would delete 4 nodes.
The deployment does not drain these nodes or save their data. Jobs on them stop,
and local data is lost.

work: 2 nodes
  why     status   launched (UTC)    node
  named   Running  (some time ago)  {work[0]}
  newest  Running  (some time ago)  {min(work[1:])}

old: the whole group, after the cluster's own update
  why            status   launched (UTC)    node
  group deleted  Running  (some time ago)  {old[0]}
  group deleted  Running  (some time ago)  {old[1]}
"""
    )
    assert not model.changes(principal="user")


@pytest.mark.parametrize("drained", [True, False])
def test_nodes_that_are_not_launched_yet_have_no_jobs_to_lose(
    capsys: pytest.CaptureFixture[str], model: HyperPod, drained: bool
) -> None:
    model.set_capacity("ml.p5.48xlarge", 6)
    groups = [group("head", 1, instance_type="ml.m5.xlarge", node_type="Controller"), group("work", 6), group("old", 2)]
    model.call("UpdateCluster", {"ClusterName": "small", "InstanceGroups": groups})
    run_until_quiet(model, at_most=3_600)
    drains = {**DRAINS, "scale_down": {"drain": {"on_silent": "undrained"}}} if drained else {}
    with serve(model, {**STANDS, **template(drain=drained)}) as address:
        write({"instance_groups.1.instance_count": 4, **drains, **keep_old()})
        status, out, _ = run(capsys, "--endpoint-url", address)
        words = " ".join(out.split())
        assert status == 2 and words.count("not yet launched") == 2
        assert "None of them is launched yet, so no jobs run on them, and no local data is lost." in words
        assert "stop" not in words and "waits" not in words and "was not read" not in words

        write({"instance_groups.1.instance_count": 3, **drains, **keep_old()})
        words = " ".join(run(capsys, "--endpoint-url", address)[1].split())
        assert "None of them is launched" not in words and (("Jobs on them stop" in words) is not drained)


DRAINS: dict[str, object] = {
    "slurm": {"drain": {"backup": {"paths": ["/data"], "to": "/fsx/backup"}}},
    "storage": {"capacity_gib": 4800},
}
"""There is an agent that drains nodes."""


def status_of_agent(
    busy: object = (), *, ago_s: float = 0, backup: str | None = "/fsx/backup", **more: object
) -> dict[str, tuple[int, str]]:
    """What it has said last."""
    return {"GetObject": (200, agent_status(time.time() - ago_s, backup=backup, busy=busy, **more).decode())}


def job(number: int) -> dict[str, str]:
    return {"id": str(number), "user": "alice"}


def test_plan_lists_files_that_a_backup_left_out(capsys: pytest.CaptureFixture[str], model: HyperPod) -> None:
    first, *_ = sorted(nodes(model, "work"))
    write({"scale_down": {"nodes_to_delete": [first]}, **DRAINS, **keep_old()})
    said = status_of_agent(left_out={first: 12, "i-0123456789abcdef0": 3, "i-0": "many"})
    with serve(model, {**STANDS, **said}) as address:
        words = " ".join(run(capsys, "--endpoint-url", address)[1].split())
    assert f"Files left out of backups: {first} 12. manifest.json beside each backup lists them by owner." in words


@pytest.mark.parametrize("drained", [True, False])
def test_plan_lists_the_jobs_and_users_on_nodes_to_delete(
    capsys: pytest.CaptureFixture[str], model: HyperPod, drained: bool
) -> None:
    """And of the nodes that no file names, those without jobs go first where a deployment asks for them, as it does."""
    first, *others = sorted(nodes(model, "work"))
    idle = others.pop()
    write(
        {
            "scale_down": {"nodes_to_delete": [first], **({"drain": {}} if drained else {})},
            **DRAINS,
            **keep_old(),
        }
    )
    busy = {first: [job(4711), job(4712)], **{node: [job(number) for number in range(6)] for node in others}}
    with serve(model, {**STANDS, **template(drain=True), **status_of_agent(busy)}) as address:
        status, out, err = run(capsys, "--endpoint-url", address)
    assert (status, err) == (2, "")
    assert f"  {first} runs jobs: 4711 of alice, 4712 of alice\n" in out
    assert (re.search(rf"newest +Running .* {idle}", out) is not None) is drained
    assert "reports no jobs" not in out
    assert ("does not drain" in out) is not drained
    assert ("first waits for jobs or pods" in " ".join(out.split())) is drained

    write({"instance_groups.1.instance_count": 1, "scale_down": {"drain": {}}, **DRAINS, **keep_old()})
    with serve(model, {**STANDS, **status_of_agent(busy)}) as address:
        words = " ".join(run(capsys, "--endpoint-url", address)[1].split())
    some = "runs jobs: 0 of alice, 1 of alice, 2 of alice, 3 of alice, 4 of alice, and more"
    assert sum(f"{node} {some}" in words for node in others) == 1, "one of the two stays"

    # As the agent shortens a status that is too long.
    with serve(model, {**STANDS, **status_of_agent({node: [] for node in (first, *others)})}) as address:
        words = " ".join(run(capsys, "--endpoint-url", address)[1].split())
    assert words.count(" runs jobs") == 2 and "alice" not in words

    with serve(model, {**STANDS, **status_of_agent([])}) as address:
        words = " ".join(run(capsys, "--endpoint-url", address)[1].split())
    assert "reports no jobs on them" in words

    with serve(model, {**STANDS, **status_of_agent({node: [job(1)] for node in (first, *others)})}) as address:
        main(["plan", "--json", "--endpoint-url", address])
    jobs = {each["node"]: each["jobs"] for each in json.loads(capsys.readouterr().out)["nodes"]}
    assert jobs.pop(idle) == []
    assert list(jobs.values()) == [["1 of alice"]] * 2


SILENT_AGENT = "Which jobs run on them was not read: the drain agent on the controller is silent."


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {"GetObject": (403, "<Error><Code>AccessDenied</Code></Error>")},
            "Which jobs run on them was not read: your cred",
        ),
        ({"GetObject": (404, "<Error><Code>NoSuchKey</Code></Error>")}, SILENT_AGENT),
        ({}, SILENT_AGENT),
        (status_of_agent({}, ago_s=200), SILENT_AGENT),
    ],
    ids=["denied", "never said", "no bucket", "silent"],
)
def test_plan_says_in_one_sentence_why_jobs_are_unknown(
    model: HyperPod, capsys: pytest.CaptureFixture[str], answer: dict[str, tuple[int, str]], said: str
) -> None:
    write({"instance_groups.1.instance_count": 3, **DRAINS, **keep_old()})
    with serve(model, {**STANDS, **answer}) as address:
        status, out, _ = run(capsys, "--endpoint-url", address)
    assert (status, " ".join(out.split()).count(said)) == (2, 1), out
    assert "runs jobs" not in out and "reports no jobs" not in out
    write({"instance_groups.1.instance_count": 4, **DRAINS, **keep_old()})
    with serve(model, {**STANDS, **answer}) as address:
        assert "jobs" not in run(capsys, "--endpoint-url", address)[1], "nothing would go"


SILENT = "[drain-agent-silent]"
UNSAVING = "[drain-agent-without-backup]"
NEW = "[drain-new-with-group-deletion]"


@pytest.mark.parametrize(
    ("drain", "groups", "agent", "before", "told"),
    [
        pytest.param({}, [], dict, True, SILENT, id="no agent"),
        pytest.param({"on_silent": "undrained"}, [], dict, True, "", id="no agent, and it may"),
        pytest.param({}, [], lambda: status_of_agent(backup=None), True, UNSAVING, id="an agent that saves nothing"),
        pytest.param({}, ["old"], status_of_agent, True, "", id="a group"),
        pytest.param({}, ["old"], status_of_agent, False, NEW, id="a group, and draining is new"),
        pytest.param({}, [], status_of_agent, False, "", id="a node, and draining is new"),
        pytest.param(
            {}, ["old"], lambda: {"GetObject": (403, DENIED)}, False, NEW, id="the same, and the status is not read"
        ),
        pytest.param({}, ["old"], status_of_agent, None, "", id="a group, and the template is not read"),
    ],
)
def test_plan_refuses_what_the_first_poll_of_a_deployment_would_refuse(
    model: HyperPod,
    capsys: pytest.CaptureFixture[str],
    drain: dict[str, str],
    groups: list[str],
    agent: Callable[[], dict[str, tuple[int, str]]],
    before: bool | None,
    told: str,
) -> None:
    """`agent`: what S3 answers of it, now. `before`: whether the stack drains already; None: nobody may read that."""
    named = {"scale_down": {"instance_groups_to_delete": groups, "drain": drain}, "instance_groups.1.instance_count": 3}
    write({**named, **DRAINS, **({} if groups else keep_old())})
    deployed = {"GetTemplate": (403, DENIED)} if before is None else template(drain=before)
    with serve(model, {**STANDS, **deployed, **agent()}) as address:
        status, out, _ = run(capsys, "--endpoint-url", address)
    assert (status, told in " ".join(out.split())) == (1 if told else 2, True), out


def test_plan_prints_every_reason_for_a_refusal(
    address: str, capsys: pytest.CaptureFixture[str], model: HyperPod
) -> None:
    head = nodes(model, "head")[0]
    write({"scale_down": {"nodes_to_delete": [head], "max_nodes": 1}})
    status, out, err = run(capsys, "--endpoint-url", address)
    assert (status, err) == (1, "")
    assert (
        out
        == f"""\
small: the deployment would be refused and delete nothing (3 reasons).

  instance_groups: the live group "old" with 2 nodes is missing. Removing a
    group from the file does not delete it
    → put it back, or name it in scale_down.instance_groups_to_delete
      [group-missing]

  scale_down.nodes_to_delete: {head} is in the controller group
    "head", and HyperPod never deletes a controller node
    → remove it from the list [node-of-controller-group]

  scale_down.max_nodes: is 1, and this deployment would delete 3 nodes
    → raise it to 3 if you want that, or delete them in several deployments
      [nodes-above-limit]
"""
    )


def test_type_that_cannot_change(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    write({"instance_groups.1.instance_type": "ml.p4d.24xlarge", **keep_old()})
    status, out, _ = run(capsys, "--endpoint-url", address)
    assert status == 1
    text = " ".join(out.split())
    assert "instance_groups[work].instance_type: is ml.p4d.24xlarge" in text
    assert codes(text) == ["group-setting-immutable"]


@pytest.mark.parametrize("deployed", [None, "ami-0fedcba9876543210"], ids=["new", "changed"])
def test_an_image_that_nodes_do_not_run_is_refused_as_in_a_deployment(
    model: HyperPod, capsys: pytest.CaptureFixture[str], deployed: str | None
) -> None:
    image = next(
        group["CurrentImageId"]
        for group in model.call("DescribeCluster", {"ClusterName": "small"})["InstanceGroups"]
        if group["InstanceGroupName"] == "work"
    )
    cluster = {"InstanceGroups": [{"InstanceGroupName": "work", **({"ImageId": deployed} if deployed else {})}]}
    resources = {"Cluster": {"Type": "AWS::SageMaker::Cluster", "Properties": cluster}}
    kept = {"instance_groups.1.instance_count": 6, **keep_old()}
    with serve(model, {**STANDS, **template_with(resources)}) as address:
        write({**kept, "instance_groups.1.image_id": "ami-0123456789abcdef0"})
        status, out, _ = run(capsys, "--endpoint-url", address)
        text = " ".join(out.split())
        assert (status, codes(text)) == (1, ["nodes-re-imaged"])
        assert "re-images 4 nodes of work and ends their jobs → run `cdk-hyperpod patch work`, then deploy." in text
        write({**kept, "instance_groups.1.image_id": image})
        assert run(capsys, "--endpoint-url", address)[0] == 0


def test_network_and_role_of_a_group_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    found = HyperPod(clock=ManualClock())
    elsewhere = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    groups = [
        group("head", 1, instance_type="ml.m5.xlarge", node_type="Controller"),
        group("work", 2, OverrideVpcConfig=elsewhere, ExecutionRole="arn:aws:iam::000000000000:role/other"),
    ]
    tags = [{"Key": "cdk-hyperpod:stack-id", "Value": OWNER}]
    found.call("CreateCluster", {**slurm(name="small"), "InstanceGroups": groups, "Tags": tags})
    run_until_quiet(found)
    with serve(found) as address:
        assert run(capsys, "--endpoint-url", address)[0] == 0


@pytest.fixture
def joining() -> HyperPod:
    """The EKS cluster of tests/helpers/configs/eks_existing.yaml, in which Karpenter has made three nodes of trn1."""
    Path("cluster.yaml").write_text((ROOT / "tests/helpers/configs/eks_existing.yaml").read_text("utf-8"))
    found = HyperPod(clock=ManualClock())
    groups = [
        group("system", 2, instance_type="ml.m5.4xlarge", node_type=None),
        group("trn1", 3, instance_type="ml.trn1.32xlarge", node_type=None),
    ]
    tags = [{"Key": "cdk-hyperpod:stack-id", "Value": OWNER.replace("small", "joining")}]
    found.call("CreateCluster", eks(*groups, name="joining", Tags=tags))
    run_until_quiet(found)
    return found


def test_count_of_an_autoscaler_is_refused_as_in_a_deployment(
    joining: HyperPod, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(joining) as address:
        status, out, err = run(capsys, "--endpoint-url", address)
    assert (status, err) == (1, "")
    assert "instance_groups[trn1].instance_count: is 0" in out and "[autoscaled-count-too-low]" in out


def test_named_nodes_alone_go_from_an_autoscalers_group(joining: HyperPod, capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = sorted(str(node.instance_id) for node in joining.nodes("joining", "trn1"))
    text = Path("cluster.yaml").read_text("utf-8").replace("instance_count: 0", "instance_count: 3")
    Path("cluster.yaml").write_text(text.partition("scale_down:")[0] + f"scale_down: {{nodes_to_delete: [{first}]}}\n")
    with serve(joining) as address:
        status, out, err = run(capsys, "--endpoint-url", address)
    assert (status, err) == (2, "")
    assert re.search(rf"named +Running .*{first}", out)
    assert not any(other in out for other in others)


KUBECTL = """\
#!/bin/sh
case "$*" in
"config view -o json") echo '{"contexts": [{"name": "ours", "context": {"cluster": "%s"}}]}' ;;
"--context ours get nodes -o json") cat nodes.json ;;
"--context ours get pods --all-namespaces --field-selector=status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!= -o json") cat pods.json ;;
*) echo "error: $*" >&2; exit 1 ;;
esac
"""


def on_node(instance: str, name: str, namespace: str = "research", owner: str = "Job") -> dict[str, object]:
    owners = [{"controller": True, "kind": owner}] if owner else []
    metadata = {"name": name, "namespace": namespace, "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"nodeName": f"hyperpod-{instance}"}}


def kubernetes(model: HyperPod, pods: list[dict[str, object]], held: str = "", why: str = "") -> None:
    """A kubectl that tells of the cluster's nodes and of these pods. `held`: an instance that a drainer holds; `why`: it fails."""
    names = [str(node.instance_id) for group in ("system", "trn1") for node in model.nodes("joining", group)]
    mark = {"annotations": {"cdk-hyperpod.dev/drain": "{}"}}
    nodes = [
        {"metadata": {"name": f"hyperpod-{name}", "resourceVersion": "1", **(mark if name == held else {})}}
        for name in names
    ]
    Path("nodes.json").write_text(json.dumps({"items": nodes}))
    Path("pods.json").write_text(json.dumps({"items": pods}))
    Path("bin").mkdir(exist_ok=True)
    program = Path("bin/kubectl")
    program.write_text(f"#!/bin/sh\necho '{why}' >&2\nexit 1\n" if why else KUBECTL % EKS_ARN)
    program.chmod(0o755)


@pytest.fixture
def shrinking(joining: HyperPod, monkeypatch: pytest.MonkeyPatch) -> HyperPod:
    """The cluster, whose file takes one of the two nodes of a group, and drains it."""
    text = (
        Path("cluster.yaml")
        .read_text("utf-8")
        .partition("scale_down:")[0]
        .replace("instance_count: 0", "instance_count: 3")
    )
    text = text.replace("instance_count: 2", "instance_count: 1", 1)
    Path("cluster.yaml").write_text(f"{text}scale_down: {{drain: {{}}}}\n")
    monkeypatch.setenv("PATH", f"{Path('bin').resolve()}:/usr/bin:/bin")
    return joining


def test_plan_lists_pods_on_nodes_to_delete_with_the_users_kubectl(
    shrinking: HyperPod, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the drainer's rules: idle before busy, and neither DaemonSets nor kube-system make a node busy."""
    first, second = sorted(str(node.instance_id) for node in shrinking.nodes("joining", "system"))
    ignored = [on_node(first, "agent", owner="DaemonSet"), on_node(first, "coredns", "kube-system")]
    kubernetes(shrinking, [*ignored, on_node(second, "train-0")], held=first)
    with serve(shrinking, template(drain=True)) as address:
        status, out, err = run(capsys, "--endpoint-url", address)
        words = " ".join(out.split())
        assert (status, err) == (2, "")
        assert first in out and f"{second} " not in words.partition("Held by")[0]
        assert "Kubernetes reports no pods on them" in words
        assert f"Held by a deployment that is running, or that failed: hyperpod-{first}. The next deployment" in words

        pods = [on_node(name, f"train-{number}") for name in (first, second) for number in range(7)]
        kubernetes(shrinking, pods)
        out = run(capsys, "--endpoint-url", address)[1]
        shown = ", ".join(f"research/train-{number}" for number in range(5))
        assert f"runs pods: {shown}, and more" in " ".join(out.split())
        assert "Held by" not in out
        main(["plan", "--json", "--endpoint-url", address])
        (node,) = json.loads(capsys.readouterr().out)["nodes"]
        assert node["jobs"] == [f"research/train-{number}" for number in range(6)]


def test_pods_that_no_controller_owns_refuse_the_plan_as_they_would_the_deployment(
    shrinking: HyperPod, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = sorted(str(node.instance_id) for node in shrinking.nodes("joining", "system"))
    kubernetes(shrinking, [on_node(name, "lone", owner="") for name in nodes])
    with serve(shrinking, template(drain=True)) as address:
        status, out, err = run(capsys, "--endpoint-url", address)
        assert (status, err) == (1, "")
        words = " ".join(out.split())
        assert set(codes(words)) == {"pods-unmanaged"} and "research/lone" in words

        text = Path("cluster.yaml").read_text().replace("drain: {", "drain: {unmanaged_pods: evict, ")
        Path("cluster.yaml").write_text(text)
        assert run(capsys, "--endpoint-url", address)[0] == 2


@pytest.mark.parametrize(
    ("pods", "why", "says"),
    [
        ([], 'pods is forbidden: User "me" cannot list', 'kubectl: pods is forbidden: User "me" cannot list.'),
        ([{}], "", "kubectl printed invalid nodes or pods."),
    ],
)
def test_plan_says_in_one_sentence_why_pods_are_unknown(
    shrinking: HyperPod, capsys: pytest.CaptureFixture[str], pods: list[dict[str, object]], why: str, says: str
) -> None:
    kubernetes(shrinking, pods, why=why)
    with serve(shrinking, template(drain=True)) as address:
        status, out, err = run(capsys, "--endpoint-url", address)
    assert (status, err) == (2, "")
    assert f"Which pods run on them was not read: {says}" in " ".join(out.split())
    assert "runs pods" not in out and "reports no pods" not in out


def test_taking_the_drainer_away_names_what_it_still_holds(
    shrinking: HyperPod, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        Path("cluster.yaml").read_text().replace("instance_count: 1", "instance_count: 2").partition("scale_down:")[0]
    )
    Path("cluster.yaml").write_text(text)
    first = str(shrinking.nodes("joining", "system")[0].instance_id)
    kubernetes(shrinking, [], held=first)
    with serve(shrinking, template(drain=True)) as address:
        status, out, err = run(capsys, "--endpoint-url", address)
    assert (status, err) == (0, "")
    words = " ".join(out.split())
    assert f"hyperpod-{first}." in words and "`kubectl uncordon" in words


def test_the_help_of_plan_names_what_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "roles and subnets of groups are known only to a deployment" in words


def test_nodes_that_would_have_to_wait(address: str, capsys: pytest.CaptureFixture[str], model: HyperPod) -> None:
    last, *_, first = sorted(nodes(model, "work"))
    model.change_node(first, status="DeepHealthCheckInProgress", due=model.clock.now() + 3_600)
    write({"instance_groups.1.instance_count": 3, **keep_old()})
    status, out, _ = run(capsys, "--endpoint-url", address)
    assert status == 2
    assert re.search(rf"newest +Running .*{last}", out)
    assert out.endswith(
        'It would first wait, because\n  - HyperPod runs a deep health check on 1 node of group "work"\n'
    )


def test_cluster_of_another_stack(address: str, capsys: pytest.CaptureFixture[str], model: HyperPod) -> None:
    arn = model.cluster("small").arn
    other = OWNER.replace("small", "small2")
    model.call("AddTags", {"ResourceArn": arn, "Tags": [{"Key": "cdk-hyperpod:stack-id", "Value": other}]})
    write(keep_old())
    status, out, _ = run(capsys, "--endpoint-url", address, "--stack", cluster_stack_name("small"))
    assert status == 1
    text = " ".join(out.split())
    assert "cdk-hyperpod:stack-id = the id of stack hyperpod-small-cluster" in text
    assert "[cluster-of-another-stack]" in text


def of_training(model: HyperPod) -> None:
    """The cluster is in a stack of an app that is not this one."""
    tags = [{"Key": "cdk-hyperpod:stack-id", "Value": OWNER.replace(cluster_stack_name("small"), "Training")}]
    model.call("AddTags", {"ResourceArn": model.cluster("small").arn, "Tags": tags})


@pytest.mark.parametrize("options", [[], ["--stack", "Training"]], ids=["by its tag", "named"])
def test_cluster_of_another_apps_stack_is_planned_for_that_stack(
    address: str, capsys: pytest.CaptureFixture[str], model: HyperPod, options: list[str]
) -> None:
    of_training(model)
    write({"instance_groups.1.instance_count": 3, **keep_old()})
    status, out, err = run(capsys, "--endpoint-url", address, *options)
    assert (status, err) == (2, "")
    assert "work: 1 node\n" in out
    words = " ".join(out.split())
    assert "This plan is for stack Training" in words and "hyperpod-small-cluster" in words


@pytest.mark.parametrize("options", [["--stack", "Inference"], ["--confirm", "--yes"]], ids=["named", "before ours"])
def test_cluster_of_another_stack_than_the_one_that_is_deployed(
    address: str, capsys: pytest.CaptureFixture[str], model: HyperPod, options: list[str]
) -> None:
    of_training(model)
    write(keep_old())
    status, out, _ = run(capsys, "--endpoint-url", address, *options)
    assert status == 1
    stack = "Inference" if "--stack" in options else "hyperpod-small-cluster"
    assert f"it lacks the tag cdk-hyperpod:stack-id = the id of stack {stack}" in " ".join(out.split())


def test_plan_without_a_cluster_says_that_nothing_would_be_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(HyperPod(clock=ManualClock()), STANDS) as address:
        assert run(capsys, "--endpoint-url", address) == (
            0,
            "There is no cluster small yet: a deployment would delete nothing.\n",
            "",
        )


def test_plan_of_a_renamed_cluster_names_the_old_cluster_that_stays(
    address: str, capsys: pytest.CaptureFixture[str], model: HyperPod
) -> None:
    model.call("CreateCluster", {**eks(group("work", 1, node_type=None), name="of-another-app")})
    write({"name": "tiny"})
    status, out, err = run(capsys, "--endpoint-url", address)

    assert (status, err) == (0, "")
    assert out == (
        "There is no cluster tiny yet: a deployment would delete nothing.\n"
        "\n"
        "us-west-2 has 1 other cluster: small (7 nodes). If you have changed the name in\n"
        "the file, the old cluster stays: a deployment creates tiny beside it, and you\n"
        "pay for both, nodes and stacks (such as hyperpod-small-foundation and\n"
        "hyperpod-small-cluster). To keep the old cluster, write its name in the file\n"
        "again. To delete it, write its name in a copy of the file, and run\n"
        "`cdk destroy --all -c config=COPY` (docs/removal.md).\n"
    )


def test_other_clusters_that_may_not_be_listed_are_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    empty = HyperPod(clock=ManualClock())
    empty.faults.denied_until["ListClusters"] = empty.clock.now() + 1_000
    with serve(empty, STANDS) as address:
        status, out, _ = run(capsys, "--endpoint-url", address)

    assert status == 0
    assert "Whether another cluster exists, which a renamed file would leave, was not read:" in " ".join(out.split())


# -- failures: one line, no stack trace -------------------------------------------------------------------------------


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status, out, err = run(capsys, *arguments)
    assert (status, out, err.count("\n")) == (1, "", 1)
    return err.rstrip()


@pytest.mark.parametrize("command", ["plan", "why", "credentials"])
def test_credentials_that_are_not_there(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert main([command]) == 1
    assert capsys.readouterr().err.rstrip() == (
        "no AWS credentials found. Name a profile of your AWS configuration by AWS_PROFILE=NAME or --profile NAME "
        "(PROFILE=NAME with make)"
    )


def test_profile_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(capsys, "--profile", "nobody") == (
        "your AWS credentials cannot be read: The config profile (nobody) could not be found"
    )


def test_credentials_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["credentials"]) == 0
    assert capsys.readouterr().out == "There are AWS credentials.\n"


def test_profile_gives_the_credentials(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    Path("credentials").write_text("[ops]\naws_access_key_id = a\naws_secret_access_key = b\n")
    write(keep_old())
    assert run(capsys, "--profile", "ops", "--endpoint-url", address)[0] == 2


def test_plan_with_an_unreachable_endpoint_prints_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert failed(capsys, "--endpoint-url", address).startswith(
            "cannot read cluster small in us-west-2: AWS cannot be reached: Could not connect to the endpoint URL: "
            f'"{address}/"'
        )


def test_endpoint_that_is_no_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(capsys, "--endpoint-url", "nowhere").startswith("Invalid endpoint: nowhere. Write https://HOST")


def test_permission_that_is_missing(address: str, capsys: pytest.CaptureFixture[str], model: HyperPod) -> None:
    model.faults.denied_until["ListClusterNodes"] = model.clock.now() + 1_000
    assert failed(capsys, "--endpoint-url", address).startswith(
        "cannot read cluster small in us-west-2: your credentials lack the permission sagemaker:ListClusterNodes"
    )


def test_credentials_of_another_account(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    write({"account": "111122223333", **keep_old()})
    assert failed(capsys, "--endpoint-url", address).startswith(
        "account: the file says 111122223333, but your credentials are of 000000000000"
    )


def identity(account: str) -> dict[str, tuple[int, str]]:
    told = f"<GetCallerIdentityResult><Account>{account}</Account></GetCallerIdentityResult>"
    return {"GetCallerIdentity": (200, f"<GetCallerIdentityResponse>{told}</GetCallerIdentityResponse>")}


def test_credentials_of_another_account_where_there_is_no_cluster(
    model: HyperPod, capsys: pytest.CaptureFixture[str]
) -> None:
    """There a deployment would make everything anew, in an account that nobody meant."""
    write({"name": "tiny", "account": "111122223333"})
    with serve(model, {**STANDS, **identity("444455556666")}) as address:
        assert failed(capsys, "--endpoint-url", address).startswith(
            "account: the file says 111122223333, but your credentials are of 444455556666"
        )
    with serve(model, {**STANDS, **identity("111122223333")}) as address:
        assert run(capsys, "--endpoint-url", address)[0] == 0


def test_an_account_that_cannot_be_read_stops_the_plan(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The served model knows no such call. Without `account` in the file, nobody asks (test_plan_without_a_cluster_says_that_nothing_would_be_deleted)."""
    write({"name": "tiny", "account": "111122223333"})
    said = failed(capsys, "--endpoint-url", address)
    assert said.startswith("cannot read the account of your credentials: GetCallerIdentity: ValidationError")


def test_plan_without_boto3_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['botocore'] = None; from cdk_hyperpod.cli.main import main; sys.exit(main(['plan']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "this command needs boto3, which is not installed. Install it by pip install boto3\n"


def test_file_that_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    write({"name": REMOVED})
    status, out, err = run(capsys)
    assert (status, out) == (1, "")
    assert err.startswith("cluster.yaml: 1 error\n  line 1  name: ")
    assert reported(err) == [("setting-missing", "name")]


def test_colour_on_a_terminal_only(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(**environment: str) -> Any:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        main(["plan", "--endpoint-url", address])
        return capsys.readouterr().out

    assert "\033" not in shown()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert shown().startswith("\033[31msmall: the deployment would be refused")
    assert "\033" not in shown(NO_COLOR="1")


# -- what is for life, and what an earlier deployment left ------------------------------------------------------------


def test_plan_refuses_an_immutable_change_in_the_words_of_the_deployment(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write({"network.availability_zones": ["us-west-2a"], **keep_old()})
    status, out, err = run(capsys, "--endpoint-url", address)
    assert (status, err) == (1, "")
    assert out.startswith("small: the deployment would be refused and delete nothing (1 reason).\n")
    text = " ".join(out.split())
    assert "network.availability_zones: " in text and "us-west-2a" in text and "us-west-2c" in text
    assert codes(text) == ["zone-immutable"]


def test_plan_reports_a_denied_read_and_continues(model: HyperPod, capsys: pytest.CaptureFixture[str]) -> None:
    write({"instance_groups.1.instance_count": 6, **keep_old()})
    denied = (
        "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>"
    )
    with serve(model, {**STANDS, "DescribeSubnets": (403, denied)}) as address:
        status, out, err = run(capsys, "--endpoint-url", address)
    assert (status, err) == (0, "")
    words = " ".join(out.split())
    assert "Immutable settings were not compared" in words and "DescribeSubnets" in words


@pytest.mark.parametrize(("standing", "told"), [("old: 2 nodes", True), ("nothing", False), (None, False)])
def test_plan_names_the_groups_that_are_left_and_how_to_retry(
    model: HyperPod, capsys: pytest.CaptureFixture[str], standing: str | None, told: bool
) -> None:
    write({"scale_down": {"instance_groups_to_delete": ["old"]}})
    output = f"<member><OutputKey>StillStanding</OutputKey><OutputValue>{standing}</OutputValue></member>"
    outputs = "" if standing is None else f"<Outputs>{output}</Outputs>"
    stack = f"<Stacks><member><StackName>x</StackName>{outputs}</member></Stacks>"
    reply = f"<DescribeStacksResponse><DescribeStacksResult>{stack}</DescribeStacksResult></DescribeStacksResponse>"
    with serve(model, {**STANDS, "DescribeStacks": (200, reply)}) as address:
        status, out, err = run(capsys, "--endpoint-url", address)
    assert (status, err) == (2, "")
    words = " ".join(out.split())
    assert ("old: 2 nodes" in words) is told
    assert ("scale_down.retry" in words) is told


TYPO = "i-0123456789abcdef0"


def template(*ids: str, settings: Record | None = None, drain: bool = False) -> dict[str, tuple[int, str]]:
    """The template that was deployed last, with these nodes to delete and the record of its file; whether it drains."""
    properties = {"NodesToDelete": list(ids), **({"Drain": "{}"} if drain else {})}
    guard = {"Type": "Custom::HyperPodScaleDown", "Properties": properties}
    handle: dict[str, object] = {"Type": "AWS::CloudFormation::WaitConditionHandle"}
    if settings is not None:
        handle["Metadata"] = {METADATA: settings}
    return template_with({"Settings": handle, "ScaleDownPrepare": guard})


def template_with(resources: Mapping[str, object]) -> dict[str, tuple[int, str]]:
    body = escape(json.dumps({"Resources": resources}))
    reply = f"<GetTemplateResult><TemplateBody>{body}</TemplateBody></GetTemplateResult>"
    return {"GetTemplate": (200, f"<GetTemplateResponse>{reply}</GetTemplateResponse>")}


REFUSED = "[nodes-not-in-cluster]"
UNREAD = "The deployed template was not read"


@pytest.mark.parametrize(
    ("deployed", "count", "status", "told"),
    [
        pytest.param(template(), 3, 1, REFUSED, id="new, and another would go"),
        pytest.param({}, 3, 1, REFUSED, id="no stack of that name"),
        pytest.param(template("i-0bad0bad"), 4, 0, f"not in this cluster: {TYPO}", id="new, and none would go"),
        pytest.param(template("i-0bad0bad", TYPO), 3, 2, "work: 1 node", id="deployed before"),
        pytest.param(
            {"GetTemplate": (403, DENIED)},
            3,
            2,
            f"{UNREAD}: your credentials lack the permission GetTemplate. ",
            id="denied",
        ),
        pytest.param(
            {"GetTemplate": (200, "<GetTemplateResponse><GetTemplateResult/></GetTemplateResponse>")},
            3,
            2,
            f"{UNREAD}: the stack's template is not JSON.",
            id="no JSON",
        ),
    ],
)
def test_an_id_that_is_no_node_is_judged_as_a_deployment_does(
    model: HyperPod,
    capsys: pytest.CaptureFixture[str],
    deployed: dict[str, tuple[int, str]],
    count: int,
    status: int,
    told: str,
) -> None:
    write({"instance_groups.1.instance_count": count, "scale_down": {"nodes_to_delete": [TYPO]}, **keep_old()})
    with serve(model, {**STANDS, **deployed}) as address:
        found, out, _ = run(capsys, "--endpoint-url", address)
    assert (found, told in " ".join(out.split())) == (status, True), out


def test_each_changed_setting_with_what_its_change_does(
    address: str, capsys: pytest.CaptureFixture[str], model: HyperPod
) -> None:
    write(keep_old())
    deployed = record(load_config("cluster.yaml").config)
    write(
        {
            "node_recovery": "none",
            "instance_groups.1.instance_count": 5,
            **keep_old(),
            "lifecycle.steps": {"clock": False},
        }
    )
    with serve(model, {**STANDS, **template(settings=deployed)}) as found:
        status, out, _ = run(capsys, "--endpoint-url", found)

    assert status == 0
    assert out.split("\n\n", 1)[1] == (
        "New nodes only: running nodes do not change; new and replaced ones get it\n"
        "  lifecycle.steps.clock: true → false; lifecycle run applies it to the others\n"
        "\n"
        "In place: running nodes stay, except those that a line below names\n"
        "  instance_groups[work].instance_count: 2 → 5; nodes are added\n"
        "  node_recovery: automatic → none\n"
    )


def test_a_group_that_is_named_for_deletion_is_deleted_and_not_refused(
    model: HyperPod, capsys: pytest.CaptureFixture[str]
) -> None:
    write(keep_old())
    deployed = record(load_config("cluster.yaml").config)
    write({"scale_down": {"instance_groups_to_delete": ["old"]}})
    with serve(model, {**STANDS, **template(settings=deployed)}) as found:
        status, out, _ = run(capsys, "--endpoint-url", found)

    assert status == 2 and "old: the whole group" in out and "Refused" not in out
    assert out.endswith(
        "Deletes nodes: running ones lose jobs and local data, unless they are drained\n"
        "  instance_groups[old]: removed; the group is deleted with all its nodes\n"
        "  scale_down.instance_groups_to_delete: [old]; these groups are deleted with all\n"
        "    their nodes\n"
    )


def test_changed_settings_of_a_refused_deployment_do_not_read_as_if_they_were_deployed(
    model: HyperPod, capsys: pytest.CaptureFixture[str]
) -> None:
    write(keep_old())
    deployed = record(load_config("cluster.yaml").config)
    write({"scale_down": {"instance_groups_to_delete": ["old"], "max_nodes": 1}})
    with serve(model, {**STANDS, **template(settings=deployed)}) as found:
        status, out, _ = run(capsys, "--endpoint-url", found)

    assert status == 1 and "[nodes-above-limit]" in out
    assert "What the changed settings do in a deployment that is not refused:\n\nDeletes nodes: " in out


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        pytest.param(None, "The stack keeps no record of its file. ", id="no record"),
        pytest.param({}, "In place", id="everything is new"),
        pytest.param("itself", "No setting differs from what was deployed.", id="the same file"),
    ],
)
def test_a_plan_says_what_it_can_of_the_settings(
    model: HyperPod, capsys: pytest.CaptureFixture[str], settings: Record | str | None, told: str
) -> None:
    write({"instance_groups.1.instance_count": 4, **keep_old()})
    kept = record(load_config("cluster.yaml").config) if isinstance(settings, str) else settings
    with serve(model, {**STANDS, **template(settings=kept)}) as found:
        _, out, _ = run(capsys, "--endpoint-url", found)

    assert told in out


# -- before a deployment ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "answer", "status", "told"),
    [
        pytest.param(["--confirm", "--yes"], None, 0, "", id="it is meant"),
        pytest.param(["--confirm"], "y\n", 0, "", id="yes"),
        pytest.param(["--confirm"], "\n", 1, "nothing was deployed", id="not yes"),
        pytest.param(["--confirm"], "", 1, "nothing was deployed", id="the end of the input"),
        pytest.param(
            ["--confirm"],
            None,
            1,
            "there is no terminal to confirm on",
            id="nobody is there",
        ),
    ],
)
def test_plan_asks_for_confirmation_if_nodes_would_be_deleted(
    address: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    answer: str | None,
    status: int,
    told: str,
) -> None:
    typed = io.StringIO(answer)
    monkeypatch.setattr(typed, "isatty", lambda: answer is not None)
    monkeypatch.setattr(sys, "stdin", typed)
    write({"scale_down": {"instance_groups_to_delete": ["old"]}})
    found, out, err = run(capsys, "--endpoint-url", address, *arguments)
    assert found == status
    assert told in err and bool(err) is bool(told)
    assert ("[y/N]" in out) is (answer is not None)


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"instance_groups.1.instance_count": 6, **keep_old()}, 0), ({"scale_down": {"max_nodes": 1}}, 1)],
)
def test_plan_asks_nothing_if_no_node_would_be_deleted_or_the_plan_is_refused(
    address: str, capsys: pytest.CaptureFixture[str], changes: dict[str, object], status: int
) -> None:
    write(changes)
    found, out, _ = run(capsys, "--endpoint-url", address, "--confirm", "--yes")
    assert found == status and "?" not in out


def test_json_says_which_nodes_go_and_why(address: str, capsys: pytest.CaptureFixture[str], model: HyperPod) -> None:
    write({"instance_groups.1.instance_count": 3, **keep_old()})
    assert main(["plan", "--json", "--endpoint-url", address]) == 2
    told = json.loads(capsys.readouterr().out)
    (node,) = told["nodes"]
    assert (told["command"], told["schema"], told["exit_code"], told["stack"]) == (
        "plan",
        1,
        2,
        "hyperpod-small-cluster",
    )
    assert node["node"] in nodes(model, "work") and (node["group"], node["reason"]) == ("work", "newest")
    assert (told["deleted_groups"], told["refusals"], told["changes"], node["jobs"]) == ([], [], None, None)

    write({"instance_groups.1.instance_count": 3, "scale_down": {"nodes_to_delete": [TYPO]}, **keep_old()})
    assert main(["plan", "--json", "--endpoint-url", address]) == 1
    assert json.loads(capsys.readouterr().out)["refusals"][0]["remedy"]
    assert main(["plan", "--json", "--confirm"]) == 2
