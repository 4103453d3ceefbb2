"""Each command on clusters of 0, 1 and 6,758 nodes, under Slurm and EKS: what it prints in 80 columns, compared with a file.

`make docs` writes the files again: read the diff. With PICTURES=FOLDER each output is drawn there too, to be looked at.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod.cli import aws, tables
from cdk_hyperpod.cli.deployment import preflight
from cdk_hyperpod.cli.deployment.account_state import AccountState, LiveCluster
from cdk_hyperpod.cli.deployment.preflight_checks import PER_CLUSTER, TOTAL, usage_quota
from cdk_hyperpod.cli.deployment.prices import Prices, keep
from cdk_hyperpod_local.hyperpod.samples import EKS_ARN, VPC, eks, group, slurm
from helpers.cli.drawing import picture
from helpers.validating import ROOT, changed
from simulations.lifetimes.agent import status as agent_status
from unit.cli.conftest import FakeAws, Run, deployed

Json = Any
FOLDER = ROOT / "tests" / "unit" / "cli" / "printed"
CASES = [
    *((orchestrator, size) for orchestrator in ("slurm", "eks") for size in (0, 1)),
    ("slurm", 6758),
    pytest.param("eks", 6758, marks=pytest.mark.ci),
]
MOST = 30
"""Lines of an output that a file keeps; of a longer one, half of them from its beginning and half from its end."""
TYPE = "ml.p5.48xlarge"
STACK = "arn:aws:cloudformation:us-west-2:000000000000:stack/hyperpod-small-cluster/0a1b2c3d"
NETWORK = {
    "vpc_id": "vpc-0123456789abcdef0",
    "subnets": [{"subnet_id": VPC["Subnets"][0], "availability_zone": "us-west-2b"}],
}


def file(orchestrator: str, count: int) -> Json:
    """The cluster file with so many nodes to work."""
    work = {"name": "work", "instance_type": TYPE, "instance_count": count}
    if orchestrator == "eks":
        shared = {"dependencies_chart": "installed", "existing_cluster": {"name": EKS_ARN.split("/")[1], "security_group_id": VPC["SecurityGroupIds"][0]}}  # fmt: skip
        second = {"subnet_id": "subnet-0fedcba9876543210", "availability_zone": "us-west-2a"}
        return {
            "name": "small", "region": "us-west-2", "orchestrator": "eks", "eks": shared, "instance_groups": [work],
            "network": {**NETWORK, "subnets": [*NETWORK["subnets"], second]},
        }  # fmt: skip
    more = {**work, "node_type": "compute", "partition": "work"}
    return changed({"network": NETWORK, "instance_groups.1": more, "slurm": {"drain": {}}})


def write(orchestrator: str, count: int, **more: Json) -> None:
    Path("cluster.yaml").write_text(yaml.safe_dump({**file(orchestrator, count), **more}, sort_keys=False))


def request(orchestrator: str, count: int) -> Json:
    """CreateCluster of that file."""
    tags: Json = {"Tags": [{"Key": "cdk-hyperpod:stack-id", "Value": STACK}]}
    if orchestrator == "eks":
        return eks(group("work", count, node_type=None), name="small", **tags)
    head = group("head", 1, instance_type="ml.m5.xlarge", node_type="Controller")
    return {**slurm(name="small", **tags), "InstanceGroups": [head, group("work", count)]}


def account(orchestrator: str, patch: pytest.MonkeyPatch) -> None:
    """`preflight` finds an account without a cluster, with room for a hundred nodes, and prices are in the cache."""
    types = (TYPE, "ml.m5.xlarge")
    zones = {"us-west-2a": "usw2-az1", "us-west-2b": "usw2-az2"}
    found = AccountState(
        now=tables.now(),
        quotas={usage_quota(kind, spot=False): 100.0 for kind in types} | {PER_CLUSTER: 100.0, TOTAL: 200.0},
        interfaces=(5000.0, 12),
        clusters=(LiveCluster(name="other", groups=()),),
        zones=zones,
        offered={kind: frozenset(zones) for kind in types},
        free={VPC["Subnets"][0]: 16_000, "subnet-0fedcba9876543210": 250},
        needed={"EKS cluster eks": True} if orchestrator == "eks" else {},
        bootstrap=27,
    )
    patch.setattr(preflight, "read_account_state", lambda *_: found)
    patch.setattr(aws, "clients", lambda *_: None)
    patch.setenv("XDG_CACHE_HOME", str(Path("cache").absolute()))
    hourly = {f"Cluster:{TYPE}": 60.0, "Cluster:ml.m5.xlarge": 0.25, "AmazonEKS-Hours:perCluster": 0.1}
    keep(Prices(region="us-west-2", when="2026-11-22", hourly=hourly))


def shown(code: int, out: str, err: str) -> str:
    """An output as its file has it."""
    lines = out.splitlines()
    if len(lines) > MOST:
        half = MOST // 2
        lines = [*lines[:half], f"[… {len(lines) - 2 * half:,} lines]", *lines[-half:]]
    said = err.splitlines()
    return "\n".join([*lines, *(f"stderr: {line}" for line in said), f"[exit code {code}]", "", ""])


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(("orchestrator", "size"), CASES)
def test_the_output_of_every_command_is_that_of_its_golden_file(
    orchestrator: str, size: int, fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "no kubectl of this machine's")
    monkeypatch.setattr("time.sleep", fake_aws.model.clock.advance)  # type: ignore[attr-defined]
    write(orchestrator, size)
    account(orchestrator, monkeypatch)
    deployed(fake_aws, monkeypatch)
    told: list[str] = []
    drawn: list[str] = []
    line_of = tables._line

    def draw(cells: Any, widths: Any, right: Any, paint: Any) -> str:
        drawn.append(line_of(cells, widths, right, None))
        return line_of(cells, widths, right, paint)

    monkeypatch.setattr(tables, "_line", draw)
    if folder := os.environ.get("PICTURES"):
        monkeypatch.setenv("FORCE_COLOR", "1")

    def tell(*words: str, known: dict[str, str] | None = None, as_words: str | None = None) -> None:
        status, coloured, err = run(*[(known or {}).get(word, word) for word in words])
        out = re.sub(r"\033\[\d+m", "", coloured)
        assert "has a fault" not in err
        title = f"$ cdk-hyperpod {as_words or ' '.join(words)}"
        told.append(f"{title}\n{shown(status, out, err)}")
        if folder:
            name = f"{orchestrator}-{size}-{len(told):02}-{words[0]}.svg"
            Path(folder, name).write_text(picture(title.removeprefix("$ "), shown(status, coloured, err)), "utf-8")

    for command in ("check", "preflight", "cost", "retained"):
        tell(command)
    fake_aws.model.call("CreateCluster", request(orchestrator, size))
    tell("watch")
    fake_aws.quiet()
    fake_aws.model.clock.advance(3 * 86_400)  # type: ignore[attr-defined]
    nodes = fake_aws.nodes("work")
    for node in nodes[:30]:
        fake_aws.model.change_node(node, status="Failure", image="1.0")
    if nodes:
        fake_aws.streams[f"LifecycleConfig/work/{nodes[0]}"] = [(1_780_000_000_000, "on_create.sh: no space left")]
    tell("nodes")
    tell("nodes", "--status", "Failure", "--image", "outdated")
    tell("nodes", "--ids")
    fake_aws.stack = {"StackName": "hyperpod-small-cluster", "StackStatus": "CREATE_COMPLETE"}
    tell("why")
    tell("drain", "--status")
    status = agent_status(fake_aws.model.clock.now(), nodes={node: {"state": "draining"} for node in nodes[-1:]})
    fake_aws.status = status if orchestrator == "slurm" else None
    tell("patch", "--dry-run")
    if nodes:
        for words in (["logs"], ["connect", "--print"], ["connect", "--ssh-config"], ["drain"], ["undrain"]):
            tell(words[0], "NODE", *words[1:], known={"NODE": nodes[0]})
        for action in ("reboot", "replace"):
            tell(action, *nodes[:30], "--yes", as_words=f"{action} NODE… --yes")
            fake_aws.quiet()
        named = fake_aws.nodes("work")[-2:]
        write(orchestrator, size - len(named), scale_down={"nodes_to_delete": named})
        tell("plan")
        write(orchestrator, size // 2)
    else:
        write(orchestrator, 3)
    tell("plan")
    # A terminal would make a heap of a table. tests/unit/cli/test_width.py looks at all other lines.
    assert drawn and [line for line in drawn if len(line) > 80] == []
    found = "".join(told)
    golden = FOLDER / f"{orchestrator}-{size}.txt"
    if os.environ.get("GOLDEN") == "write":
        FOLDER.mkdir(exist_ok=True)
        golden.write_text(found, "utf-8")
    assert golden.read_text("utf-8") == found, "read what has changed, and write the files again: make docs"
