"""Files: appended to with one system call, read without copying, replaced atomically, synced on request."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Sequence
from time import monotonic
from typing import Protocol, TypeAlias

from ottla.runtime.mappings import Inode, keep_bytes, map_file
from ottla.runtime.page_cache import address_of, has_pages, is_in_memory, read_nowait

ReadableBuffer: TypeAlias = bytes | bytearray | memoryview

# Below this a copy out of the page cache is cheaper than faulting fresh mmap pages in.
MMAP_BYTES_MIN = 64 * 1024
IOV_MAX = 1024
# Of what is brought into memory, in one call; a large one would hold memory for nothing.
LOAD_CHUNK_BYTES = 256 * 1024
# Whoever reads what is not in memory mostly reads on. The kernel fetches so much more meanwhile.
READ_AHEAD_BYTES = 8 * 1024 * 1024
# What is in memory is taken to stay for so long. That is less than an answer may wait to be sent.
WARM_SECONDS = 0.02
LOOK_AHEAD_BYTES = 4 * 1024 * 1024


PRIVATE_MODE = 0o600


class DiskLocked(OSError):
    """Another process holds the lock of this directory."""


class File(Protocol):
    size: int
    """End of the file as this process wrote it; kept here so that appends and reads need no fstat."""

    def append(self, buffers: Sequence[ReadableBuffer]) -> None:
        """All of the buffers at the end of the file, or an error and the file as it was."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """A copy of at most `length` bytes; short at the end of the file."""
        ...

    def view(self, position: int, length: int) -> ReadableBuffer:
        """The same bytes, for sending: large ranges are mapped, not copied."""
        ...

    def view_nowait(self, position: int, length: int) -> ReadableBuffer | None:
        """The same, but None where that would wait for the medium: `load` it first, in another thread."""
        ...

    def load(self, position: int, length: int) -> None:
        """Block until these bytes are in memory. Safe to call from another thread."""
        ...

    def truncate(self, size: int) -> None:
        """Views that were handed out before keep their bytes."""
        ...

    def sync(self) -> None:
        """Block until the contents are on the medium. Safe to call from another thread."""
        ...

    def is_in_place(self) -> bool:
        """Whether its path still leads to it as this process left it: neither moved, removed nor cut."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False, private: bool = False) -> File:
        """What is `private` is made for the eyes of this user alone."""
        ...

    def read_file(self, path: str) -> bytes: ...

    def replace_file(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        """Readers see the old contents or the new, never a mixture; with `sync`, even after a power cut."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Sorted, so that nothing depends on the file system's order."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def usage(self, path: str) -> tuple[int, int]:
        """Bytes of the volume that holds `path`: in total, and still free for this process."""
        ...

    def lock(self, path: str) -> Lock:
        """Raises DiskLocked while another process holds it."""
        ...


# Of files of which something was not in memory when it was wanted: up to where pages may be on their way
# since then. The kernel counts those as being there, and whoever touches them waits. The last to miss
# something comes last.
_missed: dict[Inode, int] = {}
MISSED_FILES_MAX = 1024


class PosixFile:
    __slots__ = (
        "_fd",
        "_inode",
        "_map",
        "_map_address",
        "_warm_from",
        "_warm_to",
        "_warm_until",
        "path",
        "size",
    )

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        status = os.fstat(fd)
        self.size = status.st_size
        self._inode = Inode(status.st_dev, status.st_ino)
        self._map: memoryview | None = None
        self._map_address = 0
        """Once somebody has asked for it."""
        self._warm_from = self._warm_to = 0
        """Between these all is in memory, for the moment."""
        self._warm_until = 0.0

    def append(self, buffers: Sequence[ReadableBuffer]) -> None:
        expected = 0
        for buffer in buffers:
            expected += len(buffer)
        try:
            # The descriptor is opened with O_APPEND, so the position is the kernel's business.
            written = os.writev(self._fd, buffers) if len(buffers) <= IOV_MAX else 0
            if written != expected:
                self._append_rest(buffers, written)
        except OSError:
            try:
                os.ftruncate(self._fd, self.size)
            except OSError:
                # Half a batch is behind the end, and the next would come behind that.
                self.close()
            raise
        self.size += expected

    def _append_rest(self, buffers: Sequence[ReadableBuffer], written: int) -> None:
        """A short write (signal, full pipe of iovecs): finish buffer by buffer."""
        for buffer in buffers:
            if written >= len(buffer):
                written -= len(buffer)
                continue
            rest = memoryview(buffer)[written:]
            written = 0
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._fd, length, position)

    def view(self, position: int, length: int) -> ReadableBuffer:
        end = min(position + length, self.size)
        # Judged by what there is, not by what was asked for: a reader at the end asks for megabytes too.
        if end - position < MMAP_BYTES_MIN:
            return os.pread(self._fd, length, position)
        return self._mapped(position, end)

    def _mapped(self, position: int, end: int) -> memoryview:
        mapped = self._map
        if mapped is None or len(mapped) < end:
            # Views already handed out keep the old mapping alive until they are sent.
            mapped = self._map = map_file(self._fd, self.size, self._inode)
            self._map_address = 0
        return mapped[position:end]

    def view_nowait(self, position: int, length: int) -> ReadableBuffer | None:
        if length > self.size - position:  # noqa: PLR1730 - half the time of min()
            length = self.size - position
        end = position + length
        if self._warm_from > position or end > self._warm_to or monotonic() > self._warm_until:
            return self._view_if_warm(position, end)
        return (
            os.pread(self._fd, length, position) if length < MMAP_BYTES_MIN else self._mapped(position, end)
        )

    def _view_if_warm(self, position: int, end: int) -> ReadableBuffer | None:
        length = end - position
        # Further than asked for: whoever reads mostly reads on, and need not ask again.
        ahead = min(end + LOOK_AHEAD_BYTES, self.size)
        if position >= _missed.get(self._inode, 0) and has_pages(self._fd, position, ahead - position):
            self._note_warm(position, ahead)
            return self.view(position, length)
        data: ReadableBuffer | None
        if length < MMAP_BYTES_MIN:
            data = read_nowait(self._fd, length, position)
        else:
            data = self._mapped(position, end)
            if not self._map_address:
                self._map_address = address_of(data) - position
            if not is_in_memory(self._map_address + position, length):
                data = None
        if data is None:
            self._note_missed(end + READ_AHEAD_BYTES)
        else:
            self._note_warm(position, end)
        return data

    def _note_warm(self, position: int, end: int) -> None:
        self._warm_from = position
        # What comes behind the end of the file is warm from being written.
        self._warm_to = end if end < self.size else sys.maxsize
        self._warm_until = monotonic() + WARM_SECONDS

    def _note_missed(self, end: int) -> None:
        end = max(end, _missed.pop(self._inode, 0))
        _missed[self._inode] = end
        if len(_missed) > MISSED_FILES_MAX:
            del _missed[next(iter(_missed))]

    def load(self, position: int, length: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, position, length + READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
        end = min(position + length, self.size)
        while position < end:
            # Read, not touched through a mapping: threads that wait for a page stop all others of Python.
            got = len(os.pread(self._fd, min(LOAD_CHUNK_BYTES, end - position), position))
            if not got:
                return
            position += got

    def truncate(self, size: int) -> None:
        self._map = None
        self._warm_to = 0
        keep_bytes(self._fd, self._inode, size)
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def is_in_place(self) -> bool:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino, found.st_size) == (*self._inode, self.size)

    def close(self) -> None:
        self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class PosixLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class PosixDisk:
    def open(self, path: str, *, create: bool = False, private: bool = False) -> PosixFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return PosixFile(path, os.open(path, flags, PRIVATE_MODE if private else 0o644))

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace_file(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        temporary = path + ".tmp"
        try:
            with open(temporary, "wb") as file:
                if private:
                    os.fchmod(file.fileno(), PRIVATE_MODE)
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError:
            # On a full disk it takes the room that is wanted.
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        os.replace(temporary, path)
        if sync:
            self.sync_dir(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def usage(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def lock(self, path: str) -> PosixLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise DiskLocked(error.errno, "locked by another process", path) from error
        return PosixLock(fd)
