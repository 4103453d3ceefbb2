"""The part of the typed model about what runs on a node between its launch and its first job: `lifecycle`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Literal

from ..typed.bounds import Range
from .effects import IN_PLACE, NEW_NODES, new_nodes
from .patterns import ROLE_ARN

LifecycleMode = Literal["extended", "customer_managed", "bootstrap"]
OnScriptFailure = Literal["fail", "continue"]
ScriptMinutes = Annotated[int, Range(1, 60)]
DEFAULT_SCRIPT_MINUTES = 10

OWN_SCRIPTS = new_nodes("under Slurm, lifecycle run applies it to the others")


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSteps:
    """The steps of the library's scripts (docs/lifecycle.md). Each runs on the nodes that need it. False turns it off.

    A change reaches new and replaced nodes. `cdk-hyperpod lifecycle run STEP` applies it to running ones.
    """

    _change = new_nodes("lifecycle run applies it to the others")
    mounts: bool = True
    """Wait until the file systems are mounted. A node without them fails."""
    efa: bool = True
    """If the file has `storage.efa`: make the node's Lustre client use EFA on the node's first start, and verify it. If that
    is impossible, Lustre uses TCP, and the node's log says why."""
    clock: bool = True
    """Run the image's time service, and set a wrong clock: munge rejects credentials that are five minutes old."""
    users: bool = True
    """Create the file's `users` and `groups`, their homes and keys. Lock users who are no longer in the file."""
    keep_state: bool = True
    """Restore the controller's state on a new controller, and start the timer that copies it, unless `slurm.keep_state` is
    false."""
    slurm: bool = True
    """Wait until Slurm answers. Start by systemctl what the image left off."""
    metadata: bool = True
    """Block users' access to the instance's metadata, and so to the node's role: on the controller always, on other nodes as
    `slurm.metadata_users` says. Refuse users' logins to the controller if there is a login group."""
    slurm_conf: bool = True
    """Keep the library's lines in slurm.conf, in one included file: the steps access, system and accounting need them. Apply
    `slurm.partitions`, `slurm.conf`, `slurm.prolog` and `slurm.epilog`."""
    accounting: bool = True
    """Create `slurm.accounts`, `slurm.qos` and their limits."""
    drain: bool = True
    """Start the drain agent, if the file has `slurm.drain`."""
    access: bool = True
    """Drain login nodes, so that they run no jobs. Let users log in to compute nodes only while they have a job there."""
    upgrades: bool = True
    """Keep upgrades of packages from ending jobs: hold kernel, Lustre client, EFA and drivers at the image's versions,
    and keep needrestart from restarting Slurm, munge, Docker and containerd. Fixes come with a new image."""
    system: bool = True
    """Raise memlock and nofile, rotate logs."""
    container_data: bool = True
    """Put container data on NVMe disks, or else on the second volume: Docker's and Enroot's, and under EKS containerd's
    and the kubelet's."""
    checks: bool = True
    """Report which GPUs, Neuron and EFA devices and disks a node has, and whether Slurm has containers and its topology
    configured. It warns, and never fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleConfig:
    """What runs on a new node, and in which order. A change touches no running node, and applies to new and replaced ones."""

    mode: Annotated[LifecycleMode | None, NEW_NODES] = None
    """extended: HyperPod sets the node up, and the scripts run afterwards (OnInitComplete). customer_managed: the
    scripts run instead, and do everything (OnCreate). bootstrap: HyperPod sets the node up, and no script runs. Absent:
    extended, but customer_managed with `scripts` and under EKS."""
    scripts: Annotated[str | None, NEW_NODES] = None
    """A folder of scripts, relative to this file, in place of the library's own, which support both hooks."""
    steps: LifecycleSteps = field(default_factory=LifecycleSteps)
    """Which steps of the library's scripts run."""
    scripts_before: Annotated[str | None, OWN_SCRIPTS] = None
    """A folder of your scripts, relative to this file. Every new node runs each file in it as root, in order of name,
    before the library's steps. Folders in it are uploaded for the scripts and not run. Absent: none. A change reaches
    new and replaced nodes. `cdk-hyperpod lifecycle run scripts_before` runs them on running ones."""
    scripts_after: Annotated[str | None, OWN_SCRIPTS] = None
    """The same after the library's steps. Absent: none. `cdk-hyperpod lifecycle run scripts_after` runs them on running
    nodes."""
    script_minutes: Annotated[ScriptMinutes, NEW_NODES] = DEFAULT_SCRIPT_MINUTES
    """How many minutes each script of `scripts_before` and `scripts_after` may take. Then it is killed with all its
    processes, and has failed."""
    on_script_failure: Annotated[OnScriptFailure, NEW_NODES] = "fail"
    """fail: if one of these scripts fails, the node fails. continue: the node's log names the script, and the node goes
    on with the next one."""
    writers: Annotated[tuple[Annotated[str, ROLE_ARN], ...], IN_PLACE] = ()
    """IAM roles that may change the scripts in their bucket, which run as root on every node. The function that uploads them may too,
    and so may the function that empties the bucket on destroy. At most 100, with 15,000 characters together, because
    the bucket's policy lists them. Absent: no other role may, whatever its policies allow."""


def switches(steps: LifecycleSteps) -> dict[str, bool]:
    """The steps by name, as `cluster.json` has them."""
    return dataclasses.asdict(steps)


def default_mode(*, own_scripts: bool, orchestrator: str) -> LifecycleMode:
    """The mode if the file names none.

    Users' scripts that are older than modes do everything themselves. Under EKS only OnCreate is documented.
    """
    return "customer_managed" if own_scripts or orchestrator == "eks" else "extended"
