"""The paths of the local AWS: all below one folder of the user's."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

LAUNCHER = Path(__file__).parent / "engine" / "launch.py"
BIN = Path(sys.prefix) / "bin"
"""The folder of `cdk-hyperpod`. A Python app runs on this Python."""

DEFAULT_PORT = 4566


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/cdk-hyperpod: files that are made once for this user, and shared by all of their work."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cdk-hyperpod"


def home() -> Path:
    """The folder of all engines and their installation: $LOCAL_AWS_HOME (a clone has its own), or in the cache
    folder."""
    given = os.environ.get("LOCAL_AWS_HOME")
    return Path(given).absolute() if given else cache_folder() / "local"


@dataclass(frozen=True)
class Place:
    """One engine's folder."""

    port: int
    home: Path = field(default_factory=home)

    @property
    def folder(self) -> Path:
        return self.home / str(self.port)

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def secret(self) -> Path:
        """The secret that signs every request. It is new at each start, and only its owner can read it."""
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
    def deployment_log(self) -> Path:
        """The CDK CLI's output of the last deployment."""
        return self.folder / "deploy.log"

    @property
    def destroy_log(self) -> Path:
        """The CDK CLI's output of the last `destroy` that failed. A `destroy` that succeeds removes the folder."""
        return self.folder / "destroy.log"

    @property
    def process(self) -> Path:
        """Process id and command of the running engine."""
        return self.folder / "engine.json"

    @property
    def lock(self) -> Path:
        return self.home / f"{self.port}.lock"

    @property
    def assemblies(self) -> Path:
        """The deployed cloud assemblies: one per app, and per cluster file of an app that reads one."""
        return self.folder / "assemblies"

    @property
    def kubernetes(self) -> Path:
        """A folder for each EKS cluster's API, with an administrator's kubeconfig."""
        return self.folder / "kubernetes"

    @property
    def kuberc(self) -> Path:
        """kubectl's preferences, if the API servers need some."""
        return self.folder / "kuberc"

    @property
    def temporary(self) -> Path:
        """TMPDIR of every process of this engine."""
        return self.folder / "tmp"

    @property
    def empty(self) -> Path:
        """The folder for `cdk bootstrap`, which synthesizes the app of its current folder."""
        return self.folder / "empty"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"
