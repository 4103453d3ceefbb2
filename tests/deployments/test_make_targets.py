"""The four commands of the README, as anyone types them: from nothing to a cluster and back to nothing."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdk_hyperpod_local import daemon
from cdk_hyperpod_local.places import Place
from helpers.synthesis import ROOT

ASK = "import boto3; print(*[c['ClusterName'] for c in boto3.client('sagemaker').list_clusters()['ClusterSummaries']])"


@pytest.fixture
def place() -> Iterator[Place]:
    free = Place(daemon.free_port())
    yield free
    daemon.remove(free)


def make(place: Place, target: str, *, seconds: float = 180, **variables: str) -> subprocess.CompletedProcess[str]:
    settings = [f"{name}={value}" for name, value in {"LOCAL_PORT": str(place.port), **variables}.items()]
    # What pytest's own environment says of validation and the like is not the user's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CDK_", "JSII_", "AWS_"))}
    return subprocess.run(
        ["make", "--no-print-directory", target, *settings],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def runs(pid: int) -> bool:
    """Not where it is gone, nor where it has ended and only waits to be noticed."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def test_from_nothing_to_nothing(place: Place) -> None:
    temporary = set(Path(tempfile.gettempdir()).glob("ministack*"))
    deployed = make(place, "deploy-local", LOCAL_SPEED="1200")
    assert deployed.returncode == 0, deployed.stdout[-3000:] + deployed.stderr[-3000:]
    assert re.search(r"^llm-train +p5 +ml\.p5\.48xlarge +8 +4 +8 +InService$", deployed.stdout, re.MULTILINE)
    assert f"make destroy-local LOCAL_PORT={place.port}" in deployed.stdout
    pid = daemon.running(place)
    assert pid is not None

    unchanged = make(place, "diff-local")
    assert unchanged.returncode == 0 and "Number of stacks with differences: 0" in unchanged.stdout

    exports = make(place, "shell-local").stdout
    words = [shlex.split(line) for line in exports.splitlines()]
    environment = {**os.environ, **dict(line[1].split("=", 1) for line in words if line[0] == "export")}
    asked = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    assert asked.stdout == "llm-train\n"

    destroyed = make(place, "destroy-local")
    assert destroyed.returncode == 0, destroyed.stdout[-3000:] + destroyed.stderr[-3000:]
    assert re.search(r"^AWS::FSx::FileSystem +fs-", destroyed.stdout, re.MULTILINE), "it says what AWS would keep"
    assert not runs(pid) and not place.folder.exists()
    assert set(Path(tempfile.gettempdir()).glob("ministack*")) == temporary
    assert make(place, "destroy-local").returncode == 0, "there is nothing to do, and that is no error"


def test_a_wrong_file_is_said_at_the_end(place: Place, tmp_path: Path) -> None:
    wrong = tmp_path / "a wrong one.yaml"
    wrong.write_text("name: x\nregion: us-west-2\nfleet: []\n", "utf-8")
    refused = make(place, "deploy-local", CONFIG=str(wrong))
    assert refused.returncode != 0
    assert "fleet" in refused.stderr and "Traceback" not in refused.stderr
    assert daemon.running(place) is None and not place.folder.exists(), "no engine was started for it"


def test_a_wrong_setting_is_said_in_one_line(place: Place) -> None:
    for refused in (make(place, "deploy-local", LOCAL_PORT="-1"), make(place, "deploy-local", LOCAL_SPEED="-inf")):
        assert refused.returncode != 0
        assert re.match(r"local AWS: LOCAL_(PORT=-1|SPEED=-inf) is not a .*\nmake(\[\d\])?: ", refused.stderr)
    assert not place.folder.exists()
