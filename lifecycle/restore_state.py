"""Lay the copy of a controller's state back on a new controller, before slurmctld takes jobs.

While this works, HyperPod's slurmctld cannot start. Another one starts first, with the restored state and all partitions down, and
meets the nodes: what they say decides which jobs are held. Then the usual one starts. If anything fails, the controller goes on with
the state that it had.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from closed import close
from controller_state import (
    ARCHIVE,
    IDS,
    RESTORED,
    SLURM_CONF,
    STATE,
    STATE_FILES,
    USERS_FILES,
    Copy,
    Folder,
    Unusable,
    alone,
    identity,
    next_job_id,
    parse_copy,
    slurm_settings,
    slurm_version,
    state_folder,
    take_over,
    why_not,
)
from lib import (
    StepError,
    install_unit,
    last_line,
    log,
    must_run,
    on_node,
    one_line,
    run,
    write_file,
)
from restored_accounting import restore_accounting
from restored_jobs import ACTIVE, hold, named, note_unsure, queue, ran_in, reason_to_hold, settle, silent_nodes, started

UNIT = "cdk-hyperpod-restore"
"""The transient unit of the slurmctld that meets the nodes."""
RUNNING = "/run/cdk-hyperpod-restoring"
"""Exists while the usual slurmctld must not start. It has the name of the copy that is restored."""
NOT_NOW = f"[Unit]\nConditionPathExists=!{RUNNING}\n"
CONF = "/run/cdk-hyperpod-restore"
NEW, BEFORE = ".cdk-hyperpod-new", ".cdk-hyperpod-before"
"""In StateSaveLocation: the files of the copy, and those that were there."""
STEPS_OF_IDS = 10_000
"""New ids begin at a multiple of this. Slurm keeps at most as many jobs, unless MaxJobCount says otherwise."""
MOST_HOURS = 100
"""A copy that is much older is of a cluster that was off or deleted, and gave out no ids."""
MAX_JOB_ID = 67_043_328
START_S, MEET_S = 60, 8
SLURMCTLD_LOG = "/var/log/slurm/slurmctld.log"


def first_id(last: int, evidence: Sequence[int], age_s: float, most_ids: int = MAX_JOB_ID) -> int | None:
    """The first new job id: no id that may have been given out since the copy. None: there is no room, so Slurm goes on by itself."""
    hours = 1 + min(MOST_HOURS, max(0, math.floor(age_s / 3600)))
    above = max([last, *evidence]) + STEPS_OF_IDS * hours
    first = math.ceil(above / STEPS_OF_IDS) * STEPS_OF_IDS
    return first if first < most_ids else None


def _take_first_id(folder: Folder, given: Sequence[int], age_s: float, settings: Mapping[str, str]) -> int | None:
    """The first new job id above all that the folder names or that are known otherwise. The folder then names this one, too."""
    named_ids = [about["last_job_id"] for about in folder.names() if isinstance(about.get("last_job_id"), int)]
    most = settings.get("maxjobid", "")
    # slurmctld does not start with a FirstJobId above its MaxJobId.
    first = first_id(0, [*given, *named_ids], age_s, int(most) if most.isdigit() else MAX_JOB_ID)
    if first is not None:
        with contextlib.suppress(OSError):
            folder.write(IDS, {"last_job_id": first, "time": round(time.time())})
    return first


def choose(
    folder: Folder, own: Mapping[str, str], version: str, by_hand: str = ""
) -> tuple[Copy, dict[str, Any]] | None:
    """The copy to restore, with its manifest. None: there is none. Raises Unusable."""
    copies = folder.copies(STATE)
    if by_hand:
        copies = [_named(by_hand, copies, folder)]
    last = parse_copy(str(folder.read("last.json").get("state", "")))
    if not copies and last is None:
        return None
    if last is not None and not by_hand and (not copies or copies[0].order < last.order):
        newest = f"{copies[0].name} is older than" if copies else "there is no copy, and there was"
        raise Unusable(f"{newest} {last.name}, which was the last one and is not there any more")
    return _usable(folder, copies, own, version)


def _named(name: str, copies: Sequence[Copy], folder: Folder) -> Copy:
    wanted = parse_copy(name)
    if wanted is None or wanted not in copies:
        raise Unusable(
            f"{folder.path} has no copy {one_line(name)[:60]}; it has {', '.join(copy.name for copy in copies) or 'none'}"
        )
    return wanted


def _usable(
    folder: Folder, copies: Sequence[Copy], own: Mapping[str, str], version: str
) -> tuple[Copy, dict[str, Any]]:
    """The first copy that can be read, with its manifest. Raises Unusable if it may not be used."""
    refused: list[str] = []
    for copy in copies:
        try:
            manifest = folder.manifest(copy)
        except Unusable as error:
            refused.append(str(error))
            continue
        reason = why_not(manifest, own, version)
        if reason is not None:
            # An older one would be of the same cluster or Slurm, or of a time before them.
            raise Unusable("; ".join([*refused, f"{copy.name} is not used: {reason}"]))
        if refused:
            log("WARNING", f"{'; '.join(refused)}; an older copy is used: {copy.name}")
        return copy, manifest
    raise Unusable("; ".join(refused))


# -- the whole


def restore(path: str, by_hand: str = "", *, closes: bool = False) -> None:
    """Give this controller the state of the last copy, if it is new, or of the copy that somebody names.

    `closes`: waiting jobs start only after the step slurm_conf, which opens the cluster.
    """
    if by_hand or not on_node(RESTORED).exists():
        _alone(partial(_restore, path, by_hand, closes=closes))


def end_killed(*, starts: bool) -> None:
    """End what a restore that was killed has left: the controller's own state is back, and slurmctld may start.

    `starts`: no later step starts it. It must not meet the nodes before the next restore.
    """
    state = state_folder(slurm_settings())
    if any(path.exists() for path in (on_node(RUNNING), *_left_in(state))):
        _alone(partial(_end_killed, state, starts=starts))


def _alone(work: Callable[[], None]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with alone() as first:
            if first:
                work()
                return
        if time.monotonic() > deadline:
            raise StepError(
                "the controller's state is being copied, which does not end; look at cdk-hyperpod-state.service"
            )
        time.sleep(1)


def _end_killed(state: Path, *, starts: bool) -> None:
    log("WARNING", "a restore of the controller's state was killed; it is undone, unless it had come to its end")
    marker = on_node(RUNNING)
    starts = starts or run("systemctl", "is-active", "slurmctld.service").returncode == 0
    must_run("systemctl", "stop", "slurmctld.service")
    if not _is_restored(marker.read_text("utf-8") if marker.exists() else ""):
        heal(state)
    for path in _left_in(state):
        shutil.rmtree(path, ignore_errors=True)
    if marker.exists():
        marker.unlink()
    if starts:
        must_run("systemctl", "start", "slurmctld.service")


def _left_in(state: Path) -> tuple[Path, ...]:
    return (state / BEFORE, state / f"{BEFORE}.part", state / NEW)


def _is_restored(name: str) -> bool:
    try:
        return bool(name) and json.loads(on_node(RESTORED).read_text("utf-8"))["copy"] == name
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _restore(path: str, by_hand: str, *, closes: bool) -> None:
    folder = Folder(path)
    try:
        try:
            take_over(folder)
        except OSError as error:
            # It can be read all the same. The timer takes it over later.
            log("WARNING", f"{path} cannot be written: {error.strerror}")
        settings = slurm_settings()
        try:
            _restore_chosen(folder, settings, by_hand, closes=closes)
        except (StepError, OSError):
            if not by_hand:
                try:
                    _begin_ids_above(folder, settings, closes=closes)
                except (StepError, OSError) as error:
                    log("WARNING", f"new job ids may begin at 1, and new jobs may overwrite output files: {error}")
            raise
    finally:
        folder.close()


def _restore_chosen(folder: Folder, settings: Mapping[str, str], by_hand: str, *, closes: bool) -> None:
    found = choose(folder, identity(settings), slurm_version(), by_hand)
    if found is None:
        log("INFO", f"{folder.path} has no copy of a controller's state: this is the cluster's first controller")
        _restored("")
        return
    copy, manifest = found
    if not by_hand and next_job_id(state_folder(settings)) >= int(manifest.get("last_job_id", 0)) > 1:
        log("WARNING", f"this controller has given out more job ids than {copy.name}: it keeps its own state")
        _restored("")
        return
    log("INFO", f"restoring {copy.name}, which is {round(time.time() - manifest['time'])} s old")
    _Restore(folder, settings, copy, manifest, closes=closes).run()


def _begin_ids_above(folder: Folder, settings: Mapping[str, str], *, closes: bool) -> None:
    """Begin new job ids above those that any copy names, if none can be used: ids from 1 would overwrite users' output files."""
    known = [about for about in folder.names() if isinstance(about.get("last_job_id"), int)]
    last = max((about["last_job_id"] for about in known), default=0)
    state = state_folder(settings)
    if last <= next_job_id(state):
        return
    age_s = time.time() - max(float(about.get("time", 0)) for about in known)
    first = _take_first_id(folder, [last], age_s, settings)
    if first is None:
        raise StepError(f"the copies name job {last}, and Slurm's ids end soon after it")
    with _usual_slurmctld_off():
        # It takes FirstJobId over into its state only if there is one. So the first start may make that.
        for _ in range(2):
            if next_job_id(state) <= last:
                with _other_slurmctld(first):
                    if closes:
                        close()
    log("WARNING", f"no copy can be used; new job ids begin at {first}, above those that the copies name")


@contextlib.contextmanager
def _usual_slurmctld_off(copy: str = "") -> Iterator[None]:
    """Keep the usual slurmctld from starting. `copy`: the name of the copy that is restored meanwhile."""
    install_unit("slurmctld.service.d/cdk-hyperpod-restore.conf", NOT_NOW)
    on_node(RUNNING).write_text(copy, "utf-8")
    try:
        must_run("systemctl", "stop", "slurmctld.service")
        yield
    finally:
        on_node(RUNNING).unlink()
        run("systemctl", "reset-failed", "slurmctld.service")
        must_run("systemctl", "start", "slurmctld.service")


def _restored(name: str, partitions: Mapping[str, str] | None = None) -> None:
    write_file(
        RESTORED,
        json.dumps({"copy": name, "time": round(time.time()), "partitions": partitions or {}}) + "\n",
        mode=0o600,
    )


class _Restore:
    def __init__(
        self, folder: Folder, settings: Mapping[str, str], copy: Copy, manifest: Mapping[str, Any], *, closes: bool
    ) -> None:
        self.folder, self.settings, self.copy, self.manifest, self.closes = folder, settings, copy, manifest, closes
        self.state = state_folder(settings)
        self.new, self.before = self.state / NEW, self.state / BEFORE
        self.user = settings.get("slurmuser", "root")
        self.log = on_node(settings.get("slurmctldlogfile", SLURMCTLD_LOG))

    def run(self) -> None:
        """All of it, with one outage of slurmctld."""
        try:
            self._unpack()
            has_history = restore_accounting(self.folder, self.settings)
            if not has_history:
                # slurmctld does not start with another id than the database's, and a new database has another one.
                with contextlib.suppress(FileNotFoundError):
                    (self.new / "clustername").unlink()
            early = self._jobs_of_before()
            given = [
                number for number in (*early, next_job_id(self.state), next_job_id(self.new)) if number < MAX_JOB_ID
            ]
            age_s = time.time() - float(self.manifest["time"])
            first = _take_first_id(self.folder, given, age_s, self.settings)
            if on_node(RESTORED).exists():
                # Chosen by hand. Until this one is restored, none is.
                _restored("")
            with _usual_slurmctld_off(self.copy.name):
                held_back = self._start_with_it(early, first)
        finally:
            shutil.rmtree(self.new, ignore_errors=True)
        shutil.rmtree(self.before, ignore_errors=True)
        hold_count = f", {held_back} jobs are held" if held_back else ""
        log(
            "INFO",
            f"the controller's state is back, as of {time.strftime('%H:%M:%S UTC', time.gmtime(self.manifest['time']))}{hold_count}",
        )

    def _start_with_it(self, early: frozenset[int], first: int | None) -> int:
        try:
            self._swap()
            held_back = self._meet(early, first)
            _restored(self.copy.name, self.manifest.get("partitions"))
        except (StepError, OSError) as error:
            heal(self.state)
            raise Unusable(f"{self.copy.name} is not used, and the controller goes on without it: {error}") from error
        return held_back

    # -- files

    def _unpack(self) -> None:
        self.new.mkdir(mode=0o700)
        try:
            with self.folder.open(f"{self.copy.name}/{ARCHIVE}") as file, tarfile.open(
                fileobj=file, mode="r|", ignore_zeros=True
            ) as archive:
                for member in archive:
                    _unpack_one(archive, member, self.new)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise Unusable(f"{self.copy.name} cannot be unpacked to {self.state}: {one_line(error)}") from error
        for each in (self.new, *self.new.rglob("*")):
            shutil.chown(each, self.user)
            each.chmod(0o700 if each.is_dir() else 0o600)

    def _swap(self) -> None:
        """Put the new files in the place of those that are there, which stay beside them until all is well."""
        part = self.state / f"{BEFORE}.part"
        part.mkdir(mode=0o700)
        for each in _files_of(self.state):
            # A key is not copied. What the image or HyperPod laid here stays.
            if each.suffix != ".key":
                each.rename(part / each.name)
        part.rename(self.before)
        for each in sorted(self.new.iterdir()):
            each.rename(self.state / each.name)

    def _jobs_of_before(self) -> frozenset[int]:
        """What the slurmctld without the state logged of the nodes' jobs. It has ended them."""
        mine = run("squeue", "--all", "--noheader", "--format=%A", timeout_s=20)
        if mine.returncode == 0 and mine.stdout.split():
            log(
                "WARNING",
                f"submitted before the state was back, and lost: jobs {named({int(word) for word in mine.stdout.split() if word.isdigit()})}",
            )
        return ran_in(self.log.read_text("utf-8", "replace")) if self.log.is_file() else frozenset()

    # -- the nodes

    def _meet(self, early: frozenset[int], first: int | None) -> int:
        """Start slurmctld with all partitions down, and hold what may have run. Returns how many jobs are held."""
        seen = self.log.stat().st_size if self.log.is_file() else 0
        with _other_slurmctld(first):
            jobs = queue()
            ran = early | self._await_nodes(seen)
            now = queue()
            known = frozenset(job.id for job in jobs) | frozenset(job.array for job in jobs)
            active = {job.id for job in jobs if job.state in ACTIVE}
            lost = sorted(ran - known)
            if lost:
                log(
                    "WARNING", f"started after the last copy, and ended by Slurm: jobs {named(lost)}; submit them again"
                )
            ran |= started(now, float(self.manifest["time"]))
            reasons = {job.id: reason_to_hold(job, ran, known) for job in now if job.id not in active}
            found = {number: reason for number, reason in reasons.items() if reason is not None}
            hold(found)
            note_unsure(settle(frozenset(active), ran))
            if self.closes:
                # The usual slurmctld starts jobs at once, and slurm.conf does not have our lines yet.
                close()
        return len(found)

    def _await_nodes(self, seen: int) -> frozenset[int]:
        """What the nodes say of their jobs, once all that answer have."""
        deadline = time.monotonic() + MEET_S
        while silent_nodes() and time.monotonic() < deadline:
            time.sleep(0.3)
        with self.log.open("rb") as file:
            file.seek(seen)
            return ran_in(file.read().decode("utf-8", "replace"))


@contextlib.contextmanager
def _other_slurmctld(first: int | None) -> Iterator[None]:
    conf = on_node(CONF)
    run("systemctl", "stop", f"{UNIT}.service")
    shutil.rmtree(conf, ignore_errors=True)
    must_run("cp", "-aL", str(on_node(SLURM_CONF).parent), str(conf))
    for name in ("slurmdbd.conf",):
        with contextlib.suppress(FileNotFoundError):
            (conf / name).unlink()
    for file in conf.glob("*.conf"):
        file.write_text(_with_partitions_down(file.read_text("utf-8", "replace")), "utf-8")
    if first is not None:
        with (conf / "slurm.conf").open("a", encoding="utf-8") as slurm_conf:
            slurm_conf.write(f"\nFirstJobId={first}\n")
    program = shutil.which("slurmctld") or "/opt/slurm/sbin/slurmctld"
    run("systemctl", "reset-failed", f"{UNIT}.service")
    must_run(
        "systemd-run",
        f"--unit={UNIT}",
        "--collect",
        "--quiet",
        "--property=LimitNOFILE=65536",
        program,
        "-D",
        "-f",
        str(conf / "slurm.conf"),
    )
    try:
        _await_slurmctld()
        yield
        # It writes its state when it ends.
        must_run("systemctl", "stop", f"{UNIT}.service")
    finally:
        run("systemctl", "stop", f"{UNIT}.service")
        shutil.rmtree(conf, ignore_errors=True)


def _with_partitions_down(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if re.match(r"\s*FirstJobId\s*=", line, re.IGNORECASE):
            continue
        if re.match(r"\s*PartitionName\s*=", line, re.IGNORECASE):
            line = re.sub(r"\sState\s*=\s*\w+", "", line.split("#")[0], flags=re.IGNORECASE) + " State=DOWN"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _unpack_one(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.isdir():
        return
    parts = member.name.split("/")
    known = STATE_FILES.fullmatch(member.name) or USERS_FILES.fullmatch(member.name)
    if not member.isreg() or not known or ".." in parts:
        raise Unusable(f"the archive has {one_line(member.name)[:80]}, which is no part of a state")
    path = target.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = archive.extractfile(member)
    assert content is not None
    with path.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)


def _files_of(state: Path) -> list[Path]:
    return [each for each in sorted(state.iterdir()) if not each.name.startswith(NEW.rpartition("-")[0])]


def heal(state: Path) -> None:
    """End what a restore that was killed or failed has begun: the state is again what it was before."""
    run("systemctl", "stop", f"{UNIT}.service")
    before, part = state / BEFORE, state / f"{BEFORE}.part"
    if before.exists():
        for each in _files_of(state):
            if each.suffix != ".key":
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        before.rename(part)
    if part.exists():
        for each in sorted(part.iterdir()):
            each.rename(state / each.name)
        part.rmdir()
        # The accounting database may be that of the copy by now, with another id of the cluster. slurmctld asks it.
        with contextlib.suppress(FileNotFoundError):
            (state / "clustername").unlink()
    shutil.rmtree(state / NEW, ignore_errors=True)


def _await_slurmctld() -> None:
    deadline = time.monotonic() + START_S
    while "is UP" not in run("scontrol", "ping", timeout_s=20).stdout:
        active = (
            run("systemctl", "show", "--property=ActiveState", f"{UNIT}.service").stdout.strip().endswith("=active")
        )
        if not active or time.monotonic() > deadline:
            raise StepError("slurmctld does not start with this state: " + _fatal())
        time.sleep(0.2)


def _fatal() -> str:
    said = run("journalctl", "--no-pager", "--output=cat", "--lines=50", f"--unit={UNIT}.service").stdout
    lines = [line for line in said.splitlines() if "fatal" in line or "error" in line]
    return last_line(lines[-1] if lines else said)
