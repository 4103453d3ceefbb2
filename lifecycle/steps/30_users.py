#!/usr/bin/env python3
"""Make the users and groups of the cluster file. Usage: 30_users.py CLUSTER_FILE.

Every node has the same names and numbers. Homes are on shared storage, with each user's key for logins from node to node, which
is made only there. A user who is removed from the file is locked, and the home stays.

All work inside a home runs as its owner: root must not follow a link that a user made there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import (
    OWN_MARK,
    PROGRAMS,
    StepError,
    install_program,
    last_line,
    log,
    mounted_type,
    must_run,
    on_node,
    read_cluster,
    run,
    run_step,
    write_file,
)

MADE = "/var/lib/cdk-hyperpod/users.json"
"""The names of all users that were ever made here. A name that is not in the cluster file any more is locked."""
MADE_GROUPS = "/var/lib/cdk-hyperpod/groups.json"
"""The names of all groups that were ever in the file. Our users leave a group that is removed from the file. The group stays."""
LOCKED_DAY = 1
"""The expiry date of users that we lock: 2 January 1970. With the password locked alone, a login by key would still work."""
PROGRAM = "users.py"
"""This file, in a folder that every user may read."""
NODE_CODES = (2, 126, 127)
"""Exit codes of a program that did not start: Python does not find it, or setpriv or Python is missing."""
SKELETON = "/etc/skel"
BEGIN, END = "# BEGIN cdk-hyperpod: written again by the lifecycle scripts", "# END cdk-hyperpod"
SSH_CONFIG = f"""\
# {OWN_MARK}
# A node that is replaced keeps its name and has a new host key; all of them are in the cluster's own network.
Host ip-*
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
"""


class HomeError(StepError):
    """A problem in a user's home. Users can cause it and homes are shared, so it must not keep nodes from starting."""


@dataclass(frozen=True)
class User:
    """A user, as the cluster file has it or as the node does."""

    name: str
    uid: int
    group: str
    groups: frozenset[str]
    """The supplementary groups."""
    home: str
    ssh_public_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Accounts:
    """The users and groups of the node."""

    users: Mapping[str, User]
    gids: Mapping[str, int]
    expired: frozenset[str] = frozenset()
    """Users whose expiry date has passed, whoever set it."""
    locked: frozenset[str] = frozenset()
    """Users whom our own expiry date locks."""


def commands_for(
    users: Sequence[User],
    gids: Mapping[str, int],
    node: Accounts,
    made: Iterable[str],
    made_groups: Iterable[str] = (),
) -> Iterator[tuple[str, ...]]:
    """The commands that bring the node's accounts to the cluster file. None: nothing differs.

    `made` and `made_groups`: all users and groups that were ever in the file. A removed user is locked, and a removed group loses
    our users. Raises StepError for a name or number that the node has for something else: the files would have the wrong owner.
    """
    yield from _commands_for_groups(gids, node)
    owners = {user.uid: name for name, user in node.users.items()}
    ours = {*gids, *made_groups}
    for user in users:
        if owners.get(user.uid, user.name) != user.name:
            raise StepError(f"the uid {user.uid} of {user.name} is {owners[user.uid]}'s here; {_OTHER}")
        yield from _commands_for_user(user, node, ours)
    left = set(made) - {user.name for user in users}
    for name in sorted(left):
        if name in node.users and name not in node.expired:
            yield ("usermod", "--lock", "--expiredate", str(LOCKED_DAY), name)


def _commands_for_groups(gids: Mapping[str, int], node: Accounts) -> Iterator[tuple[str, ...]]:
    names = {gid: name for name, gid in node.gids.items()}
    for name, gid in gids.items():
        if node.gids.get(name, gid) != gid:
            raise StepError(f"the group {name} has gid {node.gids[name]} here, the cluster file says {gid}; {_OTHER}")
        if names.get(gid, name) != name:
            raise StepError(f"the gid {gid} of the group {name} is {names[gid]}'s here; {_OTHER}")
        if name not in node.gids:
            yield ("groupadd", "--gid", str(gid), name)


_OTHER = "give it another name or number in the file"


def _commands_for_user(user: User, node: Accounts, ours: Container[str]) -> Iterator[tuple[str, ...]]:
    groups = ",".join(sorted(user.groups))
    old = node.users.get(user.name)
    if old is None:
        more = ("--groups", groups) if groups else ()
        yield (
            *("useradd", "--uid", str(user.uid), "--gid", user.group, *more),
            *("--home-dir", user.home, "--no-create-home", "--shell", "/bin/bash", user.name),
        )
        return
    if old.uid != user.uid:
        raise StepError(f"the user {user.name} has uid {old.uid} here, the cluster file says {user.uid}; {_OTHER}")
    if old.group != user.group:
        yield ("usermod", "--gid", user.group, user.name)
    if old.home != user.home:
        yield ("usermod", "--home", user.home, user.name)
    # Groups of the image, such as docker, are not ours to change.
    wanted = user.groups | {group for group in old.groups if group not in ours}
    if old.groups != wanted:
        yield ("usermod", "--groups", ",".join(sorted(wanted)), user.name)
    # An expiry date that is not ours stays: it may lock a person who has left.
    if user.name in node.locked:
        yield ("usermod", "--expiredate", "", user.name)


def read_accounts() -> Accounts:
    """The node's users and groups."""
    groups = _rows("group")
    days = expiry_days(must_run("getent", "shadow"))
    today = int(time.time() // 86_400)
    return Accounts(
        _parse_users(_rows("passwd"), groups),
        {fields[0]: int(fields[2]) for fields in groups},
        expired=frozenset(name for name, day in days.items() if day < today),
        locked=frozenset(name for name, day in days.items() if day == LOCKED_DAY),
    )


def _rows(database: str) -> list[list[str]]:
    return [line.split(":") for line in must_run("getent", database).splitlines()]


def _parse_users(passwd: Iterable[Sequence[str]], groups: Iterable[Sequence[str]]) -> dict[str, User]:
    """The rows of passwd(5) with those of group(5), which has the supplementary groups."""
    names: dict[int, str] = {}
    memberships: dict[str, set[str]] = {}
    for fields in groups:
        names[int(fields[2])] = fields[0]
        for member in filter(None, fields[3].split(",")):
            memberships.setdefault(member, set()).add(fields[0])
    users = {}
    for fields in passwd:
        users[fields[0]] = User(
            name=fields[0],
            uid=int(fields[2]),
            group=names.get(int(fields[3]), fields[3]),
            groups=frozenset(memberships.get(fields[0], ())),
            home=fields[5],
        )
    return users


def expiry_days(shadow: str) -> dict[str, int]:
    """Account -> its expiry date, in days since 1970 (shadow(5)).

    Without 0, which some programs take for the past, and others for no date.
    """
    rows = [line.split(":") for line in shadow.splitlines()]
    days = {fields[0]: int(fields[7]) for fields in rows if len(fields) > 7 and re.fullmatch("[0-9]+", fields[7])}
    return {name: day for name, day in days.items() if day > 0}


def parse(content: Mapping[str, object]) -> tuple[tuple[User, ...], dict[str, int]]:
    """The users, and the groups' numbers, of cluster.json."""
    users: list[User] = []
    try:
        for item in content.get("users") or ():  # type: ignore[attr-defined]
            more = frozenset(item.get("groups") or ())
            keys = tuple(item.get("ssh_public_keys") or ())
            users.append(User(item["name"], int(item["uid"]), item["group"], more, item["home"], keys))
        gids = {item["name"]: int(item["gid"]) for item in content.get("groups") or ()}  # type: ignore[attr-defined]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StepError(f"cluster.json: users or groups are not as the library writes them: {error!r}") from error
    return tuple(users), gids


def make_home(user: User, gid: int) -> None:
    """Make the user's home. Other nodes may make it at the same time.

    Raises StepError if it cannot be made, or if another user owns it.
    """
    try:
        _make_home(user, gid)
    except PermissionError as error:
        # Root may do everything on the node, so the file system's server refused.
        raise StepError(
            f"root may not make {user.home} for {user.name} ({error.strerror}); {_squash(user.home)}"
        ) from error


SQUASHES = {
    "nfs": "the export squashes root, as NFS does unless told otherwise; put no_root_squash into the options of the "
    "volume's NFS export (NfsExports of `aws fsx update-volume`)",
    "lustre": "the file system squashes root; remove RootSquash, or put the nodes' network into NoSquashNids "
    "(`aws fsx update-file-system`)",
}
"""What to do if a file system squashes root, by the kernel's name for its type."""


def _squash(path: str) -> str:
    kind = mounted_type(path)
    # NFS is nfs4 to the kernel where it is version 4.
    return SQUASHES.get(
        "nfs" if kind == "nfs4" else kind,
        f"check who may write on the {kind or 'unknown'} file system that it is on (findmnt)",
    )


def _make_home(user: User, gid: int) -> None:
    home = on_node(user.home)
    if not os.path.lexists(home):
        home.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        mine = home.with_name(f".{user.name}.{os.uname().nodename}.{os.getpid()}")
        mine.mkdir(mode=0o700)
        try:
            os.chown(mine, user.uid, gid)
            # A rename onto an empty folder replaces it, which does no harm. Onto a folder with content it fails.
            mine.rename(home)
            log("INFO", f"made {user.home} for {user.name}")
        except OSError:
            mine.rmdir()
            if not home.is_dir():
                raise
    found = os.lstat(home)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user.uid:
        raise StepError(
            f"{user.home} is not the home of {user.name}: it belongs to uid {found.st_uid}; chown it to {user.uid}, or "
            "choose another home in the file"
        )


def with_rights_of(user: User, gid: int, work: str) -> None:
    """Run this program as the user, to do `work` in the home.

    Raises HomeError with its message if it fails, and StepError if it does not start.
    """
    install_program(PROGRAM, Path(__file__).read_text("utf-8"))
    # -E: PYTHONPATH names the folder that the scripts were downloaded to. -s: what the user has installed may be broken.
    # Not -I, with which a program does not find lib.py beside it.
    command = (sys.executable, "-EsB", str(on_node(f"{PROGRAMS}/{PROGRAM}")), work, user.name, str(on_node(user.home)))
    switch = ("setpriv", f"--reuid={user.uid}", f"--regid={gid}", "--clear-groups")
    as_user = () if os.geteuid() == user.uid else switch
    done = run(*as_user, *command, stdin=json.dumps(user.ssh_public_keys))
    for line in done.stdout.splitlines():
        if " ERROR " not in line:  # which is raised below
            print(line, file=sys.stderr)
    if done.returncode in NODE_CODES:
        raise StepError(f"nothing runs as {user.name} here: {last_line(done.stdout)}; look at setpriv and {PROGRAMS}")
    if done.returncode != 0:
        reason = last_line(done.stdout).split(": ", 1)[-1]
        raise HomeError(f"the home {user.home} of {user.name}: {reason}")


def furnish(name: str, home: Path, public_keys: Sequence[str]) -> None:
    """As its owner, put into a home what a login needs. Existing files stay."""
    skeleton = on_node(SKELETON)
    for source in sorted(skeleton.iterdir()) if skeleton.is_dir() else []:
        if source.is_file() and not os.path.lexists(home / source.name):
            shutil.copyfile(source, home / source.name)
    folder = home / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    key = folder / "id_ed25519"
    if not key.exists():
        mine = folder / f".id.{os.uname().nodename}.{os.getpid()}"
        try:
            must_run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(mine))
            # Every node tries, and the link of one node succeeds.
            os.link(mine, key)
            log("INFO", f"made {key}")
        except FileExistsError:
            pass
        finally:
            for rest in (mine, mine.with_name(f"{mine.name}.pub")):
                if rest.exists():
                    rest.unlink()
    warn_of_modes(home, key)
    public = public_key(key)
    if public:
        _replace(key.with_name(f"{key.name}.pub"), public + "\n", 0o644)
    authorized = folder / "authorized_keys"
    old = authorized.read_text("utf-8", "replace") if authorized.is_file() else ""
    _replace(authorized, with_keys(old, [*filter(None, [public]), *public_keys]), 0o600)


def warn_of_modes(home: Path, key: Path) -> None:
    """Warn of modes that ssh and sshd refuse. Only the owner should change them."""
    if home.stat().st_mode & 0o022:
        mode = stat.S_IMODE(home.stat().st_mode)
        log("WARNING", f"{home} has mode {mode:o}: others may write there, and sshd takes no key; `chmod go-w {home}`")
    if key.exists() and key.stat().st_mode & 0o077:
        mode = stat.S_IMODE(key.stat().st_mode)
        log("WARNING", f"{key} has mode {mode:o}: others may read it, and ssh does not use it; `chmod 600 {key}`")


def public_key(key: Path) -> str:
    """The public part of a key. Empty: neither the key nor its .pub file has it.

    The owner may have added a passphrase, or broken the key. That is not an error of the node.
    """
    # Without -P it would prompt for the passphrase.
    done = run("ssh-keygen", "-y", "-P", "", "-f", str(key), timeout_s=30)
    if done.returncode == 0:
        return done.stdout.strip()
    beside = key.with_name(f"{key.name}.pub")
    known = beside.read_text("utf-8", "replace").strip().splitlines() if beside.is_file() else []
    if not known:
        log("WARNING", f"{key} cannot be read without its passphrase ({last_line(done.stdout)}), and has no .pub")
    return known[0] if known else ""


def with_keys(text: str, keys: Sequence[str]) -> str:
    """authorized_keys with our block renewed; the user's own lines stay."""
    lines = text.splitlines()
    if BEGIN in lines and END in lines[lines.index(BEGIN) :]:
        first = lines.index(BEGIN)
        del lines[first : lines.index(END, first) + 1]
    return "\n".join([*lines, BEGIN, *keys, END]) + "\n"


def _replace(file: Path, content: str, mode: int) -> None:
    if file.is_file() and file.read_text("utf-8", "replace") == content:
        return
    mine = file.with_name(f".{file.name}.{os.uname().nodename}.{os.getpid()}")
    mine.write_text(content, "utf-8")
    mine.chmod(mode)
    mine.replace(file)


def _names_in(path: str) -> list[str]:
    file = on_node(path)
    return json.loads(file.read_text("utf-8")) if file.is_file() else []


def make_users(cluster_file: str) -> None:
    """Bring the node's users and groups, and their homes, to what the cluster file says."""
    users, gids = parse(read_cluster(cluster_file))
    made, made_groups = _names_in(MADE), _names_in(MADE_GROUPS)
    if not users and not made:
        log("INFO", "the cluster file names no users")
        return
    ours = sorted({*made, *(user.name for user in users)})
    our_groups = sorted({*made_groups, *gids})
    commands = list(commands_for(users, gids, read_accounts(), ours, our_groups))
    # Before the first user is made: after a kill, the next run must know which users are ours.
    write_file(MADE, json.dumps(ours) + "\n")
    write_file(MADE_GROUPS, json.dumps(our_groups) + "\n")
    for command in commands:
        log("INFO", " ".join(command))
        must_run(*command)
    write_file("/etc/ssh/ssh_config.d/50-cdk-hyperpod.conf", SSH_CONFIG)
    for user in users:
        gid = gids[user.group] if user.group in gids else read_accounts().gids[user.group]
        make_home(user, gid)
        try:
            with_rights_of(user, gid, "furnish")
        except HomeError as error:
            log("WARNING", f"{error}; {user.name} may be unable to log in by key; other users are not affected")
    locked = len(set(ours) - {user.name for user in users})
    log("INFO", f"{len(users)} users are as the cluster file says" + (f", {locked} locked" if locked else ""))


if __name__ == "__main__":
    if sys.argv[1] == "furnish":
        sys.exit(run_step(lambda: furnish(sys.argv[2], Path(sys.argv[3]), json.load(sys.stdin))))
    sys.exit(run_step(lambda: make_users(sys.argv[1])))
