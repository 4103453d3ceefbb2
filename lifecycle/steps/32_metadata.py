#!/usr/bin/env python3
"""Keep the node's role from users. Usage: 32_metadata.py CLUSTER_FILE NODE_TYPE [WHEN].

On the controller no user reaches the instance's metadata, whatever the file says: with the controller's role a user could write as
the drain agent, and read the accounting database's secret. On other nodes the users of slurm.metadata_users do, and all if the file
has no such list. The step runs before all others, because slurmd may start jobs already (WHEN is `first`), and again after the users
exist, to let the named ones in.

If the cluster has a login node, sshd of the controller refuses the file's users, and also if the metadata cannot be closed there.
They keep uid, home and shell: slurmctld looks them up. sshd refuses them by name. A list of who may log in would lock out others.

A process that reaches the instance metadata gets the credentials of the node's role. HyperPod's own processes need them, and it is
not known which of these do not run as root. So root, the system's users and the image's own user (1000) keep access. Every other uid
is rejected, except the users that the file names. Traffic of containers through a bridge has no uid here, and is rejected, too.

The rules are one nft table of our own, which a unit loads again at boot, before the network is up. No other table is touched.
Without nft the node joins all the same, with a warning.
"""

from __future__ import annotations

import pwd
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from lib import (
    OWN_MARK,
    PROGRAMS,
    StepError,
    install_unit,
    last_line,
    log,
    must_run,
    on_node,
    owe,
    read_cluster,
    run,
    run_step,
    settle,
    write_file,
)

TABLE = "cdk_hyperpod_metadata"
RULES = f"{PROGRAMS}/metadata.nft"
UNIT = "cdk-hyperpod-metadata.service"
FIRST_UID = 1001
REFUSED = "/etc/ssh/sshd_config.d/00-cdk-hyperpod.conf"
"""sshd adds the names of all its DenyUsers, wherever they are."""
SSHD_UNITS = ("ssh.service", "sshd.service")
AGAIN = "run `cdk-hyperpod lifecycle run metadata`"
SERVICE = f"""\
[Unit]
Description=Keep the role of this node from jobs (cdk-hyperpod)
DefaultDependencies=no
After=local-fs.target nftables.service firewalld.service
Wants=network-pre.target
Before=network-pre.target slurmd.service

[Service]
Type=oneshot
ExecStart=/usr/bin/env nft --file {RULES}
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

[Install]
WantedBy=multi-user.target
"""


def rules(uids: Sequence[int]) -> str:
    """The table, which replaces the one that is there in one transaction."""
    chosen = f"        meta skuid {{ {', '.join(map(str, sorted(uids)))} }} return\n" if uids else ""
    return f"""\
table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
    chain output {{
        type filter hook output priority filter; policy accept;
        ip daddr 169.254.169.254 jump users
        ip6 daddr fd00:ec2::254 jump users
    }}
    chain users {{
{chosen}        meta skuid >= {FIRST_UID} reject
    }}
    chain forward {{
        type filter hook forward priority filter; policy accept;
        ip daddr 169.254.169.254 reject
        ip6 daddr fd00:ec2::254 reject
    }}
}}
"""


def uids_of(names: Sequence[str], *, is_first: bool) -> list[int]:
    """The uids of the users that exist on the node and need a rule. `is_first`: before users are made, some do not exist yet."""
    found = []
    for name in names:
        try:
            uid = pwd.getpwnam(name).pw_uid
        except KeyError:
            if not is_first:
                log("WARNING", f"metadata_users: this node knows no user {name}, who does not get the node's role")
            continue
        if uid >= FIRST_UID:
            found.append(uid)
    return found


def refuse(uids: Sequence[int], others: str) -> bool:
    """Load the rules, now and at every boot. False: the kernel has none, and `others` reach the metadata."""
    write_file(RULES, rules(uids))
    done = run("nft", "--file", str(on_node(RULES)))
    if done.returncode != 0:
        reason = "this image has no nft" if done.returncode == 127 else f"nft says {last_line(done.stdout)}"
        log("WARNING", f"{others} can still take this node's role, because {reason}; mend it, then {AGAIN}")
        return False
    install_unit(UNIT, SERVICE)
    must_run("systemctl", "enable", UNIT)
    return True


def let_all() -> None:
    """Remove the rules, if an earlier file added them."""
    if not on_node(RULES).exists():
        return
    run("systemctl", "disable", UNIT)
    on_node(f"/etc/systemd/system/{UNIT}").unlink(missing_ok=True)
    run("nft", "delete", "table", "inet", TABLE)
    on_node(RULES).unlink()
    log("INFO", "every user reaches the metadata of this node again")


# -- logins to the controller ------------------------------------------------------------------------------------------


def refuse_logins(names: Iterable[str]) -> None:
    """Make sshd refuse these users by name. No name: make it refuse none."""
    wanted = sorted(names)
    file = on_node(REFUSED)
    if wanted:
        write_file(REFUSED, f"# {OWN_MARK}\n" + "".join(f"DenyUsers {name}\n" for name in wanted), owes=("sshd",))
    elif file.exists():
        owe("sshd")
        file.unlink()
    try:
        if settle("sshd", lambda: _reload_sshd(wanted)):
            log(
                "INFO",
                f"sshd refuses {len(wanted)} users of the cluster file"
                if wanted
                else "sshd refuses no user of the file",
            )
    except StepError as error:
        log("WARNING", f"users may be able to log in to this controller by ssh: {error}; mend it, then {AGAIN}")


def _reload_sshd(names: Sequence[str]) -> None:
    """Raises StepError if sshd cannot read its files, or does not refuse these users."""
    sshd = shutil.which("sshd")
    if sshd is None:
        return
    # sshd that a socket starts has no such folder yet, and refuses to check its files.
    on_node("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        must_run(sshd, "-t")
    except StepError:
        # With a file that it cannot read, sshd would not start at the next boot.
        on_node(REFUSED).unlink(missing_ok=True)
        raise
    who = f"user={names[0] if names else 'root'},host=localhost,addr=127.0.0.1"
    words = [line.split() for line in must_run(sshd, "-T", "-C", who).splitlines()]
    missing = set(names) - {name for key, *found in filter(None, words) if key == "denyusers" for name in found}
    if missing:
        raise StepError(f"sshd does not read {REFUSED}; include it in /etc/ssh/sshd_config")
    for unit in SSHD_UNITS:
        if run("systemctl", "is-active", unit).returncode == 0:
            must_run("systemctl", "reload", unit)
            return


# ----------------------------------------------------------------------------------------------------------------------


def close_controller(content: dict[str, Any]) -> None:
    """Close the metadata to all users, and logins if there is another node for them, or the metadata is open."""
    is_closed = refuse([], "every user's process")
    users = [str(user["name"]) for user in content.get("users") or ()]
    refuse_logins(users if content.get("login_group") or not is_closed else [])
    if is_closed:
        log("INFO", "only root and the system's users reach the metadata of this controller")


def limit_metadata(cluster_file: str, node_type: str, *, is_first: bool) -> None:
    """Set up access as this type of node and the file's metadata_users need it."""
    content = read_cluster(cluster_file)
    if node_type == "controller":
        close_controller(content)
        return
    names = content.get("metadata_users")
    if names is None:
        let_all()
    elif refuse(uids_of([str(name) for name in names], is_first=is_first), "every job"):
        log("INFO", "only root, the system's users and metadata_users reach the metadata of this node")


if __name__ == "__main__":
    sys.exit(run_step(lambda: limit_metadata(sys.argv[1], sys.argv[2], is_first="first" in sys.argv[3:])))
