"""Copies of the controller's state: which are made, which are used, and which jobs of a restored one are held."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import struct
import subprocess
import sys
import tarfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest

from helpers.lifecycle.programs import load

step = load("steps/17_keep_state.py")
restore, state, keep, jobs = (
    sys.modules[name] for name in ("restore_state", "controller_state", "keep_state", "restored_jobs")
)

OWN = {"cluster": "llm-train", "arn": "abcdefghijkl"}
ABOUT = {"schema": 1, **OWN, "slurm": "24.11.5", "time": 1_700_000_000}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path))
    (tmp_path / "fsx").mkdir(mode=0o755)
    return tmp_path


@pytest.fixture
def folder(root: Path) -> Iterator[Any]:
    found = state.Folder("/fsx/.copies/llm-train")
    yield found
    found.close()


def add(folder: Any, number: int, epoch: int = 1, **more: object) -> Any:
    copy = state.Copy("state", epoch, number)
    folder.add(copy, {**ABOUT, **more}, lambda file: file.write(b"archive"))
    return copy


def test_a_copy_is_root_s_alone_and_nothing_is_left_of_one_that_fails(folder: Any) -> None:
    copy = add(folder, 1)
    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in [folder.root / copy.name, *(folder.root / copy.name).iterdir()]
    }
    assert modes == {copy.name: 0o700, "archive": 0o600, "manifest.json": 0o600}

    def full(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        folder.add(state.Copy("state", 1, 2), ABOUT, full)
    assert os.listdir(folder.root) == [copy.name]
    assert restore.choose(folder, OWN, "24.11.5")[0] == copy, "the older copy is used"


FOLDER = "/fsx/.copies/llm-train"


@pytest.fixture
def tmpfs(root: Path) -> Iterator[Path]:
    """A shared file system of 64 kB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    fsx = root / "fsx"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", fsx], check=True)
    yield fsx
    subprocess.run(["umount", "--lazy", fsx], check=True)


def fill(fsx: Path) -> None:
    with contextlib.suppress(OSError):
        (fsx / "full").write_bytes(b"x" * 65_536)


def close(fsx: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", fsx], check=True)


@pytest.mark.parametrize("spoil", [fill, close])
def test_the_last_copy_is_used_and_the_controller_comes_up_if_the_file_system_cannot_be_written(
    tmpfs: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, spoil: Callable[[Path], None]
) -> None:
    folder = state.Folder(FOLDER)
    copy = add(folder, 1)
    folder.write("last.json", {"state": copy.name})
    spoil(tmpfs)
    with pytest.raises(OSError, match=r"No space|Read-only"):
        folder.add(state.Copy("state", 1, 2), ABOUT, lambda file: file.write(b"x" * 9000))
    monkeypatch.setattr(restore._Restore, "run", lambda self: print(self.copy.name, file=sys.stderr))
    monkeypatch.setattr(restore, "slurm_version", lambda: "24.11.5")
    step.give_back(FOLDER, closes=False)
    assert f"\n{copy.name}\n" in capfd.readouterr().err
    keep_it(monkeypatch)
    assert "the controller's state is not copied: " in capfd.readouterr().err
    folder.close()


def keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that starts the timer, without systemd."""
    monkeypatch.setattr(step, "run", lambda *_: SimpleNamespace(returncode=0))
    monkeypatch.setattr(step, "install_unit", lambda *_: None)
    step.keep(FOLDER)


def test_a_file_system_that_does_not_answer_holds_no_step_up(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (root / "stat").write_text("#!/bin/sh\nexec sleep 60\n")
    (root / "stat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}:{os.environ['PATH']}")
    monkeypatch.setattr(state, "ANSWER_S", 0.2)
    step.give_back(FOLDER, closes=False)
    keep_it(monkeypatch)
    said = capsys.readouterr().err
    assert said.count("/fsx does not answer within 0.2 s; look at the status of the file system") == 2
    assert not (root / "fsx/.copies").exists(), "nothing touched it"
    monkeypatch.setenv("PROVISION_ALONE", "keep_state")
    with pytest.raises(state.Unusable, match="does not answer"):
        keep_it(monkeypatch)
    # It answers again.
    monkeypatch.setattr(keep, "settle_later", lambda: None)
    monkeypatch.setattr(keep, "slurm_version", lambda: "24.11.5")
    monkeypatch.setattr(keep, "_partitions", dict)
    (root / "var/spool").mkdir(parents=True)
    (root / "var/spool/job_state").write_bytes(job_state(7))
    keep.keep(FOLDER)
    folder = state.Folder(FOLDER)
    assert [each.name for each in folder.copies("state")] == ["state-000001-00000001"]
    folder.close()


def hang() -> None:
    time.sleep(60)


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise KeyError("time")


@pytest.mark.parametrize(
    ("does", "why"),
    [(hang, "it did not end within 0.3 s; look at"), (end, "it was killed"), (fail, "KeyError('time')")],
)
def test_a_restore_that_hangs_or_breaks_lets_the_controller_come_up_with_its_own_state(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, does: Callable[[], None], why: str
) -> None:
    found = slurm(root / "var/spool")
    (root / "run").mkdir()
    before = contents(found)
    monkeypatch.setattr(restore, "run", lambda *_, **__: SimpleNamespace(returncode=3))
    monkeypatch.setattr(restore, "must_run", lambda *_, **__: "")
    monkeypatch.setattr(step, "RESTORE_S", 0.3)

    def work(*_: object, **__: object) -> None:
        with state.alone():
            (found / restore.NEW).mkdir()
            does()

    monkeypatch.setattr(step, "restore", work)
    step.give_back(FOLDER, closes=False)
    said = capfd.readouterr().err
    assert " WARNING " in said and f" the state of the controller before is not restored: {why}" in said
    assert contents(found) == before
    assert does is fail or not (found / restore.NEW).exists()
    with state.alone() as first:
        assert first


def loosen(path: Path) -> None:
    path.chmod(0o777)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("where", ["fsx", "fsx/.copies", "fsx/.copies/llm-train"])
@pytest.mark.parametrize("spoil", [loosen, link])
def test_a_folder_that_others_may_swap_is_refused(root: Path, where: str, spoil: Callable[[Path], None]) -> None:
    state.Folder("/fsx/.copies/llm-train").close()
    spoil(root / where)
    with pytest.raises(state.Unusable, match=f"/{where}"):
        state.Folder("/fsx/.copies/llm-train")


def test_a_shared_folder_with_the_sticky_bit_is_used(root: Path) -> None:
    (root / "fsx").chmod(0o1777)
    state.Folder("/fsx/.copies/llm-train").close()


def cut(folder: Any, copy: Any) -> None:
    (folder.root / copy.name / "archive").write_bytes(b"arch")


def readable(folder: Any, copy: Any) -> None:
    (folder.root / copy.name / "archive").chmod(0o644)


def linked(folder: Any, copy: Any) -> None:
    (folder.root / copy.name / "archive").rename(folder.root / "there")
    (folder.root / copy.name / "archive").symlink_to("../there")


def gone(folder: Any, copy: Any) -> None:
    (folder.root / copy.name / "manifest.json").unlink()


def test_of_copies_that_are_cut_off_the_next_older_one_is_used_but_none_from_before_another_cluster(
    folder: Any,
) -> None:
    older = add(folder, 1)
    cut(folder, add(folder, 2))
    gone(folder, add(folder, 3))
    folder.write("last.json", {"state": "state-000001-00000003"})
    assert restore.choose(folder, OWN, "24.11.5")[0] == older
    add(folder, 4, arn="zzz")
    cut(folder, add(folder, 5))
    with pytest.raises(
        state.Unusable, match=r"00000005 is cut off.*; state-000001-00000004 is not used: it is of an earlier"
    ):
        restore.choose(folder, OWN, "24.11.5")


def test_job_ids_begin_above_those_of_copies_that_cannot_be_used(
    root: Path, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a cluster that was deleted and made again, too: the output files of its users are still there."""
    ids: list[int] = []

    @contextlib.contextmanager
    def slurmctld(first: int) -> Iterator[None]:
        yield
        if ids:  # the first one finds no job_state
            (root / "var/spool/job_state").write_bytes(job_state(first))
        ids.append(first)

    monkeypatch.setattr(restore, "_usual_slurmctld_off", contextlib.nullcontext)
    monkeypatch.setattr(restore, "_other_slurmctld", slurmctld)
    (root / "var/spool").mkdir(parents=True)
    now = restore.time.time()
    add(folder, 1, arn="zzz", last_job_id=41_000, time=now)
    cut(folder, add(folder, 2, last_job_id=7, time=now))
    (folder.root / "state-000001-00000003").mkdir(mode=0o700)
    restore._begin_ids_above(folder, {}, closes=False)
    assert ids == [60_000, 60_000]
    folder.write("last.json", {"last_job_id": 20, "time": now})
    restore._begin_ids_above(folder, {}, closes=False)
    assert ids == [60_000, 60_000], "they do"
    (root / "var/spool/job_state").unlink()
    restore._begin_ids_above(folder, {}, closes=False)
    assert ids[2:] == [70_000], "this one was replaced before there was a copy of it"
    assert restore._take_first_id(folder, [91_000, 14], 60, {}) == 110_000, (
        "given out since the copy that a person chooses"
    )
    assert restore._take_first_id(folder, [91_000], 60, {"maxjobid": "99999"}) is None, "slurmctld would not start"


@pytest.mark.parametrize(
    ("spoil", "why"), [(cut, "cut off"), (readable, "root's alone"), (linked, "root's alone"), (gone, "not whole")]
)
def test_a_copy_that_is_not_whole_or_not_root_s_is_refused(
    folder: Any, spoil: Callable[[Any, Any], None], why: str
) -> None:
    spoil(folder, add(folder, 1))
    with pytest.raises(state.Unusable, match=why):
        restore.choose(folder, OWN, "24.11.5")


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ({"cluster": "other"}, "of the cluster other"),
        ({"arn": "zzz"}, "of an earlier cluster of this name"),
        ({"slurm": "25.05.1"}, "of Slurm 25.05.1"),
        ({"slurm": "24.11.9"}, None),
        ({"slurm": "22.05.8"}, None),
        ({"arn": ""}, None),
    ],
)
def test_a_copy_of_another_cluster_or_of_a_newer_slurm_is_refused(manifest: dict[str, str], why: str | None) -> None:
    said = restore.why_not({**ABOUT, **manifest}, OWN, "24.11.5")
    assert said is None if why is None else why in said


def test_a_copy_that_is_older_than_the_last_one_is_used_only_by_hand(folder: Any) -> None:
    folder.write("last.json", {"state": "state-000001-00000002"})
    with pytest.raises(state.Unusable, match="there was state-000001-00000002"):
        restore.choose(folder, OWN, "24.11.5")
    old = add(folder, 1)
    with pytest.raises(state.Unusable, match="older than state-000001-00000002"):
        restore.choose(folder, OWN, "24.11.5")
    assert restore.choose(folder, OWN, "24.11.5", old.name)[0] == old
    with pytest.raises(state.Unusable, match="has no copy state-000001-00000009; it has state-000001-00000001"):
        restore.choose(folder, OWN, "24.11.5", "state-000001-00000009")


def test_the_newest_controller_alone_copies_and_its_copies_are_newer(root: Path, folder: Any) -> None:
    assert state.take_over(folder) == 1
    assert state.take_over(folder) == 1, "once for each root volume"
    add(folder, 7)
    (root / "var/lib/cdk-hyperpod/controller-id").write_text("another\n")
    assert state.owned(folder) is None
    assert state.take_over(folder) == 2
    add(folder, 1, epoch=2)
    assert [copy.order for copy in folder.copies("state")] == [(2, 1), (1, 7)]


def test_a_folder_whose_owner_was_removed_gets_copies_again(root: Path, folder: Any) -> None:
    assert state.take_over(folder) == 1
    add(folder, 1)
    (folder.root / "owner.json").unlink()
    assert state.owned(folder) == 2 == state.owned(folder)


def test_old_copies_and_what_killed_ones_left_are_removed(folder: Any) -> None:
    for number in range(15):
        add(folder, number)
    (folder.root / ".new-state-000001-00000003-77").mkdir()
    folder.prune("state")
    assert [copy.number for copy in folder.copies("state")] == list(range(14, 4, -1))
    for number in range(1, 13):
        add(folder, number, epoch=2)
        folder.prune("state")
    assert [copy.order for copy in folder.copies("state")] == [*((2, n) for n in range(12, 2, -1)), (1, 14), (1, 13)], (
        "those of the controller before stay, should this one have refused them"
    )
    assert not [name for name in os.listdir(folder.root) if name.startswith(".")]


# -- StateSaveLocation


def job_state(number: int, version: str = "PROTOCOL_VERSION") -> bytes:
    text = version.encode() + b"\0"
    return struct.pack(">I", len(text)) + text + struct.pack(">HQI", 10496, 1_700_000_000, number) + b"jobs"


def slurm(folder: Path) -> Path:
    (folder / "hash.7/job.7").mkdir(parents=True)
    (folder / "hash.7/job.7/script").write_text("#!/bin/bash\n")
    for name in (
        "node_state",
        "resv_state",
        "clustername",
        "jwt_hs256.key",
        "slurm.key",
        "certmgr_state",
        "heartbeat",
        "job_state.new",
        "job_state.old",
    ):
        (folder / name).write_text(name)
    (folder / "job_state").write_bytes(job_state(4711))
    (folder / "crontab").mkdir()
    (folder / "crontab/crontab.3001").write_text("@daily")
    return folder


def test_the_archive_has_the_state_and_no_key(tmp_path: Path) -> None:
    found = slurm(tmp_path)
    (found / "qos_usage").symlink_to("/etc/shadow")
    with (tmp_path / "archive").open("w+b") as archive:
        keep.write_archive(found, archive)
        archive.seek(0)
        with tarfile.open(fileobj=archive, mode="r|", ignore_zeros=True) as opened:
            names = [member.name for member in opened if member.isreg()]
    assert names == [
        "clustername",
        "job_state",
        "node_state",
        "resv_state",
        "crontab/crontab.3001",
        "hash.7/job.7/script",
    ]
    assert state.next_job_id(found) == 4711
    (found / "job_state").write_bytes(b"\xff\xff\xff\xff")
    assert state.next_job_id(found) == 0


def test_a_copy_takes_little_of_the_processor_and_little_memory(
    root: Path, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 2 s for 10,000 jobs. These are 1,000."""
    found = root / "state"
    for number in range(1000):
        job = found / f"hash.{number % 10}/job.{number}"
        job.mkdir(parents=True)
        (job / "script").write_bytes(b"#" * 2000)
        (job / "environment").write_bytes(b"A=b\0" * 1500)
    with (found / "job_state").open("wb") as file:
        file.truncate(16_000_000)
    monkeypatch.setattr(keep, "_partitions", dict)
    epoch = state.take_over(folder)
    tracemalloc.start()
    before = processor_s()
    keep.copy_state(folder, epoch, found, ABOUT)
    assert processor_s() - before < 0.2
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()


def processor_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def test_a_disk_that_is_full_leaves_nothing_of_a_restore(
    tmpfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """StateSaveLocation is the file system of 64 kB here."""
    folder = state.Folder("/copies/llm-train")
    copy = state.Copy("state", 1, 1)
    source = slurm(tmp_path / "of-before")
    (source / "node_state").write_bytes(b"x" * 100_000)
    folder.add(copy, ABOUT, lambda file: keep.write_archive(source, file))
    (tmpfs / "job_state").write_bytes(job_state(3))
    monkeypatch.setattr(restore, "run", lambda *_, **__: None)
    work = restore._Restore(folder, {"statesavelocation": "/fsx"}, copy, ABOUT, closes=False)
    with pytest.raises(state.Unusable, match=rf"{copy.name} cannot be unpacked to {tmpfs}: .*No space left"):
        work.run()
    assert os.listdir(tmpfs) == ["job_state"]
    folder.close()


def test_a_file_that_slurmctld_is_replacing_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld removes job_state, and links the new one in its place."""
    monkeypatch.setattr(keep.time, "sleep", lambda _: (tmp_path / "job_state").write_text("new"))
    with tarfile.open(tmp_path / "archive", mode="w|") as archive:
        keep._add_file(archive, tmp_path / "job_state")
    with tarfile.open(tmp_path / "archive") as archive:
        assert archive.extractfile("job_state").read() == b"new"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "name",
    [
        "../etc/passwd",
        "/etc/passwd",
        "hash.1/../../x",
        "jwt_hs256.key",
        "hash.1/job.1",
        "hash.1/a/../x",
        "hash.1/../x",
        "crontab/x",
        "other/job.1/script",
    ],
)
def test_an_archive_with_anything_else_is_refused(tmp_path: Path, name: str) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    content.seek(0)
    with tarfile.open(fileobj=content) as archive, pytest.raises(state.Unusable, match="no part of a state"):
        restore._unpack_one(archive, archive.next(), tmp_path)


@pytest.mark.parametrize("killed_after", [*range(9), 99])
@pytest.mark.parametrize("restored", ["", "state-000001-00000001", "state-000001-00000002"])
def test_a_restore_that_is_killed_anywhere_is_undone_unless_it_had_come_to_its_end(
    root: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int, restored: str
) -> None:
    commands: list[tuple[str, ...]] = []

    def command(*words: str, **_: object) -> SimpleNamespace:
        commands.append(words)
        return SimpleNamespace(returncode=3)

    monkeypatch.setattr(restore, "run", command)
    monkeypatch.setattr(restore, "must_run", command)
    found = slurm(root / "var/spool")
    (found / "clustername").unlink()  # is removed by an undone swap
    before = contents(found)
    work = object.__new__(restore._Restore)
    work.state, work.new, work.before = found, found / restore.NEW, found / restore.BEFORE
    (work.new / "hash.9/job.9").mkdir(parents=True)
    (work.new / "hash.9/job.9/script").write_text("new")
    (work.new / "job_state").write_text("new")
    (root / "run").mkdir()
    (root / "run/cdk-hyperpod-restoring").write_text("state-000001-00000002")
    if restored:
        restore._restored(restored)
    real, left = Path.rename, [killed_after]

    def rename(path: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with contextlib.suppress(KeyboardInterrupt):
            work._swap()
    restore.end_killed(starts=True)
    assert not (root / "run/cdk-hyperpod-restoring").exists()
    assert not [path for path in found.iterdir() if path.name.startswith(".cdk-hyperpod")]
    assert commands[-1] == ("systemctl", "start", "slurmctld.service")
    commands.clear()
    restore.end_killed(starts=True)
    assert commands == []
    if killed_after == 99 and restored == "state-000001-00000002":
        assert (found / "job_state").read_text() == "new"
    elif restored != "state-000001-00000002":
        assert contents(found) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- jobs


@pytest.mark.parametrize(
    ("job", "ran", "why"),
    [
        ({}, (), None),
        ({}, (7,), "it has run since"),
        ({"may_requeue": False}, (), "--no-requeue"),
        ({"may_requeue": False, "held": True}, (), None),
        ({"state": "RUNNING"}, (7,), None),
        ({"is_array": True}, (), None),
        ({"is_array": True}, (99,), "some of its tasks"),
        ({"is_array": True}, (8,), None),
        ({"id": 9, "array": 7}, (7,), "it has run since"),
    ],
)
def test_a_job_of_the_copy_waits_unless_it_may_have_run(
    job: dict[str, Any], ran: tuple[int, ...], why: str | None
) -> None:
    whole = jobs.Job(**{"id": 7, "array": 7, "is_array": False, "state": "PENDING", **job})
    found = jobs.reason_to_hold(whole, frozenset(ran), frozenset({7, 8}))
    assert found is None if why is None else why in found


def test_jobs_are_held_by_a_few_commands_and_an_earlier_run_holds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preempted job, and one whose node failed, have an earlier run in the accounting database."""
    commands: list[tuple[str, ...]] = []

    def command(*words: str, **_: object) -> SimpleNamespace:
        commands.append(words)
        return SimpleNamespace(returncode=0, stdout="7|NODE_FAIL\n8|PENDING\n9|REQUEUED\n")

    monkeypatch.setattr(jobs, "run", command)
    jobs.hold(dict.fromkeys(range(1, 2501), "it has run"))
    assert [words[1] for words in commands] == ["uhold", "update"] * 3 and commands[0][2].startswith("1,2,3,")
    copied = time.mktime((2026, 11, 28, 12, 58, 37, 0, 0, 0))
    assert jobs.started([jobs.Job(7, 7, False, "PENDING"), jobs.Job(5, 5, False, "RUNNING")], copied) == {7}
    assert {"--jobs=7", "--starttime=2026-11-28T12:57:37"} < set(commands[-1])


def test_jobs_unknown_to_slurmctld_are_found_in_its_log() -> None:
    log = (
        "[2026-11-28T07:46:03.017] error: Orphan StepId=3.batch reported on node ip-10-77-0-21\n"
        "error: Registered PENDING JobId=4_1(6) without allocation\n"
        "_slurm_rpc_complete_batch_script JobId=9: Invalid job id specified\n"
        "Recovered JobId=77 Assoc=0\n"
    )
    assert jobs.ran_in(log) == {3, 4, 6, 9}


@pytest.mark.parametrize(
    ("last", "evidence", "age_s", "first"),
    [(1, [], 60, 20_000), (4711, [], 60, 20_000), (9_999, [], 60, 20_000), (10_001, [], 60, 30_000), (4711, [25_000], 60, 40_000),
     (4711, [], 3 * 3600, 50_000), (4711, [], 9e7, 1_020_000), (67_040_000, [], 0, None)],
)  # fmt: skip
def test_new_ids_begin_above_those_that_may_have_been_given_out(
    last: int, evidence: list[int], age_s: float, first: int | None
) -> None:
    assert restore.first_id(last, evidence, age_s) == first


def test_all_partitions_are_down_while_slurmctld_meets_the_nodes() -> None:
    conf = "FirstJobId=5\nPartitionName=p5 Nodes=a State=UP # note\nPartitionName=dev Default=YES\nNodeName=a State=UNKNOWN\n"
    assert restore._with_partitions_down(conf) == (
        "PartitionName=p5 Nodes=a  State=DOWN\nPartitionName=dev Default=YES State=DOWN\nNodeName=a State=UNKNOWN\n"
    )


def test_a_new_controller_without_any_copy_keeps_what_it_has(root: Path) -> None:
    restore.restore("/fsx/.copies/llm-train")
    assert json.loads((root / "var/lib/cdk-hyperpod/state-restored.json").read_text())["copy"] == ""
