"""Build a real Kubernetes control plane from Debian's source package, once, into a cache outside of the checkout.

    PYTHONPATH=tests:local_aws python tests/helpers/kubernetes/apiserver/build.py [--jobs N]

No registry ships kube-apiserver as a binary, and Debian no longer packages it; but bookworm's source package
`kubernetes` (1.20.5+really1.20.2) carries all of its source and dependencies. This fetches it, Go 1.19 and etcd through
apt, in an apt configuration of its own: nothing is installed, no root is needed, and the signatures of the archive are
checked as always. The result is kube-apiserver, kube-controller-manager and kube-scheduler 1.20.2 and etcd 3.4.23.

Three minutes on two cores; 3 GB while it builds, 180 MB afterwards. It knows no cloud provider: their SDKs are half of
what there is to compile. The binaries appear all at once when everything is done: a build that is killed leaves nothing
but a folder that the next one removes. The standard library only, so that it runs before anything is set up.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdk_hyperpod_local.engine.kubernetes.control_plane import COMPONENTS, PACKAGE, VERSION, built, cache
from helpers.building import CannotBuildError, debian_mirror, end_if_told, heed_signals, run_command, say

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
TOOLS = ("apt-get", "dpkg-deb", "dpkg-source", "nice")
NEEDED_GB = 4
COMPILE = "hack/make-rules/build.sh"
"""Kubernetes' Makefile compiles with it, after it has generated code. The package has all of that code but one file."""
OPENAPI = "k8s.io/kubernetes/pkg/generated/openapi"
"""The Go package that lacks its file: the descriptions of all objects."""
UNDESCRIBED = ("code-generator", "kube-openapi", "sample-apiserver")
"""Modules whose objects no API server has, although they are marked for a description."""
COMPILE_LIMIT_S = 45 * 60
FETCH_LIMIT_S = 10 * 60


def build(jobs: int) -> Path:
    """The folder of the binaries, built where they are missing. Two that build at once wait for one another."""
    if (folder := built()) is not None:
        return folder
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        _lock(lock.fileno())
        if built() is None:
            _check_machine()
            with _scratch() as scratch:
                # Commands inherit the lock: what a killed build left running is waited for, and never built over.
                _Build(scratch, jobs, lock.fileno()).run()
    return cache() / "bin"


def _lock(lock: int) -> None:
    """Wait for another build, no longer than one may take."""
    deadline = time.monotonic() + COMPILE_LIMIT_S + FETCH_LIMIT_S
    told = False
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise CannotBuildError(f"another build has held {cache() / 'lock'} for too long") from None
            if not told:
                say(f"waiting for another build in {cache()}")
            told = True
            end_if_told()
            time.sleep(0.5)


def _check_machine() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    missing += [] if KEYRING.is_file() else [str(KEYRING)]
    if missing:
        raise CannotBuildError(f"building kube-apiserver needs {', '.join(missing)} (any Debian has them)")
    if (free := shutil.disk_usage(cache()).free // 10**9) < NEEDED_GB:
        raise CannotBuildError(f"building kube-apiserver needs {NEEDED_GB} GB in {cache()}, and there are {free}")


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder beside the result, not below /tmp, which may be small or in memory."""
    scratch = cache() / "build"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def described(source: Path) -> list[str]:
    """The folders with objects that are marked for a description, in order."""
    found = set()
    for top in ("cmd", "pkg", "plugin", "vendor/k8s.io"):
        for folder, folders, files in os.walk(source / top, followlinks=True):
            folders[:] = [name for name in folders if name not in UNDESCRIBED]
            texts = ((Path(folder) / file).read_bytes() for file in files if file.endswith(".go"))
            if any(b"+k8s:openapi-gen=" in text for text in texts):
                found.add(os.path.relpath(folder, source))
    return sorted(found)


class _Build:
    """One build in a folder of its own."""

    def __init__(self, scratch: Path, jobs: int, lock: int) -> None:
        self.scratch, self.jobs, self.lock = scratch, jobs, lock
        self.downloads, self.root, self.source = scratch / "downloads", scratch / "root", scratch / "kubernetes"
        self.made = self.source / "_output" / "local" / "go" / "bin"
        self.log = scratch / "log"

    def run(self) -> None:
        started = time.monotonic()
        say(f"building Kubernetes {VERSION} into {cache()}: about three minutes, once")
        self._download()
        for package in self.downloads.glob("*.deb"):
            self._command(["dpkg-deb", "-x", str(package), str(self.root)])
        (description,) = self.downloads.glob("*.dsc")
        self._command(["dpkg-source", "-x", str(description), str(self.source)])
        self._replace_reflect2()
        say("sources and Go are there; compiling")
        self._make()
        self._publish(round((time.monotonic() - started) / 60, 1))

    def _download(self) -> None:
        """apt with lists, cache and sources of its own. The machine's other settings, such as a proxy, apply."""
        mirror = debian_mirror()
        for folder in (
            self.downloads,
            self.scratch / "state" / "lists" / "partial",
            self.scratch / "cache" / "archives" / "partial",
        ):
            folder.mkdir(parents=True)
        (self.scratch / "sources.list").write_text(
            "".join(f"{kind} [signed-by={KEYRING}] {mirror} bookworm main\n" for kind in ("deb", "deb-src"))
        )
        (self.scratch / "apt.conf").write_text(
            f'Dir::Etc::SourceList "{self.scratch}/sources.list";\nDir::Etc::SourceParts "/dev/null";\n'
            f'Dir::State "{self.scratch}/state";\nDir::State::status "/var/lib/dpkg/status";\n'
            f'Dir::Cache "{self.scratch}/cache";\nAPT::Sandbox::User "";\n'
        )
        self._command(["apt-get", "update", "-qq"])
        self._command(["apt-get", "source", "-qq", "--download-only", PACKAGE], self.downloads)
        packages = ["golang-1.19-go", "golang-1.19-src", "golang-github-modern-go-reflect2-dev", "etcd-server"]
        self._command(["apt-get", "download", "-qq", *packages], self.downloads)

    def _replace_reflect2(self) -> None:
        """The copy of reflect2 in Kubernetes 1.20 crashes a program of Go 1.18 or later (`fatal error: fault` at the
        first custom resource); Debian's package of the library does not."""
        old = self.source / "vendor" / "github.com" / "modern-go" / "reflect2"
        new = self.root / "usr" / "share" / "gocode" / "src" / "github.com" / "modern-go" / "reflect2"
        for pattern in ("*.go", "*.s"):
            for file in old.glob(pattern):
                file.unlink()
            for file in new.glob(pattern):
                shutil.copy2(file, old)

    def _make(self) -> None:
        """As Kubernetes' own Makefile does it, without what is generated already."""
        (self.source / ".go" / "src" / "k8s.io").mkdir(parents=True)
        (self.source / ".go" / "src" / "k8s.io" / "kubernetes").symlink_to("../../..")
        shims = self.scratch / "shims"
        shims.mkdir()
        # The only thing that it wants rsync for is `rsync -pc FROM TO`.
        (shims / "rsync").write_text('#!/bin/sh\nshift\nexec cp -p "$@"\n')
        (shims / "rsync").chmod(0o755)
        go = self.root / "usr" / "lib" / "go-1.19"
        environment = {
            "PATH": f"{shims}:{go}/bin:{os.environ['PATH']}",
            "HOME": str(self.scratch),
            "GOROOT": str(go),
            "GOPATH": str(self.source / ".go"),
            "GO111MODULE": "off",  # packages are found below GOPATH, and in vendor/
            "GOFLAGS": f"-p={self.jobs} -tags=providerless",
            "GOPROXY": "off",
            "CGO_ENABLED": "0",
        }
        self._compile(environment, "vendor/k8s.io/kube-openapi/cmd/openapi-gen")
        self._describe_objects(environment)
        self._compile(environment, *(f"cmd/{name}" for name in COMPONENTS))

    def _compile(self, environment: dict[str, str], *packages: str) -> None:
        command = ["nice", "-n", "15", COMPILE, *packages]
        self._command(command, self.source, environment, limit_s=COMPILE_LIMIT_S)

    def _describe_objects(self, environment: dict[str, str]) -> None:
        command = [
            str(self.made / "openapi-gen"),
            *("--input-dirs", ",".join(f"k8s.io/kubernetes/{folder}" for folder in described(self.source))),
            *("--output-package", OPENAPI, "--output-file-base", "zz_generated.openapi"),
            *("--go-header-file", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt"),
            *("--report-filename", str(self.scratch / "violations")),
        ]
        # Go finds packages in vendor/ only for a folder below GOPATH. It takes its own folder's name, a link's, from PWD.
        folder = self.source / ".go" / "src" / "k8s.io" / "kubernetes"
        self._command(command, folder, {**environment, "PWD": str(folder)})

    def _publish(self, minutes: float) -> None:
        """All binaries and the record at once, by renaming their folder."""
        ready = self.scratch / "bin"
        ready.mkdir()
        for binary in (*(self.made / name for name in COMPONENTS), self.root / "usr" / "bin" / "etcd"):
            shutil.copy2(binary, ready / binary.name)
        says = self._command([str(ready / "kube-apiserver"), "--version"])
        if f"Kubernetes v{VERSION}\n" not in says:
            raise CannotBuildError(f"the new kube-apiserver says that it is {says.strip()!r}")
        (ready / "build.json").write_text(json.dumps({"package": PACKAGE, "minutes": minutes, "jobs": self.jobs}))
        shutil.rmtree(cache() / "bin", ignore_errors=True)
        ready.rename(cache() / "bin")
        say(f"done in {minutes} minutes")

    def _command(
        self,
        command: list[str],
        folder: Path | None = None,
        environment: dict[str, str] | None = None,
        limit_s: float = FETCH_LIMIT_S,
    ) -> str:
        """What a command says; it ends, with all that it started, at its limit and when this process is told to end."""
        settings = {"APT_CONFIG": str(self.scratch / "apt.conf")} if (self.scratch / "apt.conf").exists() else {}
        return run_command(
            command,
            self.log,
            limit_s=limit_s,
            folder=folder or self.scratch,
            environment={**(environment or dict(os.environ)), **settings},
            progress=self._progress,
            keep_open=(self.lock,),
        )

    def _progress(self) -> str:
        """How far the compiler is."""
        steps = sum(1 for _ in (self.source / "_output" / "local" / "go" / "cache").glob("??/*-a"))
        return f"{steps} steps done"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compile so many packages at a time")
    options = parser.parse_args()
    heed_signals()
    try:
        print(build(options.jobs))
    except CannotBuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
