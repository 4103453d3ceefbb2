"""Slurm's accounting database, as the controller's slurmdbd answers for it. No secret is read here."""

from __future__ import annotations

from lib import StepError, ask_slurm, on_node, run, wait_until, what_failed

SLURMDBD_CONFS = ("/opt/slurm/etc/slurmdbd.conf", "/etc/slurm/slurmdbd.conf")
SLURMCTLD_LOGS = ("/var/log/slurm/slurmctld.log", "/var/log/slurmctld.log")


def wait_for_database() -> str:
    """The cluster's name, once slurmdbd answers and knows it."""
    config = ask_slurm("scontrol", "show", "config")
    pairs = (line.partition("=") for line in config.splitlines())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    name, storage = values.get("ClusterName", ""), values.get("AccountingStorageType", "")
    if "slurmdbd" not in storage:
        raise StepError(
            f"Slurm keeps no accounts here (AccountingStorageType is {storage or 'not set'}), and the cluster file has "
            "some; name slurm.accounting_database in the file, or take its accounts out"
        )

    def look(attempt: int) -> str | None:
        done = run("sacctmgr", "--parsable2", "--noheader", "show", "cluster", "format=Cluster", timeout_s=60)
        if done.returncode != 0:
            return f"slurmdbd does not answer ({what_failed(done.stdout)})"
        return None if name in done.stdout.split() else f"slurmdbd does not know the cluster {name} yet"

    try:
        wait_until("the accounting database answers", look)
    except StepError as error:
        raise StepError(f"{error}; {_diagnosis()}") from error
    return name


def _diagnosis() -> str:
    for path in SLURMDBD_CONFS:
        file = on_node(path)
        # It has the database's password: slurmdbd ends where anybody else could read it.
        if file.is_file() and file.stat().st_mode & 0o777 != 0o600:
            mode = f"{file.stat().st_mode & 0o777:o}"
            return f"{path} has mode {mode}, at which slurmdbd ends: `chmod 600 {path}`, and start slurmdbd"
    for path in SLURMCTLD_LOGS:
        file = on_node(path)
        if file.is_file() and "CLUSTER ID MISMATCH" in file.read_text("utf-8", "replace")[-20_000:]:
            return (
                "CLUSTER ID MISMATCH: slurmctld has an id that this database does not know; for a new cluster, remove the "
                "file clustername in StateSaveLocation and start slurmctld; for an old one, give it back its database"
            )
    return "look at `systemctl status slurmdbd`, at its log, and at the database's endpoint and security group"
