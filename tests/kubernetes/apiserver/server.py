"""A Kubernetes control plane on loopback: etcd, API server, controllers and scheduler, as real as they come; no nodes.

    with control_plane(folder) as cluster:
        client = Client(cluster)

Everything is in the folder, listens on 127.0.0.1 at free ports, and ends with the block; should this process be killed,
the kernel ends it.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kubernetes.apiserver.build import built
from kubernetes.apiserver.client import Client, ControlPlane

START_LIMIT_S = 120
TOKEN = "of-the-tests"
# What the API server's own objects need (namespaces, service accounts), and what this package's need.
CONTROLLERS = "namespace,serviceaccount,serviceaccount-token,resourcequota,disruption"


@contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """A new, empty cluster. Needs the binaries of `build.py`."""
    binaries = built()
    if binaries is None:
        raise FileNotFoundError("kube-apiserver is not built: make kubernetes-apiserver")
    etcd_port, peer_port, port = _free_ports(3)
    etcd, url = f"http://127.0.0.1:{etcd_port}", f"https://127.0.0.1:{port}"
    cluster = ControlPlane(
        url=url, certificate=folder / "certs" / "apiserver.crt", token=TOKEN, kubeconfig=folder / "kubeconfig"
    )
    _write_credentials(folder, cluster)
    with ExitStack() as processes:

        def start(name: str, *options: str) -> subprocess.Popen[bytes]:
            return processes.enter_context(_process([str(binaries / name), *options], folder / f"{name}.log"))

        peer = f"http://127.0.0.1:{peer_port}"
        start(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        server = start(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder / 'certs'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={folder / 'service-accounts.key'}",
            f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
            f"--service-account-issuer={url}",
            # Nobody is to reach this server by a Service, whose address may not be loopback.
            "--endpoint-reconciler-type=none",
        )
        _await_ready(cluster, server, folder / "kube-apiserver.log")
        options = (f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false", "--port=0", "--secure-port=0")
        start(
            "kube-controller-manager",
            *options,
            f"--controllers={CONTROLLERS}",
            f"--service-account-private-key-file={folder / 'service-accounts.key'}",
        )
        start("kube-scheduler", *options)
        yield cluster


def _write_credentials(folder: Path, cluster: ControlPlane) -> None:
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
    key = folder / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    name = "local"
    server = {"server": cluster.url, "certificate-authority": str(cluster.certificate)}
    cluster.kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": name, "cluster": server}],
                "users": [{"name": name, "user": {"token": TOKEN}}],
                "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
                "current-context": name,
            }
        )
    )


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            # Linux then ends it as soon as the process that started it is gone, however that went.
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(cluster: ControlPlane, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError):
            if Client(cluster).get("/readyz").status == 200:
                return
        time.sleep(0.2)
    end = log.read_text(errors="replace")[-3000:]
    raise TimeoutError(f"kube-apiserver did not become ready within {START_LIMIT_S} s; the end of its log:\n{end}")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as sockets:
        taken = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]
