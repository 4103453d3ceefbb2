#!/usr/bin/env python3
"""Put what Docker and Enroot store on the node's big disk. Usage: 65_container_data.py CLUSTER_JSON.

Images of 10 GB and more fill a root volume. Where the node has NVMe disks the image mounts them, else the second volume
of the group is there; where neither is, all stays as it is. Docker and Enroot are the image's: this installs nothing,
and no second Pyxis, with which `srun` would print each of its options twice.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from lib import (
    OWN_MARK,
    StepError,
    first_mounted,
    log,
    must_run,
    on_node,
    one_line,
    read_cluster,
    run,
    run_step,
    write_file,
)

DISKS = ("/opt/dlami/nvme", "/opt/sagemaker")
"""The node's NVMe disks as AWS's images mount them, and the second volume as HyperPod does."""
DAEMON_JSON = "/etc/docker/daemon.json"
ENROOT_CONF = "/etc/enroot/enroot.conf"
"""The image's, which Enroot reads first: what it sets, no later file changes."""
ENROOT_DROP_IN = "/etc/enroot/enroot.conf.d/99-cdk-hyperpod.conf"
ENROOT_SETTING = re.compile(r"[ \t]*(ENROOT_[A-Z_]+)[ \t=]+([^\s=](?:.*\S)?)")
"""A line of Enroot's files that sets something; with an empty value it sets nothing."""
PEOPLE = range(1000, 60_000)
"""Uids of accounts that are people's, the image's own user among them (login.defs: UID_MIN, UID_MAX)."""


def place_docker(disk: str) -> None:
    """Docker's images and containers, where Docker is and stores nothing yet."""
    docker = run("docker", "info", "--format", "{{.Containers}} {{.Images}} {{.DockerRootDir}}", timeout_s=60)
    if docker.returncode == 127:
        log("INFO", "this node has no Docker")
        return
    file = on_node(DAEMON_JSON)
    settings = daemon_settings(file.read_text("utf-8") if file.is_file() else "")
    wanted = f"{disk}/docker"
    answers = docker.returncode == 0
    containers, images, stores_in, *_ = [*docker.stdout.split(), "0", "0", ""] if answers else ["0", "0", ""]
    if settings.get("data-root") == stores_in == wanted:
        log("INFO", f"Docker stores in {wanted}")
        return
    if (containers, images) != ("0", "0"):
        log("WARNING", f"Docker has {containers} containers and {images} images already; it goes on storing there")
        return
    if settings.get("data-root") != wanted:
        make_folder(wanted, 0o711)
        write_file(DAEMON_JSON, json.dumps({**settings, "data-root": wanted}, indent=4) + "\n")
    # Also where a run before this one wrote the file, and Docker did not start again: what it says itself counts.
    if answers or run("systemctl", "is-failed", "docker.service").returncode == 0:
        run("systemctl", "reset-failed", "docker.service")
        must_run("systemctl", "restart", "docker.service")
    log("INFO", f"Docker stores in {wanted}")


def daemon_settings(text: str) -> dict[str, Any]:
    """What daemon.json says. Raises StepError where it is no JSON: Docker would not start with it either."""
    try:
        settings = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise StepError(f"{DAEMON_JSON} cannot be read: {error}; correct it") from error
    if not isinstance(settings, dict):
        raise StepError(f"{DAEMON_JSON} is no JSON object; correct it")
    return settings


def place_enroot(disk: str, uids: Iterable[int]) -> None:
    """Enroot's layers and unpacked images, each user's in a folder of its own.

    Enroot takes a folder that is there for its user's, and layers in it for checked. So users cannot make one here: root makes it for
    the accounts of the node, and whoever has none, or not the right one, has Enroot's own default in the home.

    Of several lines for one setting Enroot takes the first. The image's own give way; a file of yours in enroot.conf.d
    whose name sorts before ours wins, and is told.
    """
    if not on_node("/etc/enroot").is_dir():
        log("INFO", "this node has no Enroot")
        return
    make_folder(f"{disk}/enroot", 0o755)
    make_folder(f"{disk}/enroot/tmp", 0o1777)
    make_folder(f"{disk}/enroot/aside", 0o700)
    for name in ("cache", "data"):
        # Before what is in it is looked at: users could write here under an earlier version.
        make_folder(f"{disk}/enroot/{name}", 0o711)
        put_aside(f"{disk}/enroot", name)
        for uid in sorted(set(uids)):
            give_folder(f"{disk}/enroot/{name}/{uid}", uid)
    settings = {
        "ENROOT_CACHE_PATH": own_or_home(f"{disk}/enroot/cache", "${XDG_CACHE_HOME:-${HOME:-$(echo ~)}/.cache}"),
        "ENROOT_DATA_PATH": own_or_home(f"{disk}/enroot/data", "${XDG_DATA_HOME:-${HOME:-$(echo ~)}/.local/share}"),
        "ENROOT_TEMP_PATH": f"{disk}/enroot/tmp",
    }
    lines = [f"# {OWN_MARK}", *(f"{name} {value}" for name, value in settings.items())]
    write_file(ENROOT_DROP_IN, "\n".join(lines) + "\n")
    file = on_node(ENROOT_CONF)
    if file.is_file():
        text = file.read_text("utf-8", "replace")
        write_file(ENROOT_CONF, without_settings(text, settings), mode=file.stat().st_mode & 0o7777)
    effective = enroot_settings()
    others = {name: effective[name] for name, value in settings.items() if effective[name][0] != value}
    for name, (value, where) in others.items():
        log("WARNING", f"Enroot has {name} {value} from {where}, not {settings[name]}: take that line out to have ours")
    if not others:
        log("INFO", f"Enroot stores in {disk}/enroot")


def own_or_home(folder: str, home: str) -> str:
    """What Enroot's shell makes of a user's folder: the one here if it is the user's, else Enroot's own default."""
    return f"$(test -O {folder}/$(id -u) && echo {folder}/$(id -u) || echo {home}/enroot)"


def put_aside(folder: str, name: str) -> None:
    """Move what is not the folder of the user in whose place it is: another user made it first."""
    for found in sorted(on_node(f"{folder}/{name}").iterdir()):
        status = os.lstat(found)
        if stat.S_ISDIR(status.st_mode) and found.name == str(status.st_uid):
            found.chmod(0o700)
            continue
        aside = f"{folder}/aside/{name}-{found.name}-{time.time_ns()}"
        found.rename(on_node(aside))
        log(
            "WARNING",
            f"{folder}/{name}/{one_line(found.name)} belonged to uid {status.st_uid}; it is in {one_line(aside)} now",
        )


def give_folder(path: str, uid: int) -> None:
    """The user's folder, made by root and given away when it is ready. One user's never keeps the node from starting."""
    folder = on_node(path)
    if folder.exists():
        return
    fresh = folder.with_name(f".{folder.name}.new")
    try:
        fresh.mkdir(mode=0o700, exist_ok=True)
        os.chown(fresh, uid, -1)
        fresh.rename(folder)
    except OSError as error:
        log("WARNING", f"{path} could not be made ({error.strerror}): uid {uid} has its containers in the home")


def accounts(cluster: Mapping[str, Any]) -> set[int]:
    """Uids of root, whose home is on the small root volume, of the file's users, and of the people whom the node knows."""
    uids = {0, *(user["uid"] for user in cluster.get("users") or ())}
    known = run("getent", "passwd")
    rows = [line.split(":") for line in known.stdout.splitlines()] if known.returncode == 0 else []
    return uids | {int(row[2]) for row in rows if len(row) == 7 and row[2].isdigit() and int(row[2]) in PEOPLE}


def without_settings(text: str, names: Container[str]) -> str:
    """enroot.conf with the lines that set one of these made comments."""
    return "".join(
        f"# cdk-hyperpod: {line}" if (found := ENROOT_SETTING.match(line)) and found[1] in names else line
        for line in text.splitlines(keepends=True)
    )


def enroot_settings() -> dict[str, tuple[str, str]]:
    """What counts of Enroot's files on this node: each setting's value, and the file that has it."""
    folder = str(Path(ENROOT_DROP_IN).parent)
    files = [ENROOT_CONF, *(f"{folder}/{file.name}" for file in sorted(on_node(folder).glob("*.conf")))]
    settings: dict[str, tuple[str, str]] = {}
    for path in files:
        file = on_node(path)
        for line in file.read_text("utf-8", "replace").splitlines() if file.is_file() else ():
            found = ENROOT_SETTING.match(line)
            if found:
                settings.setdefault(found[1], (found[2], path))
    return settings


def make_folder(path: str, mode: int) -> None:
    """A folder of root's own. Raises StepError for a link, or what belongs to somebody else: both may lead elsewhere."""
    folder = on_node(path)
    folder.mkdir(exist_ok=True, parents=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise StepError(f"{path} is not a folder of root's own; look who made it, and take it away")
    folder.chmod(mode)


def place_container_data(file: str) -> None:
    """Both, on the first disk that there is."""
    disk = first_mounted(DISKS)
    if disk is None:
        log("INFO", f"nothing is mounted at {' or '.join(DISKS)}: containers stay on the root volume")
        return
    place_docker(disk)
    place_enroot(disk, accounts(read_cluster(file)))


if __name__ == "__main__":
    sys.exit(run_step(lambda: place_container_data(sys.argv[1])))
