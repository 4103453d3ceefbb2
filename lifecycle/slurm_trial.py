"""Try files of Slurm's configuration, and programs around jobs, before the cluster depends on them.

slurmctld starts with a copy of its folder: without the network, so that neither a node nor the database hears of it, and
with a state folder of its own. slurmd of one idle node reads its copy and ends. Programs run in a job of root's on one idle node.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

import closed
from lib import delay_s, last_line, log, on_node, one_line, run

SLURM_ETC = "/opt/slurm/etc"
WORK = "/var/lib/cdk-hyperpod"
STARTED = "Running as primary controller"
TRIAL_S = 30
NODE_TRIAL_S = 60
"""For a job to start and slurmd to read its files. Programs have their own seconds besides."""
SECRET_FILES = ("slurmdbd.conf",)
"""slurmctld does not read it, and it has the database's password."""
NOT_IN_A_TRIAL = re.compile(
    r"^\s*(AccountingStorage\w*|StateSaveLocation|SlurmctldPidFile|SlurmctldLogFile|SlurmSchedLogFile|SlurmctldSyslogDebug|"
    r"MailProg|SlurmctldPrimary\w*|(Suspend|Resume|ResumeFail|Reboot)Program)\s*=",
    re.IGNORECASE,
)
"""Settings that point to the real state, log or database, or that run programs without a job. A copy has no jobs, so it runs no
PrologSlurmctld and no EpilogSlurmctld."""
PROGRAMS = (
    *("PrologSlurmctld", "EpilogSlurmctld", "MailProg", "SlurmctldPrimaryOnProg", "SlurmctldPrimaryOffProg"),
    *("SuspendProgram", "ResumeProgram", "ResumeFailProgram"),
)
"""Settings that name a program on the controller."""
FILES = ("JobCompLoc", "SlurmctldLogFile", "SlurmSchedLogFile", "SlurmctldPidFile")
"""Settings that name a file on the controller, in a folder that must exist. JobCompLoc may be something else."""
NO_IDLE_NODE = "no compute node is idle"
LOOKS = 15
"""At nodes that have not answered yet."""
UNREADABLE = re.compile(r"Parsing error|unrecognized key|read/parse")
LIKELY = re.compile(r"unrecognized|cannot|couldn't|invalid|parsing|\.lua\b", re.IGNORECASE)
"""In the line that says why a daemon ends. Others are only warnings."""
FOLLOWS = re.compile(r"cannot create|callback failed")
"""In lines on a plug-in that does not load. What it said itself comes before."""
ENTER = """
set -e
ip link set lo up
for address in $ADDRESSES; do ip address add $address dev lo; done
# The lua plug-in looks for its file beside SLURM_CONF.
SLURM_CONF=$1 exec slurmctld -D -c -f "$1"
"""
SETTING = re.compile(r"(\w+)\s*=\s*(\S+)")
REFUSED, NOT_INSTALLED = 98, 99
"""Exit codes of a trial on a node."""


@dataclass(frozen=True)
class IdleNode:
    """A node that can run a trial."""

    name: str
    partition: str
    gres: str
    """As `sinfo` prints it: gpu:h100:8(S:0-1)."""

    @property
    def gres_option(self) -> list[str]:
        """What gives a job all GPUs of the node. --exclusive alone does not."""
        gres = re.sub(r"\([^)]*\)", "", self.gres)
        return [f"--gres={gres}"] if gres else []


# -- slurmctld, on a copy


def missing(settings: Mapping[str, str]) -> str | None:
    """The first program or folder of these settings that this controller has not. Names in lower case. None: all are there."""
    for name in PROGRAMS:
        value = settings.get(name.lower(), "").split(" ")[0]
        found = [on_node(value), *on_node("/").glob(value.lstrip("/"))] if value.startswith("/") else []
        if found and not any(path.is_file() and os.access(path, os.X_OK) for path in found):
            return f"{name}={value}: there is no such program on the controller, or it may not be executed"
    for name in FILES:
        value = settings.get(name.lower(), "")
        if value.startswith("/") and not on_node(value).parent.is_dir():
            return f"{name}={value}: there is no such folder on the controller"
    return None


def refusal(included: Mapping[str, str], user: str) -> str | None:
    """Why slurmctld does not start with these files in place of those that it has. None: it starts.

    `included`: the content of each file by its name, which must be included already, or by the name of a whole file.
    """
    problem = _try_slurmctld(included, user)
    if problem is None:
        return None
    if _try_slurmctld({}, user) is not None:
        return f"this controller cannot try files, since slurmctld does not start on a copy of the present ones either: {problem}"
    return problem


def _try_slurmctld(files: Mapping[str, str], user: str) -> str | None:
    folder = _work_folder()
    try:
        _lay_copy(folder, files)
        _give(folder, user)
        return _start(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def parse_refusal(files: Mapping[str, str]) -> str | None:
    """Why slurmd cannot read these files, asked on the controller. None: it can, or it lacks what only a compute node has."""
    names = run("sinfo", "--noheader", "--Node", "--format=%N", timeout_s=30).stdout.split()
    if not names:
        return None
    folder = _work_folder()
    try:
        _lay_copy(folder, files)
        said = run("slurmd", "-G", "-N", names[0], "-f", str(folder / "etc" / "slurm.conf")).stdout
        return f"slurmd cannot read them: {reason_in(said)}" if UNREADABLE.search(said) else None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _work_folder() -> Path:
    """A folder that root alone may enter. Those of trials that were killed are removed."""
    work = on_node(WORK)
    work.mkdir(parents=True, exist_ok=True)
    for left in work.glob("trial-*"):
        shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="trial-", dir=work))


def _lay_copy(folder: Path, files: Mapping[str, str]) -> None:
    ignored = shutil.ignore_patterns(*SECRET_FILES, ".*")
    shutil.copytree(on_node(SLURM_ETC), folder / "etc", ignore=ignored, ignore_dangling_symlinks=True)
    (folder / "state").mkdir()
    for name, content in files.items():
        (folder / "etc" / name).write_text(content, "utf-8")
    for file in (folder / "etc").glob("*.conf"):
        lines = file.read_text("utf-8", "replace").splitlines()
        file.write_text("\n".join(line for line in lines if not NOT_IN_A_TRIAL.match(line)) + "\n", "utf-8")
    with (folder / "etc" / "slurm.conf").open("a", encoding="utf-8") as slurm_conf:
        slurm_conf.write(
            f"StateSaveLocation={folder}/state\nSlurmctldPidFile={folder}/pid\nSlurmctldLogFile={folder}/log\n"
        )


def _give(folder: Path, user: str) -> None:
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, user)


def _start(folder: Path) -> str | None:
    addresses = run("hostname", "-I").stdout
    command = ["unshare", "--net", "env", f"ADDRESSES={' '.join(addresses.split())}", "bash", "-c", ENTER, "trial"]
    said = folder / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*command, str(folder / "etc" / "slurm.conf")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Of its own, so that what job_submit.lua has started ends with it.
            start_new_session=True,
        )
    try:
        return _await_start(process, [said, folder / "log"])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await_start(process: subprocess.Popen[bytes], logs: Sequence[Path]) -> str | None:
    deadline = time.monotonic() + TRIAL_S
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        text = "\n".join(log.read_text("utf-8", "replace") for log in logs if log.exists())
        if STARTED in text:
            return None
        if ended:
            return reason_in(text.replace(str(logs[0].parent / "etc"), SLURM_ETC))
        time.sleep(0.1)
    return f"it did not start within {TRIAL_S} s"


def reason_in(text: str) -> str:
    """What a daemon of Slurm's says before it ends: the fatal line, and the error that led to it."""
    own = [line for line in text.splitlines() if not line.startswith(("srun:", "slurmstepd:"))]
    lines = [re.sub(r"^(\[[^]]*\]\s*)?(slurm\w+:\s*)?", "", line) for line in own]
    told = [one_line(line) for line in lines if line.startswith(("error:", "fatal:"))]
    fatal = next((place for place, line in enumerate(told) if line.startswith("fatal:")), None)
    if fatal is None:
        return last_line("\n".join(own))
    before = [line for line in told[:fatal] if not FOLLOWS.search(line)] or told[:fatal]
    likely = [line for line in before if LIKELY.search(line)] or before
    return "; ".join([*likely[-1:], told[fatal]])[:400]


# -- one idle node


def idle_nodes(most: int) -> list[IdleNode]:
    """Some idle compute nodes. Waits a moment for those that have not answered slurmctld since it started."""
    found: dict[str, IdleNode] = {}
    for _ in range(LOOKS):
        said = run("sinfo", "--noheader", "--Node", "--format=%N|%R|%t|%G", timeout_s=30)
        rows = [line.split("|") for line in said.stdout.splitlines() if line.count("|") == 3]
        # HyperPod's dev has nodes that run no jobs.
        compute = [row for row in rows if row[1] != "dev"]
        # While the cluster is closed, idle nodes are reserved.
        free = ("idle", "maint", "resv") if closed.is_closed() else ("idle",)
        found = {name: IdleNode(name, partition, gres) for name, partition, state, gres in compute if state in free}
        if found or not any(state.endswith("*") or state == "unk" for _, _, state, _ in compute):
            break
        time.sleep(min(2.0, delay_s()))
    return [found[name] for name in sorted(found)][:most]


def on_a_node(node: IdleNode, script: str, seconds: float) -> tuple[int, str]:
    """Run a script as root in a job that has the whole node. Its exit code and its output. None to start: code 1 of srun."""
    done = run(
        "srun",
        "--quiet",
        f"--nodelist={node.name}",
        f"--partition={node.partition}",
        *node.gres_option,
        *([f"--reservation={closed.RESERVATION}"] if closed.is_closed() else []),
        "--nodes=1",
        "--ntasks=1",
        "--exclusive",
        "--mem=0",
        "--immediate=20",
        "--chdir=/",
        "--export=NONE",
        "--job-name=cdk-hyperpod-trial",
        f"--time={max(1, round((seconds + 59) // 60))}",
        "/bin/bash",
        "-s",
        stdin=script,
        timeout_s=seconds + 30,
    )
    return done.returncode, done.stdout


PATH = "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/opt/slurm/sbin"


BY_A_TRIAL = ("Prolog error", "Epilog error", "Kill task failed", "Job env setup error", "batch job complete failure")
"""The beginnings of Slurm's own reasons with which the job of a trial drains a node."""


def resume(node: IdleNode) -> None:
    """Resume a node that was idle before a trial and that Slurm drained in it. Waits until its Epilog has run."""
    shown = ""
    for _ in range(LOOKS):
        shown = run("scontrol", "--oneliner", "show", "node", node.name, timeout_s=30).stdout
        if not re.search(r" State=\S*(COMPLETING|ALLOCATED|MIXED)", shown):
            break
        time.sleep(min(1.0, delay_s()))
    else:
        log(
            "WARNING",
            f"the job of the trial does not end on the node {node.name}; look at `pgrep slurmstepd` there, and kill it",
        )
    reason = shown.partition(" Reason=")[2]
    if re.search(r" State=\S*DRAIN", shown) and reason.startswith(BY_A_TRIAL):
        run("scontrol", "update", f"nodename={node.name}", "state=resume")
        log("WARNING", f"the trial drained the node {node.name} ({reason.strip()[:200]}), so it is resumed")


def files_script(included: Mapping[str, str]) -> str:
    """A script for a node: slurmd reads a copy of its files with these in place, prints what GPUs it found, and ends."""
    return "\n".join(
        [
            PATH,
            *(
                f"[ -d {shlex.quote(folder)} ] || {{ echo BasePath={shlex.quote(folder)}: there is no such folder; exit {REFUSED}; }}"
                for folder in folders_of_jobs(included)
            ),
            "copy=$(mktemp -d) && trap 'rm -rf $copy' EXIT",
            'cp -rL "$(dirname "$(readlink -f "$SLURM_CONF")")/." $copy',
            *(f"base64 -d <<<{_encoded(content)} >$copy/{name}" for name, content in sorted(included.items())),
            f'slurmd -G -N "$SLURMD_NODENAME" -f $copy/slurm.conf || exit {REFUSED}',
        ]
    )


def folders_of_jobs(files: Mapping[str, str]) -> list[str]:
    """The folders that job_container.conf needs on every node and that Slurm does not make.

    They are looked at first: a slurmstepd of 24.11 that finds none may wait for itself for ever, and its node takes no jobs until
    somebody kills it.
    """
    text = "\n".join(content for name, content in files.items() if name.endswith("job_container.conf"))
    lines = (line.split("#")[0] for line in text.splitlines())
    found = [pair for line in lines if "nodename" not in line.lower() for pair in SETTING.findall(line)]
    values = {name.lower(): value for name, value in found}
    makes_them = values.get("autobasepath", "").lower() in ("true", "yes", "on", "1")
    if makes_them:
        return []
    # A value with % names another folder on each node.
    return [value for name, value in found if name.lower() == "basepath" and value.startswith("/") and "%" not in value]


def hooks_script(folder: str, kinds: Sequence[str]) -> str:
    """A script for a node: the programs around jobs, as slurmd would run them."""
    return "\n".join(
        [
            PATH,
            f"[ -d {shlex.quote(folder)} ] || exit {NOT_INSTALLED}",
            "export CDK_HYPERPOD_TRIAL=1 SLURM_JOB_GPUS=${SLURM_JOB_GPUS:-$SLURM_STEP_GPUS}",
            *(
                f"SLURM_SCRIPT_CONTEXT={kind}_slurmd {shlex.quote(folder)}/{kind}/run || exit {REFUSED}"
                for kind in kinds
            ),
        ]
    )


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def try_on_nodes(script: str, seconds: float, most: int) -> tuple[str, str]:
    """Run a script on one idle node, and on another if it fails there. Returns passed, failed or untried, and why."""
    why = NO_IDLE_NODE
    failed = ""
    for node in idle_nodes(most):
        log("INFO", f"trying it on the node {node.name}")
        code, said = on_a_node(node, script, seconds)
        resume(node)
        if code == 0:
            return "passed", node.name
        if code == REFUSED:
            failed = f"on the node {node.name}: {reason_in(said)}"
        elif code == NOT_INSTALLED:
            why = f"the node {node.name} does not have it yet"
        else:
            why = f"the trial on the node {node.name} did not run: {last_line(said)}"
    return ("failed", failed) if failed else ("untried", why)
