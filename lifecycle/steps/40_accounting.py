#!/usr/bin/env python3
"""Make Slurm's accounts, their users and limits what the cluster file says. Usage: 40_accounting.py CLUSTER_FILE.

Runs on the controller. The accounting database is HyperPod's: the one that `slurm.accounting_database` names, or the
controller's own. This reads no secret; it talks to slurmdbd, by sacctmgr, and waits for it.

What is new goes into one file, which sacctmgr loads: a sacctmgr for each of hundreds of accounts takes minutes. What the database
still lacks then, and all other changes, are commands of their own, so that an error names its command.

An account that has left the file loses its users and its QOS, and stays: its usage would go with it. A QOS that has left the file is
removed once no job and no account uses it: Slurm would refuse the job.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from database import wait_for_database
from lib import RUN_AGAIN, StepError, ask_slurm, last_line, log, read_cluster, run, run_step
from partitions import OWN_ACCOUNT, allow_again

MARK = "cdk-hyperpod"
"""The description of the accounts that are ours: no other is touched."""
LIMITS = {
    "fairshare": "Fairshare",
    "grp_jobs": "GrpJobs",
    "grp_submit_jobs": "GrpSubmit",
    "grp_nodes": "GrpTRES",
    "grp_gpus": "GrpTRES",
    "max_jobs": "MaxJobs",
    "max_submit_jobs": "MaxSubmit",
    "max_wall_minutes": "MaxWall",
}
"""The limits of the cluster file, and sacctmgr's names for them."""
TRES = {"grp_nodes": "node", "grp_gpus": "gres/gpu"}
COLUMNS = (
    "Account",
    "User",
    "Fairshare",
    "GrpJobs",
    "GrpSubmit",
    "GrpTRES",
    "MaxJobs",
    "MaxSubmit",
    "MaxWall",
    "QOS",
    "DefaultQOS",
)
QOS_COLUMNS = ("Name", "Descr", "Priority", "GrpTRES", "MaxJobsPU", "MaxWall", "Preempt", "PreemptMode")
QOS_OPTIONS = {"MaxJobsPU": "MaxJobsPerUser"}
"""sacctmgr sets it by this name, and shows it by the other."""
QOS_WITHOUT = {"Priority": "0", "PreemptMode": "cluster"}
"""What a QOS has that nobody has given anything else."""
QOS_RESET = {"Priority": "0", "PreemptMode": "cluster", "Preempt": "", "GrpTRES": "node=-1"}
"""What `set` takes to remove a limit, where that is not -1."""


@dataclass(frozen=True)
class Account:
    """An account, as the cluster file has it or as the database does."""

    name: str
    users: frozenset[str] = frozenset()
    limits: Mapping[str, str] = field(default_factory=dict)
    """By sacctmgr's names; what is absent is not limited."""


def commands_for(
    wanted: Mapping[str, Account], found: Mapping[str, Account], descriptions: Mapping[str, str], cluster: str
) -> Iterator[str]:
    """The commands for sacctmgr. None: the database is as the cluster file says.

    `found`: the accounts of this cluster. `descriptions`: of all accounts in the database, which several clusters may share. Each
    command names this cluster, or sacctmgr would change all clusters.
    """
    ours = frozenset(name for name in found if descriptions.get(name) == MARK)
    for name, account in wanted.items():
        if descriptions.get(name, MARK) != MARK:
            raise StepError(
                f"Slurm has an account {name} already, which is not ours; give it another name in the file, or say "
                f"`sacctmgr modify account {name} set description={MARK}`"
            )
        if name not in found:
            yield f"add account name={name} cluster={cluster} description={MARK} organization={MARK}"
        old = found.get(name, Account(name))
        changes = _changes(old.limits, account.limits)
        if changes:
            yield f"modify account where name={name} cluster={cluster} set {' '.join(changes)}"
        for user in sorted(account.users - old.users):
            yield f"add user name={user} account={name} cluster={cluster}"
    # After all additions, so that a user who changes accounts always has one.
    for name in sorted(ours):
        if name not in wanted and "QOS" in found[name].limits:
            yield f"modify account where name={name} cluster={cluster} set DefaultQOS=-1 QosLevel="
    yield from _removals({name: found[name] for name in sorted(ours)}, wanted, cluster)


def load_file(wanted: Mapping[str, Account], found: Mapping[str, Account], cluster: str) -> str:
    """The new accounts, and users who are new in an account, in the form of `sacctmgr dump`. Empty: there are none."""
    lines = []
    known = {user for account in found.values() for user in account.users}
    for name, account in wanted.items():
        if name not in found:
            options = {"Description": MARK, "Organization": MARK, **account.limits}
            lines += [
                f"Parent - 'root'\nAccount - '{name}':" + ":".join(f"{key}='{text}'" for key, text in options.items())
            ]
        users = sorted(account.users - found.get(name, Account(name)).users)
        if users:
            lines.append(f"Parent - '{name}'")
            # Without it any account of the file may become the default.
            lines += [f"User - '{user}'" + ("" if user in known else f":DefaultAccount='{name}'") for user in users]
            known.update(users)
    return "\n".join([f"Cluster - '{cluster}'", *lines, ""]) if lines else ""


def load(content: str) -> None:
    """Have sacctmgr add what a file has. What it cannot add is tried by commands of their own."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".cfg") as file:
        file.write(content)
        file.flush()
        done = run("sacctmgr", "--immediate", "--quiet", "load", f"file={file.name}", timeout_s=300)
    if done.returncode != 0:
        log("WARNING", f"`sacctmgr load` failed, so each account is added by itself: {last_line(done.stdout)}")


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    changes = []
    for limit in dict.fromkeys(LIMITS.values()):
        old, new = before.get(limit, ""), after.get(limit, "")
        if old != new:
            changes.append(f"{limit}={_change(limit, old, new)}")
    if (before.get("QOS", ""), before.get("DefaultQOS", "")) != (after.get("QOS", ""), after.get("DefaultQOS", "")):
        changes += [f"DefaultQOS={after.get('DefaultQOS') or '-1'}", f"QosLevel={after.get('QOS', '')}"]
    return changes


def qos_commands(
    wanted: Mapping[str, Mapping[str, str]], found: Mapping[str, Mapping[str, str]], cluster: str
) -> Iterator[str]:
    """The commands that add and change QOS. QOS are all clusters' of a database, so the description says whose each is."""
    mark = qos_mark(cluster)
    for name in wanted:
        if found.get(name, {"Descr": mark})["Descr"].lower() != mark:
            whose = found[name]["Descr"]
            raise StepError(
                f"Slurm has a QOS {name} already, which is not ours ({whose}); give it another name in the file, or "
                f"say `sacctmgr modify qos {name} set description={mark}`"
            )
    for name in wanted:
        if name not in found:
            yield f"add qos name={name} description={mark}"
    # When all are there, since one may preempt another.
    for name, settings in wanted.items():
        old = {**QOS_WITHOUT, **found.get(name, {})}
        new = {**QOS_WITHOUT, **settings}
        changes = [
            f"{QOS_OPTIONS.get(column, column)}={new.get(column) or QOS_RESET.get(column, '-1')}"
            for column in QOS_COLUMNS[2:]
            if old.get(column, "") != new.get(column, "")
        ]
        if changes:
            yield f"modify qos where name={name} set {' '.join(changes)}"


def qos_to_remove(wanted: Iterable[str], found: Mapping[str, Mapping[str, str]], cluster: str) -> list[str]:
    """Our QOS that have left the file."""
    ours = (name for name, row in found.items() if row["Descr"].lower() == qos_mark(cluster))
    return sorted(set(ours) - set(wanted))


def qos_mark(cluster: str) -> str:
    """The description of this cluster's QOS."""
    return f"{MARK}:{cluster}".lower()


def parse_qos(text: str) -> dict[str, dict[str, str]]:
    """The QOS in `sacctmgr --parsable2 --noheader show qos format=…`, by name."""
    found = {}
    for line in text.splitlines():
        row = dict(zip(QOS_COLUMNS, line.split("|")))  # strict is newer than 3.8
        if len(row) == len(QOS_COLUMNS):
            found[row["Name"]] = {
                **row,
                "Preempt": _sorted_names(row["Preempt"]),
                "PreemptMode": row["PreemptMode"].lower(),
            }
    return found


def wanted_qos(content: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The QOS of cluster.json, as sacctmgr prints them."""
    found = {}
    try:
        for item in (content.get("slurm") or {}).get("qos") or ():
            texts = {
                "Priority": _number(item.get("priority")),
                "GrpTRES": f"node={int(item['grp_nodes'])}" if "grp_nodes" in item else "",
                "MaxJobsPU": _number(item.get("max_jobs")),
                "MaxWall": _wall(int(item["max_wall_minutes"])) if "max_wall_minutes" in item else "",
                "Preempt": ",".join(sorted(item.get("preempts") or ())),
                "PreemptMode": item.get("preempt_mode", ""),
            }
            found[item["name"]] = {column: text for column, text in texts.items() if text}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StepError(f"cluster.json: slurm.qos is not as the library writes it: {error!r}") from error
    return found


def _number(value: Any) -> str:
    return "" if value is None else str(int(value))


def _sorted_names(text: str) -> str:
    return ",".join(sorted(filter(None, text.split(","))))


def _removals(ours: Mapping[str, Account], wanted: Mapping[str, Account], cluster: str) -> Iterator[str]:
    leaves: dict[str, list[str]] = {}
    for name, account in ours.items():
        for user in account.users - wanted.get(name, Account(name)).users:
            leaves.setdefault(user, []).append(name)
    for user, accounts in sorted(leaves.items()):
        # Slurm removes a user from the default account only together with all others.
        others = [name for name, other in wanted.items() if user in other.users]
        if others:
            yield f"modify user where name={user} cluster={cluster} set defaultaccount={others[0]}"
        yield f"remove user where name={user} account={','.join(accounts)} cluster={cluster}"


def _change(limit: str, before: str, after: str) -> str:
    """A limit as `set` takes it. -1 removes it. In GrpTRES each resource is removed by itself."""
    if limit == "GrpTRES":
        gone = set(_tres(before)) - set(_tres(after))
        return ",".join([*filter(None, [after]), *(f"{name}=-1" for name in sorted(gone))])
    return after or ("1" if limit == "Fairshare" else "-1")


def _tres(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def parse(content: Mapping[str, Any]) -> dict[str, Account]:
    """The accounts of cluster.json, limits as sacctmgr prints them."""
    accounts = {}
    try:
        for item in content.get("accounts") or ():
            limits: dict[str, str] = {}
            for key, limit in LIMITS.items():
                value = item.get(key)
                if value is None or (limit, value) == ("Fairshare", 1):
                    continue  # 1 is what Slurm has without
                text = _wall(int(value)) if limit == "MaxWall" else str(int(value))
                if key in TRES:
                    text = ",".join(filter(None, [limits.get(limit), f"{TRES[key]}={text}"]))
                limits[limit] = text
            if item.get("qos"):
                limits["QOS"], limits["DefaultQOS"] = ",".join(sorted(item["qos"])), item["qos"][0]
            accounts[item["name"]] = Account(item["name"], frozenset(item.get("users") or ()), _sorted_tres(limits))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StepError(f"cluster.json: accounts are not as the library writes them: {error!r}") from error
    return accounts


def _wall(minutes: int) -> str:
    """Minutes as sacctmgr prints a time: [days-]hours:minutes:seconds."""
    days, rest = divmod(minutes, 24 * 60)
    return (f"{days}-" if days else "") + f"{rest // 60:02}:{rest % 60:02}:00"


def _sorted_tres(limits: Mapping[str, str]) -> dict[str, str]:
    text = limits.get("GrpTRES", "")
    ordered = ",".join(f"{name}={value}" for name, value in sorted(_tres(text).items()))
    return {**limits, "GrpTRES": ordered} if ordered else dict(limits)


def parse_associations(text: str) -> dict[str, Account]:
    """The accounts in `sacctmgr --parsable2 --noheader show association format=…`."""
    found: dict[str, Account] = {}
    for line in text.splitlines():
        row = dict(zip(COLUMNS, line.split("|")))  # strict is newer than 3.8
        if len(row) != len(COLUMNS):
            continue
        account = found.get(row["Account"], Account(row["Account"]))
        if row["User"]:
            found[account.name] = Account(account.name, account.users | {row["User"]}, account.limits)
        else:
            limits = {name: row[name] for name in COLUMNS[2:] if row[name]}
            if limits.get("Fairshare") == "1":
                del limits["Fairshare"]  # Slurm's own
            limits["QOS"] = _sorted_names(row["QOS"])
            found[account.name] = Account(account.name, account.users, _sorted_tres(limits))
    return {name: _without_inherited(account, found.get("root")) for name, account in found.items()}


def _without_inherited(account: Account, root: Account | None) -> Account:
    """Without the QOS that it has from the account above it, which sacctmgr shows like its own."""
    inherited = root.limits.get("QOS") if root else None
    limits = {name: text for name, text in account.limits.items() if name != "QOS" or text not in ("", inherited)}
    return Account(account.name, account.users, limits)


def sacctmgr(words: str) -> None:
    """Run sacctmgr. It is no failure if nothing is left to do, or if a user who is to be removed still has jobs."""
    done = run("sacctmgr", "--immediate", "--quiet", *words.split())
    if done.returncode != 0 and words.startswith("remove user") and "job(s) active" in done.stdout.lower():
        log(
            "WARNING",
            f"`sacctmgr {words}` has to wait for the user's jobs there; run step accounting again behind them",
        )
        return
    if done.returncode != 0 and "Nothing" not in done.stdout:
        raise StepError(f"`sacctmgr {words}` failed: {last_line(done.stdout)}")


def show(*words: str) -> str:
    """What the database has, a row a line."""
    return ask_slurm("sacctmgr", "--parsable2", "--noheader", "show", *words)


def make_accounts(cluster_file: str) -> None:
    """Bring the database to what the cluster file says."""
    content = read_cluster(cluster_file)
    wanted = parse(content)
    name = wait_for_database()
    accounts = show("account", "format=Account,Descr")
    descriptions = dict(line.split("|", 1) for line in accounts.splitlines() if "|" in line)
    qos, known_qos = wanted_qos(content), parse_qos(show("qos", f"format={','.join(QOS_COLUMNS)}"))
    _carry_out(qos_commands(qos, known_qos, name))
    found = associations(name)
    if OWN_ACCOUNT in found or limits_partitions(content):
        wanted[OWN_ACCOUNT] = Account(OWN_ACCOUNT, frozenset(["root"]))
    commands = list(commands_for(wanted, found, descriptions, name))
    has_new_accounts = any(words.startswith("add account") for words in commands)
    new = load_file(wanted, found, name)
    if new:
        log(
            "INFO",
            f"sacctmgr load: {', '.join(words.split(' cluster=')[0] for words in commands if words[:4] == 'add ')}",
        )
        load(new)
        commands = list(commands_for(wanted, associations(name), descriptions, name))
    _carry_out(commands)
    if OWN_ACCOUNT in wanted:
        _give_root_its_account(name)
    if has_new_accounts:
        allow_again((content.get("slurm") or {}).get("partitions") or {})
    for unwanted in qos_to_remove(qos, known_qos, name):
        remove_qos(unwanted)
    _give_jobs_their_qos(wanted)
    log("INFO", f"{len(wanted)} accounts and {len(qos)} QOS are as the cluster file says")


def _carry_out(commands: Iterable[str]) -> None:
    for words in commands:
        log("INFO", f"sacctmgr {words}")
        sacctmgr(words)


def _give_root_its_account(cluster: str) -> None:
    if show("user", "name=root", f"cluster={cluster}", "format=DefaultAccount").strip() != OWN_ACCOUNT:
        sacctmgr(f"modify user where name=root cluster={cluster} set defaultaccount={OWN_ACCOUNT}")


def _give_jobs_their_qos(wanted: Mapping[str, Account]) -> None:
    waiting = ask_slurm("squeue", "--noheader", "--states=PENDING", "--format=%A|%r|%q|%a")
    for job, limits in jobs_without_qos(waiting, wanted):
        log(
            "WARNING", f"job {job} was submitted before its account had QOS, and gets the account's first one: {limits}"
        )
        run("scontrol", "update", f"jobid={job}", f"qos={limits}")


def associations(cluster: str) -> dict[str, Account]:
    """The accounts of this cluster."""
    columns = ",".join(f"{column}%80" for column in COLUMNS)
    return parse_associations(show("association", f"cluster={cluster}", f"format={columns}"))


def jobs_without_qos(jobs: str, wanted: Mapping[str, Account]) -> Iterator[tuple[str, str]]:
    """Pending jobs that named no QOS, of accounts that cannot use Slurm's own any more; and the QOS of such jobs today."""
    for line in jobs.splitlines():
        job, reason, qos, account = (*line.split("|"), "", "", "", "")[:4]
        default = wanted.get(account, Account(account)).limits.get("DefaultQOS")
        if job.isdigit() and reason == "InvalidQOS" and qos == "normal" and default:
            yield job, default


def limits_partitions(content: Mapping[str, Any]) -> bool:
    """Whether some accounts alone may use a partition."""
    partitions = (content.get("slurm") or {}).get("partitions") or {}
    return any(settings.get("allow_accounts") for settings in partitions.values())


def remove_qos(name: str) -> None:
    """Remove a QOS that nobody uses."""
    jobs = ask_slurm("squeue", "--noheader", "--format=%i", f"--qos={name}").split()
    rows = (line.split("|") for line in show("association", "format=Account,QOS").splitlines())
    accounts = sorted({row[0] for row in rows if len(row) == 2 and name in row[1].split(",")})
    users = [
        *(["jobs " + ", ".join(jobs[:5])] if jobs else []),
        *(["accounts " + ", ".join(accounts[:5])] if accounts else []),
    ]
    if users:
        log("WARNING", f"the QOS {name} has left the file, and stays for {' and '.join(users)}: {RUN_AGAIN}")
        return
    log("INFO", f"sacctmgr remove qos where name={name}")
    sacctmgr(f"remove qos where name={name}")


if __name__ == "__main__":
    sys.exit(run_step(lambda: make_accounts(sys.argv[1])))
