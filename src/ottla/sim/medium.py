"""What a file system holds twice: in the page cache, as programs see it, and on the medium, after a crash.

Contents reach the medium by syncing the file, names by syncing their directory: what POSIX promises, no more.
Before that, a power cut decides at random: of a file, part of the unsynced tail may be there, torn or
damaged; of the changes to names, those of one directory survive in order and each of them whole, so a rename
never loses the file.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias


class TailFault(enum.Enum):
    """What a power cut does to the part of a file that was not synced."""

    LOST = "lost"
    TORN = "torn"
    """A prefix survives, cut anywhere."""
    DAMAGED = "damaged"
    """The length survives, but a range inside reads as zeros or garbage."""


ALL_TAIL_FAULTS = tuple(TailFault)


class Inode:
    __slots__ = ("content", "in_memory", "stable", "truncated")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.in_memory = True
        """Whether reading it needs no medium; a power cut, and pressure on memory, take it out of there."""
        self.stable = 0
        """So many first bytes are the same on the medium."""
        self.truncated = b""
        """What the medium still has behind them, because truncating was not synced."""

    def truncate(self, size: int) -> None:
        if size < self.stable:
            self.truncated = bytes(self.content[size : self.stable]) + self.truncated
            self.stable = size
        if size > len(self.content):
            self.content += bytes(size - len(self.content))
        del self.content[size:]

    def sync(self) -> None:
        self.stable = len(self.content)
        self.truncated = b""

    def lose_power(self, chance: random.Random, fault: TailFault) -> None:
        if self.truncated and chance.random() < 0.5:
            self.content[self.stable :] = self.truncated
        else:
            self.content[self.stable :] = _after_power_loss(self.content[self.stable :], chance, fault)
        self.in_memory = False
        self.sync()


def _after_power_loss(tail: bytearray, chance: random.Random, fault: TailFault) -> bytearray:
    start = chance.randint(0, len(tail))
    match fault:
        case TailFault.LOST:
            return bytearray()
        case TailFault.TORN:
            # Often the kernel had written everything out by itself.
            return tail if chance.random() < 0.25 else tail[:start]
        case TailFault.DAMAGED:
            end = chance.randint(start, len(tail))
            tail[start:end] = bytes(end - start) if chance.random() < 0.5 else chance.randbytes(end - start)
            return tail


class Directory:
    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node: TypeAlias = Inode | Directory


@dataclass(slots=True)
class Change:
    """One atomic change of names: a creation, a removal, or both, which is a rename."""

    removed: tuple[Directory, str] | None = None
    added: tuple[Directory, str, Node] | None = None
    touched: frozenset[int] = field(init=False)
    """Which directories; known once, since every sync asks every change."""

    def __post_init__(self) -> None:
        self.touched = frozenset(id(part[0]) for part in (self.removed, self.added) if part is not None)

    def apply(self, *, durably: bool) -> None:
        if self.removed is not None:
            directory, name = self.removed
            (directory.durable if durably else directory.entries).pop(name, None)
        if self.added is not None:
            directory, name, node = self.added
            (directory.durable if durably else directory.entries)[name] = node


class Medium:
    """The tree of directories, and the changes to it that are not on the medium yet."""

    def __init__(self) -> None:
        self.root = Directory()
        self._pending: list[Change] = []

    def change(self, change: Change) -> None:
        change.apply(durably=False)
        self._pending.append(change)

    def sync_directory(self, directory: Directory) -> None:
        self._commit({id(directory)}, None, 0.0)

    def lose_power(self, chance: random.Random, faults: Sequence[TailFault]) -> None:
        self._commit(set(), chance, chance.choice((0.0, 0.2, 1.0)))
        self._pending.clear()
        self._restore(self.root, chance, faults)

    def _commit(self, wanted: set[int], chance: random.Random | None, survival: float) -> None:
        """Write the changes of the wanted directories, with every earlier one they build upon."""
        committed: list[Change] = []
        kept: list[Change] = []
        for change in reversed(self._pending):
            if not wanted.isdisjoint(change.touched) or (chance is not None and chance.random() < survival):
                wanted |= change.touched
                committed.append(change)
            else:
                kept.append(change)
        for change in reversed(committed):
            change.apply(durably=True)
        self._pending = kept[::-1]

    def _restore(self, directory: Directory, chance: random.Random, faults: Sequence[TailFault]) -> None:
        directory.entries = dict(sorted(directory.durable.items()))
        for node in directory.entries.values():
            if isinstance(node, Inode):
                node.lose_power(chance, chance.choice(faults))
            else:
                self._restore(node, chance, faults)
