#!/usr/bin/env python3
"""Put our lines into slurm.conf, and keep them there. Usage: 35_slurm_conf.py SETTINGS (JSON) CLUSTER_FILE.

Runs on the controller. A slurmctld that enforces accounts does not start without the database, so that is waited for
first. slurm_conf.py does the work; it is installed where a systemd path unit runs it again whenever HyperPod has written slurm.conf.

The user's own lines, and the programs around jobs, are tried first (slurm_trial.py). What is refused changes nothing: a replaced
controller must come up without them. It is a warning, and an error if the step is run alone. The settings of partitions follow
(partitions.py).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Mapping

import partitions
import slurm_trial
from closed import SETTINGS, close, open_again
from database import wait_for_database
from hooks import KINDS, OWN_FILES, has_hooks, install
from lib import (
    PROGRAMS,
    StepError,
    ask_slurm,
    install_program,
    install_unit,
    log,
    must_run,
    on_node,
    read_cluster,
    run,
    run_step,
    write_file,
)
from slurm_conf import (
    OTHER_CONFS,
    SLURM_CONF,
    TIMER,
    WHOLE,
    all_settings,
    alone,
    files_with,
    has_one_prolog,
    keep,
    save,
    settle_pending,
    values_of,
)

SCRIPTS = Path(__file__).resolve().parents[1]
PARTITIONS = f"{PROGRAMS}/partitions.json"
ALONE = "PROVISION_ALONE"
"""Set if this step was asked for by its name."""
MODULES = ("closed.py", "hooks.py", "slurm_trial.py", "slurm_conf.py")
SERVICE = f"""\
[Unit]
Description=Put the lines of cdk-hyperpod back into slurm.conf

[Service]
Type=oneshot
ExecStart=/usr/bin/env python3 -B {PROGRAMS}/slurm_conf.py {SETTINGS}
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/opt/slurm/sbin
"""
PATH = """\
[Unit]
Description=HyperPod has written slurm.conf

[Path]
{paths}

[Install]
WantedBy=multi-user.target
"""
EACH_MINUTE = """\
[Unit]
Description=Try the programs of slurm.prolog and slurm.epilog when a node is idle

[Timer]
OnActiveSec=60
OnUnitInactiveSec=60
Unit=cdk-hyperpod-slurm-conf.service

[Install]
WantedBy=timers.target
"""


def put_lines(settings_text: str, cluster_file: str, when: str = "") -> None:
    """Write our lines now, and whenever they are gone. `when` is refused: only if an earlier run of these scripts refused some."""
    if when == "refused" and not _installed().get("refused"):
        return
    settings = json.loads(settings_text)
    wanted = read_cluster(cluster_file).get("slurm") or {}
    problems: list[str] = []
    close()
    try:
        if "AccountingStorageEnforce" in settings:
            wait_for_database()
        with alone():
            _put_lines(settings, wanted, problems)
        _partitions(wanted.get("partitions") or {})
    finally:
        open_again()
    _report(problems)


def _put_lines(settings: Mapping[str, Any], wanted: Mapping[str, Any], problems: list[str]) -> None:
    for module in MODULES:
        install_program(module, (SCRIPTS / module).read_text("utf-8"))
    old = _installed()
    content: dict[str, Any] = {"settings": settings, "own": old.get("own", {})}
    content.update(_hooks(wanted, old))
    # First what was there, and our own settings: a job of a trial without them would drain its node.
    _put(content, content["own"], problems)
    content["own"] = _own_lines(settings, wanted, old.get("own", {}), problems)
    install_unit("cdk-hyperpod-slurm-conf.service", SERVICE)
    install_unit("cdk-hyperpod-slurm-conf.path", PATH.format(paths=_watched(content["own"])))
    if "hooks" in content or "pending" in content:
        install_unit(TIMER, EACH_MINUTE)
    _put(content, old.get("own", {}), problems)
    content, problem = settle_pending(content)
    problems.extend(filter(None, [problem]))
    if problems:
        content["refused"] = True
        write_file(SETTINGS, json.dumps(content, sort_keys=True) + "\n")
    if on_node(f"/etc/systemd/system/{TIMER}").exists():
        save(SETTINGS, content)
    keep(all_settings(content), time.time(), content["own"])
    if run("systemctl", "is-active", "cdk-hyperpod-slurm-conf.path").returncode != 0:
        must_run("systemctl", "enable", "--now", "cdk-hyperpod-slurm-conf.path")


def _put(content: dict[str, Any], old: dict[str, str], problems: list[str]) -> None:
    """Put the lines in place. If slurmctld then does not answer, take the user's new ones out again."""
    write_file(SETTINGS, json.dumps(content, sort_keys=True) + "\n")
    try:
        keep(all_settings(content), time.time(), content["own"])
        if content["own"].get("job_container") != old.get("job_container"):
            _try_container()
    except StepError as error:
        if content["own"] == old:
            raise
        problems.append(f"the files of slurm.conf are taken out again: {error}")
        content["own"] = old
        write_file(SETTINGS, json.dumps(content, sort_keys=True) + "\n")
        keep(all_settings(content), time.time(), old)


def _try_container() -> None:
    """Raise StepError if no job starts on an idle node: slurmd reads job_container.conf only for a job."""
    outcome, why = slurm_trial.try_on_nodes("exit 0", slurm_trial.NODE_TRIAL_S, 2)
    if outcome != "passed" and why != slurm_trial.NO_IDLE_NODE:
        raise StepError(f"with job_container.conf, {why}")
    if outcome != "passed":
        log("WARNING", f"job_container.conf is not tried: {why}")


def _installed() -> dict[str, Any]:
    """What an earlier run has put in place. Empty: this is the first one, or its file is broken."""
    file = on_node(SETTINGS)
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and "settings" in content else {}


def _watched(own: Mapping[str, str]) -> str:
    confs = [
        SLURM_CONF,
        *(str(Path(SLURM_CONF).with_name(conf)) for name, conf in OTHER_CONFS.items() if own.get(name)),
    ]
    return "\n".join(f"PathChanged={conf}" for conf in confs)


def _own_lines(
    settings: Mapping[str, Any], wanted: Mapping[str, Any], old: dict[str, str], problems: list[str]
) -> dict[str, str]:
    """The user's lines: the new ones if Slurm takes them, else those that are in place."""
    new = {name: _text(SCRIPTS / OWN_FILES / WHOLE.get(name, f"{name}.conf")) for name in wanted.get("conf") or ()}
    etc = on_node(SLURM_CONF).parent
    if new == old or not new or not (etc / "slurm.conf").is_file():
        return new if not new or new == old else old
    files = files_with(settings, new, etc)
    why = slurm_trial.missing(values_of(new.get("slurm", ""))) or slurm_trial.refusal(
        files, values_of(files["slurm.conf"]).get("slurmuser", "root")
    )
    if why is None:
        log("INFO", f"slurmctld starts with the lines of slurm.conf ({', '.join(sorted(new))}) on a copy")
        outcome, told = slurm_trial.try_on_nodes(slurm_trial.files_script(files), slurm_trial.NODE_TRIAL_S, 1)
        why = f"slurmd refuses them {told}" if outcome == "failed" else None
        if outcome == "untried":
            why = slurm_trial.parse_refusal(files)
    if why is None:
        return new
    stay = "the earlier ones stay" if old else "Slurm runs without them"
    problems.append(
        f"the files of slurm.conf are not put in place, and {stay}: {why}; correct the line, deploy, and run the step slurm_conf"
    )
    return old


def _text(file: Path) -> str:
    text = file.read_text("utf-8")
    return text if text.endswith("\n") else f"{text}\n"


def _hooks(wanted: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """What slurm.conf has of the programs around jobs: those that were tried, and those that will be."""
    if not has_hooks(wanted):
        return {}
    new = {"folder": install(SCRIPTS, wanted), "seconds": _trial_seconds(wanted)}
    new.update({kind: True for kind in KINDS if wanted.get(kind)})
    found: dict[str, Any] = {"one_prolog": has_one_prolog()}
    if old.get("hooks"):
        found["hooks"] = old["hooks"]
    if found.get("hooks") != new:
        found["pending"] = new
    return found


def _trial_seconds(wanted: Mapping[str, Any]) -> int:
    """How long all programs may take, one after the other."""
    programs = [file for kind in KINDS if wanted.get(kind) for file in (SCRIPTS / OWN_FILES / f"{kind}.d").iterdir()]
    return int(wanted["hook_seconds"]) * len(programs) + slurm_trial.NODE_TRIAL_S


def _partitions(wanted: Mapping[str, Any]) -> None:
    known = on_node(PARTITIONS)
    if not wanted and not known.exists():
        return
    before = json.loads(known.read_text("utf-8")) if known.exists() else {}
    install_program("partitions.py", (SCRIPTS / "partitions.py").read_text("utf-8"))
    write_file(PARTITIONS, json.dumps(wanted, sort_keys=True) + "\n")
    if partitions.has_lost(before, wanted):
        # What left the file is again as HyperPod has it in slurm.conf.
        ask_slurm("scontrol", "reconfigure")
    partitions.install_units(f"{PROGRAMS}/partitions.py", PARTITIONS)
    partitions.keep(wanted)


def _report(problems: list[str]) -> None:
    for problem in problems:
        log("WARNING", problem)
    if problems and os.environ.get(ALONE):
        raise StepError("; ".join(problems))


if __name__ == "__main__":
    sys.exit(run_step(lambda: put_lines(*sys.argv[1:])))
