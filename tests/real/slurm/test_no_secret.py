"""No secret is in a node's process list, which every user of the node can read, in a process's environment, or in a log.

Watched are the agent, the backup's job, Slurm's prolog and epilog, and the lifecycle scripts. The agent gets its
credentials as on a node of HyperPod's: from the instance's metadata.
"""

from __future__ import annotations

import json
import secrets as random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.slurm import drains as asking
from helpers.slurm.cluster import Cluster, Node
from helpers.slurm.drains import Drains
from helpers.slurm.hyperpod import SLURM_ETC
from helpers.slurm.metadata import metadata_of
from helpers.slurm.process_list import PATTERNS, forms

pytestmark = [pytest.mark.usefixtures("provisioned"), pytest.mark.setups("24.11-extended")]
HERE = Path(__file__).resolve().parents[2] / "helpers" / "slurm"
CREDENTIALS = {
    "AccessKeyId": f"ASIA{random.token_hex(8).upper()}",
    "SecretAccessKey": random.token_urlsafe(30),
    "Token": random.token_urlsafe(60),
    "Expiration": "2099-01-01T00:00:00Z",
}
IMDS_TOKEN = random.token_urlsafe(40)
WORK = "/opt/dlami/nvme/work"
AGENT_CALLS = ("scontrol", "squeue", "sbatch", "scancel")


@pytest.fixture(scope="module")
def secrets(cluster: Cluster) -> dict[str, bytes]:
    """The secrets of the whole cluster, which only their owners may read."""
    run = cluster.controller.run
    conf = run(f"cat {SLURM_ETC}/slurmdbd.conf")
    return {
        "the database's password": conf.partition("StoragePass=")[2].split()[0].encode(),
        "munge's key": bytes.fromhex(run("od -An -v -tx1 /etc/munge/munge.key").replace("\n", "").replace(" ", "")),
        "the role's secret": CREDENTIALS["SecretAccessKey"].encode(),
        "the role's token": CREDENTIALS["Token"].encode(),
        "the metadata's token": IMDS_TOKEN.encode(),
        "alice's key": run("cat /fsx/home/alice/.ssh/id_ed25519").splitlines()[2].encode(),
    }


class Watch:
    """The findings on a node, after the watch has ended."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.seen: list[str] = []

    def saw(self, words: str) -> bool:
        """Whether a process had these in its command line."""
        return any(words in command for command in self.seen)


@contextmanager
def watched(node: Node, secrets: dict[str, bytes]) -> Iterator[Watch]:
    """While the block runs."""
    program, known, enough = (f"/run/process_list/{name}" for name in ("list.py", "secrets.json", "enough"))
    node.write(program, (HERE / "process_list.py").read_text())
    node.write(known, json.dumps({name: text.hex() for name, text in secrets.items()}), "600")
    node.run(f"rm -f {enough}")
    watching, watch = node.start(f"exec python3 -B {program} {known} {enough}"), Watch()
    assert watching.stdout is not None
    try:
        assert watching.stdout.readline() == "watching\n", watching.stdout.read()
        yield watch
    finally:
        node.run(f"touch {enough}")
        said, _ = watching.communicate(timeout=60)
        node.run("rm -r /run/process_list")
    told = json.loads(said)
    watch.found, watch.seen = told["found"], told["seen"]


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[Drains]:
    """With credentials from the metadata. Its calls of Slurm's programs are slowed down, so that none is missed."""
    controller = cluster.controller
    with asking.agent(cluster) as drains, metadata_of(cluster, {controller: CREDENTIALS}, token=IMDS_TOKEN):
        for program in AGENT_CALLS:
            # It makes one backup, and repeats its requests.
            seconds = 1 if program == "sbatch" else 0.05
            slow = f'#!/bin/bash\nsleep {seconds}\nexec /usr/bin/{program} "$@"\n'
            controller.write(f"/srv/before/{program}", slow, "755")
        asking.set_up(cluster, {"AWS_ENDPOINT_URL_S3": asking.OWN_BUCKET["AWS_ENDPOINT_URL_S3"]})
        yield drains


@contextmanager
def prolog_and_epilog(cluster: Cluster, node: Node) -> Iterator[None]:
    """Of the node and of the controller. Each is slowed down."""
    conf, run = f"{SLURM_ETC}/slurm.conf", cluster.controller.run
    lines = []
    for option in ("Prolog", "Epilog", "PrologSlurmctld"):
        where = cluster.controller if option.endswith("ctld") else node
        where.write(f"/srv/{option}", "#!/bin/sh\nsleep 1\n", "755")
        lines.append(f"{option}=/srv/{option}")
    run(f"cp -p {conf} {conf}.before; cat >>{conf}; scontrol reconfigure", stdin="\n".join(lines) + "\n")
    try:
        yield
    finally:
        run(f"mv {conf}.before {conf}; scontrol reconfigure")


def test_nothing_of_ours_shows_a_secret(
    cluster: Cluster, agent: Drains, scripts: Path, secrets: dict[str, bytes]
) -> None:
    node, controller = cluster.compute[0], cluster.controller
    node.run(f"rm -rf {WORK}; mkdir -p {WORK}; head -c 1000000 /dev/urandom >{WORK}/model.bin")
    with ExitStack() as stack:
        stack.enter_context(prolog_and_epilog(cluster, node))
        there = {each: stack.enter_context(watched(each, secrets)) for each in (node, controller)}
        # A restarted agent requests its credentials.
        controller.run(f"systemctl restart {asking.UNIT}")
        job = agent.start_job(node)
        request = agent.ask(node)
        agent.await_state(node, "draining", request)
        agent.end_job(job)
        assert agent.await_state(node, "ready", request)["saved"] is True
        agent.ask()
        agent.await_given_back(node)
        assert controller.provision(scripts).returncode == 0
        # The agent opens no port.
        agent_pid = controller.run(f"systemctl show --property=MainPID --value {asking.UNIT}")
        listening = controller.run("ss --no-header --listening --tcp --udp --numeric --processes")
        assert "pid=" in listening and f"pid={agent_pid}," not in listening
    for watch in there.values():
        assert watch.found == {}
    for each in there:
        logs = each.run("journalctl --no-pager; find /var/log -name '*.log' -exec cat {} +")
        assert "cdk-hyperpod" in logs
        for name, secret in secrets.items():
            assert not [form for form in forms(secret) if form.decode("latin-1") in logs], name
    on_node, on_controller = there[node], there[controller]
    for program in ("slurm_script", "slurmstepd", "/srv/Prolog", "/srv/Epilog"):
        assert on_node.saw(program), (program, on_node.seen)
    ours = ("drain_agent.py", "provision.py", "/srv/before/scontrol", "/srv/before/squeue")
    for program in (*ours, "/srv/before/sbatch --parsable --job-name=cdk-hyperpod-backup:", "/srv/PrologSlurmctld"):
        assert on_controller.saw(program), (program, on_controller.seen)


HOLD = "python3 -c 'import time; time.sleep(0.5)'"
SHOWN: dict[str, Any] = {
    "a presigned URL": "https://b.s3.amazonaws.com/o?X-Amz-Signature=0f",
    "a signature": "AWS4-HMAC-SHA256",
    "a JSON Web Token": "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    "a token of EKS": "k8s-aws-v1.aHR0cHM",
    "a bearer token": "Authorization: Bearer abcdefghij",
    "an access key": CREDENTIALS["AccessKeyId"],
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "a password": "--password=open",
}


def test_the_check_for_secrets_finds_every_secret_and_pattern(cluster: Cluster, secrets: dict[str, bytes]) -> None:
    """Each secret and each pattern, in an argument and in the environment, makes the other test fail."""
    node = cluster.compute[0]
    assert SHOWN.keys() == PATTERNS.keys()
    # A zero byte ends an argument, and munge's key may contain some.
    texts = {name: value if name != "munge's key" else value.hex().encode() for name, value in secrets.items()}
    shown = {**{name: text.decode() for name, text in texts.items()}, **SHOWN}
    with watched(node, secrets) as watch:
        arguments = " ".join(f"'{text}'" for text in shown.values())
        named = " ".join(f"S{number}='{text}'" for number, text in enumerate(shown.values()))
        node.run(f"{HOLD} {arguments}; env {named} {HOLD}")
    assert watch.found.keys() >= {f"{name} in {where}" for name in shown for where in ("cmdline", "environ")}
