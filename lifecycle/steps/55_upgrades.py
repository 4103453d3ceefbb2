#!/usr/bin/env python3
"""Keep upgrades of packages from ending jobs. Usage: 55_upgrades.py.

Ubuntu upgrades itself, and needrestart then restarts every daemon that uses an upgraded library. A restart of slurmd ends
each job step on the node where its unit lacks KillMode=process (awsome-distributed-ai, pull request 1165). An upgraded
kernel or driver leaves the others of its set behind. So these stay as the image has them; fixes come with a new image.

It fails no node: without apt or needrestart there is nothing to hold back.
"""

from __future__ import annotations

import fnmatch
import sys

from lib import OWN_MARK, StepError, install_unit, last_line, log, run, run_step, wait_until, write_file

DAEMONS = ("slurmd", "slurmctld", "slurmdbd", "munge", "docker", "containerd")
"""Daemons that jobs need all the time. needrestart reports them, and does not restart them."""
NEEDRESTART = "".join(
    [f"# {OWN_MARK}\n", *(f"$nrconf{{override_rc}}{{qr(^{name}\\.service$)}} = 0;\n" for name in DAEMONS)]
)
HELD = {
    "the kernel": ("linux-aws*", "linux-headers-*", "linux-image-*", "linux-modules-*"),
    "the Lustre client": ("lustre-client-*",),
    "EFA": ("efa", "efa-*", "libfabric*-aws*", "rdma-core", "ibverbs-providers", "libibverbs*"),
    "the GPU driver": (
        "cuda-drivers*",
        "libnvidia-*",
        "nvidia-dkms-*",
        "nvidia-driver-*",
        "nvidia-fabricmanager*",
        "nvidia-imex*",
        "nvidia-kernel-*",
        "nvidia-open*",
        "nvidia-utils-*",
    ),
    "the Neuron driver": ("aws-neuron-dkms", "aws-neuronx-dkms"),
}
"""What must stay in step -> patterns of its packages."""


def protect_from_upgrades() -> None:
    """Protect daemons, packages and job steps."""
    write_file("/etc/needrestart/conf.d/cdk-hyperpod.conf", NEEDRESTART)
    hold_packages()
    keep_jobs_over_restarts()


def hold_packages() -> None:
    """Hold what is installed of HELD. Other holds stay."""
    query = run("dpkg-query", "--show", "--showformat", "${db:Status-Status} ${Package}\n")
    if query.returncode == 127:
        log("INFO", "this image has no dpkg, so no package is held")
        return
    installed = [line.split()[1] for line in query.stdout.splitlines() if line.startswith("installed ")]
    wanted = [package for package in installed if is_held(package)]
    held = set(run("apt-mark", "showhold").stdout.split())
    missing = [package for package in wanted if package not in held]
    if not missing:
        log("INFO", f"{len(wanted)} packages of kernel, Lustre client, EFA and drivers are held")
        return

    def hold(_: int) -> str | None:
        done = run("apt-mark", "hold", *missing)
        return None if done.returncode == 0 else f"`apt-mark hold` failed: {last_line(done.stdout)}"

    try:
        wait_until("dpkg is free", hold)
    except StepError as error:
        log("WARNING", f"{error}; an upgrade may replace {', '.join(missing[:5])}, so run this step again later")
        return
    log("INFO", f"held {', '.join(missing)}")


def is_held(package: str) -> bool:
    """Whether an upgrade of this package alone may break the node."""
    return any(fnmatch.fnmatchcase(package, pattern) for patterns in HELD.values() for pattern in patterns)


def keep_jobs_over_restarts() -> None:
    """Have systemd end slurmd alone when slurmd is stopped. systemd reads this when it stops a unit, so it needs no restart."""
    shown = run("systemctl", "show", "--property", "LoadState", "--property", "KillMode", "slurmd.service").stdout
    found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    if found.get("LoadState") != "loaded":
        return
    if found.get("KillMode") != "process":
        install_unit("slurmd.service.d/cdk-hyperpod-kill-mode.conf", "[Service]\nKillMode=process\n")
    log("INFO", "a restart of slurmd ends no job")


if __name__ == "__main__":
    sys.exit(run_step(protect_from_upgrades))
