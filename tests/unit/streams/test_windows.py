"""Windowed aggregations against models that recompute windows from the whole history."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.streams.topologies import Event, events, latest, relaxed, run

from ottla.streams import (
    BufferConfig,
    EmitStrategy,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    Window,
    Windowed,
)
from ottla.streams.testing import TopologyTestDriver

RESTART = st.integers(0, 25)
LONG_AGO = 1000


def open_windows(history: list[Event], windows: TimeWindows) -> list[tuple[Event, Window]]:
    """Which record counts in which window, by the definition: windows are closed by stream time and grace."""
    accepted = []
    stream_time = -1
    for event in history:
        stream_time = max(stream_time, event.time)
        for start in range(0, event.time + 1, windows.advance_ms):
            window = Window(start, start + windows.size_ms)
            if window.end_ms > event.time and window.end_ms > stream_time - windows.grace_ms:
                accepted.append((event, window))
    return accepted


@pytest.mark.parametrize("advance", [10, 4])
@relaxed
@given(history=events("in"), grace=st.sampled_from([0, 5, 100]), restart_at=RESTART)
def test_tumbling_and_hopping_windows_with_late_records(
    advance: int, history: list[Event], grace: int, restart_at: int
) -> None:
    windows = TimeWindows.of_size_and_grace(10, grace).advance_by(advance)

    def define(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")

    outputs = run(define, history, out_key=Serdes.time_windowed(str, 10), restart_at=restart_at)
    accepted = open_windows(history, windows)
    assert [record.key for record in outputs] == [Windowed(event.key, window) for event, window in accepted]
    assert latest(outputs) == Counter(Windowed(event.key, window) for event, window in accepted)


@relaxed
@given(history=events("in"), grace=st.sampled_from([0, 5]), restart_at=RESTART)
def test_results_on_close_and_by_suppression_are_the_same_and_final(
    history: list[Event], grace: int, restart_at: int
) -> None:
    windows = TimeWindows.of_size_and_grace(10, grace)

    def suppressed(builder: StreamsBuilder) -> None:
        table = builder.stream("in").group_by_key().windowed_by(windows).count()
        table.suppress(Suppressed.until_window_closes()).to_stream().to("out")

    def on_close(builder: StreamsBuilder) -> None:
        grouped = builder.stream("in").group_by_key().windowed_by(windows)
        grouped.emit_strategy(EmitStrategy.on_window_close()).count().to_stream().to("out")

    closed_before = max((event.time for event in history), default=0) - grace
    counts = Counter(Windowed(event.key, window) for event, window in open_windows(history, windows))
    expected = {key: count for key, count in counts.items() if key.window.end_ms <= closed_before}
    for define in (suppressed, on_close):
        outputs = run(define, history, out_key=Serdes.time_windowed(str, 10), restart_at=restart_at)
        assert {record.key: record.value for record in outputs} == expected
        assert len(outputs) == len(expected), "a window has one final result"
        ends = [record.key.window.end_ms for record in outputs]
        assert ends == sorted(ends)


@relaxed
@given(events("in", time_max=40), st.sampled_from([0, 7, 12]), RESTART)
def test_sliding_windows(history: list[Event], difference: int, restart_at: int) -> None:
    windows = SlidingWindows.of_time_difference_and_grace(difference, LONG_AGO)

    def define(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().windowed_by(windows).aggregate(
            lambda: 0, lambda key, value, total: total + value * 100 + 1
        ).to_stream().to("out")

    outputs = run(define, history, out_key=Serdes.time_windowed(str, difference), restart_at=restart_at)
    expected: dict[Windowed, int] = {}
    for key in {event.key for event in history}:
        mine = [event for event in history if event.key == key]
        starts = {max(0, event.time - difference) for event in mine} | {event.time + 1 for event in mine}
        for start in starts:
            inside = [event for event in mine if start <= event.time <= start + difference]
            if inside:
                total = sum(event.value * 100 + 1 for event in inside)
                expected[Windowed(key, Window(start, start + difference))] = total
    assert latest(outputs) == expected


def test_sliding_windows_close_after_their_grace() -> None:
    builder = StreamsBuilder()
    windows = SlidingWindows.of_time_difference_and_grace(10, 5)
    builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_records([("a", "x", 100), ("a", "late", 84)])
        assert driver.dropped == {"late record for a closed window": 1}
        topic.pipe_input("a", "in time", 85)
        starts = [
            r.key.window.start_ms
            for r in driver.create_output_topic("out", Serdes.time_windowed(str, 10), int).read_records()
        ]
        # Its left window [75, 85] is closed; only windows that end at 95 or later are made.
        assert starts == [90]


@relaxed
@given(events("in", time_max=80), RESTART)
def test_sessions_merge(history: list[Event], restart_at: int) -> None:
    windows = SessionWindows.of_inactivity_gap_and_grace(5, LONG_AGO)

    def define(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")

    outputs = run(define, history, out_key=Serdes.session_windowed(str), restart_at=restart_at)
    expected: dict[Windowed, int] = {}
    for key in {event.key for event in history}:
        times = sorted(event.time for event in history if event.key == key)
        session: list[int] = []
        for time in [*times, LONG_AGO]:
            if session and time - session[-1] > 5:
                expected[Windowed(key, Window(session[0], session[-1]))] = len(session)
                session = []
            session.append(time)
    assert latest(outputs) == expected


def test_merged_sessions_leave_tombstones_before_the_merged_result() -> None:
    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap_and_grace(5, 100)
    builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_records([("a", "x", 10), ("a", "x", 20), ("a", "x", 15)])
        records = driver.create_output_topic("out", Serdes.session_windowed(str), int).read_records()
        assert [(record.key.window, record.value, record.timestamp_ms) for record in records] == [
            ((10, 10), 1, 10),
            ((20, 20), 1, 20),
            ((10, 10), None, 10),
            ((20, 20), None, 20),
            ((10, 20), 3, 20),
        ]


@relaxed
@given(events("in", time_max=80), st.sampled_from([0, 20]), RESTART)
def test_closed_sessions_are_final(history: list[Event], grace: int, restart_at: int) -> None:
    windows = SessionWindows.of_inactivity_gap_and_grace(5, grace)

    def updates(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")

    def on_close(builder: StreamsBuilder) -> None:
        grouped = builder.stream("in").group_by_key().windowed_by(windows)
        grouped.emit_strategy(EmitStrategy.on_window_close()).count().to_stream().to("out")

    key_serde = Serdes.session_windowed(str)
    rows = latest(run(updates, history, out_key=key_serde))
    closed = max((event.time for event in history), default=0) - grace - 5
    outputs = run(on_close, history, out_key=key_serde, restart_at=restart_at)
    assert {record.key: record.value for record in outputs} == {
        key: count for key, count in rows.items() if key.window.end_ms < closed
    }
    assert len(outputs) == len({record.key for record in outputs})


@relaxed
@given(events("in", time_max=80), st.sampled_from([0, 20]), RESTART)
def test_suppressed_sessions_and_sliding_windows_are_those_given_on_close(
    history: list[Event], grace: int, restart_at: int
) -> None:
    for windows, key in (
        (SessionWindows.of_inactivity_gap_and_grace(5, grace), Serdes.session_windowed(str)),
        (SlidingWindows.of_time_difference_and_grace(5, grace), Serdes.time_windowed(str, 5)),
    ):

        def suppressed(builder: StreamsBuilder, windows: Any = windows) -> None:
            table = builder.stream("in").group_by_key().windowed_by(windows).count()
            table.suppress(Suppressed.until_window_closes()).to_stream().to("out")

        def on_close(builder: StreamsBuilder, windows: Any = windows) -> None:
            grouped = builder.stream("in").group_by_key().windowed_by(windows)
            grouped.emit_strategy(EmitStrategy.on_window_close()).count().to_stream().to("out")

        # The last record closes everything, and is in a window that stays open.
        ended = [*history, Event("in", "end", 0, 10_000)]
        results = [
            sorted(
                (record.key, record.value)
                for record in run(define, ended, out_key=key, restart_at=restart_at)
            )
            for define in (suppressed, on_close)
        ]
        assert results[0] == results[1]
        assert len(results[0]) == len({found for found, _ in results[0]}), "each is given once"


def test_a_late_record_for_a_closed_session_is_dropped() -> None:
    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap_with_no_grace(5)
    builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_records([("a", "x", 100), ("b", "x", 94), ("b", "x", 95)])
        assert driver.dropped == {"late record for a closed session": 1}
        assert driver.create_output_topic("out", Serdes.session_windowed(str), int).queue_size == 2


@relaxed
@given(events("in"), RESTART)
def test_windowed_reduce_and_session_reduce(history: list[Event], restart_at: int) -> None:
    def define(builder: StreamsBuilder) -> None:
        grouped = builder.stream("in").group_by_key()
        grouped.windowed_by(TimeWindows.of_size_and_grace(10, LONG_AGO)).reduce(max).to_stream().to(
            "tumbling"
        )
        grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(LONG_AGO, 0)).reduce(
            max
        ).to_stream().to("session")

    tumbling = latest(
        run(define, history, out="tumbling", out_key=Serdes.time_windowed(str, 10), restart_at=restart_at)
    )
    expected: dict[Windowed, int] = defaultdict(int)
    for event in history:
        start = event.time // 10 * 10
        key = Windowed(event.key, Window(start, start + 10))
        expected[key] = max(expected[key], event.value)
    assert tumbling == expected
    session = latest(run(define, history, out="session", out_key=Serdes.session_windowed(str)))
    best: dict[str, int] = defaultdict(int)
    for event in history:
        best[event.key] = max(best[event.key], event.value)
    assert {key.key: value for key, value in session.items()} == best


@relaxed
@given(events("in"), RESTART)
def test_suppression_by_time_limit_gives_the_last_value_of_each_span(
    history: list[Event], restart_at: int
) -> None:
    def define(builder: StreamsBuilder) -> None:
        table = builder.table("in").suppress(Suppressed.until_time_limit(10))
        table.to_stream().to("out")

    outputs = run(define, history, restart_at=restart_at)
    # By the definition: an update waits from its key's first waiting time until stream time is 10 further.
    waiting: dict[str, tuple[int, Event]] = {}
    expected: list[tuple[str, int, int]] = []
    stream_time = -1
    for event in history:
        stream_time = max(stream_time, event.time)
        waiting[event.key] = (waiting.get(event.key, (event.time, event))[0], event)
        due = sorted((since, key) for key, (since, _) in waiting.items() if since <= stream_time - 10)
        for _, key in due:
            last = waiting.pop(key)[1]
            expected.append((key, last.value, last.time))
    assert [(record.key, record.value, record.timestamp_ms) for record in outputs] == expected


def test_a_full_suppression_buffer_emits_early_or_fails_as_told() -> None:
    def outputs(buffer: BufferConfig) -> list[tuple[str, str]]:
        builder = StreamsBuilder()
        builder.table("in").suppress(Suppressed.until_time_limit(1000, buffer)).to_stream().to("out")
        with TopologyTestDriver(builder.build()) as driver:
            topic = driver.create_input_topic("in")
            topic.pipe_records([("a", "1", 0), ("b", "2", 1), ("a", "3", 2), ("c", "4", 3)])
            return driver.create_output_topic("out").read_key_values()

    assert outputs(BufferConfig.max_records(2)) == [("a", "3")]
    assert outputs(BufferConfig.max_bytes(1000)) == []
    with pytest.raises(StreamsError, match="exceeds its limit: 3 records of at most 2"):
        outputs(BufferConfig.max_records(2).shut_down_when_full())


def test_unlimited_windows_never_close() -> None:
    builder = StreamsBuilder()
    windows = UnlimitedWindows.of().start_on(5)
    builder.stream("in").group_by_key().windowed_by(windows).count(Materialized.as_("all")).to_stream().to(
        "out"
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_records([("a", "x", 4), ("a", "x", 10**9), ("a", "x", 5)])
        assert driver.create_output_topic("out", Serdes.time_windowed(str), int).read_values() == [1, 2]
        assert driver.get_state_store("all").fetch("a", 5) == 2
