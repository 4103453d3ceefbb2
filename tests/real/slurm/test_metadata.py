"""Access to the instance's metadata: the step's rules in the kernel, with users of several uids and a container on a
bridge.

A network namespace represents the node, and another behind a bridge represents a container on it.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.lifecycle.programs import LIFECYCLE, load

metadata = load("steps/32_metadata.py")
V4, V6 = "169.254.169.254", "fd00:ec2::254"
OURS, THEIRS = 60001, 60002
"""The uids of two users that are in no list."""
_numbers = itertools.count()
IP = shutil.which("ip") or "ip"
SERVER = """
import http.server, socket
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
Server(("::", 80), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass(frozen=True)
class Node:
    name: str
    root: Path

    def run(self, *command: str, uid: int = 0, inside: str = "") -> subprocess.CompletedProcess[str]:
        entered = ["ip", "netns", "exec", inside or self.name]
        as_user = ["setpriv", f"--reuid={uid}", "--clear-groups"] if uid else []
        return subprocess.run([*entered, *as_user, *command], capture_output=True, text=True, check=False)

    def reaches(self, address: str, *, uid: int = 0, inside: str = "") -> bool:
        host = f"[{address}]" if ":" in address else address
        code = f"import urllib.request as u; u.build_opener(u.ProxyHandler({{}})).open('http://{host}/', timeout=2)"
        return self.run(sys.executable, "-I", "-c", code, uid=uid, inside=inside).returncode == 0

    def step(self, named: list[str] | None, path: str = "", node_type: str = "compute", **content: object) -> str:
        """Run the step with these metadata_users, and return its log."""
        file = self.root / "cluster.json"
        file.write_text(json.dumps({**content, **({} if named is None else {"metadata_users": named})}))
        environment = {**os.environ, "PROVISION_ROOT": str(self.root), "PYTHONPATH": str(LIFECYCLE)}
        environment["PATH"] = path or f"{self.root / 'bin'}:{environment['PATH']}"
        step = [sys.executable, "-B", str(self.root / "scripts/steps/32_metadata.py"), str(file), node_type]
        done = subprocess.run(
            [IP, "netns", "exec", self.name, *step], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    def tables(self) -> str:
        return self.run("nft", "list", "ruleset").stdout


@pytest.fixture
def node(parts: None, tmp_path: Path) -> Iterator[Node]:
    number = f"{os.getpid()}{next(_numbers)}"
    name, container = f"node{number}", f"box{number}"
    root = tmp_path / "node"
    shutil.copytree(LIFECYCLE, root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "bin").mkdir()
    (root / "bin/systemctl").write_text(f'#!/bin/sh\necho "$@" >>{root}/asked\n')
    (root / "bin/systemctl").chmod(0o755)
    servers: list[subprocess.Popen[bytes]] = []
    try:
        for each in (name, container):
            ip("netns", "add", each)
            ip("-n", each, "link", "set", "lo", "up")
        ip("-n", name, "link", "add", "bridge", "type", "bridge")
        ip("-n", name, "link", "add", "port", "type", "veth", "peer", "name", "eth0", "netns", container)
        ip("-n", name, "link", "set", "port", "master", "bridge")
        for device in ("bridge", "port"):
            ip("-n", name, "link", "set", device, "up")
        ip("-n", container, "link", "set", "eth0", "up")
        # The metadata server is beyond the node, in a third namespace, so that a container's traffic is forwarded.
        ip("netns", "add", f"aws{number}")
        ip("-n", f"aws{number}", "link", "set", "lo", "up")
        ip("-n", name, "link", "add", "ens5", "type", "veth", "peer", "name", "eth0", "netns", f"aws{number}")
        for space, device, v4, v6 in (
            (name, "bridge", "172.17.0.1/16", "fd00:17::1/64"),
            (container, "eth0", "172.17.0.2/16", "fd00:17::2/64"),
            (name, "ens5", "10.0.0.1/24", "fd00:10::1/64"),
            (f"aws{number}", "eth0", "10.0.0.2/24", "fd00:10::2/64"),
            (f"aws{number}", "lo", f"{V4}/32", f"{V6}/128"),
            (f"aws{number}", "lo", "169.254.169.123/32", "fd00:ec2::123/128"),
        ):
            ip("-n", space, "address", "add", v4, "dev", device)
            ip("-n", space, "-6", "address", "add", v6, "dev", device, "nodad")
            ip("-n", space, "link", "set", device, "up")
        for space, v4, v6 in ((container, "172.17.0.1", "fd00:17::1"), (f"aws{number}", "10.0.0.1", "fd00:10::1")):
            ip("-n", space, "route", "add", "default", "via", v4)
            ip("-n", space, "-6", "route", "add", "default", "via", v6)
        ip("-n", name, "route", "add", "default", "via", "10.0.0.2")
        ip("-n", name, "-6", "route", "add", "default", "via", "fd00:10::2")
        made = Node(name, root)
        for key in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            assert made.run("sysctl", "-w", f"{key}=1").returncode == 0
        servers.append(
            subprocess.Popen(
                ["ip", "netns", "exec", f"aws{number}", sys.executable, "-I", "-c", SERVER],
                cwd=tmp_path,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        wait_until_up(made)
        yield made
    finally:
        for server in servers:
            server.kill()
            server.wait()
        for each in (name, container, f"aws{number}"):
            subprocess.run(["ip", "netns", "delete", each], check=False, capture_output=True)


def wait_until_up(node: Node) -> None:
    limit = time.monotonic() + 30
    while not all(node.reaches(address) for address in (V4, V6)):
        assert time.monotonic() < limit, "the server that stands for the metadata did not start"
        time.sleep(0.2)


def everybody(node: Node, address: str) -> dict[str, bool]:
    who = {"root": 0, "system": 101, "image": 1000, "first": 1001, "nobody": 65534, "theirs": THEIRS}
    return {
        **{name: node.reaches(address, uid=uid) for name, uid in who.items()},
        "container": node.reaches(address, inside=node.name.replace("node", "box")),
    }


@pytest.mark.parametrize("address", [V4, V6])
def test_only_root_system_users_and_the_images_user_reach_the_metadata(node: Node, address: str) -> None:
    assert set(everybody(node, address).values()) == {True}
    said = node.step([])
    assert "only root, the system's users and metadata_users reach the metadata" in said
    assert everybody(node, address) == {
        "root": True,
        "system": True,
        "image": True,
        "first": False,
        "nobody": False,
        "theirs": False,
        "container": False,
    }
    # Other services at nearby addresses are not refused, such as the time.
    assert node.reaches("169.254.169.123" if address == V4 else "fd00:ec2::123", uid=THEIRS)
    said = node.step(None)
    assert "every user reaches the metadata of this node again" in said
    assert set(everybody(node, address).values()) == {True}


def test_named_users_reach_it_and_no_other_rule_is_touched(node: Node) -> None:
    node.run("nft", "add", "table", "inet", "somebodys")
    node.run(
        "nft", "add", "chain", "inet", "somebodys", "input", "{ type filter hook input priority 0 ; policy accept ; }"
    )
    before = node.tables()
    file = node.root / "usr/local/lib/cdk-hyperpod/metadata.nft"
    node.step([])
    # `nobody` is the only user above 1000 that every machine has.
    for _ in range(2):
        node.step(["nobody", "root", "not-there"])
        assert [node.reaches(V4, uid=uid) for uid in (65534, 0, THEIRS, OURS)] == [True, True, False, False]
    assert node.tables().count(metadata.TABLE) == 1 and before in node.tables()
    # As the unit does at boot.
    node.run("nft", "delete", "table", "inet", metadata.TABLE)
    assert node.reaches(V4, uid=THEIRS)
    unit = (node.root / "etc/systemd/system" / metadata.UNIT).read_text()
    assert f"ExecStart=/usr/bin/env nft --file {metadata.RULES}" in unit
    assert f"enable {metadata.UNIT}" in (node.root / "asked").read_text()
    assert node.run("nft", "--file", str(file)).returncode == 0
    assert [node.reaches(V4, uid=uid) for uid in (65534, THEIRS)] == [True, False]
    node.step(None)
    assert node.tables() == before


SSHD = """#!/bin/sh
exec /usr/sbin/sshd "$@" -f {root}/etc/ssh/sshd_config -h {root}/key
"""


@pytest.fixture
def controller(node: Node) -> Node:
    """With this machine's sshd, which reads the node's files."""
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    (node.root / "etc/ssh").mkdir(parents=True)
    (node.root / "etc/ssh/sshd_config").write_text(f"Include {node.root}/etc/ssh/sshd_config.d/*.conf\nPort 2222\n")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(node.root / "key")], check=True)
    (node.root / "bin/sshd").write_text(SSHD.format(root=node.root))
    (node.root / "bin/sshd").chmod(0o755)
    return node


USERS = [{"name": "alice"}, {"name": "Bob.b"}]


def refused(node: Node) -> set[str]:
    said = node.run(str(node.root / "bin/sshd"), "-T", "-C", "user=x,host=x,addr=127.0.0.1").stdout
    return {line.split()[1] for line in said.splitlines() if line.startswith("denyusers ")}


@pytest.mark.parametrize("has_login_group", [False, True])
@pytest.mark.parametrize("named", [None, ["nobody"]])
def test_no_user_of_the_controller_reaches_its_metadata(
    controller: Node, named: list[str] | None, has_login_group: bool
) -> None:
    for _ in range(2):
        controller.step(named, node_type="controller", users=USERS, login_group=has_login_group)
        for address in (V4, V6):
            reached = everybody(controller, address)
            assert {who for who, is_open in reached.items() if is_open} == {"root", "system", "image"}
        assert refused(controller) == ({"alice", "Bob.b"} if has_login_group else set())
    asked = (controller.root / "asked").read_text()
    assert asked.count("reload ssh.service") == int(has_login_group)


def test_a_controller_whose_metadata_cannot_be_closed_admits_no_user(controller: Node) -> None:
    (controller.root / "bin/nft").write_text("#!/bin/sh\necho no netlink >&2\nexit 1\n")
    (controller.root / "bin/nft").chmod(0o755)
    said = controller.step(None, node_type="controller", users=USERS)
    assert "every user's process can still take this node's role, because nft says no netlink" in said
    assert refused(controller) == {"alice", "Bob.b"}
    (controller.root / "bin/nft").unlink()
    said = controller.step(None, node_type="controller", users=USERS)
    assert "sshd refuses no user of the file" in said
    assert refused(controller) == set() and not controller.reaches(V4, uid=THEIRS)


@pytest.mark.parametrize(
    ("config", "reason"),
    [("Nonsense yes\n", "failed with exit code"), ("Port 2222\n", "sshd does not read /etc/ssh/sshd_config.d/")],
)
def test_an_sshd_that_would_not_refuse_them_is_a_warning_and_is_not_reloaded(
    controller: Node, config: str, reason: str
) -> None:
    (controller.root / "etc/ssh/sshd_config").write_text(config)
    said = controller.step(None, node_type="controller", users=USERS, login_group=True)
    assert "WARNING" in said and "users may be able to log in to this controller by ssh" in said and reason in said
    assert "reload ssh" not in (controller.root / "asked").read_text()


def test_a_user_whom_the_node_does_not_know_is_a_warning(node: Node) -> None:
    assert "this node knows no user not-there, who does not get the node's role" in node.step(["not-there"])


def test_without_nft_the_node_joins_with_one_sentence(node: Node) -> None:
    (node.root / "bin/python3").symlink_to(sys.executable)
    said = node.step([], path=str(node.root / "bin"))
    (line,) = said.splitlines()[-1:]
    assert line.endswith(
        "every job can still take this node's role, because this image has no nft; mend it, then run "
        "`cdk-hyperpod lifecycle run metadata`"
    )
    assert node.reaches(V4, uid=THEIRS)
    assert not (node.root / "asked").exists()


def test_a_kernel_that_refuses_the_rules_fails_no_node(node: Node) -> None:
    (node.root / "bin/nft").write_text(
        "#!/bin/sh\necho 'Error: Could not process rule: Operation not supported' >&2\nexit 1\n"
    )
    (node.root / "bin/nft").chmod(0o755)
    said = node.step([])
    assert "because nft says Error: Could not process rule: Operation not supported; mend it" in said
