"""The lake sink: each record in one visible file, wherever the work is cut off; directories; poison."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyarrow.dataset import dataset

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
sys.path.insert(0, str(Path(__file__).parents[1] / "integration" / "connect"))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration" / "registry"))

from registry_process import RegistryProcess
from test_moving_records import ask, committed_values, create, task_state, until
from worker_process import our_worker, settings_of

from ottla.connect.connectors.lake import LakeSink
from ottla.connect.connectors.publishing import Directory, Publication
from ottla.connect.converters.registry import AvroConverter
from ottla.connect.data import INT64, STRING, Struct, struct_of
from ottla.connect.errors import ConnectError
from ottla.testing import InProcessBroker


class Killed(BaseException):
    """In the place of a process that ends."""


class Mortal(Directory):
    """Ends before or after one of the steps that change something."""

    def __init__(self, session: Any, location: str, steps: int) -> None:
        super().__init__(session, location)
        self._left = steps

    def _step(self, work: Callable[[], None]) -> None:
        for moment in (lambda: None, work):
            if self._left == 0:
                raise Killed
            self._left -= 1
            moment()

    def write(self, name: str, text: str) -> None:
        super_write = super().write
        self._step(lambda: super_write(name, text))

    def move(self, name: str, target: str, *, is_first: bool = False) -> None:
        super_move = super().move
        self._step(lambda: super_move(name, target, is_first=is_first))

    def delete(self, name: str) -> None:
        super_delete = super().delete
        self._step(lambda: super_delete(name))


def visible(place: Path) -> list[str]:
    """Lines of all files that a reader of the directory sees."""
    files = [
        file
        for file in place.rglob("*.txt")
        if not any(part.startswith(("_", ".")) for part in file.relative_to(place).parts)
    ]
    return sorted(line for file in files for line in file.read_text().splitlines())


def test_a_batch_is_visible_once_wherever_it_was_cut_off(spark: Any, tmp_path: Path) -> None:
    def rows(batch_id: int) -> Callable[[str], None]:
        def write(directory: str) -> None:
            place = Path(directory) / "kind=a b%3A"
            place.mkdir(parents=True)
            for part in range(2):
                (place / f"part-{part}.c0.txt").write_text(f"{part} {batch_id}\n")
            (Path(directory) / "_SUCCESS").write_text("")

        return write

    expected = sorted(f"{part} {batch}" for part in (0, 1) for batch in (0, 1, 2))
    steps = 0
    while True:
        place = tmp_path / str(steps)
        was_killed = False
        for batch_id in range(3):
            directory = Mortal(spark, str(place), steps if batch_id == 1 else 1000)
            try:
                Publication(directory, "query").publish(batch_id, rows(batch_id))
            except Killed:
                was_killed = True
                assert max(Counter(visible(place)).values()) == 1
                Publication(Directory(spark, str(place)), "query").publish(batch_id, rows(batch_id))
        assert visible(place) == expected, f"cut off after {steps} steps"
        if not was_killed:
            break
        steps += 1
    assert steps > 6
    with pytest.raises(ConnectError, match="two workers"):
        Publication(Directory(spark, str(place)), "query").publish(1, rows(1))


def test_what_is_taken_out_of_its_hands_is_told_and_nothing_is_left_out(spark: Any, tmp_path: Path) -> None:
    def rows(directory: str) -> None:
        for place in ("_type=a", "_type=..%2F..%2Fetc"):
            (Path(directory) / place).mkdir(parents=True)
            (Path(directory) / place / "part-0.c0.txt").write_text(place + "\n")
        (Path(directory) / "_SUCCESS").write_text("")

    directory = Directory(spark, str(tmp_path / "odd"))
    Publication(directory, "query").publish(0, rows)
    found = {file.parent.name: file.read_text() for file in (tmp_path / "odd").rglob("query-*.txt")}
    assert found == {place: place + "\n" for place in ("_type=a", "_type=..%2F..%2Fetc")}

    class Robbed(Directory):
        def move(self, name: str, target: str, *, is_first: bool = False) -> None:
            if name.endswith(".txt"):
                self.delete(name)
            super().move(name, target, is_first=is_first)

    with pytest.raises(ConnectError, match="nobody else may delete"):
        Publication(Robbed(spark, str(tmp_path / "robbed")), "query").publish(0, rows)


def test_values_that_are_no_names_stay_within_the_directory(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    values = [
        "../../etc",
        "/",
        "..",
        ".",
        " ",
        "a=b",
        "a\nb",
        "%2F",
        "x:y",
        "größe",
        "_a",
        ".a",
        "*",
        "'\"#?",
        None,
    ]
    rows = spark.createDataFrame(list(enumerate(values)), "n int, land string").select(
        F.struct("n", "land").alias("value"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in (("key", "string"), ("topic", "string"))),
        *(F.lit(0).alias(name) for name in ("partition", "offset")),
        F.timestamp_seconds(F.lit(1709210096)).alias("timestamp"),
    )
    sink = LakeSink()
    place = tmp_path / "in" / "a lake%41"
    sink.start({"path": str(place), "partition.fields": "land"})
    sink.query_id = "query"
    sink.write(rows, 0)
    found = spark.read.parquet(str(place)).collect()
    assert sorted((row.n, row.land) for row in found) == list(enumerate(values))
    assert [each.name for each in tmp_path.iterdir()] == ["in"]
    assert [each.name for each in place.parent.iterdir()] == [place.name]


def test_an_attempt_that_fails_leaves_nothing_behind(spark: Any, tmp_path: Path) -> None:
    def full(directory: str) -> None:
        Path(directory).mkdir(parents=True)
        (Path(directory) / "part-0.c0.txt").write_text("half of it")
        raise OSError("No space left on device")

    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            Publication(Directory(spark, str(tmp_path)), "query").publish(0, full)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_directories_that_readers_would_not_see_are_refused() -> None:
    with pytest.raises(ConnectError, match=r"partition.fields=_type: .* ReplaceField"):
        LakeSink().start({"path": "/lake", "partition.fields": "land,_type"})


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        Producer({"bootstrap.servers": running.bootstrap_servers}).list_topics(timeout=30)
        yield running


@pytest.fixture(scope="module")
def address(spark: Any, broker: InProcessBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from ottla.connect.running.spark_query import SparkHost

    with pytest.MonkeyPatch.context() as patch:
        # The session is that of all tests here, and goes on after the worker.
        patch.setattr(SparkHost, "session", lambda self: spark)
        patch.setattr(SparkHost, "stop", lambda self: None)
        given = settings_of(broker.bootstrap_servers) | {
            "ottla.spark.checkpoint.dir": str(tmp_path_factory.mktemp("checkpoints")),
            "key.converter": "StringConverter",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
            "task.shutdown.graceful.timeout.ms": "60000",
        }
        with our_worker(given) as worker:
            yield worker.address


def produce(broker: InProcessBroker, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=str(number).encode(), timestamp=1709210096789)
    producer.flush(60)


def test_records_become_parquet_in_directories_and_a_restart_repeats_none(
    address: str, broker: InProcessBroker, spark: Any, tmp_path: Path
) -> None:
    values = [json.dumps({"n": n, "land": "DE" if n % 3 else "FR"}).encode() for n in range(100)]
    produce(broker, "lake", values[:60])
    out = tmp_path / "out"
    settings = {
        "path": str(out),
        "topics": "lake",
        "value_schema": "n bigint, land string",
        "partition_fields": "land",
        "partition_time": "year,month",
        "metadata_fields": "key,offset",
        "flush_interval_ms": "100",
        "flush_size": "60",
    }
    create(address, "lake", "lake", **settings)

    def count() -> int:
        # Leaves out what is hidden, as Spark does.
        return int(dataset(out, format="parquet", partitioning="hive").count_rows()) if out.exists() else 0

    until(lambda: count() >= 60)
    ask(address, "POST", "/connectors/lake/restart?includeTasks=true")
    produce(broker, "lake", values[60:])
    until(lambda: count() >= 100)
    assert len(list(out.glob("land=DE/year=2024/month=02/*.parquet"))) >= 2
    rows = spark.read.parquet(str(out)).collect()
    assert sorted(row.n for row in rows) == list(range(100))
    assert all(
        row.land == ("DE" if row.n % 3 else "FR") and (row.year, row.month) == (2024, 2) for row in rows
    )
    assert sorted(row.offset for row in rows) == list(range(100))
    ask(address, "DELETE", "/connectors/lake")


def test_values_of_a_registry_become_parquet_and_their_new_fields_columns(
    address: str, broker: InProcessBroker, spark: Any, tmp_path: Path
) -> None:
    pytest.importorskip("fastavro", reason="needs the extra ottla[schemas]")
    out = tmp_path / "out"
    old = struct_of(("n", INT64), ("land", STRING), name="Visit")
    new = struct_of(("n", INT64), ("land", STRING), ("cents", INT64.but(optional=True)), name="Visit")

    def rows() -> list[Any]:
        if not list(out.glob("land=*/*.parquet")):
            return []
        return list(spark.read.option("mergeSchema", "true").parquet(str(out)).collect())

    with RegistryProcess(broker.bootstrap_servers) as registry:
        converter = AvroConverter({"converter.type": "value", "schema.registry.url": registry.url})
        written = [converter.to_bytes("visits", old, Struct(old, {"n": 1, "land": "DE"})) or b""]
        produce(broker, "visits", written)
        settings = {
            "path": str(out),
            "topics": "visits",
            "partition_fields": "land",
            "flush_interval_ms": "100",
            "value_converter": "AvroConverter",
            "value_converter_schema_registry_url": registry.url,
        }
        create(address, "visits", "lake", **settings)
        until(lambda: len(rows()) == 1)
        value = Struct(new, {"n": 2, "land": "FR", "cents": 5})
        produce(broker, "visits", [converter.to_bytes("visits", new, value) or b""])
        until(lambda: len(rows()) == 2)
        assert sorted((row.n, row.land, row.cents) for row in rows()) == [(1, "DE", None), (2, "FR", 5)]
        ask(address, "DELETE", "/connectors/visits")


def test_a_poison_record_fails_by_name_or_goes_to_the_dead_letters(
    address: str, broker: InProcessBroker, spark: Any, tmp_path: Path
) -> None:
    produce(broker, "bad", [b'{"n": 1}', b"{broken", b'{"n": "text"}', b'{"n": 2}'])
    out = tmp_path / "out"
    settings = {"path": str(out), "topics": "bad", "value_schema": "n bigint", "flush_interval_ms": "100"}
    create(address, "bad", "LakeSink", format="json", **settings)
    failed = until(lambda: (state := task_state(address, "bad"))["state"] == "FAILED" and state)
    assert "bad-0@1: the value is not JSON as value.schema has it" in failed["trace"]
    assert "errors.tolerance=all" in failed["trace"]
    assert not list(out.glob("*.json"))
    more = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "bad-letters",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    ask(address, "PATCH", "/connectors/bad/config", more)
    letters = committed_values(broker, "bad-letters", 2)
    assert sorted(message.value() for message in letters) == [b'{"n": "text"}', b"{broken"]
    assert sorted(dict(message.headers())["__connect.errors.offset"] for message in letters) == [b"1", b"2"]
    until(lambda: list(out.glob("*.json")))
    assert sorted(row.n for row in spark.read.json(str(out)).collect()) == [1, 2]
    ask(address, "DELETE", "/connectors/bad")
