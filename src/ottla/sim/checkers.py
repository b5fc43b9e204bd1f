"""What must never be seen of a log, as classes that watch what clients send, are promised, and read.

Values must be unique per partition: a test sends each value once and gives a retry a new one. A test reports
what happens to a `History`, reads every partition from its start at the end, and calls `check`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

Partition: TypeAlias = tuple[str, int]


class InvariantViolation(AssertionError):
    """What a checker forbids was seen; `checker` is the name of it, or itself."""

    def __init__(self, checker: object, text: str) -> None:
        self.checker = checker if isinstance(checker, str) else type(checker).__name__
        super().__init__(f"{self.checker}: {text}")


class Sent(NamedTuple):
    """A client is about to send a value; whether it will be stored is open."""

    partition: Partition
    value: bytes


class Acked(NamedTuple):
    """The broker promised that the value is stored at this offset."""

    partition: Partition
    offset: int
    value: bytes


class Read(NamedTuple):
    """A client read the value at this offset."""

    partition: Partition
    offset: int
    value: bytes
    reader: str = ""


class ReadingStarts(NamedTuple):
    """A client reads on from this offset."""

    partition: Partition
    offset: int
    reader: str = ""


Event: TypeAlias = Sent | Acked | Read | ReadingStarts


class Checker(Protocol):
    def observe(self, event: Event) -> None:
        """Raises InvariantViolation where the event alone, after those before it, proves one."""
        ...

    def check(self) -> None:
        """At the end, after everything was read: raises for what should have been seen and was not."""
        ...


class LostAcknowledgedWrite:
    """Every acknowledged record is read again, at the offset it was promised."""

    def __init__(self) -> None:
        self._promised: dict[tuple[Partition, int], bytes] = {}
        self._read: set[tuple[Partition, int]] = set()

    def observe(self, event: Event) -> None:
        match event:
            case Acked(partition, offset, value):
                before = self._promised.setdefault((partition, offset), value)
                if before != value:
                    raise InvariantViolation(
                        self, f"{partition} promised offset {offset} to both {before!r} and {value!r}"
                    )
            case Read(partition, offset, value):
                self._read.add((partition, offset))
                promised = self._promised.get((partition, offset), value)
                if promised != value:
                    raise InvariantViolation(
                        self,
                        f"{partition} holds {value!r} at offset {offset}, which was promised to {promised!r}",
                    )

    def check(self) -> None:
        lost = sorted(key for key in self._promised if key not in self._read)
        if lost:
            partition, offset = lost[0]
            raise InvariantViolation(
                self,
                f"{len(lost)} acknowledged records are lost, the first is "
                f"{self._promised[lost[0]]!r} at offset {offset} of {partition}",
            )


class SkippedOrNonMonotonicPoll:
    """Reading goes from offset to offset; what is sent after an acknowledgement comes behind it.

    Without gaps, which holds for partitions that are neither compacted nor transactional.
    """

    def __init__(self) -> None:
        self._next: dict[tuple[str, Partition], int] = {}
        self._highest_acked: dict[Partition, int] = {}
        self._must_come_behind: dict[tuple[Partition, bytes], int] = {}

    def observe(self, event: Event) -> None:
        match event:
            case ReadingStarts(partition, offset, reader):
                self._next[reader, partition] = offset
            case Read(partition, offset, value, reader):
                expected = self._next.get((reader, partition), offset)
                if offset != expected:
                    raise InvariantViolation(
                        self, f"{partition} gave {value!r} at offset {offset} where {expected} comes next"
                    )
                self._next[reader, partition] = offset + 1
            case Sent(partition, value):
                self._must_come_behind[partition, value] = self._highest_acked.get(partition, -1)
            case Acked(partition, offset, value):
                behind = self._must_come_behind.get((partition, value), -1)
                if offset <= behind:
                    raise InvariantViolation(
                        self,
                        f"{partition} put {value!r} at offset {offset}, but it was sent when {behind} "
                        "had been acknowledged",
                    )
                self._highest_acked[partition] = max(self._highest_acked.get(partition, -1), offset)

    def check(self) -> None:
        """Everything is proved as it happens."""


class CorruptRead:
    """What is read was sent, to this partition."""

    def __init__(self) -> None:
        self._sent: set[tuple[Partition, bytes]] = set()

    def observe(self, event: Event) -> None:
        match event:
            case Sent(partition, value):
                if (partition, value) in self._sent:
                    raise ValueError(f"the test sends {value!r} to {partition} twice; values must be unique")
                self._sent.add((partition, value))
            case Read(partition, offset, value):
                if (partition, value) not in self._sent:
                    raise InvariantViolation(self, f"{partition} gave {value!r} at {offset}: never sent")

    def check(self) -> None:
        """Everything is proved as it happens."""


class DuplicateFromIdempotentProducer:
    """What was sent once, however often the request was repeated, is read at one offset only."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[Partition, bytes], int] = {}

    def observe(self, event: Event) -> None:
        match event:
            case Acked(partition, offset, value) | Read(partition, offset, value):
                first = self._offsets.setdefault((partition, value), offset)
                if first != offset:
                    raise InvariantViolation(self, f"{partition} has {value!r} at {first} and {offset}")

    def check(self) -> None:
        """Everything is proved as it happens."""


class History:
    """Tells every checker what happens."""

    def __init__(self, *checkers: Checker) -> None:
        self.checkers = checkers or (
            LostAcknowledgedWrite(),
            SkippedOrNonMonotonicPoll(),
            CorruptRead(),
            DuplicateFromIdempotentProducer(),
        )

    def observe(self, event: Event) -> None:
        for checker in self.checkers:
            checker.observe(event)

    def check(self) -> None:
        for checker in self.checkers:
            checker.check()
