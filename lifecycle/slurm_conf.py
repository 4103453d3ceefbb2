#!/usr/bin/env python3
"""Keep our lines in slurm.conf, which HyperPod owns and writes again. Usage: slurm_conf.py SETTINGS_FILE.

Our lines stand in one included file beside slurm.conf; of slurm.conf itself, one line is ours, the last, that includes
it. Step slurm_conf runs this, and a systemd path unit does, whenever slurm.conf was written. It writes only what
differs, so its own writing ends there; where somebody keeps taking the line out, it gives up for ten minutes.

SETTINGS_FILE says what we want: {"settings": {"PrologFlags": ["Contain"], "PreemptType": "preempt/qos"},
"own": {"slurm": "...", "gres": "...", "job_submit": "..."}, "hooks": {...}, "pending": {...}}. A list is added to what slurm.conf has,
a text replaces it. `own` are lines of the user's, which slurmctld has been tried with. gres.conf and others get an included file
of ours only if the user has lines for them. job_submit.lua is the user's as a whole, so that the lines that Lua names are the
user's. `pending` are programs around jobs that no node was idle for yet: they are tried now, and become `hooks`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import slurm_trial
from hooks import HOOKS, KINDS, lines_for
from lib import OWN_MARK, StepError, ask_slurm, delay_s, log, must_run, on_node, owe, run, run_step, settle, write_file

SLURM_CONF = "/opt/slurm/etc/slurm.conf"
INCLUDED = "cdk-hyperpod.conf"
INCLUDE = f"Include {INCLUDED}"
LOCK = "/run/cdk-hyperpod-slurm-conf.lock"
HISTORY = "/var/lib/cdk-hyperpod/slurm_conf.json"
"""When we put our line back, in seconds since 1970."""
MOST_RESTORES, RESTORES_WITHIN_S = 5, 600
OTHER_CONFS = {"gres": "gres.conf", "cgroup": "cgroup.conf", "job_container": "job_container.conf"}
"""Slurm's other files that may get an included file."""
WHOLE = {"job_submit": "job_submit.lua"}
"""Files that are the user's as a whole. If one leaves the cluster file, it stays on the node and Slurm does not read it."""
PLUGINS: Mapping[str, Mapping[str, Any]] = {
    "job_container": {"JobContainerType": "job_container/tmpfs"},
    "job_submit": {"JobSubmitPlugins": ["lua"]},
}
"""By file: the settings of slurm.conf with which Slurm reads it. The user's own lines may have others."""
NEED_RESTART = (
    "AccountingStorageEnforce",
    "AccountingStorageTRES",
    "JobSubmitPlugins",
    "PreemptMode",
    "PreemptType",
    "PriorityType",
    "PriorityWeightQOS",
)
"""What slurmctld reads when it starts, and not at `scontrol reconfigure`. Jobs go on over either."""
RESTART, RECONFIGURE = "slurmctld-restart", "slurm-reconfigure"
"""What a change of our lines asks for (lib.settle)."""
EXCLUDES = {"PropagateResourceLimitsExcept": "PropagateResourceLimits"}
"""What Slurm takes only where the other one is not set."""
STARTS_LOOKS = 10
"""Looks at slurmctld after a restart, for five seconds."""
UNLESS_SET = ("PriorityWeightQOS",)
"""What we set only if neither slurm.conf nor the user's lines have it."""
TIMER = "cdk-hyperpod-slurm-conf.timer"
"""Runs this each minute while programs are pending."""


def included(slurm_conf: str, settings: Mapping[str, Any], own: str = "") -> str:
    """Our file: what slurm.conf has of each setting, and what we add, then the user's lines. The last line of a name is the one that
    counts."""
    has = values_of(slurm_conf)
    lines = [f"# {OWN_MARK}"]
    for name, wanted in sorted(settings.items()):
        if EXCLUDES.get(name, "").lower() in has:
            continue
        if isinstance(wanted, str):
            if name not in UNLESS_SET or name.lower() not in {*has, *values_of(own)}:
                lines.append(f"{name}={wanted}")
            continue
        old = [value for value in has.get(name.lower(), "").split(",") if value and value.lower() != "none"]
        known = {value.lower() for value in old}
        lines.append(f"{name}={','.join([*old, *(value for value in wanted if value.lower() not in known)])}")
    return "\n".join(lines) + "\n" + (f"{OWN_LINES}\n{own}" if own else "")


def own_in(text: str) -> str:
    """The user's lines in a text of our file."""
    return text.partition(f"{OWN_LINES}\n")[2]


OWN_LINES = "# From here on the lines of the file that slurm.conf.slurm names:"


def values_of(slurm_conf: str) -> dict[str, str]:
    """The settings of slurm.conf, names in lower case; of several the last."""
    lines = (line.split("#")[0].strip() for line in slurm_conf.splitlines())
    pairs = (line.split("=", 1) for line in lines if re.match(r"\w+\s*=", line))
    return {name.strip().lower(): value.strip() for name, value in pairs}


def with_include(slurm_conf: str, include: str = INCLUDE) -> str:
    """slurm.conf, or another of Slurm's files, with our line."""
    if any(line.strip().lower() == include.lower() for line in slurm_conf.splitlines()):
        return slurm_conf
    before = f"{slurm_conf.rstrip()}\n" if slurm_conf.strip() else ""
    return f"{before}# {OWN_MARK}\n{include}\n"


def included_name(conf: str) -> str:
    """The name of our file that a file of Slurm's includes."""
    return INCLUDED if conf == "slurm.conf" else f"cdk-hyperpod-{conf}"


def files_with(settings: Mapping[str, Any], own: Mapping[str, str], etc: Path) -> dict[str, str]:
    """Every file that includes lines of ours, and every included file, by name, as `keep` leaves them."""
    slurm_conf = _read(etc / "slurm.conf")
    for name in sorted(own):
        settings = {**settings, **PLUGINS.get(name, {})}
    files = {"slurm.conf": with_include(slurm_conf), INCLUDED: included(slurm_conf, settings, own.get("slurm", ""))}
    for name, conf in OTHER_CONFS.items():
        inner = included_name(conf)
        if own.get(name):
            files[conf] = with_include(_read(etc / conf), f"Include {inner}")
            files[inner] = f"# {OWN_MARK}\n{own[name]}"
        elif (etc / inner).exists():
            # Slurm may still include it.
            files[inner] = f"# {OWN_MARK}\n"
    files.update({file: own[name] for name, file in WHOLE.items() if own.get(name)})
    return files


def _read(file: Path) -> str:
    return file.read_text("utf-8", "replace") if file.is_file() else ""


def changed_names(old: str, new: str) -> frozenset[str]:
    """The settings that differ between two texts of our file."""
    before, after = values_of(old), values_of(new)
    return frozenset(name for name in {*before, *after} if before.get(name) != after.get(name))


def needs(before: Mapping[str, str], after: Mapping[str, str]) -> frozenset[str]:
    """What has to follow when files change from one content to another: a restart, a reconfigure."""
    if before == after:
        return frozenset()
    names = changed_names(before.get(INCLUDED, ""), after[INCLUDED])
    if before.get("slurm.conf") != after["slurm.conf"]:
        # HyperPod has written the file again, so slurmctld may have read it without our lines.
        names |= changed_names("", after[INCLUDED])
    mine_differ = own_in(before.get(INCLUDED, "")) != own_in(after[INCLUDED])
    others_differ = any(before.get(name) != after[name] for name in after if name not in ("slurm.conf", INCLUDED))
    found = set()
    if names & {name.lower() for name in NEED_RESTART} or mine_differ or others_differ:
        found.add(RESTART)
    if names or mine_differ or others_differ:
        found.add(RECONFIGURE)
    return frozenset(found)


def keep(settings: Mapping[str, Any], now: float, own: Mapping[str, str] | None = None) -> None:
    """Put our lines where they should be, and have Slurm read them when that changed something."""
    file = on_node(SLURM_CONF)
    if not file.is_file():
        raise StepError(f"there is no {SLURM_CONF} on this controller; HyperPod has not set Slurm up, or elsewhere")
    etc = file.parent
    after = files_with(settings, own or {}, etc)
    before = {name: _read(etc / name) for name in after}
    for action in sorted(needs(before, after)):
        owe(action)
    ours = [name for name in after if name.startswith("cdk-hyperpod") or name in WHOLE.values()]
    for name in ours:
        write_file(str(Path(SLURM_CONF).with_name(name)), after[name])
    _include({name: after[name] for name in after if name not in ours and before[name] != after[name]}, etc, now)
    restarted = settle(RESTART, _restart)
    # Also behind a restart, which the nodes' daemons do not notice: only this makes them fetch their files again.
    reconfigured = settle(RECONFIGURE, _reconfigure)
    if not restarted and not reconfigured:
        log("INFO", f"our lines are in {SLURM_CONF}")


def _include(theirs: Mapping[str, str], etc: Path, now: float) -> None:
    """Put our lines into files of others."""
    if theirs and not _may_restore(now):
        raise StepError(
            f"somebody takes our line out of {Path(SLURM_CONF).with_name(next(iter(theirs)))} again and again, so it stays "
            "out for now; find out who it is, or set lifecycle.steps.slurm_conf to false"
        )
    for name, content in theirs.items():
        _rewrite(etc / name, content)
        log("INFO", f"put `Include {included_name(name)}` into {Path(SLURM_CONF).with_name(name)}")


def _restart() -> None:
    # systemd does not start a unit that ended too often.
    run("systemctl", "reset-failed", "slurmctld.service")
    _tell(must_run, "systemctl", "restart", "slurmctld.service")
    _await_end()


def _await_end() -> None:
    """Raise StepError if slurmctld ends after its start, so that earlier lines can take the place of those that stopped it."""
    for _ in range(STARTS_LOOKS):
        said = run("systemctl", "show", "--property=ActiveState,SubState", "slurmctld.service").stdout
        if "=failed" in said or "=auto-restart" in said:
            journal = run("journalctl", "--unit=slurmctld.service", "--lines=50", "--output=cat", "--no-pager").stdout
            raise StepError(f"slurmctld ended after its start: {slurm_trial.reason_in(journal)}")
        time.sleep(min(0.5, delay_s()))


def _reconfigure() -> None:
    _tell(ask_slurm, "scontrol", "reconfigure")


def _tell(how: Callable[..., str], *command: str) -> None:
    try:
        how(*command)
    except StepError as error:
        raise StepError(f"our lines are in {SLURM_CONF}, but {error}; look at `journalctl -u slurmctld`") from error
    log("INFO", f"`{' '.join(command)}`, so that Slurm reads {INCLUDED}")


def _rewrite(file: Path, content: str) -> None:
    """The whole file or the old one, with its owner and mode."""
    found = (file if file.exists() else file.with_name("slurm.conf")).stat()
    temporary = file.with_name(f".{file.name}.cdk-hyperpod")
    temporary.write_text(content, "utf-8")
    temporary.chmod(found.st_mode & 0o7777)
    os.chown(temporary, found.st_uid, found.st_gid)
    temporary.replace(file)


def _may_restore(now: float) -> bool:
    history = on_node(HISTORY)
    times = json.loads(history.read_text("utf-8")) if history.is_file() else []
    recent = [moment for moment in times if now - RESTORES_WITHIN_S < moment <= now]
    if len(recent) >= MOST_RESTORES:
        return False
    write_file(HISTORY, json.dumps([*recent, now]) + "\n")
    return True


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process keeps our lines: the step, or systemd, which runs this program when slurm.conf was written."""
    file = on_node(LOCK)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def try_hooks(wanted: Mapping[str, Any]) -> tuple[str, str]:
    """Try the programs around jobs on an idle node, and on another one if they fail there: a node may be at fault."""
    kinds = [kind for kind in KINDS if wanted.get(kind)]
    script = slurm_trial.hooks_script(f"{HOOKS}/{wanted['folder']}", kinds)
    return slurm_trial.try_on_nodes(script, float(wanted["seconds"]), 2)


def has_one_prolog() -> bool:
    """Whether a second line of Prolog replaces the first, as on 22.05. Where there may be several, `scontrol` numbers them."""
    return re.search(r"^Prolog\s+=", ask_slurm("scontrol", "show", "config"), re.MULTILINE) is not None


def all_settings(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of slurm.conf, with the programs around jobs that were tried."""
    hooks = content.get("hooks")
    lines = lines_for(hooks["folder"], hooks, one_value=bool(content.get("one_prolog"))) if hooks else {}
    return {**content["settings"], **lines}


def after_trial(content: Mapping[str, Any], outcome: str) -> dict[str, Any]:
    """The settings file after a trial of what is pending: passed, failed or untried."""
    if outcome == "untried":
        return dict(content)
    rest = {name: value for name, value in content.items() if name != "pending"}
    return {**rest, "hooks": content["pending"]} if outcome == "passed" else rest


def settle_pending(content: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Try what is pending. Returns the new content of the settings file, and what to tell: empty if nothing went wrong."""
    if "pending" not in content:
        return dict(content), ""
    outcome, why = try_hooks(content["pending"])
    if outcome == "failed":
        stay = "the earlier ones stay" if content.get("hooks") else "jobs run without them"
        return after_trial(content, outcome), (
            f"slurm.prolog or slurm.epilog fails, so {stay}: {why}; correct the program, deploy, and run the step "
            "slurm_conf on all nodes"
        )
    if outcome == "untried":
        log("WARNING", f"slurm.prolog and slurm.epilog wait until one node has tried them: {why}")
    return after_trial(content, outcome), ""


def save(settings_file: str, content: Mapping[str, Any]) -> None:
    """Write the settings file, and run this program each minute while something is pending."""
    write_file(settings_file, json.dumps(content, sort_keys=True) + "\n")
    waits = "pending" in content
    if waits != (run("systemctl", "is-active", TIMER).returncode == 0):
        must_run("systemctl", *(("enable", "--quiet") if waits else ("disable", "--quiet")), "--now", TIMER)


def main(settings_file: str) -> None:
    """Keep what the file says."""
    with alone():
        _keep_file(settings_file)


def _keep_file(settings_file: str) -> None:
    content = json.loads(Path(settings_file).read_text("utf-8"))
    keep(all_settings(content), time.time(), content.get("own"))
    if "pending" not in content:
        return
    content, problem = settle_pending(content)
    save(settings_file, content)
    keep(all_settings(content), time.time(), content.get("own"))
    if problem:
        log("WARNING", problem)


if __name__ == "__main__":
    sys.exit(run_step(lambda: main(sys.argv[1])))
