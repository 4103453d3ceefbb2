"""The control plane's guarantees: it listens on loopback only, has the stated version, and ends with its starter."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cdk_hyperpod_local.engine.kubernetes.control_plane import VERSION
from helpers.kubernetes.apiserver.client import Client

COMPONENTS = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
STARTER = """
import pathlib, sys, time
from cdk_hyperpod_local.engine.kubernetes.control_plane import control_plane
with control_plane(pathlib.Path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif("KUBERNETES_BIN" in os.environ, reason="another version was named on purpose")
def test_the_version_is_reported(admin: Client) -> None:
    assert admin.get("/version").body["gitVersion"] == f"v{VERSION}"


def test_nothing_outlives_a_starter_that_is_killed(admin: Client, tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
        # The last processes may not show their final command yet.
        deadline = time.monotonic() + 10
        while {Path(command[0]).name for command in running(tmp_path)} != COMPONENTS:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        starter.kill()
        starter.wait()
    deadline = time.monotonic() + 10
    while running(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.skipif(shutil.which("ss") is None, reason="there is no ss (iproute2) to ask")
def test_only_the_api_listens_on_the_network_and_on_loopback_alone(admin: Client) -> None:
    """etcd has no authentication: a user of the machine who reaches it is the cluster's administrator."""
    folder = admin.cluster.kubeconfig.parent
    listening = {
        line.split()[3]
        for line in subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
        if any(f"pid={pid}," in line for pid in pids(folder))
    }
    assert listening == {admin.cluster.url.removeprefix("https://")}
    sockets = [path for path in folder.iterdir() if path.is_socket()]
    assert len(sockets) == 2 and stat.S_IMODE(folder.stat().st_mode) == 0o700


def running(folder: Path) -> list[list[str]]:
    """The commands of the processes that run in a folder."""
    return [command_of(pid) for pid in pids(folder)]


def pids(folder: Path) -> list[int]:
    everything = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in everything if any(f"{folder}/" in part for part in command_of(pid))]


def command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
