"""Streams applications on Spark over a broker give what the test driver gives, also through restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from tests.spark.topics import Cluster

from ottla.spark.engine import last_report, reports_since
from ottla.streams import (
    Consumed,
    Grouped,
    JoinWindows,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
    expr,
)
from ottla.streams.application.life import ApplicationState
from ottla.streams.testing import TopologyTestDriver
from ottla.testing.in_process import InProcessBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Row = tuple[str, str | None, str | None, int]

# Recent, or retention would delete the records while they are read.
T0 = time.time_ns() // 1_000_000 - 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


def key_of(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class Running:
    """A topology on Spark, which can be stopped and started again."""

    def __init__(
        self,
        spark: Any,
        broker: InProcessBroker,
        name: str,
        topology: Topology,
        directory: Path,
        states: list[str] | None = None,
        **config: Any,
    ) -> None:
        """To `states` those are added that it comes to."""
        from ottla.streams.run import StreamsApplication, StreamsConfig

        self.servers = broker.bootstrap_servers
        self.spark = spark
        settings = {"state_dir": str(directory), "trigger": {"processingTime": "1 second"}, **config}
        self.make: Callable[[], StreamsApplication] = lambda: StreamsApplication(
            topology, StreamsConfig(name, self.servers, **settings)
        )
        self.app = self.make()
        if states is not None:
            self.app.set_state_listener(lambda new, old: states.append(new.name))
        self.app.start(spark)
        # Keys go where Java clients and repartition topics put them, or joins would not find each other.
        self.producer = Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 5, "partitioner": "murmur2_random"}
        )

    def send(self, rows: Sequence[Row]) -> None:
        self.produce(rows)
        self.app.process_all_available()

    def produce(self, rows: Sequence[Row]) -> None:
        for topic, key, value, stamp in rows:
            self.producer.produce(topic, key_of(value), key_of(key), timestamp=T0 + stamp)
        assert self.producer.flush(30) == 0

    def restart(self, *, forget_commits: bool = False) -> None:
        """Stop and start. Forgetting is what a crash between the sink's commit and Spark's own leaves
        behind."""
        self.app.stop()
        if forget_commits:
            for label in Path(self.app.config.checkpoint_dir).glob("*/"):
                commits = max(label.iterdir(), key=lambda generation: int(generation.name)) / "commits"
                last_batch = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
                for name in (f"{last_batch}", f".{last_batch}.crc"):
                    (commits / name).unlink(missing_ok=True)
        self.app = self.make()
        self.app.start(self.spark)

    def change(self, topology: Topology) -> None:
        """Stop, and start another version of the program."""
        from ottla.streams.run import StreamsApplication

        self.app.stop()
        self.app = StreamsApplication(topology, self.app.config)
        self.app.start(self.spark)

    def stop(self) -> None:
        self.app.stop()

    def read(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Everything committed in a topic so far."""
        return [row for rows in self.read_partitions(topic).values() for row in rows]

    def read_partitions(self, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        try:
            found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
            for partition in consumer.list_topics(topic, 30).topics[topic].partitions:
                consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
                while (message := consumer.poll(30)) is not None and message.error() is None:
                    found.setdefault(partition, []).append((message.key(), message.value()))
                assert message is not None
                assert message.error().code() == KafkaError._PARTITION_EOF
            return found
        finally:
            consumer.close()


def by_driver(topology: Topology, rows: Sequence[Row], topic: str) -> list[tuple[bytes | None, bytes | None]]:
    with TopologyTestDriver(topology, application_id="driver") as driver:
        for source, key, value, stamp in rows:
            driver.pipe(source, key_of(key), key_of(value), T0 + stamp, ())
        return [(record.key, record.value) for record in driver.output(topic)]


def last(rows: Sequence[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in dict(rows).items() if value is not None}


def test_word_count_is_spark_s_own_aggregation_and_continues_after_a_restart(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("lines", "word-counts", "shouted"):
        cluster.create(topic, 2)
    builder = StreamsBuilder()
    lines = builder.stream("lines")
    lines.map_values(str.upper).to("shouted")
    counts = (
        lines.flat_map_values(str.split).group_by(lambda key, word: word).count(Materialized.as_("counts"))
    )
    counts.to_stream().to("word-counts")
    topology = builder.build()
    first: list[Row] = [("lines", None, "hello spark hello", n) for n in range(50)]
    second: list[Row] = [("lines", "k", "hello again", n) for n in range(50, 60)]
    app = Running(spark, broker, "word-count", topology, tmp_path)
    try:
        app.send(first)
        app.restart(forget_commits=True)
        app.send(second)
        expected = last(by_driver(topology, first + second, "word-counts"))
        assert last(app.read("word-counts")) == expected
        assert expected[b"hello"] == (110).to_bytes(8, "big")
        assert last(app.read("word-count-counts-changelog")) == expected
        assert sorted(app.read("shouted"), key=str) == sorted(
            by_driver(topology, first + second, "shouted"), key=str
        )
    finally:
        app.stop()


class LastSeen(Processor):
    """Forwards what it knows of every key when the clock says so."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")
        context.schedule(100, PunctuationType.WALL_CLOCK_TIME, self.beat)

    def process(self, record: Record) -> None:
        self.seen.put(record.key, record.value)

    def beat(self, time_ms: int) -> None:
        for key, value in self.seen.all():
            self.context.forward(Record(key, value, time_ms))
            self.seen.delete(key)


def stateful_topology() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", str, str))
    orders, payments = builder.stream("orders"), builder.stream("payments")
    windows = JoinWindows.of_time_difference_and_grace(1_000, 10_000)
    joined = orders.left_join(payments, lambda order, payment: f"{order}:{payment}", windows)
    joined.to("settled")
    customers = builder.table("customers")
    orders.join(customers, lambda order, customer: f"{order} by {customer}").to("named")
    orders.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(1_000)).count(
        Materialized.as_("per-second")
    ).to_stream().to("rates")
    customers.group_by(lambda key, name: (name[0], name)).reduce(
        # In any order: updates of different partitions meet as they come.
        lambda a, b: ",".join(sorted([*a.split(","), b])),
        lambda a, b: ",".join(each for each in a.split(",") if each != b),
    ).to_stream().to("initials")
    payments.process(LastSeen, stores=["seen"]).to("beats")
    return builder.build()


def test_joins_windows_tables_and_timers_run_in_tasks_by_partition(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    outputs = ("settled", "named", "rates", "initials", "beats")
    for topic in ("orders", "payments", "customers", *outputs):
        cluster.create(topic, 2)
    topology = stateful_topology()
    customers: list[Row] = [("customers", f"k{n}", f"{'ab'[n % 2]}-{n}", n) for n in range(6)]
    customers += [("customers", "k0", None, 10), ("customers", "k1", "a-changed", 11)]
    first: list[Row] = [("orders", f"k{n % 6}", f"o{n}", 100 * n) for n in range(30)]
    second: list[Row] = [("payments", f"k{n % 6}", f"p{n}", 100 * n + 10) for n in range(0, 30, 2)]
    # Far ahead on every partition, so that all windows close.
    third: list[Row] = [("orders", f"k{n}", "end", 60_000) for n in range(6)]
    app = Running(spark, broker, "tasks", topology, tmp_path)
    try:
        app.send(customers)
        app.send(first)
        app.restart(forget_commits=True)
        app.send(second)
        app.send(third)
        rows = [*customers, *first, *second, *third]
        for topic in ("named", "settled", "rates"):
            assert sorted(app.read(topic), key=str) == sorted(by_driver(topology, rows, topic), key=str), (
                topic
            )
        assert last(app.read("initials")) == last(by_driver(topology, rows, "initials"))
        deadline = time.monotonic() + 60
        payments = {f"k{key}".encode(): f"p{24 + key}".encode() for key in (0, 2, 4)}
        while last(app.read("beats")) != payments:
            assert time.monotonic() < deadline, app.read("beats")
            time.sleep(0.5)
        app.send([("orders", "k0", "late", 0)])
        snapshot = app.app.snapshot()
        assert snapshot.state is ApplicationState.RUNNING
        nodes = {each.name: each for each in snapshot.nodes}
        dropped = [each.dropped for name, each in nodes.items() if name.startswith("KSTREAM-AGGREGATE")]
        assert dropped == [{"late record for a closed window": 1}]
        (orders,) = (each for each in snapshot.nodes if each.topics == ("orders",))
        assert orders.records is not None
        # At least: what was redone after the restart is counted again.
        assert orders.records >= len(third) + 1
        assert sum(snapshot.queries[0].task_records.values()) >= orders.records
    finally:
        app.stop()


def test_column_expressions_foreign_keys_and_global_tables(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("sales", "products", "rates-of", "loud", "totals", "priced", "labelled"):
        cluster.create(topic, 2)
    builder = StreamsBuilder()
    sales = builder.stream("sales", Consumed.with_(str, int))
    sales.filter(expr("value > 2")).map_values(expr("concat('sold ', value)")).to("loud")
    sales.group_by(expr("upper(key)"), Grouped.with_(str, int)).aggregate(
        expr("sum(value)"), materialized=Materialized.with_(str, int)
    ).to_stream().to("totals")
    products = builder.table("products")
    rates = builder.global_table("rates-of")
    named = builder.stream("sales", Consumed.with_(str, int)).map_values(str)
    named.left_join(rates, lambda sale, rate: f"{sale}*{rate}", key_selector=lambda key, sale: sale).to(
        "priced"
    )
    labels = builder.table("products").join(
        products, lambda mine, other: f"{mine}>{other}", foreign_key=lambda value: value
    )
    labels.to_stream().to("labelled")
    topology = builder.build()
    rows: list[tuple[str, str, Any, int]] = [("rates-of", "4", "x4", 0)]
    rows += [("products", f"p{n}", f"p{(n + 1) % 4}", n) for n in range(4)]
    rows += [("products", "p0", "p2", 10)]
    sold = [("sales", f"k{n % 3}", n, n) for n in range(9)]
    app = Running(spark, broker, "columns", topology, tmp_path)
    try:
        app.send([(topic, key, value, stamp) for topic, key, value, stamp in rows])
        for topic, key, value, stamp in sold:
            app.producer.produce(topic, Serdes.long().serialize(value), key.encode(), timestamp=T0 + stamp)
        app.send([])
        with TopologyTestDriver(topology) as driver:
            for topic, key, value, stamp in rows:
                driver.pipe(topic, key.encode(), value.encode(), T0 + stamp, ())
            labelled = last([(r.key, r.value) for r in driver.output("labelled")])
        assert sorted(app.read("loud"), key=str) == sorted(
            ((f"k{n % 3}".encode(), f"sold {n}".encode()) for n in range(3, 9)), key=str
        )
        assert last(app.read("totals")) == {
            f"K{n}".encode(): Serdes.long().serialize(n + (n + 3) + (n + 6)) for n in range(3)
        }
        assert sorted(app.read("priced"), key=str) == sorted(
            ((f"k{n % 3}".encode(), f"{n}*{'x4' if n == 4 else None}".encode()) for n in range(9)), key=str
        )
        assert last(app.read("labelled")) == labelled
    finally:
        app.stop()


def test_a_poison_record_stops_the_application_with_its_place_or_goes_to_dead_letters(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("numbers", "others", "halves", "count", "sum"):
        cluster.create(topic, 1)
    builder = StreamsBuilder()
    halves = builder.stream("numbers", Consumed.with_(str, int)).map_values(lambda n: n // 2)
    halves.to("halves", Produced.with_(str, int))
    # This node is in front of two queries; its dead letter may be neither written nor counted twice.
    alike = halves.group_by(lambda key, n: "all", Grouped.with_(str, int).with_name("alike"))
    alike.count().to_stream().to("count")
    other = builder.stream("others", Consumed.with_(str, int)).select_key(lambda key, n: "sum")
    grouped = other.group_by_key(Grouped.with_(str, int).with_name("sums"))
    grouped.reduce(lambda a, b: a + b).to_stream().to("sum", Produced.with_(str, int))
    topology = builder.build()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in ((8).to_bytes(8, "big"), b"poison", (4).to_bytes(8, "big")):
        for topic in ("numbers", "others"):
            producer.produce(topic, value, b"k", timestamp=T0)
    producer.flush(30)
    states: list[str] = []
    app = Running(spark, broker, "strict", topology, tmp_path, states)
    try:
        with pytest.raises(Exception, match=r"topic (numbers|others), partition 0, offset 1, key 'k'"):
            app.send([])
        deadline = time.monotonic() + 30
        while states[-1] != "ERROR":
            assert time.monotonic() < deadline, states
            time.sleep(0.1)
        assert states.count("ERROR") == 1
    finally:
        app.stop()
    assert app.read("halves") == []
    app = Running(
        spark, broker, "lenient", topology, tmp_path, on_error="dead-letter", dead_letter_topic="graveyard"
    )
    try:
        app.send([])
        assert [value for _, value in app.read("halves")] == [(n).to_bytes(8, "big") for n in (4, 2)]
        assert app.read("graveyard") == [(b"k", b"poison")] * 2
        assert last(app.read("count")) == {b"all": (2).to_bytes(8, "big")}
        assert last(app.read("sum")) == {b"sum": (12).to_bytes(8, "big")}
        failed = [each.failed for each in app.app.snapshot().nodes if each.failed]
        assert failed == [{"dead-letter": 1}] * 2
        last_told = last_report(app.app.queries[0])
        assert last_told is not None
        told = [json.loads(each) for each in reports_since(app.app.queries[0], "")]
        assert sum(each["numInputRows"] for each in told) == 3
        assert reports_since(app.app.queries[0], json.loads(last_told)["timestamp"]) == []
    finally:
        app.stop()


def test_the_test_driver_evaluates_column_expressions(spark: Any) -> None:
    from pyspark.sql import functions

    builder = StreamsBuilder()
    lines = builder.stream("lines")
    words = lines.filter(expr("length(value) > 3")).flat_map_values(
        functions.explode(functions.split("value", " "))
    )
    words.select_key(functions.upper("value")).to("words")
    sales = builder.stream("sales", Consumed.with_(str, int)).group_by_key()
    sales.aggregate(
        functions.sum("value"), materialized=Materialized.as_("totals").with_value_serde(int)
    ).to_stream().to("totals")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("lines")
        topic.pipe_value("abc")
        topic.pipe_value("ab cd")
        assert driver.create_output_topic("words").read_key_values() == [("AB", "ab"), ("CD", "cd")]
        driver.create_input_topic("sales", str, int).pipe_records([("k", 2), ("k", 5), ("j", 1)])
        totals = driver.create_output_topic("totals", str, int).read_key_values()
        assert totals == [("k", 2), ("k", 7), ("j", 1)]
        assert driver.get_state_store("totals").get("k") == 7
