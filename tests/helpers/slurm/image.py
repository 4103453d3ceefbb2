"""HyperPod's image for Slurm nodes, as far as it shows: what stands on a node before it boots for the first time.

It is a layer over the root folder of a Slurm version. As on HyperPod's own: Slurm is below /opt/slurm, its units are in
/etc/systemd/system and take SLURMD_OPTIONS (awsome-distributed-ai, base-config's start_slurm.sh), munge runs with one
key everywhere, sshd runs, the user `ubuntu` is there. Under `extended` HyperPod's agent enables and starts Slurm's
daemons (cluster.py); under `customer_managed` nothing does.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from helpers.slurm.hyperpod import SLURM_ETC

COMMANDS = (
    "sacct sacctmgr salloc sattach sbatch sbcast scancel scontrol sdiag sinfo sprio squeue sreport srun sshare sstat"
)
DAEMONS = ("slurmctld", "slurmd", "slurmdbd")
AUTO_RESUME = "/opt/slurm/lib/slurm/auto_resume.so"
BOOTED = "/run/booted"
"""Appears when systemd has started what it starts at boot."""

UNITS = {
    "slurmctld.service": """
[Unit]
Description=Slurm controller daemon
After=network-online.target munge.service
[Service]
Type=simple
ExecStart=/opt/slurm/sbin/slurmctld -D $SLURMCTLD_OPTIONS
ExecReload=/bin/kill -HUP $MAINPID
LimitNOFILE=65536
[Install]
WantedBy=multi-user.target
""",
    # LimitMEMLOCK is left out: on a node where nobody raises it, a job has what `limits.conf` below says.
    "slurmd.service": """
[Unit]
Description=Slurm node daemon
After=munge.service network-online.target remote-fs.target
[Service]
Type=simple
ExecStart=/opt/slurm/sbin/slurmd -D $SLURMD_OPTIONS
ExecReload=/bin/kill -HUP $MAINPID
KillMode=process
Delegate=yes
[Install]
WantedBy=multi-user.target
""",
    "slurmdbd.service": """
[Unit]
Description=Slurm DBD accounting daemon
After=network-online.target munge.service mariadb.service
[Service]
Type=simple
ExecStart=/opt/slurm/sbin/slurmdbd -D
ExecReload=/bin/kill -HUP $MAINPID
[Install]
WantedBy=multi-user.target
""",
    "booted.service": f"""
[Unit]
After=munge.service ssh.service
[Service]
Type=oneshot
ExecStart=/bin/touch {BOOTED}
[Install]
WantedBy=multi-user.target
""",
}
AT_BOOT = ("munge.service", "ssh.service", "booted.service")
# What a machine does that a test's node need not.
MASKED = (
    "console-getty.service",
    "systemd-binfmt.service",
    "systemd-modules-load.service",
    "systemd-udevd.service",
    "systemd-update-utmp.service",
)

MARIADB = "[mariadbd]\nskip-networking\ninnodb_buffer_pool_size=32M\ninnodb_log_file_size=8M\nperformance_schema=off\n"
USER = ("ubuntu", 1000)


def build(root: Path) -> None:
    """Turn a mounted root folder into HyperPod's image. `root` is written to, and must be an overlay of its own."""
    units = root / "etc" / "systemd" / "system"
    # This machine's own services have no business on a node; neither have its users.
    for wants in [*units.glob("*.wants"), *units.glob("*.requires")]:
        shutil.rmtree(wants)
    (units / "multi-user.target.wants").mkdir(parents=True)
    for name, text in UNITS.items():
        _write(units / name, text.lstrip())
    for name in AT_BOOT:
        folder = "/etc/systemd/system" if name in UNITS else "/usr/lib/systemd/system"
        (units / "multi-user.target.wants" / name).symlink_to(f"{folder}/{name}")
    for name in MASKED:
        _link(units / name, "/dev/null")
    _link(units / "default.target", "/usr/lib/systemd/system/multi-user.target")
    _users(root)
    _slurm(root)
    _write(root / "etc" / "mysql" / "mariadb.conf.d" / "90-node.cnf", MARIADB)
    _write(root / "etc" / "systemd" / "journald.conf.d" / "node.conf", "[Journal]\nStorage=volatile\n")
    # What the kernel gave for years, and too little for EFA. Some machines' root may not give more than 8 MiB.
    _write(root / "etc" / "systemd" / "system.conf.d" / "limits.conf", "[Manager]\nDefaultLimitMEMLOCK=64K\n")
    # A name server out of reach costs 24.11's daemons ten seconds and more at their start.
    for name in ("etc/resolv.conf", "etc/fstab"):
        _write(root / name, "")
    for key in (root / "etc" / "ssh").glob("ssh_host_*"):
        key.unlink()  # each node has its own, and a replaced node another one
    for folder in ("opt/ml/config", "srv/fsx", "var/spool/slurmd", "var/log/slurm", "var/spool/slurmctld"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for folder in ("var/log/slurm", "var/spool/slurmctld"):
        shutil.chown(root / folder, 64030, 64030)  # Debian's own number of the user slurm


def compile_auto_resume(root: Path, source: Path) -> None:
    """The stand-in for HyperPod's plugin, against this Slurm version's own header: Slurm refuses one of another."""
    target = root / AUTO_RESUME.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", str(target), f"-I{root}/usr/include", str(source)],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def _users(root: Path) -> None:
    """No person of this machine, and `ubuntu` as on HyperPod's images."""
    name, number = USER
    for file, line in {
        "passwd": f"{name}:x:{number}:{number}::/home/{name}:/bin/bash",
        "group": f"{name}:x:{number}:",
        "shadow": f"{name}:!:20000:0:99999:7:::",
    }.items():
        path = root / "etc" / file
        lines = path.read_text().splitlines()
        if file == "shadow":
            known = {entry.split(":")[0] for entry in (root / "etc" / "passwd").read_text().splitlines()}
            lines = [entry for entry in lines if entry.split(":")[0] in known]
        else:
            lines = [entry for entry in lines if not 1000 <= int(entry.split(":")[2]) < 60000]
        path.write_text("\n".join([*lines, line]) + "\n")
    home = root / "home" / name
    home.mkdir(parents=True)
    shutil.chown(home, number, number)
    _write(root / "etc" / "sudoers.d" / name, f"{name} ALL=(ALL) NOPASSWD:ALL\n")


def _slurm(root: Path) -> None:
    for folder, names in (("bin", COMMANDS.split()), ("sbin", DAEMONS)):
        (root / "opt" / "slurm" / folder).mkdir(parents=True)
        for name in names:
            (root / "opt" / "slurm" / folder / name).symlink_to(f"/usr/{folder}/{name}")
    # Debian's build looks for its files there; HyperPod's looks in /opt/slurm/etc, which only the controller has.
    shutil.rmtree(root / "etc" / "slurm", ignore_errors=True)


def lay_slurm_etc(root: Path) -> None:
    """The controller's folder of Slurm's configuration, empty."""
    (root / SLURM_ETC.lstrip("/")).mkdir(parents=True)
    _link(root / "etc" / "slurm", SLURM_ETC)


def _write(path: Path, text: str) -> None:
    """Without following a link that stands there: an absolute one would lead out of the image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
