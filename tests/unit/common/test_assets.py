"""What is uploaded: the scripts of nodes and the functions, each with the one file that says what the drain protocol is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cdk_hyperpod._common import assets
from cdk_hyperpod._common.assets import drain_protocol, lifecycle_dir, pack_lifecycle
from helpers.synthesis import ROOT, assembly_of_file


def packed(assembly: Path) -> list[Path]:
    """The folders that an app uploads."""
    files = [
        entry["source"]
        for manifest in assembly.rglob("*.assets.json")
        for entry in json.loads(manifest.read_text("utf-8"))["files"].values()
    ]
    return [folder for source in files if (folder := assembly / source["path"]).is_dir()]


@pytest.mark.parametrize(
    ("speaker", "place", "file"),
    [
        ("drain_agent.py", ".", "cluster.yaml"),
        ("hyperpod/scale_down/drain/requester.py", "hyperpod/kernel", "cluster.yaml"),
        ("hyperpod/drainer/handler.py", "hyperpod/kernel", "examples/eks_from_one_file/cluster.yaml"),
    ],
)
def test_uploaded_code_contains_the_drain_protocol_unchanged(speaker: str, place: str, file: str) -> None:
    folders = [folder for folder in packed(assembly_of_file(ROOT / file)) if (folder / speaker).is_file()]
    assert folders
    for folder in folders:
        assert (folder / place / "drain_protocol.py").read_bytes() == drain_protocol().read_bytes()


def test_scripts_of_nodes_are_packed_once_more_from_what_is_there_now(tmp_path: Path) -> None:
    (tmp_path / "packed" / "old").mkdir(parents=True)
    folder = pack_lifecycle(tmp_path / "packed")
    own = {path.relative_to(ROOT / "lifecycle") for path in (ROOT / "lifecycle").rglob("*")}
    wanted = {path for path in own if path.parts[0] != "eks" and "__pycache__" not in path.parts}
    assert {path.relative_to(folder) for path in folder.rglob("*")} == {*wanted, Path("drain_protocol.py")}


def test_the_packed_folder_may_be_written_and_removed_though_the_installation_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "installed"
    shutil.copytree(lifecycle_dir(), installed, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (installed, installed / "steps", installed / "agent"):
        folder.chmod(0o555)
    monkeypatch.setattr(assets, "lifecycle_dir", lambda: installed)
    packed = pack_lifecycle(tmp_path / "packed")
    assert {path.stat().st_mode & 0o777 for path in (packed, packed / "steps", packed / "agent")} == {0o755}
