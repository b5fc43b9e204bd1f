"""Producers, commits, aborts, restarts and truncation in any order, against a list of what was written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from log_kit import LogKit, fill, offsets_in
from transaction_kit import end, read_all_committed, read_committed, send, stable_offset

from ottla.log.log import PartitionLog

# Mostly transactions; anything else disturbs them now and then.
ACTIONS = ["write"] * 8 + ["end"] * 8 + ["write_outside", "roll", "restart", "truncate", "delete_before"]


@dataclass(frozen=True)
class Written:
    offset: int
    value: bytes
    producer_id: int | None
    """Of a record inside a transaction."""


@dataclass(frozen=True)
class Ended:
    offset: int
    producer_id: int
    committed: bool


class Model:
    """Everything in the log, told anew from the beginning whenever somebody asks."""

    def __init__(self) -> None:
        self.entries: list[Written | Ended] = []

    def settled(self) -> tuple[list[tuple[int, bytes]], int | None]:
        """(records not aborted, first offset of an open transaction)."""
        open_records: dict[int, list[Written]] = {}
        visible: list[tuple[int, bytes]] = []
        for entry in self.entries:
            if isinstance(entry, Ended):
                ended = open_records.pop(entry.producer_id, [])
                if entry.committed:
                    visible += [(record.offset, record.value) for record in ended]
            elif entry.producer_id is None:
                visible.append((entry.offset, entry.value))
            else:
                open_records.setdefault(entry.producer_id, []).append(entry)
        firsts = [records[0].offset for records in open_records.values()]
        return sorted(visible), min(firsts, default=None)

    def stable(self, start: int, end_offset: int) -> int:
        _, unstable = self.settled()
        return end_offset if unstable is None else max(unstable, start)


class Transactions:
    def __init__(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.model = Model()
        self.written = 0
        self.stable_before = 0
        self.is_forgotten = False
        self.kit = LogKit(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
        self.log: PartitionLog = self.kit.open()

    def _state(self, producer_id: int) -> tuple[int, int]:
        known = self.log.producers.active.get(producer_id)
        return (0, 0) if known is None else (known.epoch, known.next_sequence)

    def write(self, producer_id: int, records: int) -> None:
        epoch, sequence = self._state(producer_id)
        self.written += 1
        value = b"%d" % self.written
        options = {"epoch": epoch, "producer_id": producer_id, "transactional": True, "value": value}
        result = send(self.log, sequence, records, **options)  # type: ignore[arg-type]
        assert not result.duplicate
        for offset in range(result.base_offset, result.last_offset + 1):
            self.model.entries.append(Written(offset, value, producer_id))
        again = send(self.log, sequence, records, **options)  # type: ignore[arg-type]
        assert (again.duplicate, again.base_offset) == (True, result.base_offset)

    def write_outside(self) -> None:
        offset = self.log.next_offset
        fill(self.log, 1, size=3)
        self.model.entries.append(Written(offset, bytes(3), None))

    def end(self, producer_id: int, committed: bool, bump: bool) -> None:
        epoch, _ = self._state(producer_id)
        version = 2 if bump else 0
        result = end(
            self.log, producer_id=producer_id, epoch=epoch + bump, committed=committed, version=version
        )
        self.model.entries.append(Ended(result.base_offset, producer_id, committed))

    def roll(self) -> None:
        self.log.roll()

    def restart(self, clean: bool, forgotten: bool) -> None:
        """In good order, or after a crash, perhaps without any snapshot."""
        start = self.log.start_offset
        if clean:
            self.log.close()
        elif forgotten and not start:
            self.is_forgotten = True
            for name in self.kit.files():
                if name.endswith(".snapshot"):
                    self.kit.disk.remove(f"{self.kit.directory}/{name}")
        self.log = self.kit.open(clean=clean, recovery_point=start, start_offset=start)

    def truncate(self, batches: int) -> None:
        data = b"".join(segment.file.read(0, segment.size) for segment in self.log.segments)
        bases = [base for base, _ in offsets_in(data) if base >= self.log.start_offset]
        offset = [*bases, self.log.next_offset][-batches - 1 :][0]
        self.log.truncate_to(offset)
        self.model.entries = [entry for entry in self.model.entries if entry.offset < offset]
        self.stable_before = 0

    def delete_before(self, records: int) -> None:
        # Of transactions whose first records were deleted, only snapshots know.
        if self.is_forgotten:
            return
        self.log.delete_records_before(min(self.log.start_offset + records, self.log.next_offset))
        self.log.enforce_retention(self.kit.clock.ms)

    def check(self) -> None:
        log = self.log
        stable = stable_offset(log)
        assert stable == self.model.stable(log.start_offset, log.next_offset)
        assert stable >= self.stable_before
        self.stable_before = stable
        visible, _ = self.model.settled()
        expected = [found for found in visible if log.start_offset <= found[0] < stable]
        assert read_all_committed(log, max_bytes=1) == expected
        assert read_all_committed(log) == expected
        for offset in range(log.start_offset, stable):
            found = read_committed(log, offset, 300)
            assert found == [record for record in expected if record[0] >= offset][: len(found)]


def program(seed: int) -> Iterator[tuple[str, list[int]]]:
    """Drawn evenly, not by Hypothesis, which likes to repeat itself: transactions then rarely overlap."""
    rng = random.Random(seed)
    for _ in range(30):
        arguments = {
            "write": lambda: [rng.randint(1, 3), rng.randint(1, 3)],
            "end": lambda: [rng.randint(1, 3), rng.random() < 0.5, rng.random() < 0.5],
            "restart": lambda: [rng.random() < 0.5, rng.random() < 0.5],
            "truncate": lambda: [rng.randint(0, 4)],
            "delete_before": lambda: [rng.randint(0, 6)],
        }
        action = rng.choice(ACTIONS)
        yield action, arguments.get(action, list)()


@given(
    seed=st.integers(0, 2**32),
    segment_bytes=st.sampled_from([200, 450, 1 << 20]),
    interval=st.sampled_from([1, 300]),
)
@settings(max_examples=60, deadline=None)
def test_readers_of_committed_records_see_all_of_these_and_no_others(
    seed: int, segment_bytes: int, interval: int
) -> None:
    transactions = Transactions(segment_bytes, interval)
    for action, arguments in program(seed):
        getattr(transactions, action)(*arguments)
        transactions.check()
