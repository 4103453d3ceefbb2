"""One node of a Slurm cluster on this machine: its container, its commands, and how lifecycle scripts ended on it."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.slurm import hyperpod, image
from helpers.slurm.hyperpod import Instance
from helpers.slurm.parts import root_folder

if TYPE_CHECKING:
    from helpers.slurm.cluster import Cluster


NODE_DISK_MIB = 600
"""What a node can write, its databases included. In memory."""

BOOT_LIMIT_S = 90

COMMAND_LIMIT_S = 120

PROVISION_LIMIT_S = 300

SCRIPTS_FOLDER = f"/tmp/sagemaker-{hyperpod.CLUSTER_NAME}-111122223333-us-west-2/lifecycle"
"""Where HyperPod downloads the scripts to, in a folder that is named like the last part of SourceS3Uri."""

PROVISIONING_LOG = "/var/log/provision/provisioning.log"

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

CGROUP = "cdk-hyperpod-slurm"

_MAKE_DISK = f"""
node=$1 folder=/run/hub/nodes/$1
mkdir -p $folder
mount -t tmpfs -o size={NODE_DISK_MIB}m tmpfs $folder
mkdir $folder/disk $folder/work $folder/root
mount -t overlay overlay -o lowerdir=/run/hub/image/layer:$3,upperdir=$folder/disk,workdir=$folder/work $folder/root
ssh-keygen -q -t ed25519 -N '' -C $node -f $folder/root/etc/ssh/ssh_host_ed25519_key
[ -e /run/netns/$node ] && exit
ip netns add $node
# The bridge's end is named by the node's number: a link's name has at most 15 characters.
ip link add node-${{2##*.}} type veth peer name eth0 netns $node
ip link set node-${{2##*.}} master br0 up
ip -n $node address add $2/24 dev eth0
ip -n $node link set lo up
ip -n $node link set eth0 up
"""

_REMOVE_DISK = "umount --lazy /run/hub/nodes/$1/root && umount --lazy /run/hub/nodes/$1"

# Of an overlay, what was ever written lies in its upper folder. A file's status changes with its content, owner, mode and
# name. Daemons keep their states, systemd keeps stamps of its timers.
_FIND_CHANGES = """
cd /run/hub/nodes/$1/disk
find . -newercc /run/before-$1 ! -type d ! -path './var/log/*' ! -path './tmp/*' ! -path './var/tmp/*' \\
	! -path './var/spool/slurm*' ! -path './var/lib/mysql/*' ! -path './var/lib/systemd/*' ! -path './var/cache/*' \\
	! -path './var/lib/cdk-hyperpod/state-copied.json'
"""

# In a control group of its own: two systemds in one would end one another's services.
_BOOT = f"""
node=$1 group={CGROUP}/$2/$1-$3
for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
	[ -e $hierarchy/cgroup.procs ] || continue
	mkdir -p $hierarchy/$group
	echo 0 >$hierarchy/$group/cgroup.procs
done
export SYSTEMD_SECCOMP=0
exec systemd-nspawn --quiet --boot --register=no --keep-unit --link-journal=no --resolv-conf=off --timezone=off \\
	--console=read-only --capability=all --network-namespace-path=/run/netns/$node --bind=/run/hub/fsx:/srv/fsx \\
	--machine=$node --hostname=$node --directory=/run/hub/nodes/$node/root
"""

# A socket is of the network in which it was made, whoever has it.
_LISTEN = """
import socket, sys
to_parent, made = socket.socket(fileno=int(sys.argv[1])), socket.create_server(("127.0.0.1", int(sys.argv[2])))
socket.send_fds(to_parent, [b"-"], [made.fileno()])
"""


class CommandError(Exception):
    """A command on a node failed: what it was, and all that it said."""


class Result:
    """How a command on a node ended."""

    def __init__(self, returncode: int, output: str) -> None:
        self.returncode = returncode
        self.output = output
        """What it printed, stdout and stderr together, without the last newline."""

    def __repr__(self) -> str:
        return f"exit code {self.returncode}: {self.output}"


class Provisioning(Result):
    """How the lifecycle scripts ended on a node."""

    def __init__(self, instance: Instance, returncode: int, output: str, seconds: float) -> None:
        super().__init__(returncode, output)
        self.instance = instance
        self.seconds = seconds

    @property
    def lines(self) -> list[str]:
        """What they logged, without the time of each line."""
        return [line.split(" ", 1)[-1] for line in self.output.splitlines()]

    @property
    def errors(self) -> list[str]:
        return [line for line in self.lines if line.startswith("ERROR ")]


class Node:
    """One node of the cluster. Its name, address and instance id are in `instance`."""

    def __init__(self, cluster: Cluster, instance: Instance) -> None:
        self.cluster = cluster
        self.instance = instance
        self._container: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._boots = 0
        self.disks = 0
        """How many root volumes it has had: a replacement and a software update give it another one."""

    @property
    def name(self) -> str:
        """Its host name, which is its name in Slurm."""
        return self.instance.name

    # -- commands

    def try_run(
        self,
        command: str,
        *,
        user: str = "root",
        stdin: str = "",
        timeout_s: float = COMMAND_LIMIT_S,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run a line of bash on the node, from a login environment of that user, and say how it ended."""
        done = subprocess.run(
            self._command(command, user, env or {}),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        return Result(done.returncode, done.stdout.removesuffix("\n"))

    def run(
        self,
        command: str,
        *,
        user: str = "root",
        stdin: str = "",
        timeout_s: float = COMMAND_LIMIT_S,
        env: Mapping[str, str] | None = None,
    ) -> str:
        """What the command prints. Raises CommandError when it ends with another code than 0."""
        result = self.try_run(command, user=user, stdin=stdin, timeout_s=timeout_s, env=env)
        if result.returncode != 0:
            raise CommandError(f"{self.name}, {user}: {command}: {result}")
        return result.output

    def start(self, command: str, *, user: str = "root") -> subprocess.Popen[str]:
        """Run it beside the test, which waits for it or kills it; its stdout and stderr come through one pipe."""
        return subprocess.Popen(
            self._command(command, user, {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def write(self, path: str, text: str, mode: str = "644") -> None:
        """Write a file of the running node, atomically, and make its folder."""
        name = shlex.quote(path)
        self.run(
            f"mkdir -p $(dirname {name}) && cat >{name}.new && chmod {mode} {name}.new && mv {name}.new {name}",
            stdin=text,
        )

    def read(self, path: str) -> str:
        """A file of the running node, to the last newline."""
        return self.run(f"cat {shlex.quote(path)}")

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder on the running node."""
        return self.try_run(f"test -e {shlex.quote(path)}").returncode == 0

    def listen(self, port: int) -> socket.socket:
        """A port of the node's own loopback, on which this process answers: a node reaches nothing but its cluster."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = ["nsenter", "--target", str(self._init), "--net", sys.executable, "-c", _LISTEN]
            subprocess.run([*command, str(theirs.fileno()), str(port)], pass_fds=[theirs.fileno()], check=True)
            _, (found,), _, _ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=found)

    # -- lifecycle scripts

    def download(self, scripts: Path) -> str:
        """Lay a folder of lifecycle scripts where HyperPod downloads SourceS3Uri to, and say where. S3 keeps no modes."""
        target = f"{SCRIPTS_FOLDER}/{scripts.name}"
        archive = subprocess.run(["tar", "-C", str(scripts), "-c", "."], check=True, stdout=subprocess.PIPE).stdout
        unpack = f"rm -rf {target} && mkdir -p {target} && tar -C {target} -x --no-same-owner --mode=u=rwX,go=rX"
        subprocess.run(
            [*self._enter(), "bash", "-c", f"{unpack} && find {target} -type f -exec chmod 644 {{}} +"],
            input=archive,
            check=True,
        )
        return target

    def provision(self, scripts: Path, **env: str) -> Provisioning:
        """Download the scripts and run the one of this node's type, as HyperPod does under either hook.

        As root, without a terminal, from the folder that they were downloaded to. They look twice a second at what they
        wait for, and not every five seconds; `env` may say otherwise.
        """
        folder = self.download(scripts)
        started = time.monotonic()
        result = self.try_run(
            f"cd {folder} && bash ./{self.instance.node_type}.sh </dev/null",
            timeout_s=PROVISION_LIMIT_S,
            env={"SAGEMAKER_RESOURCE_CONFIG_PATH": hyperpod.RESOURCE_CONFIG, "PROVISION_DELAY_S": "0.5", **env},
        )
        return Provisioning(self.instance, result.returncode, result.output, time.monotonic() - started)

    # -- its life

    @property
    def running(self) -> bool:
        """Whether the node is up."""
        return self._container is not None and self._container.poll() is None

    def launch(self) -> None:
        """Turn it on: begin to boot. `await_boot` waits for the end of it."""
        self._boots += 1
        self._container = self.cluster.start_in_hub(
            _BOOT, self.name, str(os.getpid()), str(self._boots), console=self.console
        )

    def await_boot(self) -> None:
        """Wait until systemd has started what it starts, and lay what lies in memory: devices and mounts."""
        self._init = self.cluster.until(
            lambda: self._container_init() if self.running else self._not_booted(), f"{self.name} has a first process"
        )
        booted = Path(f"/proc/{self._init}/root{image.BOOTED}")
        self.cluster.until(lambda: booted.exists() or (not self.running and self._not_booted()), f"{self.name} is up")
        devices = [(f"nvidia{i}", 3) for i in range(self.instance.gpus)]
        devices += [(f"neuron{i}", 3) for i in range(self.instance.neuron_devices)]
        self.run("; ".join(f"mknod -m 666 /dev/{name} c 1 {minor}" for name, minor in devices) or ":")

    def boot(self) -> None:
        """Turn it on and wait; what was on its disk is there."""
        self.launch()
        self.await_boot()

    def kill(self) -> None:
        """End it as a failure of the hardware would: at once, with nothing written."""
        if self._init:
            with suppress(ProcessLookupError):
                os.kill(self._init, signal.SIGKILL)
        if self._container is not None:
            self._container.wait(COMMAND_LIMIT_S)
        self._init = 0

    def reboot(self) -> None:
        """Off and on; HyperPod mounts the file system again."""
        self.kill()
        self.boot()
        self.mount_fsx()

    def replace(self) -> None:
        """What HyperPod does with a failed node: another instance and an empty disk at the same address.

        The file on the other nodes that names the instances is written again. No script is run yet.
        """
        self.instance = self.instance.replaced()
        self.re_image()
        self.cluster.lay_resource_config()

    def re_image(self) -> None:
        """What HyperPod does in a software update: the same instance gets another root volume. No script is run yet."""
        self.kill()
        self.cluster.run_in_hub(_REMOVE_DISK, self.name)
        self.make_disk()
        self.boot()
        self.mount_fsx()
        self.cluster.lay_resource_config([self])

    def make_disk(self) -> None:
        """A root volume as it comes from the image."""
        self.disks += 1
        self.cluster.run_in_hub(
            _MAKE_DISK, self.name, self.instance.address, str(root_folder(self.cluster.slurm)), timeout_s=60
        )
        root = self.cluster.hub_path(f"/run/hub/nodes/{self.name}/root")
        (root / "etc" / "hostname").write_text(f"{self.name}\n")
        (root / "etc" / "hosts").write_text(self.cluster.hosts)
        (root / "etc" / "machine-id").write_text(f"{self.instance.instance_id[2:]:>032}\n")
        if self.instance.node_type == "controller":
            image.lay_slurm_etc(root)

    def mount_fsx(self) -> None:
        """Mount the cluster's file system at /fsx, as HyperPod does for InstanceStorageConfigs."""
        self.run("mkdir -p /fsx && mount --bind /srv/fsx /fsx")

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Assert that the block leaves the node's disk as it is: logs, downloads, what daemons keep, and notes on copies apart.

        Daemons of Slurm are the same processes afterwards.
        """
        daemons = "systemctl show --property MainPID slurmctld slurmd slurmdbd"
        before = self.run(daemons)
        self.cluster.run_in_hub("touch /run/before-$1", self.name)
        time.sleep(0.02)  # a file's time is that of the last tick of the clock
        yield
        assert self.cluster.run_in_hub(_FIND_CHANGES, self.name) == ""
        assert self.run(daemons) == before

    def unmount_fsx(self) -> None:
        """As if the file system were not there yet."""
        self.run("umount --lazy /fsx")

    @property
    def console(self) -> Path:
        """What systemd said while it booted."""
        return self.cluster.folder / f"{self.name}.console"

    def _not_booted(self) -> int:
        raise CommandError(f"{self.name} did not boot: {self.console.read_text(errors='replace')[-2000:]}")

    def _container_init(self) -> int:
        """The node's process 1, as this machine numbers it, or 0."""
        assert self._container is not None
        for nspawn in children(self._container.pid):
            for child in children(nspawn):
                with suppress(OSError):
                    status = Path(f"/proc/{child}/status").read_text()
                    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
                    if numbers[-1] == "1" and Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                        return child
        return 0

    def _command(self, command: str, user: str, env: Mapping[str, str]) -> list[str]:
        line = ["bash", "-c", command] if user == "root" else ["runuser", "-l", user, "-c", command]
        variables = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **env}
        return [*self._enter(), "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *line]

    def _enter(self) -> list[str]:
        if not self.running:
            raise CommandError(f"{self.name} is off")
        target = str(self._init)
        return ["nsenter", "--target", target, "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"]


def children(parent: int) -> list[int]:
    """The processes that this one started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(entry.name))
    return found
