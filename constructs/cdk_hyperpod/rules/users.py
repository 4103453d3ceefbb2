"""Rules of the users, groups and accounts that the nodes have: what Linux or Slurm would refuse on a node, at synth.

Sources: useradd(8), login.defs(5) and groupadd(8) of Debian and Ubuntu; sacctmgr(1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from ..config.cluster import ClusterConfig
from ..config.slurm import Group, SlurmAccount, SlurmConfig, User
from ..errors import Finding
from ..typed.judge import check_repeated
from ..typed.known import is_known
from ..typed.words import item_paths, show
from .storage import is_the_nodes_own, mount_paths

SYSTEM_NAMES = frozenset(
    [
        "root",
        "daemon",
        "bin",
        "sys",
        "sync",
        "games",
        "man",
        "lp",
        "mail",
        "news",
        "uucp",
        "proxy",
        "www-data",
        "backup",
        "list",
        "irc",
        "gnats",
        "nobody",
        "nogroup",
        "_apt",
        "adm",
        "cdrom",
        "dip",
        "fax",
        "floppy",
        "kmem",
        "operator",
        "tape",
        "voice",
        "disk",
        "tty",
        "dialout",
        "sudo",
        "audio",
        "video",
        "staff",
        "users",
        "wheel",
        "docker",
        "ubuntu",
        "ec2-user",
        "admin",
        "messagebus",
        "sshd",
        "syslog",
        "systemd-network",
        "systemd-resolve",
        "systemd-timesync",
        "polkitd",
        "uuidd",
        "tcpdump",
        "landscape",
        "pollinate",
        "tss",
        "lxd",
        "slurm",
        "munge",
        "mysql",
        "mariadb",
        "chrony",
        "_chrony",
        "ssm-user",
        "dcgm",
        "nvidia-persistenced",
        "render",
        "kvm",
        "input",
        "sgx",
        "crontab",
        "plugdev",
        "netdev",
        "shadow",
        "utmp",
        "sasl",
        "src",
    ]
)
"""Names of the image's own users and groups, as far as AWS's and Ubuntu's images have them: no list is complete."""


def check_users(config: ClusterConfig) -> Iterator[Finding]:
    """Everything that is wrong with `users`, `groups` and `slurm`."""
    if config.orchestrator == "eks":
        for field in ("groups", "users", "slurm"):
            if getattr(config, field):
                yield Finding(path=field, problem="applies only under Slurm", remedy="remove it")
        if config.storage is not None and is_known(config.storage) and config.storage.openzfs is not None:
            problem = "nodes mount it, and under EKS pods mount file systems"
            yield Finding(path="storage.openzfs", problem=problem, remedy="remove it")
        return
    groups = _known(config.groups, "groups")
    users = _known(config.users, "users")
    yield from _check_names(groups, "group")
    yield from _check_names(users, "user")
    yield from _check_numbers([(path, "gid", group.gid) for path, group in groups])
    yield from _check_numbers([(path, "uid", user.uid) for path, user in users])
    yield from _check_memberships(config.groups, users)
    yield from _check_homes(config, users)
    if config.lifecycle is not None and is_known(config.lifecycle) and config.lifecycle.mode == "bootstrap":
        accounts = config.slurm.accounts if isinstance(config.slurm, SlurmConfig) else ()
        for field, value in (("groups", config.groups), ("users", config.users), ("slurm.accounts", accounts)):
            if value:
                yield Finding(
                    path=field,
                    problem="no script runs in the mode bootstrap, so nobody makes them",
                    remedy="set lifecycle.mode to extended, or remove them",
                )
    if isinstance(config.slurm, SlurmConfig):
        yield from _check_slurm(config, config.slurm)


def _known(values: Any, path: str) -> list[tuple[str, Any]]:
    items = values if isinstance(values, tuple) else ()
    return [(item_path, item) for item_path, item in zip(item_paths(path, items), items, strict=True) if is_known(item)]


def _check_names(items: Sequence[tuple[str, Group | User | SlurmAccount]], noun: str) -> Iterator[Finding]:
    seen: set[str] = set()
    for path, item in items:
        if not is_known(item.name):
            continue
        if item.name in SYSTEM_NAMES:
            yield Finding(path=f"{path}.name", problem=f"{item.name} is the system's own", remedy="use another name")
        if item.name in seen:
            yield Finding(
                path=f"{path}.name",
                problem=f"an earlier {noun} has the name {show(item.name)} too",
                remedy=f"name each {noun} once",
            )
        seen.add(item.name)


def _check_numbers(items: Iterable[tuple[str, str, int]]) -> Iterator[Finding]:
    owners: dict[int, str] = {}
    for path, field, number in items:
        if not is_known(number):
            continue
        if number in owners:
            yield Finding(
                path=f"{path}.{field}",
                problem=f"{number} is the {field} of {owners[number]} too",
                remedy="give each a number of its own",
            )
        owners.setdefault(number, path)


def _check_memberships(groups: Any, users: Sequence[tuple[str, User]]) -> Iterator[Finding]:
    if not isinstance(groups, tuple) or not is_known(groups):
        return
    names = list(dict.fromkeys(group.name for group in groups))
    if not is_known(tuple(names)):
        return
    remedy = "add it to groups" + (f", or use one of {', '.join(names[:10])}" if names else "")
    for path, user in users:
        more = user.groups if isinstance(user.groups, tuple) else ()
        yield from check_repeated(user.groups, f"{path}.groups")
        for field, name in [("group", user.group), *(("groups", name) for name in more)]:
            if is_known(name) and name not in names:
                yield Finding(path=f"{path}.{field}", problem=f"there is no group {show(name)}", remedy=remedy)


def _check_homes(config: ClusterConfig, users: Sequence[tuple[str, User]]) -> Iterator[Finding]:
    storage = config.storage
    judged = storage is None or (is_known(storage) and is_known(storage.openzfs) and is_known(storage.mount_path))
    default = config.home_path if judged else None
    mounts = mount_paths(config)
    owners: dict[str, str] = {}
    for path, user in users:
        home = user.home
        if home is None:
            home = None if default is None or not is_known(user.name) else f"{default}/{user.name}"
        if home is None or not is_known(home):
            continue
        if user.home is not None and (home in mounts or is_the_nodes_own(home)):
            yield Finding(
                path=f"{path}.home",
                problem=f"{home} is not a folder that one user can own",
                remedy=f"name a folder of the user's own, such as {default or '/fsx/home'}/{user.name if is_known(user.name) else 'NAME'}",
            )
        above = [str(parent) for parent in PurePosixPath(home).parents]
        around = next((place for place in (home, *above) if place in owners), None)
        inside = next((place for place in owners if PurePosixPath(home) in PurePosixPath(place).parents), None)
        if around == home:
            yield Finding(
                path=f"{path}.home" if user.home else path,
                problem=f"{home} is the home of {owners[home]} too",
                remedy="give each user a home of their own",
            )
        elif other := around or inside:
            yield Finding(
                path=f"{path}.home" if user.home else path,
                problem=f"{home} and {other}, the home of {owners[other]}, lie one in the other, and a home is its owner's alone",
                remedy="put them beside each other",
            )
        owners.setdefault(home, path)
        if user.home is not None and mounts and not mounts.intersection(above):
            yield Finding(
                path=f"{path}.home",
                problem=f"{home} is on no storage of the file, so each node has one of its own, which is lost with the node",
                remedy=f"put it below {' or '.join(sorted(mounts))}, or see that your own scripts mount something there",
                level="warning",
                code="homes-on-each-node",
            )
    if users and config.storage is None and any(user.home is None for _, user in users):
        yield Finding(
            path="users",
            problem="there is no shared storage, so each node has homes of its own, and no login from node to node",
            remedy="add storage, or give each user a home on storage that your own scripts mount",
            level="warning",
            code="homes-without-storage",
        )


def _check_members(config: ClusterConfig, accounts: Sequence[tuple[str, SlurmAccount]]) -> Iterator[Finding]:
    """Users of accounts whom the file does not have, and users of the file who are in no account."""
    if not accounts or not is_known(config.users) or not is_known(tuple(account.users for _, account in accounts)):
        return
    names = [user.name for user in config.users]
    if not is_known(names):
        return
    some_names = ", ".join(names[:10])
    members = {name for _, account in accounts for name in account.users}
    for path, account in accounts:
        for name in dict.fromkeys(account.users):
            if names and name not in names:
                yield Finding(
                    path=f"{path}.users",
                    problem=f"the file has no user {show(name)}",
                    remedy=f"use one of {some_names}, or see that somebody else makes the user on the nodes",
                    level="warning",
                    code="account-of-unknown-user",
                )
    for path, user in zip(item_paths("users", config.users), config.users, strict=True):
        if user.name not in members:
            yield Finding(
                path=path,
                problem="is in no account, and as soon as there are accounts Slurm refuses jobs of users without one",
                remedy="add the user to an account of slurm.accounts",
                level="warning",
                code="user-without-account",
            )


def _check_slurm(config: ClusterConfig, slurm: SlurmConfig) -> Iterator[Finding]:
    path = "slurm.accounts"
    accounts = _known(slurm.accounts, path)
    seen: set[str] = set()
    for account_path, account in accounts:
        if is_known(account.name) and account.name in (*seen, "root"):
            owner = "Slurm's own" if account.name == "root" else "an earlier account's too"
            yield Finding(path=f"{account_path}.name", problem=f"{account.name} is {owner}", remedy="use another name")
        seen.add(account.name)
        yield from check_repeated(account.users, f"{account_path}.users")
    judged = config.lifecycle is None or is_known(config.lifecycle)
    mode = config.lifecycle_mode if judged else None
    if accounts and slurm.accounting_database is None and mode == "customer_managed":
        yield Finding(
            path=path,
            problem="under customer_managed the controller may have no accounting database, and the step then fails",
            remedy="name slurm.accounting_database, or set one up in your own scripts",
            level="warning",
            code="accounts-without-database",
        )
    yield from _check_members(config, accounts)
    yield from _check_metadata_users(config, slurm.metadata_users)
    steps = config.lifecycle_steps if judged else None
    if accounts and steps is not None and is_known(steps) and steps.slurm_conf is False:
        yield Finding(
            path="lifecycle.steps.slurm_conf",
            problem="is false, so slurm.conf does not enforce the accounts and their limits, unless it does so by itself",
            remedy="remove it, or look for AccountingStorageEnforce in slurm.conf",
            level="warning",
            code="accounts-without-limits",
        )
    database = slurm.accounting_database
    if database is None or not is_known(database):
        return
    if config.node_provisioning_mode == "standard":
        yield Finding(
            path="slurm.accounting_database",
            problem="needs continuous provisioning",
            remedy="set node_provisioning_mode to continuous, or remove it",
        )
    if is_known(database.secret_arn) and is_known(config.region):
        region = database.secret_arn.split(":")[3]
        if region != config.region:
            yield Finding(
                path="slurm.accounting_database.secret_arn",
                problem=f"is in {show(region)}, the cluster in {config.region}",
                remedy="use one of the cluster's region",
            )


def _check_metadata_users(config: ClusterConfig, users: object) -> Iterator[Finding]:
    path = "slurm.metadata_users"
    if not isinstance(users, tuple):
        return
    yield from check_repeated(tuple(user for user in users if is_known(user)), path)
    if config.lifecycle is not None and not is_known(config.lifecycle):
        return
    if config.lifecycle_mode == "bootstrap" or config.scripts_folder is not None:
        yield Finding(
            path=path,
            problem="the library's own scripts refuse the metadata to the other users, and they do not run",
            remedy="remove it, or let them run (docs/lifecycle.md)",
        )
        return
    if config.lifecycle_steps.metadata is False:
        yield Finding(
            path="lifecycle.steps.metadata",
            problem="is false, so nothing refuses the metadata to the other users",
            remedy="remove one of the two",
        )
        return
    yield Finding(
        path=path,
        problem="jobs of other users no longer get what is granted to the nodes' roles, such as access to a bucket",
        remedy="add the users whose jobs need it, or give those jobs credentials of their own",
        level="warning",
        code="metadata-users",
    )
