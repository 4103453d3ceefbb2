"""The part of the typed model that says what happens on a node between its launch and its first job: `lifecycle`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .patterns import ROLE_ARN

LifecycleMode = Literal["extended", "customer_managed", "bootstrap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSteps:
    """The steps of the library's scripts (docs/lifecycle.md). Each runs where it is of use; false switches it off.

    A change reaches new and replaced nodes; `cdk-hyperpod lifecycle run STEP` brings it to those that live.
    """

    mounts: bool = True
    """Wait until the file systems are mounted; fail a node without them."""
    clock: bool = True
    """Have the image's time service keep the clock, and set one that is off: munge refuses what is five minutes old."""
    slurm: bool = True
    """Wait until Slurm answers; start by systemctl what the image left off."""
    users: bool = True
    """Make the file's `users` and `groups`, their homes and keys; lock who is no longer in the file."""
    metadata: bool = True
    """Refuse the instance's metadata, and so the node's role, to users, where the file has `slurm.metadata_users`."""
    slurm_conf: bool = True
    """Keep our lines in slurm.conf, in one included file: what the steps access, system and accounting need there."""
    accounting: bool = True
    """Make `slurm.accounts` and their limits."""
    drain: bool = True
    """Start the agent that drains nodes, where the file has `slurm.drain`."""
    access: bool = True
    """Drain login nodes, so that they run no jobs; let users log in to compute nodes only while they have a job there."""
    upgrades: bool = True
    """Keep upgrades of packages from ending jobs: hold kernel, Lustre client, EFA and drivers as the image has them, and
    keep needrestart from restarting Slurm, munge, Docker and containerd. Fixes come with a new image."""
    system: bool = True
    """Raise memlock and nofile, rotate logs."""
    container_data: bool = True
    """Put the data of containers on NVMe disks, else on the second volume: Docker's and Enroot's, under EKS containerd's
    and the kubelet's."""
    checks: bool = True
    """Say which GPUs, Neuron and EFA devices and disks are there, and whether Slurm knows containers and its topology;
    warn, and never fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleConfig:
    """What runs on a new node, and after what. A change touches no running node: new and replaced ones have it."""

    mode: LifecycleMode | None = None
    """extended: HyperPod sets the node up, and the scripts run afterwards (OnInitComplete). customer_managed: the
    scripts run instead, and do everything (OnCreate). bootstrap: HyperPod sets the node up, and no script runs. Absent:
    extended; with `scripts`, and under EKS, customer_managed."""
    scripts: str | None = None
    """A folder of scripts, relative to this file, in place of the ones that come with the library, which run under
    either hook."""
    steps: LifecycleSteps = field(default_factory=LifecycleSteps)
    """Which steps of the library's scripts run."""
    writers: tuple[Annotated[str, ROLE_ARN], ...] = ()
    """IAM roles that may change the scripts in their bucket, which run as root on every node, beside CDK's own upload and
    what empties the bucket on destroy. At most 100, with 15,000 characters together: the bucket's policy lists them.
    Absent: none, whatever their policies say."""


def switches(steps: LifecycleSteps) -> dict[str, bool]:
    """The steps by name, as `cluster.json` has them."""
    return dataclasses.asdict(steps)


def default_mode(*, own_scripts: bool, orchestrator: str) -> LifecycleMode:
    """The mode where none is named.

    Scripts that somebody wrote before there were modes do everything themselves. Under EKS only OnCreate is documented.
    """
    return "customer_managed" if own_scripts or orchestrator == "eks" else "extended"
