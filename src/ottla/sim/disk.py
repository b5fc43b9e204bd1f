"""A disk in memory that loses what was not synced, fills up, fails and rots on request.

It implements `runtime.disk.Disk`. `crash()` is a power cut, `kill()` the death of the process alone: the page
cache survives, locks and open files do not. `crash_after()` cuts the power in the middle of whatever the
process is doing, between two of its system calls. `fill()` leaves room for so many bytes, `corrupt()` flips a
bit at rest, `obstruct()` puts a file where somebody wants a directory, `unmount()` empties a directory until
`mount()`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ottla.runtime.disk import DiskLocked, ReadableBuffer
from ottla.sim.costs import OPERATION, SYNC, Cost
from ottla.sim.loop import ProcessDied
from ottla.sim.medium import ALL_TAIL_FAULTS, Change, Directory, Inode, Medium, Node, TailFault

CAPACITY_BYTES = 1 << 40

Operation: TypeAlias = Literal["open", "append", "read", "truncate", "sync", "rename", "remove", "sync_dir"]


SYNCS = frozenset(("sync", "sync_dir"))


@dataclass(slots=True)
class _InjectedError:
    operation: Operation
    error: int
    path: str
    times: int


class SimFile:
    __slots__ = ("_disk", "_generation", "_inode", "_open", "path", "size")

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self.path = path
        self.size = len(inode.content)
        self._disk = disk
        self._inode = inode
        self._generation = disk.generation
        self._open = True

    def _begin(self, operation: Operation) -> None:
        if self._generation != self._disk.generation:
            raise ProcessDied(f"{self.path} was opened by a process that has died")
        if not self._open:
            raise OSError(errno.EBADF, "file is closed", self.path)
        self._disk.begin(operation, self.path)

    def append(self, buffers: Sequence[ReadableBuffer]) -> None:
        self._begin("append")
        self._disk.take_room(sum(map(len, buffers)), self.path)
        for buffer in buffers:
            self._inode.content += buffer
            self.size += len(buffer)

    def read(self, position: int, length: int) -> bytes:
        self._begin("read")
        self._inode.in_memory = True
        return bytes(self._inode.content[position : position + length])

    def view(self, position: int, length: int) -> ReadableBuffer:
        return self.read(position, length)

    def view_nowait(self, position: int, length: int) -> ReadableBuffer | None:
        return self.read(position, length) if self._inode.in_memory else None

    def load(self, position: int, length: int) -> None:
        self.read(position, length)

    def truncate(self, size: int) -> None:
        self._begin("truncate")
        self._disk.take_room(size - len(self._inode.content), self.path)
        self._inode.truncate(size)
        self.size = size

    def sync(self) -> None:
        self._begin("sync")
        self._inode.sync()

    def is_in_place(self) -> bool:
        self._begin("read")
        return self._disk._lookup(self.path) is self._inode

    def close(self) -> None:
        self._open = False


class SimLock:
    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)


class SimDisk:
    def __init__(
        self,
        seed: int | str = 0,
        *,
        faults: Sequence[TailFault] = ALL_TAIL_FAULTS,
        trace: Callable[[str], None] | None = None,
        charge: Callable[[Cost], None] | None = None,
    ) -> None:
        self.faults = tuple(faults)
        self.generation = 0
        """Counts the processes that used this disk: files opened by an earlier one are dead."""
        self.halted = False
        """While the process is down, nothing may touch the disk, not even its `finally` blocks."""
        self.operations = 0
        self._random = random.Random(f"disk/{seed}")
        self._trace = trace
        self._charge = charge
        self._medium = Medium()
        self._room_bytes: int | None = None
        self._unmounted: dict[str, Directory] = {}
        self._locks: set[str] = set()
        self._errors: list[_InjectedError] = []
        self._operations_left: int | None = None
        self._on_crash: Callable[[], None] = self.crash

    # Faults.

    def crash(self) -> None:
        """Power is cut and comes back: the disk is as the medium has it."""
        self._medium.lose_power(self._random, self.faults)
        self.kill()

    def kill(self) -> None:
        """The process dies, the machine stays up: nothing written is lost."""
        self.generation += 1
        # Locks of the dead release into their own set.
        self._locks = set()
        self._operations_left = None

    def crash_after(self, operations: int | None, on_crash: Callable[[], None] | None = None) -> None:
        """Cut the power after so many more operations, or, with None, no more; `restart` ends the outage."""
        self._operations_left = operations
        self._on_crash = on_crash or self.crash

    def restart(self) -> None:
        self.halted = False

    def fail(self, operation: Operation, error: int, *, path: str = "", times: int = 1) -> None:
        """Let the next `times` such operations below `path` fail, as with errno.ENOSPC or errno.EIO."""
        self._errors.append(_InjectedError(operation, error, path, times))

    def heal(self) -> None:
        self._errors.clear()

    def evict(self, path: str) -> None:
        """The machine needs its memory for other things: the file is on the medium alone."""
        self._file(path).in_memory = False

    def corrupt(self, path: str, position: int) -> None:
        """Flip one bit of a file, as the medium does with age."""
        content = self._file(path).content
        content[position] ^= 1 << self._random.randrange(8)

    def fill(self, room_bytes: int = 0) -> None:
        """Let so many more bytes fit; what is removed makes room again, `make_room` makes plenty."""
        self._room_bytes = room_bytes

    def make_room(self) -> None:
        self._room_bytes = None

    @property
    def is_full(self) -> bool:
        return self._room_bytes is not None and self._room_bytes <= 0

    @property
    def is_limited(self) -> bool:
        return self._room_bytes is not None

    def take_room(self, size: int, path: str) -> None:
        """ENOSPC where so many bytes do not fit; less than none gives room back."""
        if self._room_bytes is None:
            return
        if size > max(self._room_bytes, 0):
            raise _no_space(path)
        self._room_bytes -= size

    def _append_what_fits(self, inode: Inode, data: bytes) -> None:
        """A write that fails for want of room has written that much; nobody takes it back."""
        if self._room_bytes is not None:
            inode.content += data[: max(self._room_bytes, 0)]
            self._room_bytes = min(self._room_bytes, 0)

    def obstruct(self, path: str) -> None:
        """Somebody else's file where the process wants to make a directory; `clear` takes it away."""
        directory, name = self._parent(path)
        if name in directory.entries:
            raise FileExistsError(errno.EEXIST, "is there already", path)
        directory.entries[name] = directory.durable[name] = Inode()

    def clear(self, path: str) -> None:
        directory, name = self._parent(path)
        for entries in (directory.entries, directory.durable):
            if isinstance(entries.get(name), Inode):
                del entries[name]

    def stored_files(self, below: str) -> dict[str, int]:
        """Size of every file, as somebody sees it who looks at the medium and not through the process."""
        return {path: len(node.content) for path, node in self._walk(below) if isinstance(node, Inode)}

    def stored_paths(self, below: str) -> set[str]:
        return {path for path, _ in self._walk(below)}

    def _walk(self, below: str) -> Iterator[tuple[str, Node]]:
        for name, node in sorted(self._directory(below).entries.items()):
            path = f"{below}/{name}"
            yield path, node
            if isinstance(node, Directory):
                yield from self._walk(path)

    def unmount(self, path: str) -> None:
        """Show the empty directory below a mount point, as when a volume is not there at start."""
        directory, name = self._parent(path)
        self._unmounted[path] = self._directory(path)
        directory.entries[name] = directory.durable[name] = Directory()

    def mount(self, path: str) -> None:
        """The volume is back; what was written to the mount point meanwhile is hidden by it."""
        directory, name = self._parent(path)
        directory.entries[name] = directory.durable[name] = self._unmounted.pop(path)

    def begin(self, operation: Operation, path: str) -> None:
        """Every operation passes here before it does anything."""
        if self.halted:
            raise ProcessDied(f"{operation} {path}: the process on this disk is down")
        if operation != "read":
            self.operations += 1
            if self._operations_left is not None:
                self._operations_left -= 1
                if self._operations_left < 0:
                    self._on_crash()
                    self.halted = True
                    raise ProcessDied(f"power was cut before {operation} {path}")
            if self._trace is not None:
                self._trace(f"{operation} {path}")
        if self._charge is not None:
            self._charge(SYNC if operation in SYNCS else OPERATION)
        for injected in self._errors:
            if injected.operation == operation and path.startswith(injected.path):
                injected.times -= 1
                if injected.times == 0:
                    self._errors.remove(injected)
                raise OSError(injected.error, os.strerror(injected.error), path)

    # runtime.disk.Disk.

    def open(self, path: str, *, create: bool = False, private: bool = False) -> SimFile:
        self.begin("open" if create else "read", path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._begin_entry(path)
            node = Inode()
            self._medium.change(Change(added=(directory, name, node)))
        return SimFile(self, path, node)

    def read_file(self, path: str) -> bytes:
        self.begin("read", path)
        return bytes(self._file(path).content)

    def replace_file(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        file = self.open(path + ".tmp", create=True)
        file.truncate(0)
        try:
            file.append([data])
        except OSError:
            self._append_what_fits(self._file(path + ".tmp"), data)
            raise
        if sync:
            file.sync()
        file.close()
        self.rename(path + ".tmp", path)
        if sync:
            self.sync_dir(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        self.begin("read", path)
        try:
            return self._lookup(path) is not None
        except NotADirectoryError:
            return False

    def is_dir(self, path: str) -> bool:
        self.begin("read", path)
        try:
            return isinstance(self._lookup(path), Directory)
        except NotADirectoryError:
            return False

    def list_dir(self, path: str) -> list[str]:
        self.begin("read", path)
        return sorted(self._directory(path).entries)

    def make_dirs(self, path: str) -> None:
        self.begin("open", path)
        if isinstance(self._lookup(path), Inode):
            raise FileExistsError(errno.EEXIST, "is a file", path)
        directory = self._medium.root
        for name in _split(path):
            node = directory.entries.get(name)
            if not isinstance(node, Directory):
                self._begin_entry(path)
                node = Directory()
                self._medium.change(Change(added=(directory, name, node)))
            directory = node

    def rename(self, source: str, target: str) -> None:
        self.begin("rename", source)
        from_directory, from_name = self._parent(source)
        to_directory, to_name = self._parent(target)
        node = from_directory.entries.get(from_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", source)
        replaced = to_directory.entries.get(to_name)
        if replaced is node:
            return
        if isinstance(node, Directory) and target.startswith(source + "/"):
            raise OSError(errno.EINVAL, "target lies inside the source", target)
        if source.startswith(target + "/"):
            raise OSError(errno.ENOTEMPTY, "source lies inside the target", target)
        if isinstance(replaced, Directory):
            if not isinstance(node, Directory):
                raise IsADirectoryError(errno.EISDIR, "target is a directory", target)
            if replaced.entries:
                raise OSError(errno.ENOTEMPTY, "target directory is not empty", target)
        elif replaced is not None and isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "target is a file", target)
        if isinstance(replaced, Inode):
            self.take_room(-len(replaced.content), target)
        self._medium.change(Change(removed=(from_directory, from_name), added=(to_directory, to_name, node)))

    def remove(self, path: str) -> None:
        self.begin("remove", path)
        self.take_room(-len(self._file(path).content), path)
        self._medium.change(Change(removed=self._parent(path)))

    def remove_tree(self, path: str) -> None:
        """As far as that goes: what cannot be removed is left, as by the real one."""
        with contextlib.suppress(OSError):
            node = self._lookup(path) if self.exists(path) else None
            if isinstance(node, Directory):
                for name in sorted(node.entries):
                    if isinstance(node.entries[name], Directory):
                        self.remove_tree(f"{path}/{name}")
                    else:
                        with contextlib.suppress(OSError):
                            self.remove(f"{path}/{name}")
                self.begin("remove", path)
                if not node.entries:
                    self._medium.change(Change(removed=self._parent(path)))

    def sync_dir(self, path: str) -> None:
        self.begin("sync_dir", path)
        self._medium.sync_directory(self._directory(path))

    def usage(self, path: str) -> tuple[int, int]:
        self.begin("read", path)
        self._directory(path)
        if self._room_bytes is not None:
            return CAPACITY_BYTES, max(self._room_bytes, 0)
        return CAPACITY_BYTES, CAPACITY_BYTES - _stored_bytes(self._medium.root)

    def lock(self, path: str) -> SimLock:
        self.open(path, create=True).close()
        if path in self._locks:
            raise DiskLocked(errno.EWOULDBLOCK, "locked by another process", path)
        self._locks.add(path)
        return SimLock(self._locks, path)

    # Paths.

    def _begin_entry(self, path: str) -> None:
        """A new name often fits into a block that its directory has already, but not always."""
        if self.is_full and self._random.random() < 0.5:
            raise _no_space(path)

    def _lookup(self, path: str) -> Node | None:
        node: Node | None = self._medium.root
        for name in _split(path):
            if isinstance(node, Inode):
                raise NotADirectoryError(errno.ENOTDIR, "a part of the path is a file", path)
            node = None if node is None else node.entries.get(name)
        return node

    def _file(self, path: str) -> Inode:
        node = self._lookup(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._lookup(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if isinstance(node, Inode):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        *parents, name = _split(path)
        return self._directory("/".join(parents)), name


def _no_space(path: str) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def _stored_bytes(node: Node) -> int:
    if isinstance(node, Inode):
        return len(node.content)
    return sum(map(_stored_bytes, node.entries.values()))


def _split(path: str) -> list[str]:
    """Relative paths start at the root as well: a simulated process has no working directory."""
    return [name for name in path.split("/") if name not in ("", ".")]
