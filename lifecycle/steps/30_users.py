#!/usr/bin/env python3
"""Make the users and groups of the cluster file. Usage: 30_users.py CLUSTER_FILE.

Every node has the same names and numbers. Homes are on shared storage, with each user's key for logins from node to node, which
is made only there. A user who is removed from the file is locked, and the home stays.

All work inside a home runs as its owner, in a process that gave up root's rights: root must not follow a link that a user made there.
"""

from __future__ import annotations

import base64
import binascii
import collections
import contextlib
import json
import os
import re
import select
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lib import (
    OWN_MARK,
    StepError,
    begin_process,
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
AT_ONCE = 8
"""Homes that are worked on at the same time. Making a key takes most of the time."""
HOME_S = 120
"""Seconds for one home. A user may have put something into it that never answers."""
KEY = ".ssh/id_ed25519"
"""In a home."""
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


@dataclass(frozen=True)
class Child:
    """A process that works in a home with its owner's rights."""

    user: User
    pid: int
    pipe: int
    """Where it writes why it failed. It closes when the process ends."""
    ends: float
    """When it is killed, by time.monotonic()."""


def with_rights_of(user: User, gid: int, work: Callable[[], None]) -> Child:
    """Begin to do `work` as the user, in a process of its own."""
    pid, reading = begin_process(partial(_work_as, user, gid, work))
    return Child(user, pid, reading, time.monotonic() + HOME_S)


def _work_as(user: User, gid: int, work: Callable[[], None]) -> None:
    if os.geteuid() != user.uid:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(user.uid, user.uid, user.uid)
    work()


def _work_here_as(user: User, gid: int, work: Callable[[], None]) -> None:
    """Do `work` as the user in this process. Raises HomeError if it fails.

    A process for each of hundreds of users takes most of the time, and only making a key needs one.
    """
    groups, switches = os.getgroups(), os.geteuid() != user.uid
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, HOME_S)
    try:
        if switches:
            os.setgroups([])
            os.setegid(gid)
            os.seteuid(user.uid)
        work()
    except (StepError, OSError) as error:
        raise HomeError(f"the home {user.home} of {user.name}: {last_line(str(error))}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if switches:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)


def _too_long(*_: object) -> None:
    raise StepError(f"it did not end within {HOME_S} s")


def finish(child: Child) -> None:
    """Wait for it. Raises HomeError if it failed."""
    try:
        left = max(0.0, child.ends - time.monotonic())
        if not select.select([child.pipe], [], [], left)[0]:
            os.kill(child.pid, signal.SIGKILL)
        reason = os.read(child.pipe, 2000).decode("utf-8", "replace")
        _, status = os.waitpid(child.pid, 0)
    finally:
        os.close(child.pipe)
    if status:
        why = last_line(reason) if reason else f"it did not end within {HOME_S} s, or was killed"
        raise HomeError(f"the home {child.user.home} of {child.user.name}: {why}")


def furnish(name: str, home: Path, public_keys: Sequence[str]) -> None:
    """As its owner, put into a home what a login needs. Existing files stay."""
    skeleton = on_node(SKELETON)
    for source in sorted(skeleton.iterdir()) if skeleton.is_dir() else []:
        if source.is_file() and not os.path.lexists(home / source.name):
            shutil.copyfile(source, home / source.name)
    folder = home / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    key = home / KEY
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
    beside = key.with_name(f"{key.name}.pub")
    known = beside.read_text("utf-8", "replace").strip().splitlines() if beside.is_file() else []
    found = ""
    with contextlib.suppress(PermissionError):
        found = public_part(key.read_text("utf-8", "replace")) if key.is_file() else ""
    if found:
        return known[0] if known and known[0].split()[:2] == found.split() else found
    # Of another form. Without -P it would prompt for the passphrase.
    done = run("ssh-keygen", "-y", "-P", "", "-f", str(key), timeout_s=30)
    if done.returncode == 0:
        return done.stdout.strip()
    if not known:
        log("WARNING", f"{key} cannot be read without its passphrase ({last_line(done.stdout)}), and has no .pub")
    return known[0] if known else ""


def public_part(private_key: str) -> str:
    """The public part of a key of OpenSSH's own form, which has it in clear. Empty: the text has another form.

    `ssh-keygen -y` would take as long as all the rest of a home.
    """
    found = re.fullmatch(
        r"\s*-----BEGIN OPENSSH PRIVATE KEY-----\s(.*)-----END OPENSSH PRIVATE KEY-----\s*", private_key, re.DOTALL
    )
    try:
        content = base64.b64decode(found[1]) if found else b""
        # PROTOCOL.key: a mark, three texts of how it is encrypted, the number of keys, and the public key.
        if not content.startswith(KEY_MARK):
            return ""
        place = len(KEY_MARK)
        for _ in range(3):
            _, place = _text_at(content, place)
        blob, _ = _text_at(content, place + 4)
        kind = _text_at(blob, 0)[0].decode("ascii")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
    return f"{kind} {base64.b64encode(blob).decode()}" if KEY_KIND.fullmatch(kind) else ""


KEY_MARK = b"openssh-key-v1\0"
KEY_KIND = re.compile(r"[a-z0-9@.-]{1,64}")


def _text_at(content: bytes, place: int) -> tuple[bytes, int]:
    """A text with its length before it, and the place behind it."""
    end = place + 4 + int.from_bytes(content[place : place + 4], "big")
    if end > len(content):
        raise ValueError("cut off")
    return content[place + 4 : end], end


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
    node = read_accounts()
    commands = list(commands_for(users, gids, node, ours, our_groups))
    # Before the first user is made: after a kill, the next run must know which users are ours.
    write_file(MADE, json.dumps(ours) + "\n")
    write_file(MADE_GROUPS, json.dumps(our_groups) + "\n")
    write_file("/etc/ssh/ssh_config.d/50-cdk-hyperpod.conf", SSH_CONFIG)
    ready = _brought_up(users, commands)
    try:
        make_homes(ready, {**node.gids, **gids})
    finally:
        # A home that cannot be made leaves nobody else without an account.
        collections.deque(ready, maxlen=0)
    locked = len(set(ours) - {user.name for user in users})
    log("INFO", f"{len(users)} users are as the cluster file says" + (f", {locked} locked" if locked else ""))


def _brought_up(users: Iterable[User], commands: Iterable[Sequence[str]]) -> Iterator[User]:
    """Run the commands. Each user comes as soon as the account is right: keys are made while other accounts are."""
    known = {user.name for user in users}
    by_user: dict[str, list[Sequence[str]]] = {}
    for command in commands:
        is_first = command[0] == "groupadd" or command[-1] not in known
        by_user.setdefault("" if is_first else command[-1], []).append(command)
    _run_all(by_user.get("", ()))
    for user in users:
        _run_all(by_user.get(user.name, ()))
        yield user


def _run_all(commands: Iterable[Sequence[str]]) -> None:
    for command in commands:
        log("INFO", " ".join(command))
        must_run(*command)


def make_homes(users: Iterable[User], gids: Mapping[str, int]) -> None:
    """Make the users' homes, several at once."""
    running: list[Child] = []
    for user in users:
        gid = gids[user.group]
        make_home(user, gid)
        home = on_node(user.home)
        work = partial(furnish, user.name, home, user.ssh_public_keys)
        if (home / KEY).exists():
            _warn_of(user, partial(_work_here_as, user, gid, work))
            continue
        if len(running) >= AT_ONCE:
            first = running.pop(0)
            _warn_of(first.user, partial(finish, first))
        running.append(with_rights_of(user, gid, work))
    for child in running:
        _warn_of(child.user, partial(finish, child))


def _warn_of(user: User, work: Callable[[], None]) -> None:
    try:
        work()
    except HomeError as error:
        log("WARNING", f"{error}; {user.name} may be unable to log in by key; other users are not affected")


if __name__ == "__main__":
    sys.exit(run_step(lambda: make_users(sys.argv[1])))
