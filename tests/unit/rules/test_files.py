"""The files and folders that a cluster file names lie below the app's folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod.errors import ConfigError
from cdk_hyperpod.loader import load_config
from cdk_hyperpod.rules.files import app_folder
from helpers.findings import found

LINE = "root:not-for-anybody:20000:0:99999:7:::"
OUTSIDE = "path-outside-the-app"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """An app with the cluster file in a folder, and a file with secrets outside of the app."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "shadow").write_text(f"{LINE}\n")
    app = tmp_path / "app"
    (app / "clusters" / "own").mkdir(parents=True)
    (app / "cdk.json").write_text("{}")
    return app


def error(app: Path, setting: str, value: str) -> ConfigError | None:
    data: Any = {
        "name": "a",
        "region": "us-west-2",
        "instance_groups": [
            {"name": "controller", "instance_type": "ml.m5.4xlarge", "instance_count": 1, "node_type": "controller"},
            {
                "name": "work",
                "instance_type": "ml.m5.4xlarge",
                "instance_count": 1,
                "node_type": "compute",
                "partition": "work",
            },
        ],
    }
    if setting.startswith("eks."):
        data |= {
            "orchestrator": "eks",
            "instance_groups": [{"name": "work", "instance_type": "ml.m5.4xlarge", "instance_count": 1}],
        }
    holder = data["instance_groups"][1] if setting.startswith("instance_groups[work].") else data
    *names, last = setting.removeprefix("instance_groups[work].").split(".")
    for name in names:
        holder = holder.setdefault(name, {})
    holder[last] = value
    file = app / "clusters" / "cluster.yaml"
    file.write_text(yaml.safe_dump(data))
    try:
        load_config(file)
    except ConfigError as raised:
        return raised
    return None


SETTINGS = (
    "lifecycle.scripts",
    "lifecycle.scripts_before",
    "lifecycle.scripts_after",
    "instance_groups[work].scripts_before",
    "slurm.conf.slurm",
    "slurm.conf.gres",
    "slurm.prolog",
    "slurm.epilog",
    "eks.dependencies_chart",
)  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(
    "value",
    [
        lambda app: str(app.parent / "secrets"),
        lambda app: "../../secrets/shadow",
        lambda app: "own/../../../secrets/shadow",
        lambda app: link(app / "clusters" / "link", app.parent / "secrets" / "shadow"),
        lambda app: link(app / "clusters" / "link", Path("../../secrets")),
        lambda app: link(app / "clusters" / "own" / "link", app.parent / "secrets" / "shadow") and "own",
        lambda app: link(app / "clusters" / "own" / "link", app.parent / "secrets") and "own",
        lambda app: "/proc/kmsg",
        lambda app: "/dev/zero",
        lambda app: "/",
    ],
    ids=["folder", "up", "up again", "link", "link up", "link in it", "folder in it", "endless", "device", "root"],
)
def test_nothing_outside_of_the_app_is_read(app: Path, setting: str, value: Callable[[Path], str]) -> None:
    raised = error(app, setting, value(app))
    assert raised is not None
    assert (OUTSIDE, setting) in found(raised.findings)
    assert "not-for-anybody" not in str(raised)


def link(place: Path, target: Path) -> str:
    place.symlink_to(target)
    return place.name


def test_a_folder_beside_the_clusters_is_inside(app: Path) -> None:
    script = app / "own" / "10-first.sh"
    script.parent.mkdir()
    script.write_text("#!/bin/bash\n")
    script.chmod(0o755)
    link(app / "own" / "20-second.sh", Path("10-first.sh"))
    assert error(app, "lifecycle.scripts_before", "../own") is None


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_line_of_a_file_that_cannot_be_used_is_printed(app: Path, setting: str) -> None:
    """Such as .env, which is not in the repository."""
    (app / "clusters" / "own" / "Chart.yaml").write_text(f"{LINE}\n")
    (app / ".env").write_text(f"{LINE}\n- [{LINE}\n")
    for name in ("../.env", "own"):
        raised = error(app, setting, name)
        assert raised is not None
        assert "not-for-anybody" not in str(raised)


def test_a_pipe_is_not_waited_for(app: Path) -> None:
    os.mkfifo(app / "pipe")
    for setting in SETTINGS:
        assert error(app, setting, "../pipe") is not None


def test_the_folder_of_the_app_is_found_from_the_folder_of_a_file(app: Path, tmp_path: Path) -> None:
    assert app_folder(app / "clusters") == app
    (app / "clusters" / ".git").write_text("gitdir: elsewhere")
    assert app_folder(app / "clusters" / "own") == app / "clusters"
    (tmp_path / "link").symlink_to(app)
    assert app_folder(tmp_path / "link") == app
    assert app_folder(tmp_path / "secrets") == tmp_path / "secrets"
