"""Bring what the tests on real Slurm need to this machine: Debian's own packages, and a root folder with trixie's.

    PYTHONPATH=tests:local_aws python tests/helpers/slurm/parts.py

Slurm 22.05 is bookworm's, installed on this machine by apt; a policy-rc.d keeps each package from starting its daemon
here. Slurm 24.11 is trixie's, in a root folder of its own below the cache, made by debootstrap (two and a half minutes,
900 MB, once). Both have munge, slurmdbd, MariaDB, sshd and systemd beside it. Running it again finds everything there
and takes a tenth of a second. A root folder appears at once when it is whole: what a killed run leaves is removed by
the next one. Needs root, on Debian 12. The standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdk_hyperpod_local.places import cache_folder
from helpers.building import CannotBuildError, debian_mirror, run_command, say

NODE_PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "libslurm-dev",
    "libpam-slurm-adopt",
    "munge",
    "mariadb-server",
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "openssh-client",
    "rsync",
    "python3",
    "iproute2",
    "nftables",
    "procps",
    "logrotate",
    "jq",
    "sudo",
    "less",
    "libfaketime",
)
"""What both images of a node consist of. libslurm-dev: the header that the auto-resume plugin is compiled with."""
MACHINE_PACKAGES = (*NODE_PACKAGES, "systemd-container", "debootstrap", "gcc", "libc6-dev")
POLICY = Path("/usr/sbin/policy-rc.d")
FIRST_LINE = "#!/bin/sh\n# No package starts its daemon on this machine (cdk-hyperpod, tests/helpers/slurm/parts.py).\nexit 101\n"
FETCH_LIMIT_S = 15 * 60


def root_folder(slurm: str) -> Path:
    """What a node of this Slurm version has below its own files: this machine's root, or the cached one."""
    if slurm == "22.05":
        return Path("/")
    # The list is part of the name: a package more is another root folder, and never an old one that lacks it.
    return cache_folder() / f"trixie-{hashlib.sha256(' '.join(NODE_PACKAGES).encode()).hexdigest()[:8]}"


def unsuitable() -> str | None:
    """Why no cluster can be brought up on this machine, whatever is installed; nothing if one can."""
    if sys.platform != "linux":
        return "it needs Linux: nodes are made of its namespaces"
    if os.geteuid() != 0:
        return "it needs root, to make namespaces, mounts and device nodes"
    if "VERSION_CODENAME=bookworm" not in Path("/etc/os-release").read_text():
        return "it needs Debian 12, whose own packages are Slurm 22.05 and the tool that makes the root folder of 24.11"
    return None


def refused() -> str | None:
    """What this machine does not let root do, of what a cluster stands on; nothing if it lets it do all."""
    tried = subprocess.run(
        # Namespaces, an overlay over this root, a bridge, and a device node.
        ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "bash", "-ec", _TRIAL],
        capture_output=True,
        text=True,
        check=False,
    )
    return None if tried.returncode == 0 else f"this machine refuses what nodes are made of: {tried.stderr.strip()}"


_TRIAL = """
mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
ip link add br0 type bridge && ip link add v0 type veth peer name v1
mknod /mnt/root/nvidia0 c 1 3
"""


def why_not() -> str | None:
    """Why no cluster can be brought up here now; nothing if one can."""
    if (reason := unsuitable()) is not None:
        return reason
    if lacking := missing():
        return f"make slurm-parts brings what is missing: {', '.join(lacking)}"
    return refused()


def missing() -> list[str]:
    """What `make slurm-parts` would bring. Empty: a cluster of either version can be brought up."""
    asked = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\n", *MACHINE_PACKAGES],
        capture_output=True,
        text=True,
        check=False,
    )
    installed = {line.split()[1] for line in asked.stdout.splitlines() if line.startswith("installed ")}
    lacking = [package for package in MACHINE_PACKAGES if package not in installed]
    return [*lacking, *([] if root_folder("24.11").is_dir() else [f"{root_folder('24.11')} (Slurm 24.11)"])]


def prepare() -> None:
    """Install and build whatever is missing. Raises CannotBuildError with one sentence."""
    if (reason := unsuitable()) is not None:
        raise CannotBuildError(reason)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "slurm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if any("/" not in name for name in missing()):
            _install()
        if not root_folder("24.11").is_dir():
            _build_trixie(root_folder("24.11"))
    if (reason := refused()) is not None:
        raise CannotBuildError(reason)


def _install() -> None:
    say("installing Slurm 22.05 and what goes with it, by apt; no daemon is started")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    _command([*apt, "update"], environment)
    with _no_daemons():
        _command([*apt, "install", "-y", "--no-install-recommends", *MACHINE_PACKAGES], environment)


@contextmanager
def _no_daemons() -> Iterator[None]:
    """Debian's own way to install a package without starting what is in it; a machine's own policy stays."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text(FIRST_LINE)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _build_trixie(root: Path) -> None:
    say(f"making the root folder of Slurm 24.11 in {root}: two and a half minutes, once")
    started = time.monotonic()
    building = root.with_name("building-trixie")
    shutil.rmtree(building, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(NODE_PACKAGES)}", "trixie", str(building)]
    _command([*command, debian_mirror()], dict(os.environ))
    shutil.rmtree(building / "var" / "cache" / "apt", ignore_errors=True)
    for older in cache_folder().glob("trixie-????????"):
        shutil.rmtree(older)
    building.rename(root)
    say(f"done in {time.monotonic() - started:.0f} s")


def _command(command: list[str], environment: dict[str, str]) -> None:
    """Run it to its end."""
    log = cache_folder() / "slurm-parts.log"
    try:
        run_command(
            # `setpriv`: no mirror is waited for by a command whose caller was killed.
            ["setpriv", "--pdeathsig", "KILL", *command],
            log,
            limit_s=FETCH_LIMIT_S,
            environment=environment,
            progress=lambda: (log.read_text(errors="replace").splitlines() or ["nothing yet"])[-1],
        )
    except CannotBuildError as error:
        last = " / ".join(str(error).splitlines()[1:][-5:])
        raise CannotBuildError(f"{command[0]} failed (all of it is in {log}): {last or error}") from error


if __name__ == "__main__":
    try:
        prepare()
    except CannotBuildError as error:
        sys.exit(f"The tests on real Slurm cannot run here: {error}.")
