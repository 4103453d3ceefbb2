"""Rules of users, groups and Slurm accounts: refuses at synthesis what Linux or Slurm would refuse on a node.

Sources: useradd(8), login.defs(5) and groupadd(8) of Debian and Ubuntu; sacctmgr(1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ..config.cluster import ClusterConfig
from ..config.slurm import AccountingDatabase, Group, SlurmAccount, SlurmConfig, SlurmPartition, User
from ..errors import Finding
from ..typed.known import is_known
from ..typed.validation import check_repeated
from ..typed.words import item_paths, show
from .storage import is_the_nodes_own, mount_paths
from .wording import SLURM_ONLY

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
"""Names of users and groups in AWS's and Ubuntu's images. The list is not complete."""


def check_users(config: ClusterConfig) -> Iterator[Finding]:
    """Everything that is wrong with `users`, `groups` and `slurm`."""
    if config.orchestrator == "eks":
        yield from _check_slurm_only(config)
        return
    groups = _known(config.groups, "groups")
    users = _known(config.users, "users")
    yield from _check_names(groups, "group")
    yield from _check_names(users, "user")
    yield from _check_numbers([(path, "gid", group.gid) for path, group in groups])
    yield from _check_numbers([(path, "uid", user.uid) for path, user in users])
    yield from _check_memberships(config.groups, users)
    yield from _check_homes(config, users)
    yield from _check_bootstrap(config)
    if isinstance(config.slurm, SlurmConfig):
        yield from _check_slurm(config, config.slurm)


def _check_slurm_only(config: ClusterConfig) -> Iterator[Finding]:
    for field in ("groups", "users", "slurm"):
        if getattr(config, field):
            yield Finding(code="setting-for-slurm-only", path=field, problem=SLURM_ONLY, remedy="remove it")
    if config.storage is not None and is_known(config.storage) and config.storage.openzfs is not None:
        yield Finding(
            code="openzfs-under-eks",
            path="storage.openzfs",
            problem="is mounted on nodes, but under EKS pods mount file systems",
            remedy="remove it",
        )


def _check_bootstrap(config: ClusterConfig) -> Iterator[Finding]:
    if config.lifecycle is None or not is_known(config.lifecycle) or config.lifecycle.mode != "bootstrap":
        return
    accounts = config.slurm.accounts if isinstance(config.slurm, SlurmConfig) else ()
    for field, value in (("groups", config.groups), ("users", config.users), ("slurm.accounts", accounts)):
        if value:
            yield Finding(
                code="users-without-scripts",
                path=field,
                problem="cannot be created, since no script runs in the lifecycle mode bootstrap",
                remedy="set lifecycle.mode to extended, or remove them",
            )


def _known(values: Any, path: str) -> list[tuple[str, Any]]:
    items = values if isinstance(values, tuple) else ()
    return [(item_path, item) for item_path, item in zip(item_paths(path, items), items, strict=True) if is_known(item)]


def _check_names(items: Sequence[tuple[str, Group | User | SlurmAccount]], noun: str) -> Iterator[Finding]:
    seen: set[str] = set()
    for path, item in items:
        if not is_known(item.name):
            continue
        if item.name in SYSTEM_NAMES:
            yield Finding(
                code="name-of-the-system",
                path=f"{path}.name",
                problem=f"{item.name} is a {noun} of the operating system",
                remedy="use another name",
            )
        if item.name in seen:
            yield Finding(
                code="user-or-group-name-duplicated",
                path=f"{path}.name",
                problem=f"the {noun} name {show(item.name)} is duplicated",
                remedy="use another name",
            )
        seen.add(item.name)


def _check_numbers(items: Iterable[tuple[str, str, int]]) -> Iterator[Finding]:
    owners: dict[int, str] = {}
    for path, field, number in items:
        if not is_known(number):
            continue
        if number in owners:
            owner = owners[number]
            yield Finding(
                code="id-duplicated",
                path=f"{path}.{field}",
                problem=f"{number} is also the {field} of {owner}",
                remedy="use another number",
            )
        owners.setdefault(number, path)


def _check_memberships(groups: Any, users: Sequence[tuple[str, User]]) -> Iterator[Finding]:
    if not isinstance(groups, tuple) or not is_known(groups):
        return
    names = list(dict.fromkeys(group.name for group in groups))
    if not is_known(tuple(names)):
        return
    for path, user in users:
        more = user.groups if isinstance(user.groups, tuple) else ()
        yield from check_repeated(user.groups, f"{path}.groups")
        for field, name in [("group", user.group), *(("groups", name) for name in more)]:
            if is_known(name) and name not in names:
                yield _unknown_group(f"{path}.{field}", name, names)


def _unknown_group(path: str, name: str, names: Sequence[str]) -> Finding:
    if not names:
        return Finding(
            code="group-unknown", path=path, problem=f"the file has no group {show(name)}", remedy="add it to groups"
        )
    some_groups = ", ".join(names[:10])
    return Finding(
        code="group-unknown",
        path=path,
        problem=f"the file has no group {show(name)}",
        remedy=f"add it to groups, or use one of {some_groups}",
    )


@dataclass(frozen=True, slots=True)
class _Home:
    """The home of one user."""

    user_path: str
    folder: PurePosixPath
    is_set: bool
    """Whether the user has a `home` of their own. False: the cluster's default."""
    example: str
    """A folder that the user could have instead."""

    @property
    def path(self) -> str:
        return f"{self.user_path}.home" if self.is_set else self.user_path


def _check_homes(config: ClusterConfig, users: Sequence[tuple[str, User]]) -> Iterator[Finding]:
    mounts = mount_paths(config)
    homes = _known_homes(config, users)
    for number, home in enumerate(homes):
        yield from _check_home_is_a_folder_of_one_user(home, mounts)
        yield from _check_home_apart_from_others(home, homes[:number])
        yield from _check_home_on_storage(home, mounts)
    yield from _check_default_homes_on_storage(config, users)


def _known_homes(config: ClusterConfig, users: Sequence[tuple[str, User]]) -> list[_Home]:
    default = _default_home_folder(config)
    homes = []
    for path, user in users:
        name = user.name if is_known(user.name) else "NAME"
        example = f"{default or '/fsx/home'}/{name}"
        if user.home is not None and is_known(user.home):
            homes.append(_Home(path, PurePosixPath(user.home), True, example))
        if user.home is None and default is not None and is_known(user.name):
            homes.append(_Home(path, PurePosixPath(f"{default}/{user.name}"), False, example))
    return homes


def _default_home_folder(config: ClusterConfig) -> str | None:
    """The folder of the homes of users without a `home`. None: it is not known, since `storage` has a mistake."""
    storage = config.storage
    if storage is None:
        return config.home_path
    parts = (storage, storage.openzfs, storage.mount_path) if is_known(storage) else (storage,)
    return config.home_path if all(map(is_known, parts)) else None


def _check_home_is_a_folder_of_one_user(home: _Home, mounts: frozenset[str]) -> Iterator[Finding]:
    folder = str(home.folder)
    if home.is_set and (folder in mounts or is_the_nodes_own(folder)):
        yield Finding(
            code="home-not-of-one-user",
            path=home.path,
            problem=f"{folder} is not a folder that one user can own",
            remedy=f"name a folder for this user alone, such as {home.example}",
        )


def _check_home_apart_from_others(home: _Home, earlier: Sequence[_Home]) -> Iterator[Finding]:
    for other in earlier:
        if other.folder == home.folder:
            yield Finding(
                code="home-duplicated",
                path=home.path,
                problem=f"{home.folder} is also the home of {other.user_path}",
                remedy="give each user a home of their own",
            )
            return
    for other in earlier:
        if home.folder.is_relative_to(other.folder) or other.folder.is_relative_to(home.folder):
            other_home = other.folder
            yield Finding(
                code="home-in-another",
                path=home.path,
                problem=f"{home.folder} overlaps {other_home}, the home of {other.user_path}, "
                "but only its owner can enter a home",
                remedy="put them side by side",
            )
            return


def _check_home_on_storage(home: _Home, mounts: frozenset[str]) -> Iterator[Finding]:
    if not home.is_set or not mounts or any(home.folder.is_relative_to(mount) for mount in mounts - {str(home.folder)}):
        return
    some_mounts = " or ".join(sorted(mounts))
    yield Finding(
        code="home-on-each-node",
        path=home.path,
        problem=f"{home.folder} is not on the file's storage, so each node has its own copy, which is lost with the node",
        remedy=f"put it below {some_mounts}, or mount storage there in your own scripts",
        level="warning",
    )


def _check_default_homes_on_storage(config: ClusterConfig, users: Sequence[tuple[str, User]]) -> Iterator[Finding]:
    if config.storage is not None or all(user.home is not None for _, user in users):
        return
    yield Finding(
        code="home-without-storage",
        path="users",
        problem="have no shared storage, so each node has its own homes, and users cannot log in from node to node",
        remedy="add storage, or give each user a home on storage that your own scripts mount",
        level="warning",
    )


def _check_members(config: ClusterConfig, accounts: Sequence[tuple[str, SlurmAccount]]) -> Iterator[Finding]:
    """Users of accounts that are not in the file, and users of the file without an account."""
    if not accounts or not is_known(config.users) or not is_known(tuple(account.users for _, account in accounts)):
        return
    names = [user.name for user in config.users]
    if not is_known(names):
        return
    yield from _check_unknown_members(accounts, names)
    members = {name for _, account in accounts for name in account.users}
    for path, user in zip(item_paths("users", config.users), config.users, strict=True):
        if user.name not in members:
            yield Finding(
                code="user-without-account",
                path=path,
                problem="is not in an account: once there are accounts, Slurm refuses jobs of users without one",
                remedy="add the user to an account of slurm.accounts",
                level="warning",
            )


def _check_unknown_members(accounts: Sequence[tuple[str, SlurmAccount]], names: Sequence[str]) -> Iterator[Finding]:
    if not names:
        return
    some_users = ", ".join(names[:10])
    for path, account in accounts:
        for name in dict.fromkeys(account.users):
            if name not in names:
                yield Finding(
                    code="account-user-unknown",
                    path=f"{path}.users",
                    problem=f"the file has no user {show(name)}",
                    remedy=f"use one of {some_users}, or create the user on the nodes in your own scripts",
                    level="warning",
                )


def _check_slurm(config: ClusterConfig, slurm: SlurmConfig) -> Iterator[Finding]:
    accounts = _known(slurm.accounts, "slurm.accounts")
    lifecycle_known = config.lifecycle is None or is_known(config.lifecycle)
    yield from _check_account_names(accounts)
    stored = {"slurm.accounts": accounts, "slurm.qos": slurm.qos, "slurm.partitions": limits_accounts(slurm)}
    used = [path for path, value in stored.items() if value]
    if used and lifecycle_known:
        yield from _check_has_database(config, slurm, used[0])
    yield from _check_members(config, accounts)
    yield from _check_metadata_user_names(slurm.metadata_users)
    if lifecycle_known and isinstance(slurm.metadata_users, tuple):
        yield from _check_metadata_users(config)
    if accounts and lifecycle_known:
        yield from _check_limits_enforced(config)
    if slurm.accounting_database is not None and is_known(slurm.accounting_database):
        yield from _check_database(config, slurm.accounting_database)


def _check_account_names(accounts: Sequence[tuple[str, SlurmAccount]]) -> Iterator[Finding]:
    seen: set[str] = set()
    for path, account in accounts:
        if is_known(account.name) and account.name == "root":
            yield Finding(
                code="account-of-slurm",
                path=f"{path}.name",
                problem="root is Slurm's own account",
                remedy="use another name",
            )
        elif is_known(account.name) and account.name in seen:
            yield Finding(
                code="account-duplicated",
                path=f"{path}.name",
                problem=f"the account name {account.name} is duplicated",
                remedy="use another name",
            )
        seen.add(account.name)
        yield from check_repeated(account.users, f"{path}.users")


def limits_accounts(slurm: SlurmConfig) -> bool:
    """Whether a partition is for some accounts alone. root's jobs then need an account, which the step accounting creates."""
    partitions = slurm.partitions.values() if isinstance(slurm.partitions, Mapping) else ()
    return any(isinstance(each, SlurmPartition) and each.allow_accounts for each in partitions)


def _check_has_database(config: ClusterConfig, slurm: SlurmConfig, path: str) -> Iterator[Finding]:
    if slurm.accounting_database is None and config.lifecycle_mode == "customer_managed":
        yield Finding(
            code="accounts-without-database",
            path=path,
            problem="needs an accounting database, which the controller may not have under customer_managed. "
            "Then the step accounting fails",
            remedy="set slurm.accounting_database, or set up a database in your own scripts",
            level="warning",
        )


def _check_limits_enforced(config: ClusterConfig) -> Iterator[Finding]:
    steps = config.lifecycle_steps
    if is_known(steps) and steps.slurm_conf is False:
        yield Finding(
            code="accounts-not-enforced",
            path="lifecycle.steps.slurm_conf",
            problem="is false, so the library does not make slurm.conf enforce the accounts and their limits",
            remedy="remove it, or set AccountingStorageEnforce in slurm.conf yourself",
            level="warning",
        )


def _check_database(config: ClusterConfig, database: AccountingDatabase) -> Iterator[Finding]:
    if config.node_provisioning_mode == "standard":
        yield Finding(
            code="continuous-provisioning-required",
            path="slurm.accounting_database",
            problem="requires continuous provisioning",
            remedy="set node_provisioning_mode to continuous, or remove it",
        )
    region = config.region
    if not is_known(database.secret_arn) or not is_known(region):
        return
    region_of_arn = database.secret_arn.split(":")[3]
    if region_of_arn != region:
        yield Finding(
            code="arn-in-another-region",
            path="slurm.accounting_database.secret_arn",
            problem=f"is in {show(region_of_arn)}, but the cluster is in {region}",
            remedy="use one of the cluster's region",
        )


def _check_metadata_user_names(users: object) -> Iterator[Finding]:
    if isinstance(users, tuple):
        yield from check_repeated(tuple(user for user in users if is_known(user)), "slurm.metadata_users")


def _runs_no_library_scripts(config: ClusterConfig) -> bool:
    return config.lifecycle_mode == "bootstrap" or config.scripts_folder is not None


def _check_metadata_users(config: ClusterConfig) -> Iterator[Finding]:
    if _runs_no_library_scripts(config):
        yield Finding(
            code="metadata-users-without-scripts",
            path="slurm.metadata_users",
            problem="needs the library's own scripts, which do not run on this cluster",
            remedy="remove it, or use the library's scripts (docs/lifecycle.md)",
        )
    elif config.lifecycle_steps.metadata is False:
        yield Finding(
            code="metadata-users-without-step",
            path="lifecycle.steps.metadata",
            problem="is false, but slurm.metadata_users needs the step",
            remedy="remove one of the two",
        )


_OPEN_METADATA = {
    "monitoring": "write health records, whose text the subscribers get",
    "slurm.drain": "cut the drain agent off the network",
    "slurm.accounting_database": "read the secret if the role is the controller's, too",
}
"""Setting -> what a job can do with the role of its node."""


def check_open_metadata(config: ClusterConfig) -> Iterator[Finding]:
    """Settings that a job can abuse with the role of its node, if nothing keeps it from the instance's metadata."""
    slurm = config.slurm or SlurmConfig()
    if config.orchestrator == "eks" or not is_known((config.lifecycle, slurm)) or slurm.metadata_users is not None:
        return
    used = {
        "monitoring": config.monitoring,
        "slurm.drain": slurm.drain,
        "slurm.accounting_database": slurm.accounting_database,
    }
    risks = [f"{_OPEN_METADATA[path]} ({path})" for path, value in used.items() if value is not None]
    if not risks:
        return
    harm = "; ".join(risks)
    if _runs_no_library_scripts(config):
        yield Finding(
            code="metadata-not-closed-by-scripts",
            path="slurm.metadata_users",
            problem=f"does not exist for your own scripts. A job can use the role of its node, and {harm}",
            remedy="close the metadata in your own scripts, also on the controller (docs/node-role.md)",
            level="warning",
        )
    elif config.lifecycle_steps.metadata is False:
        yield Finding(
            code="metadata-open-everywhere",
            path="lifecycle.steps.metadata",
            problem=f"is false, so users can use the role of each node, also the controller's, and {harm}",
            remedy="remove it",
            level="warning",
        )
    else:
        yield Finding(
            code="metadata-open",
            path="slurm.metadata_users",
            problem=f"is missing, so every job can use the role of its node, and {harm}",
            remedy="set it to [], or to the users whose jobs need the role (docs/node-role.md)",
            level="warning",
        )
