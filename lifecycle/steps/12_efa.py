#!/usr/bin/env python3
"""Let the node's Lustre client use EFA. Usage: 12_efa.py ACTION INSTANCE_TYPE [PATH]...

ACTION: configure, once on a node's first start: configure LNet if nobody has, and verify it. verify: only verify. boot: configure it again
after a reboot, before a file system is mounted. PATH: where Lustre is mounted. INSTANCE_TYPE `-`: the type is unknown.

Without this, Lustre uses TCP and reports no error. LNet can change only while nothing uses it, so a mounted file system is unmounted and
mounted again as it was. A node where that is impossible keeps its mount over TCP, and the log says why. Nothing is downloaded.

Source: "Configuring EFA clients" in the FSx for Lustre user guide.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import (
    PROGRAMS,
    StepError,
    attempts,
    delay_s,
    install_program,
    install_unit,
    last_line,
    log,
    on_node,
    run,
    run_step,
)

TRIED = "/var/lib/cdk-hyperpod/efa-tried"
"""This file exists as soon as the step has begun to change something. On such a node it only verifies: jobs may run."""
UNIT = "cdk-hyperpod-efa.service"
BOOT = """\
[Unit]
Description=Configure LNet over EFA before file systems are mounted
After=network-online.target
Wants=network-online.target remote-fs-pre.target
Before=remote-fs-pre.target

[Service]
Type=oneshot
TimeoutStartSec=120
ExecStart=/usr/bin/env python3 -B {program} boot {instance_type}

[Install]
WantedBy=multi-user.target
"""
DEFAULT_INTERFACES = {
    "ml.p5.48xlarge": 8,
    "ml.p5e.48xlarge": 8,
    "ml.p5en.48xlarge": 8,
    "ml.p6-b200.48xlarge": 8,
    "ml.p6e-gb200.36xlarge": 8,
    "ml.p6-b300.48xlarge": 16,
}
"""How many EFA interfaces AWS's own script configures. Of other types it configures at most two. A file system has 1024 connections."""
LEAST_KERNEL = (6, 8)
"""On Ubuntu."""
BLOCKS = 32
"""A test writes so many MiB, each of which is one message to a file server."""
MOUNT_OPTIONS = {"flock", "localflock", "noflock", "user_xattr", "nouser_xattr", "nochecksum", "nolazystatfs"}
"""What a mount of Lustre keeps of the options of its file system. The others are the client's defaults."""
SLURMD = "slurmd.service"
HUNG = 124
"""The exit code of lib.run for a command that did not end in time."""
LOOK_AT = "look at the rules between the security groups of nodes and file system, and at their availability zones"


@dataclass(frozen=True)
class Interface:
    """An EFA device that LNet uses."""

    device: str
    is_up: bool
    sent: int
    received: int


@dataclass(frozen=True)
class LustreMount:
    """A mounted Lustre file system, as the kernel lists it."""

    path: str
    source: str
    options: str


class Unusable(Exception):
    """Lustre stays on TCP. The message says why, and what to do."""


# -- what the node has ------------------------------------------------------------------------------------------------


def efa_devices() -> list[str]:
    """The EFA devices of the node, by name."""
    folder = on_node("/sys/class/infiniband")
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [entry.name for entry in found if (entry / "device/driver").resolve().name == "efa"]


def chosen(devices: Sequence[str], instance_type: str) -> list[str]:
    """The devices that LNet gets: as many as AWS configures, spread over the node's network cards."""
    count = min(len(devices), DEFAULT_INTERFACES.get(instance_type, 2))
    return [devices[index * len(devices) // count] for index in range(count)]


def efa_interfaces() -> list[Interface]:
    """The EFA interfaces of LNet, with the messages that each has sent and received."""
    shown = run("lnetctl", "net", "show", "-v", "--net", "efa", timeout_s=30).stdout
    parts = re.split(r"^\s*- nid:", shown, flags=re.MULTILINE)[1:]
    return [_interface(part) for part in parts if "@efa" in part.split("\n", 1)[0]]


def _interface(text: str) -> Interface:
    def number(name: str) -> int:
        found = re.search(rf"^\s*{name}:\s*(\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0

    device = re.search(r"^\s*0:\s*(\S+)", text, re.MULTILINE)
    status = re.search(r"^\s*status:\s*(\S+)", text, re.MULTILINE)
    is_up = status is not None and status[1] == "up"
    return Interface(device[1] if device else "?", is_up, number("send_count"), number("recv_count"))


def tcp_interface() -> str | None:
    """The network interface of LNet over TCP, or of the default route if there is none yet."""
    shown = run("lnetctl", "net", "show", "--net", "tcp", timeout_s=30).stdout
    found = re.search(r"^\s*0:\s*(\S+)", shown, re.MULTILINE)
    if found:
        return found[1]
    routes = run("ip", "-json", "route", "show", "default", timeout_s=30)
    try:
        return str(json.loads(routes.stdout)[0]["dev"])
    except (ValueError, LookupError, TypeError):
        return None


def lustre_mounts() -> list[LustreMount]:
    """All mounted Lustre file systems (proc_pid_mountinfo(5)). Does not touch them: one whose servers are out of reach hangs."""
    table = Path(os.environ.get("PROVISION_MOUNTINFO", "/proc/self/mountinfo")).read_text("utf-8")
    rows = [line.partition(" - ") for line in table.splitlines() if line]
    found = [(before.split(), after.split()) for before, _, after in rows]
    return [
        LustreMount(before[4], after[1], ",".join([before[5], *kept(after[2])]))
        for before, after in found
        if after[0] == "lustre"
    ]


def kept(options: str) -> list[str]:
    """The options of a file system that a new mount has to repeat."""
    return [option for option in options.split(",") if option in MOUNT_OPTIONS]


def is_automount(path: str) -> bool:
    """Whether systemd mounts the path when somebody looks into it."""
    table = Path(os.environ.get("PROVISION_MOUNTINFO", "/proc/self/mountinfo")).read_text("utf-8")
    return any(f" {path} " in line.partition(" - ")[0] and " - autofs " in line for line in table.splitlines())


def runs_job_steps() -> bool:
    """Whether a job runs on this node."""
    shown = run("pgrep", "--list-full", "--exact", "slurmstepd").stdout
    return any("infinity" not in line for line in shown.splitlines())


def check_possible() -> None:
    """Raise Unusable if this node cannot use EFA for Lustre."""
    for reason in (_no_adapter, _no_client, _old_kernel, _no_module):
        said = reason()
        if said is not None:
            raise Unusable(said)


def _no_adapter() -> str | None:
    return None if efa_devices() else "the node has no EFA adapter"


def _no_client() -> str | None:
    missing = run("lnetctl", "--version", timeout_s=30).returncode == 127
    return "the image has no lnetctl, which is part of the Lustre client; use a newer image" if missing else None


def _old_kernel() -> str | None:
    release = on_node("/etc/os-release")
    text = release.read_text("utf-8", "replace") if release.is_file() else ""
    kernel = run("uname", "-r").stdout.strip()
    numbers = tuple(map(int, re.findall(r"\d+", kernel)[:2]))
    if "ID=ubuntu" in text.splitlines() and numbers < LEAST_KERNEL:
        return (
            f"the kernel is {kernel}, and on Ubuntu AWS's Lustre client needs 6.8 or later for EFA; use a newer image"
        )
    return None


def _no_module() -> str | None:
    if run("modinfo", "kefalnd", timeout_s=30).returncode == 0:
        return None
    return "the image's Lustre client has no module kefalnd for this kernel; use a newer image"


# -- LNet -------------------------------------------------------------------------------------------------------------


def configure_lnet(instance_type: str) -> None:
    """Add the EFA devices to LNet, and prefer them. Raises Unusable, with LNet as it was."""
    network = tcp_interface()
    if network is None:
        raise Unusable("the node's network interface is unknown (`ip route` shows no default route)")
    _do("modprobe", "lnet")
    # It fails if LNet is configured already.
    run("lnetctl", "lnet", "configure", timeout_s=60)
    _do("modprobe", "kefalnd", f"ipif_name={network}")
    if "@tcp" not in run("lnetctl", "net", "show", "--net", "tcp", timeout_s=30).stdout:
        _do("lnetctl", "net", "add", "--net", "tcp", "--if", network)
    failed = [said for device in chosen(efa_devices(), instance_type) if (said := _add_device(device))]
    if not any(interface.is_up for interface in efa_interfaces()):
        remove_efa()
        raise Unusable(f"LNet accepts no EFA device: {failed[-1] if failed else 'none is up'}; look at `dmesg`")
    if failed:
        log("WARNING", f"LNet does not use every EFA device: {failed[-1]}; look at `dmesg`")
    run("lnetctl", "set", "discovery", "1", timeout_s=60)
    if "efa" not in run("lnetctl", "udsp", "show", timeout_s=30).stdout:
        run("lnetctl", "udsp", "add", "--src", "efa", "--priority", "0", timeout_s=60)
    _do("modprobe", "lustre")


def _add_device(device: str) -> str | None:
    done = run("lnetctl", "net", "add", "--net", "efa", "--if", device, "--peer-credits", "32", timeout_s=60)
    return None if done.returncode == 0 else f"{device}: {last_line(done.stdout)}"


def _do(*command: str) -> None:
    done = run(*command, timeout_s=60)
    if done.returncode != 0:
        remove_efa()
        raise Unusable(f"`{' '.join(command)}` failed: {last_line(done.stdout)}; look at `dmesg`")


def remove_efa() -> None:
    """LNet as it was: without EFA, also after the next reboot."""
    if efa_interfaces():
        run("lnetctl", "net", "del", "--net", "efa", timeout_s=60)
    if on_node(f"/etc/systemd/system/{UNIT}").exists():
        run("systemctl", "disable", UNIT)


def keep_after_reboot(instance_type: str) -> None:
    """LNet forgets its configuration when the node reboots."""
    try:
        install_program("efa.py", Path(__file__).read_text("utf-8"))
        install_unit(UNIT, BOOT.format(program=f"{PROGRAMS}/efa.py", instance_type=instance_type))
        failed = run("systemctl", "enable", UNIT).returncode != 0
        problem = f"`systemctl enable {UNIT}` failed" if failed else ""
    except OSError as error:
        problem = str(error)
    if problem:
        log("WARNING", f"Lustre will use TCP after a reboot: {problem}")


# -- verify -----------------------------------------------------------------------------------------------------------


def check_used(path: str) -> None:
    """Raise Unusable if what is written to the file system does not go over EFA."""
    before = efa_interfaces()
    written = run(sys.executable, "-B", __file__, "write", path, timeout_s=120)
    if written.returncode == HUNG:
        raise Unusable(f"a test of {BLOCKS} MiB hangs; {LOOK_AT}")
    if written.returncode != 0:
        log(
            "WARNING",
            f"whether {path} uses EFA is not known: a test file cannot be written: {last_line(written.stdout)}",
        )
        return
    after = efa_interfaces()
    sent = sum(each.sent for each in after) - sum(each.sent for each in before)
    received = sum(each.received for each in after) - sum(each.received for each in before)
    if min(sent, received) < BLOCKS // 2:
        raise Unusable(f"of a test of {BLOCKS} MiB EFA sent {sent} and received {received} messages; {LOOK_AT}")
    up = sum(each.is_up for each in after)
    log("INFO", f"{path} uses EFA: {up} interfaces sent {sent} messages of a test")


def write_test(path: str) -> None:
    """Write BLOCKS MiB, each to the file server at once, into a file that has no name any more."""
    # Users may write to the folder: mkstemp follows no link, and uses no file that exists.
    number, name = tempfile.mkstemp(prefix=".cdk-hyperpod-efa-", dir=on_node(path))
    with open(number, "wb", buffering=0) as file:
        os.unlink(name)
        for _ in range(BLOCKS):
            file.write(bytes(2**20))
            os.fdatasync(file.fileno())


def verify(paths: Sequence[str]) -> None:
    """Whether the mounted file systems use EFA."""
    interfaces = efa_interfaces()
    if not interfaces:
        check_possible()
        raise Unusable("LNet has no EFA interface, and only the first start of a node configures it; replace the node")
    mounted = [mount.path for mount in lustre_mounts() if mount.path in paths]
    for path in mounted:
        check_used(path)
    if not mounted:
        log("INFO", f"LNet has {sum(each.is_up for each in interfaces)} EFA interfaces for the mounts of pods")


# -- a mounted file system --------------------------------------------------------------------------------------------


def configure(instance_type: str, paths: Sequence[str]) -> None:
    """Configure LNet if nobody has, and verify it. Raises Unusable, with the file system mounted as it was."""
    if efa_interfaces() or on_node(TRIED).exists():
        verify(paths)
        return
    check_possible()
    mounted = lustre_mounts()
    if not mounted:
        _note()
        configure_lnet(instance_type)
        log("INFO", "LNet uses EFA for what is mounted from now on")
    else:
        _configure_under(mounted, instance_type, paths)
    keep_after_reboot(instance_type)


def _note() -> None:
    file = on_node(TRIED)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def _configure_under(mounted: Sequence[LustreMount], instance_type: str, paths: Sequence[str]) -> None:
    if len(mounted) != 1 or mounted[0].path not in paths:
        others = ", ".join(mount.path for mount in mounted)
        raise Unusable(f"LNet is in use by what is mounted at {others}; replace the node")
    if runs_job_steps():
        raise Unusable("a job runs on the node; replace the node when it has ended")
    _note()
    (mount,) = mounted
    with finished_before_it_ends():
        without_new_jobs(lambda: remounted(mount, lambda: configure_lnet(instance_type)))
    try:
        check_used(mount.path)
    except Unusable as reason:
        # A network that loses messages is worse than a slow one.
        try:
            with finished_before_it_ends():
                without_new_jobs(lambda: remounted(mount, remove_efa))
        except Unusable as stuck:
            raise Unusable(f"{reason}; EFA is still configured, because {stuck}") from stuck
        raise


@contextlib.contextmanager
def finished_before_it_ends() -> Iterator[None]:
    """A node that is told to stop mounts its file system first. The commands of the step ignore these signals too."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


def without_new_jobs(act: Callable[[], None]) -> None:
    """Act while slurmd is off, so that no job starts without the file system. Job steps survive that: they are none."""
    if run("systemctl", "is-active", "--quiet", SLURMD).returncode != 0:
        act()
        return
    run("systemctl", "stop", SLURMD)
    has_mount = True
    try:
        if runs_job_steps():
            raise Unusable("a job has begun on the node; replace the node when it has ended")
        act()
    except StepError:
        has_mount = False
        raise
    finally:
        if has_mount:
            # If this fails, step slurm starts it.
            run("systemctl", "start", SLURMD)


def remounted(mount: LustreMount, act: Callable[[], None]) -> None:
    """Act between unmounting and mounting. Raises StepError only if the file system cannot be mounted any more."""
    done = run("umount", mount.path, timeout_s=60)
    if done.returncode != 0 and mount in lustre_mounts():
        raise Unusable(f"{mount.path} cannot be unmounted: {last_line(done.stdout)}; replace the node")
    automount = is_automount(mount.path)
    unit = run("systemd-escape", "--path", "--suffix=automount", mount.path).stdout.strip() if automount else ""
    if unit:
        run("systemctl", "stop", unit)
    problem = None
    try:
        act()
    except (Unusable, OSError) as error:
        problem = Unusable(str(error))
    if unit:
        run("systemctl", "start", unit)
    said = mount_again(mount)
    if said is not None:
        remove_efa()
        problem = Unusable(f"{mount.path} could not be mounted over EFA: {said}")
        said = mount_again(mount)
    if said is not None:
        raise StepError(f"{mount.path} cannot be mounted again: {said}; replace the node")
    if problem is not None:
        raise problem


def mount_again(mount: LustreMount) -> str | None:
    """Mount as it was. Returns why it failed, or None."""
    table = on_node("/etc/fstab")
    lines = table.read_text("utf-8", "replace").splitlines() if table.is_file() else []
    is_known = any(line.split()[1:2] == [mount.path] for line in lines if not line.startswith("#"))
    command = (
        ["mount", mount.path] if is_known else ["mount", "-t", "lustre", "-o", mount.options, mount.source, mount.path]
    )
    said = ""
    for attempt in range(min(attempts(), 6)):
        if attempt:
            time.sleep(delay_s())
        done = run(*command, timeout_s=120)
        if mount.path in [each.path for each in lustre_mounts()]:
            return None
        said = last_line(done.stdout)
    return said


def boot(instance_type: str) -> None:
    """Configure LNet after a reboot, unless something is mounted or configured already."""
    if efa_interfaces():
        return
    check_possible()
    if lustre_mounts():
        raise Unusable("a file system was mounted before LNet was configured; reboot or replace the node")
    configure_lnet(instance_type)


def main(action: str, instance_type: str, *paths: str) -> None:
    """Do it. A node that has Lustre over TCP is a good node."""
    try:
        if action == "configure":
            configure(instance_type, paths)
        elif action == "boot":
            boot(instance_type)
        else:
            verify(paths)
    except (Unusable, OSError) as reason:
        # Most controllers have no EFA, and need none.
        log("WARNING" if efa_devices() else "INFO", f"Lustre uses TCP on this node: {reason}")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write_test(sys.argv[2])
        sys.exit(0)
    sys.exit(run_step(lambda: main(*sys.argv[1:])))
