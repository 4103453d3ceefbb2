"""The script of nodes under EKS, run for real in a folder that stands for the node; mounts are files that name them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from cdk_hyperpod._common.assets import SHARED_WITH_EKS, pack_eks_lifecycle
from cdk_hyperpod.scripts.script_folder import checksums
from helpers.lifecycle.programs import LIFECYCLE

COMMANDS = {
    "mountpoint": '[[ -e "$(dirname "$0")/../mounted${2#"$PROVISION_ROOT"}" ]]',
    "mount": 'd="$(dirname "$0")/../mounted${3#"$PROVISION_ROOT"}"; mkdir -p "$(dirname "$d")"; touch "$d"; echo "$2" >>"$(dirname "$0")/../binds"',
    "systemctl": 'echo "$*" >>"$(dirname "$0")/../systemctl.log"; [[ $1 != is-active || -e "$(dirname "$0")/../active.$3" ]]',
    "lsblk": 'echo \'{"blockdevices": [{"type": "disk", "mountpoint": null, "children": [{"type": "part", "mountpoint": "/"}]}]}\'',
}


class Node:
    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        (self.root / "etc").mkdir(parents=True)
        (self.root / "etc/fstab").write_text("LABEL=/ / xfs defaults 0 0\n")
        (self.root / "var/lib/containerd").mkdir(parents=True)
        (self.root / "var/lib/containerd/image").write_text("layer")
        (folder / "bin").mkdir()
        for name, body in COMMANDS.items():
            self.command(name, body)
        pack_eks_lifecycle(folder / "scripts")

    def command(self, name: str, body: str) -> None:
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/bash\n{body}\n")
        file.chmod(0o755)

    def mount(self, path: str) -> None:
        file = self.folder / f"mounted{path}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        (self.root / path[1:]).mkdir(parents=True, exist_ok=True)

    def run(self, expected: int = 0) -> str:
        done = subprocess.run(
            ["bash", str(self.folder / "scripts/node.sh")],
            env={
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "PROVISION_ROOT": str(self.root),
                "PROVISION_DELAY_S": "0",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == expected, done.stdout
        return done.stdout


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_without_a_disk_of_its_own_a_node_is_left_as_it_is(node: Node) -> None:
    assert "nothing to do on" in node.run()
    assert (node.root / "etc/fstab").read_text().count("\n") == 1


@pytest.mark.parametrize("disk", ["/opt/sagemaker", "/opt/dlami/nvme"])
def test_data_move_to_the_disk_and_stay_there_after_a_reboot(node: Node, disk: str) -> None:
    node.mount(disk)
    (node.folder / "active.containerd").touch()
    assert f"the data of containerd are in {disk}/containerd" in node.run()
    assert (node.root / f"{disk[1:]}/containerd/image").read_text() == "layer"
    assert (node.folder / "binds").read_text().split() == [
        f"{node.root}{disk}/{name}" for name in ("containerd", "kubelet")
    ]
    assert (node.root / "etc/fstab").read_text().splitlines()[1:] == [
        f"{disk}/{name} /var/lib/{name} none bind,nofail,x-systemd.requires-mounts-for={disk} 0 0"
        for name in ("containerd", "kubelet")
    ]
    asked = (node.folder / "systemctl.log").read_text().splitlines()
    assert [line for line in asked if "is-active" not in line] == ["stop containerd", "start containerd"]


@pytest.mark.parametrize("killed_at", ["cp", "mount"])
def test_a_service_that_a_run_stopped_is_started_by_the_next_one(node: Node, killed_at: str) -> None:
    node.mount("/opt/sagemaker")
    active = node.folder / "active.containerd"
    active.touch()
    node.command(
        "systemctl", f"{COMMANDS['systemctl']}; [[ $1 != stop ]] || rm {active}; [[ $1 != start ]] || touch {active}"
    )
    node.command(killed_at, "kill -9 $PPID")
    node.run(expected=-9)
    assert not active.exists()
    (node.folder / "bin" / killed_at).unlink()
    if killed_at in COMMANDS:
        node.command(killed_at, COMMANDS[killed_at])
    node.run()
    assert active.exists()
    assert not list((node.root / "var/lib/cdk-hyperpod/owed").iterdir())


def test_the_second_run_changes_nothing(node: Node) -> None:
    node.mount("/opt/sagemaker")
    node.run()
    before = {file: file.read_bytes() for file in node.root.rglob("*") if file.is_file()}
    assert "the data of kubelet are on a disk of their own" in node.run()
    assert before == {file: file.read_bytes() for file in node.root.rglob("*") if file.is_file()}


def test_the_second_volume_comes_before_nvme(node: Node) -> None:
    node.mount("/opt/dlami/nvme")
    node.mount("/opt/sagemaker")
    assert "/opt/sagemaker/containerd" in node.run()


def test_a_disk_that_is_mounted_late_is_waited_for(node: Node) -> None:
    bare = '{"blockdevices": [{"type": "disk", "mountpoint": null}]}'
    late = node.folder / "mounted/opt/sagemaker"
    node.command("lsblk", f"mkdir -p {late.parent} {node.root}/opt/sagemaker; touch {late}; echo '{bare}'")
    assert "/opt/sagemaker/containerd" in node.run()


def test_it_can_be_switched_off(node: Node) -> None:
    node.mount("/opt/sagemaker")
    (node.folder / "scripts/cluster.json").write_text('{"steps": {"checks": true, "container_data": false}}')
    assert "container_data is switched off" in node.run()
    assert not (node.folder / "binds").exists()


def test_a_mount_that_fails_fails_the_node_and_says_so(node: Node) -> None:
    node.mount("/opt/sagemaker")
    node.command("mount", "exit 32")
    assert "ERROR node.sh: line" in node.run(expected=32).splitlines()[-1]


# -- whether the upload is whole --------------------------------------------------------------------------------------

FILES = sorted(
    [
        *((f"eks/{file.name}", file.name) for file in (LIFECYCLE / "eks").glob("*.*")),
        *((name, name) for name in SHARED_WITH_EKS),
    ],
    key=lambda pair: pair[1],
)
SUMS = checksums((name, (LIFECYCLE / source).read_bytes()) for source, name in FILES)
CLUSTER = json.dumps({"cluster_name": "train", "checksums": True, "mounts": []})


def upload(node: Node, *, cluster: str | None = CLUSTER, sums: str | None = None) -> None:
    """What the library puts beside the script; None: it did not come."""
    for name, content in (("cluster.json", cluster), ("scripts.sha256", sums)):
        if content is not None:
            (node.folder / "scripts" / name).write_text(content)


def test_scripts_that_came_whole_run(tmp_path: Path) -> None:
    node = Node(tmp_path)
    upload(node, sums=SUMS)
    assert "nothing to do" in node.run()


@pytest.mark.parametrize(
    ("cluster", "sums", "added", "what"),
    [
        pytest.param(CLUSTER, SUMS, "# more\n", "node.sh: FAILED", id="another script"),
        pytest.param(CLUSTER, "", "", "scripts.sha256 holds no sums", id="empty sums"),
        pytest.param(CLUSTER, None, "", "scripts.sha256 is absent", id="no sums"),
        pytest.param(None, SUMS, "", "cluster.json is absent", id="no cluster.json"),
    ],
)
def test_an_incomplete_upload_fails_the_node_before_anything_is_moved(
    tmp_path: Path, cluster: str | None, sums: str | None, added: str, what: str
) -> None:
    node = Node(tmp_path)
    node.mount("/opt/sagemaker")
    upload(node, cluster=cluster, sums=sums)
    with (tmp_path / "scripts/node.sh").open("a") as script:
        script.write(added)
    assert node.run(1).strip().partition(": ")[2] == (
        f"the upload of the scripts is incomplete ({what}); compare the prefix that SourceS3Uri names with the folder "
        "lifecycle/eks, and upload what differs, with scripts.sha256 where it was meant"
    )
    assert not (tmp_path / "binds").exists()


def test_a_folder_of_one_s_own_has_neither(tmp_path: Path) -> None:
    node = Node(tmp_path)
    upload(node, cluster="{}")
    assert "nothing to do" in node.run()
