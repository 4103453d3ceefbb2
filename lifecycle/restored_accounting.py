"""Load the last dump of Slurm's accounting into the database of a new controller."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from controller_state import ACCOUNTING, ARCHIVE, Copy, Folder, Unusable, identity, slurm_version, why_not
from keep_state import local_database
from lib import StepError, last_line, log, must_run, one_line, run, wait_until, what_failed

SCRATCH = "cdk_hyperpod_restore"


def restore_accounting(folder: Folder, settings: Mapping[str, str]) -> bool:
    """Load the last dump, if the database is on this node. Returns True if slurmdbd knows the cluster as before."""
    if "slurmdbd" not in settings.get("accountingstoragetype", ""):
        return True
    database = local_database()
    if database is not None:
        # A restore that was killed may have left it off.
        run("systemctl", "start", "slurmdbd.service")
    try:
        _await_database()
    except StepError as error:
        log("WARNING", f"the accounting history is not restored: {error}")
        return True
    if database is None:
        return True
    for copy in folder.copies(ACCOUNTING):
        try:
            manifest = folder.manifest(copy)
            reason = why_not(manifest, identity(settings), slurm_version())
            if reason is not None:
                raise Unusable(f"{copy.name} is not used: {reason}")
            _load(folder, copy, database)
        except StepError as error:
            log("WARNING", f"{error}; the accounting history of that time is not restored")
            continue
        log(
            "INFO",
            f"the accounting history is back, as of {time.strftime('%H:%M:%S UTC', time.gmtime(manifest['time']))}",
        )
        return True
    return False


def _load(folder: Folder, copy: Copy, database: str) -> None:
    """Load it beside the database first: a dump that does not load changes nothing."""
    must_run("mariadb", "-e", f"DROP DATABASE IF EXISTS {SCRATCH}; CREATE DATABASE {SCRATCH}")
    try:
        with folder.open(f"{copy.name}/{ARCHIVE}") as file, gzip.open(file) as dump:
            _pipe(dump, "mariadb", SCRATCH)
        tables = _tables(SCRATCH)
        if not tables:
            raise Unusable(f"{copy.name} holds no table")
        moves = ", ".join(f"`{SCRATCH}`.`{name}` TO `{database}`.`{name}`" for name in tables)
        drops = "".join(f"DROP TABLE `{database}`.`{name}`; " for name in _tables(database))
        must_run("systemctl", "stop", "slurmdbd.service")
        try:
            # Rows since the dump are gone, and slurmctld still names them by number: new rows get other numbers.
            jobs = [name for name in tables if name.endswith("_job_table")]
            above = "".join(
                f"ALTER TABLE `{database}`.`{name}` AUTO_INCREMENT={_next_row(SCRATCH, name) + 1_000_000}; "
                for name in jobs
            )
            must_run("mariadb", "-e", f"{drops}RENAME TABLE {moves}; {above}", timeout_s=600)
        finally:
            must_run("systemctl", "start", "slurmdbd.service")
    finally:
        run("mariadb", "-e", f"DROP DATABASE IF EXISTS {SCRATCH}")
    _await_database()


def _await_database() -> None:
    def look(_: int) -> str | None:
        done = run("sacctmgr", "--noheader", "--readonly", "show", "cluster", timeout_s=30)
        return None if done.returncode == 0 else f"slurmdbd does not answer ({what_failed(done.stdout)})"

    wait_until("the accounting database answers", look)


def _tables(database: str) -> list[str]:
    said = must_run(
        "mariadb",
        "--batch",
        "--skip-column-names",
        "-e",
        f"SELECT table_name FROM information_schema.tables WHERE table_schema='{database}' AND table_type='BASE TABLE'",
    )
    return [name for name in said.split("\n") if name and "`" not in name]


def _next_row(database: str, table: str) -> int:
    said = must_run(
        "mariadb",
        "--batch",
        "--skip-column-names",
        "-e",
        f"SELECT COALESCE(MAX(job_db_inx), 0) FROM `{database}`.`{table}`",
    )
    return int(said.strip() or 0)


def _pipe(source: Any, *command: str) -> None:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            shutil.copyfileobj(source, process.stdin, 1 << 20)
            process.stdin.close()
        except (OSError, EOFError) as error:
            process.kill()
            raise Unusable(
                f"the dump cannot be read or loaded: {one_line(error)}: {last_line(process.stdout.read().decode('utf-8', 'replace'))}"
            ) from error
        said = process.stdout.read().decode("utf-8", "replace")
    if process.returncode != 0:
        raise Unusable(f"the dump does not load: {last_line(said)}")
