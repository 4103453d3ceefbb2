#!/usr/bin/env python3
"""Keep our lines in slurm.conf, which HyperPod owns and writes again. Usage: slurm_conf.py SETTINGS_FILE.

Our lines stand in one included file beside slurm.conf; of slurm.conf itself, one line is ours, the last, that includes
it. Step slurm_conf runs this, and a systemd path unit does, whenever slurm.conf was written. It writes only what
differs, so its own writing ends there; where somebody keeps taking the line out, it gives up for ten minutes.

SETTINGS_FILE says what we want: {"PrologFlags": ["Contain"]}. A list is added to what slurm.conf has.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lib import OWN_MARK, StepError, ask_slurm, log, must_run, on_node, owe, run_step, settle, write_file

SLURM_CONF = "/opt/slurm/etc/slurm.conf"
INCLUDED = "cdk-hyperpod.conf"
INCLUDE = f"Include {INCLUDED}"
HISTORY = "/var/lib/cdk-hyperpod/slurm_conf.json"
"""When we put our line back, in seconds since 1970."""
MOST_RESTORES, RESTORES_WITHIN_S = 5, 600
NEED_RESTART = ("AccountingStorageEnforce", "AccountingStorageTRES")
"""What slurmctld reads when it starts, and not at `scontrol reconfigure`. Jobs go on over either."""
RESTART, RECONFIGURE = "slurmctld-restart", "slurm-reconfigure"
"""What a change of our lines asks for (lib.settle)."""
EXCLUDES = {"PropagateResourceLimitsExcept": "PropagateResourceLimits"}
"""What Slurm takes only where the other one is not set."""


def included(slurm_conf: str, settings: Mapping[str, Sequence[str]]) -> str:
    """Our file: what slurm.conf has of each setting, and what we add. The last line of a name is the one that counts."""
    has = values_of(slurm_conf)
    lines = [f"# {OWN_MARK}"]
    for name, wanted in sorted(settings.items()):
        if EXCLUDES.get(name, "").lower() in has:
            continue
        old = [value for value in has.get(name.lower(), "").split(",") if value and value.lower() != "none"]
        known = {value.lower() for value in old}
        lines.append(f"{name}={','.join([*old, *(value for value in wanted if value.lower() not in known)])}")
    return "\n".join(lines) + "\n"


def values_of(slurm_conf: str) -> dict[str, str]:
    """The settings of slurm.conf, names in lower case; of several the last."""
    lines = (line.split("#")[0].strip() for line in slurm_conf.splitlines())
    pairs = (line.split("=", 1) for line in lines if re.match(r"\w+\s*=", line))
    return {name.strip().lower(): value.strip() for name, value in pairs}


def with_include(slurm_conf: str) -> str:
    """slurm.conf with our line."""
    if any(line.strip().lower() == INCLUDE.lower() for line in slurm_conf.splitlines()):
        return slurm_conf
    return slurm_conf.rstrip("\n") + f"\n# {OWN_MARK}\n{INCLUDE}\n"


def changed_names(old: str, new: str) -> frozenset[str]:
    """The settings that differ between two texts of our file."""
    before, after = values_of(old), values_of(new)
    return frozenset(name for name in {*before, *after} if before.get(name) != after.get(name))


def keep(settings: Mapping[str, Sequence[str]], now: float) -> None:
    """Put our lines where they should be, and have Slurm read them when that changed something."""
    file = on_node(SLURM_CONF)
    if not file.is_file():
        raise StepError(f"there is no {SLURM_CONF} on this controller; HyperPod has not set Slurm up, or elsewhere")
    text = file.read_text("utf-8", "replace")
    own = file.with_name(INCLUDED)
    before = own.read_text("utf-8", "replace") if own.is_file() else ""
    after = included(text, settings)
    whole = with_include(text)
    changed = changed_names(before, after) | (changed_names("", after) if whole != text else frozenset())
    if changed & {name.lower() for name in NEED_RESTART}:
        owe(RESTART)
    if changed:
        owe(RECONFIGURE)
    write_file(str(Path(SLURM_CONF).with_name(INCLUDED)), after)
    if whole != text:
        if not _may_restore(now):
            raise StepError(
                f"somebody takes our line out of {SLURM_CONF} again and again, so it stays out for now; find out "
                "who it is, or set lifecycle.steps.slurm_conf to false"
            )
        _rewrite(file, whole)
        log("INFO", f"put `{INCLUDE}` into {SLURM_CONF}")
    restarted = settle(RESTART, _restart)
    # Also behind a restart, which the nodes' daemons do not notice: only this makes them fetch their files again.
    reconfigured = settle(RECONFIGURE, _reconfigure)
    if not restarted and not reconfigured:
        log("INFO", f"our lines are in {SLURM_CONF}")


def _restart() -> None:
    _tell(must_run, "systemctl", "restart", "slurmctld.service")


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
    found = file.stat()
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


def main(settings_file: str) -> None:
    """Keep what the file says."""
    keep(json.loads(Path(settings_file).read_text("utf-8")), time.time())


if __name__ == "__main__":
    sys.exit(run_step(lambda: main(sys.argv[1])))
