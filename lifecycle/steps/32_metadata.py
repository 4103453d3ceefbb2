#!/usr/bin/env python3
"""Keep the node's role from users' jobs, if the file has slurm.metadata_users. Usage: 32_metadata.py CLUSTER_FILE.

A process that reaches the instance metadata gets the credentials of the node's role. HyperPod's own processes need them, and it is
not known which of these do not run as root. So root, the system's users and the image's own user (1000) keep access. Every other uid
is rejected, except the users that the file names. Traffic of containers through a bridge has no uid here, and is rejected, too.

The rules are one nft table of our own, which a unit loads again at boot. No other table is touched. Without nft the node joins
all the same, with a warning.
"""

from __future__ import annotations

import pwd
import sys
from collections.abc import Sequence

from lib import PROGRAMS, install_unit, last_line, log, must_run, on_node, read_cluster, run, run_step, write_file

TABLE = "cdk_hyperpod_metadata"
RULES = f"{PROGRAMS}/metadata.nft"
UNIT = "cdk-hyperpod-metadata.service"
FIRST_UID = 1001
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


def uids_of(names: Sequence[str]) -> list[int]:
    """The uids of the users that exist on the node and need a rule."""
    found = []
    for name in names:
        try:
            uid = pwd.getpwnam(name).pw_uid
        except KeyError:
            log("WARNING", f"metadata_users: this node knows no user {name}, who does not get the node's role")
            continue
        if uid >= FIRST_UID:
            found.append(uid)
    return found


def refuse(names: Sequence[str]) -> None:
    """Load the rules, now and at every boot."""
    write_file(RULES, rules(uids_of(names)))
    done = run("nft", "--file", str(on_node(RULES)))
    if done.returncode != 0:
        reason = "this image has no nft" if done.returncode == 127 else f"nft says {last_line(done.stdout)}"
        log(
            "WARNING",
            f"every job can still take this node's role, because {reason}; mend it, then run `cdk-hyperpod lifecycle run metadata`",
        )
        return
    install_unit(UNIT, SERVICE)
    must_run("systemctl", "enable", UNIT)
    log("INFO", "only root, the system's users and metadata_users reach the metadata of this node")


def let_all() -> None:
    """Remove the rules, if an earlier file added them."""
    if not on_node(RULES).exists():
        return
    run("systemctl", "disable", UNIT)
    on_node(f"/etc/systemd/system/{UNIT}").unlink(missing_ok=True)
    run("nft", "delete", "table", "inet", TABLE)
    on_node(RULES).unlink()
    log("INFO", "every user reaches the metadata of this node again")


def limit_metadata(cluster_file: str) -> None:
    """Set up access as the file's metadata_users says."""
    names = read_cluster(cluster_file).get("metadata_users")
    if names is None:
        let_all()
    else:
        refuse([str(name) for name in names])


if __name__ == "__main__":
    sys.exit(run_step(lambda: limit_metadata(sys.argv[1])))
