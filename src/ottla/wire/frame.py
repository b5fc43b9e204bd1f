"""Length-prefixed frames out of a byte stream, without I/O and without copying what arrives whole.

Connections share one scratch buffer: the event loop fills it and hands it over within a single callback, so
an idle connection owns no memory. Only a frame that is still incomplete when the callback ends moves to a
buffer of its own, sized to the frame, and later reads land in that buffer directly. The buffer is kept for
the next large frame until the connection falls idle or memory gets short.

A frame returned by `next_frame` is valid until the next call of `next_frame` or `settle`: handlers append or
decode it before they return, and keep no view of it.
"""

from __future__ import annotations

import mmap
import struct

from ottla.runtime.tasks import ByteBudget

SIZE = struct.Struct(">i")
SCRATCH_BYTES = 256 * 1024
OWN_BYTES_MIN = 4 * 1024
LAZY_BYTES_MIN = 1024 * 1024
REQUEST_HEADER_BYTES_MIN = 8


def _buffer(size: int) -> memoryview:
    """Large ones take no memory until bytes arrive, however much a client announces."""
    return memoryview(bytearray(size) if size < LAZY_BYTES_MIN else mmap.mmap(-1, size))


class MalformedFrame(Exception):
    """The stream cannot be understood from here on; the connection has to be closed."""


class FrameReader:
    __slots__ = ("_budget", "_end", "_frame_bytes_max", "_own_bytes", "_scratch", "_start", "_view")

    def __init__(self, scratch: memoryview, budget: ByteBudget, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._budget = budget
        self._frame_bytes_max = frame_bytes_max
        self._view = scratch
        self._own_bytes = 0
        self._start = 0
        self._end = 0

    def target(self) -> memoryview:
        """Where the next bytes go; never empty after a `settle` that returned True."""
        return self._view[self._end :]

    def received(self, size: int) -> None:
        self._end += size

    def next_frame(self) -> memoryview | None:
        start = self._start
        available = self._end - start - 4
        if available < 0:
            return None
        (size,) = SIZE.unpack_from(self._view, start)
        if size > available:
            if size > self._frame_bytes_max:
                raise MalformedFrame(
                    f"it announces a request of {size} bytes, more than socket.request.max.bytes="
                    f"{self._frame_bytes_max}"
                )
            return None
        if size < REQUEST_HEADER_BYTES_MIN:
            raise MalformedFrame(f"it announces a request of {size} bytes, less than a request header")
        start += 4
        self._start = start + size
        return self._view[start : start + size]

    def settle(self) -> bool:
        """Make room for what comes next, once no whole frame is left or none may be handled now.

        False: the rest of the frame has to wait until the budget has room for it; call again then.
        """
        start, end = self._start, self._end
        left = end - start
        if left == 0:
            self._start = self._end = 0
            if self._own_bytes and self._budget.is_tight:
                self.release()
            return True
        needed = 4
        if left >= 4:
            needed += max(SIZE.unpack_from(self._view, start)[0], 0)
        needed = max(needed, left)
        if self._own_bytes >= needed:
            if start:
                self._view[:left] = self._view[start:end]
                self._start, self._end = 0, left
            return True
        if not self._budget.reserve(needed):
            if self._view is self._scratch:
                # The scratch buffer is everybody's, so what has arrived must leave it even now.
                self._view = memoryview(bytearray(self._view[start:end]))
                self._start, self._end = 0, left
            return False
        own = _buffer(max(needed, OWN_BYTES_MIN))
        own[:left] = self._view[start:end]
        held, self._own_bytes = self._own_bytes, needed
        self._view = own
        self._start, self._end = 0, left
        self._budget.release(held)
        return True

    def release(self) -> None:
        """Give the connection's own buffer back, if nothing is in it."""
        if self._own_bytes and self._start == self._end:
            self.close()

    def close(self) -> None:
        held, self._own_bytes = self._own_bytes, 0
        self._view = self._scratch
        self._start = self._end = 0
        self._budget.release(held)
