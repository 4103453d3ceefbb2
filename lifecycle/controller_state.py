"""Copies of the controller's state on the shared file system: where they are, what is in them, and which of them can be used.

    FOLDER/owner.json                  the controller that may write here: the newest one
    FOLDER/last.json                   the last copy that was made
    FOLDER/ids.json                    the first job id of the last controller that was restored
    FOLDER/state-000002-00000017/      the 17th copy of the second controller: archive and manifest.json
    FOLDER/accounting-000002-00000003/ a dump of the accounting database, in the same form

A copy appears as a whole, by the renaming of its folder. Everything belongs to root and nobody else may read it: the state has
the scripts and environments of users' jobs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import struct
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterator, Mapping

from lib import StepError, on_node, one_line, run, write_file

SLURM_CONF = "/opt/slurm/etc/slurm.conf"
RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
HERE = "/var/lib/cdk-hyperpod"
SELF = f"{HERE}/controller-id"
"""Which controller this is. It is on the root volume, so a replaced or patched controller is another one."""
RESTORED = f"{HERE}/state-restored.json"
"""Exists once this controller has its state: that of a copy, or its own."""
LOCK = "/run/cdk-hyperpod-state.lock"
STATE, ACCOUNTING = "state", "accounting"
KEPT = {STATE: 10, ACCOUNTING: 3}
ANSWER_S = 20
KEPT_OF_EARLIER, EARLIER = 2, 3
"""Besides, so many of each of the last controllers: until somebody looks, a copy that was refused must not be gone."""
ARCHIVE, MANIFEST = "archive", "manifest.json"
IDS = "ids.json"
"""With which job id the last restored controller began: another one may be restored before there is a copy of this one."""
STATE_FILES = re.compile(
    r"(assoc_mgr|fed_mgr|front_end|job|node|part|resv|trigger)_state|assoc_usage|qos_usage|last_config_lite|last_tres|"
    r"(burst_buffer_cray|burst_buffer_lua|elasticsearch|jobcomp_kafka|slingshot)_state|priority_last_decay_ran|clustername|dbd\.messages"
)
"""The files in StateSaveLocation that are copied: what slurmctld and its plug-ins write there, in Slurm 22.05 to 26.05. A pattern such as
_state would also take certmgr_state, which has a private key. Nor are jwt_hs256.key and slurm.key copied."""
USERS_FILES = re.compile(r"hash\.\d/[^/]+/[^/]+|crontab/crontab\.\d+")
"""The scripts and environments of jobs, and what users gave scrontab."""
COPY = re.compile(r"(state|accounting)-(\d{6})-(\d{8})")


class Unusable(StepError):
    """A folder or a copy that is not used. The message says why, and what to do."""


@dataclass(frozen=True)
class Copy:
    """A copy, by the name of its folder."""

    kind: str
    epoch: int
    """The number of the controller that made it. Each new controller takes the next number."""
    number: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.epoch:06}-{self.number:08}"

    @property
    def order(self) -> tuple[int, int]:
        """Greater: newer."""
        return (self.epoch, self.number)


def parse_copy(name: str) -> Copy | None:
    """The copy with this name. None: it is no name of a copy."""
    found = COPY.fullmatch(name)
    return Copy(found[1], int(found[2]), int(found[3])) if found else None


# -- the folder


def check_answers(path: str) -> None:
    """Raise Unusable if the file system does not answer: a step that touched it would hang with it. Another process asks."""
    mount = Path(path).parents[1]
    if run("stat", "--file-system", str(on_node(str(mount))), timeout_s=ANSWER_S).returncode == 124:
        raise Unusable(f"{mount} does not answer within {ANSWER_S} s; look at the status of the file system")


class Folder:
    """The folder of copies, opened so that no other folder can take its place. `path`: as users know it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = _open_folder(path)
        self.root = Path(f"/proc/self/fd/{self._fd}")

    def close(self) -> None:
        os.close(self._fd)

    def copies(self, kind: str) -> list[Copy]:
        """The copies of a kind, the newest one first."""
        found = (parse_copy(name) for name in os.listdir(self._fd))
        return sorted((each for each in found if each and each.kind == kind), key=lambda each: each.order, reverse=True)

    def read(self, name: str) -> dict[str, Any]:
        """A file of the folder. Empty: there is none."""
        try:
            with self.open(name) as file:
                content = json.load(file)
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise Unusable(f"{self.path}/{name} is not JSON; remove it") from error
        return content if isinstance(content, dict) else {}

    def open(self, name: str) -> BinaryIO:
        """Open a file that root alone may read. Raises Unusable for anything else."""
        path = self.root / name
        for each in (path.parent, path):
            found = os.lstat(each) if each != self.root else os.fstat(self._fd)
            right = stat.S_ISREG(found.st_mode) if each == path else stat.S_ISDIR(found.st_mode)
            if not right or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise Unusable(f"{self.path}/{name} is not root's alone; remove it")
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file, whole or not at all."""
        temporary = self.root / f".{name}.{os.getpid()}"
        try:
            with _create(temporary) as file:
                file.write(json.dumps(content, sort_keys=True).encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.root / name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()

    def add(self, copy: Copy, manifest: Mapping[str, Any], fill: Callable[[BinaryIO], None]) -> None:
        """Add a copy. `fill` writes its archive. If anything fails, nothing of it is left."""
        temporary = self.root / f".new-{copy.name}-{os.getpid()}"
        temporary.mkdir(mode=0o700)
        try:
            with _create(temporary / ARCHIVE) as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            with (temporary / ARCHIVE).open("rb") as file:
                sums = {"sha256": sha256(file), "bytes": os.fstat(file.fileno()).st_size}
            with _create(temporary / MANIFEST) as file:
                file.write(json.dumps({**manifest, **sums}, sort_keys=True).encode())
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, self.root / copy.name)
            os.fsync(self._fd)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def prune(self, kind: str) -> None:
        """Remove old copies, and what copies that were killed have left."""
        for copy in surplus(self.copies(kind), KEPT[kind]):
            shutil.rmtree(self.root / copy.name, ignore_errors=True)
        for name in os.listdir(self._fd):
            if name.startswith(f".new-{kind}-"):
                shutil.rmtree(self.root / name, ignore_errors=True)

    def names(self) -> Iterator[dict[str, Any]]:
        """What the copies of the state, ids.json and last.json say, whether they can be used or not."""
        for name in (IDS, "last.json", *(f"{copy.name}/{MANIFEST}" for copy in self.copies(STATE))):
            with contextlib.suppress(Unusable, OSError):
                yield self.read(name)

    def manifest(self, copy: Copy) -> dict[str, Any]:
        """The manifest of a copy that is whole. Raises Unusable."""
        try:
            with self.open(f"{copy.name}/{MANIFEST}") as file:
                manifest = json.load(file)
            with self.open(f"{copy.name}/{ARCHIVE}") as file:
                whole = manifest["sha256"] == sha256(file)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unusable(f"{copy.name} is not whole: {one_line(error)}") from error
        if not whole:
            raise Unusable(f"{copy.name} is cut off or changed: its checksum differs")
        return dict(manifest)


def surplus(copies: list[Copy], kept: int) -> list[Copy]:
    """Of the copies, the newest first: those that are not kept."""
    epochs = sorted({copy.epoch for copy in copies}, reverse=True)
    of_earlier = {
        copy
        for epoch in epochs[1 : 1 + EARLIER]
        for copy in [each for each in copies if each.epoch == epoch][:KEPT_OF_EARLIER]
    }
    own = [copy for copy in copies if copy.epoch == epochs[0]][:kept] if epochs else []
    return [copy for copy in copies if copy not in own and copy not in of_earlier]


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")


def sha256(file: BinaryIO) -> str:
    """The checksum of a file's content."""
    found = hashlib.sha256()
    for block in iter(lambda: file.read(1 << 20), b""):
        found.update(block)
    return found.hexdigest()


def _open_folder(path: str) -> int:
    """Open the folder, and make its last two parts if they do not exist. Raises Unusable if others may swap or read it."""
    parts = path.strip("/").split("/")
    fd = os.open(on_node("/"), os.O_RDONLY | os.O_DIRECTORY)
    for place, part in enumerate(parts):
        ours = place >= len(parts) - 2
        so_far = "/" + "/".join(parts[: place + 1])
        try:
            if ours:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=fd)
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
        except OSError as error:
            raise Unusable(
                f"{so_far} cannot hold the controller's state: {error.strerror}; look at `ls -ld {so_far}`"
            ) from error
        finally:
            os.close(fd)
        fd = inner
        found = os.fstat(fd)
        loose = found.st_mode & (0o077 if ours else 0o022) and not (not ours and found.st_mode & stat.S_ISVTX)
        if found.st_uid != os.geteuid() or loose:
            os.close(fd)
            remedy = (
                f"remove {so_far}, or make it root's with mode 700"
                if ours
                else f"`chown root {so_far}; chmod go-w {so_far}`"
            )
            raise Unusable(
                f"{so_far} is not root's alone to change, so others could swap the controller's state; {remedy}"
            )
    return fd


# -- who may write


def own_id() -> str:
    """The id of this controller. Empty: it has not taken the folder over yet."""
    file = on_node(SELF)
    return file.read_text("utf-8").strip() if file.exists() else ""


def take_over(folder: Folder) -> int:
    """Make this controller the one that writes here. Returns its number. An older controller then stops copying."""
    owner = folder.read("owner.json")
    own = own_id() or uuid.uuid4().hex
    if owner.get("controller") == own:
        return int(owner["epoch"])
    copies = [*folder.copies(STATE), *folder.copies(ACCOUNTING)]
    epoch = 1 + max([int(owner.get("epoch", 0)), *(copy.epoch for copy in copies)])
    folder.write("owner.json", {"schema": 1, "epoch": epoch, "controller": own, "since": round(time.time())})
    write_file(SELF, f"{own}\n", mode=0o600)
    return epoch


def owned(folder: Folder) -> int | None:
    """The number of this controller, which takes a folder over that has no owner. None: another one writes here."""
    owner = folder.read("owner.json")
    if not owner or not own_id():
        # Somebody removed it, or the file system was full or out of reach while the controller was set up.
        return take_over(folder)
    return int(owner["epoch"]) if owner.get("controller") == own_id() else None


@contextlib.contextmanager
def alone() -> Iterator[bool]:
    """Only one program at a time copies or restores. False: another one does."""
    path = on_node(LOCK)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


# -- Slurm


def slurm_settings(path: str = SLURM_CONF) -> dict[str, str]:
    """The settings of slurm.conf and of what it includes, names in lower case."""
    file = on_node(path)
    found: dict[str, str] = {}
    if not file.is_file():
        return found
    for line in file.read_text("utf-8", "replace").splitlines():
        text = line.split("#")[0].strip()
        if text.lower().startswith("include "):
            inner = text.split(None, 1)[1]
            found.update(slurm_settings(inner if inner.startswith("/") else f"{os.path.dirname(path)}/{inner}"))
        elif re.match(r"\w+\s*=", text):
            name, value = text.split("=", 1)
            found[name.strip().lower()] = value.strip()
    return found


def state_folder(settings: Mapping[str, str]) -> Path:
    """StateSaveLocation."""
    return on_node(settings.get("statesavelocation", "/var/spool"))


def identity(settings: Mapping[str, str]) -> dict[str, str]:
    """What a copy must have in common with the cluster: its name, and the end of its ARN, which differs after it was created again."""
    try:
        config = json.loads(
            on_node(os.environ.get("SAGEMAKER_RESOURCE_CONFIG_PATH") or RESOURCE_CONFIG).read_text("utf-8")
        )
        arn = str(config["ClusterConfig"]["ClusterArn"])
    except (OSError, ValueError, KeyError, TypeError):
        arn = ""
    return {"cluster": settings.get("clustername", ""), "arn": arn.rpartition("/")[2]}


def slurm_version() -> str:
    """The version of Slurm's programs, as 24.11.5."""
    found = re.search(r"\d+\.\d+[.\w-]*", run("slurmctld", "-V", timeout_s=30).stdout)
    return found[0] if found else ""


def as_numbers(version: str) -> tuple[int, ...]:
    """The release that decides who can read a state: 24.11 of 24.11.5."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def next_job_id(state: Path) -> int:
    """The last id that Slurm had given out when it wrote its jobs. 0: there is no such file, or it has another form.

    The file begins with a text, a version in 2 bytes, a time in 8, and the id in 4 (dump_all_job_state).
    """
    try:
        with (state / "job_state").open("rb") as file:
            (length,) = struct.unpack(">I", file.read(4))
            if length > 64:
                return 0
            file.seek(4 + length + 2 + 8)
            return int(struct.unpack(">I", file.read(4))[0])
    except (OSError, struct.error):
        return 0


def why_not(manifest: Mapping[str, Any], own: Mapping[str, str], version: str) -> str | None:
    """Why this controller cannot use a copy. None: it can."""
    for name, what in (
        ("cluster", "of the cluster {}, and this one is {}"),
        ("arn", "of an earlier cluster of this name (id {}), and this one is {}"),
    ):
        if manifest.get(name) and own.get(name) and manifest[name] != own[name]:
            return "it is " + what.format(one_line(manifest[name])[:80], own[name])
    if as_numbers(str(manifest.get("slurm", ""))) > as_numbers(version):
        return f"it is of Slurm {one_line(manifest['slurm'])[:20]}, and this node has {version}"
    return None
