"""Rules of the files for Slurm that a cluster file names: lines of slurm.conf and other files, job_submit.lua, and programs around jobs.

These rules read the disk, so they run where a folder is known: for a cluster file, and for an upload. Source: slurm.conf(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..config.slurm import SlurmConfig, SlurmFiles
from ..errors import Finding
from ..typed.known import is_known
from ..typed.regular_file import opened_regular
from ..typed.words import show
from .own_scripts import NAME, is_leftover

CONFS = {
    "slurm": "slurm.conf",
    "gres": "gres.conf",
    "cgroup": "cgroup.conf",
    "job_container": "job_container.conf",
    "job_submit": "job_submit.lua",
}
"""The fields of SlurmFiles, each with the file of Slurm's."""
HOOKS = ("prolog", "epilog")
"""The settings that name a folder of programs."""
MAX_CONF_BYTES = 65_536
MAX_PROGRAMS = 20
MAX_PROGRAM_BYTES = 1_000_000

_HYPERPOD = "HyperPod sets it"
_REMOVE = "remove the line"
_OF_HYPERPOD = (
    # What HyperPod owns (SlurmConfigStrategy): its drift check stops updates.
    *("ClusterName", "SlurmctldHost", "PartitionName", "NodeName", "TaskPlugin", "SchedulerParameters"),
    # How the daemons find and trust each other, and where the controller keeps its state.
    *(
        "ControlMachine",
        "ControlAddr",
        "BackupController",
        "BackupAddr",
        "SlurmctldAddr",
        "SlurmctldPort",
        "SlurmdPort",
    ),
    *("SlurmUser", "SlurmdUser", "AuthType", "AuthInfo", "AuthAltTypes", "AuthAltParameters", "CredType"),
    *("StateSaveLocation", "SlurmdSpoolDir", "PluginDir", "PlugStackConfig", "SlurmctldParameters", "TopologyPlugin"),
    *("AccountingStorageType", "AccountingStorageHost", "AccountingStoragePort", "AccountingStorageBackupHost"),
    *("AccountingStorageUser", "AccountingStoragePass", "AccountingStorageLoc", "AccountingStorageExternalHost"),
)
_OURS = {
    "PrologFlags": ("the step access sets it", _REMOVE),
    "PropagateResourceLimits": ("the step system sets it", _REMOVE),
    "PropagateResourceLimitsExcept": ("the step system sets it", _REMOVE),
    "AccountingStorageEnforce": ("slurm.accounts sets it", _REMOVE),
    "AccountingStorageTRES": ("slurm.accounts sets it", "use grp_gpus of an account"),
    "Prolog": ("slurm.prolog sets it", "put the program into the folder of slurm.prolog"),
    "Epilog": ("slurm.epilog sets it", "put the program into the folder of slurm.epilog"),
    "PrologEpilogTimeout": ("slurm.hook_seconds limits each program", "use slurm.hook_seconds"),
    "BatchStartTimeout": ("slurm.prolog sets it", "use slurm.hook_seconds"),
    "PriorityType": ("slurm.qos sets it", "use priority of a QOS in slurm.qos"),
    "PreemptType": ("slurm.qos sets it", "use preempts of a QOS in slurm.qos"),
    "PreemptMode": ("slurm.qos sets it", "use preempts of a QOS in slurm.qos"),
}
_OF_PARTITIONS = (_HYPERPOD, "use slurm.partitions")
REFUSED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "slurm": {
        **dict.fromkeys(_OF_HYPERPOD, (_HYPERPOD, _REMOVE)),
        "PartitionName": _OF_PARTITIONS,
        **_OURS,
    },
    "gres": {},
    "cgroup": {},
    "job_container": {},
}
"""By file: the settings that cannot be in it, each with who sets it and what to do instead."""
LUA_FUNCTIONS = ("slurm_job_submit", "slurm_job_modify")
"""Slurm loads no job_submit.lua without them."""
LEAST_JOB_AGE = 300
"""Slurm's default. The drain agent reads in Slurm how its backups ended."""
_JOB_AGE = re.compile(r"(?:^|\s)MinJobAge\s*=\s*(\d+)", re.IGNORECASE)
_KEY = re.compile(r"(?:^|\s)([A-Za-z]\w*)\s*[-+*/]?=")
_QUOTED = re.compile(r'"[^"]*"')


def named_files(slurm: object, prefix: str = "slurm.") -> Iterator[tuple[str, str]]:
    """The files and folders that a cluster names: the path of the setting, and the name."""
    if not isinstance(slurm, SlurmConfig):
        return
    conf = slurm.conf if isinstance(slurm.conf, SlurmFiles) else SlurmFiles()
    named = [(f"conf.{name}", getattr(conf, name)) for name in CONFS] + [(kind, getattr(slurm, kind)) for kind in HOOKS]
    for path, name in named:
        if isinstance(name, str | Path) and is_known(str(name)):
            yield f"{prefix}{path}", str(name)


def check_slurm_files(slurm: object, base: Path, prefix: str = "slurm.") -> Iterator[Finding]:
    """Whether the files exist, and Slurm can use them. `base`: paths are relative to it. `prefix`: of the settings' paths."""
    for path, name in named_files(slurm, prefix):
        kind = path.removeprefix(prefix)
        if kind in HOOKS:
            yield from _check_programs(name, base, path)
        else:
            yield from _check_conf(kind.removeprefix("conf."), name, base, path)
        if kind == "conf.slurm" and isinstance(slurm, SlurmConfig) and slurm.drain is not None:
            yield from _check_job_age(name, base, path)


def programs(folder: Path) -> list[Path]:
    """The programs of a folder, in their order. Hidden files are none."""
    return [entry for entry in sorted(folder.iterdir()) if not is_leftover(entry.name)]


# -- lines


def _check_conf(name: str, file: str, base: Path, path: str) -> Iterator[Finding]:
    try:
        with opened_regular(base / file) as opened:
            content = opened.read(MAX_CONF_BYTES + 1)
    except OSError as error:
        reason = error.strerror
        yield Finding(
            code="slurm-file-unreadable",
            path=path,
            problem=f"{show(file)} cannot be read ({reason})",
            remedy="name a file with lines of Slurm's, relative to this file",
        )
        return
    if len(content) > MAX_CONF_BYTES:
        yield Finding(
            code="slurm-file-too-large",
            path=path,
            problem=f"{show(file)} has more than {MAX_CONF_BYTES:,} bytes",
            remedy="name a file with lines of Slurm's, which is smaller",
        )
        return
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or "\r" in text:
        yield Finding(
            code="slurm-file-not-text",
            path=path,
            problem=f"{show(file)} is not text in UTF-8 with the line ends of Linux",
            remedy="save it as such",
        )
        return
    if name in REFUSED:
        for number, line in _lines(text):
            yield from _check_line(name, line, f"line {number} of {show(file)}", path)
    else:
        yield from _check_lua(text, file, path)


def _check_lua(text: str, file: str, path: str) -> Iterator[Finding]:
    for function in LUA_FUNCTIONS:
        if function not in text:
            yield Finding(
                code="slurm-lua-function-missing",
                path=path,
                problem=f"{show(file)} has no function {function}, without which Slurm does not load it",
                remedy="add one that returns slurm.SUCCESS",
            )


def _check_job_age(file: str, base: Path, path: str) -> Iterator[Finding]:
    if not (base / file).is_file():
        return
    for number, line in _lines((base / file).read_bytes().decode("utf-8", "replace")):
        found = _JOB_AGE.search(line)
        seconds = int(found[1]) if found else LEAST_JOB_AGE
        if seconds < LEAST_JOB_AGE:
            yield Finding(
                code="slurm-job-age-too-short",
                path=path,
                problem=f"line {number} of {show(file)} sets MinJobAge to {seconds}, which is too short for the drain agent",
                remedy=f"set it to {LEAST_JOB_AGE} or more, or remove the line",
            )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with a setting, each with its number. A backslash at the end continues a line."""
    whole, begins = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        begins = begins if whole else number
        whole += line.split("#")[0].rstrip()
        if whole.endswith("\\"):
            whole = f"{whole[:-1]} "
            continue
        if whole.strip():
            yield begins, whole.strip()
        whole = ""
    if whole.strip():
        yield begins, whole.strip()


def _check_line(name: str, line: str, where: str, path: str) -> Iterator[Finding]:
    refused = {key.lower(): (key, *why) for key, why in REFUSED[name].items()}
    keys = _KEY.findall(_QUOTED.sub("", line))
    if line.split()[0].lower() == "include":
        yield Finding(
            code="slurm-line-include",
            path=path,
            problem=f"{where} includes another file, which is not uploaded",
            remedy="write the lines themselves into this file",
        )
    elif not keys or not _KEY.match(line):
        yield Finding(
            code="slurm-line-invalid",
            path=path,
            problem=f"{where} is not a setting",
            remedy="write it as Name=value",
        )
    for key in dict.fromkeys(key.lower() for key in keys):
        if key in refused:
            shown, who, remedy = refused[key]
            yield Finding(
                code="slurm-line-refused",
                path=path,
                problem=f"{where} sets {shown}, but {who}",
                remedy=f"{remedy}",
            )


# -- programs


def _check_programs(name: str, base: Path, path: str) -> Iterator[Finding]:
    try:
        entries = programs(base / name)
        for entry in entries:
            yield from _check_program(entry, f"{name}/{entry.name}", path)
    except OSError as error:
        reason = error.strerror
        yield Finding(
            code="hooks-unreadable",
            path=path,
            problem=f"{show(name)} cannot be read ({reason})",
            remedy="name a readable folder of programs, relative to this file",
        )
        return
    if not 1 <= len(entries) <= MAX_PROGRAMS:
        yield Finding(
            code="hooks-wrong-number",
            path=path,
            problem=f"{show(name)} has {len(entries)} programs",
            remedy=f"put 1 to {MAX_PROGRAMS} into it, or remove the setting",
        )


def _check_program(entry: Path, name: str, path: str) -> Iterator[Finding]:
    if not NAME.fullmatch(entry.name):
        yield Finding(
            code="hook-name-invalid",
            path=path,
            problem=f"{show(name)} is not a valid name of a program",
            remedy="use letters, digits and ._+-, and begin with a letter or digit",
        )
    if not entry.is_file():
        yield Finding(
            code="hook-not-a-file",
            path=path,
            problem=f"{show(name)} is not a file",
            remedy="put the programs into the folder itself",
        )
        return
    if entry.stat().st_size > MAX_PROGRAM_BYTES:
        yield Finding(
            code="hook-too-large",
            path=path,
            problem=f"{show(name)} has more than {MAX_PROGRAM_BYTES:,} bytes",
            remedy="keep large files on the shared file system or in the image",
        )
        return
    content = entry.read_bytes()
    first = content.split(b"\n", 1)[0]
    if not content.startswith((b"#!/", b"\x7fELF")):
        yield Finding(
            code="hook-without-interpreter",
            path=path,
            problem=f"{show(name)} does not begin with the interpreter that runs it",
            remedy="begin it with a line such as #!/bin/bash",
        )
    elif first.startswith(b"#!") and first.endswith(b"\r"):
        yield Finding(
            code="hook-with-carriage-returns",
            path=path,
            problem=f"{show(name)} has the line ends of Windows, and Linux finds no interpreter of that name",
            remedy="save it with the line ends of Linux",
        )
