"""Mapped files that shrink while parts of them wait to be sent.

A slice of a mapping shows the file as it is, not as it was: behind the end of a file that was cut off,
touching it ends the process, and where the file grows again it has other bytes. So before a file shrinks,
whatever is mapped of its end becomes memory of its own, with the bytes that were there. That costs a copy of
what is cut off, and only where somebody still holds a slice.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import Any, NamedTuple
from weakref import ref

from ottla.runtime.page_cache import address_of

_MAP_FIXED = 0x10  # The same on Linux and macOS; Python does not name it.
_COPIED_AT_ONCE_BYTES = 1024 * 1024


class Inode(NamedTuple):
    device: int
    number: int


# How much of each mapping is still which file. Of the whole process, since a slice outlives the file object
# it came from. Who drops the last slice of a mapping drops the mapping, and that its entry.
_live: dict[ref[mmap.mmap], tuple[Inode, int]] = {}


def map_file(fd: int, length: int, inode: Inode) -> memoryview:
    """The first bytes of a file, for reading."""
    pages = mmap.mmap(fd, length, prot=mmap.PROT_READ)
    _live[ref(pages, _live.pop)] = inode, length
    return memoryview(pages)


def keep_bytes(fd: int, inode: Inode, position: int) -> None:
    """Let nobody who holds a slice notice that the file is about to end at `position`."""
    # What is left of the last page is set to zeros by the kernel, so that page is copied, too.
    start = position - position % mmap.PAGESIZE
    for mapping, (mapped, backed_bytes) in list(_live.items()):
        pages = mapping()
        if pages is not None and mapped == inode and backed_bytes > start:
            _detach(fd, address_of(pages), start, backed_bytes)
            _live[mapping] = inode, start


def _detach(fd: int, address: int, start: int, end: int) -> None:
    copied = bytearray()
    while start + len(copied) < end:
        part = os.pread(fd, min(_COPIED_AT_ONCE_BYTES, end - start - len(copied)), start + len(copied))
        if not part:
            break
        copied += part
    pages = -(-(end - start) // mmap.PAGESIZE) * mmap.PAGESIZE
    target = address + start
    placed = _libc().mmap(
        target,
        pages,
        mmap.PROT_READ | mmap.PROT_WRITE,
        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED,
        -1,
        0,
    )
    if placed != target:
        raise OSError(
            ctypes.get_errno() or errno.ENOMEM, "no memory for what is cut off and still being sent"
        )
    ctypes.memmove(target, bytes(copied), len(copied))


def _libc() -> Any:
    # Holds on to the interpreter's lock: nobody is to look while nothing is there yet.
    libc = ctypes.PyDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    return libc
