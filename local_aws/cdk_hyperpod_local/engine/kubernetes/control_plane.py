"""A Kubernetes control plane on loopback: real etcd, API server, controllers and scheduler, without nodes.

    with control_plane(folder) as cluster:
        client = Client(cluster)

Everything is in the folder, which only its owner can enter, and ends with the block. If this process is killed, or the
thread that entered the block ends, the kernel ends it too. The API server listens on 127.0.0.1 and requires a token.
etcd has no authentication, so it listens on sockets in the folder. The next control plane in the folder has the same
data.

Uses the standard library only: the tests use it, and the local AWS's engine, which has its own Python environment.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cdk_hyperpod_local.places import cache_folder

VERSION = "1.20.2"
PACKAGE = "kubernetes=1.20.5+really1.20.2-1.1+deb12u1"
"""Debian's package, with the source of all four programs."""
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
BINARIES = (*COMPONENTS, "etcd")
START_LIMIT_S = 120
ETCD, PEERS = "unix://etcd:1", "unix://etcd:2"
"""Sockets with these names ("etcd:1") in the working folder of etcd and the API server. etcd wants a port in each."""
# Resources of the API server's own objects (namespaces, service accounts, volumes), and of this package's.
CONTROLLERS = (
    "namespace,serviceaccount,serviceaccount-token,resourcequota,disruption,"
    "persistentvolume-binder,pvc-protection,pv-protection,deployment,replicaset,job"
)


def cache() -> Path:
    """The folder of the binaries, built or not: $XDG_CACHE_HOME/cdk-hyperpod/kubernetes-1.20.2."""
    return cache_folder() / f"kubernetes-{VERSION}"


def built() -> Path | None:
    """The folder of the binaries, if this version is completely built, or the one that KUBERNETES_BIN names.

    KUBERNETES_BIN is for tests of a newer Kubernetes: a folder with builds of the same four programs.
    """
    if other := os.environ.get("KUBERNETES_BIN"):
        return Path(other)
    folder = cache() / "bin"
    try:
        record = json.loads((folder / "build.json").read_text())
    except (OSError, ValueError):
        return None
    return folder if record.get("package") == PACKAGE and all((folder / name).is_file() for name in BINARIES) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """The cluster's address, and the administrator's access."""

    url: str
    """Such as https://127.0.0.1:34567."""
    certificate: Path
    """The server's certificate, self-signed."""
    token: str
    """A bearer token of the group system:masters, which may impersonate any user."""
    kubeconfig: Path
    """The same access, as a kubeconfig for kubectl and helm."""
    minor: int
    """The minor version of Kubernetes: 20 for 1.20.2."""


@contextmanager
def control_plane(
    folder: Path, *, port: int | None = None, token_webhook: Path | None = None
) -> Iterator[ControlPlane]:
    """A new, empty cluster, or the one that was in the folder. The binaries must be built (`built`).

    `port`: the API's (absent: a free one). `token_webhook`: a kubeconfig of the server that reviews other tokens than
    the administrator's. Its answers are not cached.
    """
    binaries = built()
    if binaries is None:
        raise FileNotFoundError("kube-apiserver is not built. In a clone, run make kubernetes-apiserver")
    folder, binaries = folder.absolute(), binaries.absolute()  # the processes run in the folder
    (free_port,) = free_ports(1)
    url = f"https://127.0.0.1:{port or free_port}"
    cluster = _prepare(folder, url, _minor(binaries))
    for address in (ETCD, PEERS):
        # The sockets of an etcd that was killed remain, and the next one cannot start with them.
        (folder / address.removeprefix("unix://")).unlink(missing_ok=True)
    with ExitStack() as processes:

        def start(name: str, *options: str) -> subprocess.Popen[bytes]:
            return processes.enter_context(_process([str(binaries / name), *options], folder, f"{name}.log"))

        start(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            f"--listen-peer-urls={PEERS}",
            f"--initial-advertise-peer-urls={PEERS}",
            f"--initial-cluster=default={PEERS}",
            "--unsafe-no-fsync",
        )
        server = start(
            "kube-apiserver",
            f"--etcd-servers={ETCD}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port or free_port}",
            f"--cert-dir={folder / 'certs'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            # As on EKS.
            "--allow-privileged=true",
            f"--service-account-key-file={folder / 'service-accounts.key'}",
            f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
            f"--service-account-issuer={url}",
            # No Service leads to this server: the address of a Service must not be loopback.
            "--endpoint-reconciler-type=none",
            *(() if token_webhook is None else _webhook_options(token_webhook)),
        )
        _await_ready(cluster, server, folder / "kube-apiserver.log")
        # The port without TLS ended in 1.24, and with it the option.
        insecure = ("--port=0",) if cluster.minor < 24 else ()
        options = (f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false", *insecure, "--secure-port=0")
        start(
            "kube-controller-manager",
            *options,
            f"--controllers={CONTROLLERS}",
            f"--service-account-private-key-file={folder / 'service-accounts.key'}",
            # A quota that was made before the controller knew a kind that it counts refuses that kind ("status unknown
            # for quota") until all quotas are counted again. The default interval is five minutes.
            "--resource-quota-sync-period=5s",
        )
        start("kube-scheduler", *options)
        yield cluster


def _minor(binaries: Path) -> int:
    if "KUBERNETES_BIN" not in os.environ:
        return int(VERSION.split(".")[1])
    says = subprocess.run([binaries / "kube-apiserver", "--version"], check=True, capture_output=True, text=True).stdout
    return int(says.split(".")[1])


def _webhook_options(token_webhook: Path) -> tuple[str, ...]:
    return (
        f"--authentication-token-webhook-config-file={token_webhook}",
        "--authentication-token-webhook-version=v1",
        "--authentication-token-webhook-cache-ttl=0s",
    )


def kubeconfig(name: str, url: str, certificate: Path, token: str | None = None) -> str:
    """A kubeconfig that leads a client to a server. `name`: the context's."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": str(certificate)}}],
            "users": [{"name": name, "user": {} if token is None else {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def _prepare(folder: Path, url: str, minor: int) -> ControlPlane:
    """The administrator's token and the service accounts' key of the folder; created if there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    tokens, key = folder / "tokens.csv", folder / "service-accounts.key"
    if not key.exists():
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    if not tokens.exists():
        tokens.touch(mode=0o600)
        tokens.write_text(f"{secrets.token_urlsafe()},admin,admin,system:masters\n")
    cluster = ControlPlane(
        url=url,
        certificate=folder / "certs" / "apiserver.crt",
        token=tokens.read_text().partition(",")[0],
        kubeconfig=folder / "kubeconfig",
        minor=minor,
    )
    cluster.kubeconfig.touch(mode=0o600)
    cluster.kubeconfig.write_text(kubeconfig(folder.name, cluster.url, cluster.certificate, cluster.token))
    return cluster


@contextmanager
def _process(command: list[str], folder: Path, log: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / log).open("wb") as output:
        process = subprocess.Popen(
            # Linux then ends the process when its parent has ended, however that happened.
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
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
            if _is_ready(cluster):
                return
        time.sleep(0.2)
    end = log.read_text(errors="replace")[-3000:]
    raise TimeoutError(f"kube-apiserver did not become ready within {START_LIMIT_S} s; the end of its log:\n{end}")


def _is_ready(cluster: ControlPlane) -> bool:
    request = urllib.request.Request(f"{cluster.url}/readyz", headers={"Authorization": f"Bearer {cluster.token}"})
    context = ssl.create_default_context(cafile=str(cluster.certificate))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with opener.open(request, timeout=30) as answer:
        return bool(answer.status == 200)


def free_ports(count: int) -> list[int]:
    """A free port of 127.0.0.1."""
    with ExitStack() as sockets:
        open_sockets = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in open_sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in open_sockets]
