"""Copy everything into the instance's folder at the target, and read it again there."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .content import ACCESS, ACLS, Sum, attributes, pieces, sync, write_all, zero_out
from .manifest import MOST_LISTED, Left, sum_line, summed_name, write_whole
from .survey import Survey
from .walk import FOLDER, Folder, Visitor, allocated, descend, fingerprint, line_of, open_folder, open_in, place_of
from .wording import READ, READ_AGAIN, WRITTEN, BackupError, UnsavableError, amount, shown, told

BATCH_FILES = 500
BATCH_BYTES = 2**30
"""So much is synced to the target at once, then read again there."""
MOST_ZEROS = 2**30
"""A file with more bytes in holes has no sum that sha256sum could compare in time."""
TELL_EVERY_S = 10
TICK_S = 0.05
"""More than the kernel's clock takes from one time of a file to the next."""
CHANGED = "was written while it was saved"
OTHER_NAME = "is another name of a file that was not saved"


class Pending(NamedTuple):
    """A file at the target that was written, and is still to be read again."""

    path: str
    opened: int
    size: int
    holes: bool
    """Whether it is read block by block."""
    gaps: bool
    digest: bytes


class Save(Visitor):
    """Copy everything into the instance's folder at the target."""

    def __init__(self, target: str, survey: Survey, tell: Callable[[str], None]) -> None:
        self.target, self.survey = target, survey
        self.left = Left()
        self.counts = dict.fromkeys(
            ("files", "bytes", "links", "left", "hard_links", "gone", "acls_lost", "attributes_lost", "links_lost"), 0
        )
        self.states: dict[tuple[int, int, int], int] = {}
        """Folder (place_of) -> what was in it when it was saved: the sum of the fingerprints."""
        self.began_ns = int((time.time() - 1) * 1e9)
        self.recent: dict[str, bytes] = {}
        """What has changed since then, or was not saved -> its line in the folder's sum."""
        self.elsewhere_at: set[str] = set()
        self.aside: dict[str, str] = {}
        """What the node has no more -> its name in aside/. No more than the manifest lists."""
        self._tell = tell
        self._told = time.monotonic()
        self._batch: list[Pending] = []
        self._batch_bytes = 0
        self._sums: dict[str, Any] = {}
        """Name -> file of sums that is being written."""
        self._again: dict[str, tuple[str, str] | None] = {}
        """What was to be saved once more -> the file of sums that it belongs in by then, and its line there."""
        self._states: list[int] = []
        self._linked: dict[tuple[int, int], tuple[str, bytes, bool, bytes] | None] = {}
        """A file with several names -> the copy's name among the links, its sum, what the file was then; absent: it could not be
        saved."""
        self._claimed: set[int] = set()
        """Files at the target that have several names, and are a copy of this try's."""
        self._links = self._make_links()
        with told(target, WRITTEN):
            # From here on the copy is no longer that of the earlier backup.
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{target}/manifest.json", f"{target}/manifest.before.json")
            sync(self._links)  # what a killed try has left in memory

    # -- the walk

    def begin(self, path: str) -> None:
        """Begin another of the folders. Hard links are kept within one folder alone."""
        self._linked = {}

    def enter(self, folder: Folder) -> None:
        with told(self._copy_of(folder.path), WRITTEN):
            if folder.parent is None:
                folder.copy = descend(self.target, ["files", *folder.path.split("/")], self._folder_in)
            else:
                folder.copy = self._folder_in(folder.parent.copy, os.path.basename(folder.path))
        self._states.append(fingerprint(line_of("", folder.found)))

    def entry(self, folder: Folder, name: str, found: os.stat_result) -> None:
        path, line = f"{folder.path}/{name}", line_of(name, found)
        self._states[-1] += fingerprint(line)
        if found.st_ctime_ns >= self.began_ns:
            self.recent[path] = line
        try:
            with told(self._copy_of(path), WRITTEN):
                self._one(folder.opened, folder.copy, name, path, found)
        except UnsavableError:
            self.recent[path] = line
            raise
        if time.monotonic() - self._told > TELL_EVERY_S:
            self._told = time.monotonic()
            of = f"of {amount(self.survey.bytes)}, {self.counts['files']} of {self.survey.files} files"
            self._tell(f"{amount(self.counts['bytes'])} {of}")

    def leave(self, folder: Folder) -> None:
        """After what is in it: that changes its time."""
        self.states[place_of(folder.path, folder.found)] = self._states.pop()
        with told(self._copy_of(folder.path), WRITTEN):
            self._drop_what_is_gone(folder)
            self._keep_attributes(folder.opened, folder.copy, folder.found)

    def elsewhere(self, path: str) -> None:
        self.elsewhere_at.add(path)

    def refuse(self, path: str, found: os.stat_result, size: int, why: str) -> None:
        self.left.add(path, found.st_uid, size, why)

    # -- files

    def save_again(self, path: str) -> None:
        """Save once more what could not be saved. Raises UnsavableError."""
        self._again[path] = None
        parent, name = os.path.split(path)
        with told(path, READ):
            source_in = open_folder(parent)
        copy_in = -1
        try:
            with told(path, READ):
                found = os.lstat(name, dir_fd=source_in)
            self._linked = {key: first for key, first in self._linked.items() if first}
            with told(self._copy_of(path), WRITTEN):
                copy_in = descend(self.target, ["files", *parent.split("/")], self._folder_in)
                self._one(source_in, copy_in, name, path, found)
                here = os.fstat(source_in)
                self._keep_attributes(source_in, copy_in, here)
            line, key = line_of(name, found), place_of(parent, here)
            if path in self.recent:
                self.states[key] += fingerprint(line) - fingerprint(self.recent[path])
                self.recent[path] = line
        finally:
            os.close(source_in)
            if copy_in >= 0:
                os.close(copy_in)

    def _one(self, source_in: int, copy_in: int, name: str, path: str, found: os.stat_result) -> None:
        if stat.S_ISREG(found.st_mode):
            self._file(source_in, copy_in, name, path, found)
        elif stat.S_ISLNK(found.st_mode):
            self._symlink(source_in, copy_in, name, path)
            self.counts["links"] += 1
        elif stat.S_ISDIR(found.st_mode):
            self._folder(source_in, copy_in, name, path)
        else:
            self.counts["left"] += 1
            with contextlib.suppress(FileNotFoundError):
                os.lstat(name, dir_fd=copy_in)
                self._drop(copy_in, name, path)

    def _folder(self, source_in: int, copy_in: int, name: str, path: str) -> None:
        """Save the folder itself, without its content."""
        with told(path, READ):
            opened = open_in(source_in, name)
        try:
            copy = self._folder_in(copy_in, name)
            self._keep_attributes(opened, copy, os.fstat(opened))
            os.close(copy)
        finally:
            os.close(opened)

    def _file(self, source_in: int, copy_in: int, name: str, path: str, found: os.stat_result) -> None:
        key = (found.st_dev, found.st_ino)
        if found.st_nlink > 1:
            if key in self._linked and self._link(copy_in, name, path, found):
                return
            self._linked[key] = None
        # The name may be a link or a pipe by now. A link is not followed, and a pipe is not waited for.
        with told(path, READ):
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=source_in)
        try:
            copy = self._open_copy(copy_in, name, found)
            try:
                pending = self._copy(source, copy, path, found)
            except BaseException:
                os.close(copy)
                raise
        finally:
            os.close(source)
        self._sum(path, pending.digest, pending.gaps)
        self.counts["files"] += 1
        self.counts["bytes"] += allocated(found)
        if found.st_nlink > 1:
            self._keep_link(copy_in, name, copy, found, pending)
        self._batch.append(pending)
        self._batch_bytes += pending.size if pending.gaps else allocated(found)
        if len(self._batch) >= BATCH_FILES or self._batch_bytes >= BATCH_BYTES:
            self.flush()

    def _copy(self, source: int, copy: int, path: str, found: os.stat_result) -> Pending:
        """Make the target the same, where it differs. Raises UnsavableError if it was written meanwhile."""
        before = os.fstat(source)
        _check_same_file(path, before, found)
        if 0 <= time.time() - before.st_ctime < TICK_S:
            time.sleep(TICK_S)  # else a write right now would not change the times
        holes = before.st_blocks * 512 < before.st_size
        gaps = before.st_size - before.st_blocks * 512 <= MOST_ZEROS
        sums = Sum(gaps)
        end = _write_differences(copy, pieces(source, before.st_size, holes, path, READ), sums)
        size = before.st_size if holes else end
        _end_at(copy, end, size)
        after = os.fstat(source)
        if (after.st_size, after.st_mtime_ns, after.st_ctime_ns) != (size, before.st_mtime_ns, before.st_ctime_ns):
            raise UnsavableError(path, CHANGED)
        self._keep_attributes(source, copy, after)
        return Pending(path, copy, size, holes, gaps, sums.end(size))

    def _open_copy(self, copy_in: int, name: str, found: os.stat_result) -> int:
        """The file at the target, made if it is missing, and open for reading and writing."""
        with contextlib.suppress(FileNotFoundError):
            if not self._may_be_written(os.lstat(name, dir_fd=copy_in), found):
                self._set_aside(copy_in, name)
        copy = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=copy_in)
        there = os.fstat(copy)
        if there.st_nlink > 1:
            self._claimed.add(there.st_ino)
        return copy

    def _may_be_written(self, there: os.stat_result, found: os.stat_result) -> bool:
        """True: the file at the target is the copy of this file alone. With several names it may be the copy of another file by now,
        of this try or of an earlier one. If size and time are the same, it is used, since nothing will be written."""
        if not stat.S_ISREG(there.st_mode) or there.st_ino in self._claimed:
            return False
        as_before = (there.st_size, there.st_mtime_ns) == (found.st_size, found.st_mtime_ns)
        return there.st_nlink == 1 or as_before

    def flush(self) -> None:
        """Sync what was written to the target, then read it again. Raises BackupError if it differs."""
        if self._batch:
            with told(self.target, WRITTEN):
                sync(self._batch[0].opened)
        try:
            while self._batch:
                pending = self._batch[-1]
                self._prove(pending)
                os.close(self._batch.pop().opened)
        finally:
            for pending in self._batch:
                os.close(pending.opened)
            self._batch, self._batch_bytes = [], 0

    def _prove(self, pending: Pending) -> None:
        copy = self._copy_of(pending.path)
        with told(copy, WRITTEN):
            os.posix_fadvise(pending.opened, 0, 0, os.POSIX_FADV_DONTNEED)
            sums, end = Sum(pending.gaps), 0
            for offset, data in pieces(pending.opened, pending.size, pending.holes, copy, READ_AGAIN):
                sums.add(offset, data)
                end = offset + len(data)
            size = max(end, os.fstat(pending.opened).st_size)
            if sums.end(size) != pending.digest or size != pending.size:
                os.fsync(pending.opened)  # which raises the file system's own error, if it has one
                raise BackupError(f"{shown(pending.path)} differs at the target after it was copied")

    def _sum(self, path: str, digest: bytes, gaps: bool) -> None:
        name = "SHA256SUMS" if gaps else "SHA256SUMS.sparse"
        line = sum_line(digest.hex(), path)
        if path in self._again:
            self._again[path] = (name, line)
        else:
            self._sums_in(name).write(line)

    def _sums_in(self, name: str) -> Any:
        if name not in self._sums:
            opened = os.open(f"{self.target}/{name}.new", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            self._sums[name] = os.fdopen(opened, "w+", encoding="utf-8", errors="surrogateescape")
        return self._sums[name]

    def _settle_sums(self) -> None:
        """Keep only the second sum of a file that was saved twice, and no sum of one that is left out: its copy may mix two states."""
        gone = {summed_name(sum_line("", path)) for path in (*self._again, *self.left.found)}
        for name in list(self._sums) if gone else ():
            file = self._sums.pop(name)
            file.seek(0)
            os.unlink(f"{self.target}/{name}.new")
            with file:
                for line in file:
                    if summed_name(line) not in gone:
                        self._sums_in(name).write(line)
                    else:
                        self.counts["files"] -= 1
        for path, again in self._again.items():
            if again and path not in self.left.found:
                self._sums_in(again[0]).write(again[1])
            elif again:
                self.counts["files"] -= 1

    def finish(self) -> None:
        """Write what is beside the copy."""
        self.flush()
        with told(f"{self.target}/SHA256SUMS", WRITTEN):
            self._settle_sums()
        with told(f"{self.target}/links", WRITTEN):
            os.close(self._links)
            self._make_links(remove=True)
        for name in ("SHA256SUMS", "SHA256SUMS.sparse"):
            path = f"{self.target}/{name}"
            with told(path, WRITTEN):
                file = self._sums.get(name)
                if file is not None:
                    file.flush()
                    os.fsync(file.fileno())
                    file.close()
                    os.replace(f"{path}.new", path)
                elif os.path.lexists(path) or name == "SHA256SUMS":
                    write_whole(path, "")
        with told(self.target, WRITTEN):
            opened = os.open(self.target, FOLDER)
            sync(opened)
            os.close(opened)

    # -- names

    def _link(self, copy_in: int, name: str, path: str, found: os.stat_result) -> bool:
        """Make another name of a file that is saved. False: the file was written since, or its copy may have no more names."""
        first = self._linked[found.st_dev, found.st_ino]
        if first is None:
            raise UnsavableError(path, OTHER_NAME)
        link, digest, gaps, was = first
        if was != line_of("", found):
            return False
        try:
            there = os.lstat(name, dir_fd=copy_in)
        except FileNotFoundError:
            there = None
        if there is None or not os.path.samestat(there, os.lstat(link, dir_fd=self._links)):
            if there is not None:
                self._set_aside(copy_in, name)
            try:
                os.link(link, name, src_dir_fd=self._links, dst_dir_fd=copy_in, follow_symlinks=False)
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
                self.counts["links_lost"] += 1
                return False
        self._sum(path, digest, gaps)
        self.counts["files"] += 1
        self.counts["hard_links"] += 1
        return True

    def _keep_link(self, copy_in: int, name: str, copy: int, found: os.stat_result, pending: Pending) -> None:
        """Remember the copy, for the file's next name."""
        link, key = uuid.uuid4().hex, (found.st_dev, found.st_ino)
        try:
            os.link(name, link, src_dir_fd=copy_in, dst_dir_fd=self._links, follow_symlinks=False)
        except OSError:
            # A file system without hard links: each name gets a copy.
            del self._linked[key]
            self.counts["links_lost"] += 1
            return
        self._claimed.add(os.fstat(copy).st_ino)
        self._linked[key] = (link, pending.digest, pending.gaps, line_of("", found))

    def _make_links(self, *, remove: bool = False) -> int:
        """Make a folder with one more name of each file that has several. It is for this try alone, and removed at the end."""
        path = f"{self.target}/links"
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(path):
                os.unlink(f"{path}/{name}")
            os.rmdir(path)
        if remove:
            return -1
        os.mkdir(path, 0o700)
        return os.open(path, FOLDER)

    def _symlink(self, source_in: int, copy_in: int, name: str, path: str) -> None:
        """Save a link as a link."""
        with told(path, READ):
            wanted = os.readlink(name, dir_fd=source_in)
            found = os.lstat(name, dir_fd=source_in)
        try:
            os.symlink(wanted, name, dir_fd=copy_in)
        except FileExistsError:
            there = os.lstat(name, dir_fd=copy_in)
            if not (stat.S_ISLNK(there.st_mode) and os.readlink(name, dir_fd=copy_in) == wanted):
                self._set_aside(copy_in, name)
                os.symlink(wanted, name, dir_fd=copy_in)
        os.chown(name, found.st_uid, found.st_gid, dir_fd=copy_in, follow_symlinks=False)
        os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=copy_in, follow_symlinks=False)

    def _copy_of(self, path: str) -> str:
        return f"{self.target}/files{path}"

    def _folder_in(self, parent: int, name: str) -> int:
        """A folder in another; closed to all but root until it gets its own mode at the end."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            self._set_aside(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
        return os.open(name, FOLDER, dir_fd=parent)

    def _drop_what_is_gone(self, folder: Folder) -> None:
        """Set aside what an earlier try or backup has copied into this folder, and the node has no more."""
        if folder.names is None:
            return
        with os.scandir(folder.copy) as entries:
            gone = [entry.name for entry in entries if entry.name not in folder.names]
        for name in gone:
            self._drop(folder.copy, name, f"{folder.path}/{name}")

    def _drop(self, parent: int, name: str, path: str) -> None:
        aside = self._set_aside(parent, name)
        self.counts["gone"] += 1
        if len(self.aside) < MOST_LISTED:
            self.aside[path] = aside

    def _set_aside(self, parent: int, name: str) -> str:
        """Move what has this name to aside/. It is not deleted: if the node lost its disk, it may be the only copy."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{self.target}/aside", 0o700)
        aside = uuid.uuid4().hex
        os.rename(name, f"{self.target}/aside/{aside}", src_dir_fd=parent)
        return aside

    def _keep_attributes(self, source: int, copy: int, found: os.stat_result) -> None:
        """Owner, mode, ACLs, extended attributes and times of what was saved, for its copy."""
        wanted = attributes(source)
        os.fchown(copy, found.st_uid, found.st_gid)
        mode = stat.S_IMODE(found.st_mode)
        # With an ACL the group's bits are the mask of all named users. Until the ACL is set, the group gets no access.
        for name in attributes(copy).keys() - wanted.keys():
            with contextlib.suppress(OSError):
                os.removexattr(copy, name)
        os.fchmod(copy, mode & ~0o070 if ACCESS in wanted else mode)
        for name, value in wanted.items():
            try:
                os.setxattr(copy, name, value)
            except OSError:
                self.counts["acls_lost" if name in ACLS else "attributes_lost"] += 1
        os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))


def _check_same_file(path: str, opened: os.stat_result, found: os.stat_result) -> None:
    """Raise UnsavableError if another file had the name when it was opened."""
    same = (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino)
    if not same or not stat.S_ISREG(opened.st_mode):
        raise UnsavableError(path, "was another file when it was saved")


def _write_differences(copy: int, data_at: Iterable[tuple[int, bytes]], sums: Sum) -> int:
    """Write the pieces that differ at the target, and zeros for the holes between them. The end of the last piece."""
    there = os.fstat(copy).st_size
    if there:
        # Else it would be compared with the cache, and not with what was stored.
        os.posix_fadvise(copy, 0, 0, os.POSIX_FADV_DONTNEED)
    at = 0
    for offset, data in data_at:
        sums.add(offset, data)
        zero_out(copy, at, min(offset, there))
        if offset >= there or os.pread(copy, len(data), offset) != data:
            write_all(copy, data, offset)
        at = offset + len(data)
    return at


def _end_at(copy: int, end: int, size: int) -> None:
    """Zero what an earlier try left after the last piece, and cut the file to its size."""
    there = os.fstat(copy).st_size
    zero_out(copy, end, min(size, there))
    os.ftruncate(copy, size)
