"""Which nodes are never drained, whatever HyperPod's files tell."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.lifecycle.agent import SETTINGS, node_request, slurm_node, slurm_state
from helpers.lifecycle.programs import load

decide = load("agent/decide.py")
hyperpod = load("agent/hyperpod.py")
slurm = load("agent/slurm.py")


class Files:
    """HyperPod's files on the agent's node, and its address there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "opt/ml/config"
        self.folder.mkdir(parents=True)
        self.write("resource_config.json", InstanceGroups=[self.group(name, n) for n, name in enumerate(self.NAMES, 1)])

    NAMES = ("head", "login", "work")

    @staticmethod
    def group(name: str, number: int) -> dict[str, Any]:
        instance = {"InstanceId": f"i-{number:017x}", "CustomerIpAddress": f"10.0.0.{number}"}
        return {"Name": name, "Instances": [instance]}

    def write(self, name: str, **content: Any) -> None:
        file = self.folder / name
        before = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**before, **content}))

    @staticmethod
    def judge() -> list[str]:
        """What becomes of the three, where all are in Slurm and a login node is in the partition of all alone."""
        instances, never_drained, unknown_types = hyperpod.read_instances()
        nodes = [slurm_node(f"n{n}", number=n)._replace(partitions=("dev", "p5")[: 1 + (n == 3)]) for n in (1, 2, 3)]
        look = slurm_state(
            *nodes, instances=instances, never_drained=never_drained, unknown_types=unknown_types, reservations={}
        )
        node_requests = [node_request(instance=each, address=address) for each, address in instances.items()]
        return [decide.decide_node([each], look, SETTINGS).state for each in node_requests]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path))
    monkeypatch.delenv("SAGEMAKER_RESOURCE_CONFIG_PATH", raising=False)
    own = json.dumps([{"addr_info": [{"local": "127.0.0.1"}, {"local": "10.0.0.1"}]}])
    monkeypatch.setattr(slurm, "run", lambda *command, **_: subprocess.CompletedProcess(command, 0, own))
    hyperpod.own_addresses.cache_clear()
    return Files(tmp_path)


WORKERS = [{"instance_group_name": "work"}]


@pytest.mark.parametrize(
    ("slurm_config", "parameters"),
    [
        (None, None),
        ({"PrimaryControllerIp": "10.0.0.1"}, None),
        (None, {"controller_group": "head", "login_group": "login", "worker_groups": WORKERS}),
        ({"PrimaryControllerIp": "10.0.0.1"}, {"controller_group": "head", "worker_groups": WORKERS}),
    ],
)
def test_controller_and_login_nodes_are_refused_whichever_file_names_them(
    files: Files, slurm_config: Any, parameters: Any
) -> None:
    if slurm_config:
        files.write("resource_config.json", SlurmConfig=slurm_config)
    if parameters:
        files.write("provisioning_parameters.json", **parameters)
    assert files.judge() == ["refused", "refused", "draining"]


def test_an_agent_that_cannot_identify_its_own_node_drains_nothing(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "run", lambda *command, **_: subprocess.CompletedProcess(command, 127, "no ip"))
    with pytest.raises(slurm.SlurmError, match="no ip"):
        files.judge()
