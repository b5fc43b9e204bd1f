"""A map in the order of its keys, kept in pages: for hosts where each access is a round trip.

It is a B+ tree. Leaves hold entries, inner pages the first key and the number of each page below; all are
entries of the host under their number. One access to a leaf brings the neighbours of a key, a range or a
prefix reads the pages it covers and no others. What is read and written stays in memory until ``release``;
the host gets pages that have changed on ``flush``, which also divides those that have become too large and
joins those that have become small.

Page 0 is the root, and begins with the height of the tree, the next free number, and how many entries and
bytes the map has.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

from ottla.streams.state.backend import Host

# A few dozen small entries. Larger ones make more of what is read and written useless, smaller ones make more
# round trips.
PAGE_BYTES = 6144
# What an entry costs besides its bytes, on disk and in the work of reading it.
ENTRY_BYTES = 16
# A page in memory is a dictionary, with objects around the bytes.
_MEMORY_ENTRY_BYTES = 200
# A leaf that has grown by so much in memory is divided at once, since whoever scans it has to sort it.
_GROWN = 4
# Pages are divided into parts of this share of a page, and joined where they are smaller than that one.
_FILL = 0.7
_SMALL = 0.25
# An inner page has more below it than this, however long the keys are.
_BELOW_MIN = 4

_ROOT = 0
_HEAD = struct.Struct(">BQQQ")
_NUMBER = struct.Struct(">Q")
_COUNT = struct.Struct(">I")


class _Leaf:
    __slots__ = ("entries", "keys", "low", "number", "parent", "size_bytes")

    def __init__(self, number: int, low: bytes, parent: _Inner | None, entries: dict[bytes, bytes]) -> None:
        self.number = number
        # No key in it is smaller.
        self.low = low
        self.parent = parent
        self.entries = entries
        # Sorted, once somebody has asked.
        self.keys: list[bytes] | None = None
        self.size_bytes = _size(entries.items())

    def sorted_keys(self) -> list[bytes]:
        if self.keys is None:
            self.keys = sorted(self.entries)
        return self.keys


class _Inner:
    __slots__ = ("low", "lows", "number", "numbers", "parent")

    def __init__(
        self, number: int, low: bytes, parent: _Inner | None, lows: list[bytes], numbers: list[int]
    ) -> None:
        self.number = number
        self.low = low
        self.parent = parent
        # The smallest key that each page below may have; the first is its own.
        self.lows = lows
        self.numbers = numbers

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.lows)) + (_NUMBER.size + ENTRY_BYTES) * len(self.lows)

    def index_of(self, key: bytes) -> int:
        return max(0, bisect_right(self.lows, key) - 1)

    def place_of(self, page: _Page) -> int:
        index = self.index_of(page.low)
        assert self.numbers[index] == page.number
        return index


_Page = _Leaf | _Inner


class OrderedBackend:
    __slots__ = (
        "_bytes",
        "_dirty",
        "_entries",
        "_height",
        "_host",
        "_leaves",
        "_memory_bytes",
        "_next",
        "_page_bytes",
        "_pages",
    )

    def __init__(self, host: Host, *, page_bytes: int = PAGE_BYTES) -> None:
        self._host = host
        self._page_bytes = page_bytes
        self._pages: dict[int, _Page] = {}
        # Where keys are that were found: most are asked for again before the next flush.
        self._leaves: dict[bytes, _Leaf] = {}
        self._dirty: set[int] = set()
        # Unknown until the root was read.
        self._height = self._next = -1
        self._entries = self._bytes = 0
        self._memory_bytes = 0

    @property
    def memory_bytes(self) -> int:
        """About what is held in memory, rather more than less."""
        return self._memory_bytes

    @property
    def entry_count(self) -> int:
        self._root()
        return self._entries

    @property
    def size_bytes(self) -> int:
        self._root()
        return self._bytes

    def get(self, key: bytes) -> bytes | None:
        return (self._leaves.get(key) or self._leaf(key)).entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        leaf = self._leaves.get(key) or self._leaf(key)
        present = leaf.entries.get(key)
        if present is None:
            size = len(key) + len(value) + ENTRY_BYTES
            self._entries += 1
            self._memory_bytes += _MEMORY_ENTRY_BYTES
            leaf.keys = None
            self._leaves[key] = leaf
        elif present == value:
            return
        else:
            size = len(value) - len(present)
        leaf.entries[key] = value
        leaf.size_bytes += size
        self._bytes += size
        self._memory_bytes += size
        self._dirty.add(leaf.number)
        if leaf.size_bytes > _GROWN * self._page_bytes:
            self._divide_leaf(leaf)

    def delete(self, key: bytes) -> None:
        leaf = self._leaves.pop(key, None) or self._leaf(key)
        present = leaf.entries.pop(key, None)
        self._leaves.pop(key, None)
        if present is not None:
            size = len(key) + len(present) + ENTRY_BYTES
            leaf.size_bytes -= size
            leaf.keys = None
            self._entries -= 1
            self._bytes -= size
            self._dirty.add(leaf.number)

    def scan(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries from one key up to, and without, another, in order. What is changed meanwhile in pages that
        were not reached yet is seen."""
        at: bytes | None = first
        while at is not None and (end is None or at < end):
            leaf, following = self._leaf_for_scan(at)
            keys = leaf.sorted_keys()
            start = bisect_left(keys, at)
            stop = len(keys) if end is None else bisect_left(keys, end)
            yield from [(key, leaf.entries[key]) for key in keys[start:stop]]
            at = following

    def scan_back(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The same entries, last one first."""
        before = end
        while True:
            leaf = self._leaf_before(before)
            keys = leaf.sorted_keys()
            stop = len(keys) if end is None else bisect_left(keys, end)
            start = bisect_left(keys, first)
            yield from [(key, leaf.entries[key]) for key in reversed(keys[start:stop])]
            if leaf.low <= first or not leaf.low:
                return
            before = leaf.low

    def flush(self) -> None:
        """Write what has changed; what was read stays in memory."""
        if not self._dirty:
            return
        self._balance()
        # Its head has the sizes.
        self._dirty.add(_ROOT)
        for number in sorted(self._dirty):
            page = self._pages.get(number)
            if page is None or (number == _ROOT and not self._entries):
                self._host.delete(_NUMBER.pack(number))
            elif number == _ROOT:
                head = _HEAD.pack(self._height, self._next, self._entries, self._bytes)
                self._host.put(_NUMBER.pack(_ROOT), head + _encoded(page))
            else:
                self._host.put(_NUMBER.pack(number), _encoded(page))
        self._dirty.clear()

    def release(self) -> None:
        """Write what has changed and hold nothing in memory."""
        self.flush()
        self._pages.clear()
        self._leaves.clear()
        self._height = self._next = -1
        self._memory_bytes = 0

    # Finding pages

    def _root(self) -> _Page:
        root = self._pages.get(_ROOT)
        if root is None:
            data = self._host.get(_NUMBER.pack(_ROOT))
            if data is None:
                self._height, self._next, self._entries, self._bytes = 0, 1, 0, 0
                root = _Leaf(_ROOT, b"", None, {})
            else:
                self._height, self._next, self._entries, self._bytes = _HEAD.unpack_from(data)
                root = _decoded(data, _HEAD.size, _ROOT, b"", None, is_leaf=self._height == 0)
            self._keep(root)
        return root

    def _leaf(self, key: bytes) -> _Leaf:
        page = self._root()
        depth = 0
        while isinstance(page, _Inner):
            depth += 1
            page = self._below(page, page.index_of(key), is_leaf=depth == self._height)
        if key in page.entries:
            self._leaves[key] = page
        return page

    def _below(self, inner: _Inner, index: int, *, is_leaf: bool, keep: bool = True) -> _Page:
        number = inner.numbers[index]
        page = self._pages.get(number)
        if page is None:
            data = self._host.get(_NUMBER.pack(number))
            assert data is not None, f"page {number} is missing"
            page = _decoded(data, 0, number, inner.lows[index], inner, is_leaf=is_leaf)
            if keep:
                self._keep(page)
        return page

    def _keep(self, page: _Page) -> None:
        self._pages[page.number] = page
        count = len(page.entries) if isinstance(page, _Leaf) else len(page.lows)
        self._memory_bytes += page.size_bytes + count * _MEMORY_ENTRY_BYTES

    def _leaf_for_scan(self, key: bytes) -> tuple[_Leaf, bytes | None]:
        """The leaf that may have a key, and where the next one begins. It is not kept: whoever reads
        everything does so once."""
        page, following = self._root(), None
        depth = 0
        while isinstance(page, _Inner):
            depth += 1
            index = page.index_of(key)
            if index + 1 < len(page.lows):
                following = page.lows[index + 1]
            is_leaf = depth == self._height
            page = self._below(page, index, is_leaf=is_leaf, keep=not is_leaf)
        return page, following

    def _leaf_before(self, end: bytes | None) -> _Leaf:
        """The leaf that has the largest keys before an end."""
        page = self._root()
        depth = 0
        while isinstance(page, _Inner):
            depth += 1
            index = len(page.lows) if end is None else bisect_left(page.lows, end)
            is_leaf = depth == self._height
            page = self._below(page, max(0, index - 1), is_leaf=is_leaf, keep=not is_leaf)
        return page

    # Keeping pages of a good size

    def _balance(self) -> None:
        for number in sorted(self._dirty):
            page = self._pages.get(number)
            if isinstance(page, _Leaf):
                if page.size_bytes > self._page_bytes:
                    self._divide_leaf(page)
                elif page.parent is not None and page.size_bytes < _SMALL * self._page_bytes:
                    self._join_leaf(page)
        changed = [page for number in self._dirty if isinstance(page := self._pages.get(number), _Inner)]
        # Those furthest down first: dividing one changes the one above.
        for page in sorted(changed, key=_depth, reverse=True):
            if self._is_large(page):
                self._divide_inner(page)
        root = self._pages[_ROOT]
        while isinstance(root, _Inner) and len(root.numbers) == 1:
            root = self._lower(root)

    def _divide_leaf(self, leaf: _Leaf) -> None:
        keys = leaf.sorted_keys()
        # What comes in order leaves full pages behind.
        share = 1.0 if self._is_last(leaf) else _FILL
        sizes = [len(key) + len(leaf.entries[key]) + ENTRY_BYTES for key in keys]
        parts = _parts(keys, sizes, share * self._page_bytes, evenly=share < 1)
        if len(parts) == 1:
            return
        self._below_new_root(leaf)
        first = parts[0]
        pages: list[tuple[bytes, int]] = []
        for before, part in pairwise(parts):
            low = _between(before[-1], part[0])
            page = _Leaf(self._new_number(), low, leaf.parent, {key: leaf.entries[key] for key in part})
            self._pages[page.number] = page
            self._dirty.add(page.number)
            self._leaves.update((key, page) for key in part if key in self._leaves)
            pages.append((low, page.number))
        leaf.entries = {key: leaf.entries[key] for key in first}
        leaf.keys = None
        leaf.size_bytes = _size(leaf.entries.items())
        self._dirty.add(leaf.number)
        self._insert_after(leaf, pages)

    def _divide_inner(self, inner: _Inner) -> None:
        wanted = -(-inner.size_bytes // int(_FILL * 2 * self._page_bytes))
        count = max(2, min(wanted, len(inner.lows) // _BELOW_MIN))
        cuts = [len(inner.lows) * number // count for number in range(count + 1)]
        self._below_new_root(inner)
        lows, numbers = inner.lows, inner.numbers
        pages: list[tuple[bytes, int]] = []
        for begin, stop in pairwise(cuts[1:]):
            new = _Inner(self._new_number(), lows[begin], inner.parent, lows[begin:stop], numbers[begin:stop])
            self._pages[new.number] = new
            self._dirty.add(new.number)
            for number in new.numbers:
                if (below := self._pages.get(number)) is not None:
                    below.parent = new
            pages.append((new.low, new.number))
        inner.lows, inner.numbers = lows[: cuts[1]], numbers[: cuts[1]]
        self._dirty.add(inner.number)
        self._insert_after(inner, pages)
        assert inner.parent is not None
        if self._is_large(inner.parent):
            self._divide_inner(inner.parent)

    def _is_large(self, inner: _Inner) -> bool:
        return inner.size_bytes > 2 * self._page_bytes and len(inner.lows) >= 2 * _BELOW_MIN

    def _join_leaf(self, leaf: _Leaf) -> None:
        """With the one behind it, or the one before where there is none; an empty one just goes."""
        parent = leaf.parent
        assert parent is not None
        if not leaf.entries:
            self._remove_empty(leaf)
            return
        if len(parent.numbers) == 1:
            return
        index = min(parent.place_of(leaf), len(parent.numbers) - 2)
        left, right = (self._below(parent, at, is_leaf=True) for at in (index, index + 1))
        assert isinstance(left, _Leaf) and isinstance(right, _Leaf)
        if left.size_bytes + right.size_bytes > _FILL * self._page_bytes:
            return
        left.entries.update(right.entries)
        left.size_bytes += right.size_bytes
        left.keys = None
        self._leaves.update((key, left) for key in right.entries if key in self._leaves)
        self._dirty.add(left.number)
        self._remove(parent, index + 1)

    def _remove_empty(self, page: _Page) -> None:
        """With the pages above it that have no other."""
        while (parent := page.parent) is not None:
            if len(parent.numbers) > 1:
                self._remove(parent, parent.place_of(page))
                return
            if parent.number == _ROOT:
                return
            self._dirty.add(page.number)
            del self._pages[page.number]
            page = parent

    def _remove(self, parent: _Inner, index: int) -> None:
        number = parent.numbers.pop(index)
        parent.lows.pop(index)
        self._pages.pop(number, None)
        self._dirty |= {number, parent.number}
        if index == 0:
            # What is left begins where the one that is gone did, and so do the pages below it.
            parent.lows[0] = parent.low
            page = self._pages.get(parent.numbers[0])
            while page is not None:
                page.low = parent.low
                if isinstance(page, _Leaf):
                    break
                page.lows[0] = parent.low
                self._dirty.add(page.number)
                page = self._pages.get(page.numbers[0])

    def _below_new_root(self, page: _Page) -> None:
        """Put another page above it if it is the root."""
        if page.number != _ROOT:
            return
        number = self._new_number()
        root = _Inner(_ROOT, b"", None, [b""], [number])
        page.number, page.parent = number, root
        self._pages[number], self._pages[_ROOT] = page, root
        self._dirty |= {number, _ROOT}
        self._height += 1

    def _lower(self, root: _Inner) -> _Page:
        """The only page below the root takes its place."""
        page = self._below(root, 0, is_leaf=self._height == 1)
        del self._pages[page.number]
        self._dirty |= {page.number, _ROOT}
        page.number, page.parent, page.low = _ROOT, None, b""
        self._pages[_ROOT] = page
        self._height -= 1
        return page

    def _insert_after(self, page: _Page, pages: list[tuple[bytes, int]]) -> None:
        parent = page.parent
        assert parent is not None
        at = parent.place_of(page) + 1
        parent.lows[at:at] = [low for low, _ in pages]
        parent.numbers[at:at] = [number for _, number in pages]
        self._dirty.add(parent.number)

    def _is_last(self, page: _Page) -> bool:
        while page.parent is not None:
            if page.parent.numbers[-1] != page.number:
                return False
            page = page.parent
        return True

    def _new_number(self) -> int:
        number = self._next
        self._next += 1
        return number


def _depth(page: _Page) -> int:
    depth = 0
    while page.parent is not None:
        page, depth = page.parent, depth + 1
    return depth


def _parts(keys: list[bytes], sizes: list[int], target: float, *, evenly: bool) -> list[list[bytes]]:
    """Keys in their order, in parts of about a size."""
    if evenly:
        total = sum(sizes)
        target = total / max(1, -(-total // int(target)))
    parts: list[list[bytes]] = []
    filled = 0.0
    for key, size in zip(keys, sizes, strict=True):
        if not parts or filled + (size / 2 if evenly else size) > target:
            parts.append([])
            filled = 0
        parts[-1].append(key)
        filled += size
    return parts


def _between(last: bytes, first: bytes) -> bytes:
    """The shortest key after one and not after another: where a page begins need not be a whole key."""
    common = next((at for at, (a, b) in enumerate(zip(last, first, strict=False)) if a != b), len(last))
    return first[: common + 1]


def _size(entries: Iterable[tuple[bytes, bytes]]) -> int:
    return sum(len(key) + len(value) + ENTRY_BYTES for key, value in entries)


def _encoded(page: _Page) -> bytes:
    if isinstance(page, _Leaf):
        keys = page.sorted_keys()
        return _encode(keys, [page.entries[key] for key in keys])
    return _encode(page.lows, [_NUMBER.pack(number) for number in page.numbers])


def _decoded(data: bytes, at: int, number: int, low: bytes, parent: _Inner | None, *, is_leaf: bool) -> _Page:
    keys, values = _decode(data, at)
    if is_leaf:
        leaf = _Leaf(number, low, parent, dict(zip(keys, values, strict=True)))
        leaf.keys = keys
        return leaf
    # Where the page before it is gone, it begins earlier than when it was written.
    keys[0] = low
    return _Inner(number, low, parent, keys, [_NUMBER.unpack(value)[0] for value in values])


def _encode(keys: list[bytes], values: list[bytes]) -> bytes:
    sizes = [*map(len, keys), *map(len, values)]
    return b"".join((struct.pack(f">I{len(sizes)}I", len(keys), *sizes), *keys, *values))


def _decode(data: bytes, at: int) -> tuple[list[bytes], list[bytes]]:
    (count,) = _COUNT.unpack_from(data, at)
    sizes = struct.unpack_from(f">{2 * count}I", data, at + _COUNT.size)
    begin = at + _COUNT.size * (2 * count + 1)
    parts = [data[start:stop] for start, stop in pairwise(accumulate(sizes, initial=begin))]
    return parts[:count], parts[count:]
