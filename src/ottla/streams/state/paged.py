"""A map kept in pages: many small entries behind few large ones, for hosts where each access is a round trip.

Keys are spread over pages by a hash, so that one access brings the neighbours that a large micro-batch will
ask for anyway, and a single key costs no more than a page. The number of pages follows the size of the map
(linear hashing): when it grows, as many pages are divided as new ones are needed, the others stay where they
are. What is read stays in memory until ``release``.

Page 0 begins with the number of pages and the size of the map.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import accumulate, pairwise
from zlib import crc32

from ottla.streams.state.backend import Backend

# A few dozen small entries. Larger ones make more of what is read and written useless, smaller ones make more
# round trips.
PAGE_BYTES = 4096
# What an entry costs besides its bytes, on disk and in the work of reading it.
ENTRY_BYTES = 16
# A page in memory is a dictionary, with objects around the bytes.
_MEMORY_ENTRY_BYTES = 150
# Pages are joined again when this share of them would do, to a number that leaves room to grow.
_SHRINK_SHARE = 4

_HEAD = struct.Struct(">IQ")
_NUMBER = struct.Struct(">I")

Page = dict[bytes, bytes]


class PagedBackend:
    __slots__ = ("_count", "_dirty", "_host", "_memory_bytes", "_page_bytes", "_pages", "_size_bytes")

    def __init__(self, host: Backend, *, page_bytes: int = PAGE_BYTES) -> None:
        self._host = host
        self._page_bytes = page_bytes
        self._pages: dict[int, Page] = {}
        self._dirty: set[int] = set()
        # Zero until page 0 was read.
        self._count = 0
        self._size_bytes = 0
        self._memory_bytes = 0

    @property
    def memory_bytes(self) -> int:
        """About what is held in memory."""
        return self._memory_bytes

    def is_empty(self) -> bool:
        if not self._count:
            self._open()
        return self._size_bytes == 0

    def get(self, key: bytes) -> bytes | None:
        return self._page(self._place(key)).get(key)

    def put(self, key: bytes, value: bytes) -> None:
        number = self._place(key)
        page = self._page(number)
        present = page.get(key)
        if present is None:
            self._grow(len(key) + len(value) + ENTRY_BYTES)
        elif present == value:
            return
        else:
            self._grow(len(value) - len(present))
        page[key] = value
        self._dirty.add(number)

    def delete(self, key: bytes) -> None:
        number = self._place(key)
        present = self._page(number).pop(key, None)
        if present is not None:
            self._grow(-len(key) - len(present) - ENTRY_BYTES)
            self._dirty.add(number)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        if not self._count:
            self._open()
        for number in range(self._count):
            page = self._pages.get(number)
            # Not kept: whoever wants everything goes through it once.
            yield from list((self._read(number) if page is None else page).items())

    def flush(self) -> None:
        """Write what has changed; what was read stays in memory."""
        if not self._dirty:
            return
        self._fit()
        for number in sorted(self._dirty):
            page = self._pages[number]
            if number == 0 and self._size_bytes:
                head = _HEAD.pack(self._count, self._size_bytes)
                self._host.put(_NUMBER.pack(0), head + encode_entries(page))
            elif page:
                self._host.put(_NUMBER.pack(number), encode_entries(page))
            else:
                self._host.delete(_NUMBER.pack(number))
        self._dirty.clear()

    def release(self) -> None:
        """Write what has changed and hold nothing in memory."""
        self.flush()
        self._pages.clear()
        self._count = self._size_bytes = self._memory_bytes = 0

    def _grow(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        self._memory_bytes += size_bytes
        # Its head has the size.
        self._dirty.add(0)

    def _place(self, key: bytes) -> int:
        if not self._count:
            self._open()
        return _place(key, self._count)

    def _page(self, number: int) -> Page:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = self._read(number)
            self._memory_bytes += sum(map(len, page.values())) + len(page) * _MEMORY_ENTRY_BYTES
        return page

    def _read(self, number: int) -> Page:
        data = self._host.get(_NUMBER.pack(number))
        return {} if data is None else decode_entries(data)

    def _open(self) -> None:
        data = self._host.get(_NUMBER.pack(0))
        if data is None:
            self._count, self._pages[0] = 1, {}
        else:
            self._count, self._size_bytes = _HEAD.unpack_from(data)
            self._pages[0] = decode_entries(data, _HEAD.size)

    def _fit(self) -> None:
        """Make the number of pages follow the size of the map; an empty one leaves nothing behind."""
        if not self._size_bytes:
            self._count = 1
            return
        wanted = max(1, -(-self._size_bytes // self._page_bytes))
        if wanted > self._count:
            self._resize(wanted)
        elif wanted * _SHRINK_SHARE < self._count:
            self._resize(2 * wanted)

    def _resize(self, count: int) -> None:
        before = self._count
        # Where it grows: pages whose keys may now belong to a new page. Where it shrinks: those that go.
        moving = (
            sorted({_parent(number, before) for number in range(before, count)})
            if count > before
            else range(count, before)
        )
        pages = [(number, self._page(number)) for number in moving]
        if count > before:
            for number in range(before, count):
                self._pages[number] = {}
                self._dirty.add(number)
        self._count = count
        for number, page in pages:
            leaving = [key for key in page if _place(key, count) != number]
            for key in leaving:
                target = _place(key, count)
                self._page(target)[key] = page.pop(key)
                self._dirty.add(target)
            self._dirty.add(number)
        self._dirty.add(0)


def _place(key: bytes, count: int) -> int:
    """The page of a key: its hash by the next power of two, or by the one before where that page is not there
    yet."""
    span = 1 << (count - 1).bit_length()
    number = crc32(key) & (span - 1)
    return number if number < count else number - (span >> 1)


def _parent(number: int, count: int) -> int:
    """Where the keys of a page are while there are fewer pages than its number."""
    while number >= count:
        number -= 1 << (number.bit_length() - 1)
    return number


def encode_entries(entries: Page) -> bytes:
    sizes = [*map(len, entries), *map(len, entries.values())]
    head = struct.pack(f">I{len(sizes)}I", len(entries), *sizes)
    return b"".join((head, *entries, *entries.values()))


def decode_entries(data: bytes, position: int = 0) -> Page:
    (count,) = _NUMBER.unpack_from(data, position)
    sizes = struct.unpack_from(f">{2 * count}I", data, position + _NUMBER.size)
    begin = position + _NUMBER.size * (2 * count + 1)
    parts = [data[start:end] for start, end in pairwise(accumulate(sizes, initial=begin))]
    return dict(zip(parts[:count], parts[count:], strict=True))
