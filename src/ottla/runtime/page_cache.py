"""Whether the kernel has part of a file in memory: asked before a read that must not wait for the disk.

Only Linux can say. Elsewhere everything counts as being in memory, and a read of what is not takes its time.

There are two ways to ask. `has_pages` takes a microsecond, and counts pages that the disk is only about to
fill. `is_in_memory` does not, and takes twenty for a megabyte that nobody has touched through its mapping.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
import sys
from typing import Any, ClassVar

_PAGES_PER_CALL = 1024
_PAGE_BITS = mmap.PAGESIZE.bit_length() - 1
_CACHESTAT = 451
"""The number of a system call, since Linux 6.5. The C library has no name for it yet."""


class _Buffer(ctypes.Structure):
    """CPython's Py_buffer: the only way to the address of memory that must not be written to."""

    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def _find(name: str) -> Any:
    if sys.platform != "linux":
        return None
    try:
        # Holds on to the interpreter's lock: what takes a microsecond is not worth waiting for it again.
        return getattr(ctypes.PyDLL(None), name)
    except (AttributeError, OSError):
        return None


_mincore = _find("mincore")
if _mincore is not None:
    _mincore.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p)
_pages = ctypes.create_string_buffer(_PAGES_PER_CALL)

_syscall = _find("syscall")
_range = ctypes.create_string_buffer(16)
_counts = ctypes.create_string_buffer(40)
# Made once, for their cost.
_CACHESTAT_ARGUMENTS = (
    ctypes.c_void_p(ctypes.addressof(_range)),
    ctypes.c_void_p(ctypes.addressof(_counts)),
    ctypes.c_uint(0),
)
_CACHESTAT_NUMBER = ctypes.c_long(_CACHESTAT)
_put_range = struct.Struct("=QQ").pack_into  # position, length
_cached_pages = struct.Struct("=Q").unpack_from  # the first of several counts

_nowait = getattr(os, "RWF_NOWAIT", None)


def address_of(mapped: mmap.mmap | memoryview) -> int:
    """Where a mapping, or a slice of it, lies, for as long as it lives."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(buffer), 0)
    address = int(buffer.buf)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


def has_pages(fd: int, position: int, length: int) -> bool:
    """Whether the kernel has every page of a file's range, or is reading it; False where it cannot tell."""
    global _syscall  # noqa: PLW0603 - found out once in the life of a process
    if _syscall is None:
        return False
    _put_range(_range, 0, position, length)
    if _syscall(_CACHESTAT_NUMBER, fd, *_CACHESTAT_ARGUMENTS):
        _syscall = None
        return False
    pages = ((position + length - 1) >> _PAGE_BITS) - (position >> _PAGE_BITS) + 1
    return bool(_cached_pages(_counts)[0] == pages)


def is_in_memory(address: int, length: int) -> bool:
    """Of a mapped range: whether reading it needs no disk. Costs a few microseconds per megabyte."""
    if _mincore is None:
        return True
    end = address + length
    address -= address % mmap.PAGESIZE
    while address < end:
        count = min(-(-(end - address) // mmap.PAGESIZE), _PAGES_PER_CALL)
        if _mincore(address, count * mmap.PAGESIZE, _pages):
            return True
        if b"\0" in _pages[:count]:
            return False
        address += count * mmap.PAGESIZE
    return True


def read_nowait(fd: int, length: int, position: int) -> bytes | bytearray | None:
    """So many bytes of a file, or None where some of them would have to come from the disk."""
    global _nowait  # noqa: PLW0603 - found out once in the life of a process
    if _nowait is None:
        return os.pread(fd, length, position)
    data = bytearray(length)
    try:
        return data if os.preadv(fd, [data], position, _nowait) == length else None
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
        # This file system does not know how. Another one might, but all data is on one kind as a rule.
        _nowait = None
        return os.pread(fd, length, position)
