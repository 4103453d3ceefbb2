"""A Slurm cluster of HyperPod's kind on this machine, for tests: real systemd, Slurm, munge, MariaDB and sshd.

    with slurm_cluster("24.11", "extended") as cluster:
        cluster.hyperpod_starts_slurm()
        cluster.login.run("srun -p p5 -N 2 hostname", user="ubuntu")

Each node is a container of systemd-nspawn: process, mount, network and host name namespaces of its own over an overlay
of a root folder (parts.py), with the files that HyperPod lays (hyperpod.py, image.py). The nodes' network is a bridge in
a namespace of its own: this machine's network is not touched, and a node reaches nothing but its cluster. Everything,
mounts included, belongs to one process and its namespaces, the hub. It ends with the block, and the kernel ends it when
the Python process is killed: nothing is left but empty control groups, which the next cluster removes.

`/fsx` stands for the file system of the cluster: a tmpfs that all nodes have mounted, since Lustre needs Lustre.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from helpers.slurm import hyperpod, image
from helpers.slurm.hyperpod import Instance, Mode, SlurmVersion
from helpers.slurm.node import (
    BOOT_LIMIT_S,
    CGROUP,
    PROVISIONING_LOG,
    SCRIPTS_FOLDER,
    CommandError,
    Node,
    Provisioning,
    Result,
    children,
)
from helpers.slurm.parts import root_folder

__all__ = [
    "PROVISIONING_LOG",
    "SCRIPTS_FOLDER",
    "Cluster",
    "CommandError",
    "Node",
    "Provisioning",
    "Result",
    "slurm_cluster",
]

HERE = Path(__file__).parent
FSX_MIB = 300

_HUB = f"""
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/systemd /run/hub/image /run/hub/nodes /run/hub/fsx
mount -t tmpfs -o size={FSX_MIB}m,mode=755 tmpfs /run/hub/fsx
ip link set lo up
ip link add br0 type bridge
ip address add {hyperpod.NETWORK}.1/24 dev br0
ip link set br0 up
echo ready
# It adopts what its children leave behind, so it must wait for them.
while :; do sleep 3600 & wait $!; done
"""

_NAMESPACES = ("unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child", "--mount-proc")

_MAKE_IMAGE = """
mount -t tmpfs -o size=200m tmpfs /run/hub/image
mkdir /run/hub/image/{layer,work,root}
mount -t overlay overlay -o lowerdir=$1,upperdir=/run/hub/image/layer,workdir=/run/hub/image/work /run/hub/image/root
"""


_T = TypeVar("_T")


class Cluster:
    """A controller, a login node and compute nodes; see `slurm_cluster`."""

    def __init__(self, slurm: SlurmVersion, mode: Mode, nodes: Sequence[Instance], folder: Path) -> None:
        self.slurm: SlurmVersion = slurm
        self.mode: Mode = mode
        self.folder = folder
        """On this machine: what the nodes' consoles said."""
        self.nodes = tuple(Node(self, instance) for instance in nodes)
        self.controller = next(node for node in self.nodes if node.instance.node_type == "controller")
        self.login = next(node for node in self.nodes if node.instance.node_type == "login")
        self.compute = tuple(node for node in self.nodes if node.instance.node_type == "compute")
        self._hub = 0

    def node(self, name: str) -> Node:
        """By its name in Slurm."""
        return next(node for node in self.nodes if node.name == name)

    # -- what HyperPod does

    def lay_resource_config(self, nodes: Sequence[Node] | None = None) -> None:
        """Write resource_config.json and provisioning_parameters.json on all nodes, or on these."""
        instances = [node.instance for node in self.nodes]
        for node in self.nodes if nodes is None else nodes:
            if node.running:
                node.write(hyperpod.RESOURCE_CONFIG, json.dumps(hyperpod.resource_config(instances)))
                node.write(hyperpod.PROVISIONING_PARAMETERS, json.dumps(hyperpod.provisioning_parameters(instances)))

    def lay_slurm_conf(self, extra: str = "") -> None:
        """Write slurm.conf anew on the controller, as HyperPod does when it scales, replaces or updates.

        Lines that anybody else has added are gone. Nobody is told: see `hyperpod_reconfigures`.
        """
        instances = [node.instance for node in self.nodes]
        accounting = self.mode == "extended"
        etc = hyperpod.SLURM_ETC
        self.controller.write(f"{etc}/slurm.conf", hyperpod.slurm_conf(instances, accounting=accounting, extra=extra))
        self.controller.write(f"{etc}/gres.conf", hyperpod.gres_conf(instances))
        self.controller.write(f"{etc}/cgroup.conf", hyperpod.cgroup_conf(self.slurm))
        self.controller.write(f"{etc}/plugstack.conf", f"required {image.AUTO_RESUME}\n")

    def hyperpod_reconfigures(self) -> None:
        """Make slurmctld and the slurmds read their configuration again, as after `lay_slurm_conf`."""
        self.controller.run("scontrol reconfigure")

    def hyperpod_takes(self, gone: Node) -> None:
        """End a node for good, as BatchDeleteClusterNodes does: HyperPod's files do not have it, nor has slurm.conf."""
        gone.kill()
        stay = [node for node in self.nodes if node is not gone]
        self.nodes = tuple(stay)
        try:
            self.lay_resource_config()
            self.lay_slurm_conf()
        finally:
            self.nodes = tuple(sorted([*stay, gone], key=lambda node: node.instance.number))
        # 22.05 ends where a node is gone and it only reads its files again.
        self.controller.run("systemctl restart slurmctld")

    def hyperpod_starts_slurm(self) -> None:
        """What the image does by itself under `extended`, before or while the scripts run: database, then Slurm."""
        self.start_controller()
        self.on_each(self.start_slurmd, [node for node in self.nodes if node is not self.controller])

    def start_controller(self) -> None:
        """The accounting database that HyperPod has on the controller, and slurmctld. Waits for slurmdbd's answer."""
        self.controller.run(_ACCOUNTING)
        self.controller.run("systemctl enable --now --quiet slurmctld")

    def start_slurmd(self, node: Node) -> None:
        """slurmd of a node, which gets its configuration from the controller."""
        options = f"--conf-server {hyperpod.CONTROLLER.address}:6817"
        node.run(
            f"cd /etc/systemd/system && sed -i 's/\\$SLURMD_OPTIONS/{options}/' slurmd.service && "
            # What `systemctl enable` does, without making systemd read all units once more.
            "ln -sf ../slurmd.service multi-user.target.wants/ && systemctl daemon-reload && systemctl start slurmd"
        )

    def on_each(self, do: Callable[[Node], _T], nodes: Sequence[Node] | None = None) -> list[_T]:
        """Do it on all nodes, or on these, at the same time; the answers in the order of the nodes."""
        chosen = self.nodes if nodes is None else nodes
        with ThreadPoolExecutor(len(chosen)) as threads:
            return list(threads.map(do, chosen))

    # -- what tests look at

    def states(self) -> dict[str, str]:
        """Each node's state in Slurm, in lower case, as `sinfo` has it without its star; nothing while it is silent."""
        said = self.controller.try_run("sinfo --noheader --Node --format '%N %T'")
        return dict(line.split() for line in said.output.splitlines()) if said.returncode == 0 else {}

    def await_idle(self, nodes: Sequence[Node] | None = None, limit_s: float = 60) -> None:
        """Wait until these nodes, or all compute nodes, take work."""
        names = [node.name for node in nodes or self.compute]
        try:
            self.until(
                lambda: all(self.states().get(name) in ("idle", "mixed", "allocated") for name in names),
                f"{', '.join(names)} take work",
                limit_s,
            )
        except CommandError as error:
            raise CommandError(f"{error}: {self.states()}\n{self._logs(names)}") from None

    def _logs(self, names: Sequence[str]) -> str:
        """What Slurm said of late, on the controller and on these nodes."""
        asked = "sinfo --noheader --Node --list-reasons --format '%N %T %u %H %E'; squeue --all; tail -n 60 /var/log/slurm/slurmctld.log"
        nodes = [node for node in self.compute if node.name in names]
        said = [self.controller.try_run(asked), *(node.try_run(_LAST_LINES_OF_SLURMD) for node in nodes)]
        return "\n".join(done.output for done in said)

    def until(self, look: Callable[[], _T], what: str, limit_s: float = BOOT_LIMIT_S, pause_s: float = 0.1) -> _T:
        """The first answer that is true. Raises CommandError, with `what` was waited for, when the time is over."""
        deadline = time.monotonic() + limit_s
        while not (answer := look()):
            if time.monotonic() > deadline:
                raise CommandError(f"not within {limit_s:.0f} s: {what}")
            time.sleep(pause_s)
        return answer

    # -- the hub

    @property
    def hosts(self) -> str:
        """/etc/hosts of every node: in a VPC the name server knows these names."""
        lines = [f"{node.instance.address} {node.name}" for node in self.nodes]
        return "\n".join(["127.0.0.1 localhost", *lines]) + "\n"

    def hub_path(self, path: str) -> Path:
        """A path of the hub as this process can open it. No link in it may be absolute."""
        return Path(f"/proc/{self._hub}/root{path}")

    def run_in_hub(self, script: str, *arguments: str, timeout_s: float = 30) -> str:
        """What bash says where all nodes' disks and networks are. Raises CommandError when it fails."""
        done = subprocess.run(
            [*self._enter_hub(), "bash", "-ec", script, "hub", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise CommandError(f"in the hub: {script.strip()}: {done.stdout}")
        return done.stdout

    def start_in_hub(self, script: str, *arguments: str, console: Path) -> subprocess.Popen[bytes]:
        """Start bash there, which lives no longer than the hub."""
        with console.open("ab") as output:
            return subprocess.Popen(
                [*self._enter_hub(), "bash", "-ec", script, "hub", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _enter_hub(self) -> list[str]:
        return ["nsenter", "--target", str(self._hub), "--mount", "--net", "--pid", "--ipc"]

    @contextmanager
    def up(self) -> Iterator[None]:
        """All nodes booted, with HyperPod's files, and nothing of Slurm started."""
        _remove_control_groups()
        hub = subprocess.Popen(
            # The kernel ends the hub with this process, and with the hub every process in it, and so every mount.
            ["setpriv", "--pdeathsig", "KILL", *_NAMESPACES, "bash", "-ec", _HUB],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert hub.stdout is not None
            if hub.stdout.readline() != "ready\n":
                raise CommandError("the hub of the cluster did not start")
            (self._hub,) = children(hub.pid)
            self._make_image()
            for node in self.nodes:
                node.make_disk()
                node.launch()
            for node in self.nodes:
                node.await_boot()
                node.mount_fsx()
            self.lay_resource_config()
            self.lay_slurm_conf()
            yield
        finally:
            hub.kill()
            hub.wait()
            for node in self.nodes:
                node.kill()
            _remove_control_groups()

    def _make_image(self) -> None:
        self.run_in_hub(_MAKE_IMAGE, str(root_folder(self.slurm)))
        root = self.hub_path("/run/hub/image/root")
        image.build(root)
        image.compile_auto_resume(root, HERE / "auto_resume.c")
        self.run_in_hub("umount /run/hub/image/root")


@contextmanager
def slurm_cluster(slurm: SlurmVersion, mode: Mode, folder: Path, compute: int = 4) -> Iterator[Cluster]:
    """Six nodes, or another number of compute nodes, booted. `folder`: for what their consoles say.

    No daemon of Slurm runs yet: under `extended` HyperPod starts them (`hyperpod_starts_slurm`) before, while or after
    the scripts run, as the test has it; under `customer_managed` it is up to the scripts.
    """
    cluster = Cluster(slurm, mode, hyperpod.instances(compute), folder)
    with cluster.up():
        yield cluster


_ACCOUNTING = """
set -e
systemctl enable --now --quiet mariadb
mariadb -e "
  CREATE DATABASE IF NOT EXISTS slurm_acct_db;
  CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
  GRANT ALL ON slurm_acct_db.* TO slurm@localhost;"
install -m 600 -o slurm -g slurm /dev/stdin /opt/slurm/etc/slurmdbd.conf <<END
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/tmp/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=the-password-of-the-database
StorageLoc=slurm_acct_db
END
systemctl enable --now --quiet slurmdbd
for attempt in {1..150}; do
	! sacctmgr --noheader --readonly show cluster >/dev/null 2>&1 || break
	sleep 0.2
done
"""


def _remove_control_groups() -> None:
    """Those of clusters that are gone. One that is in use cannot be removed, and stays for the next cluster to remove."""
    for hierarchy in ("systemd", "unified", "."):
        for folder, _, _ in os.walk(Path("/sys/fs/cgroup") / hierarchy / CGROUP, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)


_LAST_LINES_OF_SLURMD = (
    "hostname; tail -n 60 /var/log/slurm/slurmd.log; pgrep -a -l 'slurm|epilog|prolog|unshare|scontrol'"
)
