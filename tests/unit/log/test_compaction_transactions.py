"""Compaction, restarts and transactions in any order: aborted records stay hidden, committed ones stay."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from test_compaction import DAY_MS, Compacted
from transaction_kit import end, read_all_committed, stable_offset

ACTIONS = ["write"] * 10 + ["end"] * 6 + ["clean"] * 2 + ["wait", "reopen", "crash"]


class History:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.compacted = Compacted(segment_bytes=rng.choice([300, 700, 1 << 20]))
        self.written = 0
        self.open: dict[int, list[tuple[int, bytes, bytes]]] = {}
        self.committed: dict[int, tuple[bytes, bytes]] = {}
        self.aborted: set[bytes] = set()

    def write(self) -> None:
        self.written += 1
        producer_id = self.rng.randint(1, 3)
        key, value = b"key-%d" % self.rng.randint(0, 5), b"%d" % self.written
        offset = self.compacted.put(
            (key, value), producer_id=producer_id, producer_epoch=0, transactional=True
        )
        self.open.setdefault(producer_id, []).append((offset, key, value))

    def end(self) -> None:
        producer_id, committed = self.rng.randint(1, 3), self.rng.random() < 0.5
        end(self.compacted.log, producer_id=producer_id, committed=committed)
        for offset, key, value in self.open.pop(producer_id, []):
            if committed:
                self.committed[offset] = (key, value)
            else:
                self.aborted.add(value)

    def clean(self) -> None:
        self.compacted.roll_and_clean()

    def wait(self) -> None:
        self.compacted.kit.clock.ms += 2 * DAY_MS

    def reopen(self) -> None:
        self.compacted.reopen()

    def crash(self) -> None:
        self.compacted.log = self.compacted.kit.open(clean=False)

    def check(self) -> None:
        found = read_all_committed(self.compacted.log)
        assert not self.aborted.intersection(value for _, value in found if value is not None)
        stable = stable_offset(self.compacted.log)
        latest = {key: value for offset, (key, value) in sorted(self.committed.items()) if offset < stable}
        assert {self.committed[offset][0]: value for offset, value in found} == latest


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_readers_of_committed_records_do_not_notice(seed: int) -> None:
    rng = random.Random(seed)
    history = History(rng)
    for _ in range(50):
        getattr(history, rng.choice(ACTIONS))()
        history.check()
