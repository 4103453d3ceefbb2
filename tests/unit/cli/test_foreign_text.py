"""What others write reaches a terminal as text and as nothing else: every command, on answers full of orders to a terminal."""

from __future__ import annotations

import ast
import importlib.util
import json
import random
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.common import api
from cdk_hyperpod._lambda.hyperpod.kernel import text
from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import request_key
from cdk_hyperpod._lambda.hyperpod.scale_down.drain import channels
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import ScaleDownError
from cdk_hyperpod.cli import live, tables
from cdk_hyperpod.cli.deployment import plan
from cdk_hyperpod.cli.live import LiveError, Node, Target
from cdk_hyperpod.cli.nodes import connect
from cdk_hyperpod_local.hyperpod.samples import group
from helpers.lifecycle.programs import load
from helpers.synthesis import ROOT
from simulations.lifetimes.agent import status as agent_status
from unit.cli.conftest import FakeAws, Run, deployed, write

Json = Any
MS = 1_780_000_000_000
FORGED = "FORGED"
EVIL = f"\x1b[2J\x1b]0;x\x07\r\n{FORGED} 1 node\u2028{FORGED} 2\x85{FORGED} 3\u202e\x9b31m\u200f\x00\ud800"
"""Clears the screen, sets the title, begins three lines in our name, and turns what follows around."""

# What other answers are looked up by: a program has them in its own tables, or they are ids of AWS's. Whoever may change even
# these is asked in the second test, in which commands may fail as they like.
KEPT = {
    *("ClusterArn", "ClusterName", "InstanceGroupName", "InstanceId", "NodeLogicalId", "NodeProvisioningMode"),
    *("Account", "InstanceType", "PrivatePrimaryIp"),
    *("NextToken", "StackId", "StackName", "ResourceType", "PhysicalResourceId", "EventId", "ETag", "logStreamName"),
    *("nextForwardToken", "SubnetId", "date", "ResourceStatus", "StackStatus", "Status", "Key", "EventLevel"),
}
COMMANDS = [
    ("why",),
    ("nodes",),
    ("nodes", "--ids"),
    ("logs", "{node}"),
    ("plan",),
    ("plan", "--confirm", "--yes"),
    ("drain", "--status"),
    ("drain", "{node}"),
    ("drain", "{node}", "--wait", "--no-backup"),
    ("undrain", "{node}"),
    ("connect", "{node}", "--print"),
    ("connect", "{node}", "--ssh-config"),
    ("replace", "{node}", "--yes"),
    ("reboot", "{node}", "--yes"),
    ("watch",),
    ("retained",),
    ("patch", "--dry-run"),
    ("patch", "--yes"),
]
WITH_JSON = [
    words
    for words in COMMANDS
    if words[0] in ("why", "nodes", "logs", "plan", "replace", "reboot", "watch", "retained")
]


def evil(value: Json, *, kept: frozenset[str], name: str = "") -> Json:
    """The same with EVIL behind each text, but for what has a name that is kept."""
    match value:
        case dict():
            return {key: evil(item, kept=kept, name=str(key)) for key, item in value.items()}
        case list():
            return [evil(item, kept=kept, name=name) for item in value]
        case str() if name not in kept:
            return f"{value}{EVIL}"
    return value


def hostile_clients(clients: Callable[[str], Any], *, kept: frozenset[str], fails: bool) -> Callable[[str], Any]:
    """Clients whose answers are evil; with `fails` each answer is an error."""
    return lambda service: _HostileClient(clients(service), kept, fails=fails)


def failed_stack() -> Json:
    """The cluster's, whose update failed for an evil reason."""
    stack = {
        "StackName": "hyperpod-small-cluster",
        "StackId": "arn:aws:cloudformation:us-west-2:000000000000:stack/x/y",
    }
    whose = {**stack, "Timestamp": datetime(2026, 1, 1, tzinfo=UTC), "PhysicalResourceId": "x"}
    failed = {**whose, "ResourceType": "Custom::HyperPodScaleDown", "ResourceStatus": "UPDATE_FAILED"}
    began = {**whose, "ResourceType": "AWS::CloudFormation::Stack", "ResourceStatus": "UPDATE_IN_PROGRESS"}
    events = [{**failed, "ResourceStatusReason": f"refused{EVIL}"}, {**began, "PhysicalResourceId": stack["StackId"]}]
    return {**stack, "StackStatus": "UPDATE_ROLLBACK_COMPLETE", "events": events}


class _HostileClient:
    def __init__(self, client: Any, kept: frozenset[str], *, fails: bool) -> None:
        self._client, self._kept, self._fails = client, kept, fails

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(**given: Any) -> Any:
            if self._fails:
                raise ClientError({"Error": {"Code": f"Odd{EVIL}", "Message": EVIL}}, method)
            try:
                return evil(getattr(self._client, method)(**given), kept=self._kept)
            except ClientError as error:
                found = error.response["Error"]
                raise ClientError({"Error": {**found, "Message": f"{found['Message']}{EVIL}"}}, method) from None

        return call


@pytest.fixture
def hostile(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes a cluster, with a failed stack, a drain and logs; a node's id."""

    def make(*, kept: frozenset[str] = frozenset(KEPT), fails: bool = False) -> str:
        write(slurm__drain={})
        fake_aws.cluster(group("work", 2))
        fake_aws.quiet()
        node = fake_aws.nodes("work")[0]
        told = {"state": f"draining{EVIL}", "slurm": EVIL, "message": EVIL, "requests": {"operator": "x"}}
        more = {"problem": EVIL, "nodes": {node: told}, "busy": {node: [{"id": EVIL}]}, "refused": {"operator": EVIL}}
        fake_aws.status = agent_status(fake_aws.model.clock.now(), **more)
        asked = {"schema": 1, "id": "x", "nodes": [{"id": EVIL}, {"id": node, "ip": EVIL}]}
        fake_aws.asked[request_key("small", "operator")] = json.dumps(asked).encode()
        fake_aws.stack = failed_stack()
        fake_aws.streams[f"LifecycleConfig/work/{node}"] = [(MS, f"a{EVIL}"), (MS + 1, EVIL)]
        deployed(fake_aws, monkeypatch)
        for module, clients in ((live, fake_aws.client), (plan, vars(plan)["clients"]("us-west-2"))):
            found = hostile_clients(clients, kept=kept, fails=fails)
            monkeypatch.setattr(module, "clients", lambda *_, found=found: found)
        monkeypatch.setattr("time.sleep", stop_after(3))
        return node

    return make


def stop_after(looks: int) -> Callable[[float], None]:
    left = iter(range(looks))

    def sleep(_: float) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return sleep


def words(command: tuple[str, ...], node: str) -> list[str]:
    return [word.format(node=node) for word in command]


def assert_is_text(printed: str) -> None:
    for line in printed.split("\n"):
        assert line.isprintable(), ascii(line)
        assert not line.lstrip().startswith(FORGED), line


@pytest.mark.parametrize("kept", [frozenset(KEPT), frozenset()], ids=["words", "everything"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_terminal_gets_text(command: tuple[str, ...], kept: frozenset[str], hostile: Any, run: Run) -> None:
    node = hostile(kept=kept)
    _, out, err = run(*words(command, node))
    assert out or err
    assert_is_text(out)
    assert_is_text(err)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_error_of_aws_is_text(command: tuple[str, ...], hostile: Any, run: Run) -> None:
    node = hostile(fails=True)
    _, out, err = run(*words(command, node))
    assert_is_text(out)
    assert_is_text(err)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_colour_lets_nothing_else_through(
    command: tuple[str, ...], hostile: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = hostile()
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, out, err = run(*words(command, node))
    for colour in ("0", *tables.COLOURS):
        out = out.replace(f"\033[{colour}m", "")
    assert_is_text(out)
    assert_is_text(err)


@pytest.mark.parametrize("command", WITH_JSON, ids=" ".join)
def test_json_is_exact_and_safe_to_look_at(command: tuple[str, ...], hostile: Any, run: Run) -> None:
    node = hostile()
    _, out, err = run(*words(command, node), "--json")
    documents = out.splitlines() if command == ("watch",) else [out] if out else []
    for document in documents:
        json.loads(document)
    assert_is_text(out)
    assert_is_text(err)


def test_json_has_what_was_said_and_no_less(hostile: Any, run: Run) -> None:
    node = hostile()
    found = json.loads(run("logs", node, "--json")[1])
    assert [line["message"] for line in found["lines"]] == [f"a{EVIL}{EVIL}", f"{EVIL}{EVIL}"]


@pytest.mark.parametrize("name", ["a\nProxyCommand touch x", "a b", "a\r", "*", "!a", "a.b", "a\u202e", 'a"b"'])
def test_a_block_for_ssh_takes_host_names_alone(name: str, fake_aws: FakeAws) -> None:
    target = Target(name="small", region="us-west-2", client=fake_aws.client, config=None)
    where = "sagemaker-cluster:abc_work-i-0123456789abcdef0"
    for node in (
        a_node("i-0123456789abcdef0", name),
        a_node(name, "ip-10-0-0-1"),
    ):
        with pytest.raises(LiveError, match="is not a host name"):
            connect.ssh_block(target, node, where, "ubuntu")
    fine = a_node("i-0123456789abcdef0", "ip-10-0-0-1")
    with pytest.raises(LiveError, match="is not a host name"):
        connect.ssh_block(target, fine, f"sagemaker-cluster:abc_{name}-i-0123456789abcdef0", "ubuntu")
    assert connect.ssh_block(target, fine, where, "ubuntu")[0] == "Host i-0123456789abcdef0 ip-10-0-0-1"


def a_node(instance_id: str, host: str) -> Node:
    return Node(
        group="work",
        instance_id=instance_id,
        host=host,
        logical_id=None,
        instance_type="ml.c5.xlarge",
        status="Running",
        message="",
        launched=None,
        image=None,
        image_status=None,
    )


# -- one way to do it --------------------------------------------------------------------------------------------------


def on_nodes() -> Any:
    """lifecycle/lib.py, which nodes have without the library."""
    spec = importlib.util.spec_from_file_location("lib_of_nodes", ROOT / "lifecycle" / "lib.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def samples() -> Iterator[str]:
    chance = random.Random(23)
    yield from ("", " ", "a  b", EVIL, "plain", "ünïcödé 日本", "a\tb", "\ufeffa", "\U000e0041")
    for _ in range(300):
        yield "".join(
            chr(chance.choice((chance.randrange(0x250), chance.randrange(sys.maxunicode)))) for _ in range(40)
        )


def test_functions_nodes_and_commands_make_the_same_line() -> None:
    lib = on_nodes()
    for sample in samples():
        line = text.one_line(sample)
        assert line.isprintable() and line == line.strip() and "  " not in line
        assert line == lib.one_line(sample) == tables.shown(sample, sys.maxsize)
        assert len(text.printable(sample)) == len(sample)


def test_commands_print_by_what_makes_text_printable() -> None:
    """`tables` alone writes to the terminal, besides what ends the tool before any library is loaded."""
    folder = ROOT / "constructs" / "cdk_hyperpod" / "cli"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if any(_writes(path))}
    assert found == {"tables.py", "main.py", "exits.py"}


def _writes(path: Path) -> Iterator[ast.AST]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in ("print", "click.echo", "click.secho") or name.endswith(("stdout.write", "stderr.write")):
                yield node


def test_the_guard_takes_in_text() -> None:
    node = {"state": EVIL, "message": EVIL, "requests": {"deployment": "x"}}
    busy = {"i-1": [{"id": EVIL, "user": EVIL}]}
    status = agent_status(1, problem=EVIL, refused={"deployment": EVIL}, nodes={"i-1": node}, busy=busy)
    said = channels.parse(status, 1)
    texts = [said.problem, said.rejected, *said.busy["i-1"], said.nodes["i-1"].state, said.nodes["i-1"].message]
    texts.append(api.reason(ClientError({"Error": {"Code": EVIL, "Message": EVIL}}, "x")))
    texts.append(str(ScaleDownError(f"refused: {EVIL}")))
    assert all(each.isprintable() and FORGED in each for each in texts), texts


@pytest.mark.parametrize("between", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"], ids=ascii)
def test_a_reason_in_slurm_makes_no_node(between: str) -> None:
    agent = load("agent/slurm.py")
    forged = f"Reason=x{between}NodeName=forged NodeAddr=10.0.0.9 State=IDLE\x1b[2J\u202e [root@2026-01-01T00:00:00]"
    found = agent.parse_nodes(f"NodeName=ip-1 NodeAddr=10.0.0.1 State=IDLE+DRAIN {forged}\n")
    assert list(found) == ["ip-1"]
    assert found["ip-1"].reason.isprintable() and found["ip-1"].reason.startswith("x NodeName=forged")
