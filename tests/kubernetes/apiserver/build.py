"""Build a real Kubernetes API server from Debian's source package, once, into a cache outside of the checkout.

    python tests/kubernetes/apiserver/build.py [--jobs N]

No registry ships kube-apiserver as a binary, and Debian no longer packages it; but bookworm's source package
`kubernetes` (1.20.5+really1.20.2) carries all of its source and dependencies. This fetches it, Go 1.19 and etcd through
apt, in an apt configuration of its own: nothing is installed, no root is needed, and the signatures of the archive are
checked as always. The result is kube-apiserver and kube-controller-manager 1.20.2 and etcd 3.4.23.

About ten minutes on two cores; 3 GB while it builds, 240 MB afterwards. The standard library only, so that it runs
before anything is set up.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "1.20.2"
PACKAGE = "kubernetes=1.20.5+really1.20.2-1.1+deb12u1"
BINARIES = ("kube-apiserver", "kube-controller-manager", "etcd")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
TOOLS = ("apt-get", "dpkg-deb", "dpkg-source", "make", "nice")


class CannotBuildError(Exception):
    """Why this machine cannot build it."""


def cache() -> Path:
    """Where the binaries are, or will be: $XDG_CACHE_HOME/cdk-hyperpod/kubernetes-1.20.2."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cdk-hyperpod" / f"kubernetes-{VERSION}"


def is_built() -> bool:
    """Whether a build has been completed: the record is written last."""
    return (cache() / "build.json").is_file() and all((cache() / "bin" / name).is_file() for name in BINARIES)


def build(jobs: int) -> Path:
    """The folder of the binaries, built where they are missing. Two that build at once wait for one another."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_built():
            missing = [tool for tool in TOOLS if shutil.which(tool) is None]
            if missing or not KEYRING.is_file():
                wanted = ", ".join([*missing, *([] if KEYRING.is_file() else [str(KEYRING)])])
                raise CannotBuildError(f"building kube-apiserver needs {wanted} (any Debian has them)")
            with _scratch() as scratch:
                _build(scratch, jobs)
    return cache() / "bin"


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


def _build(scratch: Path, jobs: int) -> None:
    started = time.monotonic()
    _say(f"building Kubernetes {VERSION} into {cache()}: about ten minutes")
    downloads, root, source = scratch / "downloads", scratch / "root", scratch / "kubernetes"
    _download(scratch, downloads)
    for package in downloads.glob("*.deb"):
        _run(scratch, ["dpkg-deb", "-x", str(package), str(root)])
    (description,) = downloads.glob("*.dsc")
    _run(scratch, ["dpkg-source", "-x", str(description), str(source)])
    _replace_reflect2(source, root)
    _say("sources and Go are there; compiling")
    _make(scratch, source, root, jobs)
    made = source / "_output" / "local" / "go" / "bin"
    target = cache() / "bin"
    target.mkdir(exist_ok=True)
    for binary in (*(made / name for name in BINARIES[:2]), root / "usr" / "bin" / "etcd"):
        shutil.copy2(binary, target / binary.name)
    says = subprocess.run([target / "kube-apiserver", "--version"], capture_output=True, text=True, check=True).stdout
    if says.strip() != f"Kubernetes v{VERSION}":
        raise CannotBuildError(f"the new kube-apiserver says that it is {says.strip()!r}")
    minutes = round((time.monotonic() - started) / 60, 1)
    (cache() / "build.json").write_text(json.dumps({"package": PACKAGE, "minutes": minutes, "jobs": jobs}) + "\n")
    _say(f"done in {minutes} minutes")


def _download(scratch: Path, downloads: Path) -> None:
    """apt with lists, cache and sources of its own. The machine's other settings, such as a proxy, apply."""
    for folder in (downloads, scratch / "state" / "lists" / "partial", scratch / "cache" / "archives" / "partial"):
        folder.mkdir(parents=True)
    (scratch / "sources.list").write_text(
        "".join(f"{kind} [signed-by={KEYRING}] {MIRROR} bookworm main\n" for kind in ("deb", "deb-src"))
    )
    (scratch / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{scratch}/sources.list";\nDir::Etc::SourceParts "/dev/null";\n'
        f'Dir::State "{scratch}/state";\nDir::State::status "/var/lib/dpkg/status";\nDir::Cache "{scratch}/cache";\n'
        'APT::Sandbox::User "";\n'
    )
    _run(scratch, ["apt-get", "update", "-qq"])
    _run(scratch, ["apt-get", "source", "-qq", "--download-only", PACKAGE], downloads)
    packages = ["golang-1.19-go", "golang-1.19-src", "golang-github-modern-go-reflect2-dev", "etcd-server"]
    _run(scratch, ["apt-get", "download", "-qq", *packages], downloads)


def _replace_reflect2(source: Path, root: Path) -> None:
    """The copy of reflect2 in Kubernetes 1.20 crashes a program of Go 1.18 or later (`fatal error: fault` at the first
    custom resource); Debian's package of the library does not."""
    old = source / "vendor" / "github.com" / "modern-go" / "reflect2"
    new = root / "usr" / "share" / "gocode" / "src" / "github.com" / "modern-go" / "reflect2"
    for pattern in ("*.go", "*.s"):
        for file in old.glob(pattern):
            file.unlink()
        for file in new.glob(pattern):
            shutil.copy2(file, old)


def _make(scratch: Path, source: Path, root: Path, jobs: int) -> None:
    """Kubernetes' own Makefile: it generates code before it compiles."""
    (source / ".go" / "src" / "k8s.io").mkdir(parents=True)
    (source / ".go" / "src" / "k8s.io" / "kubernetes").symlink_to("../../..")
    shims = scratch / "shims"
    shims.mkdir()
    # The only thing that it wants rsync for is `rsync -pc FROM TO`.
    (shims / "rsync").write_text('#!/bin/sh\nshift\nexec cp -p "$@"\n')
    (shims / "rsync").chmod(0o755)
    go = root / "usr" / "lib" / "go-1.19"
    environment = {
        "PATH": f"{shims}:{go}/bin:{os.environ['PATH']}",
        "HOME": str(scratch),
        "GOROOT": str(go),
        "GOPATH": str(source / ".go"),
        "GOCACHE": str(scratch / "gocache"),
        "GOFLAGS": f"-p={jobs}",
        "GOPROXY": "off",
        "CGO_ENABLED": "0",
    }
    _run(
        scratch,
        ["nice", "-n", "15", "make", "WHAT=cmd/kube-apiserver cmd/kube-controller-manager"],
        source,
        environment,
    )


def _run(
    scratch: Path, command: list[str], folder: Path | None = None, environment: dict[str, str] | None = None
) -> None:
    environment = {**(environment or dict(os.environ)), "APT_CONFIG": str(scratch / "apt.conf")}
    done = subprocess.run(
        command,
        cwd=folder or scratch,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotBuildError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")


def _say(text: str) -> None:
    print(f"· {text}", file=sys.stderr, flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compile so many packages at a time")
    options = parser.parse_args()
    try:
        print(build(options.jobs))
    except CannotBuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
