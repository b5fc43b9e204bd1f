"""The processor API: stores, timers, and what survives a restart."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from ottla.streams import (
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordError,
    Stores,
    StreamsBuilder,
    StreamsError,
    TopologyError,
    ValueTransformer,
    Window,
    Windowed,
)
from ottla.streams.tasks.clock import schedules_clock_timers
from ottla.streams.testing import TopologyTestDriver


class Deduplicate(Processor):
    """Passes a key once; tells by the clock how many it has seen."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")
        context.schedule(timedelta(seconds=10), PunctuationType.WALL_CLOCK_TIME, self.report)

    def process(self, record: Record) -> None:
        if self.seen.put_if_absent(record.key, 1) is None:
            self.context.forward(record)

    def report(self, time_ms: int) -> None:
        self.context.forward(Record("seen", str(self.seen.approximate_num_entries()), time_ms))


def deduplicating() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", str, int))
    builder.stream("in").process(Deduplicate, stores=["seen"], named="deduplicate").to("out")
    return builder


def test_a_processor_with_a_store_and_a_timer() -> None:
    with TopologyTestDriver(deduplicating().build()) as driver:
        topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")
        topic.pipe_records([("a", "1"), ("a", "2"), ("b", "3")])
        assert out.read_key_values() == [("a", "1"), ("b", "3")]
        driver.advance_wall_clock_time(timedelta(seconds=9))
        assert out.is_empty
        driver.advance_wall_clock_time(timedelta(seconds=1))
        assert out.read_records() == [Record("seen", "2", 10_000)]
        # Missed beats are not made up for.
        driver.advance_wall_clock_time(timedelta(seconds=35))
        assert out.read_records() == [Record("seen", "2", 45_000)]
        driver.advance_wall_clock_time(timedelta(seconds=5))
        assert out.read_records() == [Record("seen", "2", 50_000)]


def test_stores_and_timers_survive_a_restart() -> None:
    topology = deduplicating().build()
    with TopologyTestDriver(topology) as first:
        first.create_input_topic("in").pipe_input("a", "1")
        first.advance_wall_clock_time(timedelta(seconds=6))
        state = first.state()
    with TopologyTestDriver(topology, state=state, wall_clock_time_ms=6_000) as second:
        second.create_input_topic("in").pipe_records([("a", "2"), ("b", "3")])
        second.advance_wall_clock_time(timedelta(seconds=4))
        assert second.create_output_topic("out").read_key_values() == [("b", "3"), ("seen", "2")]


def test_stream_time_timers_fire_with_the_records() -> None:
    fired: list[int] = []

    class Watch(Processor):
        def init(self, context: ProcessorContext) -> None:
            timer = context.schedule(100, PunctuationType.STREAM_TIME, fired.append)
            context.schedule(
                100, PunctuationType.STREAM_TIME, lambda time_ms: timer.cancel() if time_ms >= 500 else None
            )

        def process(self, record: Record) -> None:
            pass

    builder = StreamsBuilder()
    builder.stream("in").process(Watch)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        for time in (5, 40, 99, 100, 130, 90, 420, 430, 500, 900):
            topic.pipe_input("k", "v", time)
    assert fired == [5, 100, 420, 500]


class OncePerKey(Processor):
    """Gives a reminder, until a record says that none is wanted any more."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.timer = context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.remind)

    def process(self, record: Record) -> None:
        self.timer.cancel()

    def remind(self, time_ms: int) -> None:
        self.context.forward(Record("reminder", "", time_ms))


def test_a_cancelled_timer_stays_cancelled_in_the_tasks_to_come() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(OncePerKey).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        out = driver.create_output_topic("out")
        driver.advance_wall_clock_time(10)
        assert out.read_records() == [Record("reminder", "", 10)]
        driver.create_input_topic("in").pipe_input("k", "enough")
        driver.advance_wall_clock_time(100)
        assert out.is_empty


def test_the_driver_makes_processors_anew_as_spark_does() -> None:
    class Count(Processor):
        seen = 0

        def process(self, record: Record) -> None:
            self.seen += 1
            self.context.forward(record.with_value(str(self.seen)))

    builder = StreamsBuilder()
    builder.stream("in").process(Count).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_records([("k", ""), ("k", "")])
        assert driver.create_output_topic("out").read_values() == ["1", "1"]


def test_a_timer_that_init_does_not_schedule_is_refused() -> None:
    class Late(Processor):
        def process(self, record: Record) -> None:
            self.context.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda time_ms: None)

    builder = StreamsBuilder()
    builder.stream("in").process(Late, named="late")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(RecordError, match="late schedules a timer outside of init"),
    ):
        driver.create_input_topic("in").pipe_input("k", "v")


def test_the_clock_is_asked_for_only_by_processors_that_schedule_a_timer_by_it() -> None:
    class Plain(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record)

    class ByStream(Plain):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.STREAM_TIME, lambda time_ms: None)

    class OnlyInWorkers(Plain):
        def init(self, context: ProcessorContext) -> None:
            raise OSError("no such device")

    def asks(supplier: type[Processor]) -> bool:
        builder = StreamsBuilder()
        builder.stream("in").process(supplier).to("out")
        return schedules_clock_timers(builder.build().plan)

    assert not asks(Plain)
    assert not asks(ByStream)
    assert asks(OncePerKey)
    assert asks(OnlyInWorkers), "who cannot be asked may have one"


def test_process_values_must_keep_the_key() -> None:
    class Shout(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_value(record.value.upper()))

    class Rename(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_key("other"))

    builder = StreamsBuilder()
    builder.stream("in").process_values(Shout).group_by_key().count().to_stream().to("out")
    topology = builder.build()
    assert not topology.plan.internal_topics, "keys are the same, so nothing is repartitioned"
    builder = StreamsBuilder()
    builder.stream("in").process_values(Rename, named="rename").to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(RecordError, match="process_values keeps keys"),
    ):
        driver.create_input_topic("in").pipe_input("k", "v")


class Ranked(ValueTransformer):
    """Numbers the rows of a table in the order in which their keys came."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.ranks = context.get_state_store("ranks")

    def transform(self, key: str, value: str | None) -> str | None:
        rank = self.ranks.put_if_absent(key, self.ranks.approximate_num_entries())
        return None if value is None else f"{self.ranks.get(key) if rank is None else rank}:{value}"


def test_a_table_is_transformed_with_a_store_and_its_old_values_are_right() -> None:
    builder = StreamsBuilder().add_state_store(Stores.key_value_store("ranks", str, int))
    ranked = builder.table("in").transform_values(Ranked, stores=["ranks"])
    ranked.to_stream().to("rows")
    by_value = ranked.group_by(lambda key, value: (value.split(":")[1], value))
    by_value.count().to_stream().to("counts")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_records([("a", "x"), ("b", "x"), ("a", "y"), ("b", None)])
        rows = driver.create_output_topic("rows").read_key_values()
        assert rows == [("a", "0:x"), ("b", "1:x"), ("a", "0:y"), ("b", None)]
        assert driver.create_output_topic("counts", str, int).read_map() == {"x": 0, "y": 1}


def test_a_transformed_table_has_a_store_only_where_one_is_needed() -> None:
    class Loud(ValueTransformer):
        def transform(self, key: str, value: str) -> str:
            return value.upper()

    builder = StreamsBuilder()
    builder.table("in").transform_values(Loud).to_stream().to("out")
    assert not builder.build().plan.stores
    builder = StreamsBuilder()
    loud = builder.table("in").transform_values(Loud, Materialized.as_("loud"))
    builder.stream("clicks").join(loud, lambda click, row: f"{click} {row}").to("out")
    assert list(builder.build().plan.stores) == ["loud"]
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", "row")
        driver.create_input_topic("clicks").pipe_input("k", "click")
        assert driver.create_output_topic("out").read_values() == ["click ROW"]


def test_window_and_session_stores() -> None:
    class Keep(Processor):
        def process(self, record: Record) -> None:
            self.context.get_state_store("w").put(record.key, record.value, record.timestamp_ms)
            window = Window(record.timestamp_ms, record.timestamp_ms + 2)
            self.context.get_state_store("s").put(Windowed(record.key, window), record.value)

    builder = StreamsBuilder()
    builder.add_state_store(Stores.window_store("w", str, str, window_size=10, retention=50))
    builder.add_state_store(Stores.session_store("s", str, str, retention=50))
    builder.stream("in").process(Keep, stores=["w", "s"])
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_records(
            [("a", "1", 5), ("a", "2", 30), ("b", "3", 31), ("a", "4", 70)]
        )
        windows, sessions = driver.get_state_store("w"), driver.get_state_store("s")
        assert [(start, found.value) for start, found in windows.fetch_range("a", 0, 100)] == [
            (30, "2"),
            (70, "4"),
        ]
        assert windows.fetch("a", 5) is None, "older than the retention"
        assert [(key.key, value) for key, value in windows.all()] == [("a", "2"), ("b", "3"), ("a", "4")]
        assert [value for _, value in sessions.fetch("a")] == ["2", "4"]
        assert sessions.fetch_session("b", 31, 33) == "3"


def test_forwarding_to_one_child_and_to_an_unknown_one() -> None:
    class Route(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record, record.value)

    builder = StreamsBuilder()
    routed = builder.stream("in").process(Route, named="route")
    routed.map_values(str.upper, named="up").to("out")
    routed.map_values(str.lower, named="down").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_records([("k", "up"), ("k", "down")])
        assert driver.create_output_topic("out").read_values() == ["UP", "down"]
        with pytest.raises(RecordError, match="no child named sideways"):
            topic.pipe_input("k", "sideways")


def test_a_store_has_to_be_connected() -> None:
    class Reach(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.get_state_store("seen")

    builder = StreamsBuilder().add_state_store(Stores.key_value_store("seen", str, int))
    builder.stream("in").process(Reach, named="reach")
    with pytest.raises(StreamsError, match="reach is not connected to a store named seen"):
        TopologyTestDriver(builder.build())


def test_a_global_store_is_filled_by_its_processor_and_read_by_all() -> None:
    class Fill(Processor):
        def process(self, record: Record) -> None:
            self.context.get_state_store("limits").put(record.key, int(record.value))

    class Check(Processor):
        def process(self, record: Record) -> None:
            limit = self.context.get_state_store("limits").get(record.key) or 0
            self.context.forward(record.with_value(str(int(record.value) <= limit)))

    builder = StreamsBuilder()
    builder.add_global_store(Stores.key_value_store("limits", str, int), "limits", Fill)
    builder.stream("in").process(Check, stores=["limits"]).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("limits").pipe_input("a", "10")
        driver.create_input_topic("in").pipe_records([("a", "9"), ("a", "11"), ("b", "1")])
        assert driver.create_output_topic("out").read_values() == ["True", "False", "False"]


class Seen(Processor):
    """Forwards a value the first time only. Brings its store along."""

    stores = (Stores.key_value_store("seen", str, str),)

    def __init__(self, mark: str = "") -> None:
        self.mark = mark

    def process(self, record: Record) -> None:
        store = self.context.get_state_store("seen")
        if store.put_if_absent(record.value, record.value) is None:
            self.context.forward(record.with_value(record.value + self.mark))


def test_a_processor_brings_its_stores_along() -> None:
    for supplier, mark in ((Seen, ""), (partial(Seen, "!"), "!")):
        builder = StreamsBuilder()
        builder.stream("in").process(supplier).to("out")
        described = builder.build().describe()
        assert "(stores: [seen])" in described
        with TopologyTestDriver(builder.build()) as driver:
            for value in ("a", "b", "a"):
                driver.create_input_topic("in").pipe_input("k", value)
            assert driver.create_output_topic("out").read_values() == [f"a{mark}", f"b{mark}"]


def test_two_stores_of_one_name_are_told_apart() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", str, int))
    builder.stream("in").process(Seen).to("out")
    with pytest.raises(TopologyError, match="two stores are named seen: give each its own name"):
        builder.build()
