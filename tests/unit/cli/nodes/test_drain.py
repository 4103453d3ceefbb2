"""`cdk-hyperpod drain` and `undrain` against a bucket and a served HyperPod; the agent's part is played by the test."""

from __future__ import annotations

import io
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from hypothesis import example, given
from hypothesis import strategies as st

from cdk_hyperpod.cli import live
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.cli.nodes import operator_channel
from cdk_hyperpod_local.hyperpod import HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import group, run_until_quiet, slurm
from helpers.findings import reported
from helpers.lifecycle.programs import load
from helpers.scale_down.served_hyperpod import serve
from helpers.slurm.bucket import serve as serve_bucket
from helpers.validating import changed
from simulations.lifetimes.agent import status as agent_status

Printed = tuple[int, str, str]
ROOT = Path(__file__).resolve().parents[4]


class ClusterWithBucket:
    """A cluster of the file's name, and its bucket as a folder."""

    def __init__(self, model: HyperPod, folder: Path) -> None:
        self.model = model
        self.folder = folder / "small"

    def nodes(self, name: str) -> list[str]:
        found = self.model.call("ListClusterNodes", {"ClusterName": "small", "InstanceGroupNameContains": name})
        return sorted(node["InstanceId"] for node in found["ClusterNodeSummaries"])

    def request(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "requests/operator.json").read_text())
        return found

    def node_requests(self) -> dict[str, dict[str, Any]]:
        return {node_request["id"]: node_request for node_request in self.request()["nodes"]}

    def answer(
        self,
        state: str = "ready",
        *,
        beat: float | None = None,
        message: str = "",
        saved: bool | None = None,
        **more: Any,
    ) -> None:
        """What an agent says that has read the request."""
        file = self.folder / "requests/operator.json"
        node_requests = self.node_requests() if file.exists() else {}
        nodes = {
            node: {
                "state": state,
                "slurm": "ip-1",
                "message": message,
                "requests": {"operator": node_request["request"]},
                **({} if saved is None else {"saved": saved}),
            }
            for node, node_request in node_requests.items()
        }
        self.folder.mkdir(exist_ok=True)
        told = agent_status(time.time() if beat is None else beat, nodes=nodes, **more)
        (self.folder / "status.json").write_bytes(told)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterWithBucket]:
    model = HyperPod(clock=ManualClock())
    groups = [group("head", 1, instance_type="ml.m5.xlarge", node_type="Controller"), group("work", 2)]
    model.call("CreateCluster", {**slurm(name="small"), "InstanceGroups": groups})
    run_until_quiet(model)
    bucket = serve_bucket(0, tmp_path / "bucket")
    threading.Thread(target=bucket.serve_forever, daemon=True).start()
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = {
        "ACCESS_KEY_ID": "none",
        "SECRET_ACCESS_KEY": "none",
        "CONFIG_FILE": os.devnull,
        "SHARED_CREDENTIALS_FILE": os.devnull,
        "EC2_METADATA_DISABLED": "true",
        "ENDPOINT_URL_S3": f"http://127.0.0.1:{bucket.server_port}",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("no_proxy", "*")
    write({"slurm": {"drain": {}}})
    (tmp_path / "bucket/small").mkdir(parents=True)
    with serve(model) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", address)
        yield ClusterWithBucket(model, tmp_path / "bucket")
    bucket.shutdown()
    bucket.server_close()


def write(changes: dict[str, object]) -> None:
    Path("cluster.yaml").write_text(yaml.safe_dump(changed({"account": "111122223333", **changes}), sort_keys=False))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Printed]:
    def command(*arguments: str) -> Printed:
        status = main([*arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return command


def test_the_agent_reads_the_request_that_drain_writes(cluster: ClusterWithBucket, run: Callable[..., Printed]) -> None:
    one, two = cluster.nodes("work")
    cluster.answer()
    status, out, err = run("drain", one, two, "--hold", "90m")
    assert (status, err) == (0, ""), (out, err)
    assert out.startswith("requested a drain of 2 nodes, held until 20")
    content = (cluster.folder / "requests/operator.json").read_bytes()
    node_requests = load("agent/loop.py").parse_request("operator", content, time.time()).nodes
    assert [node_request.instance for node_request in node_requests] == [one, two]
    assert {
        (node_request.force, node_request.backup, node_request.deadline == node_request.expires)
        for node_request in node_requests
    } == {(False, True, True)}
    assert all(abs(node_request.expires - time.time() - 5400) < 60 for node_request in node_requests)
    assert len({node_request.address for node_request in node_requests}) == 2


def test_other_requests_are_kept_and_a_longer_hold_does_not_restart_a_drain(
    cluster: ClusterWithBucket, run: Callable[..., Printed]
) -> None:
    one, two = cluster.nodes("work")
    cluster.answer()
    run("drain", one)
    first = cluster.node_requests()[one]
    run("drain", two, "--force-after", "30m", "--no-backup")
    assert cluster.node_requests()[one] == first
    assert (cluster.node_requests()[two]["on_timeout"], cluster.node_requests()[two]["backup"]) == ("force", False)
    run("drain", one, "--hold", "24h")
    assert cluster.node_requests()[one]["request"] == first["request"]
    assert cluster.node_requests()[one]["expires"] > first["expires"]
    cluster.answer("backup-failed")
    run("drain", one)
    assert cluster.node_requests()[one]["request"] != first["request"]
    status, out, _ = run("undrain", one, "i-0123456789abcdef0")
    assert (status, list(cluster.node_requests())) == (0, [two])
    assert out == f"{one}: released\ni-0123456789abcdef0: no operator requested a drain\n"


def test_a_second_operator_shortens_no_hold_and_leaves_no_backup_out(
    cluster: ClusterWithBucket, run: Callable[..., Printed]
) -> None:
    one, two = cluster.nodes("work")
    cluster.answer()
    run("drain", one, "--hold", "24h", "--force-after", "2h")
    first = cluster.node_requests()[one]
    status, out, _ = run("drain", one, two, "--hold", "30m", "--no-backup")
    assert (status, cluster.node_requests()[one]) == (0, first)
    assert f"{one}: merged with an existing drain request: held until 20" in out
    assert ", saved, its jobs end at 20" in out
    assert f"{two}: merged" not in out
    # A changed request gets another id: the agent's status of the old one does not apply.
    second = cluster.node_requests()[two]
    assert (second["backup"], second["on_timeout"]) == (False, "fail")
    run("drain", two, "--hold", "10m")
    assert cluster.node_requests()[two]["backup"] is True
    assert cluster.node_requests()[two]["expires"] == cluster.node_requests()[two]["deadline"] == second["expires"]
    assert cluster.node_requests()[two]["request"] != second["request"]
    saved = cluster.node_requests()[two]
    run("drain", two, "--force-after", "5m", "--hold", "10m")
    assert cluster.node_requests()[two]["on_timeout"] == "force"
    assert cluster.node_requests()[two]["request"] != saved["request"]


def test_drain_wait_reports_changes_by_another_operator(
    cluster: ClusterWithBucket, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, _) = cluster.nodes("work")
    first: list[str] = []

    def force(_: float) -> None:
        first.append(cluster.node_requests()[one]["request"])
        monkeypatch.setattr(time, "sleep", lambda _: cluster.answer())
        main(["drain", one, "--force-after", "1h"])

    monkeypatch.setattr(time, "sleep", force)
    cluster.answer()
    status, _, err = run("drain", one, "--wait")
    assert (status, err) == (0, "")
    assert first != [cluster.node_requests()[one]["request"]]
    cluster.answer("draining")
    monkeypatch.setattr(time, "sleep", lambda _: main(["undrain", one]))
    status, _, err = run("drain", one, "--wait")
    assert status == 1 and err.endswith(f"released them by `cdk-hyperpod undrain`: {one}\n")


@pytest.mark.parametrize(
    ("on_failure", "options", "saved", "expected"),
    [
        ("fail", [], True, 0),
        ("fail", [], False, 1),
        ("fail", [], None, 1),
        ("fail", ["--no-backup"], False, 0),
        ("continue", [], False, 0),
    ],
)
def test_drain_reports_a_ready_node_that_was_not_backed_up(
    cluster: ClusterWithBucket,
    run: Callable[..., Printed],
    monkeypatch: pytest.MonkeyPatch,
    on_failure: str,
    options: list[str],
    saved: bool | None,
    expected: int,
) -> None:
    """Drained by another, or dead: `drain --wait && make deploy` would lose what the file says must be saved."""
    (one, _) = cluster.nodes("work")
    backup = {"paths": ["/opt/dlami/nvme/work"], "to": "/fsx/backup", "on_failure": on_failure}
    write({"slurm": {"drain": {"backup": backup}}, "storage": {"capacity_gib": 4800}})
    monkeypatch.setattr(time, "sleep", lambda _: cluster.answer(saved=saved))
    cluster.answer()
    status, _, err = run("drain", one, "--wait", *options)
    assert status == expected, err
    assert err == ("" if saved or options else f"not saved: {one}\n")


def test_two_operators_at_once_lose_nothing(
    cluster: ClusterWithBucket, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = cluster.nodes("work")
    cluster.answer()
    real = operator_channel.OperatorChannel._read
    between: list[bool] = []

    def read(self: Any, key: str) -> Any:
        found = real(self, key)
        if key.endswith("operator.json") and not between:
            between.append(True)
            run("drain", two)
        return found

    monkeypatch.setattr(operator_channel.OperatorChannel, "_read", read)
    assert run("drain", one)[0] == 0
    assert set(cluster.node_requests()) == {one, two}


# -- what stands in the request already

agent = load("agent/loop.py")
NOW = 1_800_000_000.0
ONE = "i-0123456789abcdef0"
OTHER: dict[str, Any] = {
    "id": "i-0fedcba9876543210",
    "ip": "10.0.0.5",
    "request": "abc",
    "deadline": NOW + 3600,
    "expires": NOW + 3600,
    "on_timeout": "fail",
    "backup": True,
}


class Held(operator_channel.OperatorChannel):
    """A bucket of one request, and an agent that is there."""

    def __init__(self, content: bytes) -> None:
        self._errors = (ClientError, ClientError)
        self.target = live.Target(name="small", region="us-west-2", client=lambda _: None, config=None)
        self._bucket = "bucket"
        self._s3 = self
        self.content = content

    def get_object(self, **asked: str) -> dict[str, Any]:
        return {
            "Body": io.BytesIO(agent_status(NOW) if asked["Key"].endswith("status.json") else self.content),
            "ETag": "e",
        }

    def put_object(self, **asked: Any) -> None:
        self.content = asked["Body"]

    def addresses(self, nodes: Any) -> dict[str, str]:
        return dict.fromkeys(nodes, "10.0.0.4")

    def run(self, *words: str) -> int:
        with (
            patch.object(live, "find", lambda **_: self.target),
            patch.object(operator_channel, "OperatorChannel", lambda _: self),
            patch.object(operator_channel, "clock", lambda _: NOW),
        ):
            return main([*words])

    def wanted(self) -> set[str]:
        """As the agent reads it."""
        return {node_request.instance for node_request in agent.parse_request("operator", self.content, NOW).nodes}


def request(*nodes: object) -> bytes:
    return json.dumps({"schema": 1, "id": "q", "nodes": nodes}).encode()


def sound(content: bytes) -> set[str]:
    """The nodes that the agent holds where each request stands by itself."""
    try:
        nodes = json.loads(content)["nodes"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return set()
    found = set()
    for node in nodes if isinstance(nodes, list) else ():
        try:
            (node_request,) = agent.parse_request("operator", request(node), NOW).nodes
        except agent.RequestError:
            continue
        if node_request.expires > NOW:
            found.add(node_request.instance)
    return found


JUNK = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda of: st.lists(of) | st.dictionaries(st.sampled_from([*OTHER, "schema", "nodes"]), of),
    max_leaves=5,
)
TIMES: list[Any] = [
    NOW - 1,
    NOW,
    NOW + 60,
    NOW + 26 * 3600,
    NOW + 26 * 3600 + 1,
    NOW * 1000,
    -1,
    10**400,
    True,
    math.nan,
]
GIVEN: dict[str, list[Any]] = {
    "id": [ONE, OTHER["id"], "i-01234567", "i-0; reboot", f"{ONE}\n", ["x"]],
    "ip": ["10.0.0.4", "10.0.0.300", "10.0.0.1\n", 167772161],
    "request": ["abc", "$(reboot)", "a" * 64, "a" * 65, ""],
    "deadline": TIMES,
    "limit": TIMES,
    "expires": TIMES,
    "on_timeout": ["fail", "force", "kill"],
    "backup": [True, False, 1],
}


EACH = [
    {**OTHER, "id": f"i-{number:08x}", name: value}
    for number, (name, value) in enumerate((name, value) for name in GIVEN for value in GIVEN[name])
]


@st.composite
def node_requests(draw: st.DrawFn) -> dict[str, Any]:
    """One that is sound, but for what is changed."""
    found = {**OTHER, "id": draw(st.sampled_from([f"i-0123456{i}" for i in range(10)]))}
    if draw(st.booleans()):
        name = draw(st.sampled_from(list(GIVEN)))
        found[name] = draw(st.sampled_from(GIVEN[name]) | JUNK)
    return found


@given((JUNK | st.lists(node_requests() | JUNK)).map(lambda found: json.dumps({"nodes": found}).encode()))
@example(b"[]")
@example(b"")
@example(b"{not json")
@example(b"\xff\xfe")
@example(b"[" * 100_000)
@example(b'{"nodes": ' + b"[" * 100_000)
@example(b'{"nodes": [' + b"1" * 5000 + b"]}")
@example(request(*EACH))
@example(request({**OTHER, "expires": 1}, *({**OTHER, "id": f"i-0123456{i}", "more": "x" * 150_000} for i in range(2))))
@example(request({**OTHER, "expires": 1}, OTHER))
def test_the_agent_accepts_the_rewritten_request_whatever_it_held_before(content: bytes) -> None:
    drained, undrained = Held(content), Held(content)
    assert drained.run("drain", ONE, "--force-after", "1h") == 0
    assert drained.wanted() == sound(content) | {ONE}
    assert undrained.run("undrain", ONE) == 0
    assert undrained.wanted() == sound(content) - {ONE}


# -- `drain` and `patch` hold the same node ----------------------------------------------------------------------------


def patching(held: Held, *expires: float) -> list[str]:
    """A run of `patch` holds ONE until then, or releases what is its own. Returns the ids of the requests that the agent reads."""
    mine = [{**OTHER, "id": ONE, "request": "patch-1", "expires": each, "deadline": each} for each in expires]

    def do(existing: list[dict[str, Any]], run: Any, _: float) -> tuple[list[dict[str, Any]], Any]:
        return [*(each for each in existing if not operator_channel.is_of_patch(each)), *mine], run

    return [each["request"] for each in held.change_run(do)]


def read_by_agent(held: Held) -> dict[str, tuple[bool, float, float, bool]]:
    found = agent.parse_request("operator", held.content, NOW).nodes
    return {
        each.instance: (each.request_id.startswith("patch-"), each.expires, each.deadline, each.force) for each in found
    }


@pytest.mark.parametrize("drain_first", [False, True])
def test_each_of_drain_and_patch_removes_its_own_and_nothing_else(
    drain_first: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    held, of_drain, of_patch = Held(b""), NOW + 1800, NOW + 3600
    with patch.object(operator_channel, "clock", lambda _: NOW):
        if not drain_first:
            assert patching(held, of_patch) == ["patch-1"]
        assert held.run("drain", ONE, "--hold", "30m") == 0
        patching(held, of_patch)
        assert read_by_agent(held) == {ONE: (False, of_patch, of_patch, False)}, (
            "held as long as either wants, by one id"
        )
        request_id = patching(held, of_patch)
        assert patching(held) == request_id, "the patch ends, and the agent goes on with what it has begun"
        assert read_by_agent(held) == {ONE: (False, of_drain, of_drain, False)}
        patching(held, of_patch)
        assert held.run("undrain", ONE) == 0
        assert read_by_agent(held) == {ONE: (True, of_patch, of_patch, False)}
        assert held.run("undrain", ONE) == 0
        assert read_by_agent(held) == {ONE: (True, of_patch, of_patch, False)}, "undrain releases no node of a patch"
        first, second = [line for line in capsys.readouterr().out.splitlines() if "patch` holds it" in line]
        assert first.startswith(f"{ONE}: released, but") and "drain --release" in first
        assert second.startswith(f"{ONE}: no operator requested a drain, but")


def test_a_drain_during_a_patch_may_end_jobs_earlier_and_later_ends_by_itself() -> None:
    held = Held(b"")
    with patch.object(operator_channel, "clock", lambda _: NOW):
        patching(held, NOW + 3600)
        assert held.run("drain", ONE, "--hold", "2h", "--force-after", "10m") == 0
        assert read_by_agent(held) == {ONE: (False, NOW + 7200, NOW + 600, True)}
    with patch.object(operator_channel, "clock", lambda _: NOW + 3601):
        patching(held)
    assert read_by_agent(held) == {ONE: (False, NOW + 7200, NOW + 600, True)}


def test_drain_lists_the_invalid_entries_that_it_removes_from_the_request(capsys: pytest.CaptureFixture[str]) -> None:
    over = {**OTHER, "expires": NOW - 1}
    bucket = Held(request(over, OTHER, {**OTHER, "id": "i-0; reboot"}, {**over, "ip": None}, 7, OTHER))
    assert bucket.run("undrain", ONE) == 0
    out, err = capsys.readouterr()
    assert out == f"{ONE}: no operator requested a drain\n"
    assert err == (
        "note: left out of the drain request, because the agent refuses them: nodes[2] (id), i-0fedcba9876543210 (ip), "
        "nodes[4] (not a JSON object), i-0fedcba9876543210 (duplicated). `cdk-hyperpod drain` requests them again\n"
    )
    assert bucket.run("undrain", ONE) == 0
    assert capsys.readouterr().err == ""
    assert Held(request(*range(12))).run("undrain", ONE) == 0
    assert capsys.readouterr().err.endswith(
        "nodes[9] (not a JSON object), and 2 more. `cdk-hyperpod drain` requests them again\n"
    )
    assert Held(b"[" * 100_000).run("undrain", ONE) == 0
    assert "refuses them: the whole object, which has no list of nodes. " in capsys.readouterr().err
    assert Held(b"").run("undrain", ONE) == 0
    assert capsys.readouterr().err == ""


def test_no_more_nodes_are_asked_for_than_the_agent_takes(capsys: pytest.CaptureFixture[str]) -> None:
    many = [{**OTHER, "id": f"i-{i:017x}", "ip": "255.255.255.255", "request": "a" * 64} for i in range(6758)]
    bucket = Held(before := request(*many))
    assert bucket.run("drain", ONE) == 1
    assert "would name 6759 nodes, and the agent accepts at most 6758. " in capsys.readouterr().err
    assert bucket.content == before
    assert bucket.run("drain", many[0]["id"]) == 0
    assert len(bucket.wanted()) == 6758


# -- what it says


def test_drain_wait_prints_each_change_of_state(
    cluster: ClusterWithBucket, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, _) = cluster.nodes("work")
    steps = [
        ("draining", "jobs: 7 of alice"),
        ("draining", "jobs: 7 of alice"),
        ("backing-up", ""),
        ("ready", "is saved"),
    ]
    monkeypatch.setattr(time, "sleep", lambda _: cluster.answer(steps[0][0], message=steps.pop(0)[1]))
    cluster.answer()
    status, out, err = run("drain", one, "--wait")
    assert (status, err) == (0, "")
    assert out.splitlines()[1:] == [
        f"{one}  ip-1  draining: jobs: 7 of alice",
        f"{one}  ip-1  backing-up",
        f"{one}  ip-1  ready: is saved",
    ]


@pytest.mark.parametrize("state", ["timed-out", "backup-failed", "unknown", "refused"])
def test_a_node_that_does_not_get_ready_is_named(
    cluster: ClusterWithBucket, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    (one, _) = cluster.nodes("work")
    monkeypatch.setattr(time, "sleep", lambda _: cluster.answer(state, message="why\x1b[2J\nnot"))
    cluster.answer()
    status, out, err = run("drain", one, "--wait")
    assert (status, err) == (1, f"not ready: {one}\n")
    # What a node says cannot write over the terminal.
    assert f"{state}: why?[2J not" in out


def test_drain_wait_reports_nodes_that_are_not_ready_when_the_hold_ends(
    cluster: ClusterWithBucket, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, _) = cluster.nodes("work")
    clock = operator_channel.clock
    late: list[float] = []
    monkeypatch.setattr(operator_channel, "clock", lambda reply: clock(reply) + sum(late))

    def sleep(_: float) -> None:
        late.append(3600)
        cluster.answer("draining", beat=time.time() + 3600)

    monkeypatch.setattr(time, "sleep", sleep)
    cluster.answer()
    status, _, err = run("drain", one, "--wait", "--hold", "30m")
    assert status == 1 and err.endswith(f"Not ready in time: {one}\n")


def test_drain_reports_a_silent_agent_and_a_refused_request(
    cluster: ClusterWithBucket, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, _) = cluster.nodes("work")
    status, _, err = run("drain", one)
    assert status == 1
    assert "the drain request is kept, but the agent on the controller has not written a status yet" in err
    cluster.answer(beat=time.time() - 600)
    status, _, err = run("drain", "--status")
    assert status == 1
    assert "has not written its status for 10 minutes" in err
    assert json.loads(run("drain", "--status", "--json")[1])["nodes"][0]["state"] == "ready"
    assert run("drain", one, "--json")[0] == 2
    monkeypatch.setattr(
        time, "sleep", lambda _: cluster.answer(beat=time.time() + 5, refused={"operator": "is no JSON"})
    )
    cluster.answer()
    (cluster.folder / "requests/operator.json").unlink()
    assert "the agent refuses the drain request: is no JSON" in run("drain", one, "--wait")[2]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "NODE: is missing"),
        (["i-0123456789abcdef0", "--status"], 2, "NODE: cannot be combined with --status"),
        (["i-0; reboot", "ip-10-0-0-1"], 2, "'i-0; reboot', 'ip-10-0-0-1': is not an instance id such as"),
        (
            ["i-0123456789abcdef0", "--hold", "25h"],
            2,
            "--hold: must be minutes or hours such as 90m or 12h, at most 24h",
        ),
        (["i-0123456789abcdef0", "--hold", "soon"], 2, "got 'soon'"),
        (
            ["i-0123456789abcdef0", "--hold", "1h", "--force-after", "2h"],
            2,
            "--force-after: is 2h, which is later than the end",
        ),
        (["i-0123456789abcdef0"], 1, "no drain was requested:\ni-0123456789abcdef0: "),
        (["HEAD"], 1, "is a controller node, which is never drained"),
    ],
)
def test_drain_refuses_arguments_that_are_not_nodes_to_drain(
    cluster: ClusterWithBucket, run: Callable[..., Printed], arguments: list[str], code: int, says: str
) -> None:
    cluster.answer()
    head = cluster.nodes("head")[0]
    status, _, err = run("drain", *(head if word == "HEAD" else word for word in arguments))
    assert status == code
    assert says in err
    assert not (cluster.folder / "requests").exists()


@pytest.mark.parametrize("where", [(), ("--cluster", "small", "--region", "us-west-2", "--profile", "nobody's")])
def test_drain_reports_all_invalid_arguments_before_it_needs_a_file_or_credentials(
    run: Callable[..., Printed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: tuple[str, ...]
) -> None:
    """All of them, where there is neither a file nor a credential."""
    monkeypatch.chdir(tmp_path)
    status, out, err = run("drain", "i-1", "$(reboot)", "--hold", "99d", "--force-after", "0h", *where)
    assert (status, out) == (2, "")
    assert err.split("cdk-hyperpod drain: error: ")[1].splitlines() == [
        "--hold: must be minutes or hours such as 90m or 12h, at most 24h, got '99d'",
        "--force-after: must be minutes or hours such as 90m or 12h, at most 24h, got '0h'",
        "'i-1', '$(reboot)': is not an instance id such as i-0123456789abcdef0. `cdk-hyperpod nodes` lists them",
    ]
    status, out, err = run("undrain", "$(reboot)", *where)
    assert (status, out) == (2, "")
    assert "undrain: error: '$(reboot)': is not an instance id such as" in err


def test_a_cluster_by_its_name_needs_no_file(
    cluster: ClusterWithBucket, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a file tells, the cluster does: which nodes are no workers."""
    Path("cluster.yaml").unlink()
    where = ("--cluster", "small", "--region", "us-west-2")
    one, head = cluster.nodes("work")[0], cluster.nodes("head")[0]
    cluster.answer()
    monkeypatch.setattr(operator_channel.OperatorChannel, "_account", lambda _: "111122223333")
    assert run("drain", head, *where)[2].endswith("is a controller node, which is never drained\n")
    assert run("drain", one, *where)[0] == 0
    cluster.answer()
    assert json.loads(run("drain", "--status", "--json", *where)[1])["nodes"][0]["instance_id"] == one
    assert run("undrain", one, *where) == (0, f"{one}: released\n", "")
    status, _, err = run("drain", one, "--wait", *where)
    assert status == 2 and "--wait: cannot be combined with --cluster" in err


def test_drain_wait_ignores_the_refusal_of_an_earlier_request(
    cluster: ClusterWithBucket, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, _) = cluster.nodes("work")
    cluster.answer(refused={"operator": "is no JSON"})
    (cluster.folder / "requests").mkdir()
    (cluster.folder / "requests/operator.json").write_text("{not json")
    monkeypatch.setattr(time, "sleep", lambda _: cluster.answer())
    status, out, err = run("drain", one, "--wait")
    assert (status, out.splitlines()[-1]) == (0, f"{one}  ip-1  ready"), err


def test_ctrl_c_while_it_waits_says_that_the_request_stands(
    cluster: ClusterWithBucket, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, _) = cluster.nodes("work")
    cluster.answer()

    def enough(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", enough)
    status, _, err = run("drain", one, "--wait")
    assert status == 130 and one in cluster.node_requests()
    assert f"the drain request is kept. cdk-hyperpod undrain {one} releases the nodes\n" in err


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("AccessDenied", "your credentials lack the permission s3:GetObject. "),
        (
            "AccessDenied s3:ListBucket",
            "your credentials lack the permission s3:ListBucket on arn:aws:s3:::b. ",
        ),
        ("ExpiredToken", "your AWS credentials have expired. "),
        ("SlowDown", "AWS throttles GetObject, 5 attempts failed. "),
        (
            "NoSuchBucket",
            "there is no drain bucket hyperpod-drain-small-111122223333-us-west-2. Deploy",
        ),
    ],
)
def test_an_s3_error_is_one_sentence(
    cluster: ClusterWithBucket, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch, code: str, says: str
) -> None:
    def refuse(self: object, operation: str, _: object) -> None:
        name, _, right = code.partition(" ")
        told = f'User: arn:aws:iam::1:user/u is not authorized to perform: {right} on resource: "arn:aws:s3:::b" because no …'
        raise ClientError({"Error": {"Code": name, "Message": told if right else "Access Denied"}}, operation)

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)
    status, out, err = run("drain", "--status")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert says in err


def test_a_file_without_an_agent_is_refused(cluster: ClusterWithBucket, run: Callable[..., Printed]) -> None:
    write({})
    status, _, err = run("undrain", "i-0123456789abcdef0")
    assert status == 1
    assert reported(err) == [("drain-agent-not-in-file", "slurm.drain")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("drain", "i-0123456789abcdef0", "i-0fedcba9876543210", "--wait"),
            (
                "run `kubectl drain hyperpod-i-0123456789abcdef0 hyperpod-i-0fedcba9876543210 --ignore-daemonsets "
                "--delete-emptydir-data`"
            ),
        ),
        (("drain", "--status"), "run `kubectl get nodes`"),
        (("undrain", "i-0123456789abcdef0"), "run `kubectl uncordon hyperpod-i-0123456789abcdef0`"),
    ],
)
def test_under_eks_it_names_kubectl_s_own_command(
    cluster: ClusterWithBucket, run: Callable[..., Printed], words: tuple[str, ...], says: str
) -> None:
    Path("cluster.yaml").write_text((ROOT / "tests/helpers/configs/eks_existing.yaml").read_text())
    status, out, err = run(*words)
    assert (status, out) == (1, "")
    assert says in err
    assert reported(err) == [("drain-agent-under-eks", "orchestrator")]
