"""What a console remembers of a cluster's last hour."""

from __future__ import annotations

from ottla.client.admin.topics import Partition
from ottla.console.history import History, Sample

ORDERS, OFFSETS = Partition("orders", 0), Partition("__consumer_offsets", 0)


def sample(second: int, end: int, committed: int = 0, *, own: int = 0) -> Sample:
    return Sample(
        float(second),
        second * 1000,
        {ORDERS: end, OFFSETS: own},
        {ORDERS: end * 10},
        {"billing": {ORDERS: committed}},
    )


def test_rates_are_what_grew_between_two_looks() -> None:
    history = History()
    for second, end, committed in ((10, 100, 0), (20, 200, 50), (30, 200, 150)):
        history.note(sample(second, end, committed, own=second * 1000))
    assert history.times_ms == [10_000, 20_000, 30_000]
    assert history.values("recordsIn", "orders")[1:] == [10.0, 0.0]
    assert history.values("bytesIn", "orders")[1:] == [100.0, 0.0]
    assert history.values("recordsOut", "orders")[1:] == [5.0, 10.0]
    assert history.values("groupOut", "billing")[1:] == [5.0, 10.0]
    assert history.values("lag", "billing") == [100.0, 150.0, 50.0]
    # The cluster's own topics are not what people ask for when they ask how much is written.
    assert history.values("recordsIn") == [None, 10.0, 0.0]
    assert history.last("recordsIn", "__consumer_offsets") == 1000.0


def test_what_shrinks_or_was_not_measured_is_no_traffic() -> None:
    history = History()
    history.note(sample(10, 100))
    history.note(sample(20, 5))
    assert history.last("recordsIn", "orders") == 0.0
    history.note_gap(30_000)
    history.note(sample(40, 1_000_000))
    assert history.values("recordsIn") == [None, 0.0, None, None]
    history.note(sample(50, 1_000_100))
    assert history.last("recordsIn") == 10.0


def test_only_the_last_samples_and_so_many_series_are_kept() -> None:
    history = History(samples=4, series_max=5)
    for second in range(10):
        ends = {Partition(f"topic-{number}", 0): second * (number + 1) for number in range(20)}
        history.note(Sample(float(second), second, ends, {}, {}))
    assert history.times_ms == [6, 7, 8, 9]
    drawn = [number for number in range(20) if history.last("recordsIn", f"topic-{number}")]
    assert 0 < len(drawn) <= 5
    assert history.last("recordsIn") == sum(range(1, 21))
    assert history.last("recordsIn", "never seen") == 0.0
