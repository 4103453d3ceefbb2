"""`cdk-hyperpod nodes`: the table of no, one and 6,758 nodes, its filters, JSON, and what it writes into a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.loaders import Loader  # type: ignore[import-untyped]
from botocore.session import Session  # type: ignore[import-untyped]

from cdk_hyperpod._common.assets import models_dir
from cdk_hyperpod.cli import kubernetes
from cdk_hyperpod.cli.nodes.nodes import IMAGES, STATUSES
from cdk_hyperpod_local.hyperpod.samples import EKS_ARN, eks, group
from helpers.cli.cluster_files import FILE
from unit.cli.conftest import FakeAws, Run, write


def test_nodes_of_an_empty_cluster_print_one_line(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.model.call("CreateCluster", eks(group("work", 0, node_type=None), name="small"))
    fake_aws.quiet()

    assert run("nodes") == (0, "small: no nodes\n", "")
    assert run("nodes", "--ids") == (0, "", "")


def test_one_node_and_its_controller_in_80_columns(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    fake_aws.model.clock.advance(3 * 86_400)  # type: ignore[attr-defined]
    head, work = fake_aws.nodes()
    fake_aws.model.change_node(work, status="Failure")

    assert run("nodes") == (
        0,
        (
            "node                 slurm node        group  status   image     age  zone\n"
            f"{head}  ip-10-5-47-68     head   Running  UpToDate   3d  us-west-2c\n"
            f"{work}  ip-10-13-176-116  work   Failure  UpToDate   3d  us-west-2c\n"
            "small: 2 nodes (1 Failure, 1 Running)\n"
            "note: docs/at-3-am.md says what to do about a node in Failure\n"
        ),
        "",
    )
    assert fake_aws.calls == ["sagemaker:describe_cluster", "sagemaker:list_cluster_nodes"]


def test_6758_nodes_take_a_call_for_each_hundred_and_two_more(
    fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a-group-whose-name-is-rather-long-and-says-a-lot"
    fake_aws.cluster(group(name, 1))
    fake_aws.quiet()
    write(network__availability_zones=[])
    first = fake_aws.model.client().list_cluster_nodes(ClusterName="small", MaxResults=100)["ClusterNodeSummaries"][1]
    every = [{**first, "InstanceId": f"i-{number:017x}"} for number in range(6758)]
    asked = []

    def page(self: object, *, NextToken: str = "0", MaxResults: int, **_: object) -> dict[str, object]:
        asked.append(NextToken)
        begin, end = int(NextToken), int(NextToken) + MaxResults
        return {"ClusterNodeSummaries": every[begin:end], **({"NextToken": str(end)} if end < len(every) else {})}

    monkeypatch.setattr("cdk_hyperpod_local.hyperpod.client.Client.list_cluster_nodes", page, raising=False)
    status, out, err = run("nodes")
    lines = out.splitlines()

    assert (status, err) == (0, "")
    assert lines[0] == f"node{' ' * 17}slurm node{' ' * 7}group{' ' * 15}status   image     age"
    assert lines[1] == "i-00000000000000000  ip-10-2-248-172  a-group-whose-nam…  Running  UpToDate  10m"
    assert lines[-1] == "small: 6758 nodes (6758 Running); zone of all: us-west-2b" and len(lines) == 6760
    assert max(map(len, lines)) == 80
    assert len(asked) == 68 and len(fake_aws.calls) == 68 + 2


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--group", "work"], ["work", "work"]),
        (["--group", "work", "--status", "failure"], ["work"]),
        (["--status", "Running"], ["head", "work"]),
        (["--image", "outdated"], ["work"]),
        (["--image", "UpToDate"], ["head", "work"]),
        (["--image", "EndOfLife"], []),
    ],
    ids=" ".join,
)
def test_nodes_can_be_filtered_by_group_status_and_image(
    options: list[str], found: list[str], fake_aws: FakeAws, run: Run
) -> None:
    fake_aws.cluster(group("work", 2))
    fake_aws.quiet()
    fake_aws.model.change_node(fake_aws.nodes("work")[1], status="Failure", image="1.0")

    status, out, _ = run("nodes", "--json", *options)
    assert status == 0
    assert [node["group"] for node in json.loads(out)["nodes"]] == found
    assert run("nodes", "--ids", *options)[1].split() == [node["instance_id"] for node in json.loads(out)["nodes"]]


def test_under_eks_no_node_is_a_controller(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.model.call("CreateCluster", eks(group("work", 2, node_type=None), name="small"))
    fake_aws.quiet()
    Path("cluster.yaml").unlink()

    status, out, _ = run("nodes", "--cluster", "small", "--region", "us-west-2")
    assert status == 0 and out.splitlines()[1].endswith("  us-west-2b")
    told = json.loads(run("nodes", "--cluster", "small", "--region", "us-west-2", "--json")[1])["nodes"]
    assert [node["node_type"] for node in told] == [None, None]
    assert run("replace", *fake_aws.nodes("work"), "--yes", "--cluster", "small", "--region", "us-west-2")[0] == 0


def test_nodes_refuses_an_unknown_group_and_an_unknown_node(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()

    status, out, err = run("nodes", "--group", "wrok")
    assert (status, out) == (1, "") and err.startswith("--group wrok: ") and "head, work" in err
    status, _, err = run("nodes", "i-0bad0bad")
    assert status == 1 and err.startswith("i-0bad0bad: is not a node of the cluster. ")


def test_json_has_a_schema_version_and_null_for_unknown_values(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()

    told = json.loads(run("nodes", "--json")[1])
    node = told["nodes"][1]
    assert (told["command"], told["schema"], told["cluster"], told["notes"]) == ("nodes", 1, "small", [])
    assert node["launch_time"].endswith("Z") and node["availability_zone"] == "us-west-2c"
    assert node["node_type"] == "Compute" and node["drain_state"] is None and node["host"].startswith("ip-10-")


def test_a_node_that_is_not_launched_yet(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.model.set_capacity("ml.p5.48xlarge", 0)
    fake_aws.cluster(group("work", 1))
    fake_aws.model.clock.advance(1_800)  # type: ignore[attr-defined]

    _, out, _ = run("nodes", "--group", "work")
    row = out.splitlines()[1].split()
    assert row[1:3] == ["work", "Pending"] and row[4] == "-" and not row[0].startswith("i-")
    assert run("nodes", "--group", "work", "--ids")[1] == ""


def test_the_drain_state_is_a_column(fake_aws: FakeAws, run: Run) -> None:
    write(slurm={"drain": {}}, account="000000000000")
    fake_aws.cluster(group("work", 2))
    fake_aws.quiet()
    assert "drain" not in run("nodes")[1].splitlines()[0]

    first = fake_aws.nodes("work")[0]
    fake_aws.status = json.dumps({"schema": 1, "nodes": {first: {"state": "draining\x1b[2J"}}}).encode()
    out = run("nodes")[1]
    assert out.splitlines()[0].endswith("drain") and "draining?[2J" in out and "\x1b" not in out

    fake_aws.status = b"[]"
    assert run("nodes")[1].endswith(
        "note: the drain agent's status is not shown: the agent has a status that is not a JSON object\n"
    )


def test_nodes_refuses_credentials_of_another_account(fake_aws: FakeAws, run: Run) -> None:
    write(account="111111111111")
    fake_aws.cluster(group("work", 1))

    status, out, err = run("nodes")
    assert (status, out) == (1, "") and err.startswith("account: ") and "111111111111" in err and "000000000000" in err


def test_no_cluster_and_one_that_goes_half_way(fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = run("nodes")
    assert (status, out) == (1, "") and err.startswith("your credentials find no cluster small in us-west-2. ")

    fake_aws.cluster(group("work", 1))
    reply = fake_aws.model.client().describe_cluster(ClusterName="small")
    monkeypatch.setattr("cdk_hyperpod.cli.live.describe", lambda _: {**reply, "ClusterName": "small"})
    fake_aws.model.call("DeleteCluster", {"ClusterName": "small"})
    fake_aws.quiet()
    status, out, err = run("nodes")
    assert (status, out) == (1, "") and err.startswith("ListClusterNodes: ") and err.count("\n") == 1


def test_write_names_nodes_in_the_file_and_keeps_its_comments(fake_aws: FakeAws, run: Run) -> None:
    Path("cluster.yaml").write_text(FILE)
    fake_aws.cluster(group("work", 4))
    fake_aws.quiet()
    first, second, *_ = sorted(fake_aws.nodes("work"))

    status, out, err = run("nodes", first, second, "--write")
    assert (status, err) == (0, "")
    assert out.startswith("cluster.yaml: added 2 nodes to scale_down.nodes_to_delete") and "work by 2" in out
    added = f"scale_down:\n  nodes_to_delete:\n    - {first}\n    - {second}\n"
    assert Path("cluster.yaml").read_text() == FILE.replace("instance_count: 4", "instance_count: 2") + added

    again = "cluster.yaml: nothing was changed. scale_down.nodes_to_delete has these nodes already\n"
    assert run("nodes", first, "--write") == (0, again, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--group", "head"], "nothing was written:\ni-", id="a controller"),
        pytest.param(
            ["--group", "work"],
            "nothing was written, because the file would be invalid:\ncluster.yaml: ",
            id="too many",
        ),
    ],
)
def test_a_refused_write_leaves_the_file_unchanged(
    arguments: list[str], said: str, fake_aws: FakeAws, run: Run
) -> None:
    Path("cluster.yaml").write_text(FILE.replace("instance_count: 4", "instance_count: 4, min_instance_count: 2"))
    before = Path("cluster.yaml").read_text()
    fake_aws.cluster(group("work", 4))
    fake_aws.quiet()

    status, out, err = run("nodes", *arguments, "--write")
    assert (status, out) == (1, "") and err.startswith(said)
    assert Path("cluster.yaml").read_text() == before
    assert [path.name for path in Path().iterdir()] == ["cluster.yaml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nodes", "--write"], "--write: name the nodes"),
        (["nodes", "i-0", "--write", "--cluster", "c"], "--write: cannot be combined with --cluster"),
        (["nodes", "i-0", "--write", "--ids"], "--write: cannot be combined with --ids or --json"),
        (["nodes", "i-0", "--write", "--json"], "--write: cannot be combined with --ids or --json"),
        (["nodes", "--ids", "--json"], "--ids: cannot be combined with --json"),
        (["logs", "i-0", "--follow", "--json"], "--follow: cannot be combined with --json"),
        (
            ["nodes", "--status", "foo"],
            "Invalid value for '--status': 'foo' is not one of 'Running', 'Pending', 'Failure', 'ShuttingDown', 'SystemUpdating', ",
        ),
        (
            ["nodes", "--image", "new"],
            "Invalid value for '--image': 'new' is not one of 'UpToDate', 'UpdateAvailable', ",
        ),
        (["connect", "i-0", "--ssh-config", "--print"], "--ssh-config: cannot be combined with "),
        (["check", "A", "--config", "B"], "FILE: cannot be combined with --config"),
        (["drain"], "NODE: is missing"),
    ],
    ids=" ".join,
)
def test_misuse_exits_with_2(arguments: list[str], said: str, fake_aws: FakeAws, run: Run) -> None:
    status, out, err = run(*arguments)
    assert (status, out, fake_aws.calls) == (2, "", [])
    assert err.startswith("Usage: cdk-hyperpod ") and f"cdk-hyperpod {arguments[0]}: error: {said}" in err


def test_every_status_and_image_of_the_api_can_be_asked_for() -> None:
    session = Session()
    session.register_component("data_loader", Loader(extra_search_paths=[str(models_dir())]))
    shapes = session.get_service_model("sagemaker")
    assert {*STATUSES} == {*shapes.shape_for("ClusterInstanceStatus").enum}
    assert {*IMAGES} == {*shapes.shape_for("ClusterImageVersionStatus").enum}


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (72, ["controller", "Running", "SecurityUpda…", "10m", "us-west-2b"]),
        (66, ["controll…", "Running", "Securit…", "10m", "us-west-2b"]),
        (44, ["controll…", "Running", "10m"]),
        (38, ["control…", "Running"]),
    ],
)
def test_a_narrow_terminal_cuts_the_image_first_and_an_id_never(
    columns: int, shown: list[str], fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    fake_aws.model.call("CreateCluster", eks(group("controller", 1, node_type=None), name="small"))
    fake_aws.quiet()
    (node,) = fake_aws.nodes()
    reply = fake_aws.model.client().list_cluster_nodes(ClusterName="small")
    (summary,) = reply["ClusterNodeSummaries"]
    fresh = {**summary, "ImageVersionStatus": "SecurityUpdateRequired"}
    monkeypatch.setattr(
        "cdk_hyperpod_local.hyperpod.client.Client.list_cluster_nodes",
        lambda _, **given: {"ClusterNodeSummaries": [fresh]},
        raising=False,
    )
    table = run("nodes")[1].splitlines()[:2]
    assert table[1].split() == [node, *shown]
    assert max(map(len, table)) <= columns


def test_columns_left_out_of_a_narrow_table_are_named_below_it(
    fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    head, work = fake_aws.nodes()
    fake_aws.model.change_node(work, image="1.0")

    assert run("nodes")[1] == (
        "node                 slurm node        group  status   age\n"
        f"{head}  ip-10-5-47-68     head   Running  21m\n"
        f"{work}  ip-10-13-176-116  work   Running  10m\n"
        "small: 2 nodes (2 Running); no room for image; zone of all: us-west-2c\n"
    )


def test_a_group_that_the_file_dropped_has_a_zone_too(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.cluster(group("work", 1), group("old", 1))
    fake_aws.quiet()

    zones = {node["group"]: node["availability_zone"] for node in json.loads(run("nodes", "--json")[1])["nodes"]}
    assert zones == {"head": "us-west-2c", "work": "us-west-2c", "old": "us-west-2b"}
    assert fake_aws.calls.count("ec2:describe_subnets") == 1


def test_slurm_s_name_is_the_host_s_and_kubernetes_has_another(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.model.call("CreateCluster", eks(group("work", 1, node_type=None), name="other"))
    fake_aws.quiet()

    (_, under_slurm) = json.loads(run("nodes", "--json")[1])["nodes"]
    assert under_slurm["slurm_name"] == under_slurm["host"] and under_slurm["host"].startswith("ip-10-")
    where = ("--cluster", "other", "--region", "us-west-2")
    (under_eks,) = json.loads(run("nodes", "--json", *where)[1])["nodes"]
    assert under_eks["slurm_name"] is None and "slurm" not in run("nodes", *where)[1]


def test_zones_that_may_not_be_read_are_a_note(fake_aws: FakeAws, run: Run) -> None:
    write(network__availability_zones=[])
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    fake_aws.denied = {"ec2:describe_subnets"}

    status, out, _ = run("nodes")
    assert status == 0
    assert (
        out.splitlines()[-1].startswith("note: the zones of head, work are not shown: ")
        and "ec2:describe_subnets" in out
    )


# -- what Kubernetes says ---------------------------------------------------------------------------------------------

KUBECTL = """\
#!/bin/sh
case "$*" in
"config view -o json") cat config.json ;;
"--context ours get nodes -o json") cat nodes.json ;;
*) echo "E1122 something first" >&2; echo "error: $*" >&2; exit 1 ;;
esac
"""


def kubectl(monkeypatch: pytest.MonkeyPatch, *, cluster: str, current: str = "other") -> None:
    """A kubectl with two contexts, of which one is `cluster`'s."""
    folder = Path("bin")
    folder.mkdir(exist_ok=True)
    program = folder / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder.resolve()}:/usr/bin:/bin")
    contexts = [{"name": "other", "context": {"cluster": "x"}}, {"name": "ours", "context": {"cluster": cluster}}]
    Path("config.json").write_text(json.dumps({"contexts": contexts, "current-context": current}))


def test_the_kubernetes_state_is_a_column(fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_aws.model.call("CreateCluster", eks(group("work", 4, node_type=None), name="small"))
    fake_aws.quiet()
    kubectl(monkeypatch, cluster=EKS_ARN)
    first, second, third, fourth = fake_aws.nodes("work")
    health = "sagemaker.amazonaws.com/node-health-status"

    def node(name: str, ready: str, label: str, **spec: object) -> dict[str, object]:
        metadata = {"name": f"hyperpod-{name}", "labels": {health: label}}
        return {"metadata": metadata, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}

    items = [
        node(first, "True", "Schedulable"),
        node(second, "Unknown", "UnschedulablePendingReplacement", unschedulable=True),
        node(third, "True", "\x1b[2J"),
        {"metadata": {"name": "ip-10-0-0-1"}},
    ]
    Path("nodes.json").write_text(json.dumps({"items": items}))
    where = ("--cluster", "small", "--region", "us-west-2")

    status, out, err = run("nodes", "--kubernetes", *where)
    rows = out.splitlines()
    assert (status, err) == (0, "") and rows[0].endswith("  kubernetes")
    said = {row.split()[0]: row.split()[-1] for row in rows[1:5]}
    assert said == {
        first: "Ready",
        second: "NotReady,SchedulingDisabled,UnschedulablePendingReplacement"[:40],
        third: "Ready,?[2J",
        fourth: "-",
    }
    told = json.loads(run("nodes", "--kubernetes", "--json", *where)[1])
    assert {each["instance_id"]: each["kubernetes_state"] for each in told["nodes"]}[fourth] is None
    assert "kubernetes" not in run("nodes", *where)[1], "only where somebody asks"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda: Path("bin/kubectl").unlink(), "kubectl is not installed"),
        (lambda: Path("bin/kubectl").write_text("no script"), "does not run: Exec format error"),
        (
            lambda: Path("config.json").write_text("{}"),
            f"kubectl has no context of {EKS_ARN}. Add it by aws eks update-kubeconfig",
        ),
        (lambda: Path("config.json").write_text("[]"), "kubectl printed no JSON"),
        (
            lambda: Path("nodes.json").write_text('{"items": [{"metadata": {"name": "ip-10-0-0-1"}}]}'),
            "no node has a name such as hyperpod-i-0123456789abcdef0",
        ),
        (lambda: Path("nodes.json").unlink(), "kubectl: cat: nodes.json: No such file or directory"),
    ],
    ids=["none", "broken", "no context", "no JSON", "other names", "no answer"],
)
def test_without_kubectl_the_list_comes_with_a_note(
    spoil: Callable[[], object], said: str, fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_aws.model.call("CreateCluster", eks(group("work", 1, node_type=None), name="small"))
    fake_aws.quiet()
    kubectl(monkeypatch, cluster=EKS_ARN)
    Path("nodes.json").write_text("{}")
    spoil()
    if said == "kubectl is not installed":
        monkeypatch.setenv("PATH", "bin")
    status, out, err = run("nodes", "--kubernetes", "--cluster", "small", "--region", "us-west-2")
    assert (status, err, len(out.splitlines())) == (0, "", 4)
    assert out.splitlines()[-1].startswith("note: the state in Kubernetes is not shown: ") and said in out


def test_no_token_stands_in_what_kubectl_is_given_or_in_what_is_printed(
    fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arguments are in the process list of the machine. Whatever the kubeconfig holds stays there: kubectl reads it itself."""
    fake_aws.model.call("CreateCluster", eks(group("work", 1, node_type=None), name="small"))
    fake_aws.quiet()
    kubectl(monkeypatch, cluster=EKS_ARN)
    monkeypatch.setenv("GIVEN", str(Path("given").resolve()))
    script = KUBECTL.replace("#!/bin/sh\n", '#!/bin/sh\nprintf "%s\\n" "$@" >>"$GIVEN"\nenv >>"$GIVEN"\n')
    Path("bin/kubectl").write_text(script)
    config = json.loads(Path("config.json").read_text())
    user = {"token": "k8s-aws-v1.SECRET", "client-key-data": "SECRET", "password": "SECRET"}
    Path("config.json").write_text(json.dumps({**config, "users": [{"name": "me", "user": user}]}))
    Path("nodes.json").write_text(
        json.dumps({"items": [{"metadata": {"name": f"hyperpod-{fake_aws.nodes('work')[0]}"}}]})
    )

    status, out, err = run("nodes", "--kubernetes", "--cluster", "small", "--region", "us-west-2")

    given = Path("given").read_text()
    assert (status, err) == (0, "") and "NotReady" in out
    assert "ours\nget\nnodes" in given
    assert "SECRET" not in given + out
    # It is not even asked for what kubectl would hide.
    assert "--raw" not in given and "--token" not in given


@pytest.mark.parametrize(
    ("clusters", "found"),
    [
        ([EKS_ARN, "eks", EKS_ARN], "2"),
        (["eks", "eks.us-west-2.eksctl.io"], "1"),
        (["x", "eks"], "1"),
    ],
    ids=["the current one", "eksctl's before another's", "by its name"],
)
def test_the_context_of_the_cluster_is_the_one_that_tools_make(clusters: list[str], found: str) -> None:
    contexts = [{"name": str(number), "context": {"cluster": cluster}} for number, cluster in enumerate(clusters)]
    assert kubernetes._context(EKS_ARN, {"contexts": contexts, "current-context": "2"}) == found


def test_under_slurm_there_is_no_kubernetes_to_ask(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    assert run("nodes", "--kubernetes")[1].endswith(
        "note: the state in Kubernetes is not shown: the cluster is not under EKS\n"
    )
