"""Length-prefixed frames out of a byte stream, without I/O and without copying what arrives whole.

Connections share one scratch buffer: the event loop fills it and hands it over within a single callback, so
an idle connection owns no memory. Only a frame that is still incomplete when the callback ends moves to a
buffer of its own, and later reads land in that buffer directly.

Memory follows the bytes that have come, not the size that is announced: the first ones go to a small buffer
that nobody counts, and only who has sent as much as `UNCOUNTED_BYTES_MAX` gets a buffer for the whole frame,
from the budget of all connections. It is reserved at once and not bit by bit, so that no two clients can each
hold half of what the other waits for. It is kept for the next large frame until the connection falls idle or
memory gets short.

A frame returned by `next_frame` is valid until the next call of `next_frame` or `make_room`: handlers append
or decode it before they return, and keep no view of it.
"""

from __future__ import annotations

import mmap
import struct

from ottla.runtime.tasks import ByteBudget

SIZE = struct.Struct(">i")
SCRATCH_BYTES = 256 * 1024
OWN_BYTES_MIN = 4 * 1024
UNCOUNTED_BYTES_MAX = 64 * 1024
LAZY_BYTES_MIN = 1024 * 1024
REQUEST_HEADER_BYTES_MIN = 8


def _buffer(size: int) -> memoryview:
    """Large ones take no memory until bytes arrive, however much a client announces."""
    return memoryview(bytearray(size) if size < LAZY_BYTES_MIN else mmap.mmap(-1, size))


_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PRI ")
_TLS_HANDSHAKE = b"\x16\x03"


def _guess(size: int) -> str:
    """What the first bytes are, if not a size."""
    first = SIZE.pack(size)
    if first in _HTTP:
        return ": this looks like HTTP"
    if first.startswith(_TLS_HANDSHAKE):
        return ": this looks like TLS, which the listener does not speak"
    return ""


class MalformedFrame(Exception):
    """The stream cannot be understood from here on; the connection has to be closed."""


class FrameReader:
    __slots__ = ("_budget", "_end", "_reserved", "_scratch", "_start", "_view", "frame_bytes_max")

    def __init__(self, scratch: memoryview, budget: ByteBudget, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._budget = budget
        self.frame_bytes_max = frame_bytes_max
        self._view = scratch
        self._reserved = 0
        self._start = 0
        self._end = 0

    @property
    def holds_unfinished(self) -> bool:
        """Bytes of the budget are taken by a frame that has not come whole."""
        return self.unfinished_bytes > 0

    @property
    def unfinished_bytes(self) -> int:
        """What has come of a frame that is not whole, and takes bytes of the budget."""
        return self._end - self._start if self._reserved else 0

    @property
    def has_more(self) -> bool:
        """Bytes that are not handled yet."""
        return self._end > self._start

    def target(self) -> memoryview:
        """Where the next bytes go; never empty after a `make_room` that returned 0."""
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
            if size > self.frame_bytes_max:
                raise MalformedFrame(
                    f"it announces a request of {size} bytes, more than the {self.frame_bytes_max} it may "
                    f"have (socket.request.max.bytes, or less before a login){_guess(size)}"
                )
            return None
        if size < REQUEST_HEADER_BYTES_MIN:
            raise MalformedFrame(f"it announces a request of {size} bytes, less than a request header")
        start += 4
        self._start = start + size
        return self._view[start : start + size]

    def make_room(self) -> int:
        """Make room for what comes next, once no whole frame is left or none may be handled now.

        0, or the bytes that have to be reserved first because the budget has no room for them; call `accept`
        when they are.
        """
        start, end = self._start, self._end
        left = end - start
        if left == 0:
            self._start = self._end = 0
            if self._view is not self._scratch and (not self._reserved or self._budget.is_tight):
                self.close()
            return 0
        needed = 4
        if left >= 4:
            needed += max(SIZE.unpack_from(self._view, start)[0], 0)
        needed = max(needed, left)
        if self._view is not self._scratch:
            room = len(self._view)
            if room >= needed or left < room <= UNCOUNTED_BYTES_MAX:
                if start:
                    self._view[:left] = self._view[start:end]
                    self._start, self._end = 0, left
                return 0
        if left < UNCOUNTED_BYTES_MAX:
            step = OWN_BYTES_MIN if left < OWN_BYTES_MIN else UNCOUNTED_BYTES_MAX
            self._move(max(OWN_BYTES_MIN, min(needed, step)), 0)
            return 0
        if self._budget.reserve(needed, self._reserved):
            self._reserved = needed
            self._move(needed, needed)
            return 0
        # The scratch buffer is everybody's, and whoever waits must not hold what others wait for.
        self._move(left, 0)
        return needed

    def accept(self, reserved: int) -> None:
        """The bytes that `make_room` asked for are reserved."""
        self._move(reserved, reserved)

    def release(self) -> None:
        """Give the connection's own buffer back, if nothing is in it."""
        if self._view is not self._scratch and self._start == self._end:
            self.close()

    def close(self) -> None:
        held, self._reserved = self._reserved, 0
        self._view = self._scratch
        self._start = self._end = 0
        if held:
            self._budget.release(held)

    def _move(self, size: int, reserved: int) -> None:
        """What is left goes to a buffer of this size, for which so many bytes of the budget are taken."""
        start, end = self._start, self._end
        # First, so that `close` gives back what is taken even if there is no memory to be had.
        held, self._reserved = self._reserved, reserved
        own = _buffer(size)
        own[: end - start] = self._view[start:end]
        self._view = own
        self._start, self._end = 0, end - start
        if held and not reserved:
            self._budget.release(held)
